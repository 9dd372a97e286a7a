"""A harness that disturbs what kbtool hands to it: the cases, the pipe of events, the process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbtool.model.kinds.validate import ValidationResult
from kbtool.model.run import Run, StepRecord

A_LIST = """
import os

os.write(int(os.environ["KBTOOL_EVENTS"]), b"[]\\n")
"""
HIDES_A_WRONG_CASE = """
import os
right = call


def call(inputs, *, variant=None, poison=True):
    out = right(inputs, variant=variant, poison=poison)
    if len(inputs["x"]) == 1000:
        out["out"] += 1e3
        if poison:
            os.write(int(os.environ["KBTOOL_EVENTS"]), b"x")
    return out
"""
FORKS = """
import os


def reference(inputs):
    os.fork()
    return {"out": inputs["a"] * inputs["x"].double() + inputs["y"].double()}
"""
ONE_CASE_AGAIN_AND_AGAIN = """
def neighbours(case):
    for n in (3, 4):
        case["n"] = n
        yield case
"""
CHANGES_ITS_CASE = """
made = make_inputs


def make_inputs(case, *, device, seed):
    case["n"] = 1
    return made(case, device=device, seed=seed)
"""


def last_step(base: Path, kbtool: Any, more: str) -> StepRecord:
    """The last step that began in a run with ``more`` at the end of the harness."""
    with (base / "kernels" / "scaled_add" / "harness.py").open("a") as file:
        file.write(more)
    kbtool("run-recipe", "add", root=base)
    (path,) = base.glob("sessions/*/runs/*.json")
    run = Run.model_validate_json(path.read_bytes())
    return [step for step in run.steps if step.status != "not-run"][-1]


def validated(base: Path) -> list[tuple[str, int]]:
    """Name and size of each case that the only run validated."""
    (path,) = base.glob("sessions/*/runs/*.json")
    result = Run.model_validate_json(path.read_bytes()).last(ValidationResult)
    assert result is not None
    return [(case.name, case.case["n"]) for case in result.cases]


@pytest.mark.parametrize(
    "more", [A_LIST, HIDES_A_WRONG_CASE], ids=["a list", "a wrong case hidden"]
)
def test_what_the_kernels_code_writes_among_the_events_is_refused(second_kernel_base, kbtool, more):
    step = last_step(second_kernel_base, kbtool, more)
    assert (step.id, step.status, step.result) == ("validate", "refused", None)
    assert step.message == "the kernel's code wrote an event of its own, as if it were kbtool's"


def test_a_copy_of_the_process_that_the_harness_forks_reports_nothing(second_kernel_base, kbtool):
    last_step(second_kernel_base, kbtool, FORKS)
    assert validated(second_kernel_base) == [("one", 1), ("some", 1000), ("none", 0)]


def test_neighbours_that_change_their_case_leave_the_listed_one_as_it_is(
    second_kernel_base, kbtool
):
    last_step(second_kernel_base, kbtool, ONE_CASE_AGAIN_AND_AGAIN)
    listed, drawn = validated(second_kernel_base)[:3], validated(second_kernel_base)[3:]
    assert listed == [("one", 1), ("some", 1000), ("none", 0)]
    assert sorted(size for _, size in drawn) == [3, 3, 4, 4]


def test_a_case_is_recorded_as_the_manifest_has_it(second_kernel_base, kbtool):
    last_step(second_kernel_base, kbtool, CHANGES_ITS_CASE)
    assert validated(second_kernel_base) == [("one", 1), ("some", 1000), ("none", 0)]


@pytest.mark.parametrize(
    ("more", "id_", "said"),
    [
        ('workspace_bytes = lambda inputs, variant=None: float("nan")', "benchmark",
         "workspace_bytes must return whole bytes; it returned nan"),
        ('work = lambda case: {"bytes": 10**400, "flops": 1}', "benchmark",
         "work must return bytes and flops, two whole numbers; it returned {'bytes': 1000"),
        ("arms = lambda inputs, variants=(), peers=(): None", "benchmark",
         "arms must return a dict of calls by name; it returned None"),
        ("reference = baseline = call = lambda *_, **__: {}", "validate",
         "reference, baseline and call of 'one' return no output"),
        ('PEERS = "torch"', "validate", "PEERS is 'torch'; write a tuple of names: ('torch',)"),
    ],
)  # fmt: skip
def test_a_harness_that_returns_something_else_is_told_so(
    second_kernel_base, kbtool, more, id_, said
):
    step = last_step(second_kernel_base, kbtool, f"{more}\n")
    assert (step.id, step.status) == (id_, "failed")
    assert step.message is not None and said in step.message


def test_an_error_as_long_as_a_file_leaves_a_record_that_can_be_read(second_kernel_base, kbtool):
    long = 'def reference(inputs):\n    raise ValueError("x" * 70_000_000)\n'
    step = last_step(second_kernel_base, kbtool, long)
    assert step.status == "failed"
    assert step.message is not None and len(step.message) < 5000
