"""FOCUS 1.2: the rules of the specification hold, and each of them can fail."""

from __future__ import annotations

import csv
import io
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from costed import SESSIONS, line, session
from focus_rules import DATE_TIME, MANDATORY, NUMERIC, RECOMMENDED, RULES, broken, read
from hypothesis import given

from kbtool.ledger.export.focus import focus
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]
DAY = date(2025, 10, 1)


def only(*args, **keys) -> dict[str, str]:
    (row,) = read(focus(*args, **keys).data)[1]
    return row


def test_the_records_of_this_repository_keep_every_rule():
    sessions = [entry.record for entry in KnowledgeBase(REPOSITORY).sessions.values()]
    header, rows = read(focus(sessions, undated=DAY).data)
    assert broken(header, rows) == {}
    assert {row["x_SessionLabel"] for row in rows} >= {"N", "N+2", "N+7A"}


@pytest.mark.slow
@given(SESSIONS)
def test_whatever_the_sessions_every_rule_holds_and_no_cent_is_lost(sessions):
    export = focus(sessions, undated=DAY)
    header, rows = read(export.data)
    assert broken(header, rows) == {}
    charged = [
        entry
        for one in sessions
        for entry in one.costs
        if entry.amount is not None and entry.kind != "engineer"
    ]
    assert export.written == len(rows) == len(charged)
    everything = sum(len(one.costs) for one in sessions)
    assert export.written + sum(export.left_out.values()) == everything
    for currency in {row["BillingCurrency"] for row in rows}:
        own = [row for row in rows if row["BillingCurrency"] == currency]
        amounts = [entry for entry in charged if entry.currency == currency]
        billed = [entry.amount for entry in amounts if entry.basis == "billed"]
        assert sum(Decimal(row["EffectiveCost"]) for row in own) == sum(e.amount for e in amounts)
        assert sum(Decimal(row["BilledCost"]) for row in own) == sum(billed)


SOUND = session(
    "2025-10-12-a",
    line("gpu", "1.40", basis="billed", invoice="A-7", duration="7 h"),
    line("ai", "0.33"),
)

BREAKAGES = {
    "StringHandling-A-007-O": {"ServiceName": "  "},
    "NullHandling-A-002-M": {"BillingAccountName": "Not Applicable"},
    "BillingCurrency-C-006-M": {"BillingCurrency": "tokens"},
    "BillingPeriodStart-C-004-M": {"BillingPeriodStart": "2025-10-13T00:00:00Z"},
    "BillingPeriodEnd-C-004-M": {"BillingPeriodEnd": "2025-10-12T12:00:00Z"},
    "ChargePeriodEnd-C-004-M": {"ChargePeriodEnd": "2025-10-12T00:00:00Z"},
    "ChargeCategory-C-003-M": {"ChargeCategory": "Labour"},
    "ChargeClass-C-003-C": {"ChargeClass": "Correction"},
    "ChargeFrequency-C-003-M": {"ChargeFrequency": "Daily"},
    "ChargeFrequency-C-004-C": {"ChargeCategory": "Purchase"},
    "ContractedCost-C-008-C": {"ContractedCost": "1.00"},
    "ListCost-C-008-C": {"ListCost": "1.00"},
    "EffectiveCost-C-010-C": {"ChargeCategory": "Credit", "EffectiveCost": "1.00"},
    "InvoiceId-C-004-C": {"x_CostBasis": "claimed"},
    "PricingQuantity-C-005-C": {"PricingQuantity": ""},
    "PricingUnit-C-003-O": {"PricingUnit": "minute"},
    "PricingUnit-C-005-C": {"PricingQuantity": ""},
    "PricingUnit-C-006-C": {"PricingUnit": ""},
    "ServiceCategory-C-003-M": {"ServiceCategory": "Labour"},
    "ServiceSubcategory-C-003-M": {"ServiceSubcategory": "GPU"},
    "ServiceSubcategory-C-004-M": {"ServiceSubcategory": "Generative AI"},
    "ServiceName-C-005-C": {"ServiceName": "AI assistant"},
    "ServiceName-C-008-C": {"ServiceName": "AI assistant"},
}
"""Rule → a change of the first row that breaks it."""


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_can_fail(rule):
    header, rows = read(focus([SOUND]).data)
    assert broken(header, rows) == {}
    column, place = rule.split("-", 1)
    if column == "CostAndUsage":
        presence = {**MANDATORY, **RECOMMENDED}
        header.remove(next(name for name, id_ in presence.items() if id_ == place))
    elif rule == "ColumnHandling-A-001-M":
        header.append("x_session_id")
    elif rule == "ColumnHandling-A-010-M":
        header.append("SessionId")
    elif rule == "ColumnHandling-A-013-O":
        header.insert(0, header.pop())
    elif rule in BREAKAGES:
        rows[0].update(BREAKAGES[rule])
    elif place.removeprefix("C-") == {**NUMERIC, **DATE_TIME}.get(column):
        rows[0][column] = "+1,5" if "Cost" in column or "Quantity" in column else "2025-10-12"
    else:
        rows[0][column] = ""
    assert rule in broken(header, rows)


