"""Gates and plans of the step kinds, without running anything."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from kbtool.gpu.probe import probe_machine
from kbtool.model.errors import MachineError, UsageError
from kbtool.model.kernel import Kernel
from kbtool.model.kinds import StepSpec
from kbtool.model.kinds.build import BuildResult
from kbtool.model.recipe import Recipe
from kbtool.model.run import MachineInfo
from kbtool.steps import KINDS
from kbtool.steps.base import Context
from kbtool.steps.build import run as build_step

KERNELS = Path(__file__).parents[2] / "kernels"
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


@pytest.fixture
def attention(tmp_path: Path) -> Context:
    """Before anything is built of the attached kernel, on two cores."""
    (tmp_path / "kernels").symlink_to(KERNELS)
    manifest = (KERNELS / "split_k_attention" / "kernel.yaml").read_text()
    kernel = Kernel.model_validate(yaml.load(manifest, yaml.BaseLoader))
    machine = MachineInfo(python="3", kbtool="0", os="L", cpu="C", cores=2)
    return Context(root=tmp_path, kernel=kernel, machine=machine, seed=1)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"peers": "sdpa,nope"}, "no peer 'nope'; it has sdpa, .*, apart$"),
        (
            {"variants": "two_pass,nope"},
            "the kernel has no variant 'nope'; it has default, ",
        ),
        ({"threads": 1000}, "1000 threads are more than this machine has: 2 cores"),
    ],
)
def test_an_impossible_benchmark_is_refused_before_the_build(attention, fields, told):
    with pytest.raises(UsageError, match=told):
        KINDS["benchmark"].plan(step(kind="benchmark", case_sets="quick", **fields), attention)


@pytest.mark.slow
def test_a_possible_benchmark_is_planned(attention):
    fields = {"peers": "sdpa, flex", "variants": "wgmma", "threads": 2}
    lines = KINDS["benchmark"].plan(step(kind="benchmark", case_sets="quick", **fields), attention)
    assert "2 threads, variants wgmma too, peers sdpa, flex" in lines[0]


def test_variants_of_another_target_are_refused_after_the_build(attention):
    attention.plan = SimpleNamespace(kernel=attention.kernel, target="cpu", architecture="")
    spec = step(kind="benchmark", case_sets="quick", variants="wgmma")
    with pytest.raises(UsageError, match="this build, for cpu, has no variant 'wgmma'; it has"):
        KINDS["benchmark"].plan(spec, attention)


@pytest.mark.parametrize(
    ("target", "architecture", "auto", "told"),
    [
        ("cpu", "", True, "target cuda has it, which needs a card, nvcc and a torch with CUDA$"),
        ("cuda", "sm_80", True, "cards of sm_90a have it$"),
        ("cuda", "sm_80", False, "cards of sm_90a have it$"),
    ],
)
def test_variants_that_only_another_machine_has_are_what_this_one_lacks(
    attention, target, architecture, auto, told
):
    attention.plan = SimpleNamespace(
        kernel=attention.kernel, target=target, architecture=architecture
    )
    attention.auto = auto
    with pytest.raises(MachineError, match=f"has no variant 'wgmma'; {told}"):
        attention.variants("two_pass,wgmma")
    with pytest.raises(UsageError, match="has no variant 'nope'; it has"):
        attention.variants("nope,wgmma")


def test_a_version_that_is_too_old_makes_the_step_unavailable(context):
    outcome = KINDS["environment"].run(
        step(kind="environment", minimum={"python": "3.99", "nvml": "1"}), context
    )
    assert outcome.status == "unavailable"
    assert "3.99 or newer is needed" in outcome.message
    assert "nvml is not probed by kbtool" in outcome.message


@pytest.mark.parametrize(
    ("has", "lacks"),
    [
        ({}, ["torch 2 was built without CUDA", "no card to run it on"]),
        ({"card": "X", "compute_capability": "sm_80"}, ["torch 2 was built without CUDA"]),
        ({"cuda": "13.0"}, ["no card to run it on"]),
    ],
)
def test_cuda_is_refused_before_anything_compiles_where_it_cannot_be_linked_or_run(
    tmp_path, monkeypatch, has, lacks
):
    monkeypatch.setattr(build_step, "build", lambda *_, **__: pytest.fail("it compiles"))
    machine = MachineInfo(
        python="3", kbtool="0", os="L", cpu="C", cores=1, torch="2", nvcc="13", **has
    )
    manifest = Kernel.model_validate(
        {
            "id": "k", "title": "K", "summary": "S", "namespace": "k", "harness": "harness.py",
            "targets": {
                "cpu": {"sources": ["k.cpp"]},
                "cuda": {"sources": ["k.cpp", "k.cu"], "architectures": ["sm_80"]},
            },
            "case_fields": {"n": {"type": "int", "help": "how many"}},
            "case_sets": {"small": {"title": "S", "cases": [{"n": "1"}]}},
        }
    )  # fmt: skip
    context = Context(root=tmp_path, kernel=manifest, machine=machine, seed=1)
    for act in (KINDS["build"].plan, KINDS["build"].run):
        with pytest.raises(MachineError) as error:
            act(step(kind="build", target="cuda"), context)
        said = str(error.value)
        every = ("was built without CUDA", "no card to run it on")
        assert [what in said for what in every] == [
            any(what in one for one in lacks) for what in every
        ]
        assert all(what in said for what in lacks)
        assert "--set target=cpu" in said and "kbtool kernel compile" in said


def test_auto_builds_for_the_cpu_if_cuda_does_not_support_the_card(attention, monkeypatch):
    attention.machine = attention.machine.model_copy(
        update={"card": "Card", "compute_capability": "sm_120", "cuda": "13", "nvcc": "13"}
    )
    told = "Card is not used: target cuda of kernel split_k_attention does not list sm_"
    first, second, *_ = KINDS["build"].plan(step(kind="build"), attention)
    assert first.startswith("build split_k_attention for cpu with ")
    assert second.startswith(f"{told}120 in kernel.yaml; it lists sm_90a, ")

    def build(plan, **_):
        made: Any = BuildResult.model_construct
        return made(target=plan.target, sha256="0" * 64, warm=True)

    monkeypatch.setattr(build_step, "build", build)
    outcome = KINDS["build"].run(step(kind="build"), attention)
    assert outcome.message.startswith("cpu library 000000000000, found, nothing compiled; " + told)
    with pytest.raises(UsageError, match=r"sm_120 in kernel\.yaml; it lists sm_90a"):
        KINDS["build"].plan(step(kind="build", target="cuda"), attention)


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
def test_an_invalid_recipe_is_refused_at_load(steps, told):
    with pytest.raises(ValidationError, match=told):
        recipe(*steps, kernel="k")


@pytest.mark.parametrize(
    "spec",
    [
        {**VALIDATE, "seed": "${n}"},
        {**VALIDATE, "neighbours": "${n}"},
        {"kind": "minimise", "case_sets": "a", "seed": "${n}"},
        {"kind": "minimise", "case_sets": "a", "probes": "${n}"},
        {"kind": "minimise", "case_sets": "a", "draws": "${n}"},
        {"kind": "mutants", "case_sets": "a", "at_once": "${n}"},
        {"kind": "mutants", "case_sets": "a", "seed": "${n}"},
        {"kind": "cheats", "case_sets": "a", "benchmark": "a", "peers": "p", "at_once": "${n}"},
    ],
)
@pytest.mark.parametrize(("value", "told"), [("9" * 23, "less than or equal"), ("-1", "greater")])
def test_a_number_that_no_step_can_take_is_refused(spec, value, told):
    given = recipe(
        BUILD, VALIDATE, {**spec, "id": "last"},
        kernel="k", parameters={"n": {"type": "int", "default": "7", "help": "n"}},
    )  # fmt: skip
    with pytest.raises(ValidationError, match=told):
        given.bind({"n": value})


def test_parameters_are_converted_and_substituted():
    bound, values = recipe(
        BUILD, VALIDATE, {**BENCHMARK, "samples": "${n}"},
        kernel="k", parameters={"n": {"type": "int", "default": "7", "help": "samples"}},
    ).bind({"n": "9"})  # fmt: skip
    assert values == {"n": "9"}
    assert bound.steps[2].samples == 9
    with pytest.raises(ValueError, match="'x' is not an int"):
        bound.bind({"n": "x"})
