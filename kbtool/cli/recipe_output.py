"""What ``kbtool recipes`` and ``kbtool run-recipe`` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import print_json, print_table

if TYPE_CHECKING:
    from kbtool.model.recipe import Recipe
    from kbtool.model.run import Run
    from kbtool.runner.engine import Job
    from kbtool.steps.base import Table


def minutes_of(recipe: Recipe) -> str:
    """How long the steps of a recipe should take."""
    from kbtool.runner.progress import seconds

    return seconds(float(sum(step.expected.minutes for step in recipe.steps) * 60))


def print_plan(job: Job, steps: list[Any], as_json: bool) -> None:
    """What a dry run tells: what each step would do."""
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


def print_result(run: Run, recipe: Recipe, path: str) -> None:
    """The report of each step, then how far the run came and where its record is."""
    from kbtool.runner.resume import way_on
    from kbtool.runner.words import how_far
    from kbtool.steps import kind_of
    from kbtool.steps.base import Ran

    for step in run.steps:
        if step.result is None:
            continue
        told = kind_of(step.result).report(step.result, Ran(step.id, recipe, run.parameters))
        if told:
            click.echo()
            print_report(told)
    click.echo()
    click.echo(f"{how_far(run)}; record: {path}")
    click.echo(f"session: kbtool session show {run.session}")
    if run.status == "passed":
        click.echo("site: kbtool site serve")
    else:
        click.echo(way_on(run, recipe))


def print_report(parts: Sequence[str | Table]) -> None:
    """Lines and tables."""
    from kbtool.steps.base import Table

    for part in parts:
        if isinstance(part, Table):
            print_table(*part)
        else:
            click.echo(part)
