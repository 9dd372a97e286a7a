"""What ``kbtool recipes`` and ``kbtool run-recipe`` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import print_json, print_table
from kbtool.cli.pasted import pasted

if TYPE_CHECKING:
    from kbtool.ledger.headline import Headline
    from kbtool.ledger.measured import Machine
    from kbtool.model.recipe import Recipe
    from kbtool.model.run import Run
    from kbtool.runner.engine import Job
    from kbtool.steps.base import Table
    from kbtool.store.tree import KnowledgeBase


def minutes_of(recipe: Recipe) -> str:
    """How long the steps of a recipe should take."""
    from kbtool.runner.progress import seconds

    return seconds(float(sum(step.expected.minutes for step in recipe.steps) * 60))


def print_plan(job: Job, steps: list[Any], as_json: bool) -> None:
    """Print what each step would do."""
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
            click.echo(pasted(f"      would stop here: {problem}"))
    click.echo("dry run: nothing was written", err=True)


def headlines_of(base: KnowledgeBase, run: Run) -> list[tuple[Machine, Headline]]:
    """The headlines of the cases that a run timed; empty if it timed none."""
    from kbtool.ledger import headline
    from kbtool.model.kinds.benchmark import BenchmarkResult

    result = run.last(BenchmarkResult)
    if run.kernel not in base.kernels or result is None:
        return []
    # Noisy times give no ratio, whatever other runs measured, and to read those takes seconds.
    runs = [] if result.noise else [entry.record for entry in base.runs]
    return headline.headlines_of(run, runs, base.kernels[run.kernel].record)


def print_result(
    base: KnowledgeBase, run: Run, recipe: Recipe, path: str, headlines: Sequence[Headline]
) -> None:
    """The report of each step, the headlines, the outcome and the path of the record."""
    from kbtool.runner.resume import continue_command
    from kbtool.runner.words import how_far
    from kbtool.site.needs import INSTALL, generator_of, missing_package
    from kbtool.steps import kind_of
    from kbtool.steps.base import Invocation

    entry = base.kernels.get(run.kernel or "")
    kernel = entry.record if entry else None
    for step in run.steps:
        if step.result is None:
            continue
        report = kind_of(step.result).report(
            step.result, Invocation(step.id, recipe, run.parameters, kernel)
        )
        if report:
            click.echo()
            print_report(report)
    if headlines:
        _print_headlines(headlines)
    click.echo()
    click.echo(f"{how_far(run)}; record: {path}")
    click.echo(pasted(f"session: kbtool session show {run.session}"))
    if run.status == "passed":
        generator = generator_of(base.root)
        first = f"{INSTALL[generator]} && " if missing_package(generator) else ""
        click.echo(pasted(f"site: {first}kbtool site serve"))
    else:
        if run.status == "unavailable":
            click.echo(pasted(f"what the machine lacks: kbtool doctor --for {run.recipe}"))
        click.echo(pasted(continue_command(run, recipe)))


def _print_headlines(headlines: Sequence[Headline]) -> None:
    """The kernel against its peers, over the runs of the build that were not noisy."""
    from kbtool.ledger.headline import COLUMNS

    rows = []
    for one in headlines:
        cells = (one.mean_and_spread(between=between) for between in (True, False))
        means = [f"{mean} ({spread})" if spread else mean for mean, spread in cells]
        rows.append([one.label, *means, one.against])
    click.echo()
    if any(one.between or one.chain for one in headlines):
        click.echo("the time of the best peer ÷ ours: above 1 ours is faster")
    print_table(["cases", *map(str.lower, COLUMNS)], rows, numeric=set())


def print_report(parts: Sequence[str | Table]) -> None:
    """Lines and tables."""
    from kbtool.steps.base import Table

    for part in parts:
        if isinstance(part, Table):
            print_table(*part)
        else:
            click.echo(pasted(part))
