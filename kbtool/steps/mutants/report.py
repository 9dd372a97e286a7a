"""The results of bugs put back, as text."""

from __future__ import annotations

from collections import Counter

from kbtool.model.kinds.mutants import MutantResult, MutantsResult
from kbtool.model.words import many
from kbtool.steps.base import Table


def headline(result: MutantsResult) -> str:
    """How many bugs were found, in one line."""
    counts = Counter(one.verdict for one in result.mutants)
    equivalent = sum(
        one.mutant.equivalent is not None and one.verdict == "survived" for one in result.mutants
    )
    were = "was" if counts["killed"] == 1 else "were"
    parts = [f"{counts['killed']} of {many(len(result.mutants), 'bug')} put back {were} found"]
    survivors = [one.mutant.id for one in result.mutants if one.finding == "no case finds it"]
    if survivors:
        parts.append(f"{len(survivors)} survived ({', '.join(survivors)})")
    if equivalent:
        parts.append(f"{equivalent} cannot be found")
    for verdict in ("not-built", "not-judged"):
        if counts[verdict]:
            parts.append(f"{counts[verdict]} {verdict.replace('-', ' ')}")
    if result.not_reached:
        parts.append(f"{result.not_reached} not reached")
    if result.bound is not None:
        through = ", ".join(
            f"{len(result.let_through(name))} of the {len(result.found(name))} found in {name}"
            for name in result.case_sets
            if result.found(name)
        )
        if through:
            parts.append(f"a tolerance of {result.bound:g} for every element would miss {through}")
    return "; ".join(parts)


def summary(result: MutantResult) -> str:
    """The verdict on one bug, in one line."""
    if result.verdict != "killed":
        return f"{result.mutant.id}: {result.verdict.replace('-', ' ')}"
    ended = f", the process {result.cut_short}" if result.cut_short else ""
    return f"{result.mutant.id}: found by {many(len(result.killed_by), 'case')}{ended}"


def report(result: MutantsResult) -> list[str | Table]:
    """Every bug, and which cases find it; then which cases are replaceable."""
    bound, cases = result.bound, many(len(result.cases), "case")
    rows = [
        [
            one.mutant.id,
            one.verdict.replace("-", " ") + (f", process {one.cut_short}" if one.cut_short else ""),
            str(len(one.killed_by)),
            *([str(len(one.over_bound))] if bound is not None else []),
            _clipped(one.message or one.mutant.equivalent or ""),
        ]
        for one in result.mutants
    ]
    header = [
        "bug put back", "validation", "cases",
        *([f"≥ {bound:g}"] if bound is not None else []), "what the first case says",
    ]  # fmt: skip
    about = (
        f"each bug alone in a library of its own, {cases}, {result.device};"
        " cases: how many found it"
        + (f"; ≥ {bound:g}: in how many the error is so large" if bound is not None else "")
    )
    table = Table(header, rows, {2, 3} if bound is not None else {2})
    alone = [name for n, name in enumerate(result.cases) if n not in result.replaceable]
    lines = [
        f"{len(result.replaceable)} of {cases} find nothing unique: what each finds,"
        " another finds too (the record lists them under replaceable)",
        f"cases that find a bug alone: {', '.join(alone) or 'none'}",
    ]
    for name in result.case_sets if bound is not None else []:
        through = ", ".join(one.mutant.id for one in result.let_through(name)) or "none"
        lines.append(
            f"found in {name}, but missed by a tolerance of {bound:g} for every element: {through}"
        )
    return [about, table, *lines, headline(result)]


def _clipped(text: str, longest: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def verdict(one: MutantResult) -> str:
    """The verdict in a word or two."""
    if one.finding is not None:
        return "survived" if one.verdict == "survived" else one.finding
    return "found" if one.verdict == "killed" else "equivalent"
