"""``kbtool forget``."""

from __future__ import annotations

import click

from kbtool.cli.common import json_option, knowledge_base, print_json
from kbtool.cli.complete import recipe_names
from kbtool.model.words import many


@click.command(
    epilog="""\b
Examples:
  kbtool forget RECIPE --reason "the kernel was given up for a library call"

\b
The record of it, with the time and the reason, is under `forgotten:` in sessions/excuses.yaml. The
pattern and the kernel stay; you may delete their files too, and `kbtool check` still passes. To
undo it, restore the pattern with git and remove the entry.""",
)
@click.argument("recipe", metavar="RECIPE", shell_complete=recipe_names)
@click.option("--reason", metavar="TEXT", required=True, help="Why it goes.")
@json_option
@click.pass_context
def forget(ctx: click.Context, recipe: str, reason: str, as_json: bool) -> None:
    """Delete a recipe, or record that it was deleted; its runs stay, and `kbtool check` passes.

    RECIPE is a recipe of a pattern, or one that runs name and that no pattern has any more.
    """
    from kbtool.cli.session.common import refuse_prose
    from kbtool.model.errors import UsageError
    from kbtool.store.forget import forget_recipe
    from kbtool.store.tree import KnowledgeBase

    base = knowledge_base(ctx)
    if not reason.strip():
        raise UsageError("the reason is empty: --reason TEXT says why the recipe goes")
    refuse_prose("reason", reason)
    entry, runs = forget_recipe(base, recipe, reason)
    after = KnowledgeBase(base.root)
    left = {
        *(after.patterns[id_].path for id_ in entry.patterns if id_ in after.patterns),
        *(after.kernels[id_].path for id_ in entry.kernels if id_ in after.kernels),
    }
    if as_json:
        print_json({"forgotten": entry, "runs": runs, "path": "sessions/excuses.yaml",
                    "left": sorted(left)})  # fmt: skip
        return
    stay = "stays" if runs == 1 else "stay"
    click.echo(f"recipe {entry.recipe} is forgotten; {many(runs, 'run')} of it {stay} readable")
    for path in sorted(left):
        click.echo(f"kept, and yours to delete: {path}", err=True)
