"""Rounding, ranges, units: what a stated figure can stand for, and what follows from it."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import reduce

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kbtool.model.agreement import agrees, off_by, sign_turns
from kbtool.model.base import Quantity
from kbtool.model.figure_text import margin_of, text_of
from kbtool.model.figures import ADDED, OPERATIONS, Figure, NoFigure, WrongUnits, add, figure_of
from kbtool.model.units import unit_of


def derived(how: str, *operands: str) -> Figure:
    return OPERATIONS[how]([figure_of(Quantity(one), how in ADDED) for one in operands])


def holds(stated: str, how: str, *operands: str) -> bool:
    return agrees(Quantity(stated), derived(how, *operands))


@pytest.mark.parametrize(
    ("stated", "how", "operands"),
    [
        ("1.35 USD", "sum", ["0.35 USD", "1.00 USD"]),
        ("107 min", "sum", ["1 h", "47 min"]),
        ("2.40 USD", "product", ["12 h", "0.20 USD/h"]),
        ("633 %", "change", ["110 min", "15 min"]),
        ("95.5 %", "saving", ["3 min", "67 min"]),
        ("80 %", "percent", ["4", "5"]),
        ("0.034 ×", "ratio", ["0.0251 ms", "0.7295 ms"]),
        ("39841 iter/s", "ratio", ["1 iter", "0.0251 ms"]),
        ("300 GB/s", "ratio", ["3 GB", "10 ms"]),
        ("24 GiB", "same", ["25769803776 B"]),
        # 1.8 may be 1.85 and 0.052 may be 0.0515: 35.9, which rounds to 36.
        ("36 ×", "ratio", ["1.8 ms", "0.052 ms"]),
        # 0.41 may have been 0.4149 before it was rounded.
        ("88 %", "saving", ["0.41 USD", "3.60 USD"]),
        ("1264.17 USD", "product", ["25.3 h", "50 USD/h"]),
        ("30..45 min", "sum", ["10 min", "15 min", "15 min"]),
        ("73 %", "saving", ["20..30 min", "110 min"]),
        ("150..250 USD", "product", ["3..5", "50 USD"]),
        ("6..10 ×", "product", ["2 ×", "3..5 ×"]),
        ("0.1..0.2 ×", "ratio", ["0.052 ms", "<0.5 ms"]),
        (">0 USD", "difference", ["3 USD", "2 USD"]),
        ("80+ min", "difference", ["110 min", "20..30 min"]),
        ("<= 2 h", "sum", ["110 min", "10 min"]),
        ("~0.10 ×", "same", ["0.09 ×"]),
        ("4.00 ×", "harmonic_mean", ["3 ×", "6 ×"]),
        ("6.0 ×", "geometric_mean", ["4 ×", "9 ×"]),
        ("6.5 ×", "mean", ["4 ×", "9 ×"]),
        ("0.0 %", "saving", ["3 s", "3000 ms"]),
        ("-3 min", "difference", ["2 min", "5 min"]),
    ],
)
def test_a_figure_that_rounding_allows_is_consistent(
    stated: str, how: str, operands: list[str]
) -> None:
    assert holds(stated, how, *operands)


@pytest.mark.parametrize(
    ("stated", "how", "operands"),
    [
        ("1.36 USD", "sum", ["0.35 USD", "1.00 USD"]),
        ("735 min", "sum", ["734 min"]),
        # Half a cent too far: 35.67 cents are 36, and a price is no measurement.
        ("0.35 USD", "product", ["107 min", "0.20 USD/h"]),
        ("89.0 %", "saving", ["0.41 USD", "3.60 USD"]),
        ("40..60 min", "sum", ["5..10 min", "10..15 min", "15..20 min", "5..10 min"]),
        ("150..225 USD", "product", ["3..5", "50..75 USD"]),
        ("37 ×", "ratio", ["1.8 ms", "0.052 ms"]),
        (">0 USD", "difference", ["0.80..1.20 USD", "2.40 USD"]),
        (">0 USD", "difference", ["2 USD", "2 USD"]),
        ("<5 ms", "same", ["5 ms"]),
        ("<= 2 h", "sum", ["110 min", "11 min"]),
        ("80+ min", "same", ["79 min"]),
        ("~0.06 ×", "same", ["0.09 ×"]),
        ("6.5 ×", "geometric_mean", ["4 ×", "9 ×"]),
        ("24 GB", "same", ["24 GiB"]),
    ],
)
def test_a_figure_that_rounding_excludes_is_inconsistent(
    stated: str, how: str, operands: list[str]
) -> None:
    assert not holds(stated, how, *operands)


def test_an_amount_is_so_many_cents_in_a_column_and_rounded_in_a_quotient() -> None:
    assert not holds("0.30 USD", "sum", *["0.11 USD", "0.11 USD", "0.07 USD"])
    assert holds("0.29 USD", "sum", *["0.11 USD", "0.11 USD", "0.07 USD"])
    low, high = figure_of(Quantity("0.41 USD"), False).low[:3:2]
    assert (low, high) == (Fraction(405, 1000), Fraction(415, 1000))


def test_adjacent_rounding_spans_do_not_overlap_and_a_half_rounds_either_way() -> None:
    # 0.25 stands for 0.245 to 0.255; so does twice 0.125, exactly on no edge.
    assert holds("0.3", "product", "0.25 ×", "1 ×")  # 0.245..0.255 reaches beyond 0.25
    assert not holds("0.4", "same", "0.3 ×")  # 0.25..0.35 touches 0.35..0.45
    assert holds("3", "ratio", "5", "2") and holds("2", "ratio", "5", "2")
    assert not holds("4", "ratio", "5", "2")


def test_strict_bounds_are_strict() -> None:
    assert holds("<=5", "same", ">=5") and holds(">=5", "same", "<=5")
    assert not holds("<=5", "same", ">5") and not holds(">=5", "same", "<5")
    assert not holds("<=5 s", "sum", ">2 s", "3 s") and holds("<=5 s", "sum", ">=2 s", "3 s")
    assert not holds(">=5 s", "difference", "7 s", ">2 s")
    assert not holds("<=4 ×", "ratio", "2 s", "<0.5 s") and holds(
        "<=4 ×", "ratio", "2 s", "<=0.5 s"
    )
    assert not holds(">=6", "product", "<2", "3") and holds(">=6", "product", "<=2", "3")
    assert not holds(">=5", "maximum", "<5", "<4") and holds(">=5", "maximum", "<5", "5")
    assert holds(">=0", "product", "<2", "0")  # nothing times anything is nothing
    assert text_of(derived("same", "<0.5 ms"), Quantity("0.5 ms")) == "< 0.5 ms"
    assert text_of(derived("ratio", "2 s", "<0.5 s"), Quantity("1 ×")) == "> 4 ×"


@pytest.mark.parametrize(
    ("how", "operands", "message"),
    [
        ("sum", ["5 min", "3 USD"], "USD cannot be added to s|s cannot be added to USD"),
        ("saving", ["5 min", "3 USD"], "cannot be compared with"),
        ("maximum", ["5 min", "3"], "a bare number"),
        ("sum", ["5 lines", "3 files"], "line cannot be added to file"),
    ],
)
def test_operands_of_incompatible_units_are_an_error(
    how: str, operands: list[str], message: str
) -> None:
    with pytest.raises(WrongUnits, match=message):
        derived(how, *operands)


def test_a_claim_in_another_unit_is_named() -> None:
    with pytest.raises(WrongUnits, match="stated in USD, comes out in s"):
        holds("5 USD", "sum", "5 min")
    with pytest.raises(WrongUnits, match="stated in a bare number"):
        holds("5", "sum", "5 min")
    assert holds("5 lines", "sum", "2", "3 lines")  # a bare number counts anything


@pytest.mark.parametrize(
    ("how", "operands"),
    [
        ("ratio", ["1", "0"]),
        ("ratio", ["1", "-0.0"]),
        ("ratio", ["1 s", "-1..1 s"]),
        ("geometric_mean", ["0", "4"]),
        ("same", ["1e99"]),
    ],
)
def test_operands_without_a_figure_are_an_error(how: str, operands: list[str]) -> None:
    with pytest.raises(NoFigure):
        derived(how, *operands)


def test_units_have_scale_and_dimension() -> None:
    assert unit_of("USD/h").scale == Fraction(1, 3600)
    assert unit_of("kB").scale == 1000 and unit_of("KiB").scale == 1024
    assert unit_of("GB/s").physical == (("B", 1), ("s", -1))
    assert unit_of("TFLOP/s").scale == 10**12
    assert unit_of("MHz").scale == 10**6
    assert unit_of("1/us") == unit_of("1/s")._replace(scale=Fraction(10**6))
    assert unit_of("%").scale == Fraction(1, 100)
    assert unit_of("lines") == unit_of("line")


@pytest.mark.parametrize(
    ("stated", "operand", "said"),
    [
        ("3985969 iter/s", "39840.64 iter/s", "100 times"),
        ("0.5 ms", "50 ms", "a 100th"),
        ("25 min", "25 s", "60 times as much as what comes out, as minutes for seconds"),
        ("16.70 USD", "2.80 USD", "5.96 times"),
        ("26 min", "25 min", None),
    ],
)
def test_an_order_of_magnitude_and_a_wrong_unit_are_named(
    stated: str, operand: str, said: str | None
) -> None:
    found = off_by(Quantity(stated), derived("same", operand))
    assert found is None if said is None else said in str(found)


def test_a_difference_of_the_opposite_sign_is_recognised() -> None:
    assert sign_turns(Quantity("3 USD"), derived("difference", "1 USD", "2 USD"))
    assert sign_turns(Quantity("-3 USD"), derived("difference", "2 USD", "1 USD"))
    assert not sign_turns(Quantity("3 USD"), derived("difference", "2 USD", "1 USD"))


def test_what_comes_out_is_shown_with_two_digits_more_in_the_unit_of_the_claim() -> None:
    assert (
        text_of(derived("product", "107 min", "0.20 USD/h"), Quantity("0.35 USD")) == "0.3567 USD"
    )
    assert text_of(derived("sum", "30 s", "18 min"), Quantity("25 min")) == "18.5 min"
    assert text_of(derived("sum", "1", "7"), Quantity("7")) == "8"
    assert text_of(derived("sum", "1 USD", "7 USD"), Quantity("7.00 USD")) == "8.00 USD"
    assert text_of(derived("sum", "5..10 s", "7 s"), Quantity("1 s")) == "12..17 s"
    assert text_of(derived("sum", "5+ s", "7 s"), Quantity("1 s")) == ">= 12 s"
    assert text_of(derived("same", "0.000004"), Quantity("1")) == "0.000004"
    assert text_of(derived("sum", "90 min", "9 min"), Quantity("+95 min")) == "+99 min"
    assert text_of(derived("sum", "-5..-1 s", "3 s"), Quantity("~+1..+2 s")) == "-2..+2 s"
    assert text_of(derived("difference", "1 s", "1 s"), Quantity("+1 s")) == "0 s"
    assert text_of(derived("difference", "1 USD", "2.5 USD"), Quantity(">0 USD")) == "-1.5 USD"
    assert margin_of(derived("ratio", "1.0 s", "3.0 s"), Quantity("0.5")) == "0.311 and 0.356"
    assert margin_of(derived("sum", "1 s", "3 s"), Quantity("5 s")) is None


numbers = st.builds(
    lambda digits, places: Decimal(digits).scaleb(-places),
    st.integers(1, 10**6),
    st.integers(0, 4),
)
UNITS = {"sum": "min", "mean": "ms", "product": "", "geometric_mean": "ms", "harmonic_mean": "ms"}


def rounded(value: Fraction, places: int) -> Decimal:
    return Decimal(round(value * 10**places)).scaleb(-places)


def plain(how: str, values: list[Fraction]) -> Fraction:
    """The operations again, the slow and obvious way."""
    if how == "sum":
        return sum(values, Fraction(0))
    if how == "mean":
        return sum(values, Fraction(0)) / len(values)
    if how == "harmonic_mean":
        return len(values) / sum((1 / value for value in values), Fraction(0))
    if how == "product":
        result = Fraction(1)
        for value in values:
            result *= value
        return result
    a, b = values[:2]
    return {
        "difference": a - b, "ratio": a / b, "percent": 100 * a / b, "change": 100 * (a - b) / b,
        "saving": 100 * (b - a) / b,
    }[how]  # fmt: skip


HOWS = st.sampled_from(
    ["sum", "mean", "harmonic_mean", "product", "difference", "ratio", "percent", "change",
     "saving"]
)  # fmt: skip
UNIT_OF = {"sum": "s", "mean": "s", "harmonic_mean": "s", "difference": "s", "ratio": "×"}


@pytest.mark.slow
@given(HOWS, st.lists(numbers, min_size=2, max_size=6), st.integers(0, 4), st.data())
def test_derived_and_rounded_is_always_consistent(
    how: str, operands: list[Decimal], places: int, data: st.DataObject
) -> None:
    """True values somewhere within their rounding, computed and rounded: no false alarm, ever."""
    if how in {"difference", "ratio", "percent", "change", "saving"}:
        operands = operands[:2]
    values = []
    for operand in operands:
        half = Fraction(10) ** int(operand.as_tuple().exponent) / 2  # type: ignore[arg-type]
        share = data.draw(st.fractions(-1, 1, max_denominator=50)) if half < Fraction(1, 2) else 0
        value = Fraction(operand) + share * half * Fraction(99, 100)
        assume(value > 0)
        values.append(value)
    unit = "" if how == "product" else "ms"
    stated = rounded(plain(how, values), places)
    in_unit = {"ratio": "×", "percent": "%", "change": "%", "saving": "%"}.get(how, unit)
    said = [f"{operand:f} {unit}".strip() for operand in operands]
    assert holds(f"{stated:f} {in_unit}".strip(), how, *said)


@given(HOWS, st.lists(numbers, min_size=2, max_size=6), st.integers(0, 4), st.booleans())
def test_moved_by_more_than_the_rounding_is_always_inconsistent(
    how: str, operands: list[Decimal], places: int, up: bool
) -> None:
    """Beyond what the operands' rounding can reach, and beyond its own: always found."""
    if how in {"difference", "ratio", "percent", "change", "saving"}:
        operands = operands[:2]
    halves = [
        Fraction(0) if (e := int(operand.as_tuple().exponent)) >= 0 else Fraction(10) ** e / 2
        for operand in operands
    ]
    corners: list[list[Fraction]] = [[]]
    for operand, half in zip(operands, halves, strict=True):
        corners = [[*c, Fraction(operand) + s * half] for c in corners for s in (-1, 1)]
    assume(all(value > 0 for corner in corners for value in corner))
    reach = [plain(how, corner) for corner in corners]  # each is monotone in each operand
    step = Fraction(1, 10**places)
    edge = max(reach) + step / 2 if up else min(reach) - step / 2
    # The nearest figure of so many places that lies beyond.
    beyond = int(edge // step) + 1 if up else -int(-edge // step) - 1
    stated = Decimal(f"{beyond}e-{places}")  # as it is: the context would round it to 28 digits
    unit = "" if how == "product" else "ms"
    in_unit = {"ratio": "×", "percent": "%", "change": "%", "saving": "%"}.get(how, unit)
    said = [f"{operand:f} {unit}".strip() for operand in operands]
    assert not holds(f"{stated:f} {in_unit}".strip(), how, *said)


@given(st.lists(st.decimals(0, 10**9, places=2), min_size=1, max_size=40))
def test_columns_of_money_are_exact_to_the_cent(amounts: list[Decimal]) -> None:
    exact = sum(amounts, Decimal(0))
    said = [f"{amount:f} USD" for amount in amounts]
    assert holds(f"{exact:f} USD", "sum", *said)
    assert not holds(f"{exact + Decimal('0.01'):f} USD", "sum", *said)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=8))
