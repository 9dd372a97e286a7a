"""The few shapes that pages are made of. What goes in is Markdown already: escape text first."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from kbtool.markdown.escape import attribute, inline
from kbtool.markdown.figures import noise_reason
from kbtool.model.kinds.base import ResultBase
from kbtool.model.prose import plain

GOOD = frozenset(
    {
        "passed",
        "pass",
        "found",
        "caught",
        "honest",
        "complete",
        "done",
        "fixed",
        "proved",
        "applied",
        "operational",
        "confirmed",
        "consistent",
        "kept",
        "gains",
    }
)
BAD = frozenset(
    {
        "failed",
        "fail",
        "survived",
        "accused",
        "open",
        "fix unconfirmed",
        "contradicted",
        "crashed",
        "timeout",
        "lost",
        "refused",
        "terminated",
        "not reproduced",
        "inconsistent",
        "decision",
        "exceeded",
        "costs",
    }
)


_LONG = 45
_UNSEEN = re.compile(r"<title>[^<]*</title>|<[^<>]*>|\]\([^])]*\)|(?<=&)#\d+;")
# Each alternative stops at what begins it: text of nothing but beginnings takes linear time.

_EMPHATIC = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def join(parts: Iterable[str | None]) -> str:
    """Blocks of a page, each apart from the next; absent ones left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part and part.strip()) + "\n"


def heading(level: int, text: str, name: str) -> str:
    """A heading with a stable anchor."""
    if _EMPHATIC.search(name):
        # Markdown would read the underscores before it reads the attribute list.
        return f"{'#' * level} {anchor(name)}{text or '–'}"
    return f"{'#' * level} {text or '–'} {{#{name}}}"


def slug(words: str) -> str:
    """The anchor that Markdown makes of a heading that states none."""
    ascii_only = unicodedata.normalize("NFKD", words).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = ()) -> str:
    """A table; columns whose index is in ``numeric`` are aligned right."""
    right = set(numeric)
    rule = ["---:" if i in right else "---" for i in range(len(header))]
    body = ([_roomy(cell) for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *body))


def _roomy(cell: str) -> str:
    """A sentence gets a width at which it can be read; the table scrolls, not each line."""
    shown = len(_UNSEEN.sub("", cell))
    is_long = shown > _LONG and "<details>" not in cell  # a fold has its own width
    return f'<span class="kb-long">{cell}</span>' if is_long else cell


def slim_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Iterable[int] = ()
) -> str:
    """Like ``table``, without the columns in which no row has anything."""
    kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
    right = set(numeric)
    return table(
        [header[i] for i in kept],
        [[row[i] or "–" for i in kept] for row in rows],
        [at for at, i in enumerate(kept) if i in right],
    )


def stacked_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: Iterable[int] = (),
) -> str:
    """Like ``slim_table``, for words rather than figures: on a narrow screen each row is a block.

    What labels the cells then is ``assets/pages.js``; without scripts the table scrolls.

    Args:
        header: the names of the columns.
        rows: the cells.
        numeric: the columns that are aligned right.
    """
    shown = slim_table(header, rows, numeric)
    return f'<div class="kb-stack" markdown="block">\n\n{shown}\n\n</div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """A card of labelled values; empty values left out."""
    cells = [f"<small>{label} </small><br>{value}" for label, value in pairs if value]
    if not cells:
        return ""
    return '<div class="kb-facts" markdown="block">\n\n' + "\n\n".join(cells) + "\n\n</div>"


def cards(items: Iterable[str]) -> str:
    """Cards side by side."""
    listed = "\n\n".join(f"-   {item}" for item in items)
    return f'<div class="grid cards" markdown="block">\n\n{listed}\n\n</div>'


def bullets(items: Iterable[str]) -> str:
    """A list of single lines."""
    return "\n".join(f"- {item}" for item in items)


def chip(word: str) -> str:
    """A status word; green, red or neither, and readable without the colour."""
    tone = "good" if word in GOOD else "bad" if word in BAD else "plain"
    return f'<span class="kb-chip kb-chip--{tone}">{inline(word)}</span>'


def anchor(name: str) -> str:
    """A place to link to, inside a cell or a paragraph; ``name`` is made of letters, digits, ._-"""
    return f'<span id="{name}"></span>'


def admonition(kind: str, title: str, body: str) -> str:
    """A box. The title stands in quotes, where a character reference shows as itself."""
    indented = "\n".join(f"    {line}" if line else "" for line in body.split("\n"))
    return f'!!! {kind} "{title}"\n\n{indented}'


_WEB = re.compile(r"https?://[\w.-]+(/[\w./#?=&%+~,:@-]*)?", re.ASCII)


def outward(url: str) -> str:
    """A link to a page of the web that a record names; anything but a plain address is text."""
    shown = f"<code>{inline(url)}</code>"
    if not _WEB.fullmatch(url):
        return shown
    return f'<a href="{attribute(url)}" rel="noopener noreferrer">{shown}</a>'


def nothing(why: str) -> str:
    """What stands where there is nothing to show."""
    return f"*{why}*"


def nowrap(text: str) -> str:
    """A date, a number: not to be broken across lines."""
    return f'<span class="kb-nowrap">{text}</span>'


def narrow(name: str) -> str:
    """The name of an implementation as the head of a column: it may break after an underscore."""
    return "&#95;<wbr>".join(map(inline, name.split("_")))


def muted(text: str) -> str:
    """A remark in small type."""
    return f"<small>{text}</small>" if text else ""


def optional(value: object) -> str:
    """A value or nothing."""
    return "" if value is None else inline(value)


def yes_no(value: bool | None, unknown: str = "") -> str:
    """A boolean in words."""
    return unknown if value is None else "yes" if value else "no"


def clipped(text: str, longest: int = 240) -> str:
    """So much of ``text`` as goes into a cell, cut between words."""
    words = " ".join(plain(text).split())
    return words if len(words) <= longest else words[:longest].rsplit(" ", 1)[0] + " …"


def folded(summary: str, body: str) -> str:
    """Something that few need, folded up."""
    return (
        f'<details class="kb-figures" markdown="block">\n<summary>{summary}</summary>\n\n{body}\n\n'
        "</details>"
    )


def no_ratio(result: ResultBase) -> str:
    """What stands where a ratio would: empty, of a noisy run a dash that says so."""
    return f"– {muted('noisy')}" if noise_reason(result) else ""
