"""Sessions as ``kbtool status`` sees them: read once, then from a cache until a file changes.

A prompt asks at every command; with nothing changed no model is imported and no YAML read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kbtool.ledger.budget import Line, MonthBox, Sitting
from kbtool.model.finding import Finding
from kbtool.store.cache import Cache, code_digest, now_ns
from kbtool.store.read import read_stamped
from kbtool.store.scan import File, Stamp, scan_costs

if TYPE_CHECKING:
    from kbtool.model.ledger import Ledger
    from kbtool.model.session import Session


class Read(NamedTuple):
    """What was read."""

    sittings: list[Sitting]
    months: list[MonthBox]
    findings: list[Finding]
    """Records that do not load, and so are in none of the sums."""


def read_sittings(root: Path) -> Read:
    """Every session under ``root``, and the boxes of the months."""
    files = scan_costs(str(root))
    package = Path(__file__).parents[1]
    folders = {name: package / name for name in ("ledger", "model", "store")}
    cache = Cache(str(root), "status", code_digest(folders, ("pydantic", "pydantic_core", "yaml")))
    read = Read([], [], [])
    read_at = now_ns()
    for file in files:
        kept = cache.get(file.path, file.stamp)
        if kept is None:
            stamp, kept = _examine(str(root), file)
            cache.put(file.path, stamp, kept, read_at)
        what, values = kept
        if what == "session":
            read.sittings.append(_sitting(values))
        elif what == "ledger":
            read.months.extend(MonthBox(*value) for value in values)
        else:
            read.findings.extend(Finding(*value) for value in values)
    cache.save(file.path for file in files)
    return read


def _examine(root: str, file: File) -> tuple[Stamp, Any]:
    """What a file says, as JSON."""
    from kbtool.model.ledger import Ledger
    from kbtool.model.session import Session
    from kbtool.store.document import MAX_BYTES, DocumentError, parse
    from kbtool.store.load import validate

    found = read_stamped(root, file.path, MAX_BYTES)
    if isinstance(found, Finding):
        return file.stamp, ["findings", [found]]
    raw, stamp = found
    try:
        document = parse(raw, file.path)
    except DocumentError as error:
        return stamp, ["findings", [error.finding]]
    if file.kind == "ledger":
        ledger = validate(document, Ledger)
        if isinstance(ledger, list):
            return stamp, ["findings", ledger]
        return stamp, ["ledger", months_of(ledger)]
    session = validate(document, Session)
    if isinstance(session, list):
        return stamp, ["findings", session]
    return stamp, ["session", sitting_of(session)]


def _sitting(values: list[Any]) -> Sitting:
    one = Sitting(*values)
    return one._replace(
        stretches=[(began, ended) for began, ended in one.stretches],
        lines=[Line(*line) for line in one.lines],
    )


def sitting_of(session: Session) -> Sitting:
    """A session, as far as its boxes go."""
    from kbtool.model.price import currency_of, per_hour

    lines = [
        Line(
            line.kind, line.currency, None if line.amount is None else str(line.amount),
            str(per_hour(line.rate)) if line.is_open and line.rate is not None else None,
        )
        for line in session.costs
    ]  # fmt: skip
    times = [(stretch.started, stretch.ended) for stretch in session.stretches]
    if not times and session.started is not None:
        times = [(session.started, session.ended)]
    stretches = [(began.text, None if ended is None else ended.text) for began, ended in times]
    time, money = session.budget_time, session.budget_money
    return Sitting(
        session.id, session.label, session.status, session.day,
        None if session.minutes is None else str(session.minutes), stretches, lines,
        None if time is None else str((time.high or time.low) * time.MINUTES[time.unit]),
        None if money is None else str(money.high or money.low),
        None if money is None else currency_of(money),
    )  # fmt: skip


def months_of(ledger: Ledger) -> list[MonthBox]:
    """The boxes of the months."""
    from kbtool.model.price import currency_of

    return [
        MonthBox(
            budget.month,
            None if budget.time is None else str(budget.time.minutes),
            None if budget.money is None else str(budget.money.high or budget.money.low),
            None if budget.money is None else currency_of(budget.money),
        )
        for budget in ledger.budgets
    ]
