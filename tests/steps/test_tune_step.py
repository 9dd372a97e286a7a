"""The step kind ``tune``: its gate and its outcome. The worker is stood in for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from kbtool.gpu.benchmark import timing
from kbtool.model.errors import UsageError
from kbtool.model.kernel import Kernel
from kbtool.model.kinds import StepSpec
from kbtool.model.kinds.tune import TuneCase, TuneResult
from kbtool.model.kinds.validate import CaseResult, ValidationResult
from kbtool.model.run import MachineInfo
from kbtool.steps import KINDS
from kbtool.steps.base import Context
from kbtool.steps.tune import run as tune

MANIFEST = Path(__file__).parents[2] / "kernels" / "split_k_attention" / "kernel.yaml"
SHA = "0" * 64


def step(**fields: Any) -> Any:
    common = {"id": "s", "title": "S", "expected": "1 s", "timeout": "1 min", "kind": "tune"}
    spec = {**common, "case_sets": "quick", "case": "Skv=100", "variants": "two_pass", **fields}
    return TypeAdapter(StepSpec).validate_python(spec)


def passed(variant: str | None) -> ValidationResult:
    case = CaseResult(case_set="s", name="c", variant=variant, case={}, passed=True, outputs={})
    return ValidationResult(sha256=SHA, device="cpu", seed=1, rule="r", cases=[case])


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """After a build for the CPU, and a validation of two_pass."""
    kernel = Kernel.model_validate(yaml.load(MANIFEST.read_text(), yaml.BaseLoader))
    machine = MachineInfo(python="3", kbtool="0", os="L", cpu="C", cores=1)
    made = Context(root=tmp_path, kernel=kernel, machine=machine, seed=7)
    (tmp_path / "kernels" / kernel.id / "cuda").mkdir(parents=True)
    made.plan = SimpleNamespace(  # type: ignore[assignment]
        kernel=kernel,
        target="cpu",
        device="cpu",
        architecture="",
        library=tmp_path / "l.so",
        modules=[],
        folder=tmp_path,
    )
    made.built = SimpleNamespace(sha256=SHA)  # type: ignore[assignment]
    made.validated = [passed("two_pass")]
    return made


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the worker is asked; it finds 2 splits twice as fast as 1, or what ``wrong`` says."""
    asked: dict[str, Any] = {"wrong": None, "others_busy": 0.0}

    def measure(request: dict[str, Any], context: Context, doing: str, on_event: Any) -> Any:
        asked.update(request)
        times = {"1": timing([2e-6] * 3), "2": timing([1e-6] * 3)}
        cases = [
            TuneCase(
                name=str(case["name"]), case_set=case_set, case={}, variant=variant, own="1",
                settings=times, best="2", wrong=asked["wrong"],
            )
            for (case_set, case), variant in zip(request["cases"], request["of"], strict=True)
        ]  # fmt: skip
        result = TuneResult(
            sha256=SHA, device="cpu", threads=1, setting="num_splits", protocol="p", cases=cases,
            others_busy=asked["others_busy"],
        )  # fmt: skip
        on_event({"part": result.model_dump(mode="json"), "done": 1, "total": 1})
        return result.model_dump(mode="json"), None

    monkeypatch.setattr(tune, "measure", measure)
    return asked


def test_a_kernel_that_did_not_pass_validation_is_not_tuned(context):
    context.validated = [passed(None)]
    outcome = KINDS["tune"].run(step(), context)
    assert outcome.status == "refused"
    assert "variant two_pass" in outcome.message


@pytest.mark.slow
def test_the_outcome_says_where_another_setting_is_faster(context, worker):
    outcome = KINDS["tune"].run(step(), context)
    assert outcome.status == "passed"
    assert "another num_splits is faster in 1 of 1 case:" in outcome.message
    assert worker["of"] == ["two_pass"]


def test_on_a_busy_machine_no_setting_is_named_the_best(context, worker):
    worker["others_busy"] = 0.5
    outcome = KINDS["tune"].run(step(), context)
    assert outcome.status == "noisy"
    assert "other processes used 50%" in outcome.message
    worker["wrong"] = "out: NaN"
    assert KINDS["tune"].run(step(), context).status == "failed"


def test_a_wrong_setting_fails_the_step(context, worker):
    worker["wrong"] = "out: NaN"
    outcome = KINDS["tune"].run(step(), context)
    assert outcome.status == "failed"
    assert "1 setting wrong: Skv=100 with 2: out: NaN" in outcome.message


@pytest.mark.slow
@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize(
    ("variants", "told"),
    [("default", "name variants"), ("all", "name variants"), ("nope", "no variant 'nope'; it has")],
)
def test_an_unknown_variant_to_tune_is_refused_when_planned(context, built, variants, told):
    if not built:
        context.plan = context.built = None
    for act in (KINDS["tune"].plan, KINDS["tune"].run):
        with pytest.raises(UsageError, match=told):
            act(step(variants=variants), context)
