"""The page of a sweep."""

from __future__ import annotations

import json
import re
from datetime import date
from html import unescape

from knowledge import LOOK, RUN, Knowledge, sealed

from kbtool.model.sweep import Sweep
from kbtool.site.html.build import SOURCE, load_config
from kbtool.site.index import Index
from kbtool.site.pages import pages
from kbtool.store.sweeps import write_sweep
from kbtool.store.tree import KnowledgeBase

LEDGER = """\
# yaml-language-server: $schema=../schemas/ledger.json
rates:
  - {id: l4, kind: gpu, rate: 0.60 USD/h, day: 2024-10-12, card: L4}
"""
OWN = "20250101T090500Z-look"


def attempt(status: str, run: str | None = None, message: str | None = None) -> dict:
    return {
        "job": "7", "queued": "2025-01-01T09:00:00Z", "started": "2025-01-01T09:01:00Z",
        "ended": "2025-01-01T09:31:00Z", "status": status, "run": run, "message": message,
        "machine": "NVIDIA L4", "cards": 1, "busy_s": 900.0,
    }  # fmt: skip


def site(tmp_path) -> dict[str, str]:
    base = Knowledge(tmp_path)
    base.session()
    base.pattern(more=LOOK)
    base.write("sessions/ledger.yaml", LEDGER)
    base.run(sealed({**RUN, "attempt": 1}))
    base.run(sealed({**RUN, "attempt": 1, "id": OWN}))
    write_sweep(tmp_path, Sweep.model_validate_json(json.dumps({
        "id": "20250101T090000Z-sweep-look-ab12", "session": "2025-01-01-a", "recipe": "look",
        "pattern": "P01", "axes": [{"name": "n", "values": ["<b>1", "2", "3"]}],
        "engine": {"name": "slurm", "jobs": 2, "options": {"partition": "gpu"}},
        "repository": {}, "status": "stopped",
        "started": "2025-01-01T09:00:00Z", "ended": "2025-01-01T10:00:00Z",
        "cells": [
            {"id": "1", "parameters": {"n": "<b>1"}, "status": "passed", "run": RUN["id"],
             "reused": True},
            {"id": "2", "parameters": {"n": "2"}, "status": "passed", "run": OWN,
             "attempts": [attempt("preempted", message="Slurm says PREEMPTED"),
                          attempt("passed", OWN)]},
            {"id": "3", "parameters": {"n": "3"}},
        ],
    })))  # fmt: skip
    return pages(Index(KnowledgeBase(tmp_path)), date(2025, 1, 2))


def test_the_page_shows_cells_cards_and_what_failed(tmp_path):
    made = site(tmp_path)
    (path,) = [one for one in made if one.startswith("sweeps/")]
    assert path == "sweeps/2025-01-01-a/20250101T090000Z-sweep-look-ab12.md"
    page = unescape(made[path])
    assert "2 passed" in page and "1 of them from earlier runs" in page
    assert "# Sweep of look over n {#title}" in page
    assert "slurm, 2 jobs at once, partition=gpu" in page
    cells = [line for line in page.splitlines() if re.match(r"\| [123] \|", line)]
    assert len(cells) == 4  # three cells, and one attempt that failed
    assert "(made before)" in cells[0] and "<b>" not in made[path]
    assert "(made before)" not in cells[1] and OWN in cells[1]
    assert "waiting" in cells[2]
    assert "Slurm says PREEMPTED" in cells[3]
    # Held twice for half an hour, in steps for half of that, at 0.60 an hour.
    (card,) = [line for line in page.splitlines() if "NVIDIA L4" in line and "USD/h" in line]
    assert "50%" in card and "0.60 USD |" in card


def test_it_is_beside_the_navigation_so_that_a_strict_build_passes(tmp_path):
    (tmp_path / SOURCE).mkdir(parents=True)
    config = load_config(tmp_path, tmp_path / "out")
    assert config.not_in_nav.match_file("sweeps/2025-01-01-a/20250101T090000Z-look-ab12.md")


def test_the_session_and_the_run_lead_to_it(tmp_path):
    made = site(tmp_path)
    assert "20250101T090000Z-sweep-look-ab12" in made["sessions/2025-01-01-a.md"]
    assert "cell of a sweep" in made[f"runs/2025-01-01-a/{OWN}.md"]
