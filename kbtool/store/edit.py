"""The life of a session: start, pause, resume, close; costs and notes as they arise.

A command changes what it must in ``session.yaml`` and leaves every other character alone. The
record has to be sound before and after, and two commands at once wait for each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

from kbtool.model.errors import RecordError, UsageError
from kbtool.model.finding import Finding
from kbtool.model.session import Session
from kbtool.store.document import DocumentError, parse, read_bytes
from kbtool.store.load import validate
from kbtool.store.lock import lock
from kbtool.store.private import private_folder
from kbtool.store.splice import Splice
from kbtool.store.tree import load_record
from kbtool.store.write import write_atomic

_ORDER = list(Session.model_fields)


def start_session(path: Path, now: datetime | None = None) -> Session:
    """Begin a planned session now."""
    with _edited(path, "start", ("planned",)) as (edit, _):
        edit.set("status", "running", _ORDER)
        _set_known(edit, "started", _moment(now))
    return _read(path)


def pause_session(path: Path, now: datetime | None = None) -> Session:
    """Stop the clock of a running session."""
    with _edited(path, "pause", ("running",)) as (edit, _):
        edit.set("status", "paused", _ORDER)
        _end(edit, _moment(now))
    return _read(path)


def resume_session(path: Path, now: datetime | None = None) -> Session:
    """Start the clock of a paused session again; the pause does not count as work."""
    with _edited(path, "resume", ("paused",)) as (edit, session):
        edit.set("status", "running", _ORDER)
        if not session.stretches and session.started and session.ended:
            first = {"started": session.started.text, "ended": session.ended.text}
            edit.append("stretches", first, _ORDER)
        edit.remove(["ended"])
        edit.remove(["unknown", "ended"])
        edit.append("stretches", {"started": _moment(now)}, _ORDER)
    return _read(path)


def close_session(
    path: Path,
    now: datetime | None = None,
    status: Literal["complete", "terminated"] = "complete",
    outcome: str | None = None,
) -> Session:
    """End a session. One that was paused ended when it was paused."""
    with _edited(path, "close", ("running", "paused")) as (edit, session):
        edit.set("status", status, _ORDER)
        if session.status == "running":
            _end(edit, _moment(now))
        if outcome is not None:
            _set_known(edit, "outcome", outcome)
    return _read(path)


def end_run_session(path: Path, now: datetime | None = None) -> Session:
    """Set the end of a session that was made, complete from the start, for one run."""
    with _edited(path, "end", ("complete",)) as (edit, _):
        _set_known(edit, "ended", _moment(now))
    return _read(path)


def add_cost(path: Path, line: Mapping[str, str]) -> Session:
    """Add a cost line; keys as in the record."""
    with _edited(path, "cost", None) as (edit, _):
        edit.append("costs", line, _ORDER)
    return _read(path)


def add_note(path: Path, text: str, now: datetime | None = None) -> str:
    """Add a line with the time to the notes beside ``path``; the line."""
    words = "\n  ".join(line.rstrip() for line in text.strip().splitlines())
    if not words:
        raise UsageError("the note is empty")
    entry = f"- {_moment(now)} {words}\n"
    notes = path.with_name("notes.md")
    with _locked(path):
        before = notes.read_bytes() if notes.exists() else b"# Notes\n"
        # A list needs an empty line before it, but not between its items.
        last = before.rstrip().rsplit(b"\n", 1)[-1]
        gap = b"" if last.startswith((b"- ", b"  ")) else b"\n"
        write_atomic(notes, before.rstrip(b"\n") + b"\n" + gap + entry.encode())
    return entry.rstrip("\n")


@contextlib.contextmanager
def _edited(
    path: Path, verb: str, allowed: tuple[str, ...] | None
) -> Iterator[tuple[Splice, Session]]:
    """The record at ``path`` for changing; written if all went well and it is still sound."""
    shown = _shown(path)
    with _locked(path):
        try:
            document = parse(read_bytes(path, shown), shown)
        except DocumentError as error:
            raise _unsound([error.finding]) from None
        before = validate(document, Session)
        if isinstance(before, list):
            raise _unsound(before)
        if allowed is not None and before.status not in allowed:
            wanted = " or ".join(allowed)
            raise UsageError(
                f"{before.id} is {before.status}; only a session that is {wanted} can {verb}"
            )
        edit = Splice(document)
        yield edit, before
        after = validate(parse(edit.text.encode(), shown), Session)
        if isinstance(after, list):
            raise _unsound(after, "would not be sound after the change; nothing was written")
        if edit.text != document.text:
            write_atomic(path, edit.text.encode())


def _end(edit: Splice, moment: str) -> None:
    _set_known(edit, "ended", moment)
    if edit.data.get("stretches"):
        edit.set_in_last("stretches", "ended", moment)


def _set_known(edit: Splice, key: str, value: str) -> None:
    """Set a key, and take away the reason why its value was not known."""
    edit.set(key, value, _ORDER)
    edit.remove(["unknown", key])


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    folder = private_folder(path.parents[2], "locks")
    with lock(folder / f"{path.parent.name}.lock", timeout=30):
        yield


def _read(path: Path) -> Session:
    loaded = load_record(path, _shown(path), Session)
    if isinstance(loaded, list):
        raise _unsound(loaded)
    return loaded.record


def _unsound(findings: list[Finding], said: str = "is not sound; mend it first") -> RecordError:
    lines = "\n".join(f"  {finding}" for finding in findings)
    return RecordError(f"{findings[0].path} {said}:\n{lines}")


def _shown(path: Path) -> str:
    return f"sessions/{path.parent.name}/{path.name}"


def _moment(now: datetime | None) -> str:
    return (now or datetime.now().astimezone()).isoformat(timespec="seconds")
