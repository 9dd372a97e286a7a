"""The verdicts of ``kbtool compare`` over the runs of this repository (ADR 0041)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kbtool.ledger.timings.conditions import Timed
from kbtool.ledger.timings.sides import newest_first, sides
from kbtool.ledger.timings.spread import METRICS, OWN, PEER, Spread, Spreads
from kbtool.ledger.timings.verdict import compare
from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def every() -> list[Timed]:
    return newest_first(entry.record for entry in KnowledgeBase(ROOT).runs)


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "bench_verdicts", ROOT / "benchmarks/bench_verdicts.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def held(every: list[Timed], bench: ModuleType) -> dict[str, list[Any]]:
    """Pairs of runs of the same code, of commits that the spread is not taken from."""
    develop, measure = bench.halves(bench.usable(every), seed=1)
    assert not {one.commit for one in develop} & {one.commit for one in measure}
    known = Spreads(develop)
    return {kind: bench.pairs(measure, kind, "chain", known) for kind in bench.KINDS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "b", "before"),
    [("20261123T233242Z", "20261123T233642Z", 19), ("20261123T184810Z", "20261123T185127Z", 26)],
)
def test_two_runs_of_one_commit_show_no_change(
    every: list[Timed], bench: ModuleType, a: str, b: str, before: int
) -> None:
    """The quartiles of the two runs lie apart in most cases, which was the rule of before."""
    first, second = sides((a, b), every, lambda _: None)
    theirs = {case.name: case for case in second.newest.results[0].cases}
    apart = [
        bench.quartiles_apart(case.arms["split_k"], theirs[case.name].arms["split_k"])
        for case in first.newest.results[0].cases
        if case.name in theirs
    ]
    assert (sum(apart), len(apart)) == (before, 36)
    # What the two runs tell of their own spread is not used against them.
    known = Spreads(one for one in every if one.commit != first.newest.commit)
    for metric in METRICS:
        rows = compare(first, second, known, metric).rows
        assert {row.verdict for row in rows if row.verdict != "missing"} <= {"same", "too_noisy"}
        assert len([row for row in rows if row.verdict == "same"]) >= 30


def test_drawn_comparisons_of_one_code_are_hardly_ever_called_changed(
    bench: ModuleType, held: dict[str, list[Any]]
) -> None:
    for pairs in held.values():
        now = bench.same_code(pairs, 300, seed=1)
        before = bench.same_code(pairs, 300, seed=1, old=True)
        assert now.wrong / now.comparisons <= 0.01
        assert before.wrong / before.comparisons > 0.9


@pytest.mark.parametrize(("kind", "prior"), [("library", OWN), ("peers", PEER)])
def test_twenty_runs_a_side_show_a_step_of_three_percent(
    bench: ModuleType, held: dict[str, list[Any]], kind: str, prior: Spread
) -> None:
    found = bench.power(held[kind], prior, 20, 0.03, 40, seed=1)
    assert found.found >= 0.9
    assert found.false.wrong / found.false.comparisons <= 0.01
    # A step that is too small to count is not called one.
    assert bench.power(held[kind], prior, 20, 0.015, 40, seed=1).found <= 0.1
