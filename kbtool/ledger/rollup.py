"""Where money and time went: sums over sessions, and what the sums do not cover.

Pure functions of records. A figure that nobody knows is ``None`` and is counted; it is never zero.
A session that belongs to several patterns or kernels stands in the row of each; the total counts it
once, and what the rows count more than once is told (``Rollup.repeated``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from itertools import product
from typing import Literal, get_args

from kbtool.model.errors import UsageError
from kbtool.model.run import Run
from kbtool.model.session import Session
from kbtool.model.session_costs import Line, S, SessionCosts

By = Literal[
    "session", "day", "week", "month", "kind", "card", "pattern", "kernel", "engineer", "outcome",
]  # fmt: skip

BY: tuple[By, ...] = get_args(By)

Costed = Session | SessionCosts
"""What sums are over: a record, or as much of it as they need."""

KINDS = ("gpu", "ai", "engineer", "other")
"""The kinds of cost line, in the order of the columns."""

EXPECTED = ("minutes", "gpu", "ai", "engineer")
"""What every session is taken to have cost: one that does not say is counted as unknown."""

NOWHERE: dict[By, str] = {
    "day": "undated", "week": "undated", "month": "undated", "card": "unstated",
    "pattern": "none", "kernel": "none", "engineer": "unstated", "outcome": "unknown",
}  # fmt: skip
"""The key of what a grouping has no place for: it is not attributed. It comes last."""

IN_TIME = frozenset(("session", "day", "week", "month"))
"""Groupings whose rows come one after the other, so that a running total means something."""

_OUTCOMES = ("planned", "running", "paused", "complete", "terminated")

_LABELS = {("pattern", "none"): "no pattern", ("kernel", "none"): "no kernel"}


@dataclass
class Row:
    """One line of the table: sums over the sessions that share a key."""

    key: str
    """The keys, joined by ``/``."""
    label: str
    keys: tuple[str, ...] = ()
    """One key a grouping."""
    labels: tuple[str, ...] = ()
    minutes: Decimal | None = None
    gpu: Decimal | None = None
    ai: Decimal | None = None
    engineer: Decimal | None = None
    other: Decimal | None = None
    attributed: bool = True
    """Whether every grouping has a place for what is in the row."""
    sessions: set[str] = field(default_factory=set)
    """Ids of the sessions in the row."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Column → in how many of these sessions it, or a part of it, is not known."""
    planned: set[str] = field(default_factory=set)
    """Ids of those that have taken nothing yet."""
    priced: set[str] = field(default_factory=set)
    """Ids of those of which an amount is known, in the currency of the sums."""
    estimated: set[str] = field(default_factory=set)
    """Ids of those whose GPU is priced by the time of their runs, which no record states."""
    foreign: set[str] = field(default_factory=set)
    """Kinds of cost of which an amount is in another currency; they are in ``unknown`` too."""

    @property
    def total(self) -> Decimal | None:
        """The sum of the money that is known; ``None`` if none is."""
        known = [amount for kind in KINDS if (amount := getattr(self, kind)) is not None]
        return sum(known, Decimal(0)) if known else None

    @property
    def coverage(self) -> str:
        """Of how many sessions that began the money is known, at least in part: ``14 of 35``."""
        return f"{len(self.priced)} of {len(self.sessions - self.planned)}"

    def add(self, column: str, amount: Decimal | None) -> None:
        """Add a known figure to a column."""
        if amount is not None:
            setattr(self, column, (getattr(self, column) or Decimal(0)) + amount)

    def miss(self, column: str) -> None:
        """Count a figure that is not known."""
        self.unknown[column] = self.unknown.get(column, 0) + 1


@dataclass(frozen=True)
class Rollup:
    """The table and its last line."""

    by: tuple[By, ...]
    currency: str | None
    """``None`` where nothing was paid for."""
    rows: list[Row]
    total: Row
    attributed: Decimal
    """Of the total: what every grouping has a place for."""
    unattributed: Decimal
    """The rest: undated, of no pattern and so on. With ``attributed`` it is the total."""
    repeated: Decimal
    """By how much the rows together exceed the total."""
    shared: set[str]
    """Ids of the sessions that stand in several rows as a whole."""
    other_currencies: dict[str, int]
    """Currency → cost lines that are left out of the sums."""


@dataclass(frozen=True)
class Links:
    """What sessions belong to: session id → patterns, kernels."""

    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kernels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def links_of(sessions: Sequence[Costed], runs: Iterable[Run]) -> Links:
    """The patterns and kernels of each session, in order of their ids.

    A session belongs to a pattern if it gives evidence of it, did a step by it, or ran a recipe of
    it; to a kernel if its record names it, or a run in it was of it.
    """
    patterns = {session.id: set(session.named_patterns()) for session in sessions}
    kernels = {session.id: set(session.kernels) for session in sessions}
    for run in runs:
        if run.session in patterns:
            if run.pattern is not None:
                patterns[run.session].add(run.pattern)
            if run.kernel is not None:
                kernels[run.session].add(run.kernel)
    return Links(
        {name: tuple(sorted(ids)) for name, ids in patterns.items()},
        {name: tuple(sorted(ids)) for name, ids in kernels.items()},
    )


