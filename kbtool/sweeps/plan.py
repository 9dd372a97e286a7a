"""What a sweep is to run: its axes, its cells, and what they are expected to take and to cost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from kbtool.ledger.held import money_of, rate_of
from kbtool.model.errors import UsageError
from kbtool.model.ledger import Price
from kbtool.model.recipe import Recipe
from kbtool.model.run import MachineInfo
from kbtool.model.sweep import Axis, Cell
from kbtool.runner.history import expected_seconds, past_runs
from kbtool.store.repository import git_python, open_repository
from kbtool.store.tree import KnowledgeBase

COMMIT = "commit"
"""The axis that is no parameter."""
MOST_CELLS = 10_000


def axes_of(
    root: Path, recipe: Recipe, over: Sequence[str], settings: Mapping[str, str]
) -> list[Axis]:
    """The axes that ``--over NAME=VALUE,VALUE`` gives; of commits also a range, A..B.

    Raises:
        UsageError: a name is no parameter, is given twice, or a value does not fit.
    """
    axes: list[Axis] = []
    for given in over:
        name, equals, text = given.partition("=")
        values = list(dict.fromkeys(value.strip() for value in text.split(",") if value.strip()))
        if not equals or not name.strip() or not values:
            raise UsageError(f"--over {given}: write NAME=VALUE,VALUE, or commit=A..B")
        name = name.strip()
        if name in settings or any(axis.name == name for axis in axes):
            raise UsageError(f"{name} is given twice: once by --set or --over is enough")
        if name == COMMIT:
            values = [one for value in values for one in commits_of(root, value)]
        else:
            for value in values:
                try:
                    recipe.bind({name: value})
                except ValueError as error:
                    raise UsageError(f"--over {given}: {str(error).splitlines()[0]}") from None
            values = [recipe.parameters[name].parse(name, value) for value in values]
        axes.append(Axis(name=name, values=list(dict.fromkeys(values))))
    return axes


def commits_of(root: Path, text: str) -> list[str]:
    """The commits that a name or a range (A..B, with A) stands for, oldest first.

    Raises:
        UsageError: git does not know them.
    """
    git = git_python()
    try:
        with open_repository(root) as repo:
            begin, dots, end = text.partition("..")
            if not dots:
                return [str(repo.commit(text).hexsha)]
            first = str(repo.commit(begin).hexsha)
            after = repo.git.rev_list("--reverse", "--first-parent", f"{begin}..{end or 'HEAD'}")
            return [first, *after.split()]
    except (git.GitError, git.exc.ODBError, OSError, ValueError, IndexError) as error:
        why = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        said = why[-1] if why else type(error).__name__
        raise UsageError(f"commit={text}: git does not know it: {said}") from None


def cells_of(axes: Sequence[Axis], settings: Mapping[str, str]) -> list[Cell]:
    """Every combination, the last axis changing first.

    Raises:
        UsageError: there are too many.
    """
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > MOST_CELLS:
        raise UsageError(f"{count:,} cells; a sweep has at most {MOST_CELLS:,}: vary less at once")
    cells: list[Cell] = []
    for values in itertools.product(*(axis.values for axis in axes)):
        chosen = dict(zip((axis.name for axis in axes), values, strict=True))
        commit = chosen.pop(COMMIT, None)
        cells.append(Cell(id=str(len(cells) + 1), parameters={**settings, **chosen}, commit=commit))
    return cells


class Estimate(NamedTuple):
    """What cells are expected to take."""

    seconds: dict[str, float]
    """Cell → seconds."""
    from_history: int
    """Of how many cells past runs say it; of the rest, the recipe does."""
    price: Price | None
    """The rate of the card; ``None`` without a card, or where the ledger has none for it."""

    @property
    def total(self) -> float:
        """Seconds of all."""
        return sum(self.seconds.values())

    @property
    def money(self) -> Decimal | None:
        """What all cost; ``None`` where no rate is known."""
        return None if self.price is None else money_of(self.price, self.total)


def estimate(
    base: KnowledgeBase, recipe: Recipe, cells: Sequence[Cell], machine: MachineInfo
) -> Estimate:
    """What cells are expected to take on a machine, by past runs there, and to cost."""
    found, known = {}, 0
    for cell in cells:
        bound, parameters = recipe.bind(cell.parameters)
        runs = past_runs(base, recipe.name, parameters, machine)
        steps = [expected_seconds(step, runs) for step in bound.steps]
        known += all(from_history for _, from_history in steps)
        found[cell.id] = sum(seconds for seconds, _ in steps)
    return Estimate(found, known, rate_of(base, machine.card))
