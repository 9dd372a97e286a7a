"""The smallest failing case on the page of its run."""

from __future__ import annotations

from kbtool.markdown.escape import code, inline
from kbtool.markdown.markup import bullets, chip, facts, join, slim_table
from kbtool.model.kinds.minimise import MinimiseResult
from kbtool.steps.base import Links
from kbtool.steps.minimise.report import fault_of
from kbtool.steps.validate.page import rule_text


def page(result: MinimiseResult, links: Links) -> str:
    """The smallest failing case, its neighbours, and the parts run alone."""
    if result.smallest is None or result.start is None:
        return f"None of {result.cases} cases fails."
    drawn = "{} of {}".format(*result.failed_draws) if result.failed_draws else ""
    return join(
        [
            facts(
                [
                    ("Cases that fail", f"{len(result.failing)} of {result.cases}"),
                    ("Made smaller", inline(f"{result.start.case_set}/{result.start.name}")),
                    ("Smallest", code(result.text)),
                    ("Seed", code(result.smallest_seed)),
                    ("Draws that fail", drawn),
                    ("Parts", inline(fault_of(result) or "no part can run alone")),
                    ("Variant", code(result.variant) if result.variant else ""),
                    ("Device", inline(result.device)),
                    ("Cases tried", str(result.probes)),
                    ("Processes lost", str(result.deaths) if result.deaths else ""),
                    ("Ended early", inline(result.unfinished) if result.unfinished else ""),
                    ("Artifact", code(result.sha256[:12])),
                ]
            ),
            slim_table(
                ["Part, alone", "Verdict", "Remark"],
                [
                    [
                        inline(part.name),
                        chip("pass" if part.passed else "fail"),
                        inline(part.message or ""),
                    ]
                    for part in result.parts
                ],
            )
            if result.parts
            else None,
            "One field changed, all else as in the smallest case:",
            bullets(inline(axis.sentence) for axis in result.axes),
            rule_text(result.rule),
        ]
    )
