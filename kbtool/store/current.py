"""The session that is running or paused, and whose it is."""

from __future__ import annotations

from kbtool.model.errors import RecordError, UsageError
from kbtool.model.session import Session
from kbtool.store.authors import engineer
from kbtool.store.tree import Entry, KnowledgeBase


def only(base: KnowledgeBase, status: str, how: str) -> Entry[Session] | None:
    """The session of that status that belongs to git's user.name, or to nobody.

    Args:
        base: the knowledge base.
        status: what it has to be.
        how: how to name another one, for the message.

    Returns:
        ``None`` if there is none.

    Raises:
        UsageError: there are several, or it is another engineer's.
        RecordError: a session does not load, and its text states that status.
    """
    unsound = base.unsound_of_status(status)
    if unsound is not None:
        raise RecordError(
            f"a session that says it is {status} does not load; correct it, or say which session"
            f" you mean: {how}\n  {unsound}"
        )
    there = of_status(base, status)
    if not there:
        return None
    me = engineer(base.root)
    own = [entry for entry in there if me is not None and entry.record.engineer == me]
    if len(own) == 1:
        return own[0]
    names = ", ".join(_whose(entry.record) for entry in there)
    if len(there) > 1:
        raise UsageError(f"more than one session is {status}: {names}; say which: {how}")
    if me is not None and there[0].record.engineer is not None:
        raise UsageError(
            f"the session that is {status} is another's: {names}, and git's user.name is {me}; say"
            f" which you mean: {how}, or begin your own: kbtool session new TITLE"
        )
    return there[0]


def of_status(base: KnowledgeBase, status: str) -> list[Entry[Session]]:
    """The sessions of that status; one transcribed from an old log cannot be continued."""
    return [
        entry
        for entry in base.sessions.values()
        if entry.record.status == status and entry.record.origin not in ("log", "mention")
    ]


def _whose(record: Session) -> str:
    return record.id if record.engineer is None else f"{record.id} ({record.engineer})"
