"""``kbtool session`` ``bug``, ``fix``: what broke, and what fixed it."""

from __future__ import annotations

import contextlib
import re
import shlex
from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, knowledge_base, print_json
from kbtool.cli.complete import bug_names
from kbtool.cli.session.common import (
    ModelCommand,
    added,
    current,
    in_order,
    item_of,
    keep,
    refuse_secrets,
    run_place,
    session_option,
    warn_nameless,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kbtool.model.session import Session
    from kbtool.store.authors import Made
    from kbtool.store.dump import Fields
    from kbtool.store.tree import KnowledgeBase


class NoErrorLines(Exception):  # noqa: N818 - no error of a program
    """No line of a text says what is wrong."""


class BugCommand(ModelCommand):
    """The command that adds a bug, with an option for every field of a bug that has one value."""

    model = "kbtool.model.bug:Bug"
    # An error message has several lines; `kbtool session fix` sets the status.
    in_the_file = ModelCommand.in_the_file | {"status", "error_text"}


@click.command(
    cls=BugCommand,
    epilog="""\b
Examples:
  kbtool session bug "NaN in the last tile"
  kbtool session bug "NaN in the last tile" --symptom "the last 16 rows are NaN" --lost '40 min'
  kbtool session bug "Undefined symbol again" --again SESSION#bugs.BUG
  kbtool session bug "Undefined symbol" --from-explain build.log

\b
The bug stays open until `kbtool session fix` records its fix; `kbtool session hypothesis` adds what
it might be. Write its mutants in session.yaml, and correct mistakes there: kbtool session edit""",
)
@click.argument("title")
@click.option("--symptom", metavar="TEXT", help="What was seen.")
@click.option("--cause", metavar="TEXT", help="The cause, if it is known.")
@click.option(
    "--lost", "minutes_lost", metavar="TIME", help="Time spent on it in this session: '40 min'."
)
@click.option(
    "--again",
    "recurrence_of",
    metavar="BUG",
    shell_complete=bug_names,
    help="The earlier bug that recurs: ID or SESSION#bugs.ID.",
)
@click.option(
    "--from-explain",
    "log",
    metavar="FILE",
    help="Its error message: the lines of FILE that `kbtool explain` tells it by, or else the first"
    " that report an error, without paths of this machine. -: what is piped in.",
)
@click.option("--id", metavar="ID", help="Its name for references; made from TITLE if not given.")
@session_option
@json_option
@click.pass_context
def bug(
    ctx: click.Context,
    /,
    name: str | None,
    log: str | None,
    as_json: bool,
    **given: str | None,
) -> None:
    """Add a bug to a session: a fault that was found in it, with a short TITLE."""
    from kbtool.cli.explain import of_file
    from kbtool.model.errors import UsageError

    base = knowledge_base(ctx)
    with contextlib.ExitStack() as stack:
        output = None if log is None else of_file(log, stack)
        try:
            record, item = bug_added(base, name, given, output)
        except NoErrorLines:
            raise UsageError(
                f"--from-explain: no line of {log} reports an error; leave the option out, and"
                " write the message as `error_text` in session.yaml"
            ) from None
    if as_json:
        print_json({
            "session": record.id, "path": f"sessions/{record.id}/session.yaml",
            "reference": f"{record.id}#bugs.{item['id']}", "bug": item,
        })  # fmt: skip
        return
    click.echo(f"{record.id}: bug {item['id']}: {item['title']}")
    if given["id"] is None:
        warn_nameless(given["title"] or "", "a word")
    click.echo(f"once it is fixed: {_fix_command(str(item['id']))}. If you commit the fix"
               " first, its subject is the default", err=True)  # fmt: skip


def bug_added(
    base: KnowledgeBase,
    name: str | None,
    given: Mapping[str, str | None],
    output: Iterable[bytes] | None = None,
) -> tuple[Session, Fields]:
    """Add a bug to the session of that name, or to the running one.

    Args:
        base: the knowledge base.
        name: of the session.
        given: the fields of the bug that have one value; ``title`` has to be there.
        output: what a tool printed, in blocks; the lines that say what is wrong are recorded.

    Returns:
        The session, and the bug as it is recorded.

    Raises:
        NoErrorLines: no line of ``output`` says what is wrong.
    """
    from kbtool.model.bug import Bug
    from kbtool.store.sessions import slug

    _, record = current(base, name)
    title, again = given["title"] or "", given.get("recurrence_of")
    fields = in_order(
        Bug,
        given,
        id=given.get("id") or slug(title, "bug"),
        title=title.strip(),
        status="open",
        recurrence_of=again and _bug_named(base, record, again),
    )
    item = item_of(Bug, fields)
    if output is not None:
        item = {**item, "error_text": _error_in(base, output)}
    return added(base, name, "bugs", item), item


@click.command(
    epilog="""\b
Examples:
  kbtool session fix nan-in-the-last-tile --confirmed
  kbtool session fix nan-in-the-last-tile --shown-by last#steps.validate
  kbtool session fix SESSION#bugs.BUG "link libcudart" --commit 0123abc
  kbtool session fix nan-in-the-last-tile "bound the loop" --commit none

\b
BUG is the id of a bug in this session, an id that only one other session has, or SESSION#bugs.ID.
CHANGE defaults to the commit's subject. A bug of this session is then marked as fixed, unless you
give --unconfirmed because a test still shows it. --confirmed is refused if the session's newest
validation found a kernel wrong; use --shown-by then. Correct mistakes in session.yaml."""
)
@click.argument("bug", metavar="BUG", shell_complete=bug_names)
@click.argument("change", required=False)
@click.option(
    "--commit",
    "revision",
    metavar="REVISION",
    help="The commit with the fix. Default: HEAD, if made in this session. 'none': not committed"
    " yet.",
)
@click.option(
    "--confirmed/--unconfirmed",
    default=None,
    help="Whether a test showed that the bug is gone. Default: not recorded.",
)
@click.option(
    "--shown-by",
    "shown_by",
    metavar="RUN#steps.ID",
    multiple=True,
    help="The run step that showed it; repeatable. Confirms the fix.",
)
@click.option("--note", "remark", metavar="TEXT", help="How it was shown, or what remained.")
@session_option
@json_option
@click.pass_context
def fix(
    ctx: click.Context,
    bug: str,
    change: str | None,
    revision: str | None,
    confirmed: bool | None,
    shown_by: tuple[str, ...],
    remark: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Add a fix to a session: the CHANGE that fixes BUG."""
    base = knowledge_base(ctx)
    record, item = fix_added(base, name, bug, change, revision, confirmed, shown_by, remark)
    if as_json:
        path = f"sessions/{record.id}/session.yaml"
        print_json({"session": record.id, "path": path, "fix": item})
        return
    sha = item.get("commit")
    held = "in no commit" if sha is None else f"commit {str(sha)[:7]}"
    click.echo(f"{record.id}: fix of {item['bug']}: {item['change']} ({held})")
    if sha is None and revision is None:
        click.echo(
            "HEAD was not made in this session, so the fix names no commit; once there is one, add"
            f" `commit` to it in sessions/{record.id}/session.yaml",
            err=True,
        )


def fix_added(
    base: KnowledgeBase,
    name: str | None,
    bug: str,
    change: str | None = None,
    revision: str | None = None,
    confirmed: bool | None = None,
    shown_by: Sequence[str] = (),
    remark: str | None = None,
) -> tuple[Session, Fields]:
    """Add a fix to the session of that name, or to the running one.

    Args:
        base: the knowledge base.
        name: of the session.
        bug: its id, or SESSION#bugs.ID.
        change: what was changed. Default: the subject of the commit.
        revision: the commit. Default: HEAD, if made in the session; 'none' for no commit.
        confirmed: whether a test showed that the bug is gone.
        shown_by: the steps of runs that showed it.
        remark: how it was shown, or what remained.

    Returns:
        The session, and the fix as it is recorded.
    """
    from kbtool.model.bug import Fix
    from kbtool.model.errors import UsageError
    from kbtool.store.edit import add_fix

    path, record = current(base, name)
    reference = _bug_named(base, record, bug)
    sha, subject = _commit(base.root, record, revision)
    description = subject if change is None else change.strip()
    if description is None:
        raise UsageError(
            "no commit of this session says what was changed; commit the fix first, or say what:"
            f" {_fix_command(bug)}"
        )
    if shown_by:
        if confirmed is False:
            raise UsageError(
                "--shown-by says that a test passed, --unconfirmed that none did; give one"
            )
        confirmed = True
        shown_by = [run_place(base, reference) for reference in shown_by]
    item = item_of(Fix, {
        "bug": reference,
        "change": description,
        "commit": sha,
        "confirmed": None if confirmed is None else str(confirmed).lower(),
        "shown_by": list(shown_by) or None,
        "note": remark,
    })  # fmt: skip
    if shown_by:
        _refuse_unshown(base, shown_by)
    elif confirmed:
        _refuse_contradicted(base, record)
    keep(base, add_fix(path, item))
    return record, item


def _error_in(base: KnowledgeBase, output: Iterable[bytes]) -> str:
    """The lines that say what is wrong, as a record may hold them."""
    from kbtool.model.control import visible
    from kbtool.model.machine_path import without_machine_paths
    from kbtool.runner.remedies import error_lines

    lines = error_lines(base, output)
    if not lines:
        raise NoErrorLines
    kept = [without_machine_paths(visible(line)) for line in lines]
    refuse_secrets(*kept)
    return "\n".join(kept)


def _fix_command(bug: str) -> str:
    return f'`kbtool session fix {shlex.quote(bug)} "what was changed"`'


def _refuse_unshown(base: KnowledgeBase, shown_by: Sequence[str]) -> None:
    """Refuse steps that do not exist, did not pass or test nothing."""
    from kbtool.ledger.claims.implied import shows_no_fix
    from kbtool.ledger.claims.operands import Unknown, records_of
    from kbtool.model.errors import UsageError

    records = records_of(base)
    for reference in shown_by:
        try:
            why = shows_no_fix(records, reference)
        except Unknown as error:
            raise UsageError(
                f"--shown-by: {error}; `kbtool session show` lists the runs, and a step of one is"
                " RUN#steps.validate"
            ) from None
        if why:
            raise UsageError(f"--shown-by: {why}; name a step that tested the fix and passed")


def _refuse_contradicted(base: KnowledgeBase, own: Session) -> None:
    """Refuse a confirmation that the newest validation in the session contradicts."""
    from kbtool.model.errors import RecordError, UsageError
    from kbtool.model.validation import Validation, contradiction, still_wrong

    runs = [entry.record for entry in base.runs_of(own.id)]
    unread = [f for f in base.findings if f.path.startswith(f"sessions/{own.id}/runs/")]
    if unread:
        raise RecordError(f"a run of the session cannot be read; correct it first:\n  {unread[0]}")
    wrong = still_wrong(
        [Validation(run.validated_at, run.kernel, run.id, run.verdicts) for run in runs]
    )
    if wrong:
        raise UsageError(
            f"{contradiction(wrong)}. Validate again, name the step that showed the fault gone"
            " (--shown-by RUN#steps.ID), or leave --confirmed out"
        )


def _bug_named(base: KnowledgeBase, own: Session, text: str) -> str:
    """The reference in session ``own`` to the bug that ``text`` names."""
    from kbtool.model.address import split_reference
    from kbtool.model.errors import UsageError

    where, path = split_reference(text) if "#" in text else (None, text)
    name = path.removeprefix("bugs.")
    if where is not None:
        sessions = [base.session(where).record]
    elif "#" in text or any(known.id == name for known in own.bugs):
        sessions = [own]
    else:
        sessions = [entry.record for entry in base.sessions.values()]
    met = [one for one in sessions if any(known.id == name for known in one.bugs)]
    if len(met) > 1:
        names = ", ".join(f"{one.id}#bugs.{name}" for one in met)
        raise UsageError(f"more than one session has a bug {name!r}; say which: {names}")
    if not met:
        meant = own if where is None else sessions[0]
        known = ", ".join(bug.id for bug in meant.bugs) or "none"
        raise UsageError(
            f"there is no bug {text!r}; {meant.id} has {known}. `kbtool session bug TITLE` adds one"
        )
    return f"#bugs.{name}" if met[0].id == own.id else f"{met[0].id}#bugs.{name}"


def _commit(root: Path, record: Session, revision: str | None) -> tuple[str | None, str | None]:
    """The commit that ``--commit`` names, and its subject; ``None`` for what is unknown."""
    from kbtool.model.errors import UsageError
    from kbtool.store.authors import find_commit

    if revision == "none":
        return None, None
    found = find_commit(root, revision or "HEAD")
    if revision is None:
        # A commit from before the session cannot hold a change made in it.
        return (found.sha, found.title) if found and _within(found, record) else (None, None)
    if found is not None:
        return found.sha, found.title
    if re.fullmatch("[0-9a-f]{7,40}", revision):
        return revision, None  # a commit of another repository, or one that is not here yet
    raise UsageError(
        f"--commit: there is no {revision!r} in this repository; give a commit's id, or none"
    )


def _within(commit: Made, record: Session) -> bool:
    """Whether it was certainly made in the session."""
    begun, ended = record.started, record.ended
    if begun is None or not begun.zoned or commit.at < begun.at:
        return False
    if record.repository is not None and record.repository.commit == commit.sha:
        return False
    return ended is None or (ended.zoned and commit.at <= ended.at)
