"""Heavy pages, cut into parts, with the links to what moved (ADR 0021).

A page is cut at its headings, a long table between rows, a source where its page says so. The first
part keeps the address; the others stand beside it and are named after the place where they begin.
A link to an anchor leads to the part that has it; an address that was noted before a page was cut
is led on by ``assets/pages.js``.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kbtool.site import addresses as at
from kbtool.site.escape import attribute
from kbtool.site.markup import heading, join, slug

BUDGET = 20_800
"""Bytes of HTML that a part may have, by ``weight``: with the theme around it less than 40 kB."""

_TAIL = 1_500
"""A last part of so little goes on the page before it."""

_LIGHT = BUDGET // 4
"""Characters that are never heavy, whatever they are: most pages are not looked at closely."""


class _Piece(NamedTuple):
    """What stands together: a heading and what is under it, or a table's rows."""

    text: str
    name: str
    """The heading's words."""
    anchor: str
    """The heading's anchor; empty where a page begins."""


class _Part(NamedTuple):
    """What is one page of several."""

    page: str
    pieces: Sequence[_Piece]

    @property
    def name(self) -> str:
        """What is in it."""
        names = list(dict.fromkeys(piece.name for piece in self.pieces if piece.name))
        return " … ".join(names[:1] + names[1:][-1:]) or "Summary"


