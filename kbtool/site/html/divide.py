"""Split large pages into parts, and update the links to moved anchors (ADR 0021).

A page is split at its headings, a long table between rows, a source file at the marks of its page.
The first part keeps the address; the others are in the same folder, named after the heading with
which they begin. Links to anchors lead to the part that has the anchor; ``assets/pages.js``
redirects addresses from before a page was split.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, groupby
from typing import NamedTuple

from kbtool.markdown.escape import attribute, inline
from kbtool.markdown.markup import bullets, clipped, heading, join, slug
from kbtool.site import addresses as at

BUDGET = 23_500
"""The most bytes of HTML of a part, by ``weight``. With the theme and the list of parts that is
less than 44 kB."""

_TAIL = 1_500
"""A last part that is smaller is added to the part before it."""

_LIGHT = BUDGET // 4
"""Pages with fewer characters are never split, so their weight is not computed."""

_LONGEST = 100
"""The most characters of a heading in the title of a part and in a list of parts."""

_LISTED = 2_500
"""A list of parts that would be larger names only the parts."""


class _Heading(NamedTuple):
    level: int
    name: str
    anchor: str


class _Piece(NamedTuple):
    """Text that is not split further: a heading with the text under it, or rows of a table."""

    text: str
    under: tuple[_Heading, ...] = ()
    """The headings above it, its own last; none at the start of a page."""
    goes_on: bool = False
    """Whether it continues a table that began in an earlier piece."""


class _Part(NamedTuple):
    """One of the pages that a page was split into."""

    page: str
    name: str
    """The heading with which it begins; for the first part, the page's title."""
    pieces: Sequence[_Piece]


def divided(pages: Mapping[str, str]) -> dict[str, str]:
    """All pages, with large ones split into parts; path → Markdown.

    Args:
        pages: path → Markdown, with or without front matter.
    """
    made: dict[str, str] = {}
    origin: dict[str, str] = {}
    for path, text in pages.items():
        parts = _parts(path, text)
        made |= _written(text, parts) if len(parts) > 1 else {path: text}
        origin |= {part.page: path for part in parts[1:]}
    if not origin:
        return made
    moved = {
        (origin[page], anchor): page for page in origin for anchor in _anchors(made[page])
    }  # fmt: skip
    cut = {*origin.values()}
    return {
        page: _relinked(text, page, origin.get(page, page), cut, moved)
        for page, text in made.items()
    }


_CHART = re.compile(r'(<(?:div|span) class="kb-(?:chart|spark|bars)\b[^>]*>)<svg.*?</svg>')
_REFERENCE = re.compile(r"&#(?!(?:34|38|39|60|62);)\d+;")
"""Character references that ``lean`` replaces by the character."""
_HEADED = 400
"""The bytes of a heading, on the page and in the table of contents."""
_LINK, _CELL, _ITEM, _COLUMN = "](", " | ", "\n- ", "---"
_HEADINGS = re.compile(r"^#{2,6} ", re.MULTILINE)
_FENCED = re.compile(r"^```(\w+).*?^```", re.MULTILINE | re.DOTALL)
_COLOURED = {"cpp": 5, "python": 5, "yaml": 5}
"""Language → bytes of tags per byte of code; other languages have about 1."""


def weight(text: str) -> int:
    """The approximate bytes of HTML of a Markdown text, without charts."""
    plain = _REFERENCE.sub("x", _CHART.sub(r"\1", text))
    return (
        len(plain.encode())
        + 11 * plain.count(_LINK)
        + 2 * plain.count(_CELL)
        + 4 * plain.count(_ITEM)
        + 30 * plain.count(_COLUMN)
        + _HEADED * len(_HEADINGS.findall(plain))
        + 45 * plain.count("```")
        + sum(len(code[0]) * _COLOURED.get(code[1], 1) for code in _FENCED.finditer(plain))
    )


def mark(anchor: str, name: str) -> str:
    """A mark at which a page without headings may be split; the text after it gets this name."""
    return f"<!-- part {anchor} {name} -->"


