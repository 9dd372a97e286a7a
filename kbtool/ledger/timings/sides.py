"""What a name given to ``kbtool compare`` means: which runs, and which arm of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from kbtool.ledger.timings.conditions import PROBLEM, Timed, timed, unlike
from kbtool.ledger.timings.spread import METRICS, Metric, time_of
from kbtool.ledger.timings.verdict import ANOTHER, Side
from kbtool.model.errors import NotFoundError, UsageError
from kbtool.model.run import Run
from kbtool.model.words import many
from kbtool.store.tree import LAST, meant

Revision = Callable[[str], str | None]
"""Git's name of a commit (HEAD, a branch, a tag) → its id, ``None`` if it has none."""

BEST = "best"


def newest_first(runs: Iterable[Run]) -> list[Timed]:
    """The last attempt of every run that timed something.

    Args:
        runs: oldest first, with every attempt.
    """
    last = {run.id: run for run in runs}
    return [one for run in reversed(last.values()) if (one := timed(run))]


def sides(names: tuple[str, str], every: Sequence[Timed], revision: Revision) -> tuple[Side, Side]:
    """The two sides that names stand for.

    Args:
        names: each a run, a commit, a card, an arm, ``last`` or ``best``; RUN/ARM is an arm of it.
        every: all runs that timed something, newest first.
        revision: asks git.

    Raises:
        NotFoundError: a name fits nothing, or several runs.
        UsageError: both are the same, or each depends on the other.
    """
    if not every:
        raise NotFoundError("no run has a benchmark yet; see `kbtool run-recipe`")
    asked = [_Asked.of(name, every) for name in names]
    if [one.where for one in asked].count(BEST) == 2:
        raise UsageError("both are `best`; give one of them another name")
    found: list[Side | None] = [None, None]
    # What stands by itself first; cards, arms and the best depend on the other side.
    for place in sorted((0, 1), key=lambda place: asked[place].rank(every)):
        found[place] = asked[place].side(every, found[1 - place], asked[1 - place], revision)
    first, second = found
    assert first is not None and second is not None
    if asked[0].rank(every) == 0 and unlike(first.newest, second.newest):
        # Of a commit that timed several kernels, or under several conditions: those of the other.
        first = asked[0].side(every, second, asked[1], revision)
    return _apart(first, second)


def _apart(first: Side, second: Side) -> tuple[Side, Side]:
    """The sides without the runs that both have of one arm."""
    results = [side.newest.results[-1] for side in (first, second)]
    if first.arm_of(results[0]) != second.arm_of(results[1]):
        return first, second
    both = {one.run.id for one in first.runs} & {one.run.id for one in second.runs}
    if not both:
        return first, second
    kept = [
        side if len(side.runs) == len(both) else side._replace(runs=[
            one for one in side.runs if one.run.id not in both
        ])
        for side in (first, second)
    ]  # fmt: skip
    if kept == [first, second]:
        raise UsageError(f"{first.name} and {second.name} are the same: {first.label}")
    return kept[0], kept[1]


class _Asked(NamedTuple):
    """A name as it was given, in its parts."""

    name: str
    where: str | None
    arm: str | None

    @classmethod
    def of(cls, name: str, every: Sequence[Timed]) -> _Asked:
        where, slash, arm = name.partition("/")
        if slash:
            return cls(name, where or None, arm)
        return cls(name, None, name) if name in _arms(every) else cls(name, name, None)

    def rank(self, every: Sequence[Timed]) -> int:
        """After which kinds of names it has to be looked up."""
        if self.where == BEST:
            return 3
        if self.where is None:
            return 2
        return 1 if self.where != LAST and _of_card(self.where, every) else 0

    def side(
        self, every: Sequence[Timed], other: Side | None, beside: _Asked, revision: Revision
    ) -> Side:
        """The runs that it stands for, given the other side where that is known."""
        having = [one for one in every if self.arm is None or self.arm in _arms([one])]
        if self.where is None:
            if other is not None:
                runs = [one for one in other.runs if one in having]
            else:
                both = [one for one in having if beside.arm in (None, *_arms([one]))]
                runs = _of_newest_commit(both)
        elif self.where == LAST:
            runs = having[:1]
        elif self.where == BEST:
            assert other is not None
            return _best(self, having, other)
        else:
            runs = self._named(having, other, beside, revision)
        if not runs:
            arm = f" of {self.arm}" if self.arm else ""
            raise NotFoundError(f"{self.name!r}: there is no benchmark{arm}; {_known(every)}")
        return Side(self.name, runs, self.arm)

    def _named(
        self, having: list[Timed], other: Side | None, beside: _Asked, revision: Revision
    ) -> list[Timed]:
        where = self.where or ""
        named = meant(where, [one.run.id for one in having])
        begun = [one for one in having if one.run.id in named]
        commit = where.lower() if re.fullmatch("[0-9a-fA-F]{4,40}", where) else ""
        there = _at_commit(having, commit) if commit else []
        if there and begun and not begun[0].run.id.startswith(where):
            raise NotFoundError(
                f"{where!r} ends run {begun[0].run.id} and begins a commit; write more of it"
            )
        if len(begun) == 1:
            return begun
        cards = _of_card(where, having)
        if cards:
            return self._on_card(cards, having, other, beside)
        if not there and not begun and (full := revision(where)):
            there = _at_commit(having, full)
        ids = {one.run.repository.commit for one in there}
        if len(ids) > 1:
            raise NotFoundError(f"{where!r} begins {len(ids)} commits; write more of it")
        if there:
            return _like_newest(there, other)
        if begun:
            some = ", ".join(one.run.id for one in begun[:5])
            raise NotFoundError(f"{where!r} means {len(begun)} runs: {some}; write more of the id")
        return []

    def _on_card(
        self, cards: list[Timed], having: list[Timed], other: Side | None, beside: _Asked
    ) -> list[Timed]:
        """The runs on a card of a commit that the other side has too, else of the newest."""
        if other is not None:
            shared = {other.newest.commit}
        else:
            shared = {one.commit for one in _of_card(beside.where or "", having)}
        both = [one for one in cards if one.commit and one.commit in shared]
        return _of_newest_commit(both or cards)


