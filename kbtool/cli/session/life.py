"""``kbtool session`` ``new``, ``start``, ``pause``, ``resume``, ``close``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, knowledge_base, print_json
from kbtool.cli.session.common import (
    minutes,
    path_of,
    refuse_prose,
    refuse_secrets,
    refuse_title,
    stored,
)

if TYPE_CHECKING:
    from kbtool.model.session import Session
    from kbtool.store.tree import KnowledgeBase


@click.command(
    epilog="""\b
Examples:
  kbtool session new "Fix the NaN at S=4"
  kbtool session new "Two passes" --label N+8 --objective "reach 1.2 times SDPA" --budget-time '2 h'
  cd "$(kbtool session new Profile --json | jq -r .folder)"
"""
)
@click.argument("title")
@click.option("--label", help="The session's own name: N+8. The name in its id if not given.")
@click.option("--objective", help="What it sets out to do.")
@click.option("--budget-time", metavar="TIME", help="The time box: '2 h'.")
@click.option("--budget-money", metavar="MONEY", help="The money box: '5 USD'.")
@click.option("--planned", is_flag=True, default=False, help="Plan it; do not start it yet.")
@json_option
@click.pass_context
def new(
    ctx: click.Context,
    title: str,
    label: str | None,
    objective: str | None,
    budget_time: str | None,
    budget_money: str | None,
    planned: bool,
    as_json: bool,
) -> None:
    """Make a session: a record with the machine and the commit filled in, and notes."""
    from kbtool.gpu.probe import probe_machine
    from kbtool.model.errors import UsageError
    from kbtool.store.repository import repository_state
    from kbtool.store.sessions import create_session

    base = knowledge_base(ctx)
    refuse_title(title)
    for what, text in (("label", label), ("objective", objective)):
        refuse_prose(what, text or "")
    if label is not None:
        _refuse_taken_label(base, label)
    try:
        entry = create_session(
            base,
            title=title.strip(),
            label=label.strip() if label is not None else None,
            status="planned" if planned else "running",
            objective=objective.strip() if objective is not None else None,
            budget_time=budget_time,
            budget_money=budget_money,
            machine=None if planned else probe_machine(),
            repository=None if planned else repository_state(base.root),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    folder = (base.root / entry.path).parent
    if as_json:
        print_json({"id": entry.record.id, "folder": str(folder), "record": stored(entry.record)})
        return
    click.echo(entry.path)
    click.echo(f"{entry.record.id} is {entry.record.status}", err=True)
    click.echo("fill in session.yaml; `kbtool session note TEXT` keeps notes; then"
               " `kbtool session close`", err=True)  # fmt: skip


@click.command()
@click.argument("name", metavar="ID|LABEL")
@click.pass_context
def start(ctx: click.Context, name: str) -> None:
    """Begin a planned session now."""
    from kbtool.store.edit import start_session

    path, _ = path_of(ctx, name, "planned")
    _say_status(start_session(path))


@click.command()
@click.argument("name", metavar="[ID|LABEL]", required=False)
@click.pass_context
def pause(ctx: click.Context, name: str | None) -> None:
    """Stop the clock."""
    from kbtool.store.edit import pause_session

    path, _ = path_of(ctx, name, "running")
    _say_status(pause_session(path))


@click.command()
@click.argument("name", metavar="[ID|LABEL]", required=False)
@click.pass_context
def resume(ctx: click.Context, name: str | None) -> None:
    """Start the clock again; the pause does not count as work."""
    from kbtool.store.edit import resume_session

    path, _ = path_of(ctx, name, "paused")
    _say_status(resume_session(path))


@click.command()
@click.argument("name", metavar="[ID|LABEL]", required=False)
@click.option("--outcome", help="What came of it.")
@click.option(
    "--as",
    "status",
    type=click.Choice(["complete", "terminated"]),
    default="complete",
    show_default=True,
    help="How it ended.",
)
@click.pass_context
def close(ctx: click.Context, name: str | None, outcome: str | None, status: str) -> None:
    """End a session now."""
    from kbtool.store.edit import close_session

    path, record = path_of(ctx, name, "running")
    refuse_secrets(outcome or "")
    closed = close_session(path, status=status, outcome=outcome)  # type: ignore[arg-type]
    _say_status(closed)
    if not record.costs:
        click.echo("no cost is recorded: `kbtool session cost gpu 0.40 --basis billed"
                   f" --session {record.id}`", err=True)  # fmt: skip


def _refuse_taken_label(base: KnowledgeBase, label: str) -> None:
    from kbtool.model.errors import UsageError

    if not label.strip():
        raise UsageError("the label is empty")
    for entry in base.sessions.values():
        if entry.record.label == label.strip():
            raise UsageError(f"session {entry.record.id} has the label {label.strip()!r} already")


def _say_status(record: Session) -> None:
    spent = "" if record.minutes is None else f" after {minutes(record)} min"
    click.echo(f"{record.id} is {record.status}{spent}")
