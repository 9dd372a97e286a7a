"""A metric: what a figure beside time measures, in which unit, and whether more is better."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kbtool.model.base import MAX_ID, Model

Better = Literal["lower", "higher", "neither"]
"""Which of two values is the better one."""

LARGEST = 1e300
"""The size of a value: the sum of a few larger ones would be infinite."""

_UNIT = re.compile(r"(1|[^\W\d_][^\s/·*]*|[%×°][^\s/·*]*)([/·*][^\W\d_][^\s/·*]*)*")

_NO_UNITS = {"nan", "inf", "infinity"}

_WRITE = "write one, such as us, GB/s, J or 1/s; a pure number has the unit 1"


def _is_one_line(name: str) -> str:
    if not name.isprintable() or name != name.strip():
        raise ValueError(
            f"{name!r} is no name of a metric: write one line without spaces around it"
        )
    return name


def _is_a_unit(unit: str) -> str:
    if not (unit.isprintable() and _UNIT.fullmatch(unit)) or unit.lower() in _NO_UNITS:
        raise ValueError(f"{unit!r} is no unit: {_WRITE}")
    return unit


def _is_finite(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"{value} is no number: write 1 or 0")
    try:
        size = abs(float(value))
    except OverflowError:
        size = 10.0 * LARGEST
    except (TypeError, ValueError):
        return value  # Pydantic says what is wrong with it
    if not math.isfinite(size):
        raise ValueError(f"{value!s:.20} is no measurement: leave the value out")
    if size > LARGEST:
        raise ValueError(f"the number is beyond {LARGEST:g}, of which no mean can be computed")
    if isinstance(value, str):
        raise ValueError(f"{value!r} is text, and no number: write it without quotes")
    return value


MetricName = Annotated[str, Field(min_length=1, max_length=MAX_ID), AfterValidator(_is_one_line)]
"""What is measured: bandwidth, energy, tokens/s."""

MetricUnit = Annotated[str, Field(max_length=MAX_ID), AfterValidator(_is_a_unit)]
"""The unit of its values; 1 of a pure number."""

FiniteValue = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_is_finite)]
"""A value that can be compared and drawn: neither NaN nor infinite."""


class Metric(Model):
    """What is measured beside time."""

    name: MetricName
    """What is measured: bandwidth, energy, tokens/s."""
    unit: MetricUnit
    """The unit of its values: GB/s, J, 1/s; 1 of a pure number."""
    better: Better = "neither"
    """Which of two values is the better one: the lower, the higher, or neither."""

    @model_validator(mode="before")
    @classmethod
    def _has_a_unit(cls, given: Any) -> Any:
        if isinstance(given, dict) and not given.get("unit"):
            name = given.get("name")
            which = f"metric {name!r:.60}" if name else "the metric"
            raise ValueError(f"{which} has no unit: {_WRITE}")
        return given


class MetricValue(Metric):
    """A metric and one value of it."""

    value: FiniteValue
    """The value, in the unit."""
