"""The rules of FOCUS 1.2 on the columns that kbtool writes, each under the specification's own id.

An id is that of the requirements model of version 1.2 (COLUMN-C-n, ATTRIBUTE-A-n, and D-n for what
a dataset must have). A rule takes the header and the rows as a CSV reader gives them, an empty cell
being null, and yields what breaks it. Not here: rules on columns that are not in the dataset, and
those that only the provider can answer (price lists, invoices, uniqueness within a provider).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

Header = list[str]
Rows = list[dict[str, str]]
Rule = Callable[[Header, Rows], Iterator[str]]

MANDATORY = {
    "BilledCost": "D-006-M", "BillingAccountId": "D-024-M", "BillingAccountName": "D-005-M",
    "BillingCurrency": "D-035-M", "BillingPeriodEnd": "D-010-M", "BillingPeriodStart": "D-009-M",
    "ChargeCategory": "D-008-M", "ChargeClass": "D-026-M", "ChargeDescription": "D-025-M",
    "ChargePeriodEnd": "D-028-M", "ChargePeriodStart": "D-037-M", "ContractedCost": "D-030-M",
    "EffectiveCost": "D-031-M", "InvoiceIssuerName": "D-023-M", "ListCost": "D-032-M",
    "PricingQuantity": "D-036-M", "PricingUnit": "D-068-M", "ProviderName": "D-038-M",
    "PublisherName": "D-021-M", "ServiceCategory": "D-040-M", "ServiceName": "D-041-M",
}  # fmt: skip
RECOMMENDED = {
    "ChargeFrequency": "D-027-O", "InvoiceId": "D-033-O", "ServiceSubcategory": "D-042-O",
}  # fmt: skip

NOT_NULL = {
    "BilledCost": "003-M", "BillingAccountId": "001-M", "BillingCurrency": "004-M",
    "BillingPeriodEnd": "003-M", "BillingPeriodStart": "003-M", "ChargeCategory": "002-M",
    "ChargeDescription": "003-O", "ChargeFrequency": "002-M", "ChargePeriodEnd": "003-M",
    "ChargePeriodStart": "003-M", "ContractedCost": "003-M", "EffectiveCost": "003-M",
    "InvoiceIssuerName": "003-M", "ListCost": "003-M", "ProviderName": "003-M",
    "PublisherName": "003-M", "ServiceCategory": "002-M", "ServiceName": "003-M",
    "ServiceSubcategory": "002-M",
}  # fmt: skip
NUMERIC = {
    "BilledCost": "002-M", "ContractedCost": "002-M", "EffectiveCost": "002-M",
    "ListCost": "002-M", "PricingQuantity": "002-M",
}  # fmt: skip
DATE_TIME = {
    "BillingPeriodEnd": "002-M", "BillingPeriodStart": "002-M", "ChargePeriodEnd": "002-M",
    "ChargePeriodStart": "002-M",
}  # fmt: skip

CATEGORIES = {"Usage", "Purchase", "Tax", "Credit", "Adjustment"}
FREQUENCIES = {"One-Time", "Recurring", "Usage-Based"}
SUBCATEGORIES = {
    "Virtual Machines": "Compute",
    "Generative AI": "AI and Machine Learning",
    "Other (Other)": "Other",
}
"""Of the specification's allowed values, those that kbtool uses → their parent."""
SERVICE_CATEGORIES = {
    "AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases",
    "Developer Tools", "Multicloud", "Identity", "Integration", "Internet of Things",
    "Management and Governance", "Media", "Migration", "Mobile", "Networking", "Security",
    "Storage", "Web", "Other",
}  # fmt: skip
UNITS = re.compile(r"(\d+ )?(Units|Hours|Minutes|Seconds|Days|Months|Years|Tokens|Requests)")
NUMBER = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
PASCAL = re.compile(r"([A-Z][a-z]+)+")


def _present(column: str) -> Rule:
    def rule(header: Header, rows: Rows) -> Iterator[str]:
        if column not in header:
            yield f"{column} is missing"

    return rule


def _each(column: str, holds: Callable[[dict[str, str]], bool]) -> Rule:
    """A rule on every row that has a value in ``column``."""

    def rule(header: Header, rows: Rows) -> Iterator[str]:
        for row in rows:
            if row.get(column) and not holds(row):
                yield f"{column} is {row[column]!r}"

    return rule


def _all(holds: Callable[[dict[str, str]], bool]) -> Rule:
    """A rule on every row."""

    def rule(header: Header, rows: Rows) -> Iterator[str]:
        yield from (f"{row}" for row in rows if not holds(row))

    return rule


def _not_null(column: str) -> Rule:
    return _all(lambda row: bool(row.get(column)))


def _one_parent(child: str, parent: str) -> Rule:
    def rule(header: Header, rows: Rows) -> Iterator[str]:
        seen: dict[str, str] = {}
        for row in rows:
            if seen.setdefault(row[child], row[parent]) != row[parent]:
                yield f"{child} {row[child]} has {seen[row[child]]} and {row[parent]}"

    return rule


def _is_moment(text: str) -> bool:
    if not MOMENT.fullmatch(text):
        return False
    try:
        return datetime.fromisoformat(text).tzinfo == UTC
    except ValueError:
        return False


