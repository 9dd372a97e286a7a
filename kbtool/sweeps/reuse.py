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
from kbtool.store.history import tree_at
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
        pattern: str,
        recipe: str,
        machine: MachineInfo,
        outcomes: tuple[RunStatus, ...] = ("passed",),
    ) -> None:
        self._base, self._pattern, self._name = base, pattern, recipe
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

    def of(self, values: Mapping[str, str], commit: str | None) -> Run | None:
        """The newest run that did what the cell would do; see ``every``."""
        return next(self.every(values, commit), None)

    def every(self, values: Mapping[str, str], commit: str | None) -> Iterator[Run]:
        """The runs that did what the cell would do, the newest first.

        The same steps with the same parameters, over the same content of every file that took part:
        of the commit, or of the work tree. A run of a work tree that differed from its commit
        stands for nothing, for what the recipe was then is not known. Nothing stands for a commit
        whose recipe does not take the parameters.

        Args:
            values: the cell's parameters.
            commit: the cell's commit; ``None`` for the work tree.
        """
        commit = commit or self._clean
        recipe = self._recipe_at(commit, self._pattern)
        try:
            bound, parameters = recipe.bind(values) if recipe else (None, None)
        except ValueError:
            return
        for run in self._runs:
            if run.parameters != parameters or run.repository.dirty is not False:
                continue
            if run.repository.changed_during_run or run.repository.commit is None:
                continue
            then = self._recipe_at(run.repository.commit, str(run.pattern))
            if then is None or bound is None or then.bind(values)[0].steps != bound.steps:
                continue
            if self._same_files(run, commit):
                yield run

    def _recipe_at(self, commit: str | None, pattern: str) -> Recipe | None:
        """The recipe as it was at a commit, or is in the work tree."""
        if commit is None:
            return self._base.recipes()[self._name][1]
        if (commit, pattern) not in self._recipes:
            self._recipes[commit, pattern] = recipe_in(self._base, commit, pattern, self._name)
        return self._recipes[commit, pattern]

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


def recipe_in(base: KnowledgeBase, commit: str, pattern: str, name: str) -> Recipe | None:
    """A recipe as it was at a commit, whatever its pattern's file was called there."""
    there = tree_at(str(base.root), commit, ["patterns"])
    own = [
        path for path in there if path.startswith((f"patterns/{pattern}.", f"patterns/{pattern}-"))
    ]
    for path, raw in _files_at(base.root, commit, own).items():
        try:
            record = validate(parse(raw, path), Pattern) if raw else []
        except DocumentError:
            continue
        recipes = record.recipes if isinstance(record, Pattern) else []
        if found := next((one for one in recipes if one.name == name), None):
            return found
    return None


def _files_at(root: Path, commit: str, names: Iterable[str]) -> Mapping[str, bytes | None]:
    try:
        return files_at(root, commit, names) or {}
    except LookupError:
        return {}
