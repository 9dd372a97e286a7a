"""Benchmarks: time every arm in turn on the same inputs, caches cold, then check the outputs.

A ``Clock`` (``cpu_clock``, ``cuda_clock``) times calls and measures the read bandwidth of a device.
This module does what all devices share: it prepares the arms, compares outputs with the reference
and refuses results that cannot be right.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter  # by its name here: a kernel may replace that of the module
from typing import Any, Protocol, TypeVar

import torch

from kbtool.checks.ceiling import refusal
from kbtool.gpu.ceiling import computes_in
from kbtool.gpu.compare import Judge, is_plain
from kbtool.gpu.harness import (
    Harness,
    HarnessError,
    Inputs,
    arms_of,
    inputs_of,
    metrics_declared,
    metrics_of,
    unknown_peer,
    workspace_of,
)
from kbtool.gpu.unseen import Unseen
from kbtool.gpu.validate import case_seed
from kbtool.model.kernel import without_name
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.kinds.timing import Timing, noise_reason
from kbtool.model.kinds.validate import OutputError

Calls = Mapping[str, Callable[[], Any] | str]
"""Arm → the call to time, or the reason why there is none."""
Arms = Callable[[int], Calls]
"""Makes the arms of a case. Each number gives new inputs."""
OnArm = Callable[[str], None]
"""Called with the name of an arm before it runs."""


def silent(arm: str) -> None:
    """Report nothing."""


CHECKED = (
    "then each arm's output is filled with NaN, what was timed runs once more on the case's first"
    " inputs, and the output is held against the reference"
)
"""The part of a protocol that says how outputs are checked after timing."""
UNSEEN = (
    "each arm of the library is also called on values that it has not seen, written into the same"
    " memory, once over its former output and once over NaN, and both outputs are held against the"
    " reference of these values; on the CPU that is before a round that is drawn, the output is"
    " copied when the clock stops, and a case is refused if calls on unseen values take longer"
)
"""The part of a protocol that says how kept results are found."""


@dataclass
class Timed:
    """The samples and outputs from timing the arms of one case."""

    timings: dict[str, Timing]
    absent: dict[str, str]
    """Arm that could not be timed → the reason."""
    outputs: dict[str, torch.Tensor]
    """Arm → a copy of its first output, from one more run after timing. That run repeats exactly
    what was timed, on the inputs of number 0, into an output filled with NaN."""
    sm_clock_mhz: int | None = None
    """The SM clock right after the timed samples."""
    plain_us: float | None = None
    """Time of the plain kernel alone. The ``between`` samples run each call behind one."""
    drawn: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    """Arm → copies of its first output, from calls with the first unseen inputs."""
    suspect: dict[str, str] = field(default_factory=dict)
    """Arm → why its times do not count."""
    peak_bytes: dict[str, int] = field(default_factory=dict)
    """Arm → the most memory of the card that one call takes beyond what was held before."""
    energy_j: dict[str, float] = field(default_factory=dict)
    """Arm → joules of the card a call."""


class Clock(Protocol):
    """Times calls on one kind of device."""

    device: torch.device
    protocol: str
    """The method in words, for the record."""

    def read_bandwidth(self) -> float:
        """Measure the best read bandwidth, in 10⁹ bytes a second."""

    def arithmetic(self, dtype: torch.dtype) -> float | None:
        """Measure the best rate of a matrix product, in 10⁹ operations a second; ``None`` where
        there is none in this type."""

    def sm_clock_mhz(self) -> int | None:
        """The current SM clock; ``None`` if unknown."""

    def others_on_card(self) -> int | None:
        """How many other processes use the card for compute; ``None`` if unknown."""

    def time(
        self,
        arms: Arms,
        least_bytes: int,
        on_arm: OnArm = silent,
        unseen: Unseen | None = None,
    ) -> Timed:
        """Time every arm.

        Args:
            arms: makes the arms.
            least_bytes: the least memory traffic of one call.
            on_arm: called before every turn, outside of the timed part.
            unseen: finds arms that keep results. Default: none is looked for.
        """


def benchmark(
    harness: Harness,
    cases: Sequence[tuple[str, Mapping[str, Any]]],
    clock: Clock,
    *,
    sha256: str,
    threads: int,
    seed: int,
    variants: list[str],
    peers: list[str] | None,
    own_calls: Sequence[str] = (),
    left_out: Sequence[Mapping[str, str]] = (),
    known: BenchmarkResult | None = None,
    expected_s: float = math.inf,
    on_peer: Callable[[str | None], None] = lambda _: None,
    on_case: Callable[[int, BenchmarkResult], None],
) -> BenchmarkResult:
    """Time every arm of every case, or stop once others were so busy that no time will count.

    Args:
        harness: the kernel's harness.
        cases: (case set, case) pairs.
        clock: times the calls; it decides the device.
        sha256: hash of the library, for the record.
        threads: number of CPU threads, the same for every arm.
        seed: seed of the inputs.
        variants: variants of the library to time as arms, beside its default choice.
        peers: peers of the harness to time as arms. Default: all.
        own_calls: those that are the library in another call. Default: none.
        left_out: for each case, the peers that are not run and the reasons. Default: none.
        known: results of the first cases from an earlier process. Those cases are not timed again.
        expected_s: the seconds that all cases are expected to take on a quiet machine.
            Default: unknown, so that busy cores stop nothing.
        on_peer: called with the name of a peer before any of its code runs, and with ``None``
            before the kernel's own code runs.
        on_case: called after each case with the number of cases done and the latest result.

    Raises:
        HarnessError: the harness has no such peer.
    """
    if unknown := unknown_peer(peers or (), harness.PEERS):
        raise HarnessError(unknown)
    rivals = list(
        dict.fromkeys([harness.BASELINE_ARM, *(harness.PEERS if peers is None else peers)])
    )
    machine = _Machine(clock, known)
    results = list(known.cases) if known else []
    begun = len(results)

    def of(cases: list[BenchmarkCase]) -> BenchmarkResult:
        return BenchmarkResult(
            sha256=sha256,
            device=clock.device.type,
            threads=threads,
            subject=harness.SUBJECT,
            baseline=harness.BASELINE_ARM,
            variants=variants,
            own_calls=[arm for arm in rivals if arm in own_calls],
            metrics=metrics_declared(harness),
            protocol=(
                f"{clock.protocol}; {CHECKED}, as are all outputs of a call of the library;"
                f" {UNSEEN}"
            ),
            cases=[
                case.model_copy(
                    update={
                        "refused": _wrong(case) or refusal(case, harness.SUBJECT, machine.read_gb_s)
                    }
                )
                for case in cases
            ],
            **machine.fields(),
        )

    with torch.inference_mode():
        for number in range(begun, len(cases)):
            case_set, case = cases[number]
            machine.measure()
            seeded = case_seed(seed, case_set, str(case["name"]))
            without = left_out[number] if left_out else {}
            result = _time_case(
                harness, case_set, case, clock, seeded, variants, rivals, without, on_peer
            )
            machine.measure_arithmetic(result.computes_in)
            results.append(result)
            on_case(len(results), of([result]))
            done = (len(results) - begun) / (len(cases) - begun)
            if machine.is_too_busy(expected_s, done):
                break
        machine.measure()
    return of(results).model_copy(update={"not_reached": len(cases) - len(results)})


class _Machine:
    """What the machine allows while a benchmark runs, and how much others use it."""

    def __init__(self, clock: Clock, known: BenchmarkResult | None) -> None:
        """Start to watch; ``known`` is what an earlier process measured of the same run."""
        self._clock = clock
        self._began = perf_counter()
        self._others = OtherProcesses()
        self._others_before = known.others_busy if known else None
        self._on_card = known.others_on_card if known else None
        before = known.sm_clocks_mhz if known else []
        done = len(known.cases) if known else 0
        self._sm_clocks: list[int | None] = [None] * done if before is None else [*before]
        self.read_gb_s = known.read_gb_s if known else 0.0
        self._arithmetic: dict[str, float | None] = {**known.arithmetic_gflop_s} if known else {}

    def measure(self) -> None:
        """Measure the read bandwidth, the SM clock, and who else uses the card."""
        # On a shared machine the bandwidth varies, so the ceiling is the best rate of the run.
        self.read_gb_s = max(self.read_gb_s, self._clock.read_bandwidth())
        self._sm_clocks.append(self._clock.sm_clock_mhz())
        self._on_card = more(self._on_card, self._clock.others_on_card())

    def measure_arithmetic(self, dtype: str | None) -> None:
        """Measure the arithmetic ceiling of an element type, unless it is known.

        A kernel may multiply values of a narrow type in float32. Where torch's own product is
        slower, as in float16 on many processors, that of float32 is the ceiling.
        """
        if dtype is None or dtype in self._arithmetic:
            return
        rate, of = None, getattr(torch, dtype)
        if of.itemsize < torch.float32.itemsize:
            self.measure_arithmetic("float32")
            rate = self._arithmetic["float32"]
        self._arithmetic[dtype] = more(rate, self._clock.arithmetic(of))

    def is_too_busy(self, expected_s: float, done: float) -> bool:
        """Whether this process will be noisy even if the machine is quiet from now on.

        Args:
            expected_s: the seconds that all its cases are expected to take. They may take longer:
                as long as it would at the pace so far.
            done: the share of its cases that are done.
        """
        share, spent = self._others.share(), perf_counter() - self._began
        at_least = None if share is None else share * spent / max(expected_s, spent / done)
        return noise_reason(at_least, self._on_card) is not None

    def fields(self) -> dict[str, Any]:
        """The fields of a result about the machine, as measured so far."""
        return {
            "read_gb_s": self.read_gb_s,
            "arithmetic_gflop_s": {
                dtype: rate for dtype, rate in self._arithmetic.items() if rate is not None
            },
            "sm_clocks_mhz": None if None in self._sm_clocks else self._sm_clocks,
            "others_busy": more(self._others_before, self._others.share()),
            "others_on_card": self._on_card,
        }


def _time_case(
    harness: Harness,
    case_set: str,
    case: Mapping[str, Any],
    clock: Clock,
    seed: int,
    variants: list[str],
    peers: list[str],
    left_out: Mapping[str, str],
    on_peer: Callable[[str | None], None],
) -> BenchmarkCase:
    library = {harness.SUBJECT: None, **{name: name for name in variants}}

    def make(number: int) -> dict[str, Any]:
        return inputs_of(harness, case, device=clock.device, seed=seed + number)

    unseen = Unseen(make, library, Random(seed))
    arms = _Arms(harness, make, unseen, clock.device, variants, peers, left_out, on_peer)
    work = harness.work(case)
    timed = clock.time(arms, work["bytes"], arms.on_arm, unseen)
    on_peer(None)
    inputs = unseen.restored()
    library = {name: named for name, named in library.items() if not named or name in timed.timings}
    # The reference is made after every call: what a frame of its callers holds, a kernel can read.
    called = [harness.call(inputs, variant=variant, poison=True) for variant in library.values()]
    judge = Judge(harness, inputs)
    errors = [error for out in called for error in judge.all(out).values()]
    held = {name: judge.first(out) for name, out in timed.outputs.items()}
    held |= wrong_on_unseen(harness, unseen, timed, held)
    own = {name: held[name] for name in library if name in held}
    declared = metrics_declared(harness)
    try:
        measured = {
            arm: found
            for arm, output in timed.outputs.items()
            if (found := metrics_of(harness, declared, inputs, arm, output))
        }
    except HarnessError as error:
        raise HarnessError(f"{error}, in {case_set}/{case['name']}") from None
    return BenchmarkCase(
        name=str(case["name"]),
        case_set=case_set,
        case=without_name(case),
        arms=timed.timings,
        bytes=work["bytes"],
        flops=work["flops"],
        computes_in=computes_in(case, inputs),
        rechecked=all(error.passed for error in (*errors, *own.values())),
        peers={name: held[name] for name in peers if name in held},
        timed=own,
        first_call_us={arm: arms.first_call_us[arm] for arm in timed.timings},
        suspect=timed.suspect,
        peak_bytes=timed.peak_bytes,
        energy_j=timed.energy_j,
        metrics=measured,
        plain_us=timed.plain_us,
        sm_clock_mhz=timed.sm_clock_mhz,
        absent=timed.absent,
        workspace_bytes={
            arm: workspace_of(harness, inputs, variant) for arm, variant in library.items()
        },
    )


def wrong_on_unseen(
    harness: Harness, unseen: Unseen, timed: Timed, held: Mapping[str, OutputError]
) -> dict[str, OutputError]:
    """Arm → what was wrong with its output on unseen values, of the arms that are right so far.

    Args:
        harness: the kernel's harness.
        unseen: what the arms were held to.
        timed: what they returned.
        held: arm → its output on the values that it had seen.
    """
    found: dict[str, OutputError] = {}
    judge = Judge(harness, unseen.first) if timed.drawn else None
    for name, outputs in timed.drawn.items():
        for error in map(judge.first, outputs) if judge else ():
            if held[name].passed and name not in found and not error.passed:
                told = f"with other values in the same memory, {error.message}"
                found[name] = error.model_copy(update={"message": told})
    return found


class _Arms:
    """Makes the arms of a case: the library's, and its peers' as long as they take the inputs."""

    def __init__(
        self,
        harness: Harness,
        make: Callable[[int], Inputs],
        unseen: Unseen,
        device: torch.device,
        variants: list[str],
        peers: list[str],
        left_out: Mapping[str, str],
        on_peer: Callable[[str | None], None],
    ) -> None:
        self._harness, self._make, self._unseen, self._device = harness, make, unseen, device
        self._variants, self._peers, self._on_peer = variants, peers, on_peer
        self._refused = dict(left_out)
        self.first_call_us: dict[str, float] = {}
        """Arm → microseconds to make it and call it once."""
        # The inputs of a case differ in values only: a peer that takes the first must take all.
        self._accepted: set[str] = set()

    def _time_first(self, name: str, call: Callable[[], Any]) -> None:
        begun = perf_counter()
        call()
        _synchronize(self._device)
        self.first_call_us[name] = round((perf_counter() - begun) * 1e6, 1)

    def on_arm(self, name: str) -> None:
        """Say whose code runs next."""
        self._on_peer(name if name in self._peers else None)

    def __call__(self, number: int) -> Calls:
        """The arms with the inputs of this number."""
        self._on_peer(None)
        inputs = self._make(number)
        if number == 0:
            self._unseen.begin(inputs)
        calls = arms_of(self._harness, inputs, self._variants)
        for name, call in calls.items() if number == 0 else ():
            if not isinstance(call, str):
                self._time_first(name, call)
        for name in self._peers:
            if name in self._refused:
                continue
            self.on_arm(name)
            begun = perf_counter()
            calls[name] = call = tried(self._harness, inputs, name, self._device)
            if not isinstance(call, str):
                self.first_call_us.setdefault(name, round((perf_counter() - begun) * 1e6, 1))
            if not isinstance(call, str):
                self._accepted.add(name)
            elif name in self._accepted:
                raise RuntimeError(f"took the first inputs of this case, but not these: {call}")
            else:
                self._refused[name] = call
        return {**calls, **self._refused}


def _wrong(case: BenchmarkCase) -> str | None:
    """What is wrong with the first of the library's own arms that is; ``None`` if all are right."""
    for arm, error in case.timed.items():
        if not error.passed:
            return f"arm {arm} was wrong after timing: {error.message}"
    return next((f"arm {arm}: {why}" for arm, why in case.suspect.items()), None)


