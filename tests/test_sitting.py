"""One sitting with the commands of before and of now, run for real, and what it takes to type."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench_sitting import BEGIN, END, MARKDOWN, PAGE, Count, both, table, written  # noqa: E402


@pytest.mark.slow
def test_both_sittings_leave_the_same_record_and_the_guide_has_their_counts(monkeypatch):
    monkeypatch.delenv("KBTOOL_ROOT", raising=False)
    before, now = both()
    assert before.facts == now.facts
    assert len(now.facts["bugs"][0]["hypotheses"]) == 2 and now.facts["runs"] == 2
    was, is_, document = (Count.of(text) for text in (before.text, now.text, MARKDOWN))
    assert is_.commands < was.commands and is_.lines < was.lines and is_.keys < was.keys
    assert now.with_tab < is_.keys and now.with_tab < document.keys
    page = PAGE.read_text(encoding="utf-8")
    counted = page.partition(BEGIN)[2].partition(END)[0].strip()
    # The keys with Tab change with every new command; the guide holds them as of its last count.
    tab = re.compile(r"^\| the same, with Tab .*\n", re.M)
    assert tab.sub("", counted) == tab.sub("", table(before, now).strip()), (
        "run: python benchmarks/bench_sitting.py --write"
    )


def test_what_is_counted():
    script = "$ kbtool check\nnote x\n\n$ git log\n"
    assert Count.of(script) == Count(2, 1, len(script) - len("$ $ "))
    assert written(f"a\n{BEGIN}\nold\n{END}\nb\n", "new\n") == f"a\n{BEGIN}\n\nnew\n\n{END}\nb\n"
