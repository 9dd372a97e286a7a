"""Timing on a card: replays of CUDA graphs over rotated inputs, caches cold, by CUDA events.

A graph holds enough calls to run for about a millisecond. The overhead of a replay is then the same
share of every arm's time, and host overhead does not count. The calls rotate through enough sets of
inputs that a set has left the L2 cache before it is used again. A buffer larger than L2 is written
before each replay. The arms take turns, and the order is reversed every other round.

In such a graph a kernel that triggers its dependents early (PDL) is followed by another call of the
same kernel. So each arm is also timed behind plain kernels without PDL, as in a model.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from kbtool.gpu._card import Management
from kbtool.gpu.benchmark import Arms, OnArm, Timed, first_output, runnable, silent, timing
from kbtool.gpu.ceiling import arithmetic
from kbtool.gpu.probe import processes_on
from kbtool.gpu.unseen import Unseen

WARMUP_ROUNDS = 3
MAX_CALLS = 256
"""The most calls in a graph, and the most sets of inputs."""
REPLAY_SECONDS = 1e-3
"""Target time of one replay: long compared with the overhead of a launch."""
PROBE_CALLS = 16
"""Calls in the first graph, which estimates the time of a call."""
ENERGY_SECONDS = 2.0
"""How long an arm runs while its energy is measured."""
_PROBES = 4
_SPIN_CYCLES = 1_000_000
"""The card spins for half a millisecond before a replay, to give the host time to launch it."""
_HOST_CALLS = 50


class CudaClock:
    """Times replayed graphs on the current card."""

    def __init__(self, samples: int, energy: bool = False) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._samples = samples
        self._energy = energy
        card = torch.cuda.get_device_properties(self.device)
        self._card = str(card.uuid)
        self._management = Management(self._card)
        self._room = card.total_memory // 2
        self._flush = torch.empty(4 * card.L2_cache_size, dtype=torch.int8, device=self.device)
        self._reader = torch.ones(1 << 29, dtype=torch.float32, device=self.device)
        self._number = torch.zeros(1, device=self.device)
        flushed = f"{self._flush.nbytes >> 20} MiB"
        self.protocol = (
            f"{samples} samples an arm after {WARMUP_ROUNDS} warm-up rounds, arms in turn, order"
            " reversed every other round; a sample is one replay of a CUDA graph of as many calls"
            f" as take the card about {REPLAY_SECONDS * 1e3:g} ms by a replay of {PROBE_CALLS},"
            f" {MAX_CALLS} at most, each on inputs of its own, or on inputs since whose last use"
            f" calls have moved {flushed} of others; fewer calls where half of the card's memory"
            f" does not hold as many inputs; by device events, {flushed} written before it so that"
            " the L2 cache is cold, launched while the card still waits; between: the same calls,"
            " each behind a kernel that adds 1 to a number and admits none before its end, both"
            " together; host time: one eager call"
            f" with synchronisation, median of {_HOST_CALLS}"
        )

    def read_bandwidth(self) -> float:
        """The best of nine reads of 2 GiB."""
        self._reader.sum()
        return max(self._reader.nbytes / _device_seconds(self._reader.sum) / 1e9 for _ in range(9))

    def arithmetic(self, dtype: torch.dtype) -> float | None:
        """The best rate of matrix products that take 2 ms or more."""
        return arithmetic(dtype, self.device, _device_seconds, 2e-3, 8192)

    def sm_clock_mhz(self) -> int | None:
        """The current SM clock, from the driver."""
        return self._management.sm_clock_mhz()

    def others_on_card(self) -> int | None:
        """From nvidia-smi, which lists this process too. An empty list means unknown."""
        there = processes_on(self._card)
        return there - 1 if there else None

    def time(
        self,
        arms: Arms,
        least_bytes: int,
        on_arm: OnArm = silent,
        unseen: Unseen | None = None,
    ) -> Timed:
        """Time every arm that takes the inputs and can be captured in a CUDA graph."""
        before = torch.cuda.memory_allocated()
        first, absent = runnable(arms(0))
        taken_up = max(torch.cuda.memory_allocated() - before, least_bytes, 1)
        room = max(1, self._room // taken_up)
        enough = 1 + math.ceil(self._flush.nbytes / max(least_bytes, 1))
        most = MAX_CALLS if enough <= room else min(room, MAX_CALLS)
        sets = [first]

        def turns(name: str, count: int) -> list[Callable[[], Any]]:
            """``count`` calls that rotate through the sets of inputs and end with set 0."""
            used = min(count, enough)
            return [sets[turn % used][name] for turn in reversed(range(count))]

        def make_sets(count: int) -> None:
            """Make the sets of inputs that ``turns`` needs for ``count`` calls."""
            sets.extend(runnable(arms(n))[0] for n in range(len(sets), min(count, enough)))

        def captured(name: str, count: int, between: bool = False) -> _Replay | None:
            on_arm(name)
            try:
                return _Replay(name, turns(name, count), self._plain if between else None)
            except Exception as error:
                absent[name] = f"cannot be captured: {str(error).splitlines()[0]}"
                return None

        counts = {}
        few = min(PROBE_CALLS, most)
        make_sets(few)
        for name in first:
            if probe := captured(name, few):
                seconds = min(self._cold_seconds(probe) for _ in range(_PROBES)) / few
                counts[name] = max(1, min(most, round(REPLAY_SECONDS / seconds)))
        make_sets(max(counts.values(), default=0))
        replays = {
            name: (replay, pairs)
            for name, count in counts.items()
            if (replay := captured(name, count)) and (pairs := captured(name, count, between=True))
        }
        plain = _Replay("plain", [self._plain] * MAX_CALLS)
        in_chain: dict[str, list[float]] = {name: [] for name in replays}
        between: dict[str, list[float]] = {name: [] for name in replays}
        alone: list[float] = []
        for round_number in range(WARMUP_ROUNDS + self._samples):
            of_plain = self._cold_seconds(plain) / MAX_CALLS
            for name in replays if round_number % 2 else reversed(replays):
                on_arm(name)
                elapsed = [self._cold_seconds(one) / counts[name] for one in replays[name]]
                if round_number >= WARMUP_ROUNDS:
                    in_chain[name].append(elapsed[0])
                    between[name].append(elapsed[1])
            if round_number >= WARMUP_ROUNDS:
                alone.append(of_plain)
        clock = self.sm_clock_mhz()
        timings, outputs, drawn, peaks, joules = {}, {}, {}, {}, {}
        for name, samples in in_chain.items():
            on_arm(name)
            outputs[name] = replays[name][0].fresh_output()
            if unseen and name in unseen.arms:
                # The last call of the graph reads the inputs of number 0.
                with unseen.in_place(unseen.first):
                    drawn[name] = [replays[name][0].output(), replays[name][0].fresh_output()]
            timings[name] = timing(samples, counts[name], _host_us(first[name]), between[name])
            peaks[name] = _peak_bytes(first[name])
            if self._energy:
                seconds = statistics.median(samples) * counts[name]
                joules[name] = self._joules(replays[name][0], seconds)
        plain_us = timing(alone).median_us
        known = {name: found / counts[name] for name, found in joules.items() if found is not None}
        return Timed(
            timings, absent, outputs, clock, plain_us, drawn, peak_bytes=peaks, energy_j=known
        )  # fmt: skip

    def _joules(self, replay: _Replay, seconds: float) -> float | None:
        """The card's energy for one replay, from its counter, which it updates some times a second;
        ``None`` if it does not tell.

        Args:
            replay: runs for ``ENERGY_SECONDS``.
            seconds: how long one replay takes.
        """
        times = math.ceil(ENERGY_SECONDS / seconds)
        torch.cuda.synchronize()
        before = self._management.energy_mj()
        for _ in range(times):
            replay.graph.replay()
        torch.cuda.synchronize()
        after = self._management.energy_mj()
        if before is None or after is None or after <= before:
            return None
        return (after - before) / 1e3 / times

    def _plain(self) -> torch.Tensor:
        """A kernel that knows nothing of launches that overlap, and does next to nothing."""
        return self._number.add_(1)

    def _cold_seconds(self, replay: _Replay) -> float:
        """Time one replay with a cold L2 cache. The host launches it while the card still spins."""
        self._flush.zero_()
        torch.cuda._sleep(_SPIN_CYCLES)  # type: ignore[no-untyped-call]
        return _device_seconds(replay.graph.replay)


class _Replay:
    """A CUDA graph of ``calls``, each behind one call of ``ahead``, and the last output."""

    def __init__(
        self, arm: str, calls: list[Callable[[], Any]], ahead: Callable[[], Any] | None = None
    ) -> None:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            for call in calls[:2]:  # warm up: one-time setup must not be captured
                call()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for call in calls[:-1]:
                if ahead:
                    ahead()
                call()
            if ahead:
                ahead()
            # Keep the last output alive, so that its memory is not reused.
            self._output = first_output(arm, calls[-1]())

    def fresh_output(self) -> torch.Tensor:
        """Fill the output with NaN, replay, and return a copy of the output."""
        self._output.fill_(math.nan)
        return self.output()

    def output(self) -> torch.Tensor:
        """Replay, and return a copy of the output."""
        self.graph.replay()
        copy = self._output.clone()
        torch.cuda.synchronize()
        return copy


def _device_seconds(call: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _peak_bytes(call: Callable[[], Any]) -> int:
    """The most memory that torch allocates in one eager call beyond what it holds before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return max(torch.cuda.max_memory_allocated() - before, 0)


def _host_us(call: Callable[[], Any]) -> float:
    """Host time of one eager call, from launch to completion."""
    seconds = []
    for _ in range(_HOST_CALLS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return round(statistics.median(seconds) * 1e6, 3)
