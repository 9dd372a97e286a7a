"""The sessions and the boxes of the months, as ``kbtool status`` reads them, from a cache.

A prompt asks at every command; with nothing changed no model is imported and no YAML read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kbtool.ledger.budget import MonthBox
from kbtool.model.finding import Finding
from kbtool.model.sitting import Sitting
from kbtool.store.derived import derive_all, is_unsound
from kbtool.store.scan import scan_costs
from kbtool.store.sittings import sittings_in

if TYPE_CHECKING:
    from kbtool.model.ledger import Ledger
    from kbtool.store.document import Document


class Read(NamedTuple):
    """What was read."""

    sittings: list[Sitting]
    months: list[MonthBox]
    findings: list[Finding]
    """Records that do not load, and so are in none of the sums."""


def read_sittings(root: Path) -> Read:
    """Every session under ``root``, and the boxes of the months."""
    files = scan_costs(str(root))
    sessions = [file for file in files if file.kind == "session"]
    sittings, findings = sittings_in(str(root), sessions)
    read = Read(sittings, [], findings)
    ledgers = [file for file in files if file.kind == "ledger"]
    for made in derive_all(str(root), ledgers, _months, "budgets"):
        if is_unsound(made):
            read.findings.extend(made)
        else:
            read.months.extend(MonthBox(*value) for value in made)
    return read


def _months(document: Document) -> Any:
    from kbtool.model.ledger import Ledger
    from kbtool.store.load import validate

    ledger = validate(document, Ledger)
    return ledger if isinstance(ledger, list) else months_of(ledger)


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