def test_the_geometric_mean_is_between_the_others(values: list[int]) -> None:
    said = [f"{value} ms" for value in values]
    harmonic, geometric, arithmetic = (
        derived(how, *said).low.at for how in ("harmonic_mean", "geometric_mean", "mean")
    )
    slack = Fraction(1, 10**30)
    assert harmonic <= geometric * (1 + slack) and geometric <= arithmetic * (1 + slack)
    power = geometric ** len(values)
    product = derived("product", *[str(value) for value in values]).low.at
    assert abs(power * 1000 ** len(values) / product - 1) < slack


@given(st.decimals(0, 10**8, places=2), st.sampled_from(["USD", "EUR"]))
def test_a_figure_made_of_a_number_is_the_one_that_its_text_states(number, unit):
    made, read = Quantity.of(number, unit), Quantity(f"{number} {unit}")
    parts = ("text", "low", "high", "relation", "unit")
    assert [getattr(made, part) for part in parts] == [getattr(read, part) for part in parts]


@pytest.mark.slow
@given(
    st.lists(
        st.sampled_from(["1.10 USD", "0.05 USD", "3 USD", "2.5 s", "1 min", "7 s"]), min_size=1
    )
)
def test_a_sum_is_that_of_its_figures_added_one_by_one(texts):
    assume(len({text[-1] == "D" for text in texts}) == 1)
    operands = [figure_of(Quantity(text), True) for text in texts]
    one_by_one = reduce(add, operands)
    assert OPERATIONS["sum"](operands) == one_by_one