_MARK = re.compile(r"<!-- part (?P<anchor>\S+) (?P<name>.*) -->")
_FRONT = re.compile(r"---\n.*?\n---\n\s*", re.DOTALL)
_TITLE = re.compile(r"^# (?P<name>.*?)(?P<id> \{#[^}]*\})?$", re.MULTILINE)
_HEADING = re.compile(r"(?P<level>#+) (?P<name>.*?)(?: \{#(?P<id>\S+?)\})?$")
_FENCE = re.compile(r"\s*(```|~~~)")
_SPAN = re.compile(r"<span id=\"([^\"]*)\"></span>")
_ELEMENT = re.compile(r"<[^>]*>")
_LINKED = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def _parts(path: str, text: str) -> list[_Part]:
    if len(text) < _LIGHT or weight(text) <= BUDGET:
        return [_Part(path, "", ())]
    queue = deque([_Piece(_FRONT.sub("", text, count=1))])
    parts: list[list[_Piece]] = [[]]
    room = BUDGET
    times: Counter[tuple[_Heading, ...]] = Counter()
    while queue:
        piece = queue.popleft()
        heavy = weight(piece.text) + _HEADED * piece.goes_on
        if heavy > room and (finer := _finer(piece, heavy, room)):
            queue.extendleft(reversed(finer))
            continue
        if heavy > room and parts[-1] and _outweigh(queue, _TAIL - heavy):
            parts.append([])
            room = BUDGET
        room -= heavy
        if piece.goes_on:
            times[piece.under] += 1
            piece = _continued(piece, times[piece.under])
        parts[-1].append(piece)
    names = Counter(_named(found).name for _, found in _lines(text) if found)
    first, *others = parts
    return [
        _Part(path, _title(text)["name"], first),
        *(
            _Part(_beside(path, part[0].under[-1].anchor), _part_name(part[0].under, names), part)
            for part in others
        ),
    ]


def _outweigh(pieces: Iterable[_Piece], limit: int) -> bool:
    """Whether the pieces weigh more than ``limit``; most of a long page is not looked at."""
    return any(total > limit for total in accumulate((weight(p.text) for p in pieces), initial=0))


def _title(text: str) -> re.Match[str]:
    found = _TITLE.search(text)
    assert found is not None, "a page has no title"
    return found


def _part_name(under: Sequence[_Heading], names: Mapping[str, int]) -> str:
    """The last of these headings, with the one above it if its name is not unique on the page."""
    own = under[-1]
    above = [one.name for one in under if one.level < own.level][-1:]
    alike = any(names[one.name] > 1 for one in under if one.level == own.level)
    return " › ".join([*(above if alike else []), own.name])


def _beside(path: str, anchor: str) -> str:
    return f"{path.removesuffix('.md')}~{at.fragment(anchor)}.md"


