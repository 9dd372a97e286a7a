"""Metrics: a name, a unit, which of two values is better, and a finite value."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kbtool.model.base import Quantity
from kbtool.model.metric import Metric, MetricValue
from kbtool.model.units import unit_of

FIELDS = {"name": "tokens/s", "unit": "1/s", "better": "higher", "value": 1830}


def refused(**fields):
    with pytest.raises(ValidationError) as error:
        MetricValue.model_validate({**FIELDS, **fields})
    return error.value.errors()[0]["msg"].removeprefix("Value error, ")


def test_a_metric_is_read_back_as_written():
    written = MetricValue.model_validate(FIELDS)
    assert MetricValue.model_validate_json(written.model_dump_json()) == written
    assert written.value == 1830.0


def test_which_is_better_need_not_be_said():
    assert Metric(name="registers", unit="1").better == "neither"


@pytest.mark.parametrize("unit", [None, ""])
def test_a_metric_without_a_unit_is_told_what_to_write(unit):
    assert refused(unit=unit) == (
        "metric 'tokens/s' has no unit: write one, such as us, GB/s, J or 1/s; a pure number has"
        " the unit 1"
    )
    with pytest.raises(ValidationError, match="metric 'tokens/s' has no unit: write one"):
        Metric.model_validate({"name": "tokens/s"})


@pytest.mark.parametrize(
    "unit", ["5", "12 us", "tokens per s", "-", "/s", "s/", "1//s", "nan", "Infinity", "us\x1b[2J"]
)
def test_what_is_no_unit_is_refused(unit):
    assert refused(unit=unit).startswith(f"{unit!r} is no unit: write one, such as us")


@pytest.mark.parametrize(
    "unit", ["1", "1/s", "us", "µs", "GB/s", "GFLOP/s", "J", "W", "%", "°C", "tokens/s/GPU", "B·s"]
)
def test_usual_units_are_taken(unit):
    assert Metric(name="m", unit=unit).unit == unit
    unit_of(unit)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "-Infinity", "1e999"])
def test_what_is_not_finite_is_no_measurement(value):
    assert refused(value=value) == f"{value} is no measurement: leave the value out"


def test_a_number_beyond_floats_and_a_truth_value_are_refused():
    assert refused(value=10**400) == "the number is beyond 1e+300, of which no mean can be computed"
    assert refused(value=True) == "True is no number: write 1 or 0"


@pytest.mark.parametrize("name", ["", " time", "two\nlines", "bell\a"])
def test_a_name_is_one_line(name):
    refused(name=name)


@given(st.floats())
def test_of_all_floats_those_that_a_mean_can_be_made_of_are_taken_and_kept(value):
    text = json.dumps({**FIELDS, "value": value})
    if abs(value) <= 1e300:
        assert MetricValue.model_validate_json(text).value == value
    else:
        with pytest.raises(ValidationError, match=r"is no measurement|is beyond"):
            MetricValue.model_validate_json(text)


@given(st.text(max_size=12))
def test_a_unit_is_taken_as_it_is_or_refused(unit):
    """What is taken has no space and no control character, and units are computed from it."""
    try:
        metric = Metric(name="m", unit=unit)
    except ValidationError:
        return
    assert metric.unit == unit
    assert unit.isprintable()
    assert " " not in unit
    unit_of(unit)


@pytest.mark.parametrize("text", ["12,5us", "1,234 us", "12±1us", "1_234us", "1.234.567us"])
def test_a_separator_does_not_begin_a_unit(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity; write a number"):
        Quantity(text)


@pytest.mark.parametrize("text", ["12.5 us", "5 %", "1.5 ×", "3 µs", "0.20 USD/h", "7"])
def test_what_is_written_without_one_is_a_quantity(text: str) -> None:
    assert str(Quantity(text)) == text