def tried(
    harness: Harness, inputs: Mapping[str, Any], name: str, device: torch.device
) -> Callable[[], Any] | str:
    """The call of a peer, or the reason why there is none: it raised when made or first called.

    Args:
        harness: the kernel's harness.
        inputs: the inputs of the case.
        name: the peer.
        device: the device that holds the inputs.
    """
    try:
        call = harness.arms(inputs, (), [name]).get(name, "the harness has no arm of that name")
        if not isinstance(call, str):
            first_output(name, call())
            _synchronize(device)
    except Exception as error:  # any error means that the peer does not take these inputs
        # If the CUDA context is lost, this raises too and ends the process.
        _synchronize(device)
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return call


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


N = TypeVar("N", int, float)


def more(one: N | None, other: N | None) -> N | None:
    """The larger of two values; ``None`` is unknown."""
    return max((figure for figure in (one, other) if figure is not None), default=None)


def runnable(calls: Calls) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """The arms that can be timed, and the reasons for the others."""
    there: dict[str, Callable[[], Any]] = {}
    absent: dict[str, str] = {}
    for name, call in calls.items():
        if isinstance(call, str):
            absent[name] = call
        else:
            there[name] = call
    return there, absent


def first_output(arm: str, output: Any) -> torch.Tensor:
    """The first output in what an arm's call returned.

    Raises:
        HarnessError: the call returned no tensor that holds its values.
    """
    first = output[0] if isinstance(output, tuple) and output else output
    if not isinstance(first, torch.Tensor):
        raise HarnessError(
            f"arm {arm!r} must return its first output, or a tuple that begins with it;"
            f" it returned {type(first).__name__}"
        )
    if not is_plain(first):
        raise HarnessError(
            f"arm {arm!r} must return a plain tensor; it returned a {type(first).__name__} on"
            f" {first.device}"
        )
    return first


