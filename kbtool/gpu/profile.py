"""Derive the bottleneck from Nsight Compute's metrics, by the decision tree of pattern 10.

Needs neither torch nor a card. The thresholds are those of Nsight Compute's own rules
(``sections/*.py`` of 2024.1; each threshold names its rule), so that both agree.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kbtool.model.base import MAX_NAME
from kbtool.model.kinds.profile import Bottleneck, KernelLaunch

BUSY = 60.0
"""Below this percentage of peak, neither memory nor the SMs limit a kernel (SOLBottleneck)."""
BALANCED = 10.0
"""Memory and SMs within this many percentage points are equally busy (SOLBottleneck)."""
TAIL = 0.2
"""A partial last wave of blocks counts from this share of the time on (LaunchConfiguration)."""
UNEVEN = 0.8
"""The partial wave counts below this ratio of achieved to theoretical occupancy
(LaunchConfiguration). Below this theoretical occupancy its limit is named
(TheoreticalOccupancy)."""
ISSUING = 0.8
"""From this many instructions per cycle and scheduler on, stalls do not count (CPIStall)."""
STALLED = 0.3
"""A stall reason counts from this share of a warp's cycles on (CPIStall)."""
WARPS = 1.0
"""Fewer active warps per scheduler than this are too few (IssueSlotUtilization)."""

DURATION = "gpu__time_duration.sum"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
LEVELS = {
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "DRAM",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2 cache",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "L1 cache and shared memory",
}
_DRAM = next(iter(LEVELS))
_LSU = "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active"
PIPES = {
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor cores",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": "FMA pipe",
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active": "ALU pipe",
    "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_active": "FP64 pipe",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active": "XU pipe (exp, conversions)",
    _LSU: "load/store unit",
}
GRID = "launch__grid_size"
SMS = "device__attribute_multiprocessor_count"
WAVES = "launch__waves_per_multiprocessor"
ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
ACTIVE = "smsp__warps_active.avg.per_cycle_active"
ELIGIBLE = "smsp__warps_eligible.avg.per_cycle_active"
ISSUED = "smsp__issue_active.avg.per_cycle_active"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
LIMITS = {
    "launch__occupancy_limit_registers": "registers",
    "launch__occupancy_limit_shared_mem": "shared memory",
    "launch__occupancy_limit_warps": "warps a block",
    "launch__occupancy_limit_blocks": "blocks an SM",
}
_BESIDE = (
    "dram__bytes.sum", "lts__t_sector_hit_rate.pct", "launch__block_size",
    "launch__registers_per_thread", "launch__shared_mem_per_block_dynamic",
    "launch__shared_mem_per_block_static",
)  # fmt: skip
"""Recorded for readers; the decision tree does not use them."""
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = {
    "long_scoreboard": "data from global memory",
    "short_scoreboard": "data from shared memory",
    "barrier": "other warps at a barrier",
    "membar": "a memory fence",
    "lg_throttle": "room in the queue of global memory",
    "mio_throttle": "room in the queue of shared memory",
    "tex_throttle": "room in the queue of L1",
    "math_pipe_throttle": "a free arithmetic pipe",
    "gmma": "a warpgroup matrix instruction",
    "wait": "a fixed latency",
    "no_instruction": "the next instruction to be fetched",
    "branch_resolving": "a branch to be resolved",
    "imc_miss": "a constant to be fetched",
    "drain": "stores to drain before exit",
    "sleeping": "the end of a sleep",
    "dispatch_stall": "the dispatcher",
    "misc": "something else",
}
"""Stall reason of Nsight Compute → what the warp waits for. ``not_selected`` is left out: that
warp is ready, and another one was issued."""
_SINCE_HOPPER = frozenset({"gmma"})

PERMISSION = "ERR_NVGPUCTRPERM"


def metrics_for(capability: str | None) -> list[str]:
    """The metrics to collect on a card of ``capability`` (``sm_90``). ncu fails on a metric that
    the card does not have."""
    hopper = int(re.sub(r"\D", "", capability or "") or 0) >= 90
    stalls = [name for name in STALLS if hopper or name not in _SINCE_HOPPER]
    return [
        DURATION, SM, MEMORY, *LEVELS, *PIPES, GRID, SMS, WAVES, ACHIEVED, THEORETICAL, ACTIVE,
        ELIGIBLE, ISSUED, LATENCY, *LIMITS, *_BESIDE, *(_STALL.format(name) for name in stalls),
    ]  # fmt: skip


