"""What commands share: the knowledge base, JSON on stdout, tables."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
import unicodedata
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from kbtool.runner.index import Index
    from kbtool.store.tree import KnowledgeBase

json_option = click.option(
    "--json", "as_json", is_flag=True, default=False, help="One JSON object on stdout."
)


BASE = "kbtool.base"
"""Where a command that runs others keeps the knowledge base for them, in ``ctx.meta``."""


def knowledge_base(ctx: click.Context) -> KnowledgeBase:
    """The knowledge base that ``--root``, ``KBTOOL_ROOT`` or the current folder names."""
    from kbtool.store.tree import KnowledgeBase, find_root

    shared: KnowledgeBase | None = ctx.meta.get(BASE)
    if shared is not None:
        return shared
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
    header = [_shown(title) for title in header]
    rows = [[_shown(cell) for cell in row] for row in rows]
    columns = list(zip(header, *rows, strict=True))
    room = _room()
    if room is None:
        widths = [max(map(cells_of, column)) for column in columns]
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
            gaps = [
                " " * (width - cells_of(cell)) for cell, width in zip(cells, widths, strict=True)
            ]
            aligned = [
                gap + cell if i in numeric else cell + gap
                for i, (cell, gap) in enumerate(zip(cells, gaps, strict=True))
            ]
            click.echo((indent + "  ".join(aligned)).rstrip())


def minutes_text(minutes: Decimal | float) -> str:
    """Minutes for people: to a tenth, which is dropped where it is 0."""
    from decimal import Decimal

    from kbtool.model.money import half_up

    exact = Decimal(repr(minutes)) if isinstance(minutes, float) else Decimal(minutes)
    return f"{half_up(exact, 1)}".removesuffix(".0")


def cells_of(text: str) -> int:
    """How many cells of a terminal a text takes: a letter of Chinese or Japanese and an emoji take
    two, an accent that joins the letter before it none."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


@functools.cache
def _cells(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _shown(text: str) -> str:
    """``text`` with a question mark for each character that stdout's encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    return text if text.isascii() else text.encode(encoding, "replace").decode(encoding)


def _fitted(columns: list[tuple[str, ...]], numeric: set[int], room: int) -> list[int]:
    """Column widths that fit into ``room`` with wrapped texts; empty if there are none.

    Words stay whole if they can: an id that is cut cannot be pasted.
    """
    for parts_of in (_words, _pieces):
        least = [
            # A figure must not be wrapped; its title may be.
            max(map(cells_of, [*parts_of(column[0]), *column[1:]]), default=0)
            if i in numeric
            else max((cells_of(part) for cell in column for part in parts_of(cell)), default=0)
            for i, column in enumerate(columns)
        ]
        if sum(least) + 2 * (len(columns) - 1) <= room:
            return _narrowed(columns, least, room)
    return []


def _narrowed(columns: list[tuple[str, ...]], least: list[int], room: int) -> list[int]:
    """The widest column is made narrower until all fit."""
    widths = [max(map(cells_of, column)) for column in columns]
    while sum(widths) + 2 * (len(columns) - 1) > room:
        width, i = max((width, i) for i, width in enumerate(widths) if width > least[i])
        lines = (line for cell in columns[i] for line in _wrapped(cell, width - 1))
        widths[i] = max(map(cells_of, lines))
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


def _words(text: str) -> list[str]:
    """The words, without the spaces between them.

    A character of Chinese, Japanese or Korean is a word, with the punctuation after it.
    """
    return [word.strip() for word in _WORD.findall(text)]


def _pieces(text: str) -> list[str]:
    """The words, and the parts of ids between hyphens."""
    return [piece.strip() for word in _WORD.findall(text) for piece in _PIECE.findall(word)]


_WIDE = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60"
_WORD = re.compile(rf"\s*(?:[{_WIDE}][\u3099-\u309c、。々ー，．！？：；）」』】]*|[^\s{_WIDE}]+)")
_PIECE = re.compile(r"\s*-*[^\s-]+-*|\s*-+")


def _wrapped(text: str, width: int, *, whole: bool = False) -> list[str]:
    """``text`` in lines. A word that is wider than ``width`` breaks behind its hyphens, unless
    words stay ``whole``; a piece that is wider keeps its line."""
    if cells_of(text) <= width:
        return [text]
    lines = [""]
    for word in _WORD.findall(text):
        keeps = whole or cells_of(word.strip()) <= width
        for piece in [word] if keeps else _PIECE.findall(word):
            if lines == [""]:
                lines = [piece.lstrip()]
            elif cells_of(lines[-1] + piece) <= width:
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
            if lines and lines[-1] and cells_of(lines[-1]) + 2 + cells_of(entry) <= room:
                lines[-1] += f"  {entry}"
            else:
                lines += _wrapped(entry, room, whole=True)
        for line in lines:
            click.echo((indent + line).rstrip())


def warn_unreadable(base: KnowledgeBase | Index) -> None:
    """Say on stderr that records were left out, if any were."""
    if base.findings:
        many = f" and {len(base.findings) - 1} more" if len(base.findings) > 1 else ""
        click.echo(f"kbtool: left out: {base.findings[0]}{many}; see `kbtool check`", err=True)
