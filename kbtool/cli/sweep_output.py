"""What ``kbtool sweep`` prints, and its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal

    from kbtool.ledger.under_way import UnderWay
    from kbtool.model.sweep import Cell, Sweep
    from kbtool.store.tree import KnowledgeBase
    from kbtool.sweeps.folder import SweepFolder
    from kbtool.sweeps.plan import Estimate


class View:
    """Progress on stderr: a line for each cell that ends, and how many are left."""

    def __init__(self, base: KnowledgeBase, folder: SweepFolder, limit: Any) -> None:
        from rich.console import Console
        from rich.status import Status

        self._base = base
        self._folder = folder
        self._limit = limit
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._status: Status | None = None
        self._said = ""

    def begun(self, record: Sweep) -> None:
        """Name the sweep."""
        from kbtool.model.words import many

        cells = many(len(record.cells), "cell")
        self._line(
            f"sweep {record.id} in session {record.session}: {cells}, engine {record.engine.name}"
        )
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()

    def __call__(self, record: Sweep, cell: Cell | None) -> None:
        """A cell has ended, or time passes."""
        if cell is not None:
            self._line(_ended(record, cell))
            return
        now = f"{record.told}{_money_text(self._base, record)}"
        if self._status is not None:
            self._status.update(now)
        elif now != self._said and "running" in now:
            self._line(now)
        self._said = now
        self._keep_to_budget(record)

    def done(self) -> None:
        """The end."""
        if self._status is not None:
            self._status.stop()

    def _line(self, text: str) -> None:
        from kbtool.model.control import visible

        self._console.print(visible(text), markup=False)

    def _keep_to_budget(self, record: Sweep) -> None:
        from datetime import UTC, datetime

        from kbtool.ledger.held import held

        if self._limit is None or self._folder.is_asked("paused"):
            return
        cards = held(self._base, record, datetime.now(UTC))
        spent = sum((one.money for one in cards if one.money is not None), 0)
        if spent >= (self._limit.high or self._limit.low):
            self._folder.ask("paused")
            self._line(f"the budget of {self._limit} is spent: no more cells begin")


def print_plan(cells: Sequence[Cell], expected: Estimate, is_here: bool, as_json: bool) -> None:
    """What a dry run shows: each cell, and what it should take."""
    from kbtool.model.money import amount_json

    if as_json:
        print_json({
            "cells": [
                {"id": cell.id, "parameters": cell.parameters, "commit": cell.commit,
                 "status": cell.status, "run": cell.run, "reused": cell.reused,
                 "expected_s": expected.seconds.get(cell.id)}
                for cell in cells
            ],
            "counts": {"waiting": len(expected.seconds),
                       "reused": len(cells) - len(expected.seconds)},
            "expected_s": expected.total,
            "money": amount_json(expected.money),
            "rate": expected.price.id if expected.price else None,
        })  # fmt: skip
        return
    from kbtool.runner.progress import seconds

    rows = [
        [cell.id, cell.label, f"from run {cell.run}" if cell.reused
         else f"about {seconds(expected.seconds[cell.id])}"]
        for cell in cells
    ]  # fmt: skip
    print_table(["cell", "what", "expected"], rows, numeric={0})
    print_estimate(cells, expected, is_here)
    click.echo("dry run: nothing was written", err=True)


def print_estimate(cells: Sequence[Cell], expected: Estimate, is_here: bool) -> None:
    """What the cells that are to run should take and cost, on stderr."""
    from kbtool.model.money import amount_text
    from kbtool.model.words import many
    from kbtool.runner.progress import seconds

    due, sure = len(expected.seconds), expected.from_history
    if not due:
        click.echo("nothing to run: an earlier run stands for each cell", err=True)
        return
    by = "all" if sure == due else f"{sure}" if sure else "none"
    click.echo(
        f"{due} of {many(len(cells), 'cell')} to run, about {seconds(expected.total)} one after"
        f" the other ({by} of them by past runs here)",
        err=True,
    )
    if not is_here:
        click.echo("what it costs is not known: its cards are the engine's; it is counted as it"
                   " goes on", err=True)  # fmt: skip
    elif expected.price is not None and expected.money is not None:
        click.echo(f"about {amount_text(expected.money)} at {expected.price.rate}"
                   f" ({expected.price.id})", err=True)  # fmt: skip


def sweeps_here(base: KnowledgeBase) -> list[UnderWay]:
    """The sweeps that have not ended, as they are now."""
    from datetime import UTC, datetime

    from kbtool.ledger.under_way import sweeps_under_way
    from kbtool.sweeps.drive import is_driven
    from kbtool.sweeps.folder import SweepFolder

    now = datetime.now(UTC)
    return sweeps_under_way(base, now, lambda id_: is_driven(SweepFolder.of(base.root, id_)))


def under_way_json(one: UnderWay) -> dict[str, Any]:
    """A sweep that has not ended, for programs."""
    from kbtool.model.money import cents, hourly

    money = one.money
    come = money.to_come
    return {
        "id": one.sweep.id, "session": one.sweep.session, "driven": one.is_driven,
        "counts": one.sweep.counts,
        "held_s": {card: round(seconds, 1) for card, seconds in one.held_s.items()},
        "to_come_s": None if one.to_come_s is None else round(one.to_come_s, 1),
        "spent": {currency: cents(amount) for currency, amount in money.spent.items()},
        "per_hour": {currency: hourly(rate) for currency, rate in money.per_hour.items()},
        "to_come": None if come is None else {c: cents(amount) for c, amount in come.items()},
        "unknown": money.unknown,
    }  # fmt: skip


def under_way_lines(one: UnderWay) -> list[str]:
    """The same in words, for people."""
    from kbtool.model.money import cents
    from kbtool.runner.progress import seconds

    def sums(money: Mapping[str, Decimal]) -> str:
        return ", ".join(f"{cents(amount)} {currency}" for currency, amount in money.items())

    state = "" if one.is_driven else "; cut off: `kbtool sweep attach` drives it on"
    lines = [f"sweep {one.sweep.id} in {one.sweep.session}: {one.sweep.told}{state}"]
    for card, held in one.held_s.items():
        lines.append(f"  {'held':<9}{card} for {seconds(held)}")
    if one.money.spent:
        lines.append(f"  {'spent':<9}{sums(one.money.spent)} that is in no cost line yet")
    left = "unknown" if one.to_come_s is None else f"about {seconds(one.to_come_s)}"
    come = one.money.to_come
    cost = ", what it costs is unknown" if come is None else f", {sums(come)}" if come else ""
    lines.append(f"  {'to come':<9}{left}{cost}")
    if one.money.unknown:
        lines.append(f"  {'':<9}not counted, because nobody knows: {', '.join(one.money.unknown)}")
    return lines


def _ended(record: Sweep, cell: Cell) -> str:
    """How a cell ended, in a line."""
    from kbtool.model.sweep import TRANSIENT

    last = cell.attempts[-1]
    why = f": {last.message}" if last.message else ""
    run = f", run {last.run}" if last.run else ""
    failed = sum(one.status in TRANSIENT for one in cell.attempts)
    tried = last.status in TRANSIENT and failed < record.tries
    again = "; it is tried again" if tried else ""
    return f"cell {cell.id} ({cell.label}) {last.status}{run}{why}{again}"


def _money_text(base: KnowledgeBase, record: Sweep) -> str:
    from datetime import UTC, datetime

    from kbtool.ledger.held import held
    from kbtool.model.money import amount_text

    cards = held(base, record, datetime.now(UTC))
    known = [one.money for one in cards if one.money is not None]
    return f"; {amount_text(sum(known[1:], known[0]))} so far" if known else ""


def sweep_json(base: KnowledgeBase, record: Sweep) -> dict[str, Any]:
    """The record, its counts, and what its cards were held for and cost."""
    from kbtool.ledger.held import held
    from kbtool.model.money import amount_json

    return {
        **record.model_dump(mode="json"),
        "counts": {**record.counts, "reused": sum(cell.reused for cell in record.cells)},
        "cards": [
            {"card": one.card, "held_s": round(one.held_s, 1), "busy_s": round(one.busy_s, 1),
             "money": amount_json(one.money), "rate": one.price.id if one.price else None}
            for one in held(base, record)
        ],
    }  # fmt: skip


def print_sweep(base: KnowledgeBase, record: Sweep) -> None:
    """The cells, how each ended, and what the cards cost."""
    from kbtool.cli.pasted import pasted
    from kbtool.ledger.held import held
    from kbtool.model.money import amount_text
    from kbtool.model.sweep import AGAIN
    from kbtool.runner.progress import seconds

    rows = []
    for cell in record.cells:
        tries = len(cell.attempts)
        status = f"{cell.status} (try {tries})" if tries > 1 else cell.status
        run = f"from run {cell.run}" if cell.reused else cell.run or cell.message or ""
        took = cell.attempts[-1].held_s if cell.attempts else None
        rows.append([cell.id, cell.label, status, "" if took is None else seconds(took), run])
    print_table(["cell", "what", "status", "held", "run"], rows, numeric={0, 3})
    click.echo(f"\n{record.status}: {record.told}")
    for one in held(base, record):
        money = one.money
        cost = "no rate in sessions/ledger.yaml" if money is None else amount_text(money)
        click.echo(f"{one.card}: held {seconds(one.held_s)}, {one.busy_s / one.held_s:.0%} of it in"
                   f" steps; {cost}")  # fmt: skip
    if record.status != "ended" or any(c.status in ("waiting", *AGAIN) for c in record.cells):
        click.echo(pasted(f"to continue: kbtool sweep resume {record.id}"), err=True)
