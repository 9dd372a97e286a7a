"""How often ``kbtool compare`` is wrong, and what it finds, by runs that were recorded.

    python benchmarks/bench_verdicts.py
    python benchmarks/bench_verdicts.py --seed 7 --draws 10000

Two runs are of the same code if they timed the same commit (arms of the library) or were made
under the same conditions (peers). Each difference of such a pair is a difference that means
nothing. The commits are split in two halves by the seed. On one half the spread that the rule
assumes is fitted; on the other its verdicts are counted:

- same code: a pair is drawn, then its cases with replacement, then which run is A. Every verdict
  other than "same" and "too noisy" is false. Beside it the rule of before: quartiles that do not
  overlap.
- a step: each run of a side is a run's differences of the other half, drawn anew, and B is slower
  by the step in one case, or in all. What is found is the power.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from kbtool.ledger.timings.conditions import Timed, unlike
from kbtool.ledger.timings.sides import newest_first
from kbtool.ledger.timings.spread import (
    METRICS,
    OWN,
    PEER,
    Difference,
    Metric,
    Spread,
    Spreads,
    difference,
    is_own,
    limit,
    pooled,
    time_of,
)
from kbtool.model.kinds.timing import Timing
from kbtool.model.words import many
from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[1]
KINDS = ("library", "peers")


class Cell(NamedTuple):
    """A case that two runs of the same code timed; times as logarithms."""

    first: float
    second: float
    spread: Spread | None
    """As the other half of the commits has it."""
    timings: tuple[Timing, Timing]


class Pair(NamedTuple):
    """Two runs of the same code."""

    runs: tuple[str, str]
    arm: str
    cells: list[Cell]


def usable(every: Iterable[Timed]) -> list[Timed]:
    """The quiet runs of a commit on a card, since the timing of ADR 0027."""
    return [
        one
        for one in every
        if one.commit and not one.noise and one.results[-1].others_on_card is not None
    ]


def halves(every: Sequence[Timed], seed: int) -> tuple[list[Timed], list[Timed]]:
    """The runs in two halves, each commit in one of them; of commits that timed one case more than
    once, as many in either."""
    again = Counter(one.commit for one in every)
    drawn = random.Random(seed)
    first = set()
    for of_one in (False, True):
        # In order of time, by twos, so that later commits do not change the halves of earlier ones.
        commits = list(
            dict.fromkeys(
                one.commit for one in reversed(every) if (again[one.commit] == 1) == of_one
            )
        )
        for at in range(0, len(commits), 2):
            first.add(drawn.choice(commits[at : at + 2]))
    return (
        [one for one in every if one.commit in first],
        [one for one in every if one.commit not in first],
    )


def pairs(runs: Sequence[Timed], kind: str, metric: Metric, spreads: Spreads) -> list[Pair]:
    """Every two runs of the same code, arm by arm."""
    found = []
    for one, other in combinations(runs, 2):
        if unlike(one, other) or (kind == "library" and one.commit != other.commit):
            continue
        cells: dict[str, list[Cell]] = {}
        for result in one.results:
            for case in result.cases:
                match = next(
                    (
                        (theirs, each)
                        for theirs in other.results
                        for each in theirs.cases
                        if (each.case_set, each.name) == (case.case_set, case.name)
                        and each.case == case.case
                    ),
                    None,
                )
                for arm in case.arms if match else ():
                    theirs, each = match
                    if arm not in each.arms or is_own(result, arm) != (kind == "library"):
                        continue
                    times = time_of(case, arm, metric), time_of(each, arm, metric)
                    if None not in times and is_own(theirs, arm) == is_own(result, arm):
                        spread = spreads.of(one, result, case, arm, metric)
                        timings = case.arms[arm], each.arms[arm]
                        cells.setdefault(arm, []).append(Cell(*times, spread, timings))
        found += [Pair((one.run.id, other.run.id), arm, of) for arm, of in cells.items()]
    return [pair for pair in found if len(pair.cells) >= 10]


def fitted(every: Iterable[Pair]) -> tuple[Spread, int] | None:
    """Scale and degrees of freedom of Student's t that fit the differences best, of two runs each;
    and the least degrees of freedom that 95 % of the likelihood's weight allows."""
    values = [abs(cell.second - cell.first) for pair in every for cell in pair.cells]
    if not values:
        return None
    best: dict[int, tuple[float, float]] = {}
    for freedom in (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60):
        constant = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
        constant -= math.log(freedom * math.pi) / 2
        best[freedom] = max(
            (
                len(values) * (constant - math.log(scale * math.sqrt(2)))
                - (freedom + 1) / 2
                * sum(math.log1p((value / scale) ** 2 / 2 / freedom) for value in values),
                scale,
            )
            for scale in (0.001 * 1.06**step for step in range(50))
        )  # fmt: skip
    freedom = max(best, key=lambda each: best[each][0])
    least = min(each for each in best if best[each][0] > best[freedom][0] - 1.92)
    return Spread(best[freedom][1] ** 2, freedom), least


def verdicts(differences: Sequence[Difference]) -> list[int]:
    """1 for a case that is called slower, −1 for faster, 0 for neither."""
    most = limit([each.chance for each in differences])
    return [
        0 if each.chance > most or each.is_small else (1 if each.value > 0 else -1)
        for each in differences
    ]


class Rate(NamedTuple):
    """Of so many comparisons and cases, how many have a verdict."""

    comparisons: int
    wrong: int
    cases: int
    wrong_cases: int

    def __str__(self) -> str:
        return (
            f"{self.wrong / self.comparisons:7.2%} of {self.comparisons:,} comparisons,"
            f" {self.wrong_cases / self.cases:8.4%} of {self.cases:,} cases"
        )


