"""Bugs put back: on a run's page which cases found which, on a bug's page its edits."""

from __future__ import annotations

from collections.abc import Iterable

from kbtool.model.run import MutantResult, MutantsResult, Run
from kbtool.site import addresses as at
from kbtool.site.escape import block, code, inline
from kbtool.site.index import BugCase, Index
from kbtool.site.markup import bullets, chip, facts, heading, join, slim_table
from kbtool.site.parts import section
from kbtool.steps.mutants import headline


def found(index: Index, result: MutantsResult, here: str) -> str:
    """Every mutant of a run: its verdict, and how many cases found it."""
    bounded = result.bound is not None
    header = ["Mutant", "Bug", "Verdict", "Cases that found it"]
    header += [f"Cases over {result.bound:g}"] if bounded else []
    lines = [
        [
            code(one.mutant.id),
            index.link(_bug_page(one.bug), here),
            chip(_verdict(one)),
            str(len(one.killed_by)),
            *([str(len(one.over_bound))] if bounded else []),
            inline(one.message or one.mutant.equivalent or ""),
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
            slim_table([*header, "Remark"], lines, {3, 4} if bounded else {3}),
            _through(result),
            heading(3, "Cases that find nothing unique", "replaceable"),
            "What each of these finds, another case finds too.",
            bullets(inline(result.cases[number]) for number in result.replaceable),
        ]
    )


def edits(index: Index, case: BugCase, here: str) -> str:
    """The edits that put one bug back, and what became of each in its newest run."""
    parts = []
    for mutant in case.bug.mutants:
        newest = _newest(index, mutant.id)
        said = []
        if newest is not None:
            run, one, cases = newest
            names = ", ".join(inline(cases[number]) for number in one.killed_by[:_SHOWN])
            more = len(one.killed_by) - _SHOWN
            link = index.link(at.run_page(run.session, run.id), here, code(run.id))
            said = [
                f"{chip(_verdict(one))} in run {link}"
                + (f" by {names}" if names else "")
                + (f" and {more} more" if more > 0 else "")
                + "."
            ]
        where = f"{code(mutant.file)}, target {code(mutant.target)}"
        where += f", variant {code(mutant.variant)}" if mutant.variant else ""
        parts += [
            heading(3, inline(mutant.id), f"mutants.{at.fragment(mutant.id)}"),
            inline(mutant.note or ""),
            f"In {where} this",
            block(mutant.find),
            "becomes" if mutant.put else "is taken out.",
            block(mutant.put) if mutant.put else "",
            f"No case can find it: {inline(mutant.equivalent)}" if mutant.equivalent else "",
            *(said or ["No run has put it back yet."]),
        ]
    return section("Put back", "mutants", *(part for part in parts if part))


_SHOWN = 5


def _newest(index: Index, id_: str) -> tuple[Run, MutantResult, list[str]] | None:
    """The newest run that judged a mutant, what came of it, and the cases of that run."""
    for run in index.runs_of():
        for result in _results(run):
            for one in result.mutants:
                if one.mutant.id == id_:
                    return run, one, result.cases
    return None


def _results(run: Run) -> Iterable[MutantsResult]:
    return (step.result for step in run.steps if isinstance(step.result, MutantsResult))


def _through(result: MutantsResult) -> str:
    if result.bound is None:
        return ""
    return bullets(
        f"Found by {code(name)}, but let through by a bound of {result.bound:g}: "
        + (", ".join(code(one.mutant.id) for one in result.let_through(name)) or "none")
        for name in result.case_sets
    )


def _bug_page(reference: str) -> str:
    session, _, bug = reference.partition("#bugs.")
    return at.bug_page(session, bug)


def _verdict(one: MutantResult) -> str:
    if one.finding is not None:
        return "survived" if one.verdict == "survived" else one.finding
    return "found" if one.verdict == "killed" else "equivalent"
