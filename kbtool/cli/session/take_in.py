"""``kbtool session import``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, knowledge_base, print_json
from kbtool.cli.complete import session_names
from kbtool.cli.pasted import pasted
from kbtool.cli.session.common import refuse_title, run_summary

if TYPE_CHECKING:
    from kbtool.runner.intake import Intake


@click.command(
    "import",
    epilog="""\b
Examples:
  kbtool session import ~/from-the-card/sessions/2026-11-21-unsorted --session last
  kbtool session import runs/*.json --new "Sweep on the H100" --dry-run
  kbtool session import ../clone-on-the-card      each run into the session that it names

\b
Exit status: 0 imported, or already here; 1 a run is refused and nothing was written; 2 usage.""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--session",
    "name",
    metavar="ID|LABEL",
    shell_complete=session_names,
    help="Import all of them into this session. Default: each into the session that it names.",
)
@click.option("--new", "title", metavar="TITLE", help="Create a session for them.")
@click.option(
    "--dry-run",
    is_flag=True,
    default=False,
    help="Report what would be imported, and write nothing.",
)
@json_option
@click.pass_context
def import_(
    ctx: click.Context,
    paths: tuple[str, ...],
    name: str | None,
    title: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import runs that were made on another machine: all of them, or none if one is refused.

    PATH is a run record, or a folder copied from there: of runs, of a session, of a whole knowledge
    base. A run that was edited or cut off is refused, and so is one in which `kbtool check` finds a
    problem. A run that is already here is skipped. For the others, kbtool says whether this
    repository has the commit and the sources that they name.
    """
    from pathlib import Path

    from kbtool.model.errors import UsageError
    from kbtool.runner.intake import import_runs, run_files

    base = knowledge_base(ctx)
    if name is not None and title is not None:
        raise UsageError("--session names an existing session, --new creates one; give one of them")
    if title is not None:
        refuse_title(title)
        title = title.strip()
    files, journals = run_files([Path(path) for path in paths])
    intake = import_runs(base.root, files, session=name, new=title, dry_run=dry_run)
    if as_json:
        print_json({
            "session": intake.session,
            "made": intake.made,
            "dry_run": dry_run,
            "taken": [
                {"file": one.file, "path": one.path, **run_summary(one.run),
                 "taken_in": one.run.taken_in, "remarks": one.remarks}
                for one in intake.imported
            ],
            "known": [
                {"file": one.file, "path": one.path, "id": one.run.id} for one in intake.known
            ],
            "refused": [finding._asdict() for finding in intake.refused],
        })  # fmt: skip
    else:
        _print_intake(intake)
    for path in journals:
        click.echo(f"kbtool: {path} is the journal of a run that was cut off: `kbtool recover` on"
                   " that machine writes its record", err=True)  # fmt: skip
    if intake.refused:
        click.echo("kbtool: nothing was imported", err=True)
        ctx.exit(1)
    _say_taken(intake, dry_run)


def _print_intake(intake: Intake) -> None:
    from kbtool.runner.words import headline

    for imported in intake.imported:
        run = imported.run
        head = headline(run)
        click.echo(imported.path)
        click.echo(f"  {run.source} {run.outcome}{f', {head}' if head else ''}")
        if run.taken_in is not None:
            click.echo(f"  made in session {run.taken_in.session}")
        for remark in imported.remarks:
            click.echo(pasted(f"  note: {remark}"))
    for known in intake.known:
        click.echo(f"{known.path}\n  is here already: {known.file}")
    for finding in intake.refused:
        click.echo(pasted(str(finding)))


def _say_taken(intake: Intake, dry_run: bool) -> None:
    known = f"{len(intake.known)} here already"
    if dry_run:
        count = len(intake.imported)
        click.echo(f"dry run: {count} would be imported, {known}; nothing was written", err=True)
        return
    click.echo(f"{len(intake.imported)} imported, {known}", err=True)
    for session in dict.fromkeys(imported.run.session for imported in intake.imported):
        click.echo(f"session: kbtool session show {session}", err=True)
