"""A validation on the page of its run: counts, failures, and the cases nearest to their bounds."""

from __future__ import annotations

from collections.abc import Sequence

from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import many, seconds, significant, worst_error
from kbtool.markdown.markup import chip, facts, folded, join, muted, nothing, slim_table, yes_no
from kbtool.model.kernel import case_label
from kbtool.model.kinds.validate import CaseResult, OutputError, ValidationResult
from kbtool.steps.base import Links
from kbtool.steps.validate.report import cases_passed

NEAREST = 10
"""The most passing cases to list; the JSON of the run has all."""


def page(result: ValidationResult, links: Links) -> str:
    """Counts, then the failing cases and those nearest to their bounds."""
    worst = worst_error(result)
    failed = [case for case in result.cases if not case.passed]
    passed = sorted((case for case in result.cases if case.passed), key=_share, reverse=True)
    return join(
        [
            facts(
                [
                    ("Verdict", chip("pass" if result.passed else "fail")),
                    ("Cases", cases_passed(result)),
                    ("Neighbours", inline(_neighbours(result))),
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
            rule_text(result.rule),
            _sums(result) if result.cases else nothing("No case was run."),
            join([f"Cases that failed: {len(failed)}", _cases(failed)]) if failed else None,
            join([_nearest(len(passed), links), _cases(passed[:NEAREST])]) if passed else None,
        ]
    )


_PLAIN = (
    "An output passes if no element is further from the float64 reference than twice the largest"
    " error of torch's own implementation on the same inputs, plus two ulps (an ulp is the distance"
    " to the next number of the output's type). NaN and infinities must stand where the reference"
    " has them, a second call must give the same bits, and the inputs must stay as they were."
)


def rule_text(rule: str) -> str:
    """The rule of a run in plain words, where it is one that they fit; and as the run has it."""
    recorded = inline(rule)
    if "2 max|torch - ref| + 2" not in rule:
        return f"Rule: {recorded}"
    return join([_PLAIN, folded("The rule as the run recorded it", recorded)])


def _neighbours(result: ValidationResult) -> str:
    """Of the cases that no set lists how many passed, or why there are none."""
    if result.no_neighbours is not None:
        return f"none: {result.no_neighbours}"
    drawn = result.neighbours
    passed = sum(case.passed for case in drawn)
    return f"{passed} of {many(len(drawn), 'case')} drawn by the seed passed" if drawn else ""


def _nearest(count: int, links: Links) -> str:
    if count <= NEAREST:
        return "Cases that passed, nearest to their bounds first:"
    return f"Nearest to their bounds of the {count} that passed; the {links.json()} has all:"


def _sums(result: ValidationResult) -> str:
    """One row per case set and variant."""
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
                _near(nearest),
                inline(case_label(nearest)) if _worst(nearest) else "",
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
        lines.append(
            [
                inline(case_label(case))
                + (f" <br>{muted(f'beside {inline(case.beside)}')}" if case.beside else ""),
                inline(case.case_set),
                inline(case.variant or "default"),
                chip("pass" if case.passed else "fail"),
                _near(case),
                _float(worst.error if worst else None),
                _float(worst.bound if worst else None),
                yes_no(case.repeatable),
                inline(case.message or "; ".join(
                    f"{name}: {output.message}"
                    for name, output in case.outputs.items() if output.message
                )),
            ]
        )  # fmt: skip
    header = [
        "Case", "Set", "Variant", "Verdict", "Error ÷ bound", "Worst error", "Bound",
        "Repeats bitwise", "Remark",
    ]  # fmt: skip
    return slim_table(header, lines, {4, 5, 6})


def _worst(case: CaseResult) -> OutputError | None:
    """The output that came nearest to its bound."""
    held = [output for output in case.outputs.values() if output.share is not None]
    return max(held, key=lambda output: output.share or 0.0, default=None)


def _share(case: CaseResult) -> float:
    """Its error as a share of the bound; 0 if no output has both."""
    worst = _worst(case)
    return (worst.share or 0.0) if worst else 0.0


def _near(case: CaseResult) -> str:
    """That share as text; empty if no output has both."""
    return significant(_share(case)) if _worst(case) else ""


def _float(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"
