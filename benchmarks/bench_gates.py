"""What the gates of a run cost: timing with and without calls on unseen values, in one run."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kbtool.gpu.benchmark import Clock, benchmark
from kbtool.gpu.build import build
from kbtool.gpu.build_plan import choose_architecture, plan_build
from kbtool.gpu.cpu_clock import CpuClock
from kbtool.gpu.cuda_clock import CudaClock
from kbtool.gpu.harness import load_harness, load_module
from kbtool.gpu.originals import Originals
from kbtool.store.private import build_cache
from kbtool.store.tree import KnowledgeBase, find_root

KERNEL, CASE_SET, DTYPE = "split_k_attention", "decode", "bfloat16"
CASES, SAMPLES, ROUNDS = 3, 20, 6


class Trusting:
    """The same clock, which calls nobody on unseen values."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def time(self, arms: Any, least_bytes: int, on_arm: Any, unseen: Any = None) -> Any:
        return self._clock.time(arms, least_bytes, on_arm)


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = run()
    return time.perf_counter() - started, result


def main() -> None:
    target = "cuda" if torch.cuda.is_available() else "cpu"
    base = KnowledgeBase(find_root())
    kernel = base.kernels[KERNEL].record
    folder = base.root / "kernels" / KERNEL
    architecture = ""
    if target == "cuda":
        major, minor = torch.cuda.get_device_capability()
        architecture = choose_architecture(kernel, target, f"sm_{major}{minor}")
    with tempfile.TemporaryDirectory() as temporary:
        cache = build_cache(base.root)
        place = cache if cache.exists() else Path(temporary)
        plan = plan_build(kernel, folder, target, place, architecture)
        built = build(plan, timeout=600)
        torch.ops.load_library(str(plan.library))  # type: ignore[no-untyped-call]
    if kernel.interface:
        load_module(folder / kernel.interface, "kbtool_interface")
    harness = load_harness(folder / kernel.harness)
    took, originals = seconds(Originals)
    originals.hold(harness)
    looked = statistics.median(seconds(originals.replaced)[0] for _ in range(20))
    threads = torch.get_num_threads()
    print(
        f"gates: {CASE_SET} of {KERNEL} for {target}, {threads} threads, {SAMPLES} samples,"
        f" {ROUNDS} rounds"
    )
    print(
        f"  noting what times and judges: {took * 1e3:.0f} ms; looking at it: {looked * 1e3:.1f} ms"
    )
    clock = CudaClock(SAMPLES) if target == "cuda" else CpuClock(SAMPLES)
    clocks: dict[str, Any] = {"with": clock, "without": Trusting(clock)}
    spent = dict.fromkeys(clocks, 0.0)
    medians: list[float] = []
    cases = [case for case in kernel.cases(CASE_SET) if case["dtype"] == DTYPE]
    for case in cases[:CASES]:
        of_case: dict[str, list[float]] = {name: [] for name in clocks}
        for turn in range(-1, ROUNDS):  # the first round warms up: peers compile and plan
            for name in clocks if turn % 2 else reversed(clocks):
                run = partial(
                    benchmark, harness, [(CASE_SET, case)], clocks[name], sha256=built.sha256,
                    threads=threads, seed=1, variants=[], peers=None,
                    on_case=lambda done, part: None,
                )  # fmt: skip
                took, result = seconds(run)
                if turn < 0:
                    continue
                spent[name] += took
                of_case[name].append(result.cases[0].arms[harness.SUBJECT].median_us)
        medians.append(statistics.median(of_case["with"]) / statistics.median(of_case["without"]))
    more = spent["with"] / spent["without"] - 1
    print(
        f"  wall time with ÷ without: {1 + more:.3f} ({len(medians)} cases, {spent['with']:.0f} s)"
    )
    print(
        f"  median of the kernel, with ÷ without: {statistics.geometric_mean(medians):.3f}"
        f" ({min(medians):.3f} to {max(medians):.3f})"
    )


if __name__ == "__main__":
    main()
