"""Timing on the CPU: one call per sample, by the host clock, with cold caches.

A buffer larger than the last-level cache is read before each call. The arms take turns, and the
order is reversed every other round, so that drift of the machine affects all arms equally.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter, sleep  # by names here: a kernel may replace those of the module
from typing import Any

import torch

from kbtool.gpu.benchmark import Arms, OnArm, Timed, first_output, runnable, silent, timing
from kbtool.gpu.ceiling import arithmetic
from kbtool.gpu.compiling import compiled
from kbtool.gpu.harness import Inputs
from kbtool.gpu.unseen import PAIRS, Unseen, keeps_results

WARMUP_ROUNDS = 3
_ENDING_SECONDS = 0.05
"""How long a thread that has done its work may take to end."""
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
            started = perf_counter()
            self._reader.sum()
            rates.append(self._reader.nbytes / (perf_counter() - started) / 1e9)
        return max(rates)

    def arithmetic(self, dtype: torch.dtype) -> float | None:
        """The best rate of matrix products that take 5 ms or more."""
        return arithmetic(dtype, self.device, lambda call: _timed(call)[0], 5e-3, 4096)

    def sm_clock_mhz(self) -> int | None:
        """``None``: a CPU run uses no card."""
        return None

    def others_on_card(self) -> int | None:
        """``None``: a CPU run uses no card."""
        return None

    def time(
        self,
        arms: Arms,
        least_bytes: int,
        on_arm: OnArm = silent,
        unseen: Unseen | None = None,
    ) -> Timed:
        """Time every arm that takes the inputs."""
        calls, absent = runnable(arms(0))

        def before(arm: str) -> None:
            on_arm(arm)
            found.turn(arm)
            self._flush.sum()

        def once(arm: str) -> float:
            before(arm)
            return _timed(calls[arm])[0]

        held = [arm for arm in calls if unseen and arm in unseen.arms]
        drawn = unseen.random.randrange(1, self._samples) if unseen else None
        found = _Found(held)

        def on_round(number: int) -> None:
            found.begin_round(number)
            if unseen and number == drawn:
                for arm in held:
                    on_arm(arm)
                    found.draw(arm, calls[arm], unseen, partial(before, arm))

        seconds_of_arm = interleave(calls, self._samples, before, on_round)
        for arm in held:
            assert unseen is not None
            pairs = _pairs(partial(once, arm), unseen)
            found.keep(arm, keeps_results(seconds_of_arm[arm], found.seconds[arm], pairs))
        outputs = {}
        for arm, call in calls.items():
            on_arm(arm)
            # Copy the output: the arm may reuse its buffer.
            first_output(arm, call()).fill_(math.nan)
            outputs[arm] = first_output(arm, call()).clone()
        return Timed(
            {arm: timing(seconds) for arm, seconds in seconds_of_arm.items()},
            absent,
            outputs,
            drawn=found.outputs,
            suspect=found.suspect,
        )


class _Found:
    """What an arm of the library does in timed calls, and in those on unseen inputs.

    Args:
        arms: the arms of the library.
    """

    def __init__(self, arms: list[str]) -> None:
        self._arms = arms
        self._arm: str | None = None
        self._compiled = 0
        self._is_timed = False
        self.seconds: dict[str, float] = {}
        self.outputs: dict[str, list[torch.Tensor]] = {}
        self.suspect: dict[str, str] = {}

    def begin_round(self, number: int) -> None:
        """Before a round; those to warm up, in which arms may compile, are below 0."""
        self._is_timed, self._arm = number >= 0, None

    def turn(self, arm: str) -> None:
        """Before the turn of an arm: note whether the one before it compiled in a timed call."""
        if self._is_timed and self._arm in self._arms and compiled() > self._compiled:
            self.keep(str(self._arm), "it compiled, or started a process, in a timed call")
        self._arm, self._compiled = arm, compiled()

    def draw(
        self, arm: str, call: Callable[[], Any], unseen: Unseen, before: Callable[[], None]
    ) -> None:
        """Time a call on unseen inputs, and copy its output at once; then call over NaN."""
        # Held until the end: where the arm has a buffer, it still holds the former result.
        former = call()
        values = unseen.first
        with unseen.in_place(values):
            before()
            threads = _threads()
            self.seconds[arm], output = _timed(call)
            result = first_output(arm, output)
            self.outputs[arm] = [result.clone()]
            if _left(threads):
                self.keep(arm, "it left threads at work when it returned")
            result.fill_(math.nan)
            self.outputs[arm].append(first_output(arm, call()).clone())
        del former

    def keep(self, arm: str, why: str | None) -> None:
        """Note why the times of an arm do not count, unless something is noted already."""
        if why is not None:
            self.suspect.setdefault(arm, why)


def _pairs(once: Callable[[], float], unseen: Unseen) -> Iterator[tuple[float, float]]:
    """Seconds of a call on the former values, written again, and of one on unseen values.

    Both come about in the same way, so that memory is as warm in both: new pages for an output can
    take longer than the call.
    """

    def after_writing(values: Inputs) -> float:
        once()  # what is kept may be the last result alone
        with unseen.in_place(values):
            return once()

    for _ in range(PAIRS):
        seen, others = unseen.next_pair()
        yield after_writing(seen), after_writing(others)


def _left(before: set[str]) -> bool:
    """Whether there are threads that were not there before; one that has ended takes a moment."""
    until = perf_counter() + _ENDING_SECONDS
    while new := _threads() - before:
        if perf_counter() > until:
            return True
        sleep(_ENDING_SECONDS / 50)
    return bool(new)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, and what it returned."""
    started = perf_counter()
    output = call()
    return perf_counter() - started, output


def _threads() -> set[str]:
    """The threads of this process, C++'s too where there is a /proc."""
    try:
        return {task.name for task in Path("/proc/self/task").iterdir()}
    except OSError:
        return {str(thread.ident) for thread in threading.enumerate()}


def interleave(
    arms: Mapping[str, Callable[[], Any]],
    samples: int,
    before: Callable[[str], Any],
    on_round: Callable[[int], None] = lambda number: None,
) -> dict[str, list[float]]:
    """Seconds of single calls, each arm in turn.

    Args:
        arms: the calls.
        samples: how many samples an arm.
        before: called with the arm before each turn.
        on_round: called with the number of a round before it; those to warm up are below 0.
    """
    seconds: dict[str, list[float]] = {arm: [] for arm in arms}
    names = list(arms)
    for round_number in range(WARMUP_ROUNDS + samples):
        on_round(round_number - WARMUP_ROUNDS)
        for arm in names if round_number % 2 else reversed(names):
            before(arm)
            started = perf_counter()
            arms[arm]()
            elapsed = perf_counter() - started
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
