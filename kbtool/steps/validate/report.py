"""A validation as text."""

from __future__ import annotations

from kbtool.model.kinds.validate import ValidationResult
from kbtool.model.words import many
from kbtool.steps.base import not_reached


def cases_passed(result: ValidationResult) -> str:
    """``12 of 12 cases passed``, and how many were not run if the step was cut short."""
    of = many(len(result.cases), "case")
    return f"{result.cases_passed:,} of {of} passed{not_reached(result.not_reached)}"


def margin(result: ValidationResult) -> str:
    """Which output came nearest to its bound."""
    shares = [
        (share, f"{case.place} {name}")
        for case in result.cases
        for name, output in case.outputs.items()
        if (share := output.share) is not None
    ]
    if not shares:
        return ""
    share, where = max(shares)
    return f"; nearest to its bound: {where}, at {share:.0%}"
