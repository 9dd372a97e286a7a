"""The journal of a run in progress, from which a killed run is recovered.

A hidden file beside the runs with JSON lines, each flushed to disk: first the run without its
steps, then each step when it begins and when it ends, and what the steps have read. The running
process holds a lock on it, from before it has its name. An unlocked journal was left by a killed
process; ``recover`` turns it into a run record.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from glob import glob
from pathlib import Path
from typing import Any

from kbtool.model.errors import MachineError, UserError
from kbtool.model.identity import Identity
from kbtool.model.kinds.logged import LoggedValue, series_of
from kbtool.model.run import Run, StepRecord
from kbtool.runner.places import without_own_paths
from kbtool.store.edit import end_run_session
from kbtool.store.lock import claimed
from kbtool.store.read import MAX_RUN_BYTES
from kbtool.store.tree import KnowledgeBase
from kbtool.store.write import open_new, write_atomic, write_new

SUFFIX = ".journal"


class Journal:
    """An open journal; ``close`` removes it once the run record is in place."""

    def __init__(self, path: Path, header: Run) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = open_new(path, _line({"run": header.model_dump(mode="json")}))

    def step(self, record: StepRecord) -> None:
        """Write a step that begins (with status ``interrupted``) or has ended.

        Write errors are ignored: the journal is only a second copy of the final record.
        """
        with contextlib.suppress(OSError):
            self._write({"step": record.model_dump(mode="json")})

    def identity(self, identity: Identity) -> None:
        """Write what the run's steps have read."""
        with contextlib.suppress(OSError):
            self._write({"identity": identity.model_dump(mode="json")})

    def value(self, value: LoggedValue) -> None:
        """Write a value that a script logged. It outlives the process, though not the machine: a
        flush to disk for each would take longer than what is measured."""
        with contextlib.suppress(OSError):
            self._file.write(_line({"value": value.model_dump(mode="json")}))
            self._file.flush()

    def close(self, *, keep: bool = False) -> None:
        """Close it, and remove it unless the run record could not be written."""
        if not keep:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(_line(entry))
        self._file.flush()
        os.fsync(self._file.fileno())


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def journal_path(runs: Path, run_id: str, attempt: int) -> Path:
    """Where the journal of an attempt lies."""
    return runs / f".{file_stem(run_id, attempt)}{SUFFIX}"


def file_stem(run_id: str, attempt: int) -> str:
    """The name of a run's file without its suffix; one file an attempt."""
    return run_id if attempt == 1 else f"{run_id}.{attempt}"


def run_id(now: datetime, name: str) -> str:
    """The id of a run that begins now."""
    return f"{now:%Y%m%dT%H%M%SZ}-{name}-{secrets.token_hex(2)}"


def write_run(base: KnowledgeBase, run: Run) -> tuple[Run, Path]:
    """Write the record of a run, whole, and let its session last until then, if that is over.
    Returns it as written, and its path. The journal is removed after it: it is what `recover` has
    if the process is killed between the two.

    Raises:
        MachineError: it could not be written; the message says where it is kept.
    """
    run, data = _file(base, run)
    path = base.root / "sessions" / run.session / "runs" / f"{file_stem(run.id, run.attempt)}.json"
    try:
        path.parent.mkdir(exist_ok=True)
        write_new(path, data)
    except OSError as error:
        raise MachineError(_kept_elsewhere(path, data, error)) from error
    with contextlib.suppress(UserError, OSError):  # whoever asked for the run tells of it
        session = base.root / "sessions" / run.session / "session.yaml"
        end_run_session(session, run.started.astimezone(), run.ended.astimezone())
    return run, path


def _file(base: KnowledgeBase, run: Run) -> tuple[Run, bytes]:
    """A run as its record has it, and the file of it.

    Raises:
        MachineError: no command could read a file of that size.
    """
    run = without_own_paths(run, base.root).sealed()
    data = run.model_dump_json(indent=1).encode() + b"\n"
    if len(data) > MAX_RUN_BYTES:
        raise MachineError(
            f"run {run.id} has {len(data):,} bytes; a run record has at most {MAX_RUN_BYTES:,}: log"
            " fewer values, or means of many"
        )
    return run, data


def _kept_elsewhere(path: Path, data: bytes, error: OSError) -> str:
    """Save the record where there is room; returns the message."""
    reason = error.strerror or str(error)
    with contextlib.suppress(OSError):
        kept = Path(tempfile.gettempdir()) / path.name
        write_atomic(kept, data)
        return f"{path}: {reason}. The record is kept in {kept}: make room and move it there"
    return f"{path}: {reason}. Make room, then `kbtool recover` writes what the journal holds"


def recover(
    base: KnowledgeBase, on_unsound: Callable[[Path, str], None] = lambda path, why: None
) -> list[Path]:
    """Turn every abandoned journal into a run record. Returns their paths.

    A journal without a complete first line is removed.

    Args:
        base: the knowledge base.
        on_unsound: called with a journal that makes no valid record, and why. It is kept.
    """
    written = []
    # Path.glob raises for a folder that is put in place just now.
    journals = glob(f"sessions/*/runs/.*{SUFFIX}", root_dir=base.root)  # noqa: PTH207
    for name in sorted(journals):
        path = base.root / name
        with claimed(path) as is_abandoned:
            if not is_abandoned:
                continue
            try:
                found = _run_from(path)
                run, data = _file(base, found) if found else (None, b"")
            except (ValueError, LookupError, TypeError, MachineError) as error:
                why = str(error).partition(" [type=")[0].splitlines()[-1].strip()
                on_unsound(path, why.removeprefix("Value error, "))
                continue
            if run is not None:
                target = path.with_name(f"{file_stem(run.id, run.attempt)}.json")
                with contextlib.suppress(FileExistsError):
                    write_new(target, data)
                    written.append(target)
                _end_session(base, run)
            path.unlink(missing_ok=True)
    return written


def _end_session(base: KnowledgeBase, run: Run) -> None:
    entry = base.sessions.get(run.session)
    if entry is not None:
        path = base.root / entry.path
        end_run_session(path, run.started.astimezone(), run.ended.astimezone())


def _run_from(path: Path) -> Run | None:
    entries = []
    for line in path.read_bytes().split(b"\n"):
        # The last line may be incomplete: its writer was killed.
        with contextlib.suppress(ValueError):
            entries.append(json.loads(line))
    if not entries or not isinstance(entries[0], dict) or "run" not in entries[0]:
        return None
    header = entries[0]["run"]
    steps = {step["id"]: step for step in header["steps"]}
    values: list[LoggedValue] = []
    for entry in entries[1:]:
        if "step" in entry:
            steps[entry["step"]["id"]] = entry["step"]
        elif "value" in entry:
            values.append(LoggedValue.model_validate(entry["value"]))
        else:
            header["identity"] = entry["identity"]
    if values:
        (step,) = steps.values()
        metrics = [one.model_dump(mode="json") for one in series_of(values)]
        step["result"] = {**step["result"], "metrics": metrics}
    started = datetime.fromisoformat(header["started"])
    ended = max(started, datetime.fromtimestamp(path.stat().st_mtime, UTC))
    return Run.model_validate(
        {**header, "steps": list(steps.values()), "status": "interrupted", "recovered": True,
         "ended": ended.isoformat()}
    )  # fmt: skip
