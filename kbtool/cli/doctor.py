"""``kbtool doctor``: what is there, what is missing, what does not fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, print_json
from kbtool.cli.complete import recipe_names
from kbtool.cli.pasted import interpreter, pasted
from kbtool.cli.recipe import bound_recipe, values_of

if TYPE_CHECKING:
    from kbtool.model.diagnosis import Check, Diagnosis
    from kbtool.store.tree import KnowledgeBase

WORKS = {
    "cpu": "recipes of target cpu",
    "cuda": "recipes of target cuda",
    "profile": "recipes that profile",
    "sanitise": "recipes that run the sanitizers",
    "site": "the site",
}
"""Kind of work → what it is called."""


@click.command(
    epilog="""\b
Examples:
  kbtool doctor                        what is missing here, and what can start
  kbtool doctor --for look             whether this recipe can start
  kbtool doctor --verbose              what is well too, with the paths of the tools
  kbtool doctor --json | jq '.checks[] | select(.level != "ok")'

\b
Each finding says why it matters, and has a command that mends it or shows more. Looked at are
Python, compiler, ninja, torch, NumPy, C++ ABI, git, the knowledge base, the packages of the site,
disks, memory, load; of a card its driver, CUDA versions, architectures, clocks, power limit, modes
and other users; profiler, sanitizers, and variables that lead to another toolkit. Nothing is
changed and no kernel is built. Without --verbose the findings name no path, host or user, so that
they can be put into an issue; the commands may name the path of Python.

\b
Exit status: 0 recipes of target cpu (with --for: the recipe) can start; 2 usage; 3 they cannot."""
)
@click.option("--for", "recipe", metavar="RECIPE", shell_complete=recipe_names,
              help="Say whether this recipe can start.")  # fmt: skip
@click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True,
    help="Set a parameter of the recipe; repeatable.",
)  # fmt: skip
@click.option(
    "-v", "--verbose", is_flag=True, default=False,
    help="Show what is well too, and the paths of the tools.",
)  # fmt: skip
@json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    recipe: str | None,
    settings: tuple[str, ...],
    verbose: bool,
    as_json: bool,
) -> None:
    """Check the machine before work begins: driver, CUDA toolkit, torch, compilers, card, disks."""
    from kbtool.model.errors import NotFoundError, RecordError, UsageError
    from kbtool.runner.doctor import diagnose, facts_of
    from kbtool.runner.engine import Job
    from kbtool.site.needs import generator_of, missing_package
    from kbtool.store.tree import KnowledgeBase, find_root

    if settings and recipe is None:
        raise UsageError("--set needs --for RECIPE")
    base: KnowledgeBase | None = None
    error = None
    try:
        base = KnowledgeBase(find_root(ctx.find_root().obj))
    except (NotFoundError, RecordError) as problem:
        if recipe is not None:
            raise
        error = str(problem)
    wanted = bound_recipe(base, recipe, values_of(settings)) if base and recipe else None
    facts = facts_of(base, error, missing_package(generator_of(base.root if base else None)))
    job = None
    if base is not None and wanted is not None:
        pattern, bound, parameters = wanted
        job = Job(base, pattern, bound, parameters, facts.machine)
    found = diagnose(facts, base, job, paths=verbose)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _print(found, verbose)
    can = found.recipe.can if found.recipe else found.starts[0].can
    ctx.exit(0 if can else 3)


def _print(found: Diagnosis, verbose: bool) -> None:
    """The findings, the worst first; then what can start."""
    well = [check for check in found.checks if check.level == "ok"]
    for check in found.checks:
        if check.level != "ok" or verbose:
            _print_check(check)
    if well and not verbose:
        names = ", ".join(dict.fromkeys(check.name for check in well))
        click.echo(f"ok: {names}")
    click.echo()
    can = [WORKS[start.work] for start in found.starts if start.can]
    if can:
        click.echo(f"can start: {', '.join(can)}")
    for start in found.starts:
        if not start.can:
            click.echo(f"cannot start: {WORKS[start.work]} ({', '.join(start.stopped_by)})")
    if found.recipe is not None:
        click.echo(f"recipe {found.recipe.recipe}: {'can' if found.recipe.can else 'cannot'} start")
        for problem in found.recipe.problems:
            click.echo(pasted(f"  {problem}"))


def _print_check(check: Check) -> None:
    where = f" ({check.where})" if check.where else ""
    click.echo(f"{check.level}: {check.name}: {check.found}{where}")
    if check.why:
        click.echo(f"   why: {check.why}")
    if check.advice:
        click.echo(pasted(f"   do: {check.advice}"))
    if check.command:
        click.echo(f"   run: {_command(check.command)}")


def _command(command: str) -> str:
    """A command as it can be pasted: with the Python that runs kbtool."""
    import shlex

    python = shlex.quote(interpreter())
    command = command.replace("python -m ", f"{python} -m ")
    return pasted(command.replace("--python python", f"--python {python}"))
