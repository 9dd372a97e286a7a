"""Sweep records on disk: ``sessions/SESSION/sweeps/ID.json``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from kbtool.model.errors import NotFoundError, RecordError
from kbtool.model.sweep import Sweep, digest_of
from kbtool.store.document import DocumentError, read_bytes
from kbtool.store.read import MAX_RUN_BYTES
from kbtool.store.running import running_sweep_files
from kbtool.store.tree import LAST, KnowledgeBase, meant, read_json
from kbtool.store.write import write_atomic


def write_sweep(root: Path, sweep: Sweep) -> Path:
    """Write the record, sealed."""
    path = root / "sessions" / sweep.session / "sweeps" / f"{sweep.id}.json"
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, sweep.sealed().model_dump_json(indent=1).encode() + b"\n")
    return path


def sweep_files(base: KnowledgeBase) -> Iterator[Path]:
    """Every sweep record."""
    yield from sorted(base.root.glob("sessions/*/sweeps/[!.]*.json"))


def sweeps_in(base: KnowledgeBase) -> list[Sweep]:
    """Every sweep that loads, oldest first; ``check`` tells of the others."""
    found = []
    for path in sweep_files(base):
        with contextlib.suppress(RecordError):
            found.append(read_sweep(path, base.shown(path)))
    return sorted(found, key=lambda one: (one.started, one.id))


def running_sweeps(base: KnowledgeBase) -> list[Sweep]:
    """The sweeps whose record says that they go on, oldest first."""
    found = []
    for path in running_sweep_files(base.root):
        with contextlib.suppress(RecordError):
            found.append(read_sweep(path, base.shown(path)))
    return [one for one in found if one.status == "running"]


def sweep_named(base: KnowledgeBase, name: str) -> tuple[Path, Sweep]:
    """The sweep of an id, of a part of it that no other has, or ``last``.

    Raises:
        NotFoundError: none is meant, or more than one.
        RecordError: it does not load.
    """
    files = {path.stem: path for path in sweep_files(base)}
    ids = sorted(files)
    found = ids[-1:] if name == LAST else meant(name, ids, inside=True)
    if len(found) > 1:
        raise NotFoundError(
            f"{name!r} matches several sweeps: {', '.join(found[:5])}; write more of the id"
        )
    if not found:
        raise NotFoundError(f"there is no sweep {name!r}; `kbtool sweep list` lists them")
    path = files[found[0]]
    return path, read_sweep(path, base.shown(path))


def read_sweep(path: Path, shown: str) -> Sweep:
    """A sweep record.

    Raises:
        RecordError: it is no sound one.
    """
    try:
        return open_sweep(read_bytes(path, shown, MAX_RUN_BYTES))
    except DocumentError as error:
        raise RecordError(str(error.finding)) from None
    except ValueError as error:
        raise RecordError(f"{shown}: {error}{WRITTEN_BY_KBTOOL}") from None


def open_sweep(raw: bytes) -> Sweep:
    """The sweep record in ``raw``.

    Raises:
        ValueError: the schema or the digest does not match.
    """
    sweep, record = read_json(raw, Sweep)
    if sweep.digest != digest_of(record):
        raise ValueError("unsealed: its content does not match its digest")
    return sweep


WRITTEN_BY_KBTOOL = (
    "; sweeps are written by kbtool and never edited: restore the file with git, or remove it"
)
