"""A validation as text."""

from __future__ import annotations

from collections.abc import Iterable

from kbtool.model.kinds.validate import CaseResult, ValidationResult
from kbtool.model.words import many
from kbtool.steps.base import not_reached


def cases_passed(result: ValidationResult) -> str:
    """``12 of 12 cases passed``, and how many were not run if the step was cut short."""
    of = many(len(result.cases), "case")
    return f"{result.cases_passed:,} of {of} passed{not_reached(result.not_reached)}"


def neighbours(result: ValidationResult) -> str:
    """How many cases no set lists, or why there are none."""
    if result.no_neighbours is not None:
        return f"; no neighbours: {result.no_neighbours}"
    return unlisted(result.cases)


def unlisted(cases: Iterable[CaseResult]) -> str:
    """How many of ``cases`` no set lists, after a comma; empty if there are none."""
    drawn = sum(case.beside is not None for case in cases)
    return f", {drawn:,} of them drawn beside the listed ones" if drawn else ""


def place(case: CaseResult) -> str:
    """Where a case stands; of a drawn one, beside which."""
    return case.place + (f" (drawn beside {case.beside})" if case.beside else "")


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
