"""Figures as pages show them: never more digits than there are, never a zero for an unknown."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal

from kbtool.model.base import Instant, Quantity
from kbtool.model.kinds.base import ResultBase
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.kinds.build import BuildResult
from kbtool.model.kinds.validate import ValidationResult
from kbtool.model.money import amount_text, half_up
from kbtool.model.run import Run
from kbtool.model.words import counted as counted
from kbtool.model.words import many as many
from kbtool.model.words import significant as significant

UNKNOWN = "unknown"


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


def of_implementations(text: str) -> str:
    """What a run record says of its arms, in the word that the pages have for them."""
    return re.sub(r"\barm(s?)\b", r"implementation\1", text)


def money(amount: Decimal | None, currency: str = "USD") -> str:
    """An amount with its currency: ``1.50 USD``."""
    if amount is None:
        return UNKNOWN
    return f"{amount_text(amount, grouped=True)} {currency}"


def minutes(value: Decimal | None) -> str:
    """Minutes: ``734 min``."""
    if value is None:
        return UNKNOWN
    return f"{half_up(value, 0 if value == value.to_integral_value() else 1):,f} min"


def seconds(value: float | None) -> str:
    """A time of a step: ``56 ms``, ``0.42 s``, ``75 s``, ``12 min 5 s``."""
    if value is None:
        return ""
    if 0 < value < 0.1:
        return f"{counted(round(value * 1000, 6))} ms"
    if value < 120:
        if value == int(value):
            return f"{value:.0f} s"
        return f"{significant(value)} s"
    left = int(value % 60)
    return f"{int(value // 60)} min" + (f" {left} s" if left else "")


def instant(value: datetime) -> str:
    """A moment of a run: ``2025-11-21 10:19 UTC`` as recorded."""
    zone = value.tzname() or ""
    return f"{value:%Y-%m-%d %H:%M} {zone}".strip()


def build(run: Run) -> BuildResult | None:
    """The last build of a run."""
    return run.last(BuildResult)


def validation(run: Run) -> ValidationResult | None:
    """The last validation of a run."""
    return run.last(ValidationResult)


def benchmark(run: Run) -> BenchmarkResult | None:
    """The last benchmark of a run."""
    return run.last(BenchmarkResult)


def noise_reason(result: ResultBase) -> str | None:
    """Why the times of a result are too noisy for a ratio or a verdict; ``None`` if they are not.

    Every page that compares two times asks this; a noisy result is shown as a time alone.
    """
    return result.noise


def share_of_ceiling(result: BenchmarkResult, case: BenchmarkCase) -> float | None:
    """The time that the bound allows ÷ the subject's; ``None`` if the times are too noisy."""
    return None if noise_reason(result) else result.share_of_ceiling(case)


def share_text(result: BenchmarkResult, case: BenchmarkCase) -> str | None:
    """The share in percent, and by which ceiling where more than reads were measured."""
    share, bound = share_of_ceiling(result, case), result.bound(case)
    if share is None or bound is None:
        return None
    text = f"{significant(100 * share)} %"
    return f"{text} <small>{bound.by}</small>" if result.arithmetic_gflop_s else text


def arithmetic_text(result: BenchmarkResult) -> str:
    """The measured ceilings of arithmetic: ``float32: 105 GFLOP/s``."""
    return ", ".join(
        f"{dtype}: {significant(rate)} GFLOP/s" for dtype, rate in result.arithmetic_gflop_s.items()
    )


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
        share
        for case in result.cases
        for output in case.outputs.values()
        if (share := output.share) is not None
    ]
    return max(shares, default=None)
