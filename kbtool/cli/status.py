"""``kbtool status``: running sessions, what they cost, what is left, when to stop the card."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, print_json
from kbtool.cli.pasted import pasted
from kbtool.model.money import cents, half_up, hourly
from kbtool.model.words import many

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from kbtool.ledger.budget import Account, Budget, Status
    from kbtool.ledger.rollup import Costed
    from kbtool.ledger.under_way import UnderWay
    from kbtool.model.session_costs import SessionCosts

RECENT_DAYS = 7
"""Sessions paused longer ago are counted, but not named."""

EPILOG = """\b
Examples:
  kbtool status                     the running and paused sessions, and this month
  kbtool status --short             one line; nothing if no session is running
  kbtool status --json | jq .stop   when the first budget will be used up, and which
  */5 * * * *  cd ~/kb && kbtool status --short || wall "stop the card"
  PS1='$(kbtool status --short 2>/dev/null) \\w \\$ '

\b
Budgets: `kbtool session new --budget-time '2 h' --budget-money '5 USD'`, or budget_time and
budget_money in session.yaml; those of a month under budgets in sessions/ledger.yaml.
Sweeps under way count with what they held cards for so far, which no cost line has yet; what is
still to come is shown beside it, by the estimate of each sweep.
Cost per hour: the sum of the cost lines that last as long as the session; `kbtool session cost gpu
--rate l4` adds one. Elapsed time excludes pauses. Unknown costs are named, never counted as zero.

