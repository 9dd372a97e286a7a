"""``kbtool session`` ``new``, ``start``, ``pause``, ``resume``, ``close``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, knowledge_base, print_json
from kbtool.cli.complete import session_names
from kbtool.cli.session.common import (
    at_option,
    minutes,
    path_of,
    refuse_prose,
    refuse_secrets,
    refuse_title,
    secret_in,
    stored,
    warn_nameless,
)
from kbtool.model.words import many

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from kbtool.model.session import Session
    from kbtool.store.authors import Made
    from kbtool.store.tree import KnowledgeBase

LONGEST_HOURS = 24
"""A session that ran longer without a pause was most likely forgotten."""


@click.command(
    epilog="""\b
Examples:
  kbtool session new "Fix the NaN at S=4"
  kbtool session new "Two passes" --label N+8 --objective "reach 1.2 times SDPA" --budget-time '2 h'
  kbtool session new "Yesterday's sweep" --at 2026-11-21T14:00
  cd "$(kbtool session new Profile --json | jq -r .folder)"
"""
)
@click.argument("title")
@click.option(
    "--id",
    "given_id",
    metavar="NAME",
    help="The part of its id after the date. Default: made of TITLE.",
)
@click.option("--label", help="Its short name, such as N+8. Default: the name in its id.")
@click.option("--objective", help="What it is meant to achieve.")
@click.option("--budget-time", metavar="TIME", help="Time budget: '2 h'.")
@click.option("--budget-money", metavar="MONEY", help="Money budget: '5 USD'.")
@click.option("--engineer", metavar="NAME", help="Who does the work. Default: git's user.name.")
@at_option
@click.option("--planned", is_flag=True, default=False, help="Plan it; do not start it yet.")
@json_option
@click.pass_context
def new(
    ctx: click.Context,
    title: str,
    given_id: str | None,
    label: str | None,
    objective: str | None,
    budget_time: str | None,
    budget_money: str | None,
    engineer: str | None,
    at: datetime | None,
    planned: bool,
    as_json: bool,
) -> None:
    """Create a session: a record with the machine and the commit, and a file for notes."""
    from kbtool.gpu.probe import probe_machine
    from kbtool.model.errors import UsageError
    from kbtool.store.authors import engineer as who_works
    from kbtool.store.repository import repository_state
    from kbtool.store.sessions import create_session

    base = knowledge_base(ctx)
    refuse_title(title)
    for what, text in (("label", label), ("objective", objective), ("engineer", engineer)):
        refuse_prose(what, text or "")
    if label is not None:
        _refuse_taken_label(base, label)
    if planned and at is not None:
        raise UsageError("--at says when it began, --planned that it has not begun; give one")
    # For another time, the machine and the checked-out commit are unknown.
    unseen = planned or at is not None
    try:
        entry = create_session(
            base,
            title=title.strip(),
            name=given_id,
            label=label.strip() if label is not None else None,
            status="planned" if planned else "running",
            objective=objective.strip() if objective is not None else None,
            budget_time=budget_time,
            budget_money=budget_money,
            engineer=engineer.strip() if engineer is not None else who_works(base.root),
            now=at,
            machine=None if unseen else probe_machine(),
            repository=None if unseen else repository_state(base.root),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    folder = (base.root / entry.path).parent
    if as_json:
        print_json({"id": entry.record.id, "folder": str(folder), "record": stored(entry.record)})
        return
    click.echo(entry.path)
    click.echo(f"{entry.record.id} is {entry.record.status}", err=True)
    if given_id is None:
        warn_nameless(title, "the date and a word")
    if at is not None:
        click.echo("the machine and the commit of that time are for you to fill in: `environment`,"
                   " `repository`", err=True)  # fmt: skip
    click.echo("fill in session.yaml; `kbtool session` note, cost, bug, fix add to it; then"
               " `kbtool session close`", err=True)  # fmt: skip


@click.command(
    epilog="""\b
Examples:
  kbtool session start last
  kbtool session start SESSION --at 9:30
