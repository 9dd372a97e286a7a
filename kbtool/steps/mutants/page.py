"""Bugs put back, on the page of the run: which cases found which."""

from __future__ import annotations

from kbtool.markdown.escape import code, inline
from kbtool.markdown.markup import bullets, chip, clipped, facts, folded, join, stacked_table
from kbtool.model.kinds.mutants import MutantsResult
from kbtool.steps.base import Links
from kbtool.steps.mutants.report import headline, verdict


def page(result: MutantsResult, links: Links) -> str:
    """Every mutant of a run: its verdict, and how many cases found it."""
    bounded = result.bound is not None
    header = ["Mutant", "Bug", "Verdict", "Cases that found it"]
    header += [f"Cases with an error of {result.bound:g} or more"] if bounded else []
    lines = [
        [
            links.mutant(one.bug, one.mutant.id),
            links.bug(one.bug),
            chip(verdict(one)),
            str(len(one.killed_by)),
            *([str(len(one.over_bound))] if bounded else []),
            inline(clipped(one.message or one.mutant.equivalent or "", 140)),
        ]
        for one in result.mutants
    ]
    return join(
        [
            inline(headline(result)) + ".",
            facts(
                [
                    ("Cases", str(len(result.cases))),
                    ("Target", code(result.target)),
                    ("Device", inline(result.device)),
                    ("Seed", code(result.seed)),
                    ("Artifact without bugs", code(result.sha256[:12])),
                ]
            ),
            stacked_table([*header, "Remark"], lines, {3, 4} if bounded else {3}),
            _through(result),
            folded(
                f"Cases whose findings another has too: {len(result.replaceable)}",
                bullets(inline(result.cases[number]) for number in result.replaceable),
            )
            if result.replaceable
            else "Every case finds something that no other finds.",
        ]
    )


def _through(result: MutantsResult) -> str:
    if result.bound is None:
        return ""
    return bullets(
        f"Found in {code(name)}, but missed by a tolerance of {result.bound:g} for every element: "
        + (", ".join(code(one.mutant.id) for one in result.let_through(name)) or "none")
        for name in result.case_sets
    )
