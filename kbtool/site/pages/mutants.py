"""The edits that put a bug back, on the page of the bug."""

from __future__ import annotations

from collections.abc import Sequence

from kbtool.markdown.escape import block, code, inline
from kbtool.markdown.markup import (
    chip,
    heading,
    nothing,
    stacked_table,
)
from kbtool.model.ablation import Edit
from kbtool.model.kinds.mutants import MutantResult, MutantsResult
from kbtool.model.mutant import Mutant
from kbtool.site import addresses as at
from kbtool.site.index import BugCase, Index
from kbtool.site.parts import section
from kbtool.steps.mutants.report import verdict
from kbtool.store.sources import kernel_file, kernel_paths, line_of


def edits(index: Index, case: BugCase, here: str) -> str:
    """The edits that put one bug back, and the verdict on each in its newest run."""
    if not case.bug.mutants:
        return section("Put back", "mutants", nothing(
            "No edit puts this bug back, so it is unknown whether a case would find it."
        ))  # fmt: skip
    parts = [_verdicts(index, case.bug.mutants, here)]
    for mutant in case.bug.mutants:
        where = f"{file_link(index, mutant.kernel, mutant, here)}, target {code(mutant.target)}"
        where += f", variant {code(mutant.variant)}" if mutant.variant else ""
        parts += [
            heading(3, inline(mutant.id), f"mutants.{at.fragment(mutant.id)}"),
            inline(mutant.note or ""),
            f"In {where}:",
            block(change(mutant)),
            f"No case can find it: {inline(mutant.equivalent)}" if mutant.equivalent else "",
            _killers(index, mutant),
        ]
    return section("Put back", "mutants", _ABOUT, *(part for part in parts if part))


_ABOUT = (
    "Edits that put this bug into the sources again (mutants), and whether validation finds them."
    " With one tolerance: whether validation that allows each element the same error, as many test"
    " suites do, would find them too."
)


def change(edit: Mutant | Edit) -> str:
    """An edit as lines of a diff."""
    removed, added = edit.find.splitlines(), edit.put.splitlines()
    return "\n".join([*(f"- {line}" for line in removed), *(f"+ {line}" for line in added)])


_SHOWN = 3


def _verdicts(index: Index, among: Sequence[Mutant], here: str) -> str:
    """One row per mutant: found or not, by how many cases, and whether one tolerance would do."""
    rows = []
    for mutant in among:
        name = f"[{code(mutant.id)}](#mutants.{at.fragment(mutant.id)})"
        judged = index.judged.get(mutant.id)
        if judged is None:
            rows.append([name, code(mutant.target), "no run has put it back yet", *[""] * 3])
            continue
        run, result, one = judged
        rows.append(
            [
                name,
                code(mutant.target),
                chip(verdict(one)),
                f"{len(one.killed_by)} of {len(result.cases)}",
                _bound(result, one),
                index.run_link(run, here),
            ]
        )
    header = [
        "Edit",
        "Target",
        "Validation",
        "Cases that find it",
        "With one tolerance",
        "Newest run",
    ]
    return stacked_table(header, rows, {3})


def _bound(result: MutantsResult, one: MutantResult) -> str:
    """The case sets in which one tolerance for all elements would not have found the bug."""
    if result.bound is None or one.verdict != "killed":
        return ""
    escaped = [
        name for name in result.case_sets if any(it is one for it in result.let_through(name))
    ]
    through = f"missed in {', '.join(map(code, escaped))}" if escaped else "found too"
    return f"{result.bound:g}: {through}"


def file_link(index: Index, kernel_id: str, edit: Mutant | Edit, here: str) -> str:
    """The file to edit, linked to the line where the edit begins."""
    name, kernel = code(edit.file), index.kernels.get(kernel_id)
    known = kernel_paths(kernel).values() if kernel else ()
    if not any(edit.file in paths for paths in known):
        return name
    line = line_of(edit.find, kernel_file(index.base, kernel_id, edit.file))
    if line is None:
        return name
    return at.link(name, at.source_page(kernel_id, edit.file, line), here)


def _killers(index: Index, mutant: Mutant) -> str:
    judged = index.judged.get(mutant.id)
    if judged is None or not judged.one.killed_by:
        return ""
    killed_by = judged.one.killed_by
    names = ", ".join(code(judged.result.cases[number]) for number in killed_by[:_SHOWN])
    more = f" and {len(killed_by) - _SHOWN} more" if len(killed_by) > _SHOWN else ""
    message = f" The first says: {inline(judged.one.message)}" if judged.one.message else ""
    return f"Found by {names}{more}.{message}"
