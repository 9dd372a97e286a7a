"""``kbtool recipes``, ``kbtool run-recipe``, ``kbtool recover``."""

from __future__ import annotations

import difflib
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import json_option, knowledge_base, print_json, print_table
from kbtool.model.words import many

if TYPE_CHECKING:
    from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
    from kbtool.model.kinds.minimise import MinimiseResult
    from kbtool.model.kinds.mutants import MutantsResult
    from kbtool.model.kinds.profile import ProfileResult
    from kbtool.model.kinds.sanitise import SanitiseResult
    from kbtool.model.kinds.timing import Timing
    from kbtool.model.kinds.tune import TuneResult
    from kbtool.model.recipe import Recipe
    from kbtool.model.run import Run
    from kbtool.runner.engine import Job
    from kbtool.store.tree import KnowledgeBase

EXIT_CODES = {
    "passed": 0,
    "failed": 1,
    "unavailable": 3,
    "timeout": 4,
    "interrupted": 4,
    "crashed": 70,
}


NEW = "new"
"""What ``--session`` takes for a session that is made for the run."""


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
                ]
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
                _minutes(recipe),
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
@click.argument("name", metavar="RECIPE", required=False)
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
    help="The session to append the run to: id or label; 'new' creates one. Default: the running"
    " session, or a new one.",
)
@click.option("--force", is_flag=True, default=False, help="Append to a session that is not open.")
@click.option(
    "--resume", metavar="RUN", help="Continue this run at the first step that did not pass."
)
@click.option(
    "--dry-run/--no-dry-run",
    default=False,
    help="Print what each step would do, and do none of it.",
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
    progress: Any,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run a recipe's steps and append the run to a session.

    \b
    Examples:
      kbtool run-recipe split-k
      kbtool run-recipe split-k --set case_sets=quick --dry-run
      kbtool run-recipe split-k --session N+8 --json > run.json
      kbtool run-recipe split-k --session new
      kbtool run-recipe --resume 20261121T101530Z-split-k-3f9a

    The record goes to sessions/ID/runs/. Exit status: 0 passed, 1 a step failed, 2 usage,
    3 the machine lacks something, 4 timeout or interrupted.
    """
    from kbtool.gpu.probe import probe_machine
    from kbtool.model.errors import UsageError
    from kbtool.runner.engine import Job, execute, plan, preflight
    from kbtool.runner.journal import recover as recover_runs
    from kbtool.runner.progress import reporter
    from kbtool.runner.resume import last_attempt
    from kbtool.runner.resume import resume as resume_run

    base = knowledge_base(ctx)
    values = _values(settings)
    earlier = None
    if resume is not None:
        if not dry_run:
            _tell_recovered(recover_runs(base))
        earlier = last_attempt(base, resume)
        if values or session_name or force or name not in (None, earlier.recipe):
            raise UsageError(
                "--resume goes on as the run began: leave out recipe, settings and session"
            )
        name, values = earlier.recipe, earlier.parameters
    pattern, recipe = _find(base, name)
    try:
        bound, parameters = recipe.bind(values)
    except ValueError as error:
        raise UsageError(_first_problem(error)) from None
    job = Job(base, pattern, bound, parameters, probe_machine())
    wanted = earlier.session if earlier else _wanted(base, session_name, force)
    if dry_run:
        steps = list(plan(job))
        _print_plan(job, steps, as_json)
        ctx.exit(3 if steps[-1][2] else 0)
    preflight(job)
    resumption = resume_run(base, earlier, bound, job.machine) if earlier else None
    if resumption is None:
        _tell_recovered(recover_runs(base))
    session = wanted or _made_for(job)
    try:
        run, path = execute(job, session, reporter(progress, verbose=verbose), resumption)
    finally:
        if wanted is None:
            _end(base, session)
    if as_json:
        print_json({**run.model_dump(mode="json"), "path": base.shown(path)})
    else:
        _print_result(run, recipe, base.shown(path))
    ctx.exit(EXIT_CODES[run.status])


@click.command()
@click.pass_context
def recover(ctx: click.Context) -> None:
    """Write the records of runs whose kbtool process was killed, from their journals.

    \b
    Example:
      kbtool recover

    run-recipe does this by itself before it starts.
    """
    from kbtool.runner.journal import recover as recover_runs

    base = knowledge_base(ctx)
    written = recover_runs(base)
    _tell_recovered(written)
    if not written:
        click.echo("nothing to recover: no run was left behind", err=True)
    for path in written:
        click.echo(base.shown(path))


def _values(settings: tuple[str, ...]) -> dict[str, str]:
    from kbtool.model.errors import UsageError

    values = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {setting}: write NAME=VALUE")
        values[key.strip()] = value
    return values


def _find(base: KnowledgeBase, name: str | None) -> Any:
    from kbtool.model.errors import NotFoundError, UsageError

    known = base.recipes()
    if name is None:
        raise UsageError(f"which recipe? There is {', '.join(known) or 'none'}")
    if name not in known:
        broken = f" ({base.findings[0]})" if base.findings else ""
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
        place = ".".join(str(part) for part in problem["loc"][-1:])
        return f"{place}={problem['input']}: {problem['msg'].removeprefix('Value error, ')}"
    return str(error)


def _wanted(base: KnowledgeBase, name: str | None, force: bool) -> str | None:
    """The id of the session to append to; ``None`` for one of the run's own.

    Raises:
        UsageError: the session is not open, or nothing tells which one is meant.
    """
    from kbtool.cli.session.common import OPTION, of_status, only
    from kbtool.cli.session.history import engineer
    from kbtool.model.errors import UsageError

    if name == NEW:
        return None
    if name is not None:
        given = base.session(name).record
        if given.status in ("running", "paused") or force:
            return given.id
        verb = "start" if given.status == "planned" else "resume"
        raise UsageError(
            f"{given.id} is {given.status}: `kbtool session {verb} {given.id}` opens it, --session"
            f" {NEW} makes one for this run, and --force appends the run to it as it is"
        )
    running = only(base, "running", f"{OPTION}, or --session {NEW}")
    if running is not None:
        return running.record.id
    paused = [entry.record for entry in of_status(base, "paused")]
    if paused:
        names = ", ".join(record.id for record in paused)
        which = names if len(paused) == 1 else "ID"
        choice = (
            f"`kbtool session resume {which}` goes on with it, --session {which} appends the run to"
            f" it as it is, --session {NEW} makes one for this run"
        )
        me = engineer(base.root)
        if me is not None and me in {record.engineer for record in paused}:
            raise UsageError(f"paused: {names}. Say where the run goes: {choice}")
        # Whose they are is not known, or others: no reason to stop the run.
        click.echo(f"kbtool: paused: {names}; the run goes into a session of its own. {choice}",
                   err=True)  # fmt: skip
    return None


def _made_for(job: Job) -> str:
    """The id of a session made for the run."""
    from kbtool.store.repository import repository_state
    from kbtool.store.sessions import create_session

    # Complete from the start: what runs beside this must not take it for somebody's sitting.
    entry = create_session(
        job.base,
        status="complete",
        title=f"Run of recipe {job.recipe.name}",
        objective=job.recipe.title,
        machine=job.machine,
        repository=repository_state(job.base.root),
    )
    return entry.record.id


def _end(base: KnowledgeBase, session: str) -> None:
    from kbtool.store.edit import end_run_session

    end_run_session(base.root / "sessions" / session / "session.yaml")


def _tell_recovered(written: list[Path]) -> None:
    for path in written:
        click.echo(f"kbtool: a run was cut short; its record is {path.name}", err=True)


def _minutes(recipe: Recipe) -> str:
    from kbtool.runner.progress import seconds

    return seconds(float(sum(step.expected.minutes for step in recipe.steps) * 60))


def _print_plan(job: Job, steps: list[Any], as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "recipe": job.recipe.name,
                "parameters": job.parameters,
                "steps": [
                    {
                        "id": step.id,
                        "kind": step.kind,
                        "title": step.title,
                        "would": lines,
                        "stops": problem,
                    }
                    for step, lines, problem in steps
                ],
            }
        )
        return
    for number, (step, lines, problem) in enumerate(steps, 1):
        click.echo(
            f"[{number}/{len(job.recipe.steps)}] {step.id} ({step.kind}): {step.title}"
            f" — expect {step.expected}, at most {step.timeout}"
        )
        for line in lines:
            click.echo(f"      {line}")
        if problem is not None:
            click.echo(f"      would stop here: {problem}")
    click.echo("dry run: nothing was written", err=True)


def _print_result(run: Run, recipe: Recipe, path: str) -> None:
    from kbtool.model.kinds.benchmark import BenchmarkResult
    from kbtool.model.kinds.minimise import MinimiseResult
    from kbtool.model.kinds.mutants import MutantsResult
    from kbtool.model.kinds.profile import ProfileResult
    from kbtool.model.kinds.sanitise import SanitiseResult
    from kbtool.model.kinds.tune import TuneResult
    from kbtool.runner.resume import way_on
    from kbtool.runner.words import how_far

    for step in run.steps:
        if isinstance(step.result, BenchmarkResult):
            click.echo()
            _print_benchmark(step.result)
        if isinstance(step.result, MutantsResult):
            click.echo()
            _print_mutants(step.result)
        if isinstance(step.result, MinimiseResult | ProfileResult | SanitiseResult | TuneResult):
            click.echo()
            click.echo("\n".join(_report(step.result, step.id, run, recipe)))
    click.echo()
    click.echo(f"{how_far(run)}; record: {path}")
    click.echo(f"session: kbtool session show {run.session}")
    if run.status == "passed":
        click.echo("site: kbtool site serve")
    else:
        click.echo(way_on(run, recipe))


def _report(
    result: MinimiseResult | ProfileResult | SanitiseResult | TuneResult,
    step: str,
    run: Run,
    recipe: Recipe,
) -> list[str]:
    """What a step found, in lines."""
    from kbtool.model.kinds.minimise import MinimiseResult
    from kbtool.model.kinds.profile import ProfileResult
    from kbtool.model.kinds.tune import TuneResult
    from kbtool.steps.minimise import report as minimised
    from kbtool.steps.profile import report as profiled
    from kbtool.steps.sanitise import report as sanitised
    from kbtool.steps.tune import report as tuned

    if isinstance(result, MinimiseResult):
        return minimised(result, step, recipe, run.parameters)
    if isinstance(result, ProfileResult):
        return profiled(result)
    if isinstance(result, TuneResult):
        return tuned(result)
    return sanitised(result)


def _print_benchmark(result: BenchmarkResult) -> None:
    from kbtool.steps.benchmark import headline, remarks, report

    on_host = any(timing.host_us for case in result.cases for timing in case.arms.values())
    also = "; host: one call as the host sees it, launch and return included" if on_host else ""
    plain = [case.plain_us for case in result.cases if case.plain_us]
    if plain:
        also += (
            "; between: a call behind a plain kernel, both together, of which that kernel alone"
            f" takes {statistics.median(plain):.2f}"
        )
    click.echo(
        f"microseconds, median ± half the interquartile range of single calls, {result.device},"
        f" {many(result.threads, 'thread')}; ceiling: {result.read_gb_s:.1f} GB/s read{also}"
    )
    sets = list(dict.fromkeys(case.case_set for case in result.cases))
    for name in sets:
        if len(sets) > 1:
            click.echo(f"\n{name}")
        _print_times(result, [case for case in result.cases if case.case_set == name], on_host)
    if len(sets) > 1:
        click.echo()
    for line in [*remarks(result), *report(result), headline(result)]:
        click.echo(line)


def _print_times(result: BenchmarkResult, cases: list[BenchmarkCase], on_host: bool) -> None:
    """A table of cases, with the arms that were timed in any of them."""
    arms = list(dict.fromkeys(arm for case in cases for arm in case.arms))
    apart = any(case.plain_us for case in cases)
    rows = []
    for case in cases:
        value, share = result.ratio(case), result.share_of_ceiling(case)
        best, peer = result.ratio_to_best(case), result.best_peer(case)
        hosts = [case.arms.get(result.subject), case.arms[peer] if peer else None]
        between = result.ratio_to_best(case, between=True)
        behind = result.best_peer(case, between=True)
        rows.append(
            [
                case.name,
                *(_timing(case.arms.get(arm)) for arm in arms),
                "refused" if case.refused else f"{value:.2f}×" if value else "—",
                f"{best:.2f}× {peer}" if best else "—",
                *([f"{between:.2f}× {behind}" if between else "—"] if apart else ()),
                *(map(_host, hosts) if on_host else ()),
                f"{share:.0%}" if share is not None else "—",
            ]
        )
    header = [
        "case", *arms, f"{result.baseline} ÷ {result.subject}", f"best peer ÷ {result.subject}",
        *(["between"] if apart else []),
        *([f"host {result.subject}", "host best peer"] if on_host else []), "of ceiling",
    ]  # fmt: skip
    print_table(header, rows, numeric=set(range(1, len(header))))


def _print_mutants(result: MutantsResult) -> None:
    from kbtool.steps.mutants import headline

    bound, cases = result.bound, many(len(result.cases), "case")
    rows = [
        [
            one.mutant.id,
            one.verdict.replace("-", " ") + (f", process {one.cut_short}" if one.cut_short else ""),
            str(len(one.killed_by)),
            *([str(len(one.over_bound))] if bound is not None else []),
            _clipped(one.message or one.mutant.equivalent or ""),
        ]
        for one in result.mutants
    ]
    header = [
        "bug put back", "validation", "cases",
        *([f"≥ {bound:g}"] if bound is not None else []), "what the first case says",
    ]  # fmt: skip
    click.echo(
        f"each bug alone in a library of its own, {cases}, {result.device};"
        " cases: how many found it"
        + (f"; ≥ {bound:g}: how many a fixed bound refuses" if bound is not None else "")
    )
    print_table(header, rows, numeric={2, 3} if bound is not None else {2})
    alone = [name for n, name in enumerate(result.cases) if n not in result.replaceable]
    click.echo(
        f"nothing unique is found by {len(result.replaceable)} of {cases}: what each finds,"
        " another finds too (the record lists them under replaceable)"
    )
    click.echo(f"cases that find a bug alone: {', '.join(alone) or 'none'}")
    for name in result.case_sets if bound is not None else []:
        through = ", ".join(one.mutant.id for one in result.let_through(name)) or "none"
        click.echo(f"found by {name}, but let through by a bound of {bound:g}: {through}")
    click.echo(headline(result))


def _clipped(text: str, longest: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _timing(timing: Timing | None) -> str:
    if timing is None:
        return "—"
    spread = (timing.high_us - timing.low_us) / 2 / timing.median_us
    return f"{timing.median_us:,.1f} ±{spread:3.0%}"


def _host(timing: Timing | None) -> str:
    return "—" if timing is None or timing.host_us is None else f"{timing.host_us:,.1f}"
