"""Bisection: the first commit at which a case is slower than at a good one.

Each step measures a commit and the good one in turn, and ``kbtool compare``'s verdict on these runs
decides. There is no record but the runs: what they tell already is not run again, so a bisection
that was interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from kbtool.ledger.timings.conditions import Timed
from kbtool.ledger.timings.sides import newest_first
from kbtool.ledger.timings.spread import Metric, Spreads
from kbtool.ledger.timings.verdict import Comparison, Row, Side, compare
from kbtool.model.errors import UsageError
from kbtool.model.recipe import Recipe
from kbtool.model.run import MachineInfo, Run, RunStatus
from kbtool.runner.destination import session_to_append_to
from kbtool.runner.pairs import measure_pairs
from kbtool.store.history import first_parents, tree_at
from kbtool.store.tree import KnowledgeBase
from kbtool.sweeps.reuse import Earlier, recipe_in

IN_TURN = timedelta(minutes=10)
"""Two runs with more time between them were not made in turn."""
_BROKEN: tuple[RunStatus, ...] = ("failed", "timeout", "crashed", "unavailable")


class Commit(NamedTuple):
    """A commit."""

    id: str
    title: str


class Line(NamedTuple):
    """The commits after a good one, up to a bad one."""

    good: str
    bad: str
    touching: list[Commit]
    """Those that change what the recipe makes of the kernel, oldest first."""
    others: int
    """How many do not, so that they cannot be the cause."""


def line_of(base: KnowledgeBase, good: str, bad: str, pattern: str, recipe: Recipe) -> Line:
    """The commits between two, on the line of first parents.

    Args:
        base: the knowledge base.
        good: the id of a commit.
        bad: the id of one after it.
        pattern: the pattern of the recipe.
        recipe: the recipe.

    Raises:
        UsageError: the good commit is not before the bad one.
    """
    root = str(base.root)
    every = first_parents(root, good, bad)
    if every is None:
        raise UsageError(
            f"{good[:12]} is not before {bad[:12]} on its line of first parents; name as A a commit"
            f" of `git log --first-parent {bad[:12]}`"
        )
    kernel = f"kernels/{recipe.kernel}"
    near = first_parents(root, good, bad, [kernel, "patterns"]) or []
    touching = []
    before = _content(base, good, kernel, pattern, recipe.name)
    for id_, title in near:
        now = _content(base, id_, kernel, pattern, recipe.name)
        if now != before:
            touching.append(Commit(id_, title))
        before = now
    return Line(good, bad, touching, len(every) - len(touching))


def _content(base: KnowledgeBase, commit: str, kernel: str, pattern: str, recipe: str) -> object:
    """What a run of a recipe depends on: the kernel's files without prose, the recipe's steps."""
    files = tree_at(str(base.root), commit, [kernel])
    at = recipe_in(base, commit, pattern, recipe)
    steps = at.model_dump(include={"parameters", "steps"}) if at else None
    return {name: of for name, of in files.items() if not name.endswith(".md")}, steps


Verdict = Literal["slower", "faster", "same", "too_noisy", "skipped"]
"""Of a commit beside the good one: compare's, or skipped where there can be none."""


class Judged(NamedTuple):
    """A commit beside the good one, by runs."""

    commit: Commit
    verdict: Verdict
    row: Row | None = None
    """The case, as `kbtool compare` shows it."""
    why: str | None = None
    """Why it is skipped, or nobody can tell."""
    runs: tuple[list[str], list[str]] = ([], [])
    """The runs of the good commit and of this one that the verdict rests on."""
    made: int = 0
    """How many runs were made for it now."""
    is_busy: bool = False
    """Whether other processes kept the machine too busy to measure it."""


class Search(NamedTuple):
    """Where the first slower commit may be; commits by their numbers, from 0."""

    good: int
    """The last that is not slower; -1 is the good commit itself."""
    bad: int
    """The first that is known to be slower."""
    passed_over: tuple[int, ...] = ()
    """Those without a verdict."""

    @property
    def between(self) -> list[int]:
        """Those without a verdict that may be the first too."""
        return sorted(one for one in self.passed_over if self.good < one < self.bad)

    @property
    def next(self) -> int | None:
        """The one to look at: the middle of the most that nothing is known of; ``None`` at the
        end."""
        ends = [self.good, *self.between, self.bad]
        begin, end = max(pairwise(ends), key=lambda gap: gap[1] - gap[0])
        return (begin + end) // 2 if end - begin > 1 else None

    def after(self, number: int, verdict: Verdict) -> Search:
        """What is known once that has a verdict."""
        if verdict == "slower":
            return self._replace(bad=number)
        if verdict in ("faster", "same"):
            return self._replace(good=number)
        return self._replace(passed_over=(*self.passed_over, number))


def most_steps(search: Search, known: Mapping[int, Verdict]) -> int:
    """How many commits have to be measured at most, if each gets a verdict.

    Args:
        search: where it is.
        known: the verdicts that are there already.
    """
    number = search.next
    if number is None:
        return 0
    if number in known:
        return most_steps(search.after(number, known[number]), known)
    ways = (most_steps(search.after(number, verdict), known) for verdict in _EITHER)
    return 1 + max(ways)


