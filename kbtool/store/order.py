"""The order of sessions. Imports no models."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from kbtool.model.session_costs import Ordered, S


def in_order(sessions: Sequence[S]) -> list[S]:
    """Sessions in the order of the work: each after the session that it follows.

    Chains of sessions are sorted by their earliest day, then by the earliest ``started`` on that
    day, then by id. An undated first session stays with its chain. A time without a zone counts as
    UTC. Within a day, a chain without a time keeps its position by id, and chains with times fill
    the remaining positions in order of time. Sessions that follow each other in a cycle come last,
    by id.
    """
    by_id: dict[str, S] = {session.id: session for session in sessions}
    followers: dict[str | None, list[str]] = {}
    for id_ in sorted(by_id):
        before = by_id[id_].follows
        followers.setdefault(before if before in by_id else None, []).append(id_)
    # Loops instead of recursion: a chain may be longer than the stack is deep.
    reached = list(followers.get(None, []))
    for id_ in reached:
        reached.extend(followers.get(id_, []))
    first: dict[str, tuple[str, float]] = {}
    for id_ in reversed(reached):
        begun: list[tuple[str, float]] = [first[follower] for follower in followers.get(id_, [])]
        first[id_] = min([_begun(by_id[id_]), *begun])
    for line in followers.values():
        _sort_by_time(line, first)
    ordered: list[str] = []
    waiting = followers.get(None, [])[::-1]
    while waiting:
        id_ = waiting.pop()
        ordered.append(id_)
        waiting.extend(reversed(followers.get(id_, [])))
    return [by_id[id_] for id_ in (*ordered, *sorted(by_id.keys() - first.keys()))]


_UNKNOWN = ("9999", inf)
"""Day and time of an undated session: sorts after all dated ones."""


def _begun(session: Ordered) -> tuple[str, float]:
    """Sort key: the day of a session, and its start time."""
    began = session.began()
    if session.day is None or began is None:
        return session.day or _UNKNOWN[0], inf
    return session.day, began


def _sort_by_time(line: list[str], first: dict[str, tuple[str, float]]) -> None:
    """Sort sessions that follow the same session; see ``in_order``."""
    line.sort(key=lambda id_: (first.get(id_, _UNKNOWN)[0], id_))
    timed = [place for place, id_ in enumerate(line) if first.get(id_, _UNKNOWN)[1] != inf]
    # Each day has as many positions as sessions, so no session leaves its day.
    in_time = sorted((line[place] for place in timed), key=lambda id_: (first[id_], id_))
    for place, id_ in zip(timed, in_time, strict=True):
        line[place] = id_
