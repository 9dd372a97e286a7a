"""The page of the command line, made from the help of every command.

``python -m kbtool.cli.reference > docs/guide/cli.md`` writes it; a test fails if it is out of date.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

INTRODUCTION = """\
# Commands

Every command, with the text of its `--help` (or `-h`). The page is generated:
`python -m kbtool.cli.reference > docs/guide/cli.md`.

Results go to stdout and messages to stderr. With `--json` a command prints one JSON object on
stdout and nothing else: what it found, or what it wrote. If it fails, that object is
`{"error": {"code", "status", "message", "remedy"}}`: `code` is `usage`, `not_found`, `machine`
(something is missing on this machine), `record` (a record is invalid), `system`, `interrupted` or
`bug`; `status` is the exit status."""


def text() -> str:
    """The page, as Markdown."""
    from kbtool.cli.main import cli

    parts = [INTRODUCTION, *_command(cli, click.Context(cli, info_name="kbtool"), 2)]
    return "\n\n".join(parts) + "\n"


def _command(command: click.Command, ctx: click.Context, level: int) -> Iterator[str]:
    """A command and those under it."""
    yield f"{'#' * level} {ctx.command_path}"
    yield _code(" ".join([ctx.command_path, *command.collect_usage_pieces(ctx)]))
    yield from _blocks(command.help or "")
    own = [param for param in command.get_params(ctx) if "--help" not in param.opts]
    records = [param.get_help_record(ctx) for param in own]
    options = [f"- `{name}`: {_prose(about)}" for name, about in filter(None, records) if about]
    if options:
        yield "\n".join(options)
    yield from _blocks(command.epilog or "")
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            if not below.hidden:
                nested = click.Context(below, info_name=name, parent=ctx)
                yield from _command(below, nested, min(level + (ctx.parent is not None), 6))


def _blocks(help_text: str) -> Iterator[str]:
    """Paragraphs and examples of a help text."""
    if not help_text.strip():
        return
    for block in re.split(r"\n\s*\n", inspect.cleandoc(help_text)):
        # After a \b click keeps the lines as they are: examples, and some prose.
        lines = [line for line in block.split("\n") if line.strip() != "\b"]
        if lines[0] in {"Example:", "Examples:"}:
            yield _code(inspect.cleandoc("\n".join(lines[1:])))
        elif any(line.startswith(("#", "  ")) for line in lines):
            yield _code("\n".join(lines))
        else:
            yield _prose(" ".join(line.strip() for line in lines))


def _code(lines: str) -> str:
    return f"```text\n{lines}\n```"


def _prose(line: str) -> str:
    """``line`` as Markdown that looks the same; text in backticks stays code."""
    pieces = re.split(r"(`[^`]*`)", line)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([\\*_])", r"\\\1", piece).replace("<", "&lt;")
        for piece in pieces
    )


if __name__ == "__main__":
    click.echo(text(), nl=False)
