"""The step kind ``validate``: the built library against the float64 reference."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kbtool.gpu.build import BuildPlan
from kbtool.model.kernel import Kernel
from kbtool.model.recipe import ValidateStep
from kbtool.model.run import BuildResult, ValidationResult
from kbtool.steps.base import Context, Outcome, run_worker, worker_failure


class Validate:
    """Opens the gate for benchmarks, for the very file that passed."""

    def plan(self, step: ValidateStep, context: Context) -> list[str]:
        """The case sets and how many cases they hold."""
        counts = Counter(name for name, _ in context.cases(step.case_sets))
        return [
            f"hold {count} cases of {name} against the float64 reference"
            for name, count in counts.items()
        ]

    def run(self, step: ValidateStep, context: Context) -> Outcome:
        """Failed if one case is wrong."""
        if context.built is None or context.plan is None:
            return Outcome("refused", "nothing was built in this run")
        cases, left_out = context.taken(step.case_sets)
        event, done = run_worker(
            {
                **library_request(context.plan, context.built, context.manifest),
                "task": "validate",
                "cases": cases,
                "seed": step.seed or context.seed,
                "threads": context.machine.cores,
            },
            context,
        )
        failure = worker_failure(event, done, "validating")
        if failure is not None:
            return failure
        result = ValidationResult.model_validate(event["result"])
        wrong = [case for case in result.cases if not case.passed]
        total = len(result.cases)
        if wrong:
            first = f"{wrong[0].case_set}/{wrong[0].name}: {wrong[0].message}"
            return Outcome("failed", f"{len(wrong)} of {total} cases wrong", result, first, first)
        context.validated = result.sha256
        others = f"; {left_out} not taken by this target" if left_out else ""
        return Outcome("passed", f"{total} of {total} cases right{others}{_margin(result)}", result)


def library_request(plan: BuildPlan, built: BuildResult, kernel: Kernel) -> dict[str, Any]:
    """The part of a worker's request that says what to load."""
    return {
        "library": str(plan.library),
        "sha256": built.sha256,
        "harness": str(plan.folder / kernel.harness),
        "interface": str(plan.folder / kernel.interface) if kernel.interface else None,
        "device": "cuda" if plan.target == "cuda" else "cpu",
    }


def _margin(result: ValidationResult) -> str:
    shares = [
        (output.error / output.bound, f"{case.case_set}/{case.name} {name}")
        for case in result.cases
        for name, output in case.outputs.items()
        if output.error is not None and output.bound
    ]
    if not shares:
        return ""
    share, where = max(shares)
    return f"; nearest to its bound: {where}, at {share:.0%}"
