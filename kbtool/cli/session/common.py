"""What the commands share: finding a session, times, refusing texts, words for a record."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import minutes_text, print_json
from kbtool.cli.complete import session_names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kbtool.model.base import Model
    from kbtool.model.cost import CostLine
    from kbtool.model.run import Run
    from kbtool.model.session import Session
    from kbtool.store.dump import Data, Fields
    from kbtool.store.tree import Entry, KnowledgeBase

ARGUMENT, OPTION = "add its ID", "--session ID"
"""How to name the session that a command is for."""


def session_option(command: Any) -> Any:
    """Add ``--session`` to a command, which gets it as ``name``."""
    return click.option(
        "--session",
        "name",
        metavar="ID|LABEL",
        shell_complete=session_names,
        help="The session, if not the running one.",
    )(command)


def named(
    base: KnowledgeBase, name: str | None, status: str, how: str = ARGUMENT
) -> Entry[Session]:
    """The session of that name, or without one the session of that status (see ``only``)."""
    from kbtool.model.errors import UsageError
    from kbtool.store.current import of_status, only

    if name is not None:
        return base.session(name)
    found = only(base, status, how)
    if found is not None:
        return found
    resting = [] if status == "paused" else of_status(base, "paused")
    if resting:
        names = ", ".join(entry.record.id for entry in resting)
        which = "" if len(resting) == 1 else " ID"
        raise UsageError(
            f"no session is {status}; paused: {names}. `kbtool session resume{which}` goes on with"
            f" it, or say which one you mean: {how}"
        )
    raise UsageError(f"no session is {status}; say which one you mean: {how} (see `kbtool session"
                     " list`)")  # fmt: skip


def path_of(
    base: KnowledgeBase, name: str | None, status: str, how: str = ARGUMENT
) -> tuple[Path, Session]:
    """The path of that session's record, and the record; refused if it is invalid."""
    if name is not None:
        # An invalid record has no label; it is found by its folder, for its findings.
        path = base.root / "sessions" / name / "session.yaml"
        if "/" not in name and path.is_file() and name not in base.sessions:
            _refuse_invalid(base, name)
    entry = named(base, name, status, how)
    return base.root / entry.path, entry.record


def current(base: KnowledgeBase, name: str | None) -> tuple[Path, Session]:
    """The session that a fact goes into: of that name, or the running one, or where none runs the
    paused one. The path of its record, and the record."""
    from kbtool.store.current import of_status

    pausing = not of_status(base, "running") and of_status(base, "paused")
    return path_of(base, name, "paused" if pausing else "running", OPTION)


