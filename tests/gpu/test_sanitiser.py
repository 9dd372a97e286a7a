"""What compute-sanitizer prints, read; as each of its tools words it."""

from __future__ import annotations

import pytest

from kbtool.gpu.sanitiser import command, read, unavailable_reason

MEMCHECK = """\
========= COMPUTE-SANITIZER
warm-up of the program itself
========= Invalid __global__ read of size 4 bytes
=========     at attention(float const*, float*)+0x150 in kernel.cu:12
=========     by thread (32,0,0) in block (0,0,0)
=========     Address 0x7f0000000104 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f0000000000 of size 260 bytes
=========
========= Invalid __global__ read of size 4 bytes
=========     at attention(float const*, float*)+0x150 in kernel.cu:12
=========
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at merge+0x40 and Read access at merge+0x90
=========
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
INITCHECK = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at reduce+0x70
=========
========= ERROR SUMMARY: 1 error
"""


def test_errors_are_counted_and_the_first_is_kept_as_printed():
    count, reports = read(MEMCHECK.splitlines())
    assert count == 2
    [report] = reports  # the second is the same at the same place
    assert report.splitlines()[0] == "Invalid __global__ read of size 4 bytes"
    assert report.splitlines()[-1].strip().startswith("and is 1 bytes after")
    assert len(report.splitlines()) == 5


@pytest.mark.parametrize(
    ("text", "count", "first"),
    [(RACECHECK, 1, "Warning: Race reported"), (INITCHECK, 1, "Uninitialized __global__")],
)
def test_each_tool_has_its_own_words(text, count, first):
    counted, [report] = read(text.splitlines())
    assert counted == count
    assert report.startswith(first)


def test_each_kernel_that_is_at_fault_has_its_report():
    text = MEMCHECK.replace("at attention(", "at merge(", 1)
    assert [r.split("at ")[1].split("(")[0] for r in read(text.splitlines())[1]] == [
        "merge", "attention",
    ]  # fmt: skip


def test_a_clean_run_has_no_report():
    clean = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors"
    assert read(clean.splitlines()) == (0, [])
    races = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
    assert read([races]) == (0, [])


def test_a_run_that_was_cut_short_has_no_count():
    assert read(MEMCHECK.splitlines()[:-1])[0] is None


def test_a_tool_that_cannot_work_here_says_so():
    lines = ["=========  COMPUTE-SANITIZER", "========= Error: Device not supported. See …"]
    assert str(unavailable_reason(lines)).startswith("Error: Device not supported")
    assert unavailable_reason(MEMCHECK.splitlines()) is None


def test_a_program_that_ends_before_any_call_gives_its_own_reason():
    ended = "========= Error: Target application terminated before first instrumented API call"
    assert unavailable_reason([ended]) == ended.removeprefix("========= ")
    assert unavailable_reason(["python3: No module named kbtool", ended]) is None


def test_the_command_line():
    argv = command("/x/compute-sanitizer", "memcheck")
    assert argv[:5] == ["/x/compute-sanitizer", "--tool", "memcheck", "--padding", "128"]
    assert "--padding" not in command("x", "racecheck")
