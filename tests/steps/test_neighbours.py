"""Random cases near the listed ones find a kernel that is right only on the listed ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from commands import Result

from kbtool.gpu.harness import HarnessError
from kbtool.gpu.neighbours import draw_neighbours
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.validate import ValidationResult
from kbtool.model.run import Run

NEIGHBOURS = '''

def neighbours(case):
    """One element more and one less."""
    return [{**case, "n": n} for n in (case["n"] - 1, case["n"] + 1) if n >= 0]
'''
LISTED_ALONE = (
    "for (int64_t i = 0; i < n; ++i) out[i] = (n <= 1 || n == 1000 ? a : 0) * x[i] + y[i];"
)
RIGHT = "for (int64_t i = 0; i < n; ++i) out[i] = a * x[i] + y[i];"


def kernel(root: Path) -> Path:
    return root / "kernels" / "scaled_add"


def make_wrong(root: Path) -> None:
    """The kernel is right only on the sizes of its case sets, 0, 1 and 1000."""
    header = kernel(root) / "scaled_add.cpp"
    source = header.read_text()
    assert RIGHT in source
    header.write_text(source.replace(RIGHT, LISTED_ALONE))


def define(root: Path) -> None:
    with (kernel(root) / "harness.py").open("a") as file:
        file.write(NEIGHBOURS)


def recipe(root: Path, **fields: Any) -> None:
    """Give the validate step of recipe add some fields."""
    path = root / "patterns" / "P01.yaml"
    text = path.read_text()
    old = 'case_sets: "${cases}"}'
    more = "".join(f", {name}: {value}" for name, value in fields.items())
    assert text.count(old) == 1
    path.write_text(text.replace(old, f"{old[:-1]}{more}}}"))


def validation(root: Path, done: Result) -> tuple[str, ValidationResult]:
    """The message and the result of the newest run's validate step."""
    files = sorted(root.glob("sessions/*/runs/*.json"), key=lambda path: path.stat().st_mtime_ns)
    step = Run.model_validate_json(files[-1].read_bytes()).steps[2]
    assert isinstance(step.result, ValidationResult), done.err
    return step.message or "", step.result


def test_a_kernel_that_is_right_only_on_the_listed_sizes_fails(second_kernel_base, kbtool):
    make_wrong(second_kernel_base)
    define(second_kernel_base)
    recipe(second_kernel_base, seed=7)
    drawn = []
    for _ in range(2):
        done = kbtool("run-recipe", "add", root=second_kernel_base)
        assert done.code == 1, done.err
        message, result = validation(second_kernel_base, done)
        listed = [case for case in result.cases if case.beside is None]
        assert [case.name for case in listed] == ["one", "some", "none"]
        assert all(case.passed for case in listed) and result.no_neighbours is None
        assert {(case.case["n"], case.beside, case.passed) for case in result.neighbours} == {
            (2, "one", False), (999, "some", False), (1001, "some", False),
        }  # fmt: skip
        assert message == "3 of 6 cases wrong, 3 of them drawn beside the listed ones"
        assert " (drawn beside " in done.err
        drawn.append([case.case for case in result.neighbours])
    assert drawn[0] == drawn[1], "the same seed draws the same cases"


def test_a_harness_without_neighbours_fails_unless_the_step_asks_for_none(
    second_kernel_base, kbtool
):
    make_wrong(second_kernel_base)
    recipe(second_kernel_base)
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    message, result = validation(second_kernel_base, done)
    assert result.passed and not result.neighbours
    assert result.no_neighbours == "the harness defines no function neighbours"
    assert "3 of 3 cases right; no neighbours: the harness defines no function neigh" in message
    define(second_kernel_base)
    recipe(second_kernel_base, neighbours=0)
    message, result = validation(
        second_kernel_base, kbtool("run-recipe", "add", root=second_kernel_base)
    )
    assert result.passed and result.no_neighbours == "the step asks for none"


def test_a_right_kernel_passes_with_its_neighbours(second_kernel_base, kbtool):
    define(second_kernel_base)
    recipe(second_kernel_base, neighbours=2)
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    message, result = validation(second_kernel_base, done)
    assert result.passed and len(result.neighbours) == 2 and len(result.cases) == 5
    assert "5 of 5 cases right, 2 of them drawn beside the listed ones" in message
    assert kbtool("check", root=second_kernel_base).code == 0


MANIFEST = Path(__file__).parents[1] / "fixtures" / "kernels" / "scaled_add" / "kernel.yaml"


def harness(make: Any) -> Any:
    return SimpleNamespace(neighbours=make)


@pytest.fixture(scope="module")
def scaled_add() -> Kernel:
    return Kernel.model_validate(yaml.load(MANIFEST.read_text(), yaml.BaseLoader))


def around(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for n in range(max(case["n"] - 20, 0), case["n"] + 20):
        yield {**case, "n": n}


def test_no_case_is_drawn_twice_or_is_listed_or_refused_by_the_target(scaled_add):
    cases = [(name, case) for name in ("small", "large") for case in scaled_add.cases(name)]
    draws = [
        draw_neighbours(
            harness(around), scaled_add, cases, 30, seed=seed, takes=lambda case: case["n"] != 3
        )
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]
    for drawn in draws:
        assert [one.case_set for one in drawn] == ["small"] * 30 + ["large"] * 30
        sizes = [(one.case["n"], one.case["a"]) for one in drawn]
        assert len(set(sizes)) == 60
        assert not set(sizes) & {(case["n"], case["a"]) for _, case in cases}
        assert all(n != 3 for n, _ in sizes)
        assert all(one.case["name"] == scaled_add.case_text(one.case) for one in drawn)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"n": 5}, "neighbours made a case without 'a'"),
        ({"n": 5, "a": 1.0, "m": 3}, "neighbours made no valid case: 'm' is no case field"),
        ({"n": "many", "a": 1.0}, "n: 'many' is not an int"),
        (7, "neighbours made "),
    ],
)
def test_a_neighbour_that_is_no_valid_case_is_refused(scaled_add, made, said):
    with pytest.raises(HarnessError, match=said):
        draw_neighbours(
            harness(lambda _: [made]), scaled_add, [("small", scaled_add.cases("small")[0])], 3,
            seed=1, takes=lambda _: True,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda case: ({**case, "n": n} for n in count(1)),
         "neighbours made more than 10,000 cases beside 'one'"),
        (lambda case: None, "neighbours must return cases: 'NoneType' object is not iterable"),
        (3, "neighbours must return cases: 'int' object is not callable"),
    ],
)  # fmt: skip
def test_neighbours_that_never_end_or_are_empty_are_refused(scaled_add, make, said):
    with pytest.raises(HarnessError, match=said):
        draw_neighbours(
            harness(make), scaled_add, [("small", scaled_add.cases("small")[0])], 3,
            seed=1, takes=lambda _: True,
        )  # fmt: skip
