"""``kbtool keep-or-stop``: compare the cost of keeping an idle card with stopping it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import json_option, knowledge_base, print_json, print_table

if TYPE_CHECKING:
    from kbtool.ledger.keep_or_stop import Answer, Name, Turn

EPILOG = """\b
Examples:
  kbtool keep-or-stop --idle '12 h' --rate '0.20 USD/h' --restart '10 min' --people '50 USD/h'
  kbtool keep-or-stop --idle '2..8 h' --rate '2.50 USD/h' --restart '15 min' --people '90 USD/h' \\
      --preemption '10 %' --preemption-cost '40 USD'
  kbtool keep-or-stop --idle SESSION#decisions.ID.OPTION.FIGURE --rate '0.20 USD/h'

\b
  restart = (people + rate) × minutes of the restart + other cost of a restart
  keep    = rate × idle time + chance of pre-emption × (restart + other cost of a pre-emption)
  stop    = restart

\b
A figure may be a range. A rate may be an id of sessions/ledger.yaml. Any figure may be RECORD#path
of a figure in a record. Defaults come from keep_or_stop in sessions/ledger.yaml. The time for which
a sweep under way still holds the card is not idle and is taken off, by the sweep's own estimate.
The card is billed while it starts; a card that is pre-empted counts as billed for the whole idle
time. The advice is 'either' if it differs within the range of an input. Below the advice: for each
input, the value at which the advice changes while the others stay the same."""

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
    from kbtool.cli.sweep_output import sweeps_here, under_way_json
    from kbtool.ledger.keep_or_stop import answer_json, weigh
    from kbtool.ledger.keep_or_stop_inputs import after_sweeps, inputs_of

    base = knowledge_base(ctx)
    inputs, currency, sources = inputs_of(base, options)
    sweeps = sweeps_here(base)
    inputs, sources, notes = after_sweeps(base, options, inputs, sources, sweeps)
    answer = weigh(inputs)
    if as_json:
        told = {"sweeps": [under_way_json(one) for one in sweeps], "notes": notes}
        print_json({**answer_json(answer, currency, sources), **told})
    else:
        _print(answer, currency, sources)
        click.echo("".join(f"\n{note}" for note in notes), nl=bool(notes))


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
        click.echo("break-even: none; no idle time changes the advice")
    else:
        some = "" if even.always else "; none at some ends of the ranges"
        click.echo(f"break-even: {span_text(even.at, 'h')} of idle time; below it, keep{some}")
    click.echo("\nwhat changes the advice, each input alone:")
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
        return "no value changes it"
    side = turn.keep_is or "on one side of"
    some = "" if turn.always else "; no value at some ends of the ranges"
    return f"{side} {span_text(turn.at, unit_of(turn.name, currency))}{some}"
