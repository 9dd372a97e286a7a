"""What a run found, in words."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import geometric_mean

from kbtool.model.kinds import declared
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.kinds.mutants import MutantsResult
from kbtool.model.kinds.profile import ProfileResult
from kbtool.model.kinds.sanitise import SanitiseResult
from kbtool.model.kinds.tune import TuneResult
from kbtool.model.kinds.validate import ValidationResult
from kbtool.model.run import Run, StepRecord
from kbtool.model.words import many, significant


def headline(run: Run) -> str:
    """What a run found, in a line."""
    said: dict[str, str] = {}
    prepared = ""
    for step in run.steps:
        found = _told(step)
        if declared(step.kind).prepares and step.status == "passed":
            prepared = found or prepared
        elif found:
            said[step.kind] = found
    return "; ".join(said.values()) or prepared


def how_far(run: Run) -> str:
    """How a run ended, and where: ``passed: 3 of 3 steps``, ``failed at step 1 of 3, build``."""
    of = len(run.steps)
    for number, step in enumerate(run.steps, 1):
        if step.status != "passed":
            return f"{run.status} at step {number} of {of}, {step.id}"
    return f"{run.status}: {of} of {many(of, 'step')}"


def _told(step: StepRecord) -> str:
    """What a step found; of one that was refused or cut short, why too."""
    if step.status == "not-run":
        return ""
    result, found = step.result, ""
    if isinstance(result, ValidationResult):
        found = cases_passed(result)
        if step.status == "failed":
            return found  # its message says the same
    elif isinstance(result, BenchmarkResult):
        found = _speed(result)
    elif isinstance(result, MutantsResult) and step.status not in {"passed", "failed"}:
        from kbtool.steps import mutants  # slow to import, and seldom needed

        found = mutants.headline(result)
    if step.status == "passed":
        return found or step.message or ""
    why = step.message or step.status
    return f"{found}; {why}" if found else f"{step.id}: {why}"


def _speed(result: BenchmarkResult) -> str:
    """How a benchmark ended, beside its baseline."""
    ratios = result.ratios()
    if result.noise is not None:
        return result.noise
    if not ratios:
        return f"no ratio to {result.baseline}: no case has both figures"
    return f"{span(ratios)} × the speed of {result.baseline}{not_reached(result)}"


def span(ratios: Iterable[float]) -> str:
    """Least to largest: ``0.8–1.9 (geometric mean 1.2)``, the mean that steps report too."""
    ordered = sorted(ratios)
    low, high = significant(ordered[0]), significant(ordered[-1])
    if len(ordered) == 1:
        return low
    return f"{low}–{high} (geometric mean {significant(geometric_mean(ordered))})"


def cases_passed(result: ValidationResult) -> str:
    """``12 of 12 cases passed``, and how many were not run if the step was cut short."""
    of = many(len(result.cases), "case")
    return f"{result.cases_passed:,} of {of} passed{not_reached(result)}"


def not_reached(
    result: ValidationResult | BenchmarkResult | ProfileResult | SanitiseResult | TuneResult,
) -> str:
    """``; 3 not reached`` where the step was cut short."""
    return f"; {result.not_reached} not reached" if result.not_reached else ""