_EITHER: tuple[Verdict, ...] = ("slower", "same")


class Stopped(NamedTuple):
    """A run that ended a measurement."""

    is_good: bool
    """Whether it was one of the good commit."""
    why: str


class Bench(Protocol):
    """What tells and measures how fast commits are."""

    def beside(self, commit: str) -> tuple[list[Timed], list[Timed]]:
        """The quiet runs of the good commit and of this one that were made in turn, as many of
        each, the newest first."""

    def broken(self, commit: str) -> str | None:
        """Why it gives no time, as an earlier run found."""

    def measure(self, commit: str, pairs: int) -> tuple[int, Stopped | None]:
        """Measure it and the good one in turn; how many runs were made, and what ended it early.

        Raises:
            KeyboardInterrupt: Ctrl-C, or a signal.
        """

    def compared(self, first: Side, second: Side) -> Comparison:
        """Compare's verdicts on two sides."""


class Judging(NamedTuple):
    """What is asked, and of what."""

    bench: Bench
    case: str
    """SET/CASE."""
    line: Line
    pairs: int
    """The pairs of runs that a verdict rests on at least."""
    tries: int
    """How often so many are measured before nobody can tell."""

    def known(self, commit: Commit) -> Judged | None:
        """What runs tell of a commit beside the good one; ``None`` if more have to be made."""
        by_runs = self._by_runs(commit)
        if by_runs is None or by_runs.verdict != "too_noisy":
            return by_runs
        return by_runs if len(by_runs.runs[0]) >= self.pairs * self.tries else None

    def _by_runs(self, commit: Commit) -> Judged | None:
        """The same, with too noisy for an answer; ``None`` if there are too few runs for any."""
        first, second = self.bench.beside(commit.id)
        if len(first) < self.pairs:
            why = self.bench.broken(commit.id)
            return Judged(commit, "skipped", why=why) if why else None
        sides = Side(self.line.good, first), Side(commit.id, second)
        rows = [row for row in self.bench.compared(*sides).rows if row.case == self.case]
        ids = [one.run.id for one in first], [one.run.id for one in second]
        if not rows:
            return Judged(commit, "skipped", None, "it does not time the case", ids)
        row = min(rows, key=lambda row: _WORST.index(row.verdict))
        if row.verdict == "unlike" or row.verdict == "missing":
            return Judged(commit, "skipped", row, row.why, ids)
        return Judged(commit, row.verdict, row, row.why, ids)

    def judged(self, commit: Commit) -> Judged:
        """A commit beside the good one, measured as far as runs do not tell.

        Raises:
            UsageError: the good commit gives no time.
            KeyboardInterrupt: Ctrl-C, or a signal.
        """
        made = 0
        for _ in range(self.tries):
            known = self.known(commit)
            if known is not None:
                return known._replace(made=made)
            there = len(self.bench.beside(commit.id)[0])
            more, stopped = self.bench.measure(commit.id, self.pairs - there % self.pairs)
            made += more
            if stopped is not None and stopped.is_good:
                raise UsageError(f"A gives no time: {stopped.why}; name another commit as A")
            if stopped is not None:
                return Judged(commit, "skipped", why=stopped.why, made=made)
            if not self.bench.beside(commit.id)[0]:
                break
        by_runs = self._by_runs(commit)
        if by_runs is not None:
            return by_runs._replace(made=made)
        quiet = len(self.bench.beside(commit.id)[0])
        why = f"other processes were busy: {quiet} of {self.pairs} pairs of runs are quiet"
        return Judged(commit, "too_noisy", why=why, made=made, is_busy=True)


_WORST = ("slower", "too_noisy", "unlike", "missing", "faster", "same")
"""A case that a recipe times several times is as the first of these that it is once."""

Outcome = Literal["found", "unchanged", "between", "undecided", "interrupted"]


class Found(NamedTuple):
    """What came of a bisection."""

    outcome: Outcome
    """found: the first slower commit; unchanged: B is not slower than A; between: commits in
    question give no time; undecided: nobody can tell of them; interrupted."""
    search: Search
    steps: list[Judged]
    """B first."""


def bisect(
    judging: Judging, tell: Callable[[Search, Commit], None], told: Callable[[Judged], None]
) -> Found:
    """Find the first commit that is slower than the good one.

    Args:
        judging: what is asked, and of what.
        tell: called before a commit is looked at.
        told: called with what came of it.

    Raises:
        UsageError: A or B gives no time.
    """
    touching, steps = judging.line.touching, list[Judged]()
    search = Search(-1, len(touching) - 1)
    if not touching:
        return Found("unchanged", search, steps)

    def look(number: int) -> Judged:
        tell(search, touching[number])
        steps.append(judging.judged(touching[number]))
        told(steps[-1])
        return steps[-1]

    try:
        last = look(search.bad)
        if last.verdict == "skipped":
            raise UsageError(f"B gives no time: {last.why}; name another commit as B")
        if last.verdict != "slower":
            outcome: Outcome = "undecided" if last.verdict == "too_noisy" else "unchanged"
            return Found(outcome, search, steps)
        while (number := search.next) is not None:
            judged = look(number)
            search = search.after(number, judged.verdict)
            if judged.is_busy:
                return Found("undecided", search, steps)
    except KeyboardInterrupt:
        return Found("interrupted", search, steps)
    left = {touching[number] for number in search.between}
    if any(one.commit in left and one.verdict == "too_noisy" for one in steps):
        return Found("undecided", search, steps)
    return Found("between" if left else "found", search, steps)


