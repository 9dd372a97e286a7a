"""What sessions say that only the rest of the knowledge base can bear out: their order, commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from kbtool.model.address import item_key
from kbtool.model.base import Instant, Model
from kbtool.model.session import Session
from kbtool.store.history import commits_known

M = TypeVar("M", bound=Model)


class Ties(NamedTuple):
    """What one session says of the session before it and of the repository."""

    follows: str | None
    moments: list[tuple[str, Instant]]
    """When it was started, ended and updated, as far as it says so, by field."""
    commit: str | None
    """The commit that it worked on."""
    commits: list[tuple[str, str]]
    """Path and commit of each fix and of each entry of its commits."""


def ties_of(session: Session) -> Ties:
    """The ties of a session."""
    named = [
        *((f"{path}.commit", fix.commit) for path, fix in paths_of("fixes", session.fixes)),
        *((f"commits.{entry.id}.sha", entry.sha) for entry in session.commits),
    ]
    times = {"started": session.started, "ended": session.ended, "updated": session.updated}
    return Ties(
        session.follows,
        [(name, moment) for name, moment in times.items() if moment is not None],
        session.repository.commit if session.repository else None,
        [(path, commit) for path, commit in named if commit is not None],
    )


def paths_of(key: str, items: Sequence[M]) -> Iterator[tuple[str, M]]:
    """The items of a list by paths of their own: the place, from 0, of several of one name."""
    names = [item_key(item) for item in items]
    uses = Counter(names)
    for place, item in enumerate(items):
        name = names[place] if uses[names[place]] == 1 else None
        yield f"{key}.{name or place}", item


class Before(NamedTuple):
    """The last moment that is known before a session begins."""

    session: str
    field: str
    moment: Instant


class Around(NamedTuple):
    """All sessions, as far as a claim of one of them needs them."""

    ties: Mapping[str, Ties]
    """Session → its ties, in the order of the work."""
    before: Mapping[str, Before | None] | None = None
    """Session → the end of the session that it follows, or of the nearest before that has one;
    ``None`` while not all sessions are read."""
    commits: Mapping[str, bool] | None = None
    """Commit → whether the repository has it; empty where that cannot be told, ``None`` while not
    all sessions are read."""


def around(root: str, ties: Mapping[str, Ties]) -> Around:
    """What is known of all sessions, whose ``ties`` are in the order of the work."""
    before: dict[str, Before | None] = {}
    last: dict[str, Before | None] = {}
    for id_, (follows, moments, _, _) in ties.items():
        before[id_] = last[id_] = last.get(follows) if follows else None
        if moments:
            work = [one for one in moments if one[0] != "updated"] or moments
            last[id_] = Before(id_, *work[-1])
    return Around(ties, before, commits_known(root, _commits(ties.values())))


def _commits(ties: Iterable[Ties]) -> Iterator[str]:
    for one in ties:
        if one.commit:
            yield one.commit
        for _, commit in one.commits:
            yield commit
