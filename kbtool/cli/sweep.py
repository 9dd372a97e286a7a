"""``kbtool sweep``: a recipe in a matrix of parameters and commits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import json_option, knowledge_base, print_json, print_table
from kbtool.cli.complete import recipe_names, session_or_new
from kbtool.cli.sweep_output import (
    View,
    print_estimate,
    print_plan,
    print_sweep,
    sweep_json,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtool.model.sweep import Cell, EngineUse, Sweep
    from kbtool.store.tree import KnowledgeBase
    from kbtool.sweeps.plan import Estimate

SSH = "ssh:"


class _Engine(click.Choice[str]):
    """An engine; after ``ssh:`` its hosts."""

    def __init__(self) -> None:
        super().__init__(("here", "submitit", "slurm", f"{SSH}HOST,HOST"))

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Take any hosts."""
        return value if value.startswith(SSH) else super().convert(value, param, ctx)


class _RecipeOrCommand(click.Group):
    """A group whose first word may also be a recipe: ``kbtool sweep RECIPE --over …``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command in that starts a sweep, unless another one is named."""
        wants_help = not args or args[0] in ctx.help_option_names
        if not wants_help and args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_RecipeOrCommand)
def sweep() -> None:
    """Run a recipe in a matrix of parameters and commits, on an engine that schedules it.

    \b
    Examples:
      kbtool sweep RECIPE --over NAME=VALUE,VALUE              begins one: `sweep run` for short
      kbtool sweep RECIPE --over commit=v1..HEAD --dry-run     its cells, their time and money
      kbtool sweep attach last                                 watch it, and drive it on

    \b
    A cell is the recipe with one value of each axis. A cell whose run is there already is not run
    again. Ctrl-C leaves the jobs that have begun alone; `kbtool sweep attach` drives the sweep on.
    """


@sweep.command()
@click.argument("name", metavar="RECIPE", shell_complete=recipe_names)
@click.option(
    "--over",
    metavar="NAME=VALUE,VALUE",
    multiple=True,
    help="Vary a parameter, or the commit: commit=A..B; repeatable.",
)
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True,
              help="Set a parameter in all cells; repeatable.")  # fmt: skip