def _columns_are_pascal(header: Header, rows: Rows) -> Iterator[str]:
    for name in header:
        if not PASCAL.fullmatch(name.removeprefix("x_")) or len(name) > 50:
            yield name


def _ours_are_marked(header: Header, rows: Rows) -> Iterator[str]:
    known = MANDATORY.keys() | RECOMMENDED.keys()
    yield from (name for name in header if name not in known and not name.startswith("x_"))


def _ours_come_last(header: Header, rows: Rows) -> Iterator[str]:
    ours = [name.startswith("x_") for name in header]
    if ours != sorted(ours):
        yield "columns are intermixed"


RULES: dict[str, Rule] = {
    **{f"CostAndUsage-{id_}": _present(column) for column, id_ in MANDATORY.items()},
    **{f"CostAndUsage-{id_}": _present(column) for column, id_ in RECOMMENDED.items()},
    **{f"{column}-C-{id_}": _not_null(column) for column, id_ in NOT_NULL.items()},
    **{
        f"{column}-C-{id_}": _each(column, lambda row, c=column: bool(NUMBER.fullmatch(row[c])))
        for column, id_ in NUMERIC.items()
    },
    **{
        f"{column}-C-{id_}": _each(column, lambda row, c=column: _is_moment(row[c]))
        for column, id_ in DATE_TIME.items()
    },
    "StringHandling-A-007-O": _all(
        lambda row: all(value.strip() for value in row.values() if value)
    ),
    "NullHandling-A-002-M": _all(
        lambda row: not {v.lower() for v in row.values()} & {"not applicable", "n/a", "null", "-"}
    ),
    "ColumnHandling-A-001-M": _columns_are_pascal,
    "ColumnHandling-A-010-M": _ours_are_marked,
    "ColumnHandling-A-013-O": _ours_come_last,
    "BillingCurrency-C-006-M": _each(
        "BillingCurrency", lambda row: bool(re.fullmatch("[A-Z]{3}", row["BillingCurrency"]))
    ),
    "BillingPeriodStart-C-004-M": _all(
        lambda row: row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["BillingPeriodEnd"]
    ),
    "BillingPeriodEnd-C-004-M": _all(
        lambda row: row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
    ),
    "ChargePeriodEnd-C-004-M": _all(
        lambda row: row["ChargePeriodStart"] < row["ChargePeriodEnd"]
    ),
    "ChargeCategory-C-003-M": _each(
        "ChargeCategory", lambda row: row["ChargeCategory"] in CATEGORIES
    ),
    "ChargeClass-C-003-C": _all(lambda row: not row["ChargeClass"]),
    "ChargeFrequency-C-003-M": _each(
        "ChargeFrequency", lambda row: row["ChargeFrequency"] in FREQUENCIES
    ),
    "ChargeFrequency-C-004-C": _all(
        lambda row: (row["ChargeCategory"], row["ChargeFrequency"]) != ("Purchase", "Usage-Based")
    ),
    # No row has a unit price, and none follows from other rows.
    "ContractedCost-C-008-C": _all(lambda row: row["ContractedCost"] == row["BilledCost"]),
    "ListCost-C-008-C": _all(lambda row: row["ListCost"] == row["BilledCost"]),
    "EffectiveCost-C-010-C": _all(
        lambda row: row["ChargeCategory"] in {"Usage", "Purchase"}
        or row["EffectiveCost"] == row["BilledCost"]
    ),
    "InvoiceId-C-004-C": _each("InvoiceId", lambda row: row["x_CostBasis"] == "billed"),
    "PricingQuantity-C-005-C": _all(
        lambda row: bool(row["PricingQuantity"])
        or row["ChargeCategory"] not in {"Usage", "Purchase"}
    ),
    "PricingUnit-C-003-O": _each(
        "PricingUnit", lambda row: bool(UNITS.fullmatch(row["PricingUnit"]))
    ),
    "PricingUnit-C-005-C": _each("PricingUnit", lambda row: bool(row["PricingQuantity"])),
    "PricingUnit-C-006-C": _each("PricingQuantity", lambda row: bool(row["PricingUnit"])),
    "ServiceCategory-C-003-M": _each(
        "ServiceCategory", lambda row: row["ServiceCategory"] in SERVICE_CATEGORIES
    ),
    "ServiceSubcategory-C-003-M": _each(
        "ServiceSubcategory", lambda row: row["ServiceSubcategory"] in SUBCATEGORIES
    ),
    "ServiceSubcategory-C-004-M": _each(
        "ServiceSubcategory",
        lambda row: SUBCATEGORIES.get(row["ServiceSubcategory"]) == row["ServiceCategory"],
    ),
    "ServiceName-C-005-C": _one_parent("ServiceName", "ServiceCategory"),
    "ServiceName-C-008-C": _one_parent("ServiceName", "ServiceSubcategory"),
}  # fmt: skip
"""Id → rule."""


def read(data: bytes) -> tuple[Header, Rows]:
    """The header and the rows of a dataset."""
    reader = csv.DictReader(io.StringIO(data.decode(), newline=""))
    rows = list(reader)
    return list(reader.fieldnames or []), rows


def broken(header: Header, rows: Rows) -> dict[str, list[str]]:
    """Every rule that the dataset breaks, and where."""
    found = {id_: list(rule(header, rows)) for id_, rule in RULES.items()}
    return {id_: places for id_, places in found.items() if places}