def divided(pages: Mapping[str, str]) -> dict[str, str]:
    """Every page, those that are heavy in parts; path → Markdown.

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


_CHART = re.compile(r"<svg role=.*?</svg>")
_REFERENCE = re.compile(r"&#(?!(?:34|38|39|60|62);)\d+;")
"""What ``lean`` writes as the character that it stands for."""
_HEADED = 400
"""What a heading costs, here and in the table of contents."""
_LINK, _CELL, _ITEM, _COLUMN = "](", " | ", "\n- ", "---"
_HEADINGS = re.compile(r"^#{2,6} ", re.MULTILINE)
_FENCED = re.compile(r"^```\w.*?^```", re.MULTILINE | re.DOTALL)


def weight(text: str) -> int:
    """Bytes of HTML, nearly, that Markdown becomes; charts do not count."""
    plain = _REFERENCE.sub("x", _CHART.sub("", text))
    return (
        len(plain.encode())
        + 11 * plain.count(_LINK)
        + 2 * plain.count(_CELL)
        + 4 * plain.count(_ITEM)
        + 30 * plain.count(_COLUMN)
        + _HEADED * len(_HEADINGS.findall(plain))
        + 45 * plain.count("```")
        + sum(map(len, _FENCED.findall(plain)))
    )


def mark(anchor: str, name: str) -> str:
    """Where a page that has no headings may be cut: what follows has an anchor and a name."""
    return f"<!-- part {anchor} {name} -->"


_MARK = re.compile(r"<!-- part (?P<anchor>\S+) (?P<name>.*) -->")
_FRONT = re.compile(r"---\n.*?\n---\n\s*", re.DOTALL)
_TITLE = re.compile(r"^# (?P<name>.*?)(?P<id> \{#[^}]*\})?$", re.MULTILINE)
_HEADING = re.compile(r"(?P<level>#+) (?P<name>.*?)(?: \{#(?P<id>\S+?)\})?$")
_FENCE = re.compile(r"\s*(```|~~~)")
_SPAN = re.compile(r"<span id=\"([^\"]*)\"></span>")


def _parts(path: str, text: str) -> list[_Part]:
    if len(text) < _LIGHT or weight(text) <= BUDGET:
        return [_Part(path, ())]
    queue = deque([_Piece(_FRONT.sub("", text, count=1), "", "")])
    parts: list[list[_Piece]] = [[]]
    room, left = BUDGET, weight(text)
    while queue:
        piece = queue.popleft()
        heavy = weight(piece.text)
        if heavy > room and (finer := _finer(piece, heavy, room)):
            queue.extendleft(reversed(finer))
            continue
        if heavy > room and parts[-1] and left > _TAIL:
            parts.append([])
            room = BUDGET
        parts[-1].append(piece)
        room -= heavy
        left -= heavy
    return [
        _Part(path if number == 0 else _beside(path, part[0].anchor), part)
        for number, part in enumerate(parts)
    ]


def _beside(path: str, anchor: str) -> str:
    return f"{path.removesuffix('.md')}~{at.fragment(anchor)}.md"


def _finer(piece: _Piece, heavy: int, room: int) -> list[_Piece]:
    """A piece that does not fit, in several: for being heavy, or to fill a page that has little on
    it; nothing where it goes on the next page as it is."""
    if heavy <= BUDGET and room < BUDGET // 2:
        return []
    for level in (2, 3, 4):
        pieces = list(_cut(piece, level))
        if len(pieces) > 1:
            return pieces
    return _by_rows(piece, room if room >= BUDGET // 2 else BUDGET) if heavy > BUDGET else []


def _cut(piece: _Piece, level: int) -> Iterator[_Piece]:
    """A piece before each heading of ``level`` or above, and at each mark."""
    lines: list[str] = []
    name, anchor = piece.name, piece.anchor
    fenced = False
    for line in piece.text.splitlines():
        fenced ^= bool(_FENCE.match(line))
        found = None if fenced else _HEADING.match(line)
        start = None
        if found and 2 <= len(found["level"]) <= level:
            start = _named(found)
        elif marked := _MARK.fullmatch(line):
            start = marked["name"], marked["anchor"]
        if start:
            if any(lines):
                yield _Piece("\n".join(lines), name, anchor)
            lines = []
            name, anchor = start
        if not (start and found is None):
            lines.append(line)
    yield _Piece("\n".join(lines), name, anchor)


def _named(found: re.Match[str]) -> tuple[str, str]:
    """The words of a heading and its anchor: the one it states, or the one Markdown makes of it."""
    stated = _SPAN.findall(found["name"])
    words = _SPAN.sub("", found["name"])
    return words, found["id"] or (stated[0] if stated else slug(html.unescape(words)))


_MORE = ", continued"
_ROWS = re.compile(r"(?:^\|.*\|\n?){4,}", re.MULTILINE)
_OPENING = re.compile(r"(?:^<(?:div|details|summary)\b[^\n]*\n+)+\Z", re.MULTILINE)
_SHUTTING = re.compile(r"\A(?:\s*</(?:div|details)>)+")


def _by_rows(piece: _Piece, room: int) -> list[_Piece]:
    """A piece that is heavy for its longest table, as several with some of the rows each; the first
    of them has ``room``."""
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
    if len(groups) == 1:
        return []
    texts = [f"{opening}{head}\n{rule}\n" + "\n".join(group) + f"\n{shutting}" for group in groups]
    first = piece._replace(text=f"{before}{texts[0]}")
    more = []
    for number, text in enumerate(texts[1:], 2):
        name, anchor = (
            f"{piece.name.removesuffix(_MORE) or 'List'}{_MORE}",
            f"{piece.anchor or 'list'}-{number}",
        )
        more.append(_Piece(join([heading(2, name, anchor), text]), name, anchor))
    more[-1] = more[-1]._replace(text=f"{more[-1].text}\n{after}")
    return [first, *more]


def _written(text: str, parts: Sequence[_Part]) -> dict[str, str]:
    """Each part as a page that says where the others are."""
    front = _FRONT.match(text)
    head = front[0] if front else ""
    title = _TITLE.search(text)
    assert title is not None, f"{parts[0].page} has no title"
    # What is said of a record once: its tags, and where its JSON is.
    others = re.sub(r"^(?:tags|tag_pages):\n(?:  .*\n)+|^twin: .*\n", "", head, flags=re.MULTILINE)
    made = {}
    for number, part in enumerate(parts, 1):
        body = [piece.text for piece in part.pieces]
        if number == 1:
            body.insert(1, _turn(parts, part))
        else:
            named = f"{title['name']}, part {number}"
            others_front = re.sub(
                r'^title: "(.*)"$', rf'title: "\1, part {number}"', others, flags=re.MULTILINE
            )
            body = [f"# {named}{title['id'] or ''}", _turn(parts, part), *body]
        if number < len(parts):
            after = parts[number]
            linked = at.link(after.name, after.page, part.page)
            body.append(f"Goes on with {linked}{{ .kb-next }}.")
        made[part.page] = (head if number == 1 else others_front) + join(body)
    return made


def _turn(parts: Sequence[_Part], here: _Part) -> str:
    """The parts by what is in them."""
    names = (
        f"**{part.name}**" if part is here else at.link(part.name, part.page, here.page)
        for part in parts
    )
    return f"In {len(parts)} parts: {' · '.join(names)}"


def _anchors(text: str) -> set[str]:
    found = {*re.findall(r'id="([^"]+)"', text)}
    headings = filter(None, map(_HEADING.match, text.splitlines()))
    return {*found, *(_named(line)[1] for line in headings)} - {"title"}


_IN_MARKDOWN = re.compile(r"\]\((?P<path>[^()\s#]*)#(?P<anchor>[^()\s]+)\)")
_IN_HTML = re.compile(r'href="(?P<target>[^"]*(?:#|&#35;)[^"]*)"')


def _relinked(
    text: str, page: str, own: str, cut: set[str], moved: Mapping[tuple[str, str], str]
) -> str:
    """``text`` with its links to anchors of pages that were cut.

    Args:
        text: of a page, or of a part of one.
        page: its path.
        own: the path that it had before pages were cut.
        cut: the pages that were.
        moved: page before and anchor → part that has the anchor.
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
    """The link on ``page`` to an anchor; ``None`` where that page was not cut."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(own), path)) if path else own
    if target not in cut:
        return None
    return at.relative(f"{moved.get((target, anchor), target)}#{anchor}", page)
