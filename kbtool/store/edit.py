"""Edit a session: start, pause, resume and close it; add notes, costs, bugs and other facts.

An edit changes only what it must in ``session.yaml`` and keeps every other character. The record
must be valid before and after the edit. A lock makes concurrent commands wait for each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from kbtool.model.base import Instant
from kbtool.model.errors import RecordError, UsageError
from kbtool.model.finding import Finding
from kbtool.model.session import Session
from kbtool.store.document import DocumentError, parse, read_bytes
from kbtool.store.dump import Fields
from kbtool.store.load import validate
from kbtool.store.lock import lock
from kbtool.store.private import private_folder
from kbtool.store.splice import Splice
from kbtool.store.write import write_atomic

_ORDER = list(Session.model_fields)


def start_session(path: Path, now: datetime | None = None) -> Session:
    """Start a planned session now."""
    with _edited(path, "start", ("planned",)) as (edit, _):
        edit.set("status", "running", _ORDER)
        _set_known(edit, "started", _moment(now))
    return _read(path)


def pause_session(path: Path, now: datetime | None = None) -> Session:
    """Pause a running session."""
    with _edited(path, "pause", ("running",)) as (edit, session):
        edit.set("status", "paused", _ORDER)
        _end(edit, _moment(now, session))
    return _read(path)


def resume_session(path: Path, now: datetime | None = None) -> Session:
    """Resume a paused or closed session. The time in between does not count as work."""
    with _edited(path, "resume", ("paused", "complete", "terminated")) as (edit, session):
        known = session.stretches or (session.started and session.ended)
        if session.duration is not None or not known:
            raise UsageError(
                f"{session.id} cannot be resumed: its record states a duration, or lacks the times"
                " when it began and ended. Make a new session that follows it"
            )
        edit.set("status", "running", _ORDER)
        if not session.stretches and session.started and session.ended:
            first = {"started": session.started.text, "ended": session.ended.text}
            edit.append("stretches", first, _ORDER)
        edit.remove(["ended"])
        edit.remove(["unknown", "ended"])
        edit.append("stretches", {"started": _moment(now, session)}, _ORDER)
    return _read(path)


def close_session(
    path: Path,
    now: datetime | None = None,
    status: Literal["complete", "terminated"] = "complete",
    outcome: str | None = None,
    commits: Sequence[Mapping[str, str]] = (),
) -> Session:
    """End a session. A paused session ended when it was paused.

    Args:
        path: path of its record.
        now: when it ended. Default: now.
        status: the final status.
        outcome: the outcome.
        commits: the commits made in it, with the keys of the record.
    """
    with _edited(path, "close", ("running", "paused")) as (edit, session):
        edit.set("status", status, _ORDER)
        if session.status == "running":
            _end(edit, _moment(now, session))
        if outcome is not None:
            _set_known(edit, "outcome", outcome)
        for commit in commits:
            edit.append("commits", commit, _ORDER)
    return _read(path)


def end_run_session(path: Path, began: datetime, ended: datetime) -> Session:
    """Let a session that is over, as one made for runs is, last until the end of a run in it.

    More than a minute without a run is a pause. Runs at the same time count once.

    Args:
        path: path of its record.
        began: when the run began.
        ended: when the run ended.
    """
    with _edited(path, "end", None) as (edit, session):
        if session.status not in {"complete", "terminated"}:
            return session
        began, ended = (at.replace(microsecond=0) for at in (began, ended))
        stretches = _stretches(session)
        if session.ended is None or session.duration is not None or stretches is None:
            if session.ended is None or not session.ended.zoned or session.ended.at < ended:
                _set_known(edit, "ended", _moment(ended))
        else:
            _work(edit, session, stretches, (max(began, stretches[0][0]), ended))
    return _read(path)


_Span = tuple[datetime, datetime]


def _stretches(session: Session) -> list[_Span] | None:
    """The times of work in order; ``None`` if one is not known, or has no zone."""
    times: list[tuple[Instant | None, Instant | None]]
    times = [(one.started, one.ended) for one in session.stretches]
    times = times or [(session.started, session.ended)]
    spans = [(a.at, b.at) for a, b in times if a and b and a.zoned and b.zoned]
    return sorted(spans) if len(spans) == len(times) else None


def _work(edit: Splice, session: Session, before: list[_Span], run: _Span) -> None:
    """Add the time of a run to the times of work, and mend what is written of them."""
    after: list[_Span] = []
    for began, ended in sorted([*before, run]):
        if after and began - after[-1][1] <= _PAUSE:
            after[-1] = (after[-1][0], max(ended, after[-1][1]))
        else:
            after.append((began, ended))
    if _within(run, before):
        return
    last = _moment(max(ended for _, ended in after))
    *first, (began, _) = after
    if first and first == before[:-1] and began == before[-1][0] and session.stretches:
        edit.set_in("stretches", -1, "ended", last)
    elif first == before and session.stretches:
        edit.append("stretches", {"started": _moment(began), "ended": last}, _ORDER)
    elif first or session.stretches:
        edit.remove(["stretches"])
        for one in after if first else ():
            edit.append("stretches", dict(zip(_TIMES, map(_moment, one), strict=True)), _ORDER)
    _set_known(edit, "ended", last)


_TIMES = ("started", "ended")


def _within(run: _Span, spans: list[_Span]) -> bool:
    return any(began <= run[0] and run[1] <= ended for began, ended in spans)


_PAUSE = timedelta(minutes=1)
"""The longest time between two runs that is no pause."""


def add_item(path: Path, key: str, item: Fields | str) -> Session:
    """Add an item to a list of the record, with the keys of the record."""
    with _edited(path, key, None) as (edit, session):
        own = None if isinstance(item, str) else item.get("id")
        if own is not None and any(own == known.id for known in getattr(session, key)):
            raise UsageError(
                f"{session.id} already has {own!r} under {key}; for a new one choose another --id"
            )
        edit.append(key, item, _ORDER)
    return _read(path)


def set_cost(path: Path, line: Fields) -> Session:
    """Add a line of the costs, or set the duration of the one that has its id."""
    with _edited(path, "cost", None) as (edit, session):
        ids = [known.id for known in session.costs]
        if line["id"] in ids:
            edit.set_in("costs", ids.index(str(line["id"])), "duration", str(line["duration"]))
        else:
            edit.append("costs", line, _ORDER)
    return _read(path)


def add_inside(path: Path, key: str, id_: str, inner: str, item: Fields) -> Session:
    """Add an item to a list of an item: a hypothesis to a bug, a row to a measurement."""
    with _edited(path, key, None) as (edit, session):
        at = _place_of(session, key, id_)
        if any(item["id"] == known.id for known in getattr(getattr(session, key)[at], inner)):
            raise UsageError(
                f"{key}.{id_} of {session.id} already has {item['id']!r} under {inner}; for a new"
                " one choose another --id"
            )
        edit.append_in(key, at, inner, item)
    return _read(path)


def add_fix(path: Path, fix: Fields) -> Session:
    """Add a fix, with the keys of the record. Its bug, if of this session, becomes fixed."""
    with _edited(path, "fix", None) as (edit, session):
        edit.append("fixes", fix, _ORDER)
        if fix.get("confirmed") != "false":
            for at, bug in enumerate(session.bugs):
                if fix["bug"] == f"#bugs.{bug.id}" and bug.status != "fixed":
                    edit.set_in("bugs", at, "status", "fixed")
    return _read(path)


def set_hypothesis(path: Path, bug: str, hypothesis: str, fields: Mapping[str, str]) -> Session:
    """Change a hypothesis of a bug of this session: its verdict, its likelihood, its note."""
    with _edited(path, "hypothesis", None) as (edit, session):
        at = _place_of(session, "bugs", bug)
        ids = [known.id for known in session.bugs[at].hypotheses]
        for name, value in fields.items():
            edit.set_at(["bugs", at, "hypotheses", ids.index(hypothesis)], name, value)
    return _read(path)


def decide(path: Path, decision: str, chosen: str, reason: str | None) -> Session:
    """Choose an option of a decision that was left open."""
    with _edited(path, "decision", None) as (edit, session):
        at = _place_of(session, "decisions", decision)
        edit.set_in("decisions", at, "chosen", chosen)
        if reason is not None:
            edit.set_in("decisions", at, "reason", reason)
        edit.remove(["unknown", f"decisions.{decision}.chosen"])
    return _read(path)


def _place_of(session: Session, key: str, id_: str) -> int:
    return next(at for at, one in enumerate(getattr(session, key)) if one.id == id_)


def last_mark(session: Session) -> Instant | None:
    """The latest time in the record of a session; times without a zone do not count."""
    times = [session.started, session.ended]
    times += [time for one in session.stretches for time in (one.started, one.ended)]
    known = [time for time in times if time is not None and time.zoned]
    return max(known, key=lambda time: time.at, default=None)


def add_note(path: Path, text: str, now: datetime | None = None) -> str:
    """Add a line with the time to the notes beside ``path``. Returns the line."""
    words = "\n  ".join(line.rstrip() for line in text.strip().splitlines())
    if not words:
        raise UsageError("the note is empty")
    entry = f"- {_moment(now)} {words}\n"
    notes = path.with_name("notes.md")
    with _locked(path):
        before = (_pending.get() or {}).get(notes)
        if before is None:
            before = notes.read_bytes() if notes.exists() else b"# Notes\n"
        # Markdown needs an empty line before a list, but not between its items.
        last = before.rstrip().rsplit(b"\n", 1)[-1]
        gap = "" if last.startswith((b"- ", b"  ")) else "\n"
        newline = b"\r\n" if b"\r\n" in before else b"\n"
        added = f"\n{gap}{entry}".encode().replace(b"\n", newline)
        _write(notes, before.rstrip(b"\r\n") + added)
    return entry.rstrip("\n")


@contextlib.contextmanager
def together(path: Path) -> Iterator[None]:
    """Make all edits of the session at ``path`` in the block at once, or none if one is refused.

    They are kept in memory until the block ends; other commands wait for it.
    """
    with _locked(path):
        pending: dict[Path, bytes] = {}
        token = _pending.set(pending)
        try:
            yield
        finally:
            _pending.reset(token)
        for file, content in pending.items():
            write_atomic(file, content)


_pending: ContextVar[dict[Path, bytes] | None] = ContextVar("pending", default=None)
"""What edits have written in ``together``, by file."""


def _content(path: Path) -> bytes:
    pending = _pending.get()
    if pending is not None and path in pending:
        return pending[path]
    return read_bytes(path, _shown(path))


def _write(path: Path, content: bytes) -> None:
    pending = _pending.get()
    if pending is None:
        write_atomic(path, content)
    else:
        pending[path] = content


@contextlib.contextmanager
def _edited(
    path: Path, verb: str, allowed: tuple[str, ...] | None
) -> Iterator[tuple[Splice, Session]]:
    """Open the record at ``path`` for an edit. It is written only if it is still valid."""
    shown = _shown(path)
    with _locked(path):
        try:
            document = parse(_content(path), shown)
        except DocumentError as error:
            raise _invalid([error.finding]) from None
        before = validate(document, Session)
        if isinstance(before, list):
            raise _invalid(before)
        if allowed is not None and before.status not in allowed:
            wanted = " or ".join(allowed)
            raise UsageError(
                f"{before.id} is {before.status}; only a session that is {wanted} can {verb}"
            )
        edit = Splice(document)
        yield edit, before
        if isinstance(after := _validated(edit.text, shown), list):
            raise _invalid(after, "would be invalid after the change; nothing was written")
        if edit.text != document.text:
            _write(path, edit.text.encode())


def _validated(text: str, shown: str) -> Session | list[Finding]:
    try:
        return validate(parse(text.encode(), shown), Session)
    except DocumentError as error:
        return [error.finding]


def _end(edit: Splice, moment: str) -> None:
    _set_known(edit, "ended", moment)
    if edit.data.get("stretches"):
        edit.set_in("stretches", -1, "ended", moment)


def _set_known(edit: Splice, key: str, value: str) -> None:
    """Set a key, and remove the reason why it was unknown."""
    edit.set(key, value, _ORDER)
    edit.remove(["unknown", key])


@contextlib.contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Let no other command edit the session at ``path`` meanwhile."""
    with _locked(path):
        yield


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    if _pending.get() is not None:  # ``together`` holds it
        yield
        return
    folder = private_folder(path.parents[2], "locks")
    with lock(folder / f"{path.parent.name}.lock", timeout=30):
        yield


def _read(path: Path) -> Session:
    shown = _shown(path)
    try:
        loaded = validate(parse(_content(path), shown), Session)
    except DocumentError as error:
        loaded = [error.finding]
    if isinstance(loaded, list):
        raise _invalid(loaded)
    return loaded


def _invalid(findings: list[Finding], problem: str = "is invalid; correct it first") -> RecordError:
    lines = "\n".join(f"  {finding}" for finding in findings)
    return RecordError(f"{findings[0].path} {problem}:\n{lines}")


def _shown(path: Path) -> str:
    return f"sessions/{path.parent.name}/{path.name}"


def _moment(now: datetime | None, session: Session | None = None) -> str:
    """The time in the format of records. Refused if ``session`` has a later time."""
    at = now or datetime.now().astimezone()
    moment = at.isoformat(timespec="seconds")
    mark = None if session is None else last_mark(session)
    if session is not None and mark is not None and at < mark.at:
        what, instead = (moment, "give a later one") if now else (
            f"the clock says {moment}, which", "set the clock, give the time with --at"
        )  # fmt: skip
        raise UsageError(
            f"{what} is before {mark}, the latest time in the record of {session.id}; {instead},"
            " or correct the record"
        )
    return moment
