"""The step kind ``minimise``: the smallest case that fails, its boundary, and the part at fault."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kbtool.gpu.process import Completed
from kbtool.gpu.shrink import Verdict
from kbtool.model.errors import UsageError
from kbtool.model.kernel import CaseValue
from kbtool.model.kinds.minimise import MinimiseResult, MinimiseStep
from kbtool.model.words import many
from kbtool.steps.base import Context, Invocation, Links, Outcome, StepKind, Table
from kbtool.steps.minimise import page, report
from kbtool.steps.worker import library_request, run_worker, worker_failure

_MARGIN = 20.0
"""Seconds of the step reserved for the time after the search."""


class Minimise(StepKind[MinimiseStep, MinimiseResult]):
    """Fails if a case fails, and reports the smallest failing case."""

    result = MinimiseResult

    def plan(self, step: MinimiseStep, context: Context) -> list[str]:
        """The cases, and the limits of the search."""
        cases = context.chosen(step.case_sets, step.case)
        context.variants(step.variant)
        several = f"{many(len(cases), 'case')} of {step.case_sets}"
        where = f"the case {step.case!r}" if step.case else several
        return [
            f"try {where}, each up to {step.limit} (a case that hangs or kills its process fails)",
            "take the failing case with the least work and make it smaller: at most"
            f" {many(step.probes, 'case')}, up to {many(step.draws, 'draw')} of inputs before a"
            " case passes",
            "try the neighbours of that case field by field: adjacent values, powers of two and"
            " values of passing cases; then each part of the operator alone, if the harness has"
            " parts",
        ]

    def run(self, step: MinimiseStep, context: Context) -> Outcome:
        """Passes if no case fails."""
        if context.built is None or context.plan is None:
            return Outcome("refused", "nothing was built in this run")
        variant, *more = context.variants(step.variant)
        if more:
            raise UsageError(f"variant {step.variant!r}: name one; a fault is in one variant")
        hunt = _Hunt(step, context, variant, context.chosen(step.case_sets, step.case, variant))
        event, done = hunt.run()
        failure = worker_failure(event, done, "minimising")
        if failure is not None:
            return failure
        result = MinimiseResult.model_validate(event["result"])
        if result.start is None and result.refused:
            first = result.refused[0]
            message = (
                f"{len(result.refused):,} of {many(result.cases, 'case')} cannot be judged:"
                f" {first.case_set}/{first.name}: {first.message}"
            )
            return Outcome("failed", message, result, first.message)
        if result.start is None:
            right = f"{many(result.cases, 'case')} right"
            if result.unfinished:
                return Outcome("timeout", f"{right}, then {result.unfinished}", result)
            message = f"{result.cases:,} of {right}: nothing to minimise"
            return Outcome("passed", message, result)
        assert result.smallest is not None
        return Outcome("failed", report.headline(result), result, result.smallest.message,
                       result.smallest.message or "")  # fmt: skip

    def report(self, result: MinimiseResult, invocation: Invocation) -> Sequence[str | Table]:
        """See ``report``."""
        return report.report(result, invocation)

    def page(self, result: MinimiseResult, links: Links) -> str:
        """See ``page``."""
        return page.page(result, links)


class _HangError(Exception):
    """A case took too long, and its process was stopped."""


class _Hunt:
    """One search. Each case that kills its process makes another process necessary."""

    def __init__(
        self,
        step: MinimiseStep,
        context: Context,
        variant: str | None,
        cases: list[tuple[str, dict[str, CaseValue]]],
    ) -> None:
        self.step, self.context, self.variant, self.cases = step, context, variant, cases
        self.known: dict[str, Verdict] = {}
        self.trying: str | None = None
        self.since = 0.0
        self.limit = float(step.limit.minutes * 60)

    def run(self) -> tuple[dict[str, Any], Completed]:
        """The last event of the last process, and how that ended."""
        while True:
            self.trying = None
            try:
                event, done = run_worker(
                    self._request(), self.context, on_event=self._on_event, on_tick=self._tick
                )
            except _HangError:
                self._died(f"no result within {self.step.limit}")
                continue
            if event["event"] == "result" and event["result"] is None:
                continue  # the worker lost the card's context and reported it
            if event["event"] != "none" or done.timed_out or self.trying is None:
                return event, done
            last = done.output.strip().rpartition("\n")[2]
            self._died(
                f"the process was killed by {done.died}"
                if done.died
                else f"the process ended with status {done.returncode}: {last}"
            )

    def _request(self) -> dict[str, Any]:
        step, context = self.step, self.context
        assert context.plan is not None and context.built is not None
        return {
            **library_request(context.plan, context.built, context.manifest),
            "task": "kbtool.steps.minimise.task:Minimise",
            "cases": self.cases,
            "seed": step.seed or context.seed,
            "threads": context.machine.cores,
            "variant": self.variant,
            "search": {
                "kernel": context.manifest.model_dump(mode="json"),
                "target": context.plan.target,
                "draws": step.draws,
                "probes": step.probes,
                "seconds": max(context.remaining - _MARGIN, 0.0),
                "known": {key: verdict.model_dump() for key, verdict in self.known.items()},
            },
        }

    def _on_event(self, event: dict[str, Any]) -> None:
        if event["verdict"] is None:
            self.trying, self.since = event["key"], time.monotonic()
            return
        self.trying = None
        self.known[event["key"]] = Verdict.model_validate(event["verdict"])
        label = f"{event['label']}: {event['verdict']['state']}"
        self.context.on_progress(len(self.known), self.step.probes, label)

    def _tick(self) -> None:
        self.context.on_tick()
        if self.trying is not None and time.monotonic() - self.since > self.limit:
            raise _HangError

    def _died(self, how: str) -> None:
        if self.trying is not None:
            self.context.on_waiting(f"another process: with the last case, {how}")
            seed = self.step.seed or self.context.seed
            self.known[self.trying] = Verdict(state="fails", message=how, seed=seed, fatal=True)
