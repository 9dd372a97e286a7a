"""The costs of every session and the budgets of months, for ``kbtool status``, from a cache.

A prompt asks at every command; with nothing changed no model is imported and no YAML read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kbtool.ledger.budget import MonthLimits
from kbtool.model.finding import Finding
from kbtool.model.session_costs import SessionCosts
from kbtool.store.derived import derive_all, is_unsound
from kbtool.store.scan import scan_costs
from kbtool.store.session_costs import session_costs_in

if TYPE_CHECKING:
    from kbtool.model.ledger import Ledger
    from kbtool.store.document import Document


class Read(NamedTuple):
    """What was read."""

    sessions: list[SessionCosts]
    months: list[MonthLimits]
    findings: list[Finding]
    """Records that do not load, and so are in none of the sums."""


def read_session_costs(root: Path) -> Read:
    """The costs of every session under ``root``, and the budgets of months."""
    files = scan_costs(str(root))
    records = [file for file in files if file.kind == "session"]
    sessions, findings = session_costs_in(str(root), records)
    read = Read(sessions, [], findings)
    ledgers = [file for file in files if file.kind == "ledger"]
    for made in derive_all(str(root), ledgers, _months, "budgets"):
        if is_unsound(made):
            read.findings.extend(made)
        else:
            read.months.extend(MonthLimits(*value) for value in made)
    return read


def _months(document: Document) -> Any:
    from kbtool.model.ledger import Ledger
    from kbtool.store.load import validate

    ledger = validate(document, Ledger)
    return ledger if isinstance(ledger, list) else months_of(ledger)


def months_of(ledger: Ledger) -> list[MonthLimits]:
    """The budgets of months."""
    from kbtool.model.price import currency_of

    return [
        MonthLimits(
            budget.month,
            None if budget.time is None else str(budget.time.minutes),
            None if budget.money is None else str(budget.money.high or budget.money.low),
            None if budget.money is None else currency_of(budget.money),
        )
        for budget in ledger.budgets
    ]