def _finer(piece: _Piece, heavy: int, room: int) -> list[_Piece]:
    """The pieces of a piece that does not fit, because it is too large or to fill a page with much
    room; empty if it goes on the next page unsplit."""
    if heavy <= BUDGET and room < BUDGET // 2:
        return []
    for level in (2, 3, 4):
        pieces = list(_cut(piece, level))
        if len(pieces) > 1:
            return pieces
    return _by_rows(piece, room if room >= BUDGET // 2 else BUDGET) if heavy > BUDGET else []


def _cut(piece: _Piece, level: int) -> Iterator[_Piece]:
    """``piece``, split before each heading of ``level`` or above and at each mark."""
    lines: list[str] = []
    under = piece.under
    for line, found in _lines(piece.text):
        start = None
        if found and 2 <= len(found["level"]) <= level:
            start = _named(found)
        elif marked := _MARK.fullmatch(line):
            start = _Heading(2, marked["name"], marked["anchor"])
        if start:
            if any(lines):
                yield piece._replace(text="\n".join(lines), under=under)
            lines = []
            under = (*(above for above in under if above.level < start.level), start)
        if found or not start:
            lines.append(line)
    yield piece._replace(text="\n".join(lines), under=under)


def _lines(text: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Each line, with its match if it is a heading; lines of code blocks are none."""
    fenced = False
    for line in text.splitlines():
        fenced ^= bool(_FENCE.match(line))
        yield line, None if fenced else _HEADING.match(line)


def _named(found: re.Match[str]) -> _Heading:
    """A heading without links, shortened to a title; its anchor is the one that it states, or the
    one that Markdown generates."""
    stated = _SPAN.findall(found["name"])
    name = _LINKED.sub(r"\1", _SPAN.sub("", found["name"]))
    anchor = found["id"] or (stated[0] if stated else slug(html.unescape(name)))
    words = _words(name)
    if len(words) > _LONGEST:
        name = inline(clipped(words, _LONGEST))
    return _Heading(len(found["level"]), name, anchor)


def _words(name: str) -> str:
    return html.unescape(_ELEMENT.sub("", name))


_ROWS = re.compile(r"(?:^\|.*\|\n?){4,}", re.MULTILINE)
_OPENING = re.compile(
    r"(?:^(?:<(?:div|details)\b[^>\n]*>|<summary>[^\n]*</summary>)\n+)+\Z", re.MULTILINE
)
"""Alone on their lines: a chart is a ``div`` as well, and belongs to no table."""
_SHUTTING = re.compile(r"\A(?:\s*</(?:div|details)>)+")


def _by_rows(piece: _Piece, room: int) -> list[_Piece]:
    """A piece that is too large because of its longest table, split between rows; the first part
    has ``room``."""
    tables = list(_ROWS.finditer(piece.text))
    if not tables:
        return []
    longest = max(tables, key=lambda found: len(found[0]))
    before, after = piece.text[: longest.start()], piece.text[longest.end() :]
    around = _OPENING.search(before)
    opening, shutting = around[0] if around else "", ""
    if shut := _SHUTTING.match(after):
        shutting, after = shut[0], after[shut.end() :]
    head, rule, *rows = longest[0].splitlines()
    before = before.removesuffix(opening)
    frame = weight(f"{opening}{head}\n{rule}\n{shutting}")
    groups: list[list[str]] = [[]]
    room -= weight(before) + frame
    for row in rows:
        room -= weight(f"{row}\n")
        if room < 0 and groups[-1]:
            groups.append([])
            room = BUDGET - frame - 2 * _HEADED - weight(f"{row}\n")
        groups[-1].append(row)
    texts = [f"{opening}{head}\n{rule}\n" + "\n".join(group) + f"\n{shutting}" for group in groups]
    if weight(after) > max(room, _TAIL):
        texts.append(after)
    else:
        texts[-1] += f"\n{after}"
    first, *more = texts
    if not more:
        return []
    return [
        piece._replace(text=f"{before}{first}"),
        *(piece._replace(text=text, goes_on=True) for text in more),
    ]


def _continued(piece: _Piece, time: int) -> _Piece:
    """The ``time``-th continuation of a table, under a heading of its own."""
    own = piece.under[-1] if piece.under else _Heading(2, "List", "list")
    again = f" ({time})" if time > 1 else ""
    more = _Heading(own.level, f"{own.name}, continued{again}", f"{own.anchor}-{time + 1}")
    return piece._replace(text=join([heading(*more), piece.text]), under=(*piece.under, more))


def _written(text: str, parts: Sequence[_Part]) -> dict[str, str]:
    """Each part as a page with links to the other parts."""
    front = _FRONT.match(text)
    head = front[0] if front else ""
    # The front matter that only the first part keeps: the tags, and the address of the JSON.
    others = re.sub(r"^(?:tags|tag_pages):\n(?:  .*\n)+|^twin: .*\n", "", head, flags=re.MULTILINE)
    title = _title(text)
    made = {}
    for part, after in zip(parts, [*parts[1:], None], strict=True):
        body = [piece.text for piece in part.pieces]
        listed = _listed(parts, part)
        if part is parts[0]:
            body.insert(1, listed)
        else:
            body = [f"# {title['name']}: {part.name}{title['id'] or ''}", listed, *body]
            named = inline(_words(part.name))
            head = re.sub(r'^title: "(.*)"$', rf'title: "\1: {named}"', others, flags=re.MULTILINE)
        if after:
            linked = at.link(after.name, after.page, part.page)
            body.append(f"Goes on with {linked}{{ .kb-next }}.")
        made[part.page] = head + _levelled(join(body))
    return made


def _levelled(text: str) -> str:
    """Heading levels without gaps: a heading's parent may be on another part."""
    above: list[int] = []
    lines = []
    for line, found in _lines(text):
        if found:
            level = len(found["level"])
            above = [*(one for one in above if one < level), level]
            line = "#" * len(above) + line[level:]
        lines.append(line)
    return "\n".join(lines) + "\n"


def _listed(parts: Sequence[_Part], here: _Part) -> str:
    """The list of parts: every heading at which the page was split, or only those of the second
    level and those with which parts begin."""
    pieces = [(part, piece) for part in parts for piece in part.pieces if piece.under]
    listed = _lines_of(pieces, here)
    if weight(listed) > _LISTED:
        listed = _lines_of(
            [
                (part, piece)
                for part, piece in pieces
                if len(piece.under) == 1 or piece is part.pieces[0]
            ],
            here,
        )
    place = f"Part {parts.index(here) + 1} of {len(parts)}"
    if here is not parts[0]:
        place += f" of {at.link(parts[0].name, parts[0].page, here.page)}"
    return join(
        [
            '<nav aria-label="Parts of this page" data-search-exclude markdown="block">',
            f"{place}:",
            listed,
            "</nav>",
        ]
    )


def _lines_of(pieces: Iterable[tuple[_Part, _Piece]], here: _Part) -> str:
    """The lines of the list: headings on the same part share a line, one with parts has its own."""
    lines: list[str] = []
    side_by_side: _Part | None = None
    for _, group in groupby(pieces, lambda one: one[1].under[0]):
        (part, top), *inner = group
        entry = _entry(part, top, here)
        if inner:
            entry += f": {' · '.join(_entry(part, piece, here) for part, piece in inner)}"
        elif part is side_by_side:
            entry = f"{lines.pop()} · {entry}"
        lines.append(entry)
        side_by_side = None if inner else part
    return bullets(lines)


def _entry(part: _Part, piece: _Piece, here: _Part) -> str:
    """A link to a piece; bold if it is on this part."""
    *above, own = piece.under
    # A continuation comes after the piece that it continues, so it needs no name.
    name = own.name.removeprefix(f"{above[-1].name}, ") if above else own.name
    linked = at.link(name, f"{part.page}#{own.anchor}", here.page)
    return f"**{linked}**" if part is here else linked


def _anchors(text: str) -> set[str]:
    stated = {*re.findall(r'id="([^"]+)"', text)}
    return {*stated, *(_named(found).anchor for _, found in _lines(text) if found)} - {"title"}


_IN_MARKDOWN = re.compile(r"\]\((?P<path>[^()\s#]*)#(?P<anchor>[^()\s]+)\)")
_IN_HTML = re.compile(r'href="(?P<target>[^"]*(?:#|&#35;)[^"]*)"')


def _relinked(
    text: str, page: str, own: str, cut: set[str], moved: Mapping[tuple[str, str], str]
) -> str:
    """``text`` with its links to anchors of split pages updated.

    Args:
        text: the text of a page, or of a part of one.
        page: its path.
        own: the path that it had before pages were split.
        cut: the pages that were split.
        moved: (page before, anchor) → part that has the anchor.
    """
    find = partial(_found, page=page, own=own, cut=cut, moved=moved)

    def in_markdown(link: re.Match[str]) -> str:
        target = find(link["path"], link["anchor"])
        return f"]({target})" if target else link[0]

    def in_html(link: re.Match[str]) -> str:
        path, _, anchor = html.unescape(link["target"]).partition("#")
        target = find(re.sub(r"\.html$", ".md", path), anchor)
        return f'href="{attribute(at.published(target))}"' if target else link[0]

    return _IN_HTML.sub(in_html, _IN_MARKDOWN.sub(in_markdown, text))


def _found(
    path: str,
    anchor: str,
    *,
    page: str,
    own: str,
    cut: set[str],
    moved: Mapping[tuple[str, str], str],
) -> str | None:
    """The link on ``page`` to an anchor; ``None`` if that page was not split."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(own), path)) if path else own
    if target not in cut:
        return None
    return at.relative(f"{moved.get((target, anchor), target)}#{anchor}", page)
