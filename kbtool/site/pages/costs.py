"""Where money and time went."""

from __future__ import annotations

from decimal import Decimal

from kbtool.model.session import Session
from kbtool.site import addresses as at
from kbtool.site.figures import minutes
from kbtool.site.index import Index
from kbtool.site.markup import join, nothing, nowrap, table
from kbtool.site.parts import page_title, section, session_cell, total

KINDS = ("gpu", "ai", "engineer", "other")


def page(index: Index) -> str:
    """Costs by session, by month, by kind."""
    sessions = list(index.sessions.values())
    if not any(session.costs for session in sessions):
        return join([page_title("Costs"), nothing("No session's record has a cost line yet.")])
    return join(
        [
            page_title("Costs"),
            "Sums of the cost lines in the records. What nobody knows is counted beside the sum,"
            " never as zero.",
            section("By kind", "by-kind", _by_kind(sessions)),
            section("By month", "by-month", _by_month(sessions)),
            section("By session", "by-session", _by_session(index)),
        ]
    )


def lines_of(sessions: list[Session], kind: str | None = None) -> str:
    """The money of all sessions, of one kind or of all."""
    return total([c for s in sessions for c in s.costs if kind in (None, c.kind)]) or "–"


def time_of(sessions: list[Session]) -> str:
    """The time of all sessions, with how many do not say."""
    known = [s.minutes for s in sessions if s.minutes is not None]
    missing = len(sessions) - len(known)
    if missing and not known:
        return "unknown"
    said = [minutes(sum(known, Decimal(0)))] if known else []
    return " + ".join(said + ([f"{missing} unknown"] if missing else [])) or "–"


def by_month(sessions: list[Session]) -> dict[str, list[Session]]:
    """Month → its sessions; those without a date under ``undated``, last."""
    months: dict[str, list[Session]] = {}
    for session in sessions:
        months.setdefault(session.day[:7] if session.day else "undated", []).append(session)
    return dict(sorted(months.items()))


def _by_kind(sessions: list[Session]) -> str:
    rows = [
        [kind, lines_of(sessions, kind)]
        for kind in KINDS
        if any(line.kind == kind for session in sessions for line in session.costs)
    ]
    rows.append(["**all**", f"**{lines_of(sessions)}**"])
    return table(["Kind", "Money"], rows, {1})


def _by_month(sessions: list[Session]) -> str:
    rows = [
        [month, str(len(those)), time_of(those), *(lines_of(those, k) for k in KINDS[:3]),
         lines_of(those)]
        for month, those in by_month(sessions).items()
    ]  # fmt: skip
    header = ["Month", "Sessions", "Time", "GPU", "AI", "Engineer", "All"]
    return table(header, rows, range(1, 7))


def _by_session(index: Index) -> str:
    rows = [
        [session_cell(index, s, at.COSTS), nowrap(s.day) if s.day else "undated", time_of([s]),
         *(lines_of([s], k) for k in KINDS[:3]), lines_of([s])]
        for s in index.sessions.values()
    ]  # fmt: skip
    everything = list(index.sessions.values())
    rows.append(
        ["**all**", "", f"**{time_of(everything)}**",
         *(f"**{lines_of(everything, k)}**" for k in KINDS[:3]), f"**{lines_of(everything)}**"]
    )  # fmt: skip
    header = ["Session", "Date", "Time", "GPU", "AI", "Engineer", "All"]
    return table(header, rows, range(2, 7))
