"""``minimise`` on a small kernel with a fault put in: from the recipe to the record."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from knowledge import SESSION, SESSION_LINE

from kbtool.model.kinds.minimise import Axis, MinimiseResult

RIGHT = "out[i] = a * x[i] + y[i]"
WHOLE = f"if (n % 16 == 0) {RIGHT}; else out[i] = y[i]"
"""Spares whole multiples of 16: at no number beside 1, which fails."""
PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "debugging.md").read_text(encoding="utf-8")


OWN = """
  - name: own
    title: With parameters of other names
    kernel: scaled_add
    parameters:
      where: {type: choice, choices: [auto, cpu], default: auto, help: the target}
      sets: {type: str, default: "small,large", help: case sets}
      most: {type: int, default: "600", help: the most cases}
      one: {type: str, default: "", help: one case}
      draw: {type: int, default: "0", help: of the inputs}
    steps:
      - {id: build, kind: build, title: B, expected: 5 s, timeout: 5 min, target: "${where}"}
      - {id: small, kind: minimise, title: M, expected: 5 s, timeout: 2 min, case_sets: "${sets}",
         case: "${one}", seed: "${draw}", probes: "${most}"}
  - name: bare
    title: Without any
    kernel: scaled_add
    steps:
      - {id: build, kind: build, title: B, expected: 5 s, timeout: 5 min, target: cpu}
      - {id: small, kind: minimise, title: M, expected: 5 s, timeout: 2 min, case_sets: large}
