"""Cheats on the page of their run: what survived first, then every edit."""

from __future__ import annotations

from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import of_implementations
from kbtool.markdown.markup import bullets, chip, clipped, facts, folded, join, stacked_table
from kbtool.model.kinds.cheats import CheatsResult
from kbtool.steps.base import Links
from kbtool.steps.cheats.report import headline, verdict


def page(result: CheatsResult, links: Links) -> str:
    """The survivors by name, and every edit with its verdict."""
    lines = [
        [
            code(one.cheat.id),
            inline(one.cheat.about),
            chip(verdict(one)),
            one.step or "",
            inline(clipped(of_implementations(one.message or one.cheat.survives or ""), 160)),
        ]
        for one in result.cheats
    ]
    header = ["Edit", "What it does", "Verdict", "Stopped by", "Remark"]
    skipped = [f"{code(name)}: {inline(why)}" for name, why in result.skipped.items()]
    return join(
        [
            inline(headline(result)) + ".",
            facts(
                [
                    ("Validated", inline(result.case_sets)),
                    ("Timed", inline(result.benchmark)),
                    ("Target", code(result.target)),
                    ("Seed", code(result.seed)),
                    ("Artifact without edits", code(result.sha256[:12])),
                ]
            ),
            _survivors(result),
            stacked_table(header, lines, set()),
            folded(f"Not tried here: {len(skipped)}", bullets(skipped)) if skipped else None,
            "The JSON of the run has the text of each edit.",
        ]
    )


def _survivors(result: CheatsResult) -> str:
    if not result.survivors:
        return "No attack got a figure."
    return "These attacks got a figure:\n\n" + bullets(
        f"{code(one.cheat.id)}: {inline(one.cheat.about)}"
        + (f" {inline(one.cheat.survives)}" if one.cheat.survives else "")
        for one in result.survivors
    )