class Machine:
    """This machine, and the runs of a recipe that were made on it: a ``Bench``.

    Args:
        root: the knowledge base.
        good: the good commit.
        pattern: the pattern of the recipe.
        recipe: the recipe.
        values: parameters of it.
        machine: this machine.
        since: earlier runs are not counted; ``None`` counts all.
        metric: the time to compare.
        title: of a session that is made for the runs.
        tell: called before a measurement with the commit and the pairs; what comes back is told
            each run.
    """

    def __init__(
        self,
        root: Path,
        good: str,
        pattern: str,
        recipe: str,
        values: Mapping[str, str],
        machine: MachineInfo,
        *,
        since: datetime | None,
        metric: Metric | None,
        title: str,
        tell: Callable[[str, int], Callable[[int, int], None]],
    ) -> None:
        self.session: str | None = None
        """The session of the runs that it made."""
        self._root, self._good, self._pattern, self._recipe = root, good, pattern, recipe
        self._values, self._machine, self._since, self._metric = values, machine, since, metric
        self._title, self._tell = title, tell
        self._read()

    def _read(self) -> None:
        """Read the runs."""
        base = KnowledgeBase(self._root)
        self._every = newest_first(entry.record for entry in base.runs)
        self._spreads = Spreads(self._every)
        self._passed = Earlier(base, self._pattern, self._recipe, self._machine)
        self._failed = Earlier(base, self._pattern, self._recipe, self._machine, _BROKEN)
        self._base = base

    def _of(self, earlier: Earlier, commit: str) -> list[Run]:
        """The runs that stand for a commit."""
        found = earlier.every(self._values, commit)
        return [run for run in found if self._since is None or run.started >= self._since]

    def beside(self, commit: str) -> tuple[list[Timed], list[Timed]]:
        """See ``Bench``."""
        ends = (self._good, commit)
        of = [{run.id: run for run in self._of(self._passed, at)} for at in ends]
        sides = {}
        for id_, run in {**of[0], **of[1]}.items():
            at = run.repository.commit
            if at in ends:
                sides[id_] = ends.index(at)
            elif (id_ in of[0]) != (id_ in of[1]):  # else both commits are the same to it
                sides[id_] = int(id_ in of[1])
        found: tuple[list[Timed], list[Timed]] = ([], [])
        waits: Timed | None = None
        for one in sorted(self._every, key=lambda one: (one.run.session, one.run.started)):
            if one.run.id not in sides:
                continue
            is_other = waits is not None and sides[waits.run.id] != sides[one.run.id]
            if waits is not None and is_other and _in_turn(waits.run, one.run):
                for each in (waits, one):
                    found[sides[each.run.id]].append(each)
                waits = None
            else:
                waits = one
        for side in found:
            side.sort(key=lambda one: one.run.started, reverse=True)
        return found

    def broken(self, commit: str) -> str | None:
        """See ``Bench``."""
        run = next((run for run in self._of(self._failed, commit)), None)
        return None if run is None else f"{_why(run)} (from run {run.id})"

    def measure(self, commit: str, pairs: int) -> tuple[int, Stopped | None]:
        """See ``Bench``."""
        if self.session is None:
            self.session = session_to_append_to(self._base, None)
        settings = [f"--set={name}={value}" for name, value in self._values.items()]
        try:
            measured = measure_pairs(
                self._root, (self._good, commit), [self._recipe, *settings], pairs=pairs,
                session=self.session, title=self._title, tell=self._tell(commit, pairs),
            )  # fmt: skip
        except UsageError as error:
            if commit[:12] not in str(error):
                raise
            return 0, Stopped(False, str(error))
        self.session = measured.session
        self._read()
        made = sum(map(len, measured.sides))
        if not measured.stopped:
            return made, None
        side, last = measured.last
        run = self._base.run_named(last).record if last else None
        if measured.stopped == _STOPPED and (run is None or run.status != "timeout"):
            raise KeyboardInterrupt
        why = _why(run) if run else f"`kbtool run-recipe` ended with status {measured.stopped}"
        return made, Stopped(side == 0, why)

    def compared(self, first: Side, second: Side) -> Comparison:
        """See ``Bench``."""
        return compare(first, second, self._spreads, self._metric)


_STOPPED = 4
"""The exit status of a run that was interrupted, or whose time was over."""


def _in_turn(one: Run, other: Run) -> bool:
    return one.session == other.session and other.started - one.ended <= IN_TURN


def _why(run: Run) -> str:
    """What ended a run."""
    step = next((step for step in run.steps if step.status != "passed"), run.steps[-1])
    said = step.error or step.message
    return f"{step.id} {step.status}" + (f": {said.strip().splitlines()[0]}" if said else "")