def roll_up(
    sessions: Sequence[Costed],
    by: By | Sequence[By],
    currency: str | None = None,
    links: Links | None = None,
) -> Rollup:
    """Sum ``sessions``, in their order, by one grouping or by several at once.

    Args:
        sessions: the sessions to sum.
        by: what makes a row. By ``kind``, a row's minutes are those that its lines state, and the
            total has none: what is paid for at the same time does not add up. By ``card``, a cost
            line counts for the card it names, else for the session's. ``engineer`` is who worked,
            whatever was paid for; ``outcome`` is how a session ended. Weeks are those of ISO 8601.
        currency: the currency to sum; needed where there are several, which are never added up.
        links: what ``pattern`` and ``kernel`` group by; without it every session belongs to none.

    Raises:
        UsageError: there are several currencies and none was chosen, or the chosen one is not used;
            a grouping is named twice.
    """
    groupings: tuple[By, ...] = (by,) if isinstance(by, str) else tuple(by)
    if len(set(groupings)) < len(groupings):
        raise UsageError(f"--by {','.join(groupings)} names a grouping twice")
    used = {line.currency for session in sessions for line in session.costs}
    summing = _Summing(groupings, _currency(used, currency), links or Links())
    for session in sessions:
        summing.add(session)
    return summing.table({session.id: at for at, session in enumerate(sessions)})


def select_range(ordered: Sequence[S], first: str | None, last: str | None) -> list[S]:
    """The sessions from one id to another, both included, in the order of the work.

    Args:
        ordered: all sessions.
        first: the first id; ``None`` begins with the first of all.
        last: the last id; ``None`` ends with the last of all.

    Raises:
        UsageError: the second comes before the first.
    """
    ids = [session.id for session in ordered]
    start = 0 if first is None else ids.index(first)
    end = len(ids) - 1 if last is None else ids.index(last)
    if end < start:
        raise UsageError(f"{last} comes before {first} in the order of the work; swap them")
    return list(ordered[start : end + 1])


def _currency(used: set[str], wanted: str | None) -> str | None:
    if wanted is not None:
        if used and wanted not in used:
            raise UsageError(f"nothing was paid in {wanted}; there is {', '.join(sorted(used))}")
        return wanted
    if len(used) > 1:
        names = ", ".join(sorted(used))
        raise UsageError(
            f"costs are in several currencies ({names}), which cannot be added: choose one with"
            f" --currency {min(used)}"
        )
    return next(iter(used), None)


class _Summing:
    """Adds sessions to the rows that they belong to, one after the other."""

    def __init__(self, by: tuple[By, ...], currency: str | None, links: Links) -> None:
        self.by = by
        self.currency = currency
        self.links = links
        self.rows: dict[tuple[str, ...], Row] = {}
        self.total = Row("total", "total")
        self.attributed = self.unattributed = self.repeated = Decimal(0)
        self.shared: set[str] = set()
        self.left_out: dict[str, int] = {}

    def add(self, session: Costed) -> None:
        """Count a session: its time, its cost lines, and what it does not say."""
        self.places: dict[tuple[str, str | None], list[Row]] = {}
        missed: dict[int, tuple[Row, dict[str, None]]] = {}

        def miss(row: Row, kind: str) -> None:
            missed.setdefault(id(row), (row, {}))[1][kind] = None

        self.total.sessions.add(session.id)
        if session.status == "planned" and not session.costs:
            # It has taken nothing yet: there is nothing that nobody knows.
            for row in (self.total, *(() if "kind" in self.by else self.rows_of(session))):
                row.sessions.add(session.id)
                row.planned.add(session.id)
            return
        if "kind" not in self.by:
            rows = self.rows_of(session)
            if len(rows) > 1:
                self.shared.add(session.id)
            for row in (self.total, *rows):
                row.sessions.add(session.id)
                row.add("minutes", session.minutes)
                if session.minutes is None:
                    row.miss("minutes")
        for line in session.costs:
            if line.currency != self.currency:
                self.left_out[line.currency] = self.left_out.get(line.currency, 0) + 1
                if line.amount is not None:
                    for row in (self.total, *self.rows_of(session, line.kind, line.card)):
                        row.sessions.add(session.id)
                        row.foreign.add(line.kind)
                        miss(row, line.kind)
                    continue
            rows = self.rows_of(session, line.kind, line.card)
            self.attribute(line.amount, rows)
            for row in (self.total, *rows):
                row.sessions.add(session.id)
                row.add(line.kind, line.amount)
                if line.amount is None:
                    miss(row, line.kind)
                    continue
                row.priced.add(session.id)
                if isinstance(line, Line) and line.from_runs:
                    row.estimated.add(session.id)
            if "kind" in self.by:
                if len(rows) > 1:
                    self.shared.add(session.id)
                minutes = line.stated_minutes()
                for row in rows:
                    row.add("minutes", minutes)
                    if minutes is None:
                        miss(row, "minutes")
        stated = {line.kind for line in session.costs}
        for kind in (one for one in EXPECTED[1:] if one not in stated):
            miss(self.total, kind)
            for row in self.rows_of(session, kind):
                row.sessions.add(session.id)
                miss(row, kind)
                if "kind" in self.by:
                    miss(row, "minutes")
        for row, columns in missed.values():
            for column in columns:
                row.miss(column)

    def rows_of(self, session: Costed, kind: str = "", card: str | None = None) -> list[Row]:
        """The rows that a session, or a line in it, belongs to."""
        place = (kind if "kind" in self.by else "", card if "card" in self.by else None)
        if place not in self.places:
            keys = [
                (kind,) if by == "kind"
                else (session.card_of(card) or NOWHERE["card"],) if by == "card"
                else _KEYS[by](session, self.links)
                for by in self.by
            ]  # fmt: skip
            self.places[place] = [self.row(session, combined) for combined in product(*keys)]
        return self.places[place]

    def row(self, session: Costed, keys: tuple[str, ...]) -> Row:
        """The row of these keys, made if need be."""
        if keys not in self.rows:
            labels = tuple(
                session.label if by == "session" else _LABELS.get((by, key), key)
                for by, key in zip(self.by, keys, strict=True)
            )
            row = Row("/".join(keys), " · ".join(labels), keys, labels)
            row.attributed = not any(map(_is_nowhere, self.by, keys))
            self.rows[keys] = row
        return self.rows[keys]

    def attribute(self, amount: Decimal | None, rows: list[Row]) -> None:
        """Count an amount once, as attributed or not, and what its rows count beyond that."""
        if amount is None:
            return
        if rows[0].attributed:
            self.attributed += amount
        else:
            self.unattributed += amount
        if len(rows) > 1:
            self.repeated += amount * (len(rows) - 1)

    def table(self, order: Mapping[str, int]) -> Rollup:
        """The rows in their order.

        Args:
            order: session id → its place in the order of the work.
        """

        def place(row: Row) -> list[tuple[bool, int, str]]:
            return [
                (_is_nowhere(by, key), _ORDER[by](key, order), key)
                for by, key in zip(self.by, row.keys, strict=True)
            ]

        return Rollup(
            self.by, self.currency, sorted(self.rows.values(), key=place), self.total,
            self.attributed, self.unattributed, self.repeated, self.shared, self.left_out,
        )  # fmt: skip


