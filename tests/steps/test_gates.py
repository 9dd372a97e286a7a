"""Gates and plans of the step kinds, without running anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from kbtool.gpu.probe import probe_machine
from kbtool.model.errors import UsageError
from kbtool.model.recipe import Recipe, StepSpec
from kbtool.steps import KINDS
from kbtool.steps.base import Context

COMMON = {"id": "s", "title": "S", "expected": "1 s", "timeout": "1 min"}


def step(**fields):
    return TypeAdapter(StepSpec).validate_python({**COMMON, **fields})


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(root=tmp_path, kernel=None, machine=probe_machine(), seed=1)


def test_every_kind_in_the_schema_has_an_implementation():
    schema = TypeAdapter(StepSpec).json_schema()
    assert set(schema["discriminator"]["mapping"]) == set(KINDS)


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "validate", "case_sets": "small"},
        {"kind": "benchmark", "case_sets": "small"},
    ],
)
def test_nothing_is_validated_or_timed_before_it_is_built(context, spec):
    outcome = KINDS[spec["kind"]].run(step(**spec), context)
    assert outcome.status == "refused"
    assert "nothing was built" in outcome.message


def test_too_old_is_unavailable(context):
    outcome = KINDS["environment"].run(
        step(kind="environment", minimum={"python": "3.99", "nvml": "1"}), context
    )
    assert outcome.status == "unavailable"
    assert "3.99 or newer is needed" in outcome.message
    assert "nvml is nothing that kbtool probes" in outcome.message


@pytest.mark.parametrize("field", ["cwd", "produces"])
@pytest.mark.parametrize("path", ["../x", "/etc", "a/../../x"])
def test_a_path_that_leaves_the_tree_is_refused(context, field, path):
    value = path if field == "cwd" else [path]
    with pytest.raises(UsageError, match="leads out"):
        KINDS["command"].run(step(kind="command", run=["true"], **{field: value}), context)


def test_a_symlink_out_of_the_tree_is_refused(context):
    (context.root / "link").symlink_to("/etc")
    with pytest.raises(UsageError, match="leads out"):
        KINDS["command"].run(step(kind="command", run=["true"], cwd="link"), context)


def recipe(*steps, **fields):
    return Recipe.model_validate(
        {
            "name": "r",
            "title": "R",
            "steps": [{**COMMON, "id": s["kind"], **s} for s in steps],
            **fields,
        }
    )


BUILD = {"kind": "build"}
VALIDATE = {"kind": "validate", "case_sets": "a"}
BENCHMARK = {"kind": "benchmark", "case_sets": "a"}


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([BUILD, BENCHMARK], "no validate step comes before it"),
        ([VALIDATE], "no build step comes before it"),
        ([BUILD, VALIDATE, {**BUILD, "id": "again"}, BENCHMARK], "no validate step"),
        ([BUILD, BUILD], "two steps are called 'build'"),
        ([{"kind": "dance"}], "dance"),
        ([{"kind": "command", "run": ["${who}"]}], "no parameter of the recipe"),
    ],
)
def test_a_recipe_that_cannot_be_honest_is_refused_at_load(steps, told):
    with pytest.raises(ValidationError, match=told):
        recipe(*steps, kernel="k")


def test_parameters_are_typed_and_put_in():
    bound, values = recipe(
        BUILD, VALIDATE, {**BENCHMARK, "samples": "${n}"},
        kernel="k", parameters={"n": {"type": "int", "default": "7", "help": "samples"}},
    ).bind({"n": "9"})  # fmt: skip
    assert values == {"n": "9"}
    assert bound.steps[2].samples == 9
    with pytest.raises(ValueError, match="'x' is not an int"):
        bound.bind({"n": "x"})
