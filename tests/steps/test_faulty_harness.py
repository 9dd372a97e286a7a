"""What a step says of a harness that breaks, and of the case at which a process dies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kbtool.model.run import Run


def first_words(base: Path, function: str, body: str) -> None:
    """Puts ``body`` before all else that a function of the kernel's harness does."""
    path = base / "kernels" / "scaled_add" / "harness.py"
    text, count = re.subn(
        rf"(def {function}\(.*?\).*?:\n)", rf"\1    {body}\n", path.read_text(), count=1, flags=re.S
    )
    assert count == 1
    path.write_text(text)


def validated(base: Path, kbtool: Any) -> tuple[int, Any]:
    """The exit status of a run, and its step that validates."""
    done = kbtool("run-recipe", "add", root=base)
    (path,) = base.glob("sessions/*/runs/*.json")
    return done.code, Run.model_validate_json(path.read_bytes()).steps[2]


@pytest.mark.parametrize("function", ["make_inputs", "reference", "baseline"])
def test_a_function_that_raises_is_named_with_its_line_and_case(
    second_kernel_base, kbtool, function
):
    first_words(second_kernel_base, function, "raise KeyError('oops')")
    code, step = validated(second_kernel_base, kbtool)
    assert (code, step.status) == (1, "failed")
    told = rf"harness\.py:\d+, {function}, raised KeyError: 'oops', in \w+/\w+"
    assert re.fullmatch(told, step.message)


def test_a_harness_that_ends_the_process_is_no_success(second_kernel_base, kbtool):
    first_words(second_kernel_base, "make_inputs", "raise SystemExit(0)")
    code, step = validated(second_kernel_base, kbtool)
    assert (code, step.status) == (1, "failed")
    assert "make_inputs, raised SystemExit: 0, in " in step.message


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return None", "baseline must return a tensor per output; it returned None"),
        ("return {key: value[:1] for key, value in reference(inputs).items()}",
         r"reference and baseline of '\w+' return out with different shapes"),
    ],
)  # fmt: skip
def test_outputs_that_are_none_are_refused(second_kernel_base, kbtool, body, told):
    first_words(second_kernel_base, "baseline", body)
    code, step = validated(second_kernel_base, kbtool)
    assert (code, step.status) == (1, "failed")
    assert re.search(told, step.message)


def test_the_case_at_which_a_process_dies_is_named(second_kernel_base, kbtool):
    first_words(second_kernel_base, "call", "import os; os.kill(os.getpid(), 11)")
    code, step = validated(second_kernel_base, kbtool)
    assert (code, step.status) == (1, "failed")
    assert re.fullmatch(
        r"the process was killed by SIGSEGV while validating, in \w+/\w+", step.message
    )
