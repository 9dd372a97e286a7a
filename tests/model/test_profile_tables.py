"""Tables of Nsight Compute and Nsight Systems, read as figures with their kernel and unit."""

from __future__ import annotations

import pytest

from kbtool.model.profile import Profile, lines_of, shown

LONG = """\
==PROF== Connected to process 4711
"ID","Process ID","Kernel Name","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Description"
"0","4711","void f<128, (bool)1>(P)","9.0","Speed Of Light","Memory Throughput","%","33.10",
"0","4711","void f<128, (bool)1>(P)","9.0","Speed Of Light","Memory Throughput","byte/second","1,205,000.50",
"0","4711","void f<128, (bool)1>(P)","9.0","Speed Of Light","Compute (SM) Throughput","%","n/a",
"0","4711","void f<128, (bool)1>(P)","9.0","Speed Of Light","Compute (SM) Throughput","%","21.40",
"0","4711","void f<128, (bool)1>(P)","9.0","Speed Of Light","Duration","ms","1.23",
"0","4711","void f<128, (bool)1>(P)","9.0","SpeedOfLight","","","","SOL","It waits."
==PROF== Disconnected from process 4711
a, line, of, a, log, x, y, z, u, v
"""  # noqa: E501
WIDE = """\
"ID","Kernel Name","gpu__time_duration.sum","launch__waves_per_multiprocessor","smsp__a.pct"
"","","nsecond","","%"
"0","short_one","3,000","9","1"
"1","long_one","2,000,000","0.48","12,50"
"2","next","4,000","9","1"
"3","third","3,500","9","1"
"""
NSYS = """\
Processing [report.sqlite] with [cuda_gpu_kern_sum.py]...
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
60.0,600000,300,2000.0,2000.0,1,2,0.1,"void add(float*, int)"
36.0,360000,300,1200.0,1200.0,1,2,0.1,mul
2.0,20000,300,66.7,60.0,1,2,0.1,tiny

Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
40.0,400000,10,40000.0,1.0,1,2,0.1,cudaMalloc
"""


def test_a_row_for_each_metric():
    profile = Profile()
    rest = b"".join(profile.without([LONG.encode()])).decode().split("\n")
    kernel = "in kernel void f<128, (bool)1>(P)"
    assert profile.lines == [
        (3, f"Memory Throughput % 33.1 {kernel}"),
        (4, f"Memory Throughput byte/second 1205000.5 {kernel}"),
        (6, f"Compute (SM) Throughput % 21.4 {kernel}"),
        (6, f"higher of compute and memory throughput % 33.1 {kernel}"),
        (7, f"Duration us 1230 {kernel}"),
        (8, f"It waits. {kernel}"),
    ]
    assert profile.capabilities == {"90"}
    # What is no table stays, on its line.
    assert [(n, line) for n, line in enumerate(rest, 1) if line] == [
        (1, "==PROF== Connected to process 4711"), (9, "==PROF== Disconnected from process 4711"),
        (10, "a, line, of, a, log, x, y, z, u, v"),
    ]  # fmt: skip


def test_a_column_for_each_metric_and_the_kernel_that_took_longest_alone():
    lines = [line for line in lines_of(WIDE) if line]
    assert lines[:3] == [
        "gpu__time_duration.sum us 2000 in kernel long_one",
        "launch__waves_per_multiprocessor  0.48 in kernel long_one",
        "smsp__a.pct % 12.5 in kernel long_one",
    ]
    assert [line.split()[-1] for line in lines[3:]] == ["next"] * 3 + ["third"] * 3


def test_a_capability_that_is_none():
    profile = Profile()
    table = '"Kernel Name","CC","a__b.sum"\n"","",""\n"f","²","1"\n"f","n/a","1"\n"f","12.1","1"\n'
    list(profile.without([table.encode()]))
    assert profile.capabilities == {"121"}


def test_without_a_row_of_units():
    assert lines_of("Kernel Name,smsp__a.pct,smsp__b.sum\nf,7,8\n")[-2:] == [
        "smsp__a.pct % 7 in kernel f", "smsp__b.sum  8 in kernel f",
    ]  # fmt: skip


def test_tables_of_nsight_systems():
    assert [line for line in lines_of(NSYS) if line][1:] == [
        "Time % 60, Avg us 2, 300 times in kernel void add(float*, int)",
        "Time % 40, Avg us 40, 10 times in call cudaMalloc",
        "Time % 36, Avg us 1.2, 300 times in kernel mul",
    ]


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
def test_blocks_may_cut_a_row_anywhere(size):
    raw = (LONG + WIDE + NSYS).encode()
    whole, cut = Profile(), Profile()
    rest = b"".join(whole.without([raw]))
    assert b"".join(cut.without([raw[n : n + size] for n in range(0, len(raw), size)])) == rest
    assert cut.lines == whole.lines and whole.lines
    assert rest.count(b"\n") == raw.count(b"\n")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "Duration us 2.3 in kernel f(a in kernel b)",
            "kernel f(a in kernel b): Duration = 2.3 us",
        ),
        ("launch__waves  0.48 in kernel f", "kernel f: launch__waves = 0.48"),
        ("error: it broke in kernel f", "error: it broke in kernel f"),
    ],
)
def test_a_figure_as_a_reader_wants_it(line, text):
    assert shown(line) == text


@pytest.mark.parametrize(
    ("stated", "value"),
    [("1,205.00", 1205), ("9,00", 9), ("1,234", 1234), ("1.234,5", 1234.5), ("1,234,567", 1234567),
     ("1.5e+06", 1500000), ("-0.5", -0.5)],
)  # fmt: skip
def test_numbers_of_any_locale(stated, value):
    assert lines_of(f'"Kernel Name","a__b.sum"\n"",""\n"f","{stated}"\n')[-1] == (
        f"a__b.sum  {value} in kernel f"
    )
