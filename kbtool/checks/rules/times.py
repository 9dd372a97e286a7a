"""Sessions have an end, and their runs lie within them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kbtool.checks.facts import fact
from kbtool.checks.tree import Rule, Tree
from kbtool.model.finding import Finding
from kbtool.store.lock import is_locked

if TYPE_CHECKING:
    from kbtool.model.session import Session


@fact("session", empty=False)
def unended(session: Session) -> bool:
    """Whether a session that kbtool made is over, and has a start but no end."""
    return (
        session.origin == "tool"
        and session.status in {"complete", "terminated"}
        and session.started is not None
        and session.ended is None
    )


@fact("session", empty={})
def times(session: Session) -> dict[str, str]:
    """When it ``started`` and ``ended``, as stated, where the zone is known."""
    stated = {"started": session.started, "ended": session.ended}
    return {name: at.text for name, at in stated.items() if at is not None and at.zoned}


def sessions_end(tree: Tree) -> Iterator[Finding]:
    """A session that kbtool made and that is over has an end, unless a run in it is under way."""
    from pathlib import Path

    for facts in tree.sessions.values():
        if not unended.of(facts):
            continue
        runs = f"{facts.path.removesuffix('session.yaml')}runs/"
        journals = [path for path in tree.scan.journals if path.startswith(runs)]
        if not any(is_locked(Path(tree.root, path)) for path in journals):
            message = "is over and has a start, but no end: write ended"
            yield tree.at(facts, ["started"], "times", message)


def runs_lie_within_their_session(tree: Tree) -> Iterator[Finding]:
    """A run was made while its session lasted, unless it was imported from another one."""
    there = {file.path for file in tree.scan.files}
    for facts in tree.runs:
        session = tree.sessions.get(facts.run.get("session", ""))
        # A run that is about to be imported is reported by the import.
        if session is None or facts.run["taken_in"] or facts.path not in there:
            continue
        problem = _outside(facts.run, times.of(session))
        if problem is not None:
            yield Finding(
                facts.path, 1, "times",
                f"{problem}: correct the times of {session.id}; `stretches` records pauses",
            )  # fmt: skip


def _outside(run: Mapping[str, str], times: Mapping[str, str]) -> str | None:
    """How a run lies outside the times of its session, or ``None``."""
    run_started, run_ended = (datetime.fromisoformat(run[key]) for key in ("started", "ended"))
    if "started" in times:
        began = datetime.fromisoformat(times["started"])
        if run_ended < began - _CLOCK:
            return f"was made before the session began ({times['started']})"
        if run_started < began - _CLOCK:
            return f"began before the session did ({times['started']})"
    if "ended" in times:
        ended = datetime.fromisoformat(times["ended"]) + _CLOCK
        if run_started > ended:
            return f"was made after the session ended ({times['ended']})"
        if run_ended > ended:
            return f"ended after the session did ({times['ended']})"
    return None


_CLOCK = timedelta(minutes=1)
"""Times are stated to the minute at times, and the clocks of two machines differ."""


RULES: tuple[Rule, ...] = (sessions_end, runs_lie_within_their_session)