def _is_nowhere(by: By, key: str) -> bool:
    return key == NOWHERE.get(by)


def _week(session: Costed, links: Links) -> tuple[str, ...]:
    if session.day is None:
        return (NOWHERE["week"],)
    year, week, _ = date.fromisoformat(session.day).isocalendar()
    return (f"{year}-W{week:02d}",)


_KEYS: dict[By, Callable[[Costed, Links], tuple[str, ...]]] = {
    "session": lambda session, links: (session.id,),
    "day": lambda session, links: (session.day or NOWHERE["day"],),
    "week": _week,
    "month": lambda session, links: (session.day[:7] if session.day else NOWHERE["month"],),
    "card": lambda session, links: (session.card_of() or NOWHERE["card"],),
    "pattern": lambda session, links: links.patterns.get(session.id) or (NOWHERE["pattern"],),
    "kernel": lambda session, links: links.kernels.get(session.id) or (NOWHERE["kernel"],),
    "engineer": lambda session, links: (session.engineer or NOWHERE["engineer"],),
    "outcome": lambda session, links: (session.status,),
}

_Place = Callable[[str, Mapping[str, int]], int]


def _as_listed(names: Sequence[str]) -> _Place:
    return lambda key, order: names.index(key) if key in names else len(names)


_ORDER: dict[By, _Place] = {
    **dict.fromkeys(BY, lambda key, order: 0),
    "session": lambda key, order: order[key],
    "kind": _as_listed(KINDS),
    "outcome": _as_listed(_OUTCOMES),
}
"""What comes before the key itself in the order of the rows."""


@dataclass(frozen=True)
class Running:
    """Sums of all rows up to one of them."""

    minutes: Decimal | None
    total: Decimal | None


def heading(by: By) -> str:
    """What heads the column of a grouping: its name, where no column of money has that name."""
    return f"by {by}" if by in KINDS else by


def running(table: Rollup) -> list[Running]:
    """The running total beside each row; of the last it is the total.

    Raises:
        UsageError: the rows do not come one after the other, or count sessions more than once.
    """
    if table.by[0] not in IN_TIME:
        raise UsageError(
            f"--running needs rows in the order of time, and --by {','.join(table.by)} has none:"
            f" begin with {', '.join(by for by in BY if by in IN_TIME)}"
        )
    if {"pattern", "kernel"} & set(table.by):
        raise UsageError(
            "--running would count a session once for each of its patterns or kernels: leave them"
            " out of --by"
        )
    running_total = Row("", "")
    sums = []
    for row in table.rows:
        running_total.add("minutes", row.minutes)
        running_total.add("other", row.total)
        sums.append(Running(running_total.minutes, running_total.other))
    return sums
