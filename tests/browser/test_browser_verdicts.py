"""The page that compares runs gives the verdicts of ``kbtool compare``, on recorded runs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
import site_trees as trees
from browsing import Served, Visit, served

from kbtool.ledger.timings.sides import newest_first, sides
from kbtool.ledger.timings.spread import Spreads
from kbtool.ledger.timings.verdict import Comparison, Side, compare
from kbtool.site.html.build import build
from kbtool.store.tree import KnowledgeBase

SESSIONS = Path(__file__).parents[2] / "sessions"
RUNS = {
    "20261123T184810Z-peers-3c32", "20261123T185127Z-peers-098b",  # of one commit
    "20261123T190420Z-peers-9a0d", "20261123T231955Z-split-k-ec5a",
    "20261123T233642Z-peers-ed1d",
    "20261124T063109Z-split-k-4675",  # with changes that no commit has, on another card
    "20261124T115431Z-split-k-1998",  # noisy
    "20261123T044912Z-split-k-ae74",  # on a processor
}  # fmt: skip
PROBLEMS = {"20261123T184810Z-peers-3c32": "a", "20261123T185127Z-peers-098b": "b"}
"""Runs that are given a problem, by a letter; that of the others is unknown."""
DRAWN = 60


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KnowledgeBase, Served]]:
    root = trees.make(tmp_path_factory.mktemp("recorded") / "kb")
    session = trees.session_id(1)
    for path in SESSIONS.glob("*/runs/*.json"):
        if path.stem in RUNS:
            run = json.loads(path.read_text())
            del run["digest"]
            if path.stem in PROBLEMS:
                harness = {"kernels/copy/harness.py": PROBLEMS[path.stem] * 64}
                run["identity"] = {"problem": harness}
            put = root / "sessions" / session / "runs" / path.name
            trees.put(put, trees.sealed({**run, "session": session, "taken_in": None}))
    build(root, root / "site")
    with served(root / "site") as site:
        yield KnowledgeBase(root), site


def shown(seen: Visit, base: str, a: str, b: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """The answer, and of each case its verdict and the figure that its ratio is sorted by."""
    seen.goto("about:blank")
    seen.goto(f"{base}/compare.html#a={quote(a)}&b={quote(b)}")
    seen.page.locator("#kb-answer").wait_for()
    rows = seen.page.evaluate(
        """() => [...document.querySelectorAll("#kb-compare .kb-long")].map(name => {
            const cells = name.closest("tr").children;
            return [name.dataset.case, cells[4].textContent, cells[3].dataset.sort];
        })"""
    )
    answer = seen.page.locator("#kb-answer").inner_text()
    return answer, {name: (verdict, ratio) for name, verdict, ratio in rows}


def test_several_runs_a_side_have_the_verdicts_of_the_command(
    recorded: tuple[KnowledgeBase, Served], visit: Callable[..., Visit]
) -> None:
    base, site = recorded
    every = newest_first(entry.record for entry in base.runs)
    spreads = Spreads(every)
    of_one_card = [one for one in every if one.machine == "NVIDIA H200" and not one.noise]
    draw, seen = random.Random(7), visit(site.http)
    told_of_several = 0
    for _ in range(12):
        drawn = draw.sample(of_one_card, draw.randint(3, len(of_one_card)))
        cut = draw.randint(1, len(drawn) - 1)
        first, second = (Side("", list(runs)) for runs in (drawn[:cut], drawn[cut:]))
        told = compare(first, second, spreads)
        a, b = ("+".join(one.run.id for one in side.runs) + "/split_k" for side in (first, second))
        answer, rows = shown(seen, site.http, a, b)
        assert answer == told.answer, (a, b)
        for row in told.rows:
            if row.a is not None:
                verdict, ratio = rows[row.case]
                assert verdict == row.verdict.replace("_", " "), (a, b, row)
                assert (
                    ratio == "–" if row.ratio is None else float(ratio) == pytest.approx(row.ratio)
                )
        told_of_several += bool(told.of("same", "slower", "faster"))
    assert told_of_several >= 2


def test_drawn_pairs_have_the_verdicts_of_the_command(
    recorded: tuple[KnowledgeBase, Served], visit: Callable[..., Visit]
) -> None:
    base, site = recorded
    every = newest_first(entry.record for entry in base.runs)
    spreads = Spreads(every)
    arms = [
        f"{one.run.id}/{arm}"
        for one in every
        for arm in dict.fromkeys(arm for case in one.results[0].cases for arm in case.arms)
    ]
    # Unlike runs and runs without a case in common have no verdict; not all drawn are such.
    found: list[tuple[str, str, Comparison]] = []
    chosen = random.Random(41)
    pairs = [pair for pair in product(arms, arms) if pair[0] != pair[1]]
    apart = tuple(f"{run}/split_k" for run in PROBLEMS)
    for a, b in [apart, *chosen.sample(pairs, len(pairs))]:
        first, second = sides((a, b), every, lambda _: None)
        told = compare(first, second, spreads)
        few = sum(not one.of("same", "slower", "faster") for *_, one in found) < DRAWN // 3
        if told.of("same", "slower", "faster") or few:
            found.append((a, b, told))
        if len(found) == DRAWN:
            break
    assert "another problem" in {row.why for row in found[0][2].of("unlike")}
    verdicts: set[str] = set()
    seen = visit(site.http)
    for a, b, told in found:
        answer, rows = shown(seen, site.http, a, b)
        assert answer == told.answer, (a, b)
        held = [row for row in told.rows if row.a is not None]
        assert rows.keys() == {row.case for row in held}
        for row in held:
            verdict, ratio = rows[row.case]
            assert verdict == row.verdict.replace("_", " "), (a, b, row)
            assert ratio == "–" if row.ratio is None else float(ratio) == pytest.approx(row.ratio)
        verdicts |= {row.verdict for row in told.rows}
    assert verdicts == {"same", "faster", "slower", "too_noisy", "unlike", "missing"}