"""


def axis_of(result: MinimiseResult, field: str) -> Axis:
    return next(axis for axis in result.axes if axis.field == field)


def printed_command(out: str) -> list[str]:
    """The arguments of the command that the report ends with."""
    (line,) = re.findall(r"^  again: (.*)$", out, re.MULTILINE)
    program, *arguments = shlex.split(line)
    assert program == "kbtool"
    return arguments


@pytest.fixture
def faulty(second_kernel_base) -> Path:
    """The knowledge base of ``own`` and ``bare``, with a fault from the 65th element on."""
    kernel = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
    kernel.write_text(kernel.read_text().replace(RIGHT, f"if (i < 64) {RIGHT}; else out[i] = y[i]"))
    pattern = second_kernel_base / "patterns" / "P01.yaml"
    pattern.write_text(pattern.read_text().rstrip() + OWN)
    return second_kernel_base


@pytest.fixture
def minimise(second_kernel_base, kbtool):
    """Put a fault into the kernel, and run the recipe on it."""

    def run(
        fault: str | None = None, loop: str | None = None, **settings: str
    ) -> tuple[int, MinimiseResult | None, str]:
        kernel: Path = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
        text = kernel.read_text()
        assert fault is None or RIGHT in text
        text = text.replace(RIGHT, fault or RIGHT)
        kernel.write_text(text.replace("{\n  for", "{\n" + (loop or "") + "\n  for"))
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
    assert axis_of(result, "n").boundary == (64, 65)
    assert [(part.name, part.passed) for part in result.parts] == [
        ("product", True), ("sum", False),
    ]  # fmt: skip
    assert result.parts[1].outputs["out"].error > result.parts[1].outputs["out"].bound
    assert message == (
        "2 of 4 cases fail, the smallest: n=65; n fails from 65 on, passes up to 64, of the values"
        " tried; at fault: sum"
    )


def test_a_fault_that_spares_multiples_of_16_is_reported_though_every_neighbour_fails(minimise):
    _, result, message = minimise(WHOLE)
    assert result.text == "n=1"
    told = axis_of(result, "n").sentence
    # A million is that of a case that passes, and so is 0.
    assert told == (
        "n fails at 1–4, 8, 12, 14–15, 17; passes at 0, 16, 32, 64, 128, 256, 512, 1024, 1000000"
    )
    assert message == (
        f"2 of 4 cases fail, the smallest: n=1; {told}; at fault: product, sum"
    )  # fmt: skip


def test_powers_of_two_are_tried_for_a_single_case_as_in_the_guide(minimise):
    _, result, _ = minimise(WHOLE, case="n=1")
    told = axis_of(result, "n").sentence
    assert told == "n fails at 1–4, 8, 12, 14–15, 17; passes at 16, 32, 64, 128, 256, 512, 1024"
    assert f"`{told}`" in PAGE


def test_the_values_tried_end_with_the_cases_allowed(minimise):
    _, result, _ = minimise(WHOLE, case="n=1", probes="6")
    assert result.unfinished == "6 cases were tried, the most allowed"
    assert axis_of(result, "n").sentence == "n fails at 1–4, 8; passes at 16"


def test_where_nothing_passes_the_values_tried_are_listed(second_kernel_base, kbtool):
    kernel = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
    kernel.write_text(kernel.read_text().replace(RIGHT, "out[i] = 9"))
    done = kbtool("run-recipe", "minimise", root=second_kernel_base)
    powers = "1–4, 8, 16, 32, 64, 128, 256, 512, 1024"
    assert (
        "  no value tried passes, but for 0:\n    n fails from 1 on, passes up to 0; tried:"
        f" fails at {powers}; passes at 0\n" in done.out
    )
    assert "n fails" not in done.err  # of nothing, nothing is wrong: no headline


def test_the_smallest_case_and_its_seed_reproduce_the_failure(minimise):
    _, first, _ = minimise("out[i] = i == 40 ? 0 : a * x[i] + y[i]", seed="3")
    code, again, _ = minimise(case=first.text, seed=str(first.smallest_seed))
    assert code == 1
    assert again.cases == 1
    assert again.text == first.text == "n=41"
    assert again.smallest.outputs == first.smallest.outputs


def test_a_fault_that_depends_on_the_values_is_found_by_many_draws(minimise):
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
    assert axis_of(result, "n").boundary == (3, 4)
    assert [probe.value for probe in axis_of(result, "n").probes] == [*range(1, 9)]  # 8 is enough
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


def test_an_input_that_the_operator_rejects_is_not_a_failure(minimise, second_kernel_base):
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
    assert axis_of(result, "n").boundary == (64, 68)


def test_no_case_outside_the_bounds_of_a_field_is_tried(minimise, second_kernel_base):
    manifest = second_kernel_base / "kernels" / "scaled_add" / "kernel.yaml"
    text = manifest.read_text().replace(
        "help: elements}", "help: elements, minimum: 16, maximum: 256}"
    )
    text = text.replace("{name: one, n: 1}", "{name: one, n: 16}").replace("n: 1000,", "n: 200,")
    text = text.replace("      - {name: none, n: 0}\n", "").replace("n: 1000000", "n: 256")
    manifest.write_text(text.replace("default: 8", "default: 16"))
    _, result, _ = minimise("out[i] = y[i]")
    assert result.text == "n=16"
    states = {probe.value: probe.state for probe in axis_of(result, "n").probes}
    assert states[15] == "refused" and states[17] == "fails"
    assert {states[n] for n in states if not 16 <= n <= 256} == {"refused"}


def test_an_unknown_case_is_a_usage_error(second_kernel_base, kbtool):
    for text, told in (("m=3", "'m' is no case field"), ("some thing", "no case of small,large")):
        done = kbtool(
            "run-recipe", "minimise", "--set", f"case={text}", root=second_kernel_base
        )  # fmt: skip
        assert done.code == 2
        assert told in done.err


def test_the_report_says_what_to_look_at_and_how_to_run_it_again(second_kernel_base, kbtool):
    kernel = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
    kernel.write_text(kernel.read_text().replace(RIGHT, "out[i] = i < 7 ? a * x[i] + y[i] : y[i]"))
    done = kbtool("run-recipe", "minimise", "--set", "seed=4", root=second_kernel_base)
    assert done.code == 1
    assert "  n fails from 8 on, passes up to 7; tried:" in done.out
    assert "no value tried passes" not in done.out  # none was, of any other field
    assert "  at fault: product" in done.out
    assert "again: kbtool run-recipe minimise --set case=n=8 --set seed=4\n" in done.out


def test_variants_with_parts_are_named_if_the_failing_one_has_none(second_kernel_base, kbtool):
    folder = second_kernel_base / "kernels" / "scaled_add"
    put = {
        "scaled_add.cpp": (RIGHT, "out[i] = i < 7 ? a * x[i] + y[i] : y[i]"),
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
    # No parameter is named: a recipe may have another for it, or none.
    assert step["message"].endswith("can be run alone; those of variant two can")


@pytest.mark.parametrize(
    ("recipe", "given"),
    [
        ("own", {"where": "cpu", "sets": "large", "one": "n=700", "draw": "5"}),
        ("minimise", {"cases": "large", "limit": "50 s"}),
    ],
)
def test_the_command_that_is_printed_finds_the_same_again(faulty, kbtool, recipe, given):
    settings = [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
    done = kbtool("run-recipe", recipe, *settings, root=faulty)
    command = printed_command(done.out)
    case = "one" if recipe == "own" else "case"
    kept = {name: value for name, value in given.items() if name not in {"one", "draw"}}
    assert {f"{name}={value}" for name, value in kept.items()} < {*command}
    assert f"{case}=n=65" in command
    planned = kbtool(*command, "--dry-run", root=faulty)
    assert planned.code == 0, planned.err
    assert "try the case 'n=65'" in planned.out
    anew = kbtool(*command, root=faulty)
    assert anew.code == 1
    assert "1 of 1 case fails; from given/n=65" in anew.out
    # The element and its error are the same, and so were the inputs.
    told = re.compile(r"^  out: .*$", re.MULTILINE)
    assert told.findall(anew.out) == told.findall(done.out) != []
    assert printed_command(anew.out) == command


def test_the_report_names_what_the_recipe_has_no_parameter_for(faulty, kbtool):
    done = kbtool("run-recipe", "bare", root=faulty)
    assert printed_command(done.out) == ["run-recipe", "bare"]
    assert kbtool(*printed_command(done.out), "--dry-run", root=faulty).code == 0
    assert re.search(
        r"^  but not with case 'n=65' and seed '\d+': the recipe has no parameter for that$",
        done.out, re.MULTILINE,
    )  # fmt: skip


def test_a_case_of_a_set_is_repeated_by_its_name_and_set(second_kernel_base, kbtool):
    """Its inputs hang on both, and another set has a case of that name, which passes."""
    folder = second_kernel_base / "kernels" / "scaled_add"
    manifest = (folder / "kernel.yaml").read_text()
    (folder / "kernel.yaml").write_text(manifest + "      - {name: one, n: 2}\n")
    kernel = folder / "scaled_add.cpp"
    kernel.write_text(kernel.read_text().replace(RIGHT, f"if (n != 2) {RIGHT}"))
    done = kbtool("run-recipe", "minimise", "--json", "--set", "seed=8", root=second_kernel_base)
    first = MinimiseResult.model_validate(json.loads(done.out)["steps"][1]["result"])
    assert (first.smallest.case_set, first.smallest.name) == ("large", "one")
    done = kbtool("run-recipe", "minimise", "--set", "seed=8", root=second_kernel_base)
    command = printed_command(done.out)
    assert {*command} == {"run-recipe", "minimise", "--set", "seed=8", "case=one", "cases=large"}
    anew = kbtool(*command, "--json", root=second_kernel_base)
    found = MinimiseResult.model_validate(json.loads(anew.out)["steps"][1]["result"])
    assert found.smallest == first.smallest


def test_the_recipes_of_the_guide_work(second_kernel_base, kbtool):
    shown = dict(re.findall(r"`(patterns/\S+)`:\n\n```yaml\n(.*?)^```$", PAGE, re.M | re.S))
    (name,) = shown
    (second_kernel_base / name).write_text(shown[name])
    (bug,) = re.findall(
        r"^```yaml\n(bugs:\n(?:(?!```).)*kernel: scaled_add\n.*?)^```$", PAGE, re.M | re.S
    )
    folder = second_kernel_base / "sessions" / "2025-01-01-a"
    folder.mkdir()
    (folder / "session.yaml").write_text(
        SESSION_LINE + SESSION.format(id="2025-01-01-a", label="A") + bug
    )
    assert kbtool("check", root=second_kernel_base).out == ""
    first, one, mutants = (
        shlex.split(line)[1:]
        for line in PAGE.rpartition("```console\n")[2].partition("```")[0].splitlines()
    )
    done = kbtool(*mutants, root=second_kernel_base)
    assert done.code == 0, done.err
    assert "last-element" in done.out
    kernel = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
    kernel.write_text(kernel.read_text().replace(RIGHT, WHOLE))
    done = kbtool(*first, root=second_kernel_base)
    assert (done.code, "the smallest that still fails:\n  n=1\n" in done.out) == (1, True)
    for command in (printed_command(done.out), one):
        assert "try the case" in kbtool(*command, "--dry-run", root=second_kernel_base).out


def test_cases_that_the_harness_cannot_judge_are_not_called_right(second_kernel_base, kbtool):
    harness = second_kernel_base / "kernels" / "scaled_add" / "harness.py"
    with harness.open("a") as file:
        file.write("def reference(inputs):\n    raise KeyError('oops')\n")
    done = kbtool("run-recipe", "minimise", root=second_kernel_base)
    assert done.code == 1
    assert "failed in" in done.err
    assert "4 of 4 cases cannot be judged: small/one: KeyError: 'oops'" in done.err


def test_a_given_case_with_a_field_twice_is_refused(second_kernel_base, kbtool):
    done = kbtool("run-recipe", "minimise", "--set", "case=n=1 n=2", root=second_kernel_base)
    assert done.code == 2
    assert "case 'n=1 n=2' gives n twice" in done.err


def test_a_given_case_without_valid_inputs_is_not_called_right(second_kernel_base, kbtool):
    done = kbtool("run-recipe", "minimise", "--set", "case=n=-1", root=second_kernel_base)
    assert done.code == 1
    assert "1 of 1 case cannot be judged: given/n=-1: RuntimeError" in done.err
