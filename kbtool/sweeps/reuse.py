"""Cells that need not run: a run of the same thing, on the same machine, is there already."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kbtool.model.kinds.build import BuildResult
from kbtool.model.pattern import Pattern
from kbtool.model.recipe import Recipe
from kbtool.model.run import MachineInfo, Run, RunStatus
from kbtool.store.document import DocumentError, parse
from kbtool.store.load import validate
from kbtool.store.repository import files_at, repository_state
from kbtool.store.tree import KnowledgeBase

_SAME = (
    "card", "cards", "driver", "cuda", "nvcc", "compiler", "torch", "numpy", "python", "kbtool",
    "cpu", "cores",
)  # fmt: skip
"""What of a machine a result depends on."""


class Earlier:
    """The runs of a recipe on a machine, to be asked for those that stand for a cell."""

    def __init__(
        self,
        base: KnowledgeBase,
        recipe: str,
        machine: MachineInfo,
        outcomes: tuple[RunStatus, ...] = ("passed",),
    ) -> None:
        self._base = base
        self._runs = [
            entry.record
            for entry in reversed(base.runs)
            if entry.record.recipe == recipe
            and entry.record.outcome in outcomes
            and all(getattr(entry.record.machine, one) == getattr(machine, one) for one in _SAME)
        ]
        state = repository_state(base.root)
        self._clean = state.commit if state.dirty is False else None
        """The commit that the work tree is, if it is one."""
        self._recipes: dict[tuple[str, str], Recipe | None] = {}
        self._digests: dict[tuple[str | None, str], str | None] = {}

    def of(self, recipe: Recipe, values: Mapping[str, str], commit: str | None) -> Run | None:
        """The newest run that did what the cell would do; see ``every``."""
        return next(self.every(recipe, values, commit), None)

    def every(self, recipe: Recipe, values: Mapping[str, str], commit: str | None) -> Iterator[Run]:
        """The runs that did what the cell would do, the newest first.

        The same steps with the same parameters, over the same content of every file that took part:
        of the commit, or of the work tree. A run of a work tree that differed from its commit
        stands for nothing, for what the recipe was then is not known.

        Args:
            recipe: the recipe, as it is in the tree that the cell runs.
            values: the cell's parameters.
            commit: the cell's commit; ``None`` for the work tree.
        """
        commit = commit or self._clean
        bound, parameters = recipe.bind(values)
        for run in self._runs:
            if run.parameters != parameters or run.repository.dirty is not False:
                continue
            if run.repository.changed_during_run or run.repository.commit is None:
                continue
            then = self._recipe_at(run.repository.commit, run)
            if then is None or then.bind(values)[0].steps != bound.steps:
                continue
            if self._same_files(run, commit):
                yield run

    def _recipe_at(self, commit: str, run: Run) -> Recipe | None:
        key = (commit, str(run.pattern))
        if key not in self._recipes:
            self._recipes[key] = self._read_recipe(commit, run)
        return self._recipes[key]

    def _read_recipe(self, commit: str, run: Run) -> Recipe | None:
        entry = self._base.patterns.get(str(run.pattern))
        return recipe_at(self._base.root, commit, entry.path, str(run.recipe)) if entry else None

    def _same_files(self, run: Run, commit: str | None) -> bool:
        if run.identity is None or run.last(BuildResult) is None:
            # Nobody knows what a program reads, or what was built: only the same commit will do.
            return commit is not None and run.repository.commit == commit
        wanted = dict(run.identity.files)
        for step in run.steps:
            if isinstance(step.result, BuildResult):
                folder = f"kernels/{step.result.kernel}"
                wanted |= {f"{folder}/{name}": of for name, of in step.result.sources.items()}
        self._look_up(wanted, commit)
        return all(self._digests[commit, name] == digest for name, digest in wanted.items())

    def _look_up(self, names: Iterable[str], commit: str | None) -> None:
        """Take the digests of files that are not known yet."""
        new = [name for name in names if (commit, name) not in self._digests]
        if not new:
            return
        if commit is not None:
            found = _files_at(self._base.root, commit, new)
        else:
            paths: dict[str, Path] = {name: self._base.root / name for name in new}
            found = {name: path.read_bytes() for name, path in paths.items() if path.is_file()}
        for name in new:
            raw = found.get(name)
            self._digests[commit, name] = None if raw is None else hashlib.sha256(raw).hexdigest()


def recipe_at(root: Path, commit: str, path: str, name: str) -> Recipe | None:
    """A recipe as it was at a commit; ``None`` if the pattern's file had none of that name."""
    raw = _files_at(root, commit, [path]).get(path)
    try:
        record = validate(parse(raw, path), Pattern) if raw else []
    except DocumentError:
        return None
    recipes = record.recipes if isinstance(record, Pattern) else []
    return next((one for one in recipes if one.name == name), None)


def _files_at(root: Path, commit: str, names: Iterable[str]) -> Mapping[str, bytes | None]:
    try:
        return files_at(root, commit, names) or {}
    except LookupError:
        return {}
