"""What runs measured of a kernel, computed: ratios to peers, shares of the ceilings, spreads.

Cases are told by case set and dtype, which are never mixed. Of each the newest quiet run of a
machine counts. Of a noisy run times are told, and no ratio of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean
from typing import NamedTuple

from kbtool.model.kernel import Kernel
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.kinds.build import BuildResult
from kbtool.model.kinds.timing import Timing
from kbtool.model.run import Run, another_problem
from kbtool.model.words import many

Pairs = Sequence[tuple[Timing, Timing]]
"""Times of two arms on the same cases."""

UNSAID = "the run did not time it"
"""Why an arm has no time, where the run does not say."""
WRONG = "its output was wrong"


def target_of(run: Run) -> str | None:
    """The target that a run built, ``None`` if it built none."""
    built = run.last(BuildResult)
    return built.target if built else None


class Machine(NamedTuple):
    """What figures are compared on: a target on a card, or on a processor and so many threads."""

    target: str
    name: str


class Ratio(NamedTuple):
    """A peer's time ÷ ours over several cases."""

    mean: float
    """Geometric."""
    least: float
    most: float
    low: float
    """The mean with the quartiles that make it least …"""
    high: float
    """… and most."""
    cases: int


class Group(NamedTuple):
    """The cases of one case set and dtype, as one run timed them."""

    case_set: str
    title: str
    run: Run
    result: BenchmarkResult
    cases: list[BenchmarkCase]
    own_calls: list[str] = []
    """The arms that are the library in another call, as the manifest says today."""

    @property
    def dtype(self) -> str | None:
        """The element type of its cases; ``None`` where they state none."""
        return self.cases[0].dtype

    @property
    def set_title(self) -> str:
        """The title of its case set."""
        return self.title.removesuffix(f", {self.dtype}")

    @property
    def kind(self) -> tuple[str, str | None]:
        """Its case set and dtype."""
        return self.case_set, self.dtype

    @property
    def key(self) -> tuple[str, frozenset[str]]:
        """What makes two groups comparable: the very same cases."""
        return self.case_set, frozenset(case.name for case in self.cases)

    @property
    def label(self) -> str:
        """Its name in a chart."""
        return f"{self.title} ({many(len(self.cases), 'case')})"

    @property
    def noise_reason(self) -> str | None:
        """Why no ratio of its times is told; ``None`` where they prove something."""
        return self.result.noise

    @property
    def subject(self) -> str:
        """The arm of the library, by its own choice of variant."""
        return self.result.subject

    @property
    def ours_us(self) -> float:
        """The library's time, geometric mean over the cases."""
        return geometric_mean(case.arms[self.subject].median_us for case in self.cases)

    @property
    def peers(self) -> list[str]:
        """The arms that are not the library by its own or another choice of variant, the baseline
        first."""
        ours = {self.subject, *self.result.variants}
        arms = dict.fromkeys(
            [self.result.baseline, *(arm for case in self.cases for arm in case.arms)]
        )
        return [arm for arm in arms if arm not in ours]

    @property
    def ceiling_shares(self) -> list[float]:
        """Of each case, the time that its bound allows ÷ ours; none of a noisy run."""
        if self.noise_reason:
            return []
        found = [self.result.share_of_ceiling(case) for case in self.cases]
        return [share for share in found if share is not None]

    def right_peers(self, case: BenchmarkCase) -> list[str]:
        """The peers that were timed in a case and whose output was right."""
        return [arm for arm in self.result.right_peers(case) if arm not in self.own_calls]

    def against(self, peer: str) -> Pairs:
        """A peer's time and ours, on the cases where the peer was timed and was right."""
        return [
            (case.arms[peer], case.arms[self.subject])
            for case in self.cases
            if peer in self.right_peers(case)
        ]

    def both(self, one: str, other: str) -> Pairs:
        """The times of two arms, where both were timed."""
        return [
            (case.arms[one], case.arms[other])
            for case in self.cases
            if one in case.arms and other in case.arms
        ]

    def ratio(self, pairs: Pairs) -> Ratio | None:
        """The first time ÷ the second over the pairs; ``None`` without any, and of a noisy run."""
        if not pairs or self.noise_reason:
            return None
        ratios = [theirs.median_us / ours.median_us for theirs, ours in pairs]
        return Ratio(
            geometric_mean(ratios),
            min(ratios),
            max(ratios),
            geometric_mean(theirs.low_us / ours.high_us for theirs, ours in pairs),
            geometric_mean(theirs.high_us / ours.low_us for theirs, ours in pairs),
            len(pairs),
        )

    def ratio_to(self, peer: str) -> Ratio | None:
        """A peer's time ÷ ours."""
        return self.ratio(self.against(peer))

    @property
    def speed(self) -> float | None:
        """The baseline's time ÷ ours, geometric mean; ``None`` without any, and of a noisy run."""
        ratio = self.ratio_to(self.result.baseline)
        return ratio.mean if ratio else None

    def workspace(self, arm: str) -> tuple[int, int] | None:
        """The memory that an arm needs beside inputs and outputs, least and most over the cases."""
        needs = [case.workspace_bytes[arm] for case in self.cases if arm in case.workspace_bytes]
        return (min(needs), max(needs)) if needs else None


