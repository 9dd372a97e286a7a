"""Money is rounded in one place, half a cent up, so that all views show the same amount."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from knowledge import Knowledge

import kbtool
from kbtool.cli.main import cli
from kbtool.ledger.compare import Comparison, compare_json
from kbtool.ledger.gain import FixedBugs, per_bug
from kbtool.ledger.rollup import Row
from kbtool.markdown.figures import money
from kbtool.model import figure_text, figures
from kbtool.model.base import Quantity
from kbtool.model.money import amount_json, amount_text, cents, half_up, hourly, to_cent
from kbtool.model.price import price_of

PACKAGE = Path(kbtool.__file__).parent


def test_an_eighth_of_a_dollar_is_13_cents_as_a_price():
    assert price_of(Quantity("1.25 USD/h"), Decimal(6)) == Decimal("0.13")


def test_an_eighth_of_a_dollar_is_13_cents_in_the_cost_per_bug():
    row = Row("total", "total", other=Decimal("1.25"), sessions={"a"})
    assert per_bug(row, {"a": FixedBugs(10, 0)})["per_bug"] == "0.13"


def test_an_eighth_of_a_dollar_is_13_cents_in_status(base: Knowledge):
    more = "budget_money: 5 USD\ncosts: [{kind: ai, amount: 0.125, basis: claimed}]\n"
    path = base.session("2025-01-01-a", more)
    path.write_text(path.read_text().replace("status: complete", "status: running"))
    done = CliRunner().invoke(cli, ["--root", str(base.root), "status", "--json"])
    (running,) = json.loads(done.stdout)["running"]
    assert running["spent"] == {"USD": "0.13"}
    assert running["boxes"][0]["spent"] == "0.13"
    short = CliRunner().invoke(cli, ["--root", str(base.root), "status", "--short"])
    assert "0.13/5.00USD" in short.stdout


def test_an_eighth_is_13_hundredths_in_the_audit():
    claimed = Quantity("12 USD")
    eighth = figures.divide(figures.stated(Quantity("97 USD")), figures.whole(8))
    assert figure_text.text_of(eighth, claimed) == "12.13 USD"


def test_a_twentieth_of_a_percent_saved_is_a_tenth():
    comparison = Comparison(("gpu",), {}, Decimal(80), Decimal("79.96"), None, None)
    compared = compare_json(comparison, "a")["compared"]
    assert isinstance(compared, dict)
    assert compared["saved_percent"] == "0.1"


@given(st.decimals(-10_000, 10_000, places=6), st.integers(0, 6))
def test_rounding_takes_the_nearest_and_of_two_the_one_away_from_zero(value: Decimal, places: int):
    rounded = half_up(value, places)
    unit = Decimal(1).scaleb(-places)
    assert rounded.as_tuple().exponent == -places
    assert abs(rounded - value) <= unit / 2
    if abs(rounded - value) == unit / 2:
        assert abs(rounded) > abs(value)
    assert half_up(Fraction(value), places) == rounded


def test_rounding_loses_no_digit_beforehand():
    just_below = Fraction(1, 8) - Fraction(1, 10**40)
    assert to_cent(just_below) == Decimal("0.12")
    assert half_up(Decimal(f"{10**40}.005")) == Decimal(f"{10**40}.01")


@pytest.mark.parametrize(
    ("amount", "text"),
    [("12.5", "12.50"), ("0.1234", "0.1234"), ("1E+2", "100.00"), ("-0.5", "-0.50")],
)
def test_every_digit_that_was_stated_is_shown(amount: str, text: str):
    assert amount_text(Decimal(amount)) == amount_json(Decimal(amount)) == text
    assert money(Decimal(amount)) == f"{text} USD"


def test_an_unknown_amount_is_null():
    assert amount_json(None) is None


def test_amounts_are_shown_with_thousands_separators():
    assert money(Decimal("1234.5"), "EUR") == "1,234.50 EUR"


def test_a_negative_amount_that_rounds_to_zero_has_no_sign():
    assert cents(Fraction(-1, 1000)) == "0.00"


def test_an_hour_may_cost_less_than_a_cent():
    assert hourly(Fraction(1, 5)) == "0.20"
    assert hourly(Fraction(1, 80)) == "0.0125"


ROUNDS_NO_MONEY = {
    "model/money.py:amount_text": "the place itself, and rounds nothing",
    "ledger/gain.py:per_speedup": "a speedup, which is measured",
    "cli/session/life.py:_refuse_forgotten": "hours since a mark",
    "cli/sweep_output.py:sweep_json": "seconds for which a card was held",
    "cli/sweep_output.py:under_way_json": "the same, and seconds to come",
    "cli/sweep_output.py:print_sweep": "the share of them in steps",
    "site/pages/sweep.py:_cards": "the same share",
    "site/pages/sweep.py:_fastest": "times of a kernel",
    "cli/status.py:_print": "minutes until a budget is full",
    "markdown/chart.py": "coordinates of a drawing",
    "markdown/figures.py:seconds": "the time of a step",
    "store/sessions.py:environment": "the memory of a card",
}
"""Functions of modules that speak of money and round something else, and what."""
MONEY = re.compile(r"\b(amount|currency|money|budget|per_hour|cents?|USD)\b")


def rounding(tree: ast.AST) -> Iterator[str]:
    """Every expression that rounds a number, or writes it with a fixed number of digits."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            named = node.func
            if isinstance(named, ast.Name) and named.id == "round":
                yield f"{node.lineno}: round()"
            if isinstance(named, ast.Attribute) and named.attr in {"quantize", "to_integral"}:
                yield f"{node.lineno}: .{named.attr}()"
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
            spec = "".join(
                str(part.value)
                for part in node.format_spec.values
                if isinstance(part, ast.Constant)
            )
            if re.search(r"\.\d*[fFeEgG%]$|\.$", spec):
                yield f"{node.lineno}: :{spec}"
        if isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name.startswith("ROUND_"):
                yield f"{node.lineno}: {name}"


def test_the_search_for_rounding_finds_every_way_to_round():
    source = "round(a, 2); b.quantize(c); f'{d:.2f} {e:,.{n}f} {g:>8} {h:f}'; decimal.ROUND_UP"
    assert [found.split(": ")[1] for found in rounding(ast.parse(source))] == [
        "round()", ".quantize()", "ROUND_UP", ":.2f", ":,.f",
    ]  # fmt: skip


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Every top-level statement by the function that it defines; a class by its methods."""
    for node in tree.body:
        for part in node.body if isinstance(node, ast.ClassDef) else (node,):
            yield getattr(part, "name", "module"), part


def test_no_other_function_of_a_module_that_handles_money_rounds_a_figure():
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        if not MONEY.search(source):
            continue
        module = str(path.relative_to(PACKAGE))
        for name, function in functions(ast.parse(source)):
            key = module if module in ROUNDS_NO_MONEY else f"{module}:{name}"
            if places := list(rounding(function)):
                found.setdefault(key, []).extend(places)
    assert {name: places for name, places in found.items() if name not in ROUNDS_NO_MONEY} == {}
    assert found.keys() == ROUNDS_NO_MONEY.keys(), "an exception that is not needed"
