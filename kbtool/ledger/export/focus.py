"""Costs as a FOCUS 1.2 dataset: the FinOps Open Cost and Usage Specification, as CSV.

What goes where, and why, is decided in docs/adr/0014-exports.md. Every MUST of the specification
on the columns here is a rule in tests/ledger/focus_rules.py.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal

from kbtool.ledger.export.lines import (
    UNDATED,
    UNKNOWN,
    Entry,
    Export,
    as_text,
    entries,
    month_after,
    one_line,
)
from kbtool.ledger.rollup import Links
from kbtool.model.money import amount_json, amount_text, half_up
from kbtool.model.session import Session
from kbtool.model.words import many

SERVICES = {
    "gpu": ("GPU", "Compute", "Virtual Machines"),
    "ai": ("AI assistant", "AI and Machine Learning", "Generative AI"),
    "other": ("Other", "Other", "Other (Other)"),
}
"""Kind of cost → ServiceName, ServiceCategory, ServiceSubcategory. Engineers are no service that a
provider charges for."""

COLUMNS = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceId",
    "InvoiceIssuerName",
    "ListCost",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "x_Card",
    "x_CostBasis",
    "x_CostKind",
    "x_CostLine",
    "x_DayDeclared",
    "x_PatternIds",
    "x_Rate",
    "x_RateId",
    "x_SessionId",
    "x_SessionLabel",
    "x_Source",
)
"""All mandatory columns of FOCUS 1.2, three recommended ones, and ours."""

SELF = "kbtool"
"""Who provides, publishes and invoices where nobody is named: as for internal offerings, the
product that the costs are reported by."""


def focus(
    sessions: Sequence[Session],
    links: Links | None = None,
    undated: date | None = None,
    account: str = SELF,
    providers: Mapping[str, str] | None = None,
) -> Export:
    """The amounts that are known, a row a cost line.

    Args:
        sessions: in the order of the work.
        links: the patterns that they belong to; as their records alone have it where not given.
        undated: the day to enter sessions without a date at; they are left out where not given.
        account: the billing account's id.
        providers: kind of cost → who sold it.
    """
    named = providers or {}
    within: set[str] = set()
    export = Export(b"", 0, within)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    engineers: dict[str, Decimal] = {}
    unnamed: set[str] = set()
    numberless = 0
    for entry in entries(sessions, links, undated):
        line = entry.line
        if line.kind == "engineer":
            reason = "for engineers, whom no provider charges for"
            if line.amount is not None:
                so_far = engineers.get(line.currency, Decimal(0))
                engineers[line.currency] = so_far + line.amount
        elif line.amount is None:
            reason = UNKNOWN
        elif entry.day is None:
            reason = UNDATED
        else:
            export.written += 1
            within.add(entry.session.id)
            if line.kind not in named:
                unnamed.add(line.kind)
            numberless += line.basis == "billed" and line.invoice is None
            row = _row(entry, line.amount, entry.day, account, named)
            writer.writerow({name: cell and as_text(cell) for name, cell in row.items()})
            continue
        export.left_out[reason] = export.left_out.get(reason, 0) + 1
    export.data = text.getvalue().encode()
    for currency, amount in engineers.items():
        export.notes.append(f"not in it: {amount_text(amount)} {currency} for engineers")
    if numberless:
        verb = "names" if numberless == 1 else "name"
        export.notes.append(
            f"{many(numberless, 'billed line')} {verb} no invoice, and FOCUS wants its number:"
            " write it as `invoice` on the cost line"
        )
    if unnamed:
        export.notes.append(
            f"no record says who sold what: {SELF} stands as the provider; name them with "
            + " ".join(f"--provider {kind}=NAME" for kind in SERVICES if kind in unnamed)
        )
    return export


def _row(
    entry: Entry, amount: Decimal, day: date, account: str, named: Mapping[str, str]
) -> dict[str, str | None]:
    session, line = entry.session, entry.line
    billed = amount if line.basis == "billed" else Decimal(0)
    name, category, subcategory = SERVICES[line.kind]
    provider = named.get(line.kind, SELF)
    quantity, unit = _quantity(entry)
    about = f"{name}, session {session.label}: {session.title}"
    return {
        # What no invoice is known to state is not billed. Without a unit price, which no record
        # has, the specification wants ListCost and ContractedCost to match BilledCost.
        "BilledCost": amount_json(billed),
        "ContractedCost": amount_json(billed),
        "ListCost": amount_json(billed),
        "EffectiveCost": amount_json(amount),
        "BillingAccountId": account,
        "BillingAccountName": None,
        "BillingCurrency": line.currency,
        "BillingPeriodStart": _moment(day.replace(day=1)),
        "BillingPeriodEnd": _moment(month_after(day)),
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeDescription": one_line(f"{about}. {line.note}" if line.note else about),
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _moment(day),
        "ChargePeriodEnd": _moment(day + timedelta(days=1)),
        "InvoiceId": line.invoice,
        "InvoiceIssuerName": provider,
        "ProviderName": provider,
        "PublisherName": provider,
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "ServiceCategory": category,
        "ServiceName": name,
        "ServiceSubcategory": subcategory,
        "x_Card": session.card_of(line.card) if line.kind == "gpu" else None,
        "x_CostBasis": line.basis,
        "x_CostKind": line.kind,
        "x_CostLine": entry.reference,
        "x_DayDeclared": None if entry.dated else "true",
        "x_PatternIds": " ".join(entry.patterns) or None,
        "x_Rate": None if line.rate is None else line.rate.text,
        "x_RateId": line.rate_id,
        "x_SessionId": session.id,
        "x_SessionLabel": session.label,
        "x_Source": line.source,
    }


def _quantity(entry: Entry) -> tuple[str, str]:
    """What was paid for: the time, where one is stated, else one unit."""
    time = entry.line.duration
    if time is None or time.high is not None or time.relation != "=":
        return "1.00", "Units"
    return amount_text(half_up(time.minutes, 6).normalize()), "Minutes"


def _moment(day: date) -> str:
    return f"{day.isoformat()}T00:00:00Z"
