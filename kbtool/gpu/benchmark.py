"""Benchmarks on the CPU: arms in turn over the same inputs, caches cold, right again afterwards.

Each sample is one call, timed by the host clock, after a buffer larger than the last-level cache
was read, so that the inputs come from memory. The arms take turns within each round and the order
is reversed every other round, so that drift of the machine falls on all of them alike.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from kbtool.gpu.compare import compare
from kbtool.gpu.harness import Harness, HarnessError
from kbtool.gpu.validate import case_seed
from kbtool.model.run import BenchmarkCase, BenchmarkResult, Timing

WARMUP_ROUNDS = 3
CEILING_MARGIN = 1.10
"""A result may exceed the measured read rate by so much: both figures are noisy on a CPU."""
_FALLBACK_CACHE_BYTES = 64 << 20
_MAX_FLUSH_BYTES = 1 << 30


def benchmark_cpu(
    harness: Harness,
    cases: list[Mapping[str, Any]],
    *,
    case_set: str,
    sha256: str,
    samples: int,
    threads: int,
    seed: int,
    on_case: Callable[[int, BenchmarkCase], None],
) -> BenchmarkResult:
    """Time every arm of every case on the CPU.

    Args:
        harness: the kernel's harness.
        cases: the cases of one set.
        case_set: the name of the set.
        sha256: of the library, for the record.
        samples: timed rounds; each gives every arm one sample.
        threads: CPU threads, for every arm.
        seed: of the inputs.
        on_case: called with the number of cases done and the last result.
    """
    torch.set_num_threads(threads)
    flush = torch.ones(min(2 * last_level_cache_bytes(), _MAX_FLUSH_BYTES) // 4)
    reader = torch.ones(_reader_bytes() // 8, dtype=torch.float64)
    ceiling = 0.0
    others = OtherProcesses()
    results: list[BenchmarkCase] = []
    with torch.inference_mode():
        for case in cases:
            # A shared machine's memory is faster at one time than at another: the ceiling is the
            # best rate of the whole run.
            ceiling = max(ceiling, read_bandwidth(reader))
            result = _time_case(harness, case, case_set, samples, seed, flush)
            results.append(result)
            on_case(len(results), result)
        ceiling = max(ceiling, read_bandwidth(reader))
    return BenchmarkResult(
        sha256=sha256,
        device="cpu",
        threads=threads,
        subject=harness.SUBJECT,
        baseline=harness.BASELINE_ARM,
        read_gb_s=ceiling,
        protocol=(
            f"{samples} samples an arm after {WARMUP_ROUNDS} warm-up rounds, arms in turn, order"
            f" reversed every other round; one call a sample, host clock; {flush.numel() * 4 >> 20}"
            " MiB read before each call so that inputs come from memory; result checked again"
            " after timing"
        ),
        others_busy=others.share(),
        cases=[
            case.model_copy(update={"refused": refusal(case, harness.SUBJECT, ceiling)})
            for case in results
        ],
    )


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


def _time_case(
    harness: Harness,
    case: Mapping[str, Any],
    case_set: str,
    samples: int,
    seed: int,
    flush: torch.Tensor,
) -> BenchmarkCase:
    name = str(case["name"])
    inputs = harness.make_inputs(
        case, device=torch.device("cpu"), seed=case_seed(seed, case_set, name)
    )
    arms = harness.arms(inputs)
    if harness.SUBJECT not in arms:
        raise HarnessError(f"arms of {name!r} lack the subject {harness.SUBJECT!r}")
    taken = interleave(arms, samples, before=lambda: flush.sum())
    work = harness.work(case)
    reference, yardstick = harness.reference(inputs), harness.baseline(inputs)
    out = harness.call(inputs, poison=True)
    rechecked = all(compare(out[key], reference[key], yardstick[key]).passed for key in reference)
    timings = {arm: timing(values) for arm, values in taken.items()}
    absent = (
        {}
        if harness.BASELINE_ARM in arms
        else {harness.BASELINE_ARM: "does not take this case on this device"}
    )
    return BenchmarkCase(
        name=name,
        case={key: value for key, value in case.items() if key != "name"},
        arms=timings,
        bytes=work["bytes"],
        flops=work["flops"],
        rechecked=rechecked,
        absent=absent,
    )


def interleave(
    arms: Mapping[str, Callable[[], Any]], samples: int, before: Callable[[], Any]
) -> dict[str, list[float]]:
    """Seconds of single calls, each arm in turn, ``before`` run ahead of every call."""
    taken: dict[str, list[float]] = {arm: [] for arm in arms}
    names = list(arms)
    for round_number in range(WARMUP_ROUNDS + samples):
        for arm in names if round_number % 2 else reversed(names):
            before()
            started = time.perf_counter()
            arms[arm]()
            elapsed = time.perf_counter() - started
            if round_number >= WARMUP_ROUNDS:
                taken[arm].append(elapsed)
    return taken


def timing(seconds: list[float]) -> Timing:
    """Samples of single calls, in seconds, as a record."""
    microseconds = [round(value * 1e6, 3) for value in seconds]
    low, median, high = statistics.quantiles(microseconds, n=4, method="inclusive")
    return Timing(
        samples_us=microseconds,
        median_us=median,
        low_us=low,
        high_us=high,
        calls_per_sample=1,
    )


def refusal(case: BenchmarkCase, subject: str, ceiling: float) -> str | None:
    """Why a case's figures are refused, or ``None``.

    Args:
        case: the timed case.
        subject: the arm that runs the library.
        ceiling: the measured read rate, 10⁹ bytes a second.
    """
    if not case.rechecked:
        return "the result was wrong after timing"
    rate = case.bytes / (case.arms[subject].median_us * 1e3)
    if rate > CEILING_MARGIN * ceiling:
        return f"{rate:.1f} GB/s is over the measured read ceiling of {ceiling:.1f} GB/s"
    return None


def read_bandwidth(buffer: torch.Tensor) -> float:
    """The best rate of reading ``buffer`` now, in 10⁹ bytes a second."""
    rates = []
    for _ in range(5):
        started = time.perf_counter()
        buffer.sum()
        rates.append(buffer.nbytes / (time.perf_counter() - started) / 1e9)
    return max(rates)


def _reader_bytes() -> int:
    return min(max(4 * last_level_cache_bytes(), 1 << 28), _MAX_FLUSH_BYTES)


def last_level_cache_bytes() -> int:
    """The size of the last-level cache of the first core, as the kernel reports it."""
    sizes = []
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = index.read_text().strip()
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        if text.rstrip("KMG").isdigit():
            sizes.append(int(text.rstrip("KMG")) * factor)
    return max(sizes, default=_FALLBACK_CACHE_BYTES)


def default_threads() -> int:
    """One thread a core that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