"""
)
@click.argument("name", metavar="ID|LABEL", shell_complete=session_names)
@at_option
@json_option
@click.pass_context
def start(ctx: click.Context, name: str, at: datetime | None, as_json: bool) -> None:
    """Start a planned session."""
    from kbtool.model.errors import UsageError
    from kbtool.store.edit import start_session

    path, record = path_of(knowledge_base(ctx), name, "planned")
    if record.status in ("paused", "complete", "terminated"):
        raise UsageError(
            f"{record.id} is {record.status}; `kbtool session resume {record.id}` starts its clock"
            " again"
        )
    _say_status(start_session(path, at), as_json)


@click.command(
    epilog="""\b
Examples:
  kbtool session pause
  kbtool session pause last --at '20 min ago'
"""
)
@click.argument("name", metavar="[ID|LABEL]", required=False, shell_complete=session_names)
@at_option
@json_option
@click.pass_context
def pause(ctx: click.Context, name: str | None, at: datetime | None, as_json: bool) -> None:
    """Pause a running session."""
    from kbtool.store.edit import pause_session

    path, record = path_of(knowledge_base(ctx), name, "running")
    _refuse_forgotten(record, at)
    _say_status(pause_session(path, at), as_json)


@click.command(
    epilog="""\b
Examples:
  kbtool session resume
  kbtool session resume last --at 13:30
"""
)
@click.argument("name", metavar="[ID|LABEL]", required=False, shell_complete=session_names)
@at_option
@json_option
@click.pass_context
def resume(ctx: click.Context, name: str | None, at: datetime | None, as_json: bool) -> None:
    """Resume a paused session or, if you name it, a closed one.

    The time in between is not counted.
    """
    from kbtool.store.edit import resume_session

    path, _ = path_of(knowledge_base(ctx), name, "paused")
    _say_status(resume_session(path, at), as_json)


@click.command(
    epilog="""\b
Examples:
  kbtool session close --outcome "fixed; validated at 1e-3"
  kbtool session close last --at 2026-11-21T18:40   # if you forgot to close it
  kbtool session close --as terminated --no-commits

