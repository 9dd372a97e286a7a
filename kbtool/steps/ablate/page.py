"""Ablations on the page of their run: what each technique gains, case by case."""

from __future__ import annotations

from kbtool.markdown.escape import code, inline
from kbtool.markdown.markup import bullets, chip, clipped, facts, folded, join, stacked_table
from kbtool.model.kinds.ablate import AblateResult
from kbtool.steps.ablate.report import factor, headline, spread, verdict
from kbtool.steps.base import Links


def page(result: AblateResult, links: Links) -> str:
    """Each ablation with its gain, then each case with the spread of its rounds."""
    lines = [
        [
            links.pattern(one.pattern),
            code(one.ablation.id),
            inline(one.ablation.about),
            chip(verdict(one)),
            factor(one.gain),
            inline(clipped(one.message or "", 160)),
        ]
        for one in result.ablations
    ]
    cases = [
        [
            code(one.ablation.id),
            inline(case.case),
            chip(case.effect),
            f"{case.gain:.3g}×",
            spread(case),
        ]
        for one in result.ablations
        for case in one.cases
    ]
    metric = "of a call behind a plain kernel" if result.between else "of the call repeated"
    skipped = [f"{code(name)}: {inline(why)}" for name, why in result.skipped.items()]
    return join(
        [
            inline(headline(result)) + ".",
            f"A ratio is the time without the technique ÷ the time with it, {metric}: above 1 the"
            " technique gains. An effect counts if every round shows it, and it is 1 % or more.",
            facts(
                [
                    ("Validated", inline(result.case_sets)),
                    ("Target", code(result.target)),
                    ("Device", inline(result.device)),
                    ("Seed", code(result.seed)),
                    ("Artifact with every technique", code(result.sha256[:12])),
                ]
            ),
            stacked_table(
                ["Pattern", "Ablation", "Without it", "Verdict", "Ratio", "Remark"], lines, {4}
            ),
            stacked_table(["Ablation", "Case", "Effect", "Ratio", "In rounds"], cases, {3})
            if cases
            else None,
            folded(f"Not tried here: {len(skipped)}", bullets(skipped)) if skipped else None,
            "The JSON of the run has the text of each edit.",
        ]
    )
