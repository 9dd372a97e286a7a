"""How far runs of the same code lie apart, and which differences are more than that (ADR 0041).

All times are natural logarithms here, so a difference of 0.03 is one of 3 %.
``assets/compare.js`` has ``chance`` and ``limit`` a second time; a test holds the two equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from statistics import fmean
from typing import Literal, NamedTuple

from kbtool.ledger.timings.conditions import Timed, conditions
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult

Metric = Literal["between", "chain"]
"""The time between plain kernels, or in a chain of an arm's own calls (ADR 0029)."""

METRICS: tuple[Metric, ...] = ("between", "chain")

LEAST = math.log(1.02)
"""A difference of less counts as none."""

FALSE = 0.01
"""The share of false verdicts that is allowed."""


class Spread(NamedTuple):
    """How far the times of one case lie apart from run to run."""

    variance: float
    """Of the time of one run."""
    freedom: int
    """Degrees of freedom: how well the variance is known."""


OWN, PEER = Spread(0.0075**2, 5), Spread(0.0080**2, 3)
"""What is assumed of a case on a card before any of its runs are known: of the arms of the library,
and of its peers. ``benchmarks/bench_verdicts.py`` measures both, and what they lead to."""


def time_of(case: BenchmarkCase, arm: str, metric: Metric) -> float | None:
    """The time of an arm, as a logarithm; ``None`` if it proves nothing or was not taken."""
    timing = case.arms.get(arm)
    us = timing.us(metric == "between") if timing else None
    return math.log(us) if us and wrong(case, arm) is None else None


def wrong(case: BenchmarkCase, arm: str) -> str | None:
    """Why the time of an arm proves nothing."""
    if case.refused:
        return case.refused
    output = case.peers.get(arm)
    return None if output is None or output.passed else f"the output of {arm} is wrong"


Key = tuple[str | None, str, str | None, str, str, Metric]
"""Kernel, machine, case set, case, arm and metric."""


class Spreads:
    """The run-to-run spread of every case, arm and machine that runs tell of.

    Runs are of the same code if they timed the same commit under the same conditions. A peer is
    the same code on every commit, as long as the conditions are the same.
    """

    def __init__(self, runs: Iterable[Timed]) -> None:
        self._times: dict[Key, dict[object, list[float]]] = {}
        for one in runs:
            if one.noise is None and one.commit is not None:
                self._add(one)

    def _add(self, one: Timed) -> None:
        alike = tuple(each for each in conditions(one) if each.weighs and not each.is_measured)
        for result in one.results:
            for case in result.cases:
                fields = repr(sorted(case.case.items()))
                for arm in case.arms:
                    code = (alike, fields, one.commit if is_own(result, arm) else None)
                    for metric in METRICS:
                        time = time_of(case, arm, metric)
                        if time is not None:
                            key = (*_place(one, case), arm, metric)
                            self._times.setdefault(key, {}).setdefault(code, []).append(time)

    def of(
        self, one: Timed, result: BenchmarkResult, case: BenchmarkCase, arm: str, metric: Metric
    ) -> Spread | None:
        """The spread of a case, drawn towards what is assumed of all; ``None`` if nothing is known.

        Args:
            one: a run that timed the case.
            result: its benchmark that did.
            case: the case.
            arm: the arm.
            metric: the metric.
        """
        prior = None
        if result.device == "cuda":
            prior = OWN if is_own(result, arm) else PEER
        return pooled(prior, self._times.get((*_place(one, case), arm, metric), {}).values())


def is_own(result: BenchmarkResult, arm: str) -> bool:
    """Whether an arm runs the library."""
    return arm == result.subject or arm in result.variants


def _place(one: Timed, case: BenchmarkCase) -> tuple[str | None, str, str | None, str]:
    return one.run.kernel, one.machine, case.case_set, case.name


def pooled(prior: Spread | None, groups: Iterable[Sequence[float]]) -> Spread | None:
    """The variance within groups of times of the same code, drawn towards ``prior`` and no less.

    Runs that lie close together do not show that a case never jumps: torch's peers take another
    path in one run of many.
    """
    squares, freedom = (prior.variance * prior.freedom, prior.freedom) if prior else (0.0, 0)
    for times in groups:
        mean = fmean(times)
        squares += sum((time - mean) ** 2 for time in times)
        freedom += len(times) - 1
    if not freedom:
        return None
    return Spread(max(squares / freedom, prior.variance if prior else 0.0), freedom)


class Difference(NamedTuple):
    """The times of a case on two sides."""

    value: float
    """The second side's mean less the first's."""
    variance: float
    """Of the value, if the code of both is the same."""
    freedom: int

    @property
    def is_small(self) -> bool:
        """Whether it counts as none."""
        return abs(self.value) < LEAST

    @property
    def chance(self) -> float:
        """How often the same code differs by as much or more; 1 for what counts as none."""
        return 1.0 if self.is_small else chance(self.value, self.variance, self.freedom)


def difference(
    first: tuple[Sequence[float], Spread], second: tuple[Sequence[float], Spread]
) -> Difference:
    """The difference of two sides, each with its times and their spread."""
    variance = sum(spread.variance / len(times) for times, spread in (first, second))
    value = fmean(second[0]) - fmean(first[0])
    return Difference(value, variance, min(first[1].freedom, second[1].freedom))


def chance(value: float, variance: float, freedom: int) -> float:
    """How often a variable of Student's t distribution, so scaled, is as far from 0 as ``value``.

    The finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    if variance == 0:
        return 0.0 if value else 1.0
    angle = math.atan(abs(value) / math.sqrt(variance * freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for step in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (step - 1) / step
    inner = math.sin(angle) * total
    return max(0.0, 1 - (2 / math.pi * (angle + inner) if odd else inner))


@cache
def margin(spread: Spread, runs: int) -> float:
    """How far a further run of the same code lies from the mean of some, at most, in 95 of 100
    cases."""
    variance = spread.variance * (1 + 1 / runs)
    low, high = 0.0, 1.0
    while chance(high, variance, spread.freedom) > _OUTSIDE:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        if chance(middle, variance, spread.freedom) > _OUTSIDE:
            low = middle
        else:
            high = middle
    return high


_OUTSIDE = 0.05


def limit(chances: Sequence[float], tries: int = 1) -> float:
    """The largest chance that counts as a change (Benjamini and Hochberg 1995); 0 if none does.

    Of what is called changed, no more than the share ``FALSE`` is expected not to be.

    Args:
        chances: of all cases that are compared.
        tries: how many sides were looked at to choose one of the two.
    """
    allowed = FALSE / (len(chances) * tries) if chances else 0.0
    passing = (c for rank, c in enumerate(sorted(chances), 1) if c <= allowed * rank)
    return max(passing, default=0.0)
