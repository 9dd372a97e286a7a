"""Nsight Compute's output read, and taken through the tree; the metrics are made up, one set for
each way that the tree can go."""

from __future__ import annotations

import pytest

from kbtool.gpu import profile as p
from kbtool.model.kinds.profile import KernelLaunch

LONG = p._STALL.format("long_scoreboard")
SHORT = p._STALL.format("short_scoreboard")
DRAM, L2, L1 = p.LEVELS
TENSOR = next(iter(p.PIPES))
LSU = next(name for name, what in p.PIPES.items() if what == "load/store unit")

PLAIN = {
    p.DURATION: 50_000.0, p.SM: 30.0, p.MEMORY: 40.0, DRAM: 38.0, L2: 40.0, L1: 20.0,
    p.GRID: 264.0, p.SMS: 132.0, p.WAVES: 1.0, p.ACHIEVED: 24.0, p.THEORETICAL: 25.0,
    p.ACTIVE: 3.9, p.ELIGIBLE: 0.4, p.ISSUED: 0.3, p.LATENCY: 10.0, LONG: 6.0, SHORT: 2.0,
    **dict.fromkeys(p.PIPES, 10.0), **dict.fromkeys(p.LIMITS, 8.0),
}  # fmt: skip
"""A kernel that is not busy, fills the card, and waits."""


def launch(name: str = "attention", **changed: float | None) -> KernelLaunch:
    metrics = {**PLAIN, **{getattr(p, key, key): value for key, value in changed.items()}}
    return KernelLaunch(kernel=name, grid="(264, 1, 1)", block="(128, 1, 1)", metrics=metrics)


def of(**changed: float | None) -> p.Finding:
    return p.decide([launch(**changed)], 2.5)


def named(metrics: dict[str, float]) -> KernelLaunch:
    return launch().model_copy(update={"metrics": {**PLAIN, **metrics}})


def test_memory_that_is_busy_is_the_bottleneck_and_its_level_is_named():
    found = p.decide([named({p.MEMORY: 91.0, DRAM: 91.0, L2: 55.0})], 2.5)
    assert found.verdict == "bottleneck: bytes: DRAM in attention"
    assert "memory at 91 %, SMs at 30 % of their peaks" in found.reasons
    assert "busiest: DRAM, at 91 %" in found.reasons
    assert p.decide([named({p.MEMORY: 85.0, L2: 85.0})], 2.5).what == "L2 cache in attention"


def test_pipes_that_are_busy_are_the_bottleneck():
    found = p.decide([named({p.SM: 78.0, TENSOR: 77.0})], 2.5)
    assert (found.bottleneck, found.what) == ("arithmetic", "tensor cores in attention")


def test_a_busy_load_store_unit_moves_bytes_and_does_no_arithmetic():
    found = p.decide([named({p.SM: 78.0, LSU: 77.0})], 2.5)
    assert (found.bottleneck, found.what) == ("bytes", "load/store unit in attention")


def test_equally_busy_memory_and_pipes_are_reported():
    found = p.decide([named({p.SM: 70.0, p.MEMORY: 75.0, DRAM: 75.0})], 2.5)
    assert any("relieving one meets the other" in reason for reason in found.reasons)
    assert found.bottleneck == "bytes"


@pytest.mark.parametrize(("memory", "kind"), [(59.9, "latency"), (60.0, "bytes")])
def test_the_threshold_between_busy_and_waiting(memory, kind):
    assert of(MEMORY=memory).bottleneck == kind


def test_too_few_blocks_leave_multiprocessors_empty():
    found = of(GRID=33.0)
    assert (found.bottleneck, found.what) == ("occupancy", "too few blocks in attention")
    assert "33 blocks leave 99 of 132 SMs idle" in found.reasons


def test_a_last_wave_that_is_partial_counts_where_occupancy_shows_it():
    found = of(WAVES=1.1, ACHIEVED=15.0)
    assert (found.bottleneck, found.what) == ("occupancy", "the last wave of blocks in attention")
    assert of(WAVES=1.1).bottleneck == "latency"
    assert of(WAVES=7.1, ACHIEVED=15.0).bottleneck == "latency"


