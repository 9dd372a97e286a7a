"""A validation of a run: what passed by case set and variant, what failed, what came near."""

from __future__ import annotations

from collections.abc import Sequence

from kbtool.model.results import CaseResult, ValidationResult
from kbtool.site import addresses as at
from kbtool.site.escape import code, inline
from kbtool.site.figures import cases_passed, seconds, significant, worst_error
from kbtool.site.markup import chip, facts, join, nothing, slim_table
from kbtool.site.parts import yes_no

NEAREST = 10
"""Cases that passed and are shown one by one; the JSON of the run has all."""


def validated(result: ValidationResult, here: str) -> str:
    """Sums, then cases: those that failed, and those nearest to their bounds."""
    worst = worst_error(result)
    failed = [case for case in result.cases if not case.passed]
    passed = sorted((case for case in result.cases if case.passed), key=_share, reverse=True)
    return join(
        [
            facts(
                [
                    ("Verdict", chip("pass" if result.passed else "fail")),
                    ("Cases", cases_passed(result)),
                    ("Worst error ÷ bound", significant(worst) if worst is not None else "none"),
                    ("Device", inline(result.device)),
                    *(
                        [("First verdict after", seconds(result.first_seconds))]
                        if result.first_seconds is not None
                        else []
                    ),
                    ("Seed", code(result.seed)),
                    ("Artifact", code(result.sha256[:12])),
                ]
            ),
            f"Rule: {inline(result.rule)}",
            _sums(result) if result.cases else nothing("No case was run."),
            join([f"Cases that failed: {len(failed)}", _cases(failed)]) if failed else None,
            join([_nearest(len(passed), here), _cases(passed[:NEAREST])]) if passed else None,
        ]
    )


def _nearest(count: int, here: str) -> str:
    if count <= NEAREST:
        return "Cases that passed, nearest to their bounds first:"
    every = at.link("JSON", at.twin(here), here)
    return f"Nearest to their bounds of the {count} that passed; the {every} has all:"


def _sums(result: ValidationResult) -> str:
    """A row a case set and variant."""
    groups: dict[tuple[str, str | None], list[CaseResult]] = {}
    for case in result.cases:
        groups.setdefault((case.case_set, case.variant), []).append(case)
    lines = []
    for (case_set, variant), cases in groups.items():
        passed = sum(case.passed for case in cases)
        nearest = max(cases, key=_share)
        repeats = sum(case.repeatable is True for case in cases)
        lines.append(
            [
                inline(case_set),
                inline(variant or "default"),
                chip("pass" if passed == len(cases) else "fail"),
                f"{passed} of {len(cases)}",
                f"{repeats} of {len(cases)}",
                significant(_share(nearest)) if _worst(nearest) else "",
                inline(nearest.name) if _worst(nearest) else "",
            ]
        )
    header = [
        "Set", "Variant", "Verdict", "Passed", "Repeat bitwise", "Worst error ÷ bound", "In case",
    ]  # fmt: skip
    return slim_table(header, lines, {3, 4, 5})


def _cases(cases: Sequence[CaseResult]) -> str:
    lines = []
    for case in cases:
        worst = _worst(case)
        error, bound = worst if worst else (None, None)
        lines.append(
            [
                inline(case.case_set),
                inline(case.name),
                inline(case.variant or "default"),
                chip("pass" if case.passed else "fail"),
                _float(error),
                _float(bound),
                significant(_share(case)) if worst else "",
                yes_no(case.repeatable),
                inline(case.message or "; ".join(
                    f"{name}: {output.message}"
                    for name, output in case.outputs.items() if output.message
                )),
            ]
        )  # fmt: skip
    header = [
        "Set", "Case", "Variant", "Verdict", "Worst error", "Bound", "Error ÷ bound",
        "Repeats bitwise", "Remark",
    ]  # fmt: skip
    return slim_table(header, lines, {4, 5, 6})


def _worst(case: CaseResult) -> tuple[float, float] | None:
    """Error and bound of the output that came nearest to its bound."""
    outputs = [
        (output.error, output.bound)
        for output in case.outputs.values()
        if output.error is not None and output.bound is not None
    ]
    return max(outputs, key=_quotient, default=None)


def _share(case: CaseResult) -> float:
    """Its error as a share of the bound; 0 where no output has both."""
    worst = _worst(case)
    return _quotient(worst) if worst else 0.0


def _quotient(pair: tuple[float, float]) -> float:
    error, bound = pair
    return error / bound if bound else 0.0 if error == 0 else float("inf")


def _float(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"
