"""Benchmarks: arms in turn over the same inputs, caches cold, the result right again afterwards.

What differs between devices, how a call is timed and how fast memory can be read, is in a ``Clock``
(``cpu_clock``, ``cuda_clock``). What is here holds for all: the order of things, what is checked
again, and what is refused.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from kbtool.gpu.compare import compare, compare_all
from kbtool.gpu.harness import Harness, HarnessError
from kbtool.gpu.validate import case_seed
from kbtool.model.results import BenchmarkCase, BenchmarkResult, Timing
from kbtool.model.words import without_folders

CEILING_MARGIN = 1.10
"""A result may exceed the measured read rate by so much: both figures are noisy."""

Calls = Mapping[str, Callable[[], Any] | str]
"""Arm → the call to time, or why there is none."""
Arms = Callable[[int], Calls]
"""The arms of a case on its inputs, fresh ones for each number."""
OnArm = Callable[[str], None]
"""Called with the name of the arm that is about to run."""


def silent(arm: str) -> None:
    """Tell nobody."""


class Clock(Protocol):
    """How one device is timed."""

    device: torch.device
    protocol: str
    """How it is done, in words."""

    def read_bandwidth(self) -> float:
        """The best rate of reading memory now, in 10⁹ bytes a second."""

    def sm_clock_mhz(self) -> int | None:
        """The card's multiprocessor clock now; ``None`` where it cannot be told."""

    def time(
        self, arms: Arms, least_bytes: int, on_arm: OnArm = silent
    ) -> tuple[dict[str, Timing], dict[str, str]]:
        """Timings by arm, and for an arm that cannot be timed the reason; ``on_arm`` is called
        ahead of every turn, well before its time is taken."""


def benchmark(
    harness: Harness,
    cases: list[tuple[str, Mapping[str, Any]]],
    clock: Clock,
    *,
    sha256: str,
    threads: int,
    seed: int,
    variants: list[str],
    peers: list[str] | None,
    left_out: Sequence[Mapping[str, str]] = (),
    known: BenchmarkResult | None = None,
    on_peer: Callable[[str | None], None] = lambda _: None,
    on_case: Callable[[int, BenchmarkResult], None],
) -> BenchmarkResult:
    """Time every arm of every case.

    Args:
        harness: the kernel's harness.
        cases: (case set, case) pairs.
        clock: how to time, and where.
        sha256: of the library, for the record.
        threads: CPU threads, for every arm.
        seed: of the inputs.
        variants: of the library, to time as arms beside its own choice.
        peers: of the harness, to time as arms; all where not given.
        left_out: for each case the peers that are not run, and why; none where not given.
        known: what was measured of the first cases before; this goes on after them.
        on_peer: called with the name of a peer before any of its code runs, and with ``None``
            before the kernel's own does.
        on_case: called with the number of cases done and the result of the last one.

    Raises:
        HarnessError: there is no such peer.
    """
    unknown = [name for name in peers or () if name not in harness.PEERS]
    if unknown:
        raise HarnessError(f"no peer {unknown[0]!r}; the harness has {', '.join(harness.PEERS)}")
    rivals = list(
        dict.fromkeys([harness.BASELINE_ARM, *(harness.PEERS if peers is None else peers)])
    )
    others = OtherProcesses()
    ceiling = known.read_gb_s if known else 0.0
    results = list(known.cases) if known else []
    before = known.sm_clocks_mhz if known else None
    clocks: list[int | None] = [None] * len(results) if before is None else [*before]

    def measure_machine() -> None:
        # A shared machine's memory is faster at one time than at another: the ceiling is the best
        # rate of the whole run.
        nonlocal ceiling
        ceiling = max(ceiling, clock.read_bandwidth())
        clocks.append(clock.sm_clock_mhz())

    def of(cases: list[BenchmarkCase]) -> BenchmarkResult:
        return BenchmarkResult(
            sha256=sha256,
            device=clock.device.type,
            threads=threads,
            subject=harness.SUBJECT,
            baseline=harness.BASELINE_ARM,
            variants=variants,
            read_gb_s=ceiling,
            protocol=clock.protocol + "; result checked again after timing",
            sm_clocks_mhz=None if None in clocks else clocks,
            others_busy=_more(known.others_busy if known else None, others.share()),
            cases=[
                case.model_copy(update={"refused": refusal(case, harness.SUBJECT, ceiling)})
                for case in cases
            ],
        )

    with torch.inference_mode():
        for number in range(len(results), len(cases)):
            case_set, case = cases[number]
            measure_machine()
            seeded = case_seed(seed, case_set, str(case["name"]))
            without = left_out[number] if left_out else {}
            result = _time_case(
                harness, case_set, case, clock, seeded, variants, rivals, without, on_peer
            )
            results.append(result)
            on_case(len(results), of([result]))
        measure_machine()
    return of(results)


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
    def make(number: int) -> dict[str, Any]:
        return harness.make_inputs(case, device=clock.device, seed=seed + number)

    # Inputs of a case differ in their values: a peer takes the first and all others, or none.
    taken: set[str] = set()
    refused = dict(left_out)

    def on_arm(name: str) -> None:
        on_peer(name if name in peers else None)

    def arms_on(inputs: Mapping[str, Any]) -> Calls:
        calls = dict(harness.arms(inputs, variants))
        for name in peers:
            if name in refused:
                continue
            on_arm(name)
            calls[name] = tried(harness, inputs, name, clock.device)
            if not isinstance(calls[name], str):
                taken.add(name)
            elif name in taken:
                raise RuntimeError(f"took inputs of this case before: {calls[name]}")
            else:
                refused[name] = str(calls[name])
        return {**calls, **refused}

    def arms(number: int) -> Calls:
        on_peer(None)
        return arms_on(make(number))

    work = harness.work(case)
    timings, absent = clock.time(arms, work["bytes"], on_arm)
    on_peer(None)
    inputs = make(0)
    library = {harness.SUBJECT: None, **{name: name for name in variants if name in timings}}
    reference, yardstick = harness.reference(inputs), harness.baseline(inputs)
    first = next(iter(reference))
    rechecked = all(
        error.passed
        for variant in library.values()
        for out in [harness.call(inputs, variant=variant, poison=True)]
        for error in compare_all(harness, inputs, out, reference, yardstick).values()
    )
    calls, _ = runnable(arms_on(inputs))
    errors = {}
    for name in peers:
        if name in timings and name in calls:
            on_arm(name)
            errors[name] = compare(_first(calls[name]()), reference[first], yardstick[first])
    on_peer(None)
    return BenchmarkCase(
        name=str(case["name"]),
        case_set=case_set,
        case={key: value for key, value in case.items() if key != "name"},
        arms=timings,
        bytes=work["bytes"],
        flops=work["flops"],
        rechecked=rechecked,
        peers=errors,
        absent=absent,
        workspace_bytes={
            arm: harness.workspace_bytes(inputs, variant) for arm, variant in library.items()
        },
    )


