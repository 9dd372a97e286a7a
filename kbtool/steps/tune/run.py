"""The step kind ``tune``: compare the library's own choice of a setting with all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbtool.model.errors import UsageError
from kbtool.model.kinds.tune import TuneResult, TuneStep
from kbtool.model.words import many
from kbtool.steps.base import Context, Invocation, Links, Outcome, StepKind, Table
from kbtool.steps.tune import page, report
from kbtool.steps.worker import alone, library_request, measure, with_part


class Tune(StepKind[TuneStep, TuneResult]):
    """Refuses any file that validate has not passed in the same run, as a benchmark does."""

    result = TuneResult

    def plan(self, step: TuneStep, context: Context) -> list[str]:
        """The cases and the samples."""
        cases = context.chosen(step.case_sets, step.case)
        _variants(step, context)
        return [
            f"time the library's own choice and every other setting on {many(len(cases), 'case')},"
            f" variants {step.variants}, {many(step.samples, 'sample')} per setting, and time it"
            " again beside the fastest; refused unless this library passed validation",
        ]

    def run(self, step: TuneStep, context: Context) -> Outcome:
        """Passes whether another setting is faster or not; fails if a setting's output is wrong;
        noisy if others were busy meanwhile."""
        variants = _variants(step, context)
        refusal = context.gate(variants)
        if refusal is not None:
            return refusal
        assert context.built is not None and context.plan is not None
        calls = [
            (entry, variant)
            for variant in variants
            for entry in context.chosen(step.case_sets, step.case, variant)
        ]
        known: TuneResult | None = None

        def on_event(event: dict[str, Any]) -> None:
            nonlocal known
            part = TuneResult.model_validate(event["part"])
            known = with_part(known, part, len(calls))
            context.on_found(known)
            case = part.cases[0]
            label = f"{case.name} as {case.variant}: {case.gain:.2f}× with {case.best}"
            context.on_progress(event["done"], event["total"], label)

        request = {
            **library_request(context.plan, context.built, context.manifest),
            "closed": True,
            "task": "kbtool.steps.tune.task:Tune",
            "cases": [entry for entry, _ in calls],
            "of": [variant for _, variant in calls],
            "seed": context.seed,
            "threads": context.machine.cores,
            "samples": step.samples,
        }
        with alone(request, context):
            found, failure = measure(request, context, "tuning", on_event)
        if failure is not None:
            return failure
        result = TuneResult.model_validate(found)
        wrong = [case for case in result.cases if case.wrong]
        if wrong:
            first = f"{wrong[0].name} with {wrong[0].best}: {wrong[0].wrong}"
            message = f"{many(len(wrong), 'setting')} wrong: {first}"
            return Outcome(result.step_status, message, result, first)
        return Outcome(result.step_status, report.headline(result), result)

    def report(self, result: TuneResult, invocation: Invocation) -> Sequence[str | Table]:
        """See ``report``."""
        return report.report(result)

    def page(self, result: TuneResult, links: Links) -> str:
        """See ``page``."""
        return page.page(result, links)


def _variants(step: TuneStep, context: Context) -> list[str | None]:
    """The variants to tune.

    Raises:
        UsageError: the build has no such variant, or it is the kernel's own choice of one.
    """
    variants = context.variants(step.variants)
    if None in variants:
        raise UsageError(f"{step.variants} is no variant to tune; name variants of the target")
    return variants
