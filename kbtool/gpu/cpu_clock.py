"""Timing on the CPU: one call per sample, by the host clock, with cold caches.

A buffer larger than the last-level cache is read before each call. The arms take turns, and the
order is reversed every other round, so that drift of the machine affects all arms equally.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from kbtool.gpu.benchmark import Arms, OnArm, Timed, first_output, runnable, silent, timing

WARMUP_ROUNDS = 3
_FALLBACK_CACHE_BYTES = 64 << 20
_MAX_BUFFER_BYTES = 1 << 30


class CpuClock:
    """Times single calls on the CPU."""

    def __init__(self, samples: int) -> None:
        self.device = torch.device("cpu")
        cache = last_level_cache_bytes()
        self._samples = samples
        self._flush = torch.ones(min(2 * cache, _MAX_BUFFER_BYTES) // 4)
        reader = min(max(4 * cache, 1 << 28), _MAX_BUFFER_BYTES)
        self._reader = torch.ones(reader // 8, dtype=torch.float64)
        self.protocol = (
            f"{samples} samples an arm after {WARMUP_ROUNDS} warm-up rounds, arms in turn, order"
            " reversed every other round; one call a sample, host clock;"
            f" {self._flush.nbytes >> 20} MiB read before each call so that inputs come from memory"
        )

    def read_bandwidth(self) -> float:
        """The best of five reads of a buffer larger than every cache."""
        rates = []
        for _ in range(5):
            started = time.perf_counter()
            self._reader.sum()
            rates.append(self._reader.nbytes / (time.perf_counter() - started) / 1e9)
        return max(rates)

    def sm_clock_mhz(self) -> int | None:
        """``None``: a CPU run uses no card."""
        return None

    def others_on_card(self) -> int | None:
        """``None``: a CPU run uses no card."""
        return None

    def time(self, arms: Arms, least_bytes: int, on_arm: OnArm = silent) -> Timed:
        """Time every arm that takes the inputs."""
        calls, absent = runnable(arms(0))

        def before(arm: str) -> None:
            on_arm(arm)
            self._flush.sum()

        seconds_of_arm = interleave(calls, self._samples, before)
        outputs = {}
        for arm, call in calls.items():
            on_arm(arm)
            # Copy the output: the arm may reuse its buffer.
            first_output(arm, call()).fill_(math.nan)
            outputs[arm] = first_output(arm, call()).clone()
        return Timed(
            {arm: timing(seconds) for arm, seconds in seconds_of_arm.items()}, absent, outputs
        )


def interleave(
    arms: Mapping[str, Callable[[], Any]], samples: int, before: Callable[[str], Any]
) -> dict[str, list[float]]:
    """Seconds of single calls, each arm in turn. ``before(name)`` is called before each turn."""
    seconds: dict[str, list[float]] = {arm: [] for arm in arms}
    names = list(arms)
    for round_number in range(WARMUP_ROUNDS + samples):
        for arm in names if round_number % 2 else reversed(names):
            before(arm)
            started = time.perf_counter()
            arms[arm]()
            elapsed = time.perf_counter() - started
            if round_number >= WARMUP_ROUNDS:
                seconds[arm].append(elapsed)
    return seconds


def last_level_cache_bytes() -> int:
    """The size of the last-level cache of the first core, as the kernel reports it."""
    sizes = []
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = index.read_text().strip()
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        if text.rstrip("KMG").isdigit():
            sizes.append(int(text.rstrip("KMG")) * factor)
    return max(sizes, default=_FALLBACK_CACHE_BYTES)