@click.option("--on", "engine", type=_Engine(), default="here", show_default=True,
              help="The engine: here takes a process a card on this machine; submitit its local"
              " executor; slurm a cluster, by submitit; ssh: hosts of ~/.ssh/config, or @FILE with"
              " one a line. HOST=2 takes two cells at once, else one a card.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), help="At most so many cells at once.")
@click.option("--engine-option", "engine_options", metavar="NAME=VALUE", multiple=True,
              help="What submitit is told, by its own names: partition, gpus_per_node, time (in"
              " minutes) …; ssh takes python (what starts it there), time, and patience (seconds"
              " for which a host may be away); repeatable.")  # fmt: skip
@click.option("--session", "session_name", metavar="ID", shell_complete=session_or_new,
              help="The session that runs go to, as `kbtool run-recipe` takes it.")  # fmt: skip
@click.option("--again", is_flag=True, default=False,
              help="Run cells too that earlier runs stand for.")  # fmt: skip
@click.option("--tries", type=click.IntRange(1), default=3, show_default=True,
              help="How often a cell is tried that was lost, preempted, unreachable.")  # fmt: skip
@click.option("--budget", metavar="AMOUNT",
              help="Ask if more is expected, and pause once it is spent: 5 USD.")  # fmt: skip
@click.option("--yes", is_flag=True, default=False, help="Do not ask.")
@click.option("--dry-run", is_flag=True, default=False,
              help="Show cells, expected time and money, and run nothing.")  # fmt: skip
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    name: str,
    over: tuple[str, ...],
    settings: tuple[str, ...],
    engine: str,
    jobs: int | None,
    engine_options: tuple[str, ...],
    session_name: str | None,
    again: bool,
    tries: int,
    budget: str | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Begin a sweep over a recipe and drive it to its end; `run` may be left out.

    \b
    Examples:
      kbtool sweep RECIPE --over NAME=VALUE,VALUE --over commit=v1..HEAD --dry-run
      kbtool sweep RECIPE --over NAME=VALUE,VALUE --on slurm --engine-option partition=gpu \\
        --engine-option gpus_per_node=1 --budget '5 USD'

    Exit status: 0 every cell passed, 1 a cell failed, 2 usage, 3 something is missing on this
    machine, 4 paused, stopped or interrupted, 75 the worst that came of a cell is noisy.
    """
    from kbtool.cli.recipe import bound_recipe, values_of
    from kbtool.gpu.probe import probe_machine
    from kbtool.model.sweep import Sweep
    from kbtool.runner.destination import session_for, session_to_append_to
    from kbtool.runner.journal import run_id
    from kbtool.store.repository import repository_state
    from kbtool.sweeps.drive import prepare
    from kbtool.sweeps.plan import axes_of, cells_of, estimate

    base = knowledge_base(ctx)
    values = values_of(settings)
    pattern, _, _ = bound_recipe(base, name, values)
    recipe = next(one for one in pattern.recipes if one.name == name)
    values = {one: recipe.parameters[one].parse(one, value) for one, value in values.items()}
    axes = axes_of(base.root, recipe, over, values)
    cells = cells_of(axes, values)
    use = _use(engine, jobs, values_of(engine_options))
    machine = probe_machine()
    _, is_here = _engine(base, use, "dry-run" if dry_run else None, recipe)
    if is_here and not again:
        cells = _reused(base, pattern.id, name, cells, machine)
    due = [cell for cell in cells if cell.status == "waiting"]
    expected = estimate(base, recipe, due, machine)
    if dry_run:
        print_plan(cells, expected, is_here, as_json)
        return
    if is_here:
        cells = [
            cell.model_copy(update={"expected_s": expected.seconds.get(cell.id)}) for cell in cells
        ]
    limit = _budget(budget)
    print_estimate(cells, expected, is_here)
    if limit is not None and not yes:
        _ask(expected, limit)
    wanted = session_to_append_to(base, session_name)
    session = wanted or session_for(
        base, machine, session_name, f"Sweep of recipe {name}", recipe.title
    )
    now = _now()
    made = Sweep(
        id=run_id(now, f"sweep-{name}"), session=session, recipe=name, pattern=pattern.id,
        kernel=recipe.kernel, axes=axes, engine=use, repository=repository_state(base.root),
        tries=tries, status="running", started=now, cells=cells,
    )  # fmt: skip
    made = prepare(base, made)
    _drive(ctx, base, made, limit, as_json)


@sweep.command()
@click.argument("name", metavar="[SWEEP]", default="last")
@json_option
@click.pass_context
def attach(ctx: click.Context, name: str, as_json: bool) -> None:
    """Watch a sweep, and drive it on if nobody does: its id, a part of it, or last.

    \b
    Example:
      kbtool sweep attach last
    """
    from kbtool.store.sweeps import sweep_named
    from kbtool.sweeps.drive import is_driven
    from kbtool.sweeps.folder import SweepFolder

    base = knowledge_base(ctx)
    path, record = sweep_named(base, name)
    if is_driven(SweepFolder.of(base.root, record.id)):
        _watch(ctx, base, path, as_json)
        return
    if record.status != "running":
        _end(ctx, base, record, as_json)
        return
    _drive(ctx, base, record, None, as_json)


@sweep.command()
@click.argument("name", metavar="[SWEEP]", default="last")
@json_option
@click.pass_context
def pause(ctx: click.Context, name: str, as_json: bool) -> None:
    """Begin no more cells of a sweep; those that have begun go on.

    \b
    Example:
      kbtool sweep pause last        kbtool sweep resume last lets it go on
    """
    _ask_for(ctx, name, "paused", as_json)


@sweep.command()
@click.argument("name", metavar="[SWEEP]", default="last")
@json_option
@click.pass_context
def stop(ctx: click.Context, name: str, as_json: bool) -> None:
    """Begin no more cells of a sweep, and end those that have begun; they write their records.

    \b
    Example:
      kbtool sweep stop last
    """
    _ask_for(ctx, name, "stopped", as_json)


@sweep.command()
@click.argument("name", metavar="[SWEEP]", default="last")
@click.option("--again", metavar="STATUS", multiple=True,
              help="Run the cells again that ended so: failed, noisy, lost …; repeatable. Default:"
              " noisy, timeout, interrupted, preempted, lost and unreachable.")  # fmt: skip
@click.option("--cell", "chosen", metavar="NUMBER", multiple=True,
              help="Run this cell again, however it ended; repeatable.")  # fmt: skip
@json_option
@click.pass_context
def resume(
    ctx: click.Context, name: str, again: tuple[str, ...], chosen: tuple[str, ...], as_json: bool
) -> None:
    """Let a sweep go on that was paused, stopped or cut off, or run cells of it again.

    \b
    Examples:
      kbtool sweep resume last
      kbtool sweep resume last --again failed
      kbtool sweep resume last --cell 3

    What passed is not run again. Cells run what was packed when the sweep began.
    """
    from kbtool.model.errors import UsageError
    from kbtool.model.sweep import AGAIN
    from kbtool.store.sweeps import sweep_named
    from kbtool.sweeps.drive import is_driven, waits_again
    from kbtool.sweeps.folder import SweepFolder

    base = knowledge_base(ctx)
    path, record = sweep_named(base, name)
    folder = SweepFolder.of(base.root, record.id)
    if is_driven(folder):
        if again or chosen:
            raise UsageError(f"{record.id} is under way: cells run again once it has ended")
        folder.withdraw()
        _watch(ctx, base, path, as_json)
        return
    ids = {cell.id for cell in record.cells}
    unknown = next((one for one in chosen if one not in ids), None)
    if unknown is not None:
        raise UsageError(f"--cell {unknown}: {record.id} has cells 1 to {len(ids)}")
    wanted = again or (() if chosen else AGAIN)
    for index, cell in enumerate(record.cells):
        if cell.status in wanted or cell.id in chosen:
            record.cells[index] = waits_again(cell)
    for cell in record.cells:
        if cell.status == "waiting" and not folder.bundle(cell.commit).exists():
            raise UsageError(
                f"what cell {cell.id} runs was not packed, or is gone: begin a new sweep (with"
                " --again, if an earlier run stands for the cell)"
            )
    folder.withdraw()
    _drive(ctx, base, record, None, as_json)


@sweep.command(name="list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List the sweeps, the newest last.

    \b
    Example:
      kbtool sweep list
    """
    from kbtool.store.sweeps import sweeps_in
    from kbtool.sweeps.drive import is_driven
    from kbtool.sweeps.folder import SweepFolder

    base = knowledge_base(ctx)
    found = sweeps_in(base)
    if as_json:
        print_json({"sweeps": [sweep_json(base, one) for one in found]})
        return
    if not found:
        click.echo("no sweeps: `kbtool sweep RECIPE --over NAME=VALUE,VALUE` begins one", err=True)
        return
    rows = []
    for one in found:
        left = one.status == "running" and not is_driven(SweepFolder.of(base.root, one.id))
        status = "cut off" if left else one.status
        rows.append([one.id, status, str(len(one.cells)), one.told, one.session])
    print_table(["sweep", "status", "cells", "of them", "session"], rows, numeric={2})


@sweep.command()
@click.argument("name", metavar="[SWEEP]", default="last")
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show the cells of a sweep: how each ended, its run, what its card was held for.

    \b
    Example:
      kbtool sweep show last
    """
    from kbtool.store.sweeps import sweep_named

    base = knowledge_base(ctx)
    _, record = sweep_named(base, name)
    if as_json:
        print_json(sweep_json(base, record))
    else:
        print_sweep(base, record)


def _use(engine: str, jobs: int | None, options: dict[str, str]) -> EngineUse:
    """The engine, as the record of the sweep will say it."""
    from kbtool.checks.text_rules import addresses, paths, secrets
    from kbtool.model.errors import UsageError
    from kbtool.model.sweep import EngineUse

    if engine.startswith(SSH):
        from kbtool.sweeps.engines.ssh import hosts_of

        hosts = hosts_of(engine.removeprefix(SSH))
        told = [name if number is None else f"{name}={number}" for name, number in hosts.items()]
        engine, options = "ssh", {"hosts": ",".join(told), **options}
    for name, value in options.items():
        for rule in (addresses, paths, secrets):
            if finding := next(rule(name, value), None):
                raise UsageError(f"{name}={value}: the record of the sweep {finding.message}")
    return EngineUse.model_validate({"name": engine, "jobs": jobs, "options": options})


def _engine(base: KnowledgeBase, use: EngineUse, sweep_id: str | None, recipe: Any) -> Any:
    """The engine, and whether its jobs run here."""
    import tempfile
    from pathlib import Path

    from kbtool.sweeps.engines import engine_of
    from kbtool.sweeps.folder import SweepFolder

    minutes = int(sum(step.timeout.minutes for step in recipe.steps)) + 10
    if sweep_id is None or sweep_id == "dry-run":  # nothing is written before a sweep begins
        with tempfile.TemporaryDirectory() as folder:
            engine = engine_of(use, Path(folder), minutes)
    else:
        engine = engine_of(use, SweepFolder.of(base.root, sweep_id).path / "engine", minutes)
    return engine, engine.is_here


def _drive(
    ctx: click.Context, base: KnowledgeBase, record: Sweep, limit: Any, as_json: bool
) -> None:
    from kbtool.ledger.held import enter
    from kbtool.model.errors import UsageError
    from kbtool.runner.signals import signals_interrupt
    from kbtool.store.lock import LockTimeoutError, lock
    from kbtool.sweeps.drive import Driver
    from kbtool.sweeps.folder import SweepFolder

    folder = SweepFolder.of(base.root, record.id)
    recipe = base.recipes()[record.recipe][1]
    engine, _ = _engine(base, record.engine, record.id, recipe)
    view = View(base, folder, limit)
    driver = Driver(base, record, engine, view)
    try:
        with lock(folder.path / "drive.lock", timeout=0), signals_interrupt():
            view.begun(record)
            record = driver.run()
    except LockTimeoutError:
        raise UsageError(
            f"another process drives {record.id}; `kbtool sweep attach {record.id}` watches it"
        ) from None
    except KeyboardInterrupt:
        view.done()
        click.echo(
            f"kbtool: {record.id} is left as it is; jobs that have begun go on. `kbtool sweep"
            f" attach {record.id}` drives it on, `kbtool sweep stop {record.id}` ends it",
            err=True,
        )
        ctx.exit(4)
    view.done()
    for why in enter(base, record):
        click.echo(f"kbtool: its time is not in the costs: {why}", err=True)
    _end(ctx, base, record, as_json)


def _watch(ctx: click.Context, base: KnowledgeBase, path: Any, as_json: bool) -> None:
    """Show a sweep that another process drives, until it is over."""
    import time

    from kbtool.store.sweeps import read_sweep
    from kbtool.sweeps.drive import is_driven
    from kbtool.sweeps.folder import SweepFolder

    record = read_sweep(path, base.shown(path))
    folder = SweepFolder.of(base.root, record.id)
    view = View(base, folder, None)
    view.begun(record)
    seen = {cell.id: len(cell.attempts) for cell in record.cells if cell.status != "running"}
    while is_driven(folder):
        time.sleep(0.5)
        record = read_sweep(path, base.shown(path))
        for cell in record.cells:
            if (
                cell.attempts
                and cell.attempts[-1].ended
                and seen.get(cell.id) != len(cell.attempts)
            ):
                seen[cell.id] = len(cell.attempts)
                view(record, cell)
        view(record, None)
    view.done()
    _end(ctx, base, record, as_json)


def _ask_for(ctx: click.Context, name: str, what: str, as_json: bool) -> None:
    from kbtool.model.errors import UsageError
    from kbtool.store.sweeps import sweep_named
    from kbtool.sweeps.drive import is_driven
    from kbtool.sweeps.folder import SweepFolder

    base = knowledge_base(ctx)
    _, record = sweep_named(base, name)
    if record.status != "running":
        raise UsageError(f"{record.id} is {record.status}: there is nothing to do")
    folder = SweepFolder.of(base.root, record.id)
    folder.ask(what)
    if is_driven(folder):
        if as_json:
            print_json({"id": record.id, "asked": what})
        else:
            click.echo(f"{record.id} will be {what} as soon as its process looks, within seconds")
        return
    click.echo(f"{record.id}: nobody drives it now; this process does until it is {what}", err=True)
    _drive(ctx, base, record, None, as_json)


def _end(ctx: click.Context, base: KnowledgeBase, record: Sweep, as_json: bool) -> None:
    """Print the sweep, and leave with its exit status."""
    if as_json:
        print_json(sweep_json(base, record))
    else:
        print_sweep(base, record)
    ctx.exit(_exit_status(record))


def _exit_status(record: Sweep) -> int:
    from kbtool.model.sweep import TRANSIENT

    statuses = {cell.status for cell in record.cells}
    if record.status != "ended" or statuses & {"interrupted", "timeout"}:
        return 4
    if statuses & {"failed", "crashed", "refused", *TRANSIENT}:
        return 1
    if "unavailable" in statuses:
        return 3
    return 75 if "noisy" in statuses else 0


def _reused(
    base: KnowledgeBase, pattern: str, recipe: str, cells: Sequence[Cell], machine: Any
) -> list[Cell]:
    from kbtool.sweeps.reuse import Earlier

    earlier = Earlier(base, pattern, recipe, machine)
    found = []
    for cell in cells:
        run = earlier.of(cell.parameters, cell.commit)
        kept = {"status": "passed", "run": run.id, "reused": True} if run else {}
        found.append(cell.model_copy(update=kept))
    return found


def _budget(text: str | None) -> Any:
    from kbtool.ledger.rates import figure
    from kbtool.model.base import Amount
    from kbtool.model.errors import UsageError

    try:
        return None if text is None else figure(Amount, text)
    except ValueError as error:
        raise UsageError(f"--budget: {error}") from None


def _ask(expected: Estimate, limit: Any) -> None:
    from kbtool.model.errors import UsageError

    money = expected.money
    if money is not None and money <= (limit.high or limit.low):
        return
    said = "what it costs is not known" if money is None else f"the estimate is {money}"
    if not sys.stdin.isatty():
        raise UsageError(f"{said}, and the budget {limit}; --yes begins it all the same")
    click.confirm(f"{said}, and the budget {limit}. Begin it?", abort=True, err=True)


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)
