"""Pages of values that nobody validated say so."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import site_trees as trees

from kbtool.model.kinds.command import CommandResult
from kbtool.model.run import Run
from kbtool.site.index import Index
from kbtool.site.pages import home, run, session
from kbtool.site.pages.run import RunLinks
from kbtool.steps.command.page import page as command_page
from kbtool.steps.logged import MOST
from kbtool.store.tree import KnowledgeBase

SOAK = Path(__file__).parents[2] / "soak" / "base" / "sessions" / "2025-01-02-b" / "runs"
LOGGED, IMPORTED = "20250102T090015Z-bench-0015", "20250102T090016Z-results-0016"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return trees.make(tmp_path / "kb")


def put(root: Path, name: str, **result: Any) -> tuple[Index, Run]:
    """A run of the soak's base in the first session of the tree."""
    record = json.loads((SOAK / f"{name}.json").read_text())
    record["steps"][0]["result"] |= result
    record |= {"session": trees.session_id(1)}
    record.pop("digest")
    folder = root / "sessions" / record["session"] / "runs"
    trees.put(folder / f"{name}.json", trees.sealed(record))
    index = Index(KnowledgeBase(root))
    return index, index.runs[record["session"], name][-1]


@pytest.mark.parametrize(
    ("name", "mark"),
    [(LOGGED, "logged, not validated"), (IMPORTED, "taken in, not validated here")],
)
def test_the_run_its_session_the_list_and_the_first_page_say_it(root, name, mark):
    index, made = put(root, name)
    page = unescape(run.page(index, [made]))
    assert f"These values were {mark}." in page
    assert f"[{mark}]" in page
    assert "kbtool run-recipe" not in page
    for other in (
        session.page(index, index.sessions[made.session]),
        run.listing(index),
        home.page(index, None),
    ):
        assert f"[{mark}]" in unescape(other)


def test_an_imported_run_shows_the_machine_that_its_file_names(root):
    index, made = put(root, IMPORTED, machine={"card": "A far card", "host": "far"})
    page = unescape(run.page(index, [made]))
    assert "[A far card](#step-1)" in page and "Its machine: host" in page
    assert "This is the machine that read the file" in page
    assert "pytest-benchmark 5.1.0" in page and "b" * 12 in page
    assert "A far card" in unescape(run.listing(index))


def test_a_page_lists_the_first_metrics_of_many_and_says_how_many_there_are(root):
    metrics = [
        {"name": "loss", "unit": "1", "case": {"step": n}, "values": [n]} for n in range(MOST + 7)
    ]
    index, made = put(root, LOGGED, metrics=metrics)
    page = unescape(run.page(index, [made]))
    assert f"step={MOST - 1} " in page and f"step={MOST} " not in page
    assert f"The first {MOST} of {MOST + 7}; [JSON](" in page


def test_a_name_of_a_metric_is_text(root):
    metrics = [{"name": "<b>x</b>|y", "unit": "J", "values": [1]}]
    index, made = put(root, LOGGED, metrics=metrics)
    assert "<b>x" not in run.page(index, [made])


@pytest.mark.parametrize("logs", [True, False])
def test_what_a_command_printed_is_folded_below_what_it_logged(root, logs):
    index, made = put(root, LOGGED)
    metrics = made.steps[0].result.metrics if logs else []
    result = CommandResult(argv=["time"], exit_code=0, output_tail="printed", metrics=metrics)
    page = command_page(result, RunLinks(index, made, "runs/x.html"))
    assert ("What it printed" in page) is logs
    assert page.index("printed") > page.index("Exit status: 0")
    assert not logs or page.index("Not validated") < page.index("Exit status: 0")