def tried(
    harness: Harness, inputs: Mapping[str, Any], name: str, device: torch.device
) -> Callable[[], Any] | str:
    """The call of a peer, or why there is none: what it raises when it is made and called once.

    Args:
        harness: the kernel's harness.
        inputs: of the case.
        name: of the peer.
        device: where the inputs are.
    """
    try:
        call = harness.arms(inputs, (), [name])[name]
        if not isinstance(call, str):
            call()
            _synchronize(device)
    except Exception as error:  # whatever it raises, it does not take these inputs
        # Where it took the card's context with it, this raises too and ends the process.
        _synchronize(device)
        return without_folders((str(error).strip() or type(error).__name__).splitlines()[0])
    return without_folders(call) if isinstance(call, str) else call


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _more(one: float | None, other: float | None) -> float | None:
    return max((share for share in (one, other) if share is not None), default=None)


def runnable(calls: Calls) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """The arms that can be timed, and for the others the reason."""
    there: dict[str, Callable[[], Any]] = {}
    absent: dict[str, str] = {}
    for name, call in calls.items():
        if isinstance(call, str):
            absent[name] = call
        else:
            there[name] = call
    return there, absent


def _first(output: Any) -> torch.Tensor:
    """The first output of an arm's call."""
    first: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return first


def timing(seconds: list[float], calls_per_sample: int = 1, host_us: float | None = None) -> Timing:
    """Samples, in seconds a call, as a record."""
    microseconds = [round(value * 1e6, 4) for value in seconds]
    low, median, high = statistics.quantiles(microseconds, n=4, method="inclusive")
    return Timing(
        samples_us=microseconds,
        median_us=median,
        low_us=low,
        high_us=high,
        calls_per_sample=calls_per_sample,
        host_us=host_us,
    )


def refusal(case: BenchmarkCase, subject: str, ceiling: float) -> str | None:
    """Why a case's figures are refused, or ``None``.

    Args:
        case: the timed case.
        subject: the arm that runs the library.
        ceiling: the measured read rate, 10⁹ bytes a second.
    """
    if subject not in case.arms:
        return f"the library was not timed: {case.absent.get(subject, 'no such arm')}"
    if not case.rechecked:
        return "the result was wrong after timing"
    rate = case.bytes / (case.arms[subject].median_us * 1e3)
    if rate > CEILING_MARGIN * ceiling:
        return f"{rate:.1f} GB/s is over the measured read ceiling of {ceiling:.1f} GB/s"
    return None


class OtherProcesses:
    """How busy the machine was with something else, since this object was made."""

    def __init__(self) -> None:
        self._start = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float] | None:
        """Seconds: of the clock, of all processors' work, of this process's own."""
        try:
            fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        except OSError:
            return None
        user, nice, system, _, _, irq, softirq, steal = (int(field) for field in fields[:8])
        ticks = user + nice + system + irq + softirq + steal
        own = os.times()
        return time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), own.user + own.system

    def share(self) -> float | None:
        """Their share of all cores; ``None`` where the system does not tell."""
        now = self._now()
        if now is None or self._start is None or now[0] == self._start[0]:
            return None
        clock, everyone, own = (new - old for new, old in zip(now, self._start, strict=True))
        return round(max(everyone - own, 0.0) / (clock * (os.cpu_count() or 1)), 3)
