"""The session that a run goes to."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

from kbtool.model.errors import UsageError
from kbtool.model.run import MachineInfo
from kbtool.model.session import Session
from kbtool.store.authors import engineer
from kbtool.store.current import of_status, only
from kbtool.store.repository import repository_state
from kbtool.store.sessions import create_session, unsorted_session
from kbtool.store.tree import KnowledgeBase

NEW = "new"
"""The name of a session that is made for the run."""
CLOCK_SET = timedelta(minutes=1)
"""A clock that is off by less was not set: `kbtool check` accepts as much."""
OPTION = "--session {}"
"""How a command names a session, for messages."""


def destination(
    base: KnowledgeBase,
    machine: MachineInfo,
    name: str | None,
    title: str,
    naming: str = OPTION,
) -> str:
    """The id of the session that values from outside go to; it is made where there is none.

    Args:
        base: the knowledge base.
        machine: where the run was made.
        name: the session, if it was named.
        title: of a session that is made for it.
        naming: how the caller names a session, for messages.

    Raises:
        UserError: see ``session_to_append_to`` and ``refuse_before``.
    """
    session = session_to_append_to(base, name, naming=naming)
    if session is None:
        return session_for(base, machine, name, title)
    refuse_before(base.session(session).record, naming)
    return session


def session_to_append_to(
    base: KnowledgeBase, name: str | None, *, force: bool | None = None, naming: str = OPTION
) -> str | None:
    """The id of the session to append to; ``None`` where none is open, or a new one is wanted.

    Args:
        base: the knowledge base.
        name: the session, if it was named.
        force: whether a session that is not open will do; ``None`` if the caller cannot ask for it.
        naming: how the caller names a session, for messages.

    Raises:
        UsageError: the session is not open, or several could be meant.
    """
    if name == NEW:
        return None
    new = naming.format(NEW)
    if name is not None:
        given = base.session(name).record
        if given.status in ("running", "paused") or force:
            return given.id
        verb = "start" if given.status == "planned" else "resume"
        forced = "" if force is None else ", and --force appends the run to it as it is"
        raise UsageError(
            f"{given.id} is {given.status}: `kbtool session {verb} {given.id}` opens it, {new}"
            f" makes one for this run{forced}"
        )
    running = only(base, "running", f"{naming.format('ID')}, or {new}")
    if running is not None:
        return running.record.id
    paused = [entry.record for entry in of_status(base, "paused")]
    if paused:
        names = ", ".join(record.id for record in paused)
        which = names if len(paused) == 1 else "ID"
        choice = (
            f"`kbtool session resume {which}` continues it, {naming.format(which)} appends the run"
            f" to it as it is, {new} makes one for this run"
        )
        me = engineer(base.root)
        if me is not None and me in {record.engineer for record in paused}:
            raise UsageError(f"paused: {names}. Say where the run goes: {choice}")
        # They may be other people's sessions: no reason to stop the run.
        print(f"kbtool: paused: {names}; the run goes into the unsorted session of the day."
              f" {choice}", file=sys.stderr)  # fmt: skip
    return None


def refuse_before(session: Session, naming: str = OPTION) -> None:
    """Raise if the system clock says that the session has not begun: the run would lie outside."""
    now = datetime.now().astimezone()
    began = session.started
    if began is not None and began.zoned and now < began.at - CLOCK_SET:
        raise UsageError(
            f"the clock says {now.isoformat(timespec='seconds')}, before the start of {session.id},"
            f" {began}: set the clock, correct the record, or begin a run with"
            f" {naming.format(NEW)}"
        )


def session_for(
    base: KnowledgeBase,
    machine: MachineInfo,
    name: str | None,
    title: str,
    objective: str | None = None,
) -> str:
    """The id of a session for a run that ``session_to_append_to`` found none for: with ``new`` one
    of its own, with this title; else that of the day's stray runs, one for each machine."""
    repository = repository_state(base.root)
    if name != NEW:
        return unsorted_session(base, machine, repository).record.id
    # Complete from the start, so that other commands do not take it for an engineer's session.
    entry = create_session(
        base,
        status="complete",
        title=title,
        objective=objective,
        machine=machine,
        repository=repository,
    )
    return entry.record.id
