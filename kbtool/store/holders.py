"""Which commit holds the files that a run was built from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from kbtool.model.errors import MachineError
from kbtool.model.kinds.build import BuildResult
from kbtool.model.run import Run
from kbtool.store.commits import History

RunKey = tuple[str, int]
"""Id and attempt of a run."""


def holders(root: Path, runs: Iterable[Run]) -> dict[RunKey, str]:
    """Run → a commit that holds what it was built from: the one that it states, or else the first
    that does. Runs of which no commit is known to do so are left out.

    Where commits cannot be read, or nothing was built, a run with a clean work tree is believed.
    """
    try:
        with History(str(root)) as history:
            return _found(history, runs)
    except MachineError:
        return {
            (run.id, run.attempt): run.repository.commit
            for run in runs
            if run.repository.commit and run.repository.dirty is False
        }


def _found(history: History, runs: Iterable[Run]) -> dict[RunKey, str]:
    commit_of = cache(history.commit)

    @cache
    def files(commit: str, kernel: str) -> Mapping[str, str]:
        return history.folder(commit, f"kernels/{kernel}")

    @cache
    def digest(content: str) -> str:
        return hashlib.sha256(history.content(content) or b"").hexdigest()

    @cache
    def touching(kernel: str) -> list[str]:
        return history.touching(f"kernels/{kernel}")

    def holds(commit: str, built: BuildResult) -> bool:
        there = files(commit, built.kernel)
        return all(
            name in there and digest(there[name]) == wanted
            for name, wanted in built.sources.items()
        )

    found = {}
    for run in runs:
        stated, built = run.repository.commit, run.last(BuildResult)
        known = commit_of(stated) if stated else None
        if built is not None and built.sources:
            candidates = [*([known] if known else []), *touching(built.kernel)]
            holder = next((commit for commit in candidates if holds(commit, built)), None)
        else:
            holder = stated if run.repository.dirty is False else None
        if holder is not None:
            found[run.id, run.attempt] = holder
    return found
