"""Shrink a built page without changing what a browser shows.

The theme indents its templates; Markdown writes end tags that HTML does not need, and repeats the
alignment of a column in every cell; text of records contains character references, which were
needed only while it went through Markdown and templates. All of that is removed.
"""

from __future__ import annotations

import re

COLUMNS = 32
"""The number of columns whose alignment and width ``assets/tables.css`` can set."""

_REFERENCE = re.compile(r"&#(\d+);")
_KEPT = re.compile(r"(<(?:pre|script|style|svg|math|textarea)\b.*?</(?:pre|script|style|svg|math|"
                   r"textarea)>)", re.DOTALL)  # fmt: skip
_SPACES = re.compile(r"\s{2,}")
_CLOSING = re.compile(r"</(?:li|td|tr)>")
"""End tags that are implied by the next element or the end of the parent. ``</th>`` is kept: the
space after its words would allow a line break before the sort arrow."""
_COLOURLESS = re.compile(r'<span class="w">([ \t]*)</span>|<span></span>')
"""Elements that the highlighter puts around spaces and before the first line."""
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_CELL = re.compile(
    r'<tr>|<td(?P<right> style="text-align: right;")?(?P<more>[^>]*)>'
    r'(?:<span class="kb-long">(?P<long>.*?)</span>(?=</td>))?',
    re.DOTALL,
)


def lean(page: str) -> str:
    """``page``, a whole document as the theme made it, with less markup."""
    parts = _KEPT.split(_TABLE.sub(_columns, page))
    for at, part in enumerate(parts):
        if part.startswith(("<script", "<style")):
            continue
        part = _REFERENCE.sub(_character, part)
        is_kept = at % 2 == 1
        parts[at] = _COLOURLESS.sub(r"\1", part) if is_kept else _closed(part)
    return "".join(parts)


def _closed(text: str) -> str:
    return _CLOSING.sub("", _SPACES.sub(_space, text))


def _character(found: re.Match[str]) -> str:
    """A character for its reference, unless it has a meaning in HTML."""
    char = chr(int(found[1]))
    return char if char == "\n" or (char.isprintable() and char not in "\"&'<>") else found[0]


def _space(found: re.Match[str]) -> str:
    return "\n" if "\n" in found[0] else " "


def _columns(found: re.Match[str]) -> str:
    """A table with the numbers of its right-aligned and of its wide columns as attributes."""
    marked: dict[str, set[int]] = {"right": set(), "long": set()}
    column = 0

    def cell(part: re.Match[str]) -> str:
        nonlocal column
        column = 0 if part[0] == "<tr>" else column + 1
        if column == 0 or column > COLUMNS:
            return part[0]
        for name, columns in marked.items():
            if part[name] is not None:
                columns.add(column)
        return f"<td{part['more']}>{part['long'] or ''}"

    body = _CELL.sub(cell, found[0].removeprefix("<table>"))
    marks = "".join(
        f' data-{name}="{" ".join(map(str, sorted(columns)))}"'
        for name, columns in marked.items()
        if columns
    )
    return f"<table{marks}>{body}"
