"""Bring a knowledge base to the format that this version of kbtool writes (ADR 0046).

Every file is written whole, and ``kbtool.yaml``, which states the format, last: a migration that
was cut short is finished by running it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbtool.model.errors import UsageError
from kbtool.model.finding import Finding
from kbtool.store.format import FILE, FORMAT, format_in, with_format
from kbtool.store.lock import lock
from kbtool.store.migrations import MIGRATIONS, Files
from kbtool.store.private import private_folder
from kbtool.store.repository import files_at, uncommitted
from kbtool.store.write import write_atomic, write_new


@dataclass(frozen=True)
class Change:
    """What a file was and what it becomes."""

    path: str
    """Relative to the root."""
    before: bytes | None
    """``None`` if there is no such file yet."""
    after: bytes


@dataclass(frozen=True)
class Plan:
    """What a migration would do."""

    format: int
    """The format of the knowledge base until now."""
    changes: list[Change]
    """In the order in which they are written."""
    left: list[Finding]
    """What a person has to change first. The format stays as it is while there is something."""


@contextlib.contextmanager
def migrating(root: Path) -> Iterator[None]:
    """Keep other migrations of the knowledge base waiting."""
    with lock(private_folder(root, "locks") / "migrate.lock", timeout=30):
        yield


def plan_migration(root: Path, instead: Mapping[str, bytes | None] | None = None) -> Plan:
    """What would bring the knowledge base at ``root`` to ``FORMAT``. Writes nothing.

    Args:
        root: the root of the knowledge base.
        instead: path → content to take instead of that on disk; ``None`` for no file.
    """
    files = Files(root, instead)
    stated = files.read(FILE)
    number = 1 if stated is None else format_in(stated)
    left: list[Finding] = []
    for step in range(number, FORMAT):
        left += (finding for change in MIGRATIONS[step] for finding in change(files))
        if left:
            break
    changes = [Change(path, files.before(path), new) for path, new in sorted(files.changed.items())]
    if number < FORMAT and not left:
        changes.append(Change(FILE, stated, with_format(stated)))
    return Plan(number, changes, sorted(set(left)))


def not_undone_by_git(root: Path, plan: Plan) -> list[str]:
    """Files with changes that git would not give back after the migration, or mixes with it.

    These are the files that are not as committed, and files in no commit that the migration
    changes. What an earlier migration, cut short, made of a committed file is not among them.
    """
    states = uncommitted(root)
    planned = {change.path for change in plan.changes if change.before is not None}
    doubtful = [path for path, tracked in states.items() if tracked or path in planned]
    if not doubtful:
        return []
    try:
        committed = files_at(root, "HEAD", doubtful) or {}
    except LookupError:  # nothing was committed yet
        committed = {}
    anew = plan_migration(root, {path: committed.get(path) for path in doubtful})
    made = {change.path: change.after for change in anew.changes}
    return [p for p in doubtful if p not in made or _content(root / p) != made[p]]


def write_migration(root: Path, plan: Plan) -> None:
    """Write the files of a plan.

    Raises:
        UsageError: a file has changed since the plan was made; those before it are written.
    """
    for change in plan.changes:
        path = root / change.path
        if _content(path) != change.before:
            raise UsageError(f"{change.path} has changed meanwhile; run `kbtool migrate` again")
        if change.before is None:
            write_new(path, change.after)
        else:
            write_atomic(path, change.after)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