\b
Commits on HEAD that git's user made during the session are recorded in it. `kbtool session resume`
reopens a session that was closed too early. Correct a wrong time in session.yaml."""
)
@click.argument("name", metavar="[ID|LABEL]", required=False, shell_complete=session_names)
@click.option("--outcome", help="What the session achieved.")
@click.option(
    "--as",
    "status",
    type=click.Choice(["complete", "terminated"]),
    default="complete",
    show_default=True,
    help="How it ended.",
)
@at_option
@click.option(
    "--commits/--no-commits",
    "with_commits",
    default=True,
    help="Record the commits made in it. This is the default.",
)
@click.option(
    "--force",
    is_flag=True,
    default=False,
    help="Close it even while one of its runs is still going.",
)
@json_option
@click.pass_context
def close(
    ctx: click.Context,
    name: str | None,
    outcome: str | None,
    status: str,
    at: datetime | None,
    with_commits: bool,
    force: bool,
    as_json: bool,
) -> None:
    """End a session."""
    from kbtool.model.errors import UsageError
    from kbtool.store.edit import close_session

    base = knowledge_base(ctx)
    path, record = path_of(base, name, "running")
    refuse_secrets(outcome or "")
    if record.status in ("complete", "terminated"):
        raise UsageError(
            f"{record.id} is {record.status} already; `kbtool session resume {record.id}` continues"
            f" it; its end is in {base.shown(path)}"
        )
    if record.status == "paused" and at is not None:
        raise UsageError(
            f"{record.id} ended when it was paused, {record.ended}; if the work went on after that,"
            f" `kbtool session resume {record.id} --at TIME` first"
        )
    _refuse_forgotten(record, at)
    _refuse_while_a_run_goes(path, record, force)
    made = _commits(base, record, at) if with_commits else []
    closed = close_session(path, at, status, outcome, [_entry(one) for one in made])  # type: ignore[arg-type]
    _say_status(closed, as_json, commits=[_entry(one) for one in made])
    for one in made if not as_json else ():
        click.echo(f"  commit {one.sha[:7]} {one.title}")
    if not record.costs:
        click.echo("no cost is recorded: `kbtool session cost gpu 0.40 --basis billed"
                   f" --session {record.id}`", err=True)  # fmt: skip


def _refuse_forgotten(record: Session, at: datetime | None) -> None:
    """Raise if it has run so long that it was probably forgotten, and no end is given."""
    from datetime import datetime, timedelta

    from kbtool.model.errors import UsageError
    from kbtool.store.edit import last_mark

    mark = last_mark(record)
    if at is not None or record.status != "running" or mark is None:
        return
    lasts = datetime.now().astimezone() - mark.at
    if lasts > timedelta(hours=LONGEST_HOURS):
        raise UsageError(
            f"{record.id} has run since {mark}, {lasts / timedelta(hours=1):.0f} h without a pause:"
            " say when the work ended, --at TIME; or --at now"
        )


def _refuse_while_a_run_goes(path: Path, record: Session, force: bool) -> None:
    """Raise if a run of the session is under way; with ``force`` only warn."""
    from kbtool.model.errors import UsageError
    from kbtool.runner.journal import SUFFIX
    from kbtool.store.lock import is_locked

    for journal in sorted((path.parent / "runs").glob(f".*{SUFFIX}")):
        if is_locked(journal):
            run = journal.name.removesuffix(SUFFIX).removeprefix(".")
            if not force:
                raise UsageError(
                    f"a run of {record.id} is under way, {run}: wait for it, or end it with Ctrl-C;"
                    " --force closes the session before its run ends"
                )
            click.echo(f"kbtool: {run} is under way and will end after its session", err=True)


def _commits(base: KnowledgeBase, record: Session, at: datetime | None) -> list[Made]:
    """The commits that git shows for a session that ends now and that its record lacks."""
    from datetime import datetime

    from kbtool.store.authors import commits_between

    begun = record.started
    if begun is None or not begun.zoned:
        return []
    until = at or datetime.now().astimezone()
    if record.ended is not None:
        if not record.ended.zoned:
            return []
        until = record.ended.at
    # The commit checked out at the start is not part of it, even if made in the same second.
    known = {one.sha for one in record.commits} | {record.repository and record.repository.commit}
    found = [
        one
        for one in commits_between(base.root, begun.at, until)
        if not any(one.sha.startswith(sha) for sha in known if sha)
    ]
    own = [one for one in found if one.own]
    if len(own) < len(found):
        left = many(len(found) - len(own), "commit")
        click.echo(f"kbtool: not recorded, because others made them: {left}", err=True)
    return own


def _entry(commit: Made) -> dict[str, str]:
    """A commit for the record; without its subject line if that holds a secret.

    A first paragraph of many lines is one subject line to git; its end is cut off.
    """
    from kbtool.model.base import MAX_TITLE

    entry = {"id": commit.sha[:7], "sha": commit.sha}
    title = commit.title[:MAX_TITLE].rstrip()
    return entry if secret_in(commit.title) else {**entry, "title": title}


def _refuse_taken_label(base: KnowledgeBase, label: str) -> None:
    from kbtool.model.errors import UsageError

    if not label.strip():
        raise UsageError("the label is empty")
    for entry in base.sessions.values():
        if entry.record.label == label.strip():
            raise UsageError(f"session {entry.record.id} has the label {label.strip()!r} already")


def _say_status(record: Session, as_json: bool, **more: object) -> None:
    if as_json:
        from kbtool.ledger.rollup_json import number

        path = f"sessions/{record.id}/session.yaml"
        spent_ = number(record.minutes)
        told = {"session": record.id, "path": path, "status": record.status, "minutes": spent_}
        print_json({**told, **more})
        return
    spent = "" if record.minutes is None else f" after {minutes(record)} min"
    click.echo(f"{record.id} is {record.status}{spent}")
