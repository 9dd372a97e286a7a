"""What commands share: the knowledge base, JSON on stdout, tables."""

from __future__ import annotations

import os
import re
import shutil
import sys
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from kbtool.store.tree import KnowledgeBase

json_option = click.option(
    "--json", "as_json", is_flag=True, default=False, help="One JSON object on stdout."
)


def knowledge_base(ctx: click.Context) -> KnowledgeBase:
    """The knowledge base that ``--root``, ``KBTOOL_ROOT`` or the current folder names."""
    from kbtool.store.tree import KnowledgeBase, find_root

    return KnowledgeBase(find_root(ctx.find_root().obj))


def print_json(value: Any) -> None:
    """``value`` as one JSON document on stdout; decimals, times and models as text.

    Indented for a terminal; one line for a program, which is ten times as fast to write. Always
    UTF-8, whatever the locale.
    """
    import json

    from kbtool.model.control import visible

    indent = 2 if sys.stdout.isatty() else None
    # An escape of JSON stands for the same text as the control character that it shows.
    text = visible(json.dumps(value, indent=indent, ensure_ascii=False, default=_jsonable))
    # A file name that is not UTF-8 has lone surrogates; escaped, they are valid JSON.
    click.echo(text.encode("utf-8", "backslashreplace"))


def _jsonable(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return str(value)


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: set[int],
    indent: str = "",
    *,
    total: bool = False,
) -> None:
    """A table on stdout without colour or borders; as wide as the terminal, or as needed in a pipe.

    Args:
        header: column titles.
        rows: cells, as text.
        numeric: indices of the columns to align right.
        indent: what each line begins with.
        total: whether a rule stands above the last row.
    """
    columns = list(zip(header, *rows, strict=True))
    room = _room()
    if room is None:
        widths = [max(map(len, column)) for column in columns]
    else:
        room -= len(indent)
        widths = _fitted(columns, numeric, room)
        if not widths:
            _print_apart(header, rows, room, indent)
            return
    rule = [_dash() * width for width in widths]
    body = [*rows[:-1], rule, rows[-1]] if total else rows
    for row in [header, rule, *body]:
        for cells in zip_longest(*map(_wrapped, row, widths), fillvalue=""):
            aligned = [
                cell.rjust(width) if i in numeric else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ]
            click.echo((indent + "  ".join(aligned)).rstrip())


def minutes_text(minutes: Decimal | float) -> str:
    """Minutes for people: to a tenth, which is dropped where it is 0."""
    from decimal import Decimal

    from kbtool.model.money import half_up

    exact = Decimal(repr(minutes)) if isinstance(minutes, float) else Decimal(minutes)
    return f"{half_up(exact, 1)}".removesuffix(".0")


def _fitted(columns: list[tuple[str, ...]], numeric: set[int], room: int) -> list[int]:
    """Column widths that fit into ``room`` with wrapped texts; empty if there are none."""
    least = [
        # A figure must not be wrapped; its title may be.
        max(map(len, [*_pieces(column[0]), *column[1:]]), default=0)
        if i in numeric
        else max((len(piece) for cell in column for piece in _pieces(cell)), default=0)
        for i, column in enumerate(columns)
    ]
    gaps = 2 * (len(columns) - 1)
    if sum(least) + gaps > room:
        return []
    widths = [max(map(len, column)) for column in columns]
    while sum(widths) + gaps > room:
        width, i = max((width, i) for i, width in enumerate(widths) if width > least[i])
        lines = (line for cell in columns[i] for line in _wrapped(cell, width - 1))
        widths[i] = max(map(len, lines))
    return widths


def _room() -> int | None:
    """The columns of the terminal, or ``COLUMNS``; ``None`` in a pipe without ``COLUMNS``."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _dash() -> str:
    """The character for rules that the terminal can show."""
    try:
        "─".encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return "-"
    return "─"


def _pieces(text: str) -> list[str]:
    """The pieces that are not wrapped: words, and the parts of ids between hyphens."""
    return [piece.strip() for piece in _PIECE.findall(text)]


_PIECE = re.compile(r"\s*-*[^\s-]+-*|\s*-+")


def _wrapped(text: str, width: int) -> list[str]:
    """``text`` in lines; a piece that is wider than ``width`` keeps its line."""
    if len(text) <= width:
        return [text]
    first, *pieces = _PIECE.findall(text) or [""]
    lines = [first.lstrip()]
    for piece in pieces:
        if len(lines[-1] + piece) <= width:
            lines[-1] += piece
        else:
            lines.append(piece.lstrip())
    return lines


def _print_apart(
    header: Sequence[str], rows: Sequence[Sequence[str]], room: int, indent: str
) -> None:
    """A table that is too wide for the terminal: a paragraph per row, each cell with its title."""
    for number, row in enumerate(rows):
        lines = [""] if number else []
        for title, cell in zip(header, row, strict=True):
            entry = f"{title}: {cell}" if title else cell
            if lines and lines[-1] and len(lines[-1]) + 2 + len(entry) <= room:
                lines[-1] += f"  {entry}"
            else:
                lines += _wrapped(entry, room)
        for line in lines:
            click.echo((indent + line).rstrip())


def warn_unreadable(base: KnowledgeBase) -> None:
    """Say on stderr that records were left out, if any were."""
    if base.findings:
        many = f" and {len(base.findings) - 1} more" if len(base.findings) > 1 else ""
        click.echo(f"kbtool: left out: {base.findings[0]}{many}; see `kbtool check`", err=True)
