"""Long tables, rendered in pieces: after a change of one row the rows around it are rendered again,
and not the table.

In the Markdown of a page one row stands for each piece: a mark. What is made of the page then has
the marks, and what is made of each piece takes their place at the end. A row of a table depends on
the head of the table and on no other row.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

LONG = 40
"""Rows from which on a table is rendered in pieces."""
_PIECE = 16
"""One in so many rows ends a piece. It says so itself, whatever stands before it: so a row more
does not move the ends of all that follow."""
_MOST = 24
"""The most rows of a piece: without it a row is in one of 31 on average, for long ones have most
rows."""

_TABLE = re.compile(
    r"(?:\A|(?<=\n\n))(\|[^\n]*\|\n\|(?: ?:?-+:? ?\|)+\n)((?:\|[^\n]*\|(?:\n|\Z))+)(?=\n|\Z)"
)
_DEFINITION = "]:"
"""What a definition has that gives links of the whole page their address."""
_MARK = re.compile(r"kb-rows-[0-9a-f]{64}")
_ROW = re.compile(rf"<tr>\n<td[^>]*>({_MARK.pattern})</td>\n(?:<td[^>]*></td>\n)*</tr>\n")


class Piece(NamedTuple):
    """Some rows of a table, rendered."""

    html: str
    text: str
    """What the search finds in it."""
    anchors: list[str]
    links: dict[str, dict[str, str]]
    """See ``Made``."""
    asked: dict[str, str | None]
    """See ``Made``."""
    logged: list[tuple[int, str]]
    """See ``Made``."""


def cut(markdown: str, around: str) -> tuple[str, dict[str, str]]:
    """A page with a mark for each piece, and mark → the piece as Markdown, with the table's head.

    Args:
        markdown: the page.
        around: all else that a row depends on; it becomes part of the marks.
    """
    pieces: dict[str, str] = {}

    def marked(table: re.Match[str]) -> str:
        head, rows = table.groups()
        if rows.count("\n") < LONG:
            return table[0]
        marks = []
        for part in _parts(rows.removesuffix("\n").split("\n")):
            piece = head + "\n".join(part)
            mark = "kb-rows-" + hashlib.sha256(f"{around} {piece}".encode()).hexdigest()
            pieces[mark] = piece
            marks.append(f"| {mark} |")
        return head + "\n".join(marks) + rows[len(rows.rstrip("\n")) :]

    if _DEFINITION in markdown:
        return markdown, {}
    return _TABLE.sub(marked, markdown), pieces


def _parts(rows: Sequence[str]) -> Iterator[list[str]]:
    part = []
    for row in rows:
        part.append(row)
        if len(part) == _MOST or hashlib.sha256(row.encode()).digest()[0] % _PIECE == 0:
            yield part
            part = []
    if part:
        yield part


def rows_of(content: str) -> str:
    """The rows in the HTML of a table."""
    return content.partition("<tbody>\n")[2].rpartition("</tbody>")[0]


def has_all(content: str, pieces: Mapping[str, Any]) -> bool:
    """Whether each mark became a row; one in a block of code, say, does not."""
    marks = _MARK.findall(content)
    return pieces.keys() == {*marks} and len(_ROW.findall(content)) == len(marks)


def filled(content: str, pieces: Mapping[str, Piece]) -> str:
    """HTML with the pieces in place of their marks."""
    if not pieces:
        return content
    return _ROW.sub(lambda row: pieces[row[1]].html if row[1] in pieces else row[0], content)


def filled_entries(
    entries: list[dict[str, Any]], pieces: Mapping[str, Piece]
) -> list[dict[str, Any]]:
    """Entries of the search index with the text of the pieces in place of their marks."""

    def text(mark: re.Match[str]) -> str:
        return pieces[mark[0]].text if mark[0] in pieces else mark[0]

    if not pieces:
        return entries
    return [{**entry, "text": _MARK.sub(text, entry["text"])} for entry in entries]
