"""What a run found, in words."""

from __future__ import annotations

from kbtool.model.kinds import declared
from kbtool.model.kinds.logged import MetricsResult
from kbtool.model.run import Run, StepRecord
from kbtool.model.words import many


def headline(run: Run) -> str:
    """What a run found, in a line."""
    findings: dict[str, str] = {}
    prepared = ""
    for step in run.steps:
        found = _finding(step)
        if declared(step.kind).prepares and step.status == "passed":
            prepared = found or prepared
        elif found:
            logged = isinstance(step.result, MetricsResult) and step.result.metrics
            findings[step.id if logged else step.kind] = found
    return "; ".join(findings.values()) or prepared


def how_far(run: Run) -> str:
    """How a run ended, and where: ``passed: 3 of 3 steps``, ``failed at step 1 of 3, build``."""
    of = len(run.steps)
    for number, step in enumerate(run.steps, 1):
        if step.status != "passed":
            return f"{run.status} at step {number} of {of}, {step.id}"
    return f"{run.outcome}: {of} of {many(of, 'step')}"


def _finding(step: StepRecord) -> str:
    """What a step found; of one that was refused or cut short, why too."""
    if step.status == "not-run":
        return ""
    found = ""
    if step.result is not None:
        from kbtool.steps import kind_of  # slow to import, and not every command needs it

        kind = kind_of(step.result)
        found = kind.found(step.result, step.status)
        if step.status == "failed" and kind.failure_says_all:
            return found
    if step.status in {"passed", "noisy"}:
        return found or step.message or ""
    why = step.message or step.status
    return f"{found}; {why}" if found else f"{step.id}: {why}"