def groups(runs: Iterable[Run], kernel: Kernel) -> dict[Machine, list[Group]]:
    """Every benchmark of a kernel by machine, in the order of the runs.

    Args:
        runs: runs of the kernel, newest first.
        kernel: the kernel.
    """
    names = {
        case_set: {str(case["name"]) for case in kernel.cases(case_set)}
        for case_set in kernel.case_sets
    }
    found: dict[Machine, list[Group]] = {}
    for run in runs:
        target, result = target_of(run), run.last(BenchmarkResult)
        if target is None or result is None:
            continue
        card = run.machine.card if target != "cpu" else None
        machine = Machine(target, card or f"{run.machine.cpu}, {result.threads} threads")
        found.setdefault(machine, []).extend(_groups_of(kernel, names, run, result))
    return {machine: every for machine, every in found.items() if every}


def _groups_of(
    kernel: Kernel, names: Mapping[str, set[str]], run: Run, result: BenchmarkResult
) -> list[Group]:
    """A benchmark's cases by case set and dtype. Older records do not name the set: it is the one
    that has all of the cases."""
    timed_names = {case.name for case in result.cases}
    only = next((name for name, known in names.items() if timed_names <= known), "")
    alike: dict[tuple[str, str | None], list[BenchmarkCase]] = {}
    for case in result.cases:
        if case.refused is None and result.subject in case.arms:
            alike.setdefault((case.case_set or only, case.dtype), []).append(case)
    return [
        Group(name, _title(kernel, run, name, dtype), run, result, cases, kernel.own_calls)
        for (name, dtype), cases in alike.items()
    ]


def _title(kernel: Kernel, run: Run, case_set: str, dtype: str | None) -> str:
    title = kernel.case_sets[case_set].title if case_set in kernel.case_sets else case_set
    title = title or f"Cases of {run.source}"
    return f"{title}, {dtype}" if dtype else title


def newest_of_sets(every: Iterable[Group]) -> list[Group]:
    """Of each case set and dtype the first group whose times prove something, else the first."""
    found: dict[tuple[str, str | None], Group] = {}
    for group in every:
        known = found.get(group.kind)
        if known is None or (known.noise_reason and not group.noise_reason):
            found[group.kind] = group
    return list(found.values())


def of_one_problem(every: Iterable[Group], newest: Group) -> tuple[list[Group], int]:
    """The groups that solve the problem of ``newest``, or of the newest run that states one, and
    how many runs solve another."""
    groups = list(every)
    stated = [newest.run, *sorted((g.run for g in groups), key=lambda run: run.started)[::-1]]
    wanted = next((run for run in stated if run.identity), newest.run)
    kept = [group for group in groups if not another_problem(group.run, wanted)]
    return kept, len({g.run.id for g in groups} - {g.run.id for g in kept})


def of_another_problem(runs: int) -> str:
    """What is said of so many runs that are not shown beside the others; empty of none."""
    return f"{many(runs, 'run')} of another problem" if runs else ""


def newer_than(every: Iterable[Group], shown: Group) -> Group | None:
    """The first of the same case set and dtype, newest first, where ``shown`` stands for it: a
    noisy one."""
    first = next(group for group in every if group.kind == shown.kind)
    return None if first is shown else first


def missing(newest: Iterable[Group], peers: Sequence[str]) -> dict[tuple[str, str], dict[str, int]]:
    """(peer, why it has no figure) → title of a case set → on how many of its cases."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for group in newest:
        for case in group.cases:
            reasons = {arm: case.absent.get(arm, UNSAID) for arm in peers if arm not in case.arms}
            reasons |= {arm: WRONG for arm, out in case.peers.items() if not out.passed}
            for arm, why in reasons.items():
                counts = found.setdefault((arm, why), {})
                counts[group.title] = counts.get(group.title, 0) + 1
    return found


def read_ceiling(newest: Sequence[Group]) -> list[tuple[float, float]]:
    """Two points (bytes, µs) of the time that the bytes take at the measured read rate.

    A read of few bytes takes no time at all beside a launch, so the line begins at half of the
    fastest call; empty where no case is larger than that.
    """
    cases = [case for group in newest for case in group.cases]
    rate = newest[0].result.read_gb_s * 1e3  # bytes a microsecond
    fastest = min(timing.median_us for case in cases for timing in case.arms.values())
    first = max(min(case.bytes for case in cases), rate * fastest / 2)
    last = max(case.bytes for case in cases)
    return [(first, first / rate), (last, last / rate)] if first < last else []


def widest_field(cases: Sequence[BenchmarkCase]) -> str | None:
    """The whole number of the cases whose largest value is most times the least, if any varies."""
    sizes: dict[str, list[int]] = {}
    for case in cases:
        for field, value in case.case.items():
            if isinstance(value, int) and value > 0:
                sizes.setdefault(field, []).append(value)
    spans = {field: max(values) / min(values) for field, values in sizes.items()}
    widest = max(spans, key=lambda field: spans[field], default=None)
    return widest if widest and spans[widest] > 1 else None
