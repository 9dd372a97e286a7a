"""Timing on a card: replays of CUDA graphs over rotated inputs, caches cold, by device events.

A graph holds as many calls as take about a millisecond, each on inputs of its own, so that launch
gaps shrink; a buffer larger than the L2 cache is written before each replay, so that no call finds
its inputs there. The arms take turns and the order is reversed every other round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from kbtool.gpu._card import Management
from kbtool.gpu.benchmark import Arms, OnArm, runnable, silent, timing
from kbtool.model.results import Timing
from kbtool.model.words import without_folders

WARMUP_ROUNDS = 3
MAX_SETS = 64
REPLAY_SECONDS = 1e-3
"""How long one replay is to take: long beside the events around it."""
_SET_BYTES = 24 << 30
"""Device memory that the input sets of a case may take together."""
_HOST_CALLS = 50


class CudaClock:
    """Times replayed graphs on the current card."""

    def __init__(self, samples: int) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._samples = samples
        identity = torch.cuda.get_device_properties(self.device).uuid
        self._management = Management(str(identity))
        self._l2 = torch.cuda.get_device_properties(self.device).L2_cache_size
        self._flush = torch.empty(4 * self._l2, dtype=torch.int8, device=self.device)
        self._reader = torch.ones(1 << 29, dtype=torch.float32, device=self.device)
        self.protocol = (
            f"{samples} samples an arm after {WARMUP_ROUNDS} warm-up rounds, arms in turn, order"
            " reversed every other round; a sample is one replay of a CUDA graph of as many calls"
            f" as take about {REPLAY_SECONDS * 1e3:g} ms, {MAX_SETS} at most, each on inputs of its"
            f" own, by device events, {self._flush.nbytes >> 20} MiB written before it so that the"
            " L2 cache is cold; host time: one eager call with synchronisation, median of"
            f" {_HOST_CALLS}"
        )

    def read_bandwidth(self) -> float:
        """The best of nine reads of 2 GiB."""
        self._reader.sum()
        return max(self._reader.nbytes / _device_seconds(self._reader.sum) / 1e9 for _ in range(9))

    def sm_clock_mhz(self) -> int | None:
        """The multiprocessors' clock now, by the driver."""
        return self._management.sm_clock_mhz()

    def time(
        self, arms: Arms, least_bytes: int, on_arm: OnArm = silent
    ) -> tuple[dict[str, Timing], dict[str, str]]:
        """Every arm that takes the inputs and can be captured."""
        before = torch.cuda.memory_allocated()
        calls, absent = runnable(arms(0))
        taken_up = max(torch.cuda.memory_allocated() - before, least_bytes, 1)
        most = max(1, min(MAX_SETS, _SET_BYTES // taken_up))
        counts = {}
        for name, call in calls.items():
            on_arm(name)
            counts[name] = _calls_a_replay(call, most)
        sets = [calls, *(runnable(arms(number))[0] for number in range(1, max(counts.values())))]
        graphs = {}
        for name, count in counts.items():
            on_arm(name)
            try:
                graphs[name] = _capture([one[name] for one in sets[:count]])
            except Exception as error:
                why = without_folders(str(error).splitlines()[0])
                absent[name] = f"cannot be captured: {why}"
        taken: dict[str, list[float]] = {name: [] for name in graphs}
        names = list(graphs)
        for round_number in range(WARMUP_ROUNDS + self._samples):
            for name in names if round_number % 2 else reversed(names):
                on_arm(name)
                self._flush.zero_()
                elapsed = _device_seconds(graphs[name].replay) / counts[name]
                if round_number >= WARMUP_ROUNDS:
                    taken[name].append(elapsed)
        timings = {}
        for name, seconds in taken.items():
            on_arm(name)
            timings[name] = timing(seconds, counts[name], _host_us(calls[name]))
        return timings, absent


def _calls_a_replay(call: Callable[[], Any], most: int) -> int:
    """How many calls take ``REPLAY_SECONDS``."""
    call()
    seconds = min(_device_seconds(call) for _ in range(3))
    return max(1, min(most, round(REPLAY_SECONDS / seconds)))


def _capture(calls: list[Callable[[], Any]]) -> Any:
    """A graph of the calls, one after the other; outputs stay alive in its pool."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for call in calls[:2]:  # what is set up at a first call is not captured
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def _device_seconds(call: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _host_us(call: Callable[[], Any]) -> float:
    """One eager call as the host sees it, launch and completion included."""
    seconds = []
    for _ in range(_HOST_CALLS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return round(statistics.median(seconds) * 1e6, 3)
