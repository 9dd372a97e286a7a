"""``kbtool import``: a report in prose and tables becomes the draft of a session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, knowledge_base, print_json
from kbtool.cli.pasted import pasted

if TYPE_CHECKING:
    from kbtool.logs.take_in import TakenIn

_SHOWN = 20
"""So many of the things that were not placed are printed; all of them are in the file."""


@click.command(
    "import",
    epilog="""\b
Examples:
  kbtool import report.md                         draft a session from it
  kbtool import report.md --dry-run               print the record, and write nothing
  kbtool import report.md --id first-build --label "First build"

\b
Exit status: 0 drafted; 1 the log holds a secret, an address or a path of a machine, and nothing was
written; 2 usage.""",
)
@click.argument("log", metavar="LOG", type=click.Path(path_type=Path))
@click.option("--id", "name", metavar="NAME", help="The session's id, or its part after the date.")
@click.option("--label", metavar="TEXT", help="The session's short name. Default: as the log says.")
@click.option(
    "--into",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Make the session's folder in this folder, not in sessions/.",
)
@click.option("--dry-run", is_flag=True, default=False, help="Print the record, and write nothing.")
@json_option
@click.pass_context
def import_(
    ctx: click.Context,
    log: Path,
    name: str | None,
    label: str | None,
    into: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Draft a session from a report in prose and tables: Markdown, or plain text.

    Times, costs, steps, measurements, bugs, commits, decisions and plans go where a rule places
    them, each with its line. A figure with a unit and without such a place becomes a claim. What is
    not placed is listed, here and in files/not-placed.md. Nothing is guessed. The log is kept in
    the session's files/. Read the draft beside it: it holds what the log says, not what is true.
    """
    from kbtool.logs.take_in import take_in

    taken = take_in(knowledge_base(ctx), log, name=name, label=label, into=into, dry_run=dry_run)
    if as_json:
        print_json({
            "id": taken.id, "label": taken.label, "path": taken.path, "dry_run": dry_run,
            "placed": taken.counts, "record": taken.text if dry_run else None,
            "uncited": taken.uncited,
            "not_placed": [{"line": one.line, "text": one.text, "why": one.why}
                           for one in taken.left],
        })  # fmt: skip
        return
    if dry_run:
        click.echo(taken.text, nl=False)
    else:
        click.echo(taken.path)
    _say(taken, log)


def _say(taken: TakenIn, log: Path) -> None:
    placed = ", ".join(f"{count} {name}" for name, count in taken.counts.items()) or "no entries"
    click.echo(f"kbtool: drafted {taken.id} ({taken.label}): {placed}", err=True)
    for one in taken.left[:_SHOWN]:
        click.echo(f"not placed: {log}:{one.line}: {one.why}: {one.text[:100]}", err=True)
    if len(taken.left) > _SHOWN:
        more = len(taken.left) - _SHOWN
        where = "" if taken.path is None else " in its files/not-placed.md"
        click.echo(f"and {more} more{where}", err=True)
    if taken.uncited:
        from kbtool.logs.draft import spans_of

        click.echo(f"lines that no entry cites: {spans_of(taken.uncited)}", err=True)
    if taken.path is not None:
        click.echo(pasted("next: read it beside the log, then `kbtool check`"), err=True)
