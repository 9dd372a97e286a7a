"""The conditions that a run was timed under, and which of them make two runs unlike."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

from kbtool.markdown.figures import significant, sm_clock
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.run import Run

NEAR = 1.03
"""Two clocks whose ratio is at most this are alike."""

PROBLEM = "Problem"
"""The condition that differs if two runs were asked for different things."""

SETTINGS = "Measurement settings"
"""The condition that says how samples were taken, in the words of the run."""
_SAMPLES = " samples an arm "


class Timed(NamedTuple):
    """A run and its benchmarks."""

    run: Run
    results: list[BenchmarkResult]

    @property
    def machine(self) -> str:
        """The card; without one the processor and the number of threads."""
        result = self.results[-1]
        card = self.run.machine.card if result.device == "cuda" else None
        return card or f"{self.run.machine.cpu}, {result.threads} threads"

    @property
    def commit(self) -> str | None:
        """The commit that was timed; ``None`` if the work tree had changes, or nobody knows."""
        state = self.run.repository
        return None if state.dirty is not False or state.changed_during_run else state.commit

    @property
    def noise(self) -> str | None:
        """Why its times prove nothing."""
        return next(filter(None, (result.noise for result in self.results)), None)


def timed(run: Run) -> Timed | None:
    """A run that timed something."""
    results = [step.result for step in run.steps if isinstance(step.result, BenchmarkResult)]
    some = any(case.arms for result in results for case in result.cases)
    return Timed(run, results) if some else None


class Condition(NamedTuple):
    """One thing that a run was timed under."""

    name: str
    value: str
    weighs: bool
    """Whether other values give other times, whatever the code is."""
    figure: float | None = None
    """What is compared where the value is measured: near is alike, unknown weighs nothing."""
    is_measured: bool = False
    is_new: bool = False
    """Whether older records do not state it: unknown weighs nothing."""


def conditions(one: Timed) -> list[Condition]:
    """The conditions of a run that are known."""
    return [condition for condition in _conditions(*one) if condition.value]


def unlike(one: Timed, other: Timed) -> list[str]:
    """The conditions that keep two runs from being ranked against one another, by name."""
    sides = [{c.name: c for c in conditions(each)} for each in (one, other)]
    names = dict.fromkeys(name for side in sides for name in side)
    return [name for name in names if _weighs(sides[0].get(name), sides[1].get(name))]


K = TypeVar("K", bound=Hashable)


def alike(every: Iterable[Timed], key_of: Callable[[Timed], K]) -> dict[K, list[list[Timed]]]:
    """Quiet runs of commits by a key, those under the same conditions together, in their order."""
    found: dict[K, list[list[Timed]]] = {}
    for one in every:
        if one.commit is None or one.noise:
            continue
        groups = found.setdefault(key_of(one), [])
        group = next((group for group in groups if not unlike(one, group[0])), None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    return found


def _weighs(one: Condition | None, other: Condition | None) -> bool:
    known = one or other
    if known is None or not known.weighs:
        return False
    if known.is_new and (one is None or other is None):
        return False
    if known.is_measured:
        figures = [side.figure for side in (one, other) if side and side.figure]
        return len(figures) == 2 and max(figures) / min(figures) > NEAR
    return one is None or other is None or one.value != other.value


def _conditions(run: Run, results: Sequence[BenchmarkResult]) -> Iterator[Condition]:
    def all_of(values: Iterator[str]) -> str:
        return "; ".join(dict.fromkeys(values))

    machine, state = run.machine, run.repository
    # What a card takes for a call does not depend on who calls it.
    on_processor = any(result.device != "cuda" for result in results)
    yield Condition("Kernel", run.kernel or "", True)
    yield Condition("Card", machine.card or "", True)
    yield Condition("Device", all_of(result.device for result in results), True)
    yield Condition("Processor", machine.cpu, on_processor)
    yield Condition("Threads", all_of(str(result.threads) for result in results), on_processor)
    rates = ", ".join(f"{significant(result.read_gb_s)} GB/s" for result in results)
    yield Condition("Read ceiling", rates, False)
    rates = "; ".join(
        ", ".join(f"{dtype} {significant(rate)} GFLOP/s" for dtype, rate in every.items())
        for result in results if (every := result.arithmetic_gflop_s)
    )  # fmt: skip
    yield Condition("Arithmetic ceiling", rates, False)
    yield Condition("Driver", machine.driver or "", True)
    yield Condition("CUDA", machine.cuda or "", True)
    yield Condition("torch", machine.torch or "", True)
    yield Condition("nvcc", machine.nvcc or "", False)
    yield Condition("Compiler", machine.compiler or "", False)
    yield Condition("Operating system", machine.os, False)
    yield Condition("kbtool", machine.kbtool, False)
    dirty = {True: ", work tree changed", False: "", None: ""}[state.dirty]
    yield Condition("Commit", f"{state.commit}{dirty}" if state.commit else "", False)
    problem = run.identity.problem_digest[:12] if run.identity else ""
    yield Condition(PROBLEM, problem, True, is_new=True)
    yield Condition("Library", all_of(result.sha256[:12] for result in results), False)
    protocols = [_protocol(result.protocol) for result in results]
    yield Condition("Samples", all_of(samples for samples, _ in protocols), False)
    yield Condition(SETTINGS, all_of(method for _, method in protocols), True)
    # A card's clock depends on how it was set, and on how hot it was.
    clocks = [clock for result in results for clock in result.sm_clocks_mhz or []]
    words = all_of(filter(None, map(sm_clock, results)))
    yield Condition("SM clock", words, True, median(clocks) if clocks else None, True)


def _protocol(text: str) -> tuple[str, str]:
    """How many samples an arm has, and how they were taken."""
    samples, found, method = text.partition(_SAMPLES)
    return (samples, method) if found else ("", text)
