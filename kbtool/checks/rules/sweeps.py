"""Rules between sweeps and their runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kbtool.checks.facts import fact
from kbtool.checks.tree import Rule, Tree
from kbtool.model.finding import Finding

if TYPE_CHECKING:
    from kbtool.model.sweep import Sweep


class Counted(NamedTuple):
    """A cell of a sweep, or an attempt of one, and the run that it counts."""

    cell: str
    run: str
    recipe: str
    session: str | None
    """The session that the run has to be in; ``None`` of one that was there before."""
    parameters: dict[str, str]
    commit: str | None
    status: str


@fact("sweep", Counted)
def counted(sweep: Sweep) -> Iterator[Counted]:
    """Every run that a sweep counts."""
    for cell in sweep.cells:
        ends = [(one.run, one.status) for one in cell.attempts if one.run]
        if cell.reused and cell.run is not None:
            ends.append((cell.run, cell.status))
        for run, status in ends:
            session = None if cell.reused and run == cell.run else sweep.session
            yield Counted(cell.id, run, sweep.recipe, session, cell.parameters, cell.commit, status)


def sweeps_count_what_ran(tree: Tree) -> Iterator[Finding]:
    """A cell says of its run what the run says: its recipe, parameters, commit and outcome."""
    for facts in tree.facts:
        if facts.kind == "sweep" and facts.valid:
            for one in counted.of(facts):
                problem = _problem(tree, one)
                if problem is not None:
                    message = f"cell {one.cell} counts run {one.run}, which {problem}"
                    yield Finding(facts.path, 1, "sweep", message)


def _problem(tree: Tree, one: Counted) -> str | None:
    known = tree.run_of.get(one.run)
    if known is None:
        return "does not exist"
    run: dict[str, Any] = known.run
    if not known.valid:
        return None
    if run["recipe"] != one.recipe:
        return f"is of recipe {run['recipe']}, not of {one.recipe}"
    for name, value in one.parameters.items():
        if run["parameters"].get(name) != value:
            return f"has {name}={run['parameters'].get(name)}, not {value}"
    if one.session is not None and run["session"] != one.session:
        return f"is in session {run['session']}, not in {one.session}"
    if one.commit is not None and one.session is not None and run["commit"] != one.commit:
        return f"is of commit {run['commit']}, not of {one.commit}"
    if one.status != run["outcome"] and run["outcome"] != "interrupted":
        return f"{run['outcome']}; the cell says {one.status}"
    return None


RULES: tuple[Rule, ...] = (sweeps_count_what_ran,)