def test_too_few_warps_name_what_limits_them():
    found = p.decide([named({p.ACTIVE: 0.9, p.THEORETICAL: 6.0, **dict.fromkeys(p.LIMITS, 9.0),
                             "launch__occupancy_limit_shared_mem": 1.0})], 2.5)  # fmt: skip
    assert (found.bottleneck, found.what) == ("occupancy", "shared memory in attention")
    assert of(ACTIVE=0.9, THEORETICAL=100.0).what == "warps that finish early in attention"


def test_waiting_warps_name_what_they_wait_for():
    found = of()
    assert found.verdict == (
        "bottleneck: latency: warps wait for data from global memory in attention"
    )
    assert "warps wait for data from global memory in 60% of their cycles" in found.reasons
    assert any("DRAM at 38 %: by Little's law" in reason for reason in found.reasons)


def test_no_stall_is_blamed_that_takes_too_little():
    assert p.decide([named({LONG: 2.9, SHORT: 2.0})], 2.5).what == (
        "no single stall reason dominates in attention"
    )


def test_kernels_shorter_than_their_launches():
    short = [launch("partial", DURATION=2_000.0), launch("reduce", DURATION=1_500.0)]
    found = p.decide(short, 2.5)
    assert found.bottleneck == "launch"
    assert found.reasons[0] == "2 kernels, 3.50 µs in all"
    assert p.decide(short, 1.0).bottleneck == "latency"
    assert p.decide(short, None).bottleneck == "latency"


def test_the_longest_of_several_kernels_is_judged():
    found = p.decide([launch("reduce", DURATION=9_000.0, GRID=1.0), launch("partial")], 2.5)
    assert found.what.endswith("in partial")
    assert "partial takes 85 % of that" in found.reasons


@pytest.mark.parametrize("name", [p.DURATION, p.SM, p.MEMORY])
def test_a_missing_metric_makes_the_bottleneck_unknown(name):
    found = p.decide([named({name: None})], 2.5)  # type: ignore[dict-item]
    assert found.bottleneck == "unknown"
    assert name in found.what


def test_a_call_that_launched_nothing_is_unknown():
    assert p.decide([], 2.5).bottleneck == "unknown"


PRINTED = """\
==PROF== Connected to process 4711
==PROF== Profiling "attention" - 0: 0%....50%....100% - 38 passes
kbtool-event {"event": "result", "result": "split_k"}
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","gpu__time_duration.sum","dram__bytes.sum","lts__t_sector_hit_rate.pct","launch__grid_size"
"","","","","","","","","","","","us","byte","%",""
"0","4711","python3","127.0.0.1","attention","1","7","(128, 1, 1)","(264, 1, 1)","0","9.0","1,205.25","12,345,678","n/a","264"
"1","4711","python3","127.0.0.1","reduce","1","7","(64, 1, 1)","(8, 1, 1)","0","9.0","2.5","1,024","","8"
"""  # noqa: E501 (as it is printed)


def test_output_is_read_with_units_separators_and_gaps():
    first, second = p.parse(PRINTED.splitlines())
    assert (first.kernel, first.grid, first.block) == ("attention", "(264, 1, 1)", "(128, 1, 1)")
    assert first.metrics == {
        "gpu__time_duration.sum": 1_205_250.0, "dram__bytes.sum": 12_345_678.0,
        "lts__t_sector_hit_rate.pct": None, "launch__grid_size": 264.0,
    }  # fmt: skip
    assert second.metrics["lts__t_sector_hit_rate.pct"] is None
    assert "127.0.0.1" not in first.model_dump_json()


@pytest.mark.parametrize("lines", [[], ["==PROF== nothing"], PRINTED.splitlines()[:6]])
def test_output_without_a_launch_has_none(lines):
    assert p.parse(lines) == []


def test_errors_of_ncu_are_explained():
    forbidden = (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU"
        " Performance Counters on the target device 0."
    )
    said = p.problem(["==PROF== Connected", forbidden])
    assert said is not None and "NVreg_RestrictProfilingToAdminUsers=0" in said
    assert p.problem(["==ERROR== Failed to find metric x"]) == "ncu: Failed to find metric x"
    assert p.problem(["==PROF== Connected"]) is None


def test_only_metrics_that_the_card_has_are_asked_for():
    ampere, hopper = p.metrics_for("sm_86"), p.metrics_for("sm_90")
    assert set(hopper) - set(ampere) == {p._STALL.format("gmma")}
    assert len(set(hopper)) == len(hopper)
    assert p.metrics_for(None) == ampere
    assert set(p.metrics_for("sm_100")) == set(hopper)
