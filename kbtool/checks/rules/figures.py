"""Figures in prose are those of the records that they name."""

from __future__ import annotations

from collections.abc import Iterator

from kbtool.checks.facts import Facts, FigureFacts
from kbtool.checks.prose_rules import judged, own_record
from kbtool.checks.tree import Rule, Tree
from kbtool.model.finding import Finding


def figures_agree_with_records(tree: Tree) -> Iterator[Finding]:
    """A figure in prose is the one that stands in the record that it names, at its own digits.

    Times of runs that solve different problems are never put into one figure. Outside of sessions
    no figure is a time that was measured while others were busy on the machine, or was refused.
    """
    for facts in tree.facts:
        for figure in facts.figures:
            problem = _misquoted(tree, facts, figure)
            if problem is not None:
                yield Finding(facts.path, figure.line, "figure", problem)


def _misquoted(tree: Tree, facts: Facts, figure: FigureFacts) -> str | None:
    """What is wrong with a figure in prose, or ``None``."""
    values = []
    asked = set()
    for place in figure.of:
        record, _, path = place.partition("#")
        target = tree.record(record)
        if target is None:
            return f"{figure.target}: there is no record {record!r}"
        if not target.valid:
            return None
        found = target.answers[path]
        if not found.figure:
            return f"{record}#{path}: {found.problem}"
        if found.unproved and facts.kind not in {"session", "notes"}:
            return (
                f"{record}#{path} proves nothing ({found.unproved}): take the figure from a quiet"
                " run, or say it in words"
            )
        values.append(found.figure)
        asked |= {found.asked} - {""}
    if len(asked) > 1:
        return (
            f"{figure.target}: these runs solve different problems (another harness, or a file that"
            " it reads), and their times are never compared"
        )
    known = "\n".join([figure.text, figure.target, *values])
    if known not in facts.judged:
        facts.judged[known] = judged(figure.text, figure.target, own_record(facts), values)
        tree.answered.add(facts.path)
    return facts.judged[known] or None


RULES: tuple[Rule, ...] = (figures_agree_with_records,)
