"""Figures as pages show them: never more digits than there are, never a zero for an unknown."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from statistics import geometric_mean
from typing import TypeVar

from kbtool.model.base import Instant, Quantity
from kbtool.model.results import (
    BenchmarkResult,
    MutantsResult,
    ProfileResult,
    SanitiseResult,
    TuneResult,
    ValidationResult,
)
from kbtool.model.run import Run
from kbtool.model.words import many as many
from kbtool.steps import mutants

UNKNOWN = "unknown"
T = TypeVar("T")


def figure(value: object) -> str:
    """A value of a record in the words of a page: a moment with its zone, a range with a dash."""
    if isinstance(value, Instant):
        return instant(value.at)
    return ranged(value.text) if isinstance(value, Quantity) else str(value)


def ranged(text: str) -> str:
    """The ranges and bounds in the text of a figure: ``5..10 min`` is ``5–10 min``."""
    spelled = re.sub(r"(?<=\d)\.\.(?=-)", " to ", text)
    spelled = re.sub(r"(?<=\d)\.\.(?=\d)", "–", spelled)
    spelled = re.sub(r"([<>])= ?(?=[\d-])", lambda sign: "≤≥"[sign[1] == ">"] + " ", spelled)
    return re.sub(r"(?<![\w-])-(?=\d)", "−", spelled)


def money(amount: Decimal | None, currency: str = "USD") -> str:
    """An amount with its currency: ``1.50 USD``."""
    if amount is None:
        return UNKNOWN
    shown = f"{amount:,.2f}" if amount == round(amount, 2) else f"{amount.normalize():,f}"
    return f"{shown} {currency}"


def minutes(value: Decimal | None) -> str:
    """Minutes: ``734 min``."""
    if value is None:
        return UNKNOWN
    whole = value == value.to_integral_value()
    return f"{value:,.0f} min" if whole else f"{value:,.1f} min"


def seconds(value: float | None) -> str:
    """A time of a step: ``0.42 s``, ``75 s``, ``12 min 5 s``."""
    if value is None:
        return ""
    if value < 120:
        if value == int(value):
            return f"{value:.0f} s"
        return f"{significant(value)} s"
    return f"{int(value // 60)} min {int(value % 60)} s"


def significant(value: float, digits: int = 3) -> str:
    """``value`` to so many digits, without an exponent where one can do without."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if places > 6 or places < -9:
        return f"{value:.{digits - 1}e}"
    return f"{round(value, places):,.{max(places, 0)}f}"


def counted(value: float) -> str:
    """A figure that may be a count, a size or a limit: whole numbers in full."""
    return f"{value:,.0f}" if float(value).is_integer() else significant(value)


def instant(value: datetime) -> str:
    """A moment of a run: ``2025-11-21 10:19 UTC`` as recorded."""
    zone = value.tzname() or ""
    return f"{value:%Y-%m-%d %H:%M} {zone}".strip()


def validation(run: Run) -> ValidationResult | None:
    """The last validation of a run."""
    return _last(run, ValidationResult)


def benchmark(run: Run) -> BenchmarkResult | None:
    """The last benchmark of a run."""
    return _last(run, BenchmarkResult)


def _last(run: Run, kind: type[T]) -> T | None:
    results = [step.result for step in run.steps if isinstance(step.result, kind)]
    return results[-1] if results else None


def cases_passed(result: ValidationResult) -> str:
    """``12 of 12 cases passed``, and how many were not run if the step was cut short."""
    of = many(len(result.cases), "case")
    return f"{result.cases_passed:,} of {of} passed{not_reached(result)}"


def not_reached(
    result: ValidationResult | BenchmarkResult | ProfileResult | SanitiseResult | TuneResult,
) -> str:
    """``; 3 not reached`` where the step was cut short."""
    return f"; {result.not_reached} not reached" if result.not_reached else ""


def sm_clock(result: BenchmarkResult) -> str:
    """The card's clock while it was timed: ``1,410–1,980 MHz``; empty without a card."""
    clocks = result.sm_clocks_mhz
    if not clocks:
        return "" if result.device == "cpu" else UNKNOWN
    low, high = min(clocks), max(clocks)
    return f"{high:,} MHz" if low == high else f"{low:,}–{high:,} MHz"


def worst_error(result: ValidationResult) -> float | None:
    """The largest error as a share of its bound, over all outputs."""
    shares = [
        output.error / output.bound
        for case in result.cases
        for output in case.outputs.values()
        if output.error is not None and output.bound
    ]
    return max(shares, default=None)


def headline(run: Run) -> str:
    """What a run found, in a line."""
    said: dict[str, str] = {}
    prepared = ""
    for step in run.steps:
        if isinstance(step.result, ValidationResult):
            said[step.kind] = cases_passed(step.result)
        elif isinstance(step.result, BenchmarkResult):
            said[step.kind] = _speed(step.result)
        elif isinstance(step.result, MutantsResult) and step.status not in {"passed", "failed"}:
            said[step.kind] = f"{mutants.headline(step.result)}; {step.message}"
        elif not step.message or step.status == "not-run":
            continue
        elif step.kind in _PREPARES and step.status == "passed":
            prepared = step.message
        else:
            said[step.kind] = step.message
    return "; ".join(said.values()) or prepared


_PREPARES = {"environment", "build"}
"""Kinds of steps whose success is no finding."""


def _speed(result: BenchmarkResult) -> str:
    """How a benchmark ended, beside its baseline."""
    ratios = ratios_of(result)
    if result.noise is not None:
        return result.noise
    if not ratios:
        return f"no ratio to {result.baseline}: no case has both figures"
    return f"{span(ratios)} × the speed of {result.baseline}{not_reached(result)}"


def ratios_of(result: BenchmarkResult) -> list[float]:
    """The ratios to the baseline of every case that has one."""
    return [r for case in result.cases if (r := result.ratio(case)) is not None]


def span(ratios: Iterable[float]) -> str:
    """Least to largest: ``0.8–1.9 (geometric mean 1.2)``, the mean that steps report too."""
    ordered = sorted(ratios)
    low, high = significant(ordered[0]), significant(ordered[-1])
    if len(ordered) == 1:
        return low
    return f"{low}–{high} (geometric mean {significant(geometric_mean(ordered))})"
