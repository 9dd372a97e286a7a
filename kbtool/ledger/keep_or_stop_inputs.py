"""What ``keep-or-stop`` weighs: figures of the command line, of records and of the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from kbtool.ledger.keep_or_stop import Name, Span, span_text
from kbtool.ledger.rates import find_figure, find_rate, sound_ledger
from kbtool.ledger.under_way import UnderWay
from kbtool.model.base import Amount, Duration, Likelihood, Quantity, Rate
from kbtool.model.cost import CostKind
from kbtool.model.errors import UsageError
from kbtool.model.ledger import KeepOrStop
from kbtool.model.price import currency_of, ends_per_hour
from kbtool.model.session_costs import plain_card
from kbtool.model.words import listed
from kbtool.store.tree import KnowledgeBase

_NOTHING = Span(Fraction(0), Fraction(0))


def inputs_of(
    base: KnowledgeBase, options: Mapping[str, Any]
) -> tuple[dict[Name, Span], str, dict[Name, str]]:
    """The inputs, their currency, and where each comes from.

    Raises:
        UsageError: a figure is missing or cannot be read, or there are several currencies.
    """
    given = _Given(base, options)
    idle = given.time("idle", unit_minutes=60)
    card, waiting = given.option("rate"), given.option("people")
    restart, restart_cost = given.time("restart", unit_minutes=1), given.money("restart_cost")
    if card is None:
        known = ", ".join(one.id for one in given.ledger.rates if one.kind == "gpu") or "none yet"
        raise UsageError(
            f"say what the card costs: --rate '0.20 USD/h', or a rate of the ledger ({known})"
        )
    if restart is None and restart_cost is None:
        raise UsageError(
            "say what a restart costs: --restart '10 min' --people '50 USD/h', or --restart-cost"
            " '1 USD', or both"
        )
    if restart is not None and restart.high > 0 and not waiting:
        raise UsageError(
            "say what those cost who wait for the restart: --people '50 USD/h', or --people"
            " '0 USD/h' if nobody does"
        )
    prices = [given.price("people", one, "engineer") for one in waiting or ()]
    inputs: dict[Name, Span] = {
        "idle": idle or _NOTHING,
        "rate": given.price("rate", card, "gpu"),
        "restart": restart or _NOTHING,
        "people": Span(
            sum((one.low for one in prices), Fraction(0)),
            sum((one.high for one in prices), Fraction(0)),
        ),
        "restart_cost": restart_cost or _NOTHING,
        "preemption": given.chance("preemption") or _NOTHING,
        "preemption_cost": given.money("preemption_cost") or _NOTHING,
    }
    if len(given.currencies) > 1:
        names = ", ".join(sorted(given.currencies))
        raise UsageError(f"the figures are in several currencies ({names}); give them all in one")
    return inputs, given.currencies.pop(), given.sources


def after_sweeps(
    base: KnowledgeBase,
    options: Mapping[str, Any],
    inputs: Mapping[Name, Span],
    sources: Mapping[Name, str],
    sweeps: Sequence[UnderWay],
) -> tuple[dict[Name, Span], dict[Name, str], list[str]]:
    """The inputs without the time for which sweeps hold the card, where that comes from, and what
    is to be said of each sweep under way.

    Args:
        base: the knowledge base.
        options: as given to ``inputs_of``.
        inputs: from there.
        sources: from there.
        sweeps: those under way.
    """
    given = _Given(base, options)
    price = given.ledger.price(str(given.option("rate")))
    card = plain_card(price.card) if price else None
    idle, said, notes = inputs["idle"], sources["idle"], []
    for one in sweeps:
        name = f"sweep {one.sweep.id}"
        held = listed(one.held_s)
        if not one.is_driven or not held:
            continue
        if card is None:
            notes.append(
                f"{name} holds {held}. If that is this card, give --rate as an id of the ledger"
                " that names the card: then its time does not count as idle"
            )
        elif card in map(plain_card, one.held_s):
            if one.wall_s is None:
                notes.append(
                    f"{name} holds the card, nobody knows for how long: that counts as idle here"
                )
                continue
            hours = Fraction(one.wall_s).limit_denominator(10**6) / 3600
            idle = Span(*(max(Fraction(0), end - hours) for end in idle))
            said += f", less {span_text(Span(hours, hours), 'h')} of {name}"
            notes.append(f"{name} holds the card: only the time after it counts as idle")
    return {**inputs, "idle": idle}, {**sources, "idle": said}, notes


class _Given:
    """Reads options; one that is left out is taken from the ledger."""

    def __init__(self, base: KnowledgeBase, options: Mapping[str, Any]) -> None:
        self.base, self.options = base, options
        self.ledger = sound_ledger(base)
        self.defaults = self.ledger.keep_or_stop or KeepOrStop()
        self.sources: dict[Name, str] = {}
        """Where each figure comes from, in words."""
        self.currencies: set[str] = set()
        """Of all prices and sums read so far."""

    def option(self, name: Name) -> Any:
        """What an option says, else the ledger; ``None`` where neither does."""
        option = self.options[name]
        if option is not None and option != ():
            self.sources[name] = ", ".join(option) if isinstance(option, tuple) else option
            return option
        default = getattr(self.defaults, name, None)
        self.sources[name] = "ledger.yaml" if default else "not given"
        return default.text if isinstance(default, Quantity) else default

    def time(self, name: Name, unit_minutes: int) -> Span | None:
        """A duration, in units of so many minutes."""
        text = self.option(name)
        if text is None:
            return None
        found = find_figure(self.base, f"--{name}", Duration, text)
        minutes = Fraction(found.MINUTES[found.unit]).limit_denominator(10**12)
        return _ends(found, minutes / unit_minutes)

    def money(self, name: Name) -> Span | None:
        """A sum of money."""
        text = self.option(name)
        if text is None:
            return None
        found = find_figure(self.base, f"--{name.replace('_', '-')}", Amount, text)
        self.currencies.add(currency_of(found))
        return _ends(found)

    def chance(self, name: Name) -> Span | None:
        """A probability."""
        text = self.option(name)
        if text is None:
            return None
        return _ends(find_figure(self.base, f"--{name}", Likelihood, text))

    def price(self, name: Name, text: str, kind: CostKind) -> Span:
        """A price by the hour: written out, stated by a record, or a rate of the ledger."""
        option = f"--{name}"
        rate = (
            find_figure(self.base, option, Rate, text)
            if "#" in text
            else find_rate(self.ledger, option, text, kind).rate
        )
        self.currencies.add(currency_of(rate))
        return Span(*ends_per_hour(rate))


def _ends(quantity: Quantity, scale: Fraction = Fraction(1)) -> Span:
    return Span(Fraction(quantity.low) * scale, Fraction(quantity.high or quantity.low) * scale)