def timing(
    seconds: list[float],
    calls_per_sample: int = 1,
    host_us: float | None = None,
    between: list[float] | None = None,
) -> Timing:
    """Samples (seconds per call) as a record; ``between``: those timed behind plain kernels."""
    microseconds = [round(value * 1e6, 4) for value in seconds]
    low, median, high = statistics.quantiles(microseconds, n=4, method="inclusive")
    pairs = [round(value * 1e6, 4) for value in between or ()]
    quartiles = statistics.quantiles(pairs, n=4, method="inclusive") if pairs else [None] * 3
    return Timing(
        samples_us=microseconds,
        median_us=median,
        low_us=low,
        high_us=high,
        calls_per_sample=calls_per_sample,
        host_us=host_us,
        between_low_us=quartiles[0],
        between_us=quartiles[1],
        between_high_us=quartiles[2],
    )


class OtherProcesses:
    """Measures how busy other processes keep this process's CPU cores, from its creation on.

    Cores that this process may not use do not count.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
        self._cores = {f"cpu{core}" for core in affinity}
        self._start = self._now()

    def _now(self) -> tuple[float, float, float] | None:
        """Seconds: wall clock, work of all our cores, work of this process and its descendants."""
        try:
            lines = (self._proc / "stat").read_text().splitlines()
        except OSError:
            return None
        busy = [
            # user, nice, system, irq, softirq, steal
            sum(int(fields[number]) for number in (1, 2, 3, 6, 7, 8))
            for fields in map(str.split, lines)
            if fields and fields[0] in self._cores
        ]
        if not busy:
            return None
        ticks = os.sysconf("SC_CLK_TCK")
        own = sum(os.times()[:4]) + self._descendants() / ticks
        return time.monotonic(), sum(busy) / ticks, own

    def _descendants(self) -> int:
        """Clock ticks of all living descendants of this process.

        A peer that compiles may leave compiler processes running.
        """
        parents, work = {}, {}
        for stat in self._proc.glob("[0-9]*/stat"):
            try:
                # The process name, in brackets, may hold any character.
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:  # the process has ended
                continue
            pid = int(stat.parent.name)
            parents[pid] = int(fields[1])
            work[pid] = sum(map(int, fields[11:15]))  # its own, and that of its ended children
        total, found = 0, {os.getpid()}
        while found:
            found = {pid for pid, parent in parents.items() if parent in found}
            total += sum(work[pid] for pid in found)
        return total

    def share(self) -> float | None:
        """The share of core time that others used; ``None`` if the system does not report it."""
        now = self._now()
        if now is None or self._start is None or now[0] == self._start[0]:
            return None
        clock, everyone, own = (new - old for new, old in zip(now, self._start, strict=True))
        return round(max(everyone - own, 0.0) / (clock * len(self._cores)), 3)
