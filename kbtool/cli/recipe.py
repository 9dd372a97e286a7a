"""``kbtool recipes``, ``kbtool run-recipe``, ``kbtool recover``."""

from __future__ import annotations

import difflib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import json_option, knowledge_base, print_json, print_table
from kbtool.cli.complete import recipe_names, run_names, session_or_new
from kbtool.cli.recipe_output import headlines_of, minutes_of, print_plan, print_result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbtool.model.pattern import Pattern
    from kbtool.model.recipe import Recipe
    from kbtool.runner.clock import Clock
    from kbtool.store.tree import KnowledgeBase

EXIT_CODES = {
    "passed": 0,
    "noisy": 75,  # EX_TEMPFAIL of sysexits.h: try again later (ADR 0044)
    "failed": 1,
    "unavailable": 3,
    "timeout": 4,
    "interrupted": 4,
    "crashed": 70,
}


@click.command()
@json_option
@click.pass_context
def recipes(ctx: click.Context, as_json: bool) -> None:
    """List the recipes: what they do, their parameters, the pattern they belong to.

    \b
    Examples:
      kbtool recipes
      kbtool recipes --json | jq -r '.recipes[].name'
    """
    base = knowledge_base(ctx)
    known = base.recipes()
    if as_json:
        print_json(
            {
                "recipes": [
                    {
                        "name": recipe.name,
                        "title": recipe.title,
                        "pattern": pattern.id,
                        "kernel": recipe.kernel,
                        "parameters": {
                            name: parameter.model_dump(mode="json")
                            for name, parameter in recipe.parameters.items()
                        },
                        "steps": [
                            step.model_dump(mode="json", exclude_defaults=True)
                            for step in recipe.steps
                        ],
                    }
                    for pattern, recipe in known.values()
                ],
                "forgotten": base.forgotten,
            }
        )
        return
    if not known:
        click.echo("no recipes: a recipe is part of a pattern, under `recipes:`", err=True)
        return
    print_table(
        ["recipe", "pattern", "steps", "expected", "title"],
        [
            [
                recipe.name,
                pattern.id,
                " → ".join(step.kind for step in recipe.steps),
                minutes_of(recipe),
                recipe.title,
            ]
            for pattern, recipe in known.values()
        ],
        numeric=set(),
    )
    for _, recipe in known.values():
        for name, parameter in recipe.parameters.items():
            takes = "|".join(parameter.choices) or parameter.type
            click.echo(
                f"\n{recipe.name} --set {name}=<{takes}>  {parameter.help}"
                f" (default {parameter.default or 'empty'})",
                nl=False,
            )
        click.echo()


