"""The step kind ``mutants``: put known bugs back one at a time and validate each."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence

from kbtool.gpu.build import BuildTimeoutError
from kbtool.model.errors import UsageError
from kbtool.model.kinds.base import names_in
from kbtool.model.kinds.mutants import MutantsResult, MutantsStep
from kbtool.model.mutant import Mutant
from kbtool.model.run import StepStatus
from kbtool.model.words import many
from kbtool.steps.base import Context, Invocation, Links, Outcome, StepKind, Table
from kbtool.steps.mutants import page, report
from kbtool.steps.mutants.trial import TimeUpError, Trial


class Mutants(StepKind[MutantsStep, MutantsResult]):
    """Tests the validation: a bug that it does not detect is a finding."""

    result = MutantsResult
    failure_says_all = True

    def plan(self, step: MutantsStep, context: Context) -> list[str]:
        """How many bugs are put back, and over which cases."""
        targets = Counter(mutant.target for _, mutant in _selected(step, context))
        known = ", ".join(f"{count} of target {name}" for name, count in targets.items())
        cases = context.cases(step.case_sets)
        bound = (
            f", and compare with a tolerance of {step.bound:g} for every element"
            if step.bound
            else ""
        )
        return [
            f"put bugs back into {context.manifest.id}, one at a time: {known or 'none known'}"
            " (those of the built target)",
            f"validate each over {many(len(cases), 'case')} of {step.case_sets}, in a process of"
            f" its own, at most {step.limit} each{bound}",
            "a bug that no case finds is a finding, and the step fails",
        ]

    def run(self, step: MutantsStep, context: Context) -> Outcome:
        """Fails if a bug survives, or if the unmodified library fails."""
        if context.built is None or context.plan is None:
            return Outcome("refused", "nothing was built in this run")
        plan = context.plan
        variants = plan.kernel.targets[plan.target].variants_for(plan.architecture)
        chosen = [
            (bug, mutant)
            for bug, mutant in _selected(step, context)
            if mutant.target == plan.target
            and (mutant.variant is None or mutant.variant in variants)
        ]
        if not chosen:
            return Outcome(
                "failed", f"none of the chosen mutants is of the built target, {plan.target}"
            )
        cases = context.accepted_cases(step.case_sets)[0]
        if not cases:
            return context.none_accepted(step.case_sets)
        try:
            return Trial(step, context, chosen, cases).run()
        except BuildTimeoutError as error:
            return Outcome("timeout", str(error))
        except TimeUpError:
            return Outcome("timeout", "the step's time was over before every mutant was judged")

    def found(self, result: MutantsResult, status: StepStatus) -> str:
        """How many bugs were found, so far where the step was cut short."""
        return report.headline(result)

    def report(self, result: MutantsResult, invocation: Invocation) -> Sequence[str | Table]:
        """See ``report``."""
        return report.report(result)

    def page(self, result: MutantsResult, links: Links) -> str:
        """See ``page``."""
        return page.page(result, links)


def _selected(step: MutantsStep, context: Context) -> list[tuple[str, Mutant]]:
    """The mutants that the step names, of every target."""
    if step.mutants == "all":
        return context.mutants
    known = {mutant.id: (bug, mutant) for bug, mutant in context.mutants}
    names = names_in(step.mutants)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"no bug record has a mutant {name!r} of kernel {context.manifest.id}{meant}"
            )
    return [known[name] for name in dict.fromkeys(names)]