def _arms(every: Iterable[Timed]) -> set[str]:
    return {
        arm for one in every for result in one.results for case in result.cases for arm in case.arms
    }


def _of_card(words: str, every: Iterable[Timed]) -> list[Timed]:
    """The runs on a card whose name has all of these words: H100 of NVIDIA H100 80GB HBM3."""
    wanted = set(words.lower().split())
    return [
        one
        for one in every
        if wanted and one.run.machine.card
        and one.results[-1].device == "cuda"
        and wanted <= set(one.run.machine.card.lower().split())
    ]  # fmt: skip


def _at_commit(every: Iterable[Timed], commit: str) -> list[Timed]:
    """The runs of a commit; those with further changes only if there are no others."""
    there = [one for one in every if (one.run.repository.commit or "").startswith(commit)]
    return [one for one in there if one.commit] or there


def _of_newest_commit(every: Sequence[Timed]) -> list[Timed]:
    first = next((one for one in every if one.commit and not one.noise), None)
    if first is None:
        return list(every[:1])
    return _like_newest([one for one in every if one.commit == first.commit], None)


def _like_newest(every: Sequence[Timed], other: Side | None) -> list[Timed]:
    """The quiet runs under the conditions of the other side, else of the newest."""
    quiet = [one for one in every if not one.noise] or list(every)
    if other is not None:
        quiet = [one for one in quiet if not unlike(one, other.newest)] or quiet
    return [one for one in quiet if not unlike(one, quiet[0])]


def _best(asked: _Asked, having: Sequence[Timed], other: Side) -> Side:
    """The commit that took least over the other side's cases, under the same conditions."""
    quiet = [
        one
        for one in having
        if one.commit and not one.noise and one.commit != other.newest.run.repository.commit
    ]
    fit = [one for one in quiet if not unlike(one, other.newest)]
    left_out = sum(unlike(one, other.newest) == [PROBLEM] for one in quiet)
    commits: dict[str | None, Side] = {}
    for one in fit:
        side = commits.setdefault(one.commit, Side(asked.name, [], asked.arm))
        side.runs.append(one)
    metric, wanted = _leading(other)
    taken = [
        (len(wanted - times.keys()), fmean(times[case] for case in wanted & times.keys()), side)
        for side in commits.values()
        if wanted & (times := _mean_times(side, metric)).keys()
    ]
    if not taken:
        others = f"; {many(left_out, 'run')} left out, {ANOTHER}" if left_out else ""
        raise NotFoundError(
            f"no quiet run of another commit was timed under the conditions of {other.name}{others}"
        )
    _, _, best = min(taken, key=lambda each: each[:2])
    return best._replace(tries=len(taken), left_out=left_out)


def _leading(side: Side) -> tuple[Metric, set[str]]:
    """The first metric that a side has, and its cases that have it."""
    for metric in METRICS:
        if cases := set(_mean_times(side, metric)):
            return metric, cases
    raise NotFoundError(f"{side.name!r} has no time that proves anything")


def _mean_times(side: Side, metric: Metric) -> dict[str, float]:
    """Case → its mean time over the runs of a side, as a logarithm."""
    found: dict[str, list[float]] = {}
    for one in side.runs:
        for result in one.results:
            for case in result.cases:
                time = time_of(case, side.arm_of(result), metric)
                if time is not None and math.isfinite(time):
                    found.setdefault(f"{case.case_set}/{case.name}", []).append(time)
    return {case: fmean(times) for case, times in found.items()}


def _known(every: Sequence[Timed]) -> str:
    cards = sorted({one.machine for one in every})
    return f"the newest is {every[0].run.id}; timed on {', '.join(cards)}"
