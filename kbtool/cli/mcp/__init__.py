"""``kbtool mcp``: the knowledge base as tools of a coding agent."""

from __future__ import annotations

import click

EPILOG = """\b
Examples:
  kbtool mcp                                   what an agent's configuration starts
  kbtool --root ~/kb mcp --allow-run           recipes may be run too
  claude mcp add kbtool -- kbtool --root ~/kb mcp
  codex mcp add kbtool -- kbtool --root ~/kb mcp

\b
The server speaks the Model Context Protocol over stdin and stdout, and ends when stdin does.
Reading tools: search, explain, get_record, list_records, list_recipes, plan_recipe, costs, compare.
Writing tools: add_note, add_bug, add_fix, add_measurement; they write into the running session, as
`kbtool session` does. run_recipe is refused without --allow-run.

\b
Every answer says which records it rests on, and tells apart that nothing was found, that a filter
of the call left nothing, and that the records do not say. Records that were changed meanwhile are
read again. Needs the package mcp: pip install 'kbtool[mcp]'.

\b
Exit status: 0 the client ended; 2 usage; 3 the package mcp is not installed; 4 interrupted."""


@click.command(epilog=EPILOG)
@click.option(
    "--allow-run", is_flag=True, default=False,
    help="Let the agent run recipes: they compile and execute code of this knowledge base.",
)  # fmt: skip
@click.pass_context
def mcp(ctx: click.Context, allow_run: bool) -> None:
    """Serve the knowledge base to a coding agent (Model Context Protocol, over stdio)."""
    from kbtool.model.errors import MachineError
    from kbtool.store.pool import collector_off
    from kbtool.store.root import find_root

    root = find_root(ctx.find_root().obj)
    with collector_off():
        try:
            from kbtool.cli.mcp.server import serve
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in {"mcp", "anyio"}:
                raise
            raise MachineError(
                "the package mcp is missing; install it: pip install 'kbtool[mcp]'"
            ) from None
    serve(root, allow_run=allow_run)
