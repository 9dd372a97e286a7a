"""``kbtool keep-or-stop``: is an idle card cheaper kept or stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import json_option, knowledge_base, print_json, print_table

if TYPE_CHECKING:
    from kbtool.ledger.keep_or_stop import Answer, Name, Span, Turn
    from kbtool.model.cost import CostKind
    from kbtool.store.tree import KnowledgeBase

EPILOG = """\b
Examples:
  kbtool keep-or-stop --idle '12 h' --rate l4 --restart '10 min' --people '50 USD/h'
  kbtool keep-or-stop --idle '2..8 h' --rate '2.50 USD/h' --restart '15 min' --people '90 USD/h' \\
      --preemption '10 %' --preemption-cost '40 USD'
  kbtool keep-or-stop --idle N+7A#decisions.gpu-until-next.keep.time \\
      --rate N+7A#decisions.gpu-until-next.keep.rate \\
      --restart-cost N+7A#decisions.gpu-until-next.stop.context-loss

\b
  restart = (people + rate) × minutes of the restart + other cost of a restart
  keep    = rate × idle time + chance of pre-emption × (restart + other cost of a pre-emption)
  stop    = restart

\b
A figure may be a range, a rate may be an id of sessions/ledger.yaml, and any figure may be
RECORD#path of one that a record states. What is not given is taken from keep_or_stop in
sessions/ledger.yaml. The card is billed while it starts; one that is taken away counts as billed
for the whole idle time. The advice is 'either' where it depends on where in its range a figure is.
Below it: for each input, the value at which the advice turns while the others stay."""

_TITLES: dict[str, str] = {
    "idle": "idle time", "rate": "card", "restart": "restart", "people": "people who wait",
    "restart_cost": "other cost of a restart", "preemption": "chance of pre-emption",
    "preemption_cost": "other cost of a pre-emption",
}  # fmt: skip


@click.command("keep-or-stop", epilog=EPILOG)
@click.option("--idle", required=True, metavar="TIME", help="Time until work resumes: '12 h'.")
@click.option("--rate", metavar="ID|RATE", help="Price of the card: l4, '0.20 USD/h'.")
@click.option(
    "--restart", metavar="TIME", help="Time from starting the card to working again: '10 min'."
)
@click.option(
    "--people", multiple=True, metavar="ID|RATE",
    help="Price of each person who waits for a restart: '50 USD/h'; repeatable.",
)  # fmt: skip
@click.option(
    "--restart-cost", metavar="MONEY",
    help="Other cost of a restart, such as lost context: '1 USD'.",
)  # fmt: skip
@click.option(
    "--preemption", metavar="PERCENT",
    help="Chance that a kept card is pre-empted while idle: '10 %'. Default: none.",
)  # fmt: skip
@click.option(
    "--preemption-cost",
    metavar="MONEY",
    help="Cost of a pre-emption besides the restart: '40 USD'.",
)
@json_option
@click.pass_context
def keep_or_stop(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """Compare the cost of keeping an idle card with stopping and restarting it (pattern 7)."""
    from kbtool.ledger.keep_or_stop import answer_json, weigh

    inputs, currency, sources = _inputs(knowledge_base(ctx), options)
    answer = weigh(inputs)
    if as_json:
        print_json(answer_json(answer, currency, sources))
    else:
        _print(answer, currency, sources)


def _inputs(
    base: KnowledgeBase, options: dict[str, Any]
) -> tuple[dict[Name, Span], str, dict[Name, str]]:
    """The inputs, their currency, and where each comes from."""
    from fractions import Fraction

    from kbtool.ledger.keep_or_stop import Span
    from kbtool.ledger.rates import find_figure, find_rate, sound_ledger
    from kbtool.model.base import Amount, Duration, Likelihood, Quantity, Rate
    from kbtool.model.errors import UsageError
    from kbtool.model.ledger import KeepOrStop
    from kbtool.model.price import currency_of, ends_per_hour

    ledger = sound_ledger(base)
    defaults = ledger.keep_or_stop or KeepOrStop()
    sources: dict[Name, str] = {}
    currencies: set[str] = set()

    def given(name: Name) -> Any:
        """What an option says, else the ledger."""
        option = options[name]
        if option is not None and option != ():
            sources[name] = ", ".join(option) if isinstance(option, tuple) else option
            return option
        default = getattr(defaults, name, None)
        sources[name] = "ledger.yaml" if default else "not given"
        return default.text if isinstance(default, Quantity) else default

    def ends(quantity: Quantity, scale: Fraction = Fraction(1)) -> Span:
        return Span(Fraction(quantity.low) * scale, Fraction(quantity.high or quantity.low) * scale)

    def price(name: Name, text: str, kind: CostKind) -> Span:
        option = f"--{name}"
        rate = (
            find_figure(base, option, Rate, text)
            if "#" in text
            else find_rate(ledger, option, text, kind).rate
        )
        currencies.add(currency_of(rate))
        return Span(*ends_per_hour(rate))

    def time(name: Name, unit: int) -> Span | None:
        text = given(name)
        if text is None:
            return None
        found = find_figure(base, f"--{name}", Duration, text)
        return ends(found, Fraction(found.MINUTES[found.unit]).limit_denominator(10**12) / unit)

    def sum_of_money(name: Name) -> Span | None:
        text = given(name)
        if text is None:
            return None
        found = find_figure(base, f"--{name.replace('_', '-')}", Amount, text)
        currencies.add(currency_of(found))
        return ends(found)

    nothing = Span(Fraction(0), Fraction(0))
    idle = time("idle", 60)
    card, waiting = given("rate"), given("people")
    restart, restart_cost = time("restart", 1), sum_of_money("restart_cost")
    if card is None:
        known = ", ".join(one.id for one in ledger.rates if one.kind == "gpu") or "none yet"
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
    people = nothing
    for one in waiting or ():
        each = price("people", one, "engineer")
        people = Span(people.low + each.low, people.high + each.high)
    chance = given("preemption")
    inputs: dict[Name, Span] = {
        "idle": idle or nothing,
        "rate": price("rate", card, "gpu"),
        "restart": restart or nothing,
        "people": people,
        "restart_cost": restart_cost or nothing,
        "preemption": nothing
        if chance is None
        else ends(find_figure(base, "--preemption", Likelihood, chance)),
        "preemption_cost": sum_of_money("preemption_cost") or nothing,
    }
    # Nobody waits at 0 USD/h; what costs nothing has no currency to disagree with.
    if len(currencies) > 1:
        names = ", ".join(sorted(currencies))
        raise UsageError(f"the figures are in several currencies ({names}); give them all in one")
    return inputs, currencies.pop(), sources


def _print(answer: Answer, currency: str, sources: dict[Name, str]) -> None:
    from kbtool.ledger.keep_or_stop import money_text, span_text, unit_of

    rows = [
        [_TITLES[name], span_text(span, unit_of(name, currency)), sources[name]]
        for name, span in answer.inputs.items()
    ]
    print_table(["input", "figure", "from"], rows, set())
    click.echo(f"\nkeep  {money_text(answer.keep, currency)}")
    click.echo(f"stop  {money_text(answer.stop, currency)}")
    click.echo(f"\nadvice: {_advice(answer, currency)}")
    even = answer.break_even
    if even.at is None:
        click.echo("break-even: none; no idle time turns the advice")
    else:
        some = "" if even.always else "; none at some ends of the ranges"
        click.echo(f"break-even: {span_text(even.at, 'h')} of idle time; below it, keep{some}")
    click.echo("\nwhat turns the advice, each alone:")
    rows = [[_TITLES[turn.name], _turned(turn, currency)] for turn in answer.turns]
    print_table(["input", "keeping is cheaper"], rows, set())


def _advice(answer: Answer, currency: str) -> str:
    from kbtool.ledger.keep_or_stop import Span, money_text

    low, high = answer.saved
    if answer.advice == "stop":
        return f"stop; it saves {money_text(answer.saved, currency)}"
    if answer.advice == "keep":
        return f"keep; it saves {money_text(Span(-high, -low), currency)}"
    if low == high:
        return "either; both cost the same"
    return (
        f"either; stopping saves {money_text(Span(high, high), currency)} at most and costs"
        f" {money_text(Span(-low, -low), currency)} more at most"
    )


def _turned(turn: Turn, currency: str) -> str:
    from kbtool.ledger.keep_or_stop import span_text, unit_of

    if turn.at is None:
        return "no value turns it"
    side = turn.keep_is or "on one side of"
    some = "" if turn.always else "; no value at some ends of the ranges"
    return f"{side} {span_text(turn.at, unit_of(turn.name, currency))}{some}"