def _moment(ctx: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    """The moment that ``--at`` names; refused if it is in the future."""
    from kbtool.model.errors import UsageError

    if text is None:
        return None
    now = datetime.now().astimezone()
    try:
        at = _read_moment(text.strip(), now)
    except (ValueError, OverflowError):
        raise UsageError(
            f"--at: {text!r} is not a time; write 14:30 (today), '2 h ago', now, or"
            f" {now:%Y-%m-%d}T14:30 (in the zone of this machine, if it names none)"
        ) from None
    if at > now:
        raise UsageError(
            f"--at: {text} is in the future, it is {now:%H:%M}; of another day write that too:"
            f" {now:%Y-%m-%d}T14:30"
        )
    return at


def _read_moment(text: str, now: datetime) -> datetime:
    from kbtool.ledger.rates import figure
    from kbtool.model.base import ExactDuration, Instant

    if text == "now":
        return now
    ago = re.fullmatch(r"(.+?)\s+ago", text)
    if ago:
        return now - timedelta(minutes=float(figure(ExactDuration, ago[1]).minutes))
    if re.fullmatch(r"\d?\d:\d\d", text):
        return datetime.combine(now.date(), time.fromisoformat(text.zfill(5))).astimezone()
    at = Instant(text).at
    # Without a zone it is that of this machine, because it was read from a clock here.
    return at if at.tzinfo is not None else at.astimezone()


at_option = click.option(
    "--at",
    metavar="TIME",
    callback=_moment,
    help="When, if not now: '14:30' of today, '2 h ago', 2025-10-12T14:30.",
)


def _refuse_invalid(base: KnowledgeBase, name: str) -> None:
    from kbtool.model.errors import RecordError

    base.sessions  # noqa: B018 - loads them, and finds what is wrong
    own = [str(f) for f in base.findings if f.path == f"sessions/{name}/session.yaml"]
    if own:
        raise RecordError("\n".join([f"sessions/{name} is invalid; correct it first:", *own]))


def refuse_title(title: str) -> None:
    """Raise if it is empty or breaks a rule for texts of records."""
    from kbtool.model.errors import UsageError

    if not title.strip():
        raise UsageError("the title is empty")
    refuse_prose("title", title)


def refuse_prose(what: str, text: str) -> None:
    """Raise if the text has several lines or holds a secret; ``what`` names it in the message."""
    from kbtool.model.errors import UsageError

    refuse_secrets(text)
    if len(text.strip().splitlines()) > 1:
        raise UsageError(f"the {what} has more than one line; prose goes into notes.md")


def item_of(kind: type[Model], given: Fields) -> Fields:
    """The values of ``given`` that are not ``None``, as an item of a record; refused if the model
    does not accept them, or a text has several lines."""
    from kbtool.model.errors import UsageError
    from kbtool.store.document import parse
    from kbtool.store.dump import dump
    from kbtool.store.load import validate

    item = {key: value for key, value in given.items() if value is not None}
    for key, text in item.items():
        if isinstance(text, str):
            refuse_prose(key, text)
            if text and not text.strip():
                raise UsageError(f"{key}: is empty")
    # As a document, so that the message is that of `kbtool check`.
    found = validate(parse(dump(item).encode(), ""), kind)
    if isinstance(found, list):
        raise UsageError(found[0].message)
    return item


class ModelCommand(click.Command):
    """A command with an option for every field of a model that has one value and no own option.

    The fields are read when the options are needed; ``kbtool session --help`` imports no models.
    """

    model = ""
    """The model, as MODULE:CLASS."""
    in_the_file: frozenset[str] = frozenset(("source",))
    """Fields that the command sets itself, or that are written in the file."""
    _asked_for_options = False

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The options, if one is begun."""
        self._asked_for_options = incomplete.startswith("-")
        return super().shell_complete(ctx, incomplete)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own options, and one for each field without an own option.

        Not while a shell completes a name: it would wait for the models.
        """
        import importlib

        if ctx.resilient_parsing and not self._asked_for_options:
            return super().get_params(ctx)
        module, _, name = self.model.partition(":")
        kind = getattr(importlib.import_module(module), name)
        *own, help_option = super().get_params(ctx)
        own_names = {param.name for param in own}
        return [
            *own,
            *(
                click.Option([f"--{field.replace('_', '-')}"], metavar="TEXT", help=about)
                for field, about in single_fields(kind).items()
                if field not in own_names | self.in_the_file
            ),
            help_option,
        ]


def keep(base: KnowledgeBase, record: Session) -> None:
    """Let the knowledge base know a session as it is now; `kbtool session add` adds more to it."""
    from kbtool.store.tree import Entry

    known = base.sessions[record.id]
    base.sessions[record.id] = Entry(known.path, record, known.document)


def added(base: KnowledgeBase, name: str | None, key: str, item: Fields | str) -> Session:
    """The session after ``item`` was added to its list ``key``."""
    from kbtool.store.edit import add_item

    path, _ = current(base, name)
    record = add_item(path, key, item)
    keep(base, record)
    return record


def tell(record: Session, place: str, item: Fields, as_json: bool, said: str) -> None:
    """Say what was added at a place of the record."""
    if not as_json:
        click.echo(f"{record.id}: {said}")
        return
    path = f"sessions/{record.id}/session.yaml"
    reference = f"{record.id}#{place}"
    print_json({"session": record.id, "path": path, "reference": reference, "added": item})


def in_order(kind: type[Model], /, given: Mapping[str, Data], **own: Data) -> dict[str, Data]:
    """The values of a model's fields in its order; ``own`` wins over ``given``."""
    values: dict[str, Data] = {**given, **own}
    return {name: values.get(name) for name in kind.model_fields}


def run_place(base: KnowledgeBase, text: str) -> str:
    """A reference with the id of the run or the session written out: ``last#steps.validate``.

    Raises:
        NotFoundError: the run or the session is not there, or several are meant.
    """
    from kbtool.model.errors import NotFoundError

    name, mark, path = text.partition("#")
    if not name or name in base.sessions:
        return text
    try:
        return f"{base.run_named(name).record.id}{mark}{path}"
    except NotFoundError:
        try:
            return f"{base.session(name).record.id}{mark}{path}"
        except NotFoundError:
            raise NotFoundError(
                f"there is no run and no session {name!r}; `kbtool session show` lists the runs"
            ) from None


def single_fields(kind: type[Model]) -> dict[str, str]:
    """The fields of a model that hold one value, not a list of them: name → description."""
    from typing import get_args, get_origin

    from kbtool.model.docstrings import docstrings_of

    docstrings = docstrings_of(kind)
    return {
        name: docstrings.get(name, "")
        for name, field in kind.model_fields.items()
        if not {list, dict}
        & {get_origin(field.annotation), *map(get_origin, get_args(field.annotation))}
    }


def refuse_secrets(*texts: str) -> None:
    """Raise if a text breaks a rule for all texts of records."""
    from kbtool.model.errors import UsageError

    for text in texts:
        found = secret_in(text)
        if found is not None:
            raise UsageError(f"the text {found}")


def secret_in(text: str) -> str | None:
    """The rule for texts of records that it breaks, or ``None``."""
    from kbtool.checks.text_rules import TEXT_RULES

    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        return "is not UTF-8"
    return next((finding.message for rule in TEXT_RULES for finding in rule("", text)), None)


def warn_nameless(title: str, instead: str) -> None:
    """Say so if a title gives an id no name, and how to give it one."""
    from kbtool.store.sessions import slug

    if not slug(title, ""):
        click.echo(f"the title has no letter a to z and no digit for the id, so that is {instead};"
                   " --id NAME chooses another", err=True)  # fmt: skip


def minutes(record: Session) -> str:
    """How long it took; a dash if that is unknown."""
    return "–" if record.minutes is None else minutes_text(record.minutes)


def stored(record: Session) -> Any:
    """The record as stored."""
    return record.model_dump(mode="json", exclude_defaults=True)


def run_summary(run: Run) -> dict[str, Any]:
    """A run in a few fields, for JSON."""
    from kbtool.runner.words import headline

    return {
        "id": run.id,
        "attempt": run.attempt,
        "started": run.started.isoformat(),
        "origin": run.origin,
        "source": run.source,
        "recipe": run.recipe,
        "status": run.outcome,
        "headline": headline(run),
    }


def cost_line(line: CostLine) -> str:
    """A line of the costs, in words."""
    unknown = f"{'so far ' if line.is_open else ''}unknown, in {line.currency}"
    amount = unknown if line.amount is None else f"{line.amount} {line.currency}"
    facts = bracketed(duration=line.duration, rate=line.rate, card=line.card, invoice=line.invoice)
    return f"{line.kind} {amount} ({line.basis}){facts}" + (f": {line.note}" if line.note else "")


def bracketed(**figures: object) -> str:
    """The ``figures`` that are known, in brackets: `` [target 25 min, actual 75 min]``."""
    known = [f"{name} {value}" for name, value in figures.items() if value is not None]
    return f" [{', '.join(known)}]" if known else ""