\b
Exit status: 0 within every budget; 1 a budget is exceeded, or unknown because a session or the
ledger does not load; 2 usage."""


@click.command(epilog=EPILOG)
@json_option
@click.option("--short", is_flag=True, default=False, help="One line, for a prompt.")
@click.pass_context
def status(ctx: click.Context, as_json: bool, short: bool) -> None:
    """Show running and paused sessions: time, money, cost per hour, what is left, when to stop."""
    from datetime import datetime

    from kbtool.ledger import budget
    from kbtool.ledger.session_costs import read_session_costs
    from kbtool.store.root import find_root
    from kbtool.store.running import running_sweep_files

    if as_json and short:
        from kbtool.model.errors import UsageError

        raise UsageError("--json and --short exclude each other; give one")
    root = find_root(ctx.find_root().obj)
    read = read_session_costs(root)
    sweeps = _sweeps(ctx) if running_sweep_files(root) else []
    now = datetime.now().astimezone()
    found = budget.status(read.sessions, read.months, now, [one.money for one in sweeps])
    paused = [one for one in read.sessions if one.status == "paused"]
    unread = [finding.path for finding in read.findings]
    estimated: Sequence[Costed] = ()
    if not short and found.month_budgets and "gpu" in found.month_unknown:
        estimated = _estimated(ctx, found.month)
    if as_json:
        print_json(_json(found, paused, sweeps, estimated, unread))
    elif short:
        line = _short(found, unread)
        if line:
            click.echo(line)
    else:
        _print(found, paused, sweeps, estimated, unread)
    if read.findings:
        many = f" and {len(read.findings) - 1} more" if len(read.findings) > 1 else ""
        click.echo(f"kbtool: left out: {read.findings[0]}{many}; see `kbtool check`", err=True)
    if found.exceeded or read.findings:
        ctx.exit(1)


def _sweeps(ctx: click.Context) -> list[UnderWay]:
    """Those under way; none where a record that they need does not load, which is told anyway."""
    from kbtool.cli.common import knowledge_base
    from kbtool.cli.sweep_output import sweeps_here
    from kbtool.model.errors import UserError

    try:
        return sweeps_here(knowledge_base(ctx))
    except UserError as error:
        click.echo(f"kbtool: sweeps are not counted: {error}", err=True)
        return []


def _estimated(ctx: click.Context, month: str) -> Sequence[Costed]:
    """The sessions of a month with the GPU estimated from the time of runs; none if no run of it
    held a card that the ledger has a rate of."""
    from kbtool.cli.common import knowledge_base
    from kbtool.ledger.estimated import costs_of

    every = costs_of(knowledge_base(ctx)).sessions.values()
    of_month = [one for one in every if (one.day or "").startswith(month)]
    has_estimate = any(line.from_runs and line.amount for one in of_month for line in one.costs)
    return of_month if has_estimate else ()


def _print(
    found: Status,
    paused: list[SessionCosts],
    sweeps: list[UnderWay],
    estimated: Sequence[Costed],
    unread: list[str],
) -> None:
    from kbtool.cli.sweep_output import under_way_lines
    from kbtool.site.sums import known

    for going in found.going:
        _print_going(going)
    if not found.going:
        click.echo("no session is running")
    for sweep in sweeps:
        click.echo("\n".join(under_way_lines(sweep)))
    goes_on = _print_paused(paused, found.now)
    if not found.going and not goes_on:
        click.echo("kbtool: `kbtool session new TITLE` starts one", err=True)
    if found.month_budgets:
        click.echo(found.month)
        for budget in found.month_budgets:
            click.echo(f"  {'time' if budget.unit == 'min' else 'money':<9}{_filled(budget)}")
        if found.month_unknown:
            missing = ", ".join(f"{kind} ({n})" for kind, n in found.month_unknown.items())
            click.echo(f"  {'':<9}not counted, because no record says (sessions): {missing}")
            if estimated:
                click.echo(f"  {'':<9}with the GPU by the time of runs: {known(estimated)}")
    if found.stop is not None:
        at, budget = found.stop
        what = "time" if budget.unit == "min" else "money"
        if budget.exceeded:
            click.echo(f"stop now: the {what} budget of {budget.of} is exceeded")
        else:
            left = (at - found.now).total_seconds() / 60
            click.echo(
                f"stop at {_clock(at, found.now)}, in {left:.0f} min:"
                f" the {what} budget of {budget.of}"
                " is used up then"
            )
    elif found.going and found.budgets:
        click.echo("no time to stop is known: no budget is known to run out")
    elif found.going and not unread:
        click.echo("no time to stop is known: set budget_time or budget_money")
    if unread:
        click.echo(f"not in it, because it does not load: {_named(unread)}")


def _print_paused(paused: list[SessionCosts], now: datetime) -> bool:
    """Whether there is a paused session that may be resumed."""
    recent = [
        (one, since)
        for one in paused
        if (since := _paused_at(one)) is not None and (now - since).days < RECENT_DAYS
    ]
    for one, since in recent:
        after = "" if one.minutes is None else f", after {_amount(one.minutes, 'min')}"
        click.echo(f"{one.label} is paused since {_clock(since.astimezone(), now)}{after}")
    if recent:
        which = recent[0][0].id if len(recent) == 1 else "ID"
        click.echo(
            f"kbtool: `kbtool session resume {which}` continues it, `kbtool session close {which}`"
            " ends it at its pause",
            err=True,
        )
    if len(recent) < len(paused):
        left = many(len(paused) - len(recent), "session")
        click.echo(
            f"paused {RECENT_DAYS} days ago or earlier, or at an unknown time: {left}; see"
            f" {pasted('`kbtool session list --status paused`')}"
        )
    return bool(recent)


def _paused_at(session: SessionCosts) -> datetime | None:
    """When it was paused; ``None`` if that is unknown, or its times have no zone."""
    from datetime import datetime

    ended = session.stretches[-1][1] if session.stretches else None
    at = datetime.fromisoformat(ended) if ended is not None else None
    return at if at is not None and at.tzinfo is not None else None


def _named(paths: list[str]) -> str:
    """The first of them, and how many more there are."""
    names = list(dict.fromkeys(paths))
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _print_going(going: Account) -> None:
    budgets = {budget.unit: budget for budget in going.budgets}
    click.echo(going.session.label)
    time = budgets.pop("min", None)
    if time is not None and time.spent is not None:
        click.echo(f"  {'elapsed':<9}{_filled(time)}")
    elif going.minutes is not None:
        click.echo(f"  {'elapsed':<9}{_amount(going.minutes, 'min')}; no time budget")
    else:
        click.echo(f"  {'elapsed':<9}unknown: give `started` with its zone")
    for currency in sorted({*budgets, *going.spent}):
        if currency in budgets:
            click.echo(f"  {'spent':<9}{_filled(budgets[currency])}")
        else:
            click.echo(f"  {'spent':<9}{_amount(going.spent[currency], currency)}; no money budget")
    if not budgets and not going.spent:
        click.echo(f"  {'spent':<9}unknown")
    for currency, rate in going.per_hour.items():
        click.echo(f"  {'burns':<9}{hourly(rate)} {currency}/h")
    if going.unknown:
        click.echo(f"  {'':<9}not counted, because no record says: {', '.join(going.unknown)}")


def _filled(budget: Budget) -> str:
    """``72 of 120 min, 48 min left``."""
    if budget.spent is None or budget.left is None:
        return f"unknown of {_amount(budget.limit, budget.unit)}"
    spent = _amount(budget.spent, budget.unit).removesuffix(f" {budget.unit}")
    head = f"{spent} of {_amount(budget.limit, budget.unit)}"
    by_sweeps = ""
    if budget.under_way:
        by_sweeps = f"; {_amount(budget.under_way, budget.unit)} of it by sweeps under way"
    if budget.to_come is None:
        by_sweeps += "; what they still take nobody knows"
    elif budget.to_come:
        is_enough = budget.to_come <= budget.left
        by_sweeps += f"; about {_amount(budget.to_come, budget.unit)} more expected of sweeps"
        by_sweeps += "" if is_enough or budget.exceeded else ", which is MORE THAN IS LEFT"
    if budget.exceeded:
        return f"{head}, EXCEEDED by {_amount(-budget.left, budget.unit)}{by_sweeps}"
    return f"{head}, {_amount(budget.left, budget.unit)} left{by_sweeps}"


def _amount(value: Decimal, unit: str) -> str:
    if unit == "min":
        return f"{half_up(value, 1)}".removesuffix(".0") + " min"
    return f"{cents(value)} {unit}"


def _clock(at: datetime, now: datetime) -> str:
    """The time of day, with the date if it is not today."""
    return f"{at:%H:%M}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"


def _short(found: Status, unread: list[str]) -> str:
    """``N+8 72/120min 0.24/5.00USD stop 18:40``; a budget that is exceeded has a ``!``."""
    words = []
    for going in found.going:
        words.append(going.session.label)
        budgeted = {budget.unit for budget in going.budgets}
        if "min" not in budgeted and going.minutes is not None:
            words.append(f"{half_up(going.minutes, 0)}min")
        words += [_short_budget(budget) for budget in going.budgets]
        words += [
            f"{cents(v)}{currency}"
            for currency, v in going.spent.items()
            if currency not in budgeted
        ]
        words += [
            f"?{currency}"
            for currency in going.per_hour
            if currency not in {*budgeted, *going.spent}
        ]
    for budget in found.month_budgets:
        if budget.exceeded or found.going or found.sweeps:
            words += [budget.of, _short_budget(budget)]
    if found.stop is not None and not found.exceeded:
        words.append(f"stop {_clock(found.stop[0], found.now)}")
    elif found.exceeded and (found.going or found.sweeps):
        words.append("STOP")
    if unread:
        words.append(f"DOES NOT LOAD: {_named(unread)}")
    return " ".join(words)


def _short_budget(budget: Budget) -> str:
    places = 0 if budget.unit == "min" else 2
    spent = "?" if budget.spent is None else half_up(budget.spent, places)
    return f"{spent}/{half_up(budget.limit, places)}{budget.unit}{'!' if budget.exceeded else ''}"


def _json(
    found: Status,
    paused: list[SessionCosts],
    sweeps: list[UnderWay],
    estimated: Sequence[Costed],
    left_out: list[str],
) -> dict[str, object]:
    from kbtool.cli.sweep_output import under_way_json
    from kbtool.site.sums import rollups

    totals = [(of.currency, of.total) for of in rollups(estimated, "session")] if estimated else []

    return {
        "now": found.now.isoformat(timespec="seconds"),
        "running": [
            {
                "id": going.session.id,
                "label": going.session.label,
                "minutes": _number(going.minutes),
                "spent": {currency: cents(v) for currency, v in going.spent.items()},
                "per_hour": {currency: hourly(v) for currency, v in going.per_hour.items()},
                "unknown": going.unknown,
                "boxes": [_budget_json(budget, found.now) for budget in going.budgets],
            }
            for going in found.going
        ],
        "paused": [
            {
                "id": one.id,
                "label": one.label,
                "minutes": _number(one.minutes),
                "since": None if (at := _paused_at(one)) is None else at.isoformat(),
            }
            for one in paused
        ],
        "sweeps": [under_way_json(one) for one in sweeps],
        "month": {
            "month": found.month,
            "boxes": [_budget_json(budget, found.now) for budget in found.month_budgets],
            "unknown": found.month_unknown,
            "with_gpu_by_runs": [
                {
                    "currency": currency,
                    "total": None if row.total is None else cents(row.total),
                    "sessions": len(row.sessions - row.planned),
                    "priced": len(row.priced),
                    "gpu_estimated": len(row.estimated),
                }
                for currency, row in totals
            ],
        },
        "exceeded": bool(found.exceeded),
        "stop": None
        if found.stop is None
        else {
            "at": found.stop[0].isoformat(timespec="seconds"),
            "box": _budget_json(found.stop[1], found.now),
        },
        "left_out": left_out,
    }


def _budget_json(budget: Budget, now: datetime) -> dict[str, object]:
    at = budget.full_at(now)

    def figure(value: Decimal | None) -> object:
        if budget.unit == "min":
            return _number(value)
        return None if value is None else cents(value)

    return {
        "of": budget.of,
        "unit": budget.unit,
        "limit": figure(budget.limit),
        "spent": figure(budget.spent),
        "left": figure(budget.left),
        "under_way": figure(budget.under_way),
        "to_come": figure(budget.to_come),
        "exceeded": budget.exceeded,
        "full_at": None if at is None else at.isoformat(timespec="seconds"),
    }


def _number(minutes: Decimal | None) -> float | None:
    return None if minutes is None else float(half_up(minutes, 1))
