"""``minimise`` on a small kernel with a fault put in: from the recipe to the record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbtool.model.results import MinimiseResult
from kbtool.steps.minimise import report

RIGHT = "out[i] = a * x[i] + y[i]"


@pytest.fixture
def minimise(second_kernel_base, kbtool):
    """Put a fault into the kernel, and run the recipe on it."""

    def run(
        fault: str | None = None, loop: str | None = None, **settings: str
    ) -> tuple[int, MinimiseResult | None, str]:
        header: Path = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.h"
        text = header.read_text()
        assert fault is None or RIGHT in text
        text = text.replace(RIGHT, fault or RIGHT)
        header.write_text(text.replace("{\n  for", "{\n" + (loop or "") + "\n  for"))
        given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        done = kbtool("run-recipe", "minimise", "--json", *given, root=second_kernel_base)
        step = json.loads(done.out)["steps"][1]
        result = step["result"] and MinimiseResult.model_validate(step["result"])
        return done.code, result, step["message"]

    return run


def test_a_right_kernel_leaves_nothing_to_minimise(minimise):
    code, result, message = minimise()
    assert code == 0
    assert message == "4 of 4 cases right: nothing to minimise"
    assert result.smallest is None
    assert result.failing == []


def test_the_boundary_and_the_part_are_named(minimise):
    code, result, message = minimise("out[i] = i < 64 ? a * x[i] + y[i] : a * x[i]")
    assert code == 1
    assert [case.name for case in result.failing] == ["some", "million"]
    assert result.start.name == "some"  # the one with the least work
    assert result.text == "n=65"
    (along,) = (axis for axis in result.axes if axis.field == "n")
    assert along.boundary == (64, 65)
    assert [(part.name, part.passed) for part in result.parts] == [
        ("product", True), ("sum", False),
    ]  # fmt: skip
    assert result.parts[1].outputs["out"].error > result.parts[1].outputs["out"].bound
    assert message == (
        "2 of 4 cases fail, the smallest: n=65; n fails from 65 on, passes up to 64; at fault: sum"
    )


def test_what_was_found_can_be_given_again_and_is_the_same(minimise):
    _, first, _ = minimise("out[i] = i == 40 ? 0 : a * x[i] + y[i]", seed="3")
    code, again, _ = minimise(case=first.text, seed=str(first.smallest_seed))
    assert code == 1
    assert again.cases == 1
    assert again.text == first.text == "n=41"
    assert again.smallest.outputs == first.smallest.outputs


def test_a_fault_that_hangs_on_the_values_is_found_by_many_draws(minimise):
    """Elements from the 64th on that are rare: at n=65 one draw in seventy has one."""
    fault = "out[i] = i >= 64 && x[i] > 2.2f ? 0 : a * x[i] + y[i]"
    _, result, _ = minimise(fault, seed="11", cases="large")
    assert 65 <= result.smallest.case["n"] <= 80
    failed, drawn = result.failed_draws
    assert 0 < failed < drawn == 100


def test_a_case_that_kills_its_process_fails_and_ends_nothing(minimise):
    code, result, message = minimise(loop="  if (n > 3) *(volatile int*)8 = 0;", case="n=6")
    assert code == 1
    assert result.text == "n=4"
    assert result.smallest.message == "the process was killed by SIGSEGV"
    assert result.deaths > 3
    assert [axis.boundary for axis in result.axes if axis.field == "n"] == [(3, 4)]
    assert result.at_fault == ["product", "sum"]
    assert result.failed_draws is None
    assert "n fails from 4 on, passes up to 3" in message


def test_a_case_that_hangs_fails(minimise):
    code, result, _ = minimise(
        loop="  volatile bool on = n > 999; while (on) {}", case="n=1000", limit="1 s", probes="2"
    )
    assert code == 1
    assert result.failing[0].message == "no result within 1 s"
    assert result.deaths >= 1


def test_a_search_that_is_cut_short_says_so_and_keeps_what_it_has(minimise):
    _, result, _ = minimise("out[i] = i < 64 ? a * x[i] + y[i] : a * x[i]", probes="9")
    assert result.unfinished == "9 cases were tried, the most allowed"
    assert result.smallest is not None
    assert result.smallest.case["n"] >= 65


def test_an_operator_that_refuses_what_it_does_not_take_is_not_wrong(minimise, second_kernel_base):
    harness = second_kernel_base / "kernels" / "scaled_add" / "harness.py"
    harness.write_text(
        harness.read_text().replace(
            "    out = torch.full_like(inputs[\"x\"], math.nan)\n",
            "    if len(inputs['x']) % 4:\n"
            "        raise ValueError('not a multiple of 4')\n"
            "    out = torch.full_like(inputs[\"x\"], math.nan)\n",
            1,
        )
    )  # fmt: skip
    _, result, _ = minimise("out[i] = i < 64 ? a * x[i] + y[i] : a * x[i]", case="n=200")
    assert result.text == "n=68"
    (along,) = (axis for axis in result.axes if axis.field == "n")
    assert along.boundary == (64, 68)


def test_a_case_that_is_none_is_a_usage_error(second_kernel_base, kbtool):
    for text, told in (("m=3", "'m' is no case field"), ("some thing", "no case of small,large")):
        done = kbtool(
            "run-recipe", "minimise", "--set", f"case={text}", root=second_kernel_base
        )  # fmt: skip
        assert done.code == 2
        assert told in done.err


def test_the_report_says_what_to_look_at_and_how_to_run_it_again(second_kernel_base, kbtool):
    header = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.h"
    header.write_text(header.read_text().replace(RIGHT, "out[i] = i < 7 ? a * x[i] + y[i] : y[i]"))
    done = kbtool("run-recipe", "minimise", "--set", "seed=4", root=second_kernel_base)
    assert done.code == 1
    assert "  n fails from 8 on, passes up to 7; tried:" in done.out
    assert "  fails at every value tried of a" not in done.out
    assert "  at fault: product" in done.out
    assert "again: kbtool run-recipe minimise --set 'case=n=8' --set seed=4" in done.out


def test_where_a_variant_has_no_parts_those_that_have_are_named(second_kernel_base, kbtool):
    folder = second_kernel_base / "kernels" / "scaled_add"
    put = {
        "scaled_add.h": (RIGHT, "out[i] = i < 7 ? a * x[i] + y[i] : y[i]"),
        "kernel.yaml": (
            "0x020a000000000000]", "0x020a000000000000]\n    variants: {one: {}, two: {}}"
        ),
        "harness.py": ("    def run(**known)", "    if variant != 'two':\n        return {}\n\n"
                       "    def run(**known)"),
    }  # fmt: skip
    for name, (old, new) in put.items():
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))
    done = kbtool("run-recipe", "minimise", "--json", root=second_kernel_base)
    step = json.loads(done.out)["steps"][1]
    result = MinimiseResult.model_validate(step["result"])
    assert (result.parts, result.parts_of) == ([], ["two"])
    assert step["message"].endswith("none of its parts can be run alone: try variant=two")
    assert report(result.model_copy(update={"variant": "one"}), "minimise")[-1].endswith(
        "--set variant=one"
    )
