"""Keep an idle card, or stop it and start it again: both totals, and what would turn the advice.

    restart = (people + rate) × minutes of the restart + other cost of a restart
    keep    = rate × idle time + chance of pre-emption × (restart + other cost of a pre-emption)
    stop    = restart

The card is billed while it starts, and all who wait for it are paid. A card that is kept and taken
away has to be started again; it counts as billed for the whole of the idle time all the same, which
is the most that it can be.

The difference is linear in each input while the others are fixed. So of inputs that are ranges it
is enough to look at their ends, and the value that turns the advice follows from two points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Literal, NamedTuple

from kbtool.model.money import cents, half_up

Advice = Literal["keep", "stop", "either"]
Name = Literal["idle", "rate", "restart", "people", "restart_cost", "preemption", "preemption_cost"]
NAMES: dict[Name, str] = {
    "idle": "h", "rate": "/h", "restart": "min", "people": "/h", "restart_cost": "",
    "preemption": "%", "preemption_cost": "",
}  # fmt: skip
"""Input → its unit; ``/h`` and nothing stand behind the currency."""


class Span(NamedTuple):
    """A figure, or the two ends of a range."""

    low: Fraction
    high: Fraction


Inputs = Mapping[Name, Span]
Point = Mapping[Name, Fraction]


class Totals(NamedTuple):
    """What either way costs."""

    keep: Fraction
    stop: Fraction


@dataclass(frozen=True)
class Turn:
    """The value of one input at which the advice turns, the others as they are."""

    name: Name
    at: Span | None
    """From least to most, over the ends of the other inputs; ``None`` if no value turns it."""
    always: bool
    """Whether there is such a value whichever ends the other inputs take."""
    keep_is: Literal["below", "above"] | None
    """On which side of it keeping is cheaper; ``None`` if that differs over the ends."""


@dataclass(frozen=True)
class Answer:
    """What comes out."""

    inputs: Inputs
    keep: Span
    stop: Span
    saved: Span
    """What stopping saves, from least to most; negative where keeping is cheaper."""
    advice: Advice
    """``either`` if it depends on where in their ranges the inputs are, or both cost the same."""
    turns: list[Turn]

    @property
    def break_even(self) -> Turn:
        """The idle time at which both cost the same."""
        return next(turn for turn in self.turns if turn.name == "idle")


def totals(point: Point) -> Totals:
    """What keeping and stopping cost.

    Args:
        point: hours, money an hour, minutes, per cent, money.
    """
    waiting = (point["people"] + point["rate"]) * point["restart"] / 60
    restart = waiting + point["restart_cost"]
    preempted = point["preemption"] / 100 * (restart + point["preemption_cost"])
    return Totals(point["rate"] * point["idle"] + preempted, restart)


def weigh(inputs: Inputs) -> Answer:
    """Both totals, the advice, and for each input the value that turns it."""
    corners = [totals(point) for point in _corners(inputs)]
    saved = _span(corner.keep - corner.stop for corner in corners)
    advice: Advice = "stop" if saved.low > 0 else "keep" if saved.high < 0 else "either"
    return Answer(
        inputs,
        _span(corner.keep for corner in corners),
        _span(corner.stop for corner in corners),
        saved,
        advice,
        [_turn(inputs, name) for name in NAMES],
    )


def _turn(inputs: Inputs, name: Name) -> Turn:
    found: list[Fraction] = []
    sides: set[Literal["below", "above"]] = set()
    all_turn = True
    for point in _corners({**inputs, name: Span(Fraction(0), Fraction(0))}):
        at_none = _difference(point)
        slope = _difference({**point, name: Fraction(1)}) - at_none
        value = -at_none / slope if slope else None
        # A chance that turns it is never more than 100 %; below nothing there is no value.
        if value is None or value < 0 or (value == 0 and slope > 0):
            all_turn = False
            continue
        found.append(value)
        sides.add("below" if slope > 0 else "above")
    keep_is = next(iter(sides)) if len(sides) == 1 else None
    return Turn(name, _span(found) if found else None, bool(found) and all_turn, keep_is)


def _difference(point: Point) -> Fraction:
    """What stopping saves."""
    both = totals(point)
    return both.keep - both.stop


def _corners(inputs: Inputs) -> Iterator[Point]:
    names = list(inputs)
    for ends in product(*({span.low, span.high} for span in inputs.values())):
        yield dict(zip(names, ends, strict=True))


def _span(values: Iterator[Fraction] | list[Fraction]) -> Span:
    ordered = sorted(values)
    return Span(ordered[0], ordered[-1])


def money_json(span: Span) -> dict[str, str]:
    """A sum of money, to the cent: its low and its high end."""
    return {"low": cents(span.low), "high": cents(span.high)}


def figure(value: Fraction) -> str:
    """A figure as it is, where four digits after the point hold it; else to four in all."""
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    places = 4 if (value * 10**4).denominator == 1 else max(0, 3 - exact.adjusted())
    text = f"{half_up(value, places):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def span_text(span: Span, unit: str = "") -> str:
    """``4 to 6 h``, ``12 h``."""
    low, high = figure(span.low), figure(span.high)
    return f"{low if low == high else f'{low} to {high}'}{' ' + unit if unit else ''}"


def money_text(span: Span, currency: str) -> str:
    """``0.80 to 1.20 USD``."""
    low, high = cents(span.low), cents(span.high)
    return f"{low if low == high else f'{low} to {high}'} {currency}"


def answer_json(answer: Answer, currency: str, sources: Mapping[Name, str]) -> dict[str, object]:
    """``keep-or-stop --json``: money as decimal strings, other figures too."""

    def span(value: Span | None) -> object:
        return None if value is None else {"low": figure(value.low), "high": figure(value.high)}

    return {
        "currency": currency,
        "inputs": {
            name: {**span_dict(value), "unit": unit_of(name, currency), "from": sources[name]}
            for name, value in answer.inputs.items()
        },
        "keep": money_json(answer.keep),
        "stop": money_json(answer.stop),
        "stopping_saves": money_json(answer.saved),
        "advice": answer.advice,
        "break_even_idle_hours": span(answer.break_even.at),
        "turns": [
            {
                "input": turn.name,
                "unit": unit_of(turn.name, currency),
                "at": span(turn.at),
                "always": turn.always,
                "keep_is_cheaper": turn.keep_is,
            }
            for turn in answer.turns
        ],
    }


def span_dict(span: Span) -> dict[str, str]:
    """Both ends of a span as text."""
    return {"low": figure(span.low), "high": figure(span.high)}


def unit_of(name: Name, currency: str) -> str:
    """The unit of an input."""
    unit = NAMES[name]
    return unit if unit in {"h", "min", "%"} else f"{currency}{unit}"
