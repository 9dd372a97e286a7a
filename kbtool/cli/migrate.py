"""``kbtool migrate``: bring the records to the format of this version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, print_json
from kbtool.model.words import many

if TYPE_CHECKING:
    from pathlib import Path

    from kbtool.store.migrate import Change, Plan

EPILOG = """\b
Examples:
  kbtool migrate --dry-run      every line that would change, as a diff
  kbtool migrate                change them, then check
  git stash -u                  take the migration back

\b
Exit status: 0 done, and check finds nothing; 1 something is left to change by hand, or check finds
a problem; 2 files with changes that are not committed; 3 the format is newer than this kbtool."""


@click.command(epilog=EPILOG)
@click.option("--dry-run", is_flag=True, default=False, help="Show the changes, write nothing.")
@click.option(
    "--force",
    is_flag=True,
    default=False,
    help="Migrate although files have changes that are not committed.",
)
@json_option
@click.pass_context
def migrate(ctx: click.Context, dry_run: bool, force: bool, as_json: bool) -> None:
    """Bring the records of an older kbtool to the format of this one.

    The number of the format is in kbtool.yaml; a knowledge base without that file has format 1.
    Keys that have other names now are renamed, and those that are gone are removed. Comments and
    order stay. Run records are never changed: one that holds a path of a machine is named in
    sessions/excuses.yaml.

    A file is changed whole or not at all, and kbtool.yaml last. If the command is stopped, run it
    again. What it cannot change is listed; the format stays until you have changed that by hand and
    run it again. A second run changes nothing.
    """
    from kbtool.checks.check import check_tree
    from kbtool.cli.check import check
    from kbtool.store.format import FORMAT
    from kbtool.store.migrate import migrating, plan_migration, write_migration
    from kbtool.store.root import find_root

    root = find_root(ctx.find_root().obj)
    with migrating(root):
        plan = plan_migration(root)
        if not dry_run and plan.changes and not force:
            _refuse_uncommitted(root, plan)
        for change in plan.changes if not as_json else ():
            click.echo(_diff(change), nl=False)
        if not dry_run:
            write_migration(root, plan)
    for finding in plan.left if not as_json else ():
        click.echo(finding)
    click.echo(f"kbtool: {_summary(plan, FORMAT, dry_run)}", err=True)
    if plan.left:
        click.echo(
            f"kbtool: {many(len(plan.left), 'place')} to change by hand; then run `kbtool migrate`"
            f" again. The format stays {plan.format} until then",
            err=True,
        )
    if as_json:
        findings = [] if dry_run else check_tree(root).findings
        print_json({
            "format": plan.format, "reached": plan.format if plan.left else FORMAT,
            "dry_run": dry_run,
            "changes": [{"path": one.path, "diff": _diff(one)} for one in plan.changes],
            "left": [one._asdict() for one in plan.left],
            "findings": [one._asdict() for one in findings],
        })  # fmt: skip
        ctx.exit(1 if plan.left or findings else 0)
    if not dry_run:
        ctx.invoke(check, paths=())
    if plan.left:
        ctx.exit(1)


def _refuse_uncommitted(root: Path, plan: Plan) -> None:
    from kbtool.model.errors import UsageError
    from kbtool.store.migrate import not_undone_by_git

    files = not_undone_by_git(root, plan)
    if files:
        more = f" and {len(files) - 3:,} more" if len(files) > 3 else ""
        raise UsageError(
            f"not committed: {', '.join(files[:3])}{more}; commit first, so that git can take the"
            " migration back, or give --force"
        )


def _summary(plan: Plan, newest: int, dry_run: bool) -> str:
    if not plan.changes:
        return f"format {plan.format}; nothing to change"
    files = many(len(plan.changes), "file")
    reached = plan.format if plan.left else newest
    said = f"format {plan.format}{f' to {reached}' if reached != plan.format else ''}: {files}"
    return f"{said} would change" if dry_run else f"{said} changed"


def _diff(change: Change) -> str:
    """The change as a unified diff."""
    from difflib import unified_diff

    before, after = (
        (content or b"").decode("utf-8", "replace").splitlines(keepends=True)
        for content in (change.before, change.after)
    )
    old = "/dev/null" if change.before is None else f"a/{change.path}"
    lines = unified_diff(before, after, old, f"b/{change.path}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