@click.command(name="run-recipe")
@click.argument("name", metavar="RECIPE", required=False, shell_complete=recipe_names)
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set a parameter of the recipe; repeatable.",
)
@click.option(
    "--session",
    "session_name",
    metavar="ID",
    shell_complete=session_or_new,
    help="The session to append the run to: its id, a part of it, its label, or last; 'new' makes"
    " one. Default: the running session, or the unsorted session of the day.",
)
@click.option(
    "--force", is_flag=True, default=False,
    help="Append to the session even if it is neither running nor paused.",
)  # fmt: skip
@click.option(
    "--resume",
    metavar="RUN",
    shell_complete=run_names,
    help="Continue this run at the first step that did not pass: its id, a part of it, or last.",
)
@click.option(
    "--dry-run/--no-dry-run",
    default=False,
    help="Print what each step would do, and do none of it.",
)
@click.option(
    "--wait/--no-wait",
    default=True,
    show_default=True,
    help="Before a step that measures, wait until no other run measures on this machine's processor"
    " or on its card. With --no-wait the step does not wait: it ends as noisy (exit status 75) and"
    " names the other run.",
)
@click.option(
    "--progress",
    type=click.Choice(["auto", "tty", "plain", "quiet", "rawjson"]),
    default="auto",
    show_default=True,
    help="How to show progress, on stderr.",
)
@click.option("-v", "--verbose/--no-verbose", default=False, help="Show compiler output too.")
@json_option
@click.pass_context
def run_recipe(
    ctx: click.Context,
    name: str | None,
    settings: tuple[str, ...],
    session_name: str | None,
    force: bool,
    resume: str | None,
    dry_run: bool,
    wait: bool,
    progress: Any,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run a recipe's steps and append the run to a session.

    \b
    Examples:
      kbtool run-recipe RECIPE                         `kbtool recipes` lists them
      kbtool run-recipe RECIPE --dry-run
      kbtool run-recipe RECIPE --session last --json > run.json
      kbtool run-recipe RECIPE --session new
      kbtool run-recipe RECIPE --set NAME=VALUE        `kbtool recipes` lists both
      kbtool run-recipe --resume last                  or 3f9a, the end of the id

    The record goes to sessions/ID/runs/. Exit status: 0 passed, 1 a step failed, 2 usage,
    3 something is missing on this machine, 4 timeout or interrupted, 75 noisy: other processes were
    busy on the machine, so the times prove nothing; --resume measures again.
    """
    from kbtool.gpu.probe import probe_machine
    from kbtool.ledger.headline import as_json as as_json_of
    from kbtool.model.errors import UsageError
    from kbtool.runner.clock import Clock
    from kbtool.runner.destination import refuse_before, session_for, session_to_append_to
    from kbtool.runner.engine import Job, execute, plan, preflight, refuse_in_vain
    from kbtool.runner.progress import reporter
    from kbtool.runner.resume import resume as resume_run
    from kbtool.store.edit import end_run_session

    base = knowledge_base(ctx)
    values = values_of(settings)
    earlier = None
    if resume is not None:
        if not dry_run:
            _recover(base)
        earlier = base.run_named(resume).record
        if earlier.recipe is None:
            raise UsageError(
                f"run {earlier.id} is of the {earlier.origin} {earlier.source}, not of a recipe:"
                " only a recipe's run is continued"
            )
        if values or session_name or force or name not in (None, earlier.recipe):
            raise UsageError(
                "--resume continues with the settings of the run: leave out recipe, settings and"
                " session"
            )
        name, values = earlier.recipe, earlier.parameters
    pattern, bound, parameters = bound_recipe(base, name, values)
    job = Job(base, pattern, bound, parameters, probe_machine(), wait)
    wanted = earlier.session if earlier else session_to_append_to(base, session_name, force=force)
    if wanted is not None and not force:
        refuse_before(base.session(wanted).record)
    if dry_run:
        steps = list(plan(job))
        print_plan(job, steps, as_json)
        ctx.exit(3 if steps[-1][2] else 0)
    refuse_in_vain(preflight(job))
    resumption = resume_run(base, earlier, bound, job.machine) if earlier else None
    if resumption is None:
        _recover(base)
    session = wanted or session_for(
        base, job.machine, session_name, f"Run of recipe {bound.name}", bound.title
    )
    clock = Clock()
    try:
        run, path = execute(job, session, reporter(progress, verbose=verbose), resumption, clock)
    finally:
        record = base.root / "sessions" / session / "session.yaml"
        end_run_session(record, clock.started.astimezone(), clock.now().astimezone())
        _tell_if_set(clock)
    headlines = headlines_of(base, run)
    if as_json:
        shown = {"path": base.shown(path), "headlines": [as_json_of(*one) for one in headlines]}
        print_json({**run.model_dump(mode="json"), **shown})
    else:
        # With parameters not yet substituted, for the command that repeats a part of it.
        recipe = next(one for one in pattern.recipes if one.name == bound.name)
        print_result(base, run, recipe, base.shown(path), [one for _, one in headlines])
    ctx.exit(EXIT_CODES[run.status])


@click.command()
@json_option
@click.pass_context
def recover(ctx: click.Context, as_json: bool) -> None:
    """Write the records of runs whose kbtool process was killed, from their journals, and remove
    temporary files that a killed process left. Of sessions that an older kbtool left half made,
    folders without a record are removed, and those without an end get one.

    \b
    Example:
      kbtool recover

    run-recipe does this by itself before it starts.
    """
    base = knowledge_base(ctx)
    written, unsound, removed = _recover(base)
    if not written and not unsound and not removed:
        click.echo("nothing to recover: no run was left behind", err=True)
    if as_json:
        print_json({
            "written": [base.shown(path) for path in written],
            "unsound": [base.shown(path) for path in unsound],
            "removed": [base.shown(path) for path in removed],
        })  # fmt: skip
    for path in written if not as_json else ():
        click.echo(base.shown(path))
    if unsound:
        ctx.exit(1)


def values_of(settings: tuple[str, ...]) -> dict[str, str]:
    """The values of parameters that ``--set NAME=VALUE`` gives."""
    from kbtool.model.errors import UsageError

    values = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {setting}: write NAME=VALUE")
        if key.strip() in values:
            raise UsageError(f"--set {key.strip()} is given twice; give each parameter once")
        values[key.strip()] = value
    return values


def bound_recipe(
    base: KnowledgeBase, name: str | None, values: Mapping[str, str]
) -> tuple[Pattern, Recipe, dict[str, str]]:
    """The pattern of a recipe, the recipe with these values of parameters, and all parameters.

    Raises:
        NotFoundError: there is no such recipe.
        UsageError: a value does not fit, or no recipe is named.
    """
    from kbtool.model.errors import UsageError

    pattern, recipe = _find(base, name)
    try:
        return pattern, *recipe.bind(values)
    except ValueError as error:
        raise UsageError(_first_problem(error)) from None


def _find(base: KnowledgeBase, name: str | None) -> Any:
    from kbtool.model.errors import NotFoundError, UsageError
    from kbtool.store.packaged import recipes as packaged_recipes

    known = base.recipes()
    if name is None:
        raise UsageError(f"which recipe? There is {', '.join(known) or 'none'}")
    if name not in known:
        broken = f" ({base.findings[0]})" if base.findings else ""
        gone = next((one for one in reversed(base.forgotten) if one.recipe == name), None)
        if gone is not None:
            raise NotFoundError(
                f"recipe {name!r} was forgotten on {gone.at.day}: {gone.reason}; there is"
                f" {', '.join(known) or 'none'}"
            )
        if name in packaged_recipes():
            raise NotFoundError(
                f"there is no recipe {name!r} here; it comes with kbtool: run `kbtool init --with"
                f" {name}` in the folder of the knowledge base"
            )
        near = difflib.get_close_matches(name, known, 1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise NotFoundError(
            f"there is no recipe {name!r}{meant}; there is {', '.join(known) or 'none'}{broken}"
        )
    return known[name]


def _first_problem(error: ValueError) -> str:
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False)[0]
        said = problem["msg"].removeprefix("Value error, ")
        place = ".".join(str(part) for part in problem["loc"][-1:])
        given = problem["input"]
        if isinstance(given, str | int | float):
            return f"{place}={given}: {said}"
        return f"{place}: {said}" if place else said
    return str(error)


def _tell_if_set(clock: Clock) -> None:
    """Say so if the system clock was set while the run went on."""
    from kbtool.runner.destination import CLOCK_SET
    from kbtool.runner.progress import seconds

    by = clock.set_by()
    if abs(by) > CLOCK_SET:
        where = "forward" if by > timedelta() else "back"
        click.echo(
            f"kbtool: the system clock was set {where} by {seconds(abs(by.total_seconds()))} during"
            " the run; its times go on from its start",
            err=True,
        )


def _recover(base: KnowledgeBase) -> tuple[list[Path], list[Path], list[Path]]:
    """The records of runs that were cut short, the journals that make none, and the temporary files
    and folders that were removed."""
    from kbtool.runner.journal import recover as recover_runs
    from kbtool.store.edit import end_run_session
    from kbtool.store.sessions import half_made, remove_session, without_end
    from kbtool.store.write import remove_abandoned

    unsound: list[Path] = []

    def tell(path: Path, why: str) -> None:
        unsound.append(path)
        click.echo(
            f"kbtool: {base.shown(path)} makes no valid run record: {why}. It is left as it is:"
            " read it, then remove it",
            err=True,
        )

    written = recover_runs(base, tell)
    for path in written:
        click.echo(f"kbtool: a run was cut short; its record is {path.name}", err=True)
    removed = remove_abandoned(base.root)
    for folder in half_made(base):
        remove_session(folder)
        removed.append(folder)
    for path in removed:
        click.echo(f"kbtool: removed {base.shown(path)}, which a killed kbtool left", err=True)
    for entry, began in without_end(base):
        ends = [run.record.ended for run in base.runs_of(entry.record.id)]
        end_run_session(base.root / entry.path, began, max([began, *ends]))
        click.echo(f"kbtool: {entry.record.id} had no end; it ends with its last run", err=True)
    return written, unsound, removed
