"""The options that select sessions: ``--session``, ``--since`` and ``--until``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kbtool.cli.complete import session_names

if TYPE_CHECKING:
    from kbtool.model.session import Session
    from kbtool.model.session_costs import S
    from kbtool.store.tree import KnowledgeBase


class Selection(NamedTuple):
    """The values of the options."""

    names: tuple[str, ...]
    since: str | None
    until: str | None


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as one argument, ``selection``."""

    @wraps(command)
    def gathered(*args: Any, names: Any, since: Any, until: Any, **others: Any) -> Any:
        return command(*args, selection=Selection(names, since, until), **others)

    for option in (
        click.option("--until", metavar="YYYY-MM-DD", help="Only sessions of this day or earlier."),
        click.option("--since", metavar="YYYY-MM-DD", help="Only sessions of this day or later."),
        click.option(
            "--session",
            "names",
            multiple=True,
            shell_complete=session_names,
            metavar="ID|LABEL|A..B|A..|..B",
            help="Only this session, or those from A to B as `kbtool session list` orders them;"
            " repeatable.",
        ),
    ):
        option(gathered)
    return gathered


def select_sessions(base: KnowledgeBase, selection: Selection) -> tuple[list[Session], int]:
    """The selected sessions in the order of the work, and how many were left out without a date.

    Raises:
        UsageError: a range or a day is not valid.
        NotFoundError: there is no such session.
    """
    return select_of(base, [entry.record for entry in base.sessions.values()], selection)


def select_of(base: KnowledgeBase, ordered: list[S], selection: Selection) -> tuple[list[S], int]:
    """The same of ``ordered``, all sessions in the order of the work.

    Raises:
        UsageError: a range or a day is not valid.
        NotFoundError: there is no such session.
    """
    return _between(_named(base, ordered, selection.names), selection.since, selection.until)


def day_option(option: str, day: str | None) -> str | None:
    """The value of an option that takes a day.

    Raises:
        UsageError: it is not a valid day.
    """
    from datetime import date

    from kbtool.model.errors import UsageError

    if day is None:
        return None
    try:
        valid = date.fromisoformat(day).isoformat() == day
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(f"{option}: {day!r} is no day; write YYYY-MM-DD")
    return day


def _named(base: KnowledgeBase, ordered: list[S], names: tuple[str, ...]) -> list[S]:
    """The sessions that are named; all if none is."""
    from kbtool.ledger.rollup import select_range
    from kbtool.model.errors import UsageError

    if not names:
        return ordered
    labels = {session.id: session.label for session in ordered}
    wanted: set[str] = set()
    for name in names:
        first, dots, last = (part.strip() for part in name.partition(".."))
        if not first and not last:
            raise UsageError(
                f"--session {name!r} names no session; write ID, LABEL, A..B, A.. or ..B"
            )
        start, end = (base.session_named(part, labels) if part else None for part in (first, last))
        chosen = select_range(ordered, start, end if dots else start)
        wanted.update(session.id for session in chosen)
    return [session for session in ordered if session.id in wanted]


def _between(sessions: list[S], since: str | None, until: str | None) -> tuple[list[S], int]:
    since, until = day_option("--since", since), day_option("--until", until)
    if since is None and until is None:
        return sessions, 0
    dated = [session for session in sessions if session.day is not None]
    kept = [s for s in dated if (since or "") <= (s.day or "") <= (until or "9999-99-99")]
    return kept, len(sessions) - len(dated)