def same_code(every: Sequence[Pair], draws: int, seed: int, *, old: bool = False) -> Rate:
    """How often a pair of runs of the same code has a verdict."""
    chosen = random.Random(seed)
    wrong = cases = wrong_cases = 0
    for _ in range(draws):
        pair = chosen.choice(every)
        sign = chosen.choice((1, -1))
        cells = chosen.choices(pair.cells, k=len(pair.cells))
        if old:
            said = [int(quartiles_apart(*cell.timings)) for cell in cells]
        else:
            drawn = [(sign * (cell.second - cell.first), cell.spread) for cell in cells]
            said = verdicts(
                [difference(([0.0], known), ([by], known)) for by, known in drawn if known]
            )
        wrong += any(said)
        cases += len(cells)
        wrong_cases += sum(map(bool, said))
    return Rate(draws, wrong, cases, wrong_cases)


def quartiles_apart(one: Timing, other: Timing) -> bool:
    """The rule of before: whether the quartiles inside the two runs do not overlap."""
    return one.high_us < other.low_us or other.high_us < one.low_us


class Power(NamedTuple):
    """Of cases that are slower by a step, how many were found; and the false verdicts meanwhile."""

    found: float
    false: Rate


def power(
    every: Sequence[Pair], prior: Spread, runs: int, step: float, draws: int, seed: int,
    *, stepped: int = 1, cases: int = 36,
) -> Power:  # fmt: skip
    """How often a step is found.

    Args:
        every: pairs whose differences runs are drawn from.
        prior: the spread that is assumed of a case.
        runs: runs a side.
        step: 0.03 for 3 %.
        draws: comparisons.
        seed: of the draws.
        stepped: cases that are slower.
        cases: cases in all.
    """
    chosen = random.Random(seed)
    found = wrong = wrong_cases = 0
    for _ in range(draws):
        table = [[_run(chosen, every, cases) for _ in range(runs)] for _ in range(2)]
        differences = []
        for case in range(cases):
            shift = math.log1p(step) if case < stepped else 0.0
            a = [run[case] for run in table[0]]
            b = [run[case] + shift for run in table[1]]
            spread = pooled(prior, [a, b])
            assert spread is not None
            differences.append(difference((a, spread), (b, spread)))
        said = verdicts(differences)
        found += sum(each == 1 for each in said[:stepped])
        false = sum(map(bool, said[stepped:]))
        wrong += bool(false)
        wrong_cases += false
    rest = max(1, draws * (cases - stepped))
    return Power(found / draws / stepped, Rate(draws, wrong, rest, wrong_cases))


def _run(chosen: random.Random, every: Sequence[Pair], cases: int) -> list[float]:
    """How far each case of one run lies from its mean: half of a pair's difference in variance.
    Its cases are of one pair, so that what shifts a whole run stays together."""
    pair, sign = chosen.choice(every), chosen.choice((1, -1))
    cells = chosen.choices(pair.cells, k=cases)
    return [sign * (cell.second - cell.first) / math.sqrt(2) for cell in cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--splits", type=int, default=24, help="halves of other seeds, beside")
    options = parser.parse_args()
    every = newest_first(entry.record for entry in KnowledgeBase(ROOT).runs)
    develop, measure = halves(usable(every), options.seed)
    spreads = Spreads(develop)
    print(f"{len(develop)} runs to develop on, {len(measure)} to measure on, seed {options.seed}")
    for kind, prior in zip(KINDS, (OWN, PEER), strict=True):
        assumed = f"{math.sqrt(prior.variance):.2%} with {prior.freedom} degrees of freedom"
        print(f"\n{kind}: assumed {assumed}")
        for metric in METRICS:
            fit = fitted(pairs(develop, kind, metric, spreads))
            held = pairs(measure, kind, metric, spreads)
            print(f"  {metric}")
            if fit:
                known, least = fit
                print(
                    f"    fitted: {math.sqrt(known.variance):.2%} with {known.freedom},"
                    f" at least {least}"
                )
            if not held:
                print("    no pair to measure on")
                continue
            new = same_code(held, options.draws, options.seed)
            print(f"    same code, {many(len(held), 'pair')}: false {new}")
            if metric == "chain":
                old = same_code(held, options.draws, options.seed, old=True)
                print(f"    by the rule of before: false {old}")
            for runs, step in ((1, 0.03), (1, 0.06), (1, 0.12), (2, 0.03), (5, 0.03), (20, 0.03)):
                one = power(held, prior, runs, step, options.draws, options.seed)
                broad = power(
                    held, prior, runs, step, max(1, options.draws // 10), options.seed, stepped=36
                )
                print(
                    f"    {step:3.0%} slower, {many(runs, 'run')} a side: found {one.found:6.1%} in"
                    f" one case of 36, {broad.found:6.1%} in all; false {one.false}"
                )
    print(f"\nsame code, over {options.splits} further splits of the commits:")
    for kind in KINDS:
        for metric in METRICS:
            rates = []
            for seed in range(options.seed + 1, options.seed + 1 + options.splits):
                develop, measure = halves(usable(every), seed)
                if held := pairs(measure, kind, metric, Spreads(develop)):
                    rates.append(same_code(held, options.draws, seed))
            print(f"  {kind}, {metric}: false {_total(rates)}; worst {max(rates, key=_share)}")


def _share(rate: Rate) -> float:
    return rate.wrong / rate.comparisons


def _total(rates: Sequence[Rate]) -> Rate:
    return Rate(*(sum(values) for values in zip(*rates, strict=True)))


if __name__ == "__main__":
    main()
