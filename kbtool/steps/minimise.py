"""The step kind ``minimise``: the smallest case that fails, its boundary, and the part at fault."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any

from kbtool.gpu.process import Completed
from kbtool.gpu.shrink import Verdict
from kbtool.model.errors import UsageError
from kbtool.model.kernel import GIVEN, CaseValue
from kbtool.model.kinds.minimise import Axis, MinimiseResult, MinimiseStep
from kbtool.model.recipe import Recipe
from kbtool.model.words import many
from kbtool.steps.base import Context, Outcome, run_worker, worker_failure
from kbtool.steps.validate import library_request

_MARGIN = 20.0
"""Seconds of the step that are kept for what comes after the search."""


class Minimise:
    """Fails if a case fails: with the least that there is to look at."""

    def plan(self, step: MinimiseStep, context: Context) -> list[str]:
        """The cases, and how far the search may go."""
        cases = context.chosen(step.case_sets, step.case)
        context.variants(step.variant)
        several = f"{many(len(cases), 'case')} of {step.case_sets}"
        where = f"the case {step.case!r}" if step.case else several
        return [
            f"try {where}, each up to {step.limit} (a case that hangs or kills its process fails)",
            "of those that fail, take the one with the least work and make it smaller: at most"
            f" {many(step.probes, 'case')}, up to {many(step.draws, 'draw')} of inputs before a"
            " case passes",
            "try the values beside what is found, powers of two and values of cases that pass,"
            " field by field, and each part of the operator alone, where the harness offers parts",
        ]

    def run(self, step: MinimiseStep, context: Context) -> Outcome:
        """Passed if no case fails."""
        if context.built is None or context.plan is None:
            return Outcome("refused", "nothing was built in this run")
        variant, *more = context.variants(step.variant)
        if more:
            raise UsageError(f"variant {step.variant!r}: name one; a fault belongs to one")
        hunt = _Hunt(step, context, variant, context.chosen(step.case_sets, step.case, variant))
        event, done = hunt.run()
        failure = worker_failure(event, done, "minimising")
        if failure is not None:
            return failure
        result = MinimiseResult.model_validate(event["result"])
        if result.start is None:
            right = f"{many(result.cases, 'case')} right"
            if result.unfinished:
                return Outcome("timeout", f"{right}, then {result.unfinished}", result)
            said = f"{result.cases:,} of {right}: nothing to minimise"
            return Outcome("passed", said, result)
        assert result.smallest is not None
        return Outcome("failed", headline(result), result, result.smallest.message,
                       result.smallest.message or "")  # fmt: skip


class _HangError(Exception):
    """A case took too long; its process has been stopped."""


class _Hunt:
    """One search, over as many processes as cases kill."""

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
                    self._request(), self.context, on_event=self._told, on_tick=self._tick
                )
            except _HangError:
                self._died(f"no result within {self.step.limit}")
                continue
            if event["event"] == "result" and event["result"] is None:
                continue  # the card's context was lost; it said so itself
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
            "task": "minimise",
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

    def _told(self, event: dict[str, Any]) -> None:
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


def headline(result: MinimiseResult) -> str:
    """What was found, in a line."""
    assert result.smallest is not None
    said = [f"{_failing(result)}, the smallest: {result.text}"]
    said += [
        _short(axis)
        for axis in result.axes
        if _tells(axis) and type(axis.value) is int and "=" not in axis.field
    ]
    fault = fault_of(result)
    return "; ".join([*said, *([fault] if fault else [])])


def _tells(axis: Axis) -> bool:
    """Whether a value passes; nothing goes wrong with none of a thing, which tells nothing."""
    return any(p.state == "passes" and (p.value is False or p.value != 0) for p in axis.probes)


def _short(axis: Axis) -> str:
    """What was seen along a number, in few words."""
    if axis.boundary is None:
        return axis.sentence
    passes, fails = axis.boundary
    return f"{axis.field} fails from {fails} on, passes up to {passes}, of the values tried"


def fault_of(result: MinimiseResult) -> str | None:
    """Which part is at fault, in words; ``None`` where no part was tried, and none could be."""
    if not result.parts:
        if not result.parts_of:
            return None
        others = f"variant{'s' * (len(result.parts_of) > 1)} {' and '.join(result.parts_of)}"
        return f"none of its parts can be run alone; those of {others} can"
    if result.at_fault:
        return f"at fault: {', '.join(result.at_fault)}"
    names = ", ".join(part.name for part in result.parts)
    return f"each part is right alone ({names}): look at what lies between them"


def report(
    result: MinimiseResult, step: str, recipe: Recipe, parameters: Mapping[str, str]
) -> list[str]:
    """What was found, in lines.

    Args:
        result: of the step.
        step: its id.
        recipe: that it is of, with no values put in.
        parameters: what the recipe was run with.
    """
    if result.smallest is None or result.start is None:
        return []
    lines = [
        f"{_failing(result)}; from {result.start.case_set}/{result.start.name}, the smallest that"
        " still fails:",
        f"  {result.text}",
        f"  {result.smallest.message}",
    ]
    if result.failed_draws is not None and result.failed_draws[0] < result.failed_draws[1]:
        failed, drawn = result.failed_draws
        lines.append(
            f"  fails in {failed} of {many(drawn, 'draw')} of inputs: what passes below may have"
            " been lucky"
        )
    telling = [axis for axis in result.axes if _tells(axis)]
    lines += [f"  {axis.sentence}" for axis in telling]
    others = [axis for axis in result.axes if axis not in telling]
    if others:
        spared = any(probe.state == "passes" for axis in others for probe in axis.probes)
        lines.append(
            f"  {'of the other fields ' if telling else ''}no value tried passes"
            f"{', but for 0' if spared else ''}:"
        )
        lines += [f"    {axis.sentence}" for axis in others]
    for part in result.parts:
        lines.append(f"  part {part.name}: {'right' if part.passed else part.message}")
    fault = fault_of(result)
    lines += [f"  {fault}"] if fault else []
    if result.unfinished:
        lines.append(f"  the search ended early: {result.unfinished}")
    return lines + [f"  {line}" for line in _again(result, step, recipe, parameters)]


def _again(
    result: MinimiseResult, step: str, recipe: Recipe, parameters: Mapping[str, str]
) -> list[str]:
    """The command that takes the smallest case again, on the inputs with which it fails; and what
    of it the recipe has no parameter for."""
    assert result.smallest is not None
    settings = {
        name: value
        for name, value in parameters.items()
        if name in recipe.parameters and value != recipe.parameters[name].default
    }

    def sets(tried: Mapping[str, str], field: str, value: str) -> bool:
        try:
            bound, _ = recipe.bind(tried)
        except ValueError:
            return False
        return any(one.id == step and str(getattr(one, field)) == value for one in bound.steps)

    wanted = {"case": result.text or "", "seed": str(result.smallest_seed)}
    if result.smallest.case_set != GIVEN:  # its inputs hang on its set and its name
        wanted |= {"case": result.smallest.name, "case_sets": result.smallest.case_set}
    unsaid = []
    for field, value in wanted.items():
        each = [settings, *({**settings, name: value} for name in recipe.parameters)]
        found = next((tried for tried in each if sets(tried, field, value)), None)
        if found is not None:
            settings = found
        elif field != "case_sets":  # its name finds it in several sets too
            unsaid.append(f"{field} {value!r}")
    command = ["kbtool", "run-recipe", recipe.name]
    for name in recipe.parameters:
        command += ["--set", f"{name}={settings[name]}"] if name in settings else []
    lines = [f"again: {shlex.join(command)}"]
    if unsaid:
        lines.append(f"but not with {' and '.join(unsaid)}: the recipe has no parameter for that")
    return lines


def _failing(result: MinimiseResult) -> str:
    count = len(result.failing)
    return f"{count:,} of {many(result.cases, 'case')} fail{'s' * (count == 1)}"
