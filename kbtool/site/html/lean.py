"""A built page in fewer bytes, of which a browser makes the same.

The theme indents its templates; Markdown closes what need not be closed, and says of every cell
what is true of its column; text of records comes as character references, which guarded it on its
way through Markdown and templates. None of that is worth sending.
"""

from __future__ import annotations

import re

COLUMNS = 32
"""So many columns ``assets/tables.css`` can tell alignment and width of."""

_REFERENCE = re.compile(r"&#(\d+);")
_KEPT = re.compile(r"(<(?:pre|script|style|svg|math|textarea)\b.*?</(?:pre|script|style|svg|math|"
                   r"textarea)>)", re.DOTALL)  # fmt: skip
_SPACES = re.compile(r"\s{2,}")
_CLOSING = re.compile(r"</(?:li|td|tr)>")
"""What the next such element, or the end of the one around it, closes as well. Not the heads of
columns: the space after their words would let a line break before the arrow of sorting."""
_COLOURLESS = re.compile(r'<span class="w">([ \t]*)</span>|<span></span>')
"""Elements that code has around spaces and before its first line."""
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
    """A table that says itself which of its columns are of figures and which have sentences."""
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
