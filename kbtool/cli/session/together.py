"""``kbtool session add``: several facts in one call, all of them or none."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import BASE, json_option, knowledge_base, print_json
from kbtool.cli.session.common import current, session_option
from kbtool.cli.session.facts import decision, evidence, hypothesis, lesson, plan, step
from kbtool.cli.session.faults import bug, fix
from kbtool.cli.session.lines import cost, note
from kbtool.cli.session.measured import measurement

if TYPE_CHECKING:
    from collections.abc import Sequence

FACTS: dict[str, click.Command] = {
    "note": note, "cost": cost, "bug": bug, "hypothesis": hypothesis, "fix": fix,
    "measurement": measurement, "decision": decision, "evidence": evidence, "plan": plan,
    "step": step, "lesson": lesson,
}  # fmt: skip
"""The commands that add a fact to a session."""


@click.command(
    epilog="""\b
Examples:
  kbtool session add 'note "S=4 differs by 0.08"' 'lesson "Check S=4 first"'
  kbtool session add - <<'END'
  note S=4 differs by 0.08
  bug "NaN in the last tile" --lost '40 min'
  hypothesis last "the tail is read past its end"
  cost gpu 0.40 --basis billed
  END

\b
A fact is what stands after `kbtool session`: note, cost, bug, hypothesis, fix, measurement,
decision, evidence, plan, step or lesson. note and lesson take the words after them without quotes
too. Empty lines, and lines that begin with #, are left out.

\b
If one is refused, nothing is written: the message says which."""
)
@click.argument("facts", metavar="FACT...", nargs=-1, required=True)
@session_option
@json_option
@click.pass_context
def add(ctx: click.Context, facts: tuple[str, ...], name: str | None, as_json: bool) -> None:
    """Add several facts to a session at once; - reads them from stdin, one a line."""
    from kbtool.model.errors import UsageError
    from kbtool.store.edit import together

    base = knowledge_base(ctx)
    lines = list(_lines(facts))
    if not lines:
        raise UsageError("no fact is given; a fact is what stands after `kbtool session`")
    path, record = current(base, name)
    parsed = [_words(number, line) for number, line in enumerate(lines, 1)]
    said: list[Any] = []
    ctx.meta[BASE] = base
    with together(path):
        for number, words in enumerate(parsed, 1):
            said.append(_added(ctx, number, words, record.id))
    if as_json:
        path_ = f"sessions/{record.id}/session.yaml"
        print_json({"session": record.id, "path": path_, "facts": said})
        return
    for one in said:
        fact = {key: value for key, value in one.items() if key not in {"session", "path"}}
        click.echo(f"{record.id}: {_short(fact)}")


def _lines(facts: Sequence[str]) -> list[str]:
    """The facts; of those from stdin, the lines that hold one."""
    found = []
    for fact in facts:
        if fact == "-":
            text = sys.stdin.buffer.read().decode("utf-8", "replace")
            found += [line for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
        else:
            found.append(fact)
    return found


def _words(number: int, line: str) -> list[str]:
    from kbtool.model.errors import UsageError

    command, _, rest = line.strip().partition(" ")
    if command not in FACTS:
        raise UsageError(
            f"fact {number}: {command!r} is none; a fact begins with {', '.join(FACTS)}; nothing"
            " was written"
        )
    plain = command in {"note", "lesson"} and not rest.strip().startswith(("'", '"', "--"))
    if plain:  # an apostrophe is no quote in it
        return [command, "--", rest.strip()] if rest.strip() else [command]
    try:
        return [command, *shlex.split(rest)]
    except ValueError as error:
        raise UsageError(f"fact {number}: {error}; nothing was written") from None


def _added(ctx: click.Context, number: int, words: list[str], session: str) -> Any:
    """Run one of the commands, as it would by itself; what it says as JSON."""
    from kbtool.model.errors import UsageError, UserError

    command, *arguments = words
    if any(word == "--session" or word.startswith("--session=") for word in arguments):
        raise UsageError(
            f"fact {number} ({command}): give --session once, to `kbtool session add`; nothing was"
            " written"
        )
    if "-" in arguments and command == "note":
        raise UsageError(f"fact {number} (note): - has no stdin of its own; nothing was written")
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            options = ["--json", "--session", session]
            with FACTS[command].make_context(command, [*options, *arguments], parent=ctx) as sub:
                FACTS[command].invoke(sub)
            out.flush()
    except UserError as error:
        said = f"fact {number} ({command}): {error}; nothing was written"
        raise type(error)(said) from None
    except click.exceptions.Exit:
        raise UsageError(
            f"fact {number} ({command}) asks for help: `kbtool session {command} --help`; nothing"
            " was written"
        ) from None
    except click.UsageError as error:
        said = f"fact {number} ({command}): {error.format_message()}"
        raise UsageError(
            f"{said} See `kbtool session {command} --help`; nothing was written"
        ) from None
    return json.loads(out.buffer.getvalue())


def _short(fact: dict[str, Any]) -> str:
    """A fact in a line."""
    kind = next(key for key in fact if key != "reference")
    if kind == "added":
        place, _, _ = str(fact["reference"]).partition("#")[2].partition(".")
        item = fact["added"]
        words = [str(item.get(key)) for key in _TELLING if item.get(key)]
        return f"{place}: {', '.join(words)}"
    value = fact[kind]
    if isinstance(value, dict):
        words = [str(value.get(key)) for key in _TELLING if value.get(key)]
        return f"{kind}: {', '.join(words)}"
    return f"{kind}: {value}" if kind != "note" else str(value)


_TELLING = ("id", "kind", "amount", "bug", "pattern", "verdict", "chosen", "title")
"""The fields that a line on a fact tells."""
