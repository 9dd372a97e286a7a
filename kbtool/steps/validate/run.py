"""The step kind ``validate``: the built library against the float64 reference."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from kbtool.model.kinds.validate import ValidateStep, ValidationResult
from kbtool.model.run import StepStatus
from kbtool.model.words import many
from kbtool.steps.base import Context, Links, Outcome, StepKind
from kbtool.steps.validate import page, report
from kbtool.steps.worker import library_request, run_worker, with_part, worker_failure


class Validate(StepKind[ValidateStep, ValidationResult]):
    """Allows benchmarks of exactly the library that passed."""

    result = ValidationResult
    failure_says_all = True

    def plan(self, step: ValidateStep, context: Context) -> list[str]:
        """The case sets and how many cases they hold."""
        counts = Counter(name for name, _ in context.cases(step.case_sets))
        context.variants(step.variants)
        variants = "" if step.variants == "default" else f", variants {step.variants}"
        beside = f", and up to {many(step.neighbours, 'case')} drawn beside them"
        return [
            f"compare {many(count, 'case')} of {name} with the float64 reference{variants}"
            + (beside if step.neighbours else "")
            for name, count in counts.items()
        ]

    def run(self, step: ValidateStep, context: Context) -> Outcome:
        """Fails if a case is wrong."""
        if context.built is None or context.plan is None:
            return Outcome("refused", "nothing was built in this run")
        cases, by_target = context.accepted_cases(step.case_sets)
        variants = context.variants(step.variants)
        left_out = {name: context.accepted_cases(step.case_sets, name)[1] for name in variants}
        total = sum(len(cases) + by_target - left for left in left_out.values())
        known: ValidationResult | None = None
        start = time.monotonic()
        others = f"; {by_target} not taken by this target" if by_target else ""
        for variant, left in left_out.items():
            if left > by_target:
                others += f"; {left - by_target} more not taken by variant {variant}"

        def on_event(event: dict[str, Any]) -> None:
            nonlocal known, total
            if event["event"] == "neighbours":
                total += event["count"]
                return
            first = known.first_seconds if known else round(time.monotonic() - start, 3)
            part = ValidationResult.model_validate({**event["part"], "first_seconds": first})
            known = with_part(known, part, total)
            context.on_found(known)
            variant = part.cases[-1].variant
            label = f"{event['label']} as {variant}" if variant else event["label"]
            context.on_progress(len(known.cases), total, label)

        # One process for all variants: they are held against one reference, and starting a process
        # on a card takes as long as hundreds of cases. A crash tells the case and the variant.
        event, done = run_worker(
            {
                **library_request(context.plan, context.built, context.manifest),
                "task": "kbtool.steps.validate.task:Validate",
                "cases": cases,
                "seed": step.seed or context.seed,
                "threads": context.machine.cores,
                "variants": variants,
                "neighbours": step.neighbours,
                "kernel": context.manifest.model_dump(mode="json"),
                "target": context.plan.target,
            },
            context,
            on_event=on_event,
        )
        failure = worker_failure(event, done, "validating")
        if failure is not None:
            return failure
        if known is None:
            return Outcome("failed", f"no case was run{others}")
        run = many(total, "case")
        wrong = [case for case in known.cases if not case.passed]
        if wrong:
            first = f"{report.place(wrong[0])}: {wrong[0].message}"
            message = f"{len(wrong):,} of {run} wrong{report.unlisted(wrong)}"
            return Outcome("failed", message, known, first, first)
        if not known.passed:
            # Everything was reported right, but not every case was reported.
            return Outcome("refused", f"{len(known.cases):,} of {run} were reported")
        context.validated.append(known)
        drawn, nearest = report.neighbours(known), report.margin(known)
        return Outcome("passed", f"{total:,} of {run} right{drawn}{others}{nearest}", known)

    def found(self, result: ValidationResult, status: StepStatus) -> str:
        """How many cases passed."""
        return report.cases_passed(result)

    def page(self, result: ValidationResult, links: Links) -> str:
        """See ``page``."""
        return page.page(result, links)
