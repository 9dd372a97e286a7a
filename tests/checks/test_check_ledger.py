"""Rules about the ledger, and about what cost lines take from it."""

from __future__ import annotations

import re

import pytest
from knowledge import KERNEL, line_of

LINE = "# yaml-language-server: $schema=../schemas/ledger.json\n"
RATES = """\
rates:
  - {id: l4, kind: gpu, rate: 0.20 USD/h, day: 2025-01-01, until: 2025-03-31}
  - {id: l4-april, kind: gpu, rate: 0.25 USD/h, day: 2025-04-01}
"""
COSTS = """\
costs:
  - {kind: gpu, basis: estimated, rate: 0.20 USD/h, rate_id: l4, duration: 1 h}
"""


@pytest.fixture
def ledger(base):
    base.path = base.write("sessions/ledger.yaml", LINE + RATES)
    return base


def test_a_ledger_and_a_line_that_takes_a_rate_of_it_are_sound(ledger):
    ledger.session(more=COSTS)
    assert ledger.findings() == []
    assert ledger.findings(cached=True) == ledger.findings(cached=True) == []


@pytest.mark.parametrize(
    ("day", "old", "new", "said"),
    [
        ("2025-01-01", "rate_id: l4", "rate_id: l5", "has no rate 'l5'; it has l4, l4-april"),
        ("2025-01-01", "kind: gpu", "kind: ai", "l4 is a rate of gpu, the line is of ai"),
        ("2025-01-01", "0.20", "0.21", "l4 is 0.20 USD/h, but the line says 0.21 USD/h"),
        ("2025-04-01", "l4", "l4", "l4 held until 2025-03-31"),
    ],
)
def test_a_line_that_does_not_fit_its_rate_is_found(ledger, day, old, new, said):
    path = ledger.session(f"{day}-a", COSTS.replace(old, new))
    for cached in (True, True, False):  # the facts come out of the cache as they went in
        (finding,) = ledger.findings(cached=cached)
        assert (finding.rule, finding.line) == ("rate", line_of(path, "rate_id"))
        assert re.search(said, finding.message)


@pytest.mark.parametrize(
    ("session", "line", "found"),
    [
        ("", ", card: H100", True),
        ("environment: {card: NVIDIA H100 80GB HBM3}\n", "", True),
        ("environment: {card: NVIDIA H100 80GB HBM3}\n", ", card: L4", False),
        ("environment: {card: NVIDIA L4}\n", "", False),
        ("environment: {card: none}\n", "", False),
        ("environment: {card: a card of no table}\n", "", False),
    ],
)
def test_a_rate_is_of_the_card_that_the_line_pays_for(ledger, session, line, found):
    ledger.path.write_text(LINE + RATES.replace("id: l4,", "id: l4, card: L4,"))
    ledger.session(more=session + COSTS.replace("1 h}", f"1 h{line}}}"))
    said = [finding.message for finding in ledger.findings()]
    assert len(said) == found
    assert all("l4 is the price of card L4; the line pays for card H100" in one for one in said)


BILL = "  - {{kind: gpu, basis: billed, amount: {}, invoice: {}{}}}\n"


@pytest.mark.parametrize(
    ("amount", "number", "notes", "found"),
    [
        ("3.740", "INV-1", ("", ""), True),
        ("3.74", "INV-1", (", note: a", ""), True),
        ("3.74", "INV-1", (", note: a", ", note: a"), True),
        ("3.74", "INV-1", (", note: the first hour", ", note: the second"), False),
        ("3.75", "INV-1", ("", ""), False),
        ("3.74", "INV-2", ("", ""), False),
        ("3.74", "INV-1, currency: EUR", ("", ""), False),
    ],
)
@pytest.mark.parametrize("apart", [True, False])
def test_an_amount_of_an_invoice_is_counted_once(base, amount, number, notes, found, apart):
    first = "costs:\n" + BILL.format("3.74", "INV-1", notes[0])
    second = BILL.format(amount, number, notes[1])
    path = base.session(more=first + ("" if apart else second))
    if apart:
        path = base.session("2025-01-02-b", "costs:\n" + second)
    for cached in (True, True, False):
        said = base.findings(cached=cached)
        assert [(one.rule, one.line) for one in said] == (
            [("invoice", line_of(path, "INV-1", 1 if apart else 2))] if found else []
        )
    assert not found or "2025-01-01-a#costs.0 already: delete one" in said[0].message


def test_a_rate_without_a_ledger_is_found(base):
    base.session(more=COSTS)
    assert [finding.rule for finding in base.findings()] == ["rate"]


def test_a_ledger_that_does_not_load_gives_one_finding(ledger):
    ledger.session(more=COSTS)
    ledger.path.write_text(LINE + RATES + "price: 1\n")
    (finding,) = ledger.findings()
    assert (finding.path, finding.rule, finding.line) == ("sessions/ledger.yaml", "schema", 5)


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        (RATES, "modeline", 1),
        (LINE + RATES.replace("l4-april", "l4"), "unique", 4),
        (LINE + "sources: {s: {file: f, about: a, lines: 9}}\n" + RATES, "provenance", 4),
        (LINE + "rates: [{id: l4, kind: gpu, rate: 1 USD/h, day: 2025-01-01, source: s:3}]\n",
         "provenance", 2),
        (LINE + "sources: {s: {file: f, about: a, lines: 9}}\nrates:\n"
         "  - {id: a, kind: gpu, rate: 1 USD/h, day: 2025-01-01, source: s:10}\n", "provenance", 4),
        (LINE + "rates:\n  - {id: l4, kind: gpu, rate: 1 USD/h, day: 2025-01-01, provider: null}\n",
         "null-reason", 3),
    ],
)  # fmt: skip
def test_the_rules_of_records_hold_for_the_ledger(base, text, rule, line):
    base.write("sessions/ledger.yaml", text)
    assert (rule, line) in base.rules()


def test_a_ledger_under_another_name_is_a_stray_file(base):
    base.write("sessions/rates.yaml", LINE + RATES)
    (finding,) = base.findings()
    assert finding.rule == "stray" and "ledger.yaml" in finding.message


def test_the_kernels_of_a_session_are_there(base):
    base.kernel(KERNEL)
    path = base.session(more="kernels: [add, subtract]\n")
    (finding,) = base.findings()
    assert (finding.rule, finding.line) == ("link", line_of(path, "kernels"))
    assert finding.message == "there is no kernel 'subtract'; the kernels are add"