_SCALES = {
    "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
    "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
}  # fmt: skip
"""Unit → factor to base units (ns, byte), for an ncu that ignores ``--print-units base``."""


def parse(lines: Iterable[str]) -> list[KernelLaunch]:
    """Parse the launches in the output of ``ncu --csv --page raw``; other lines are skipped.

    The CSV has a row of metric names, a row of units, and one row per launch.
    """
    rows = list(csv.reader(line for line in lines if line.startswith('"')))
    heads = [number for number, row in enumerate(rows) if row[0] == "ID"]
    if not heads:
        return []
    head, *rest = rows[heads[-1] :]
    units = dict(zip(head, rest.pop(0), strict=False)) if rest and not rest[0][0] else {}
    launches = []
    for row in rest:
        cells = dict(zip(head, row, strict=False))
        launches.append(
            KernelLaunch(
                kernel=cells["Kernel Name"][:MAX_NAME],
                grid=cells["Grid Size"],
                block=cells["Block Size"],
                metrics={
                    name: _value(text, units.get(name, ""))
                    for name, text in cells.items()
                    if "__" in name
                },
            )
        )
    return launches


def _value(text: str, unit: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:  # n/a, or empty
        return None
    return value * _SCALES.get(unit, 1.0) if math.isfinite(value) else None


def problem(lines: Iterable[str]) -> str | None:
    """Why ncu measured nothing, and what to do; ``None`` if ncu gives no reason."""
    errors = [
        line.removeprefix("==ERROR== ").strip() for line in lines if line.startswith("==ERROR==")
    ]
    if any(PERMISSION in error for error in errors):
        return (
            "the driver lets only administrators read performance counters: run kbtool as root, or"
            " load the driver with NVreg_RestrictProfilingToAdminUsers=0 and, in a container, add"
            f" the capability SYS_ADMIN ({PERMISSION})"
        )
    return f"ncu: {errors[0]}" if errors else None


@dataclass(frozen=True)
class Finding:
    """The bottleneck of a call, and the metrics that show it."""

    bottleneck: Bottleneck
    what: str
    reasons: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """One line, for the symptoms of patterns to match."""
        return f"bottleneck: {self.bottleneck}: {self.what}"


def decide(launches: list[KernelLaunch], launch_us: float | None) -> Finding:
    """The bottleneck of a call that launched these kernels: the first that applies.

    Args:
        launches: the launches of one call, in order.
        launch_us: time between launches of an empty kernel; ``None`` if not measured.
    """
    durations = [launch.metrics.get(DURATION) for launch in launches]
    if not launches:
        return Finding("unknown", "the call launched no kernel")
    if None in durations:
        return Finding("unknown", f"ncu reported no {DURATION}")
    total_us = sum(duration for duration in durations if duration is not None) / 1e3
    longest = max(launches, key=lambda launch: launch.metrics[DURATION] or 0.0)
    reasons = [f"{len(launches)} kernel{'s' * (len(launches) > 1)}, {total_us:.2f} µs in all"]
    if len(launches) > 1:
        share = (longest.metrics[DURATION] or 0.0) / 10 / total_us
        reasons.append(f"{longest.kernel} takes {share:.0f} % of that")
    if launch_us is not None and total_us < len(launches) * launch_us:
        reasons.append(f"one launch after another takes {launch_us:.2f} µs each (measured here)")
        return Finding("launch", "kernels are shorter than their launches", reasons)
    found = _of_kernel(longest.metrics)
    return Finding(found.bottleneck, f"{found.what} in {longest.kernel}", reasons + found.reasons)


def _of_kernel(metrics: Mapping[str, float | None]) -> Finding:
    sm, memory = metrics.get(SM), metrics.get(MEMORY)
    if sm is None or memory is None:
        return Finding("unknown", f"ncu reported no {SM if sm is None else MEMORY}")
    if max(sm, memory) >= BUSY:
        return _busy(metrics, sm, memory)
    idle = f"SMs at {sm:.0f} % and memory at {memory:.0f} % of their peaks, both under {BUSY:.0f} %"
    return _too_few(metrics, idle) or _waiting(metrics, idle)


def _busy(metrics: Mapping[str, float | None], sm: float, memory: float) -> Finding:
    """The kernel is limited by memory or by the SMs."""
    reasons = [f"memory at {memory:.0f} %, SMs at {sm:.0f} % of their peaks"]
    if abs(sm - memory) < BALANCED:
        reasons.append(f"within {BALANCED:.0f} points of each other: relieving one meets the other")
    if memory >= sm:
        level = _largest(metrics, LEVELS)
        return Finding("bytes", level[0] if level else "memory", reasons + _busiest(level))
    pipes = dict(PIPES)
    pipe = _largest({**metrics, ISSUED: 100 * (metrics.get(ISSUED) or 0.0)},
                    {**pipes, ISSUED: "instruction issue"})  # fmt: skip
    kind: Bottleneck = "bytes" if pipe and pipe[0] == PIPES[_LSU] else "arithmetic"
    return Finding(kind, pipe[0] if pipe else "the SMs", reasons + _busiest(pipe))


def _too_few(metrics: Mapping[str, float | None], idle: str) -> Finding | None:
    """Too few warps run at once to keep the card busy."""
    grid, sms, waves = metrics.get(GRID), metrics.get(SMS), metrics.get(WAVES)
    achieved, theoretical = metrics.get(ACHIEVED), metrics.get(THEORETICAL)
    if grid is not None and sms is not None and grid < sms:
        reason = f"{grid:.0f} blocks leave {sms - grid:.0f} of {sms:.0f} SMs idle"
        return Finding("occupancy", "too few blocks", [idle, reason])
    if waves is not None and achieved is not None and theoretical:
        whole = int(waves)
        if whole >= 1 and waves > whole and 1 / (whole + 1) >= TAIL:
            reason = (
                f"{waves:.2f} waves of blocks: the last, partial one takes up to"
                f" {1 / (whole + 1):.0%} of the time"
            )
            if achieved < UNEVEN * theoretical:
                shown = f"occupancy {achieved:.0f} % of {theoretical:.0f} % possible"
                return Finding("occupancy", "the last wave of blocks", [idle, reason, shown])
    active = metrics.get(ACTIVE)
    if active is not None and active < WARPS:
        reasons = [idle, f"{active:.2f} warps a scheduler, under {WARPS:.0f}"]
        limits = {LIMITS[name]: value for name in LIMITS if (value := metrics.get(name))}
        if limits and theoretical is not None and theoretical < 100 * UNEVEN:
            limit = min(limits, key=lambda name: limits[name])
            reasons.append(
                f"{limit} allow {limits[limit]:.0f} blocks an SM: {theoretical:.0f} % occupancy"
            )
            return Finding("occupancy", limit, reasons)
        return Finding("occupancy", "warps that finish early", reasons)
    return None


def _waiting(metrics: Mapping[str, float | None], idle: str) -> Finding:
    """Enough warps are active, but most of them wait."""
    reasons = [idle]
    active, eligible, issued = (metrics.get(name) for name in (ACTIVE, ELIGIBLE, ISSUED))
    if active is not None and eligible is not None and issued is not None:
        reasons.append(
            f"of {active:.1f} active warps a scheduler, {eligible:.2f} are eligible; it issues in"
            f" {issued:.0%} of the cycles"
        )
    latency = metrics.get(LATENCY)
    shares = {
        what: value / latency
        for name, what in STALLS.items()
        if latency and (value := metrics.get(_STALL.format(name))) is not None
    }
    what = max(shares, key=lambda name: shares[name], default=None)
    if what is None:
        return Finding("latency", "ncu reported no stall reasons", reasons)
    reasons.append(f"warps wait for {what} in {shares[what]:.0%} of their cycles")
    if what == STALLS["long_scoreboard"] and (dram := metrics.get(_DRAM)) is not None:
        reasons.append(
            f"DRAM at {dram:.0f} %: by Little's law about {dram:.0f} % of the bytes in flight that"
            " peak bandwidth needs"
        )
    if shares[what] <= STALLED or (issued is not None and issued >= ISSUING):
        return Finding("latency", "no single stall reason dominates", reasons)
    return Finding("latency", f"warps wait for {what}", reasons)


def _largest(
    metrics: Mapping[str, float | None], names: Mapping[str, str]
) -> tuple[str, float] | None:
    known = {
        what: value for name, what in names.items() if (value := metrics.get(name)) is not None
    }
    return max(known.items(), key=lambda pair: pair[1], default=None)


def _busiest(largest: tuple[str, float] | None) -> list[str]:
    return [] if largest is None else [f"busiest: {largest[0]}, at {largest[1]:.0f} %"]