def test_only_what_is_billed_is_in_billed_cost():
    _, (billed, claimed) = read(focus([SOUND]).data)
    assert (billed["BilledCost"], billed["EffectiveCost"]) == ("1.40", "1.40")
    assert (claimed["BilledCost"], claimed["EffectiveCost"]) == ("0.00", "0.33")
    assert (billed["InvoiceId"], claimed["InvoiceId"]) == ("A-7", "")
    assert (billed["x_CostBasis"], claimed["x_CostBasis"]) == ("billed", "claimed")
    assert billed["x_CostLine"] == "2025-10-12-a#costs.gpu"


def test_the_time_paid_for_is_the_quantity_where_it_is_one_figure():
    def quantity(**keys):
        row = only([session("2025-10-12-a", line("gpu", "1", **keys))])
        return row["PricingQuantity"], row["PricingUnit"]

    assert quantity(duration="7 h") == ("420.00", "Minutes")
    assert quantity(duration="30 s") == ("0.50", "Minutes")
    for vague in ({}, {"duration": "5..10 min"}, {"duration": "~5 min"}):
        assert quantity(**vague) == ("1.00", "Units")


def test_the_charge_period_is_the_day_and_the_billing_period_its_month():
    row = only([session("2025-12-31-a", line("gpu", "1"))])
    assert row["ChargePeriodStart"] == "2025-12-31T00:00:00Z"
    assert row["ChargePeriodEnd"] == row["BillingPeriodEnd"] == "2026-01-01T00:00:00Z"
    assert row["BillingPeriodStart"] == "2025-12-01T00:00:00Z"


def test_rows_left_out_are_counted_and_reported():
    export = focus(
        [
            session("undated-a", line("gpu", "1"), line("ai", None)),
            session("2025-10-12-b", line("engineer", "25"), line("engineer", None, id="more")),
        ]
    )
    assert export.written == 0
    told = {why.split(";")[0]: count for why, count in export.left_out.items()}
    assert told == {
        "of sessions without a date": 1,
        "whose amount no record states": 1,
        "for engineers, whom no provider charges for": 2,
    }
    assert export.notes == ["not in it: 25.00 USD for engineers"]


def test_a_declared_day_is_marked():
    row = only([session("undated-a", line("gpu", "1"))], undated=DAY)
    assert (row["ChargePeriodStart"], row["x_DayDeclared"]) == ("2025-10-01T00:00:00Z", "true")
    assert only([session("2025-10-12-a", line("gpu", "1"))], undated=DAY)["x_DayDeclared"] == ""


def test_the_provider_is_named_or_reported_as_missing():
    sessions = [session("2025-10-12-a", line("gpu", "1"), line("ai", "1"))]
    export = focus(sessions, account="team-7", providers={"gpu": "A cloud"})
    gpu, ai = read(export.data)[1]
    assert gpu["ProviderName"] == gpu["PublisherName"] == gpu["InvoiceIssuerName"] == "A cloud"
    assert (ai["ProviderName"], gpu["BillingAccountId"]) == ("kbtool", "team-7")
    assert export.notes == [
        "no record says who sold what: kbtool stands as the provider; name them with"
        " --provider ai=NAME"
    ]


def test_a_billed_line_without_an_invoice_number_is_reported():
    sessions = [session("2025-10-12-a", line("gpu", "1", basis="billed"))]
    assert "1 billed line names no invoice" in focus(sessions).notes[0]


def test_a_note_with_commas_quotes_and_line_breaks_is_one_cell():
    row = only([session("2025-10-12-a", line("gpu", "1", note='one, "two"\nthree'))])
    assert row["ChargeDescription"] == 'GPU, session A: T. one, "two" three'


def test_labels_are_no_formulas_and_cards_have_one_name():
    one = session(
        "2025-10-12-a", line("gpu", "1"), line("gpu", "2", card="none"), label="=1+1",
        environment={"card": "NVIDIA L4"},
    )  # fmt: skip
    export = focus([one, session("2025-10-13-b", line("ai", None))])
    first, second = csv.DictReader(io.StringIO(export.data.decode()))
    assert (first["x_SessionLabel"], first["EffectiveCost"]) == ("'=1+1", "1.00")
    assert (first["x_Card"], second["x_Card"]) == ("L4", "")
    assert export.sessions == {"2025-10-12-a"}
