"""Figures that prose takes from records (``kbtool.model.prose``), and files that it names, as links
to where they stand."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from kbtool.markdown.escape import inline, prose
from kbtool.markdown.figures import ranged
from kbtool.model.prose import FigureLink, addresses, expression, readable, replace_links
from kbtool.site import addresses as at
from kbtool.site.index import Index, page_of

_MARK = "\ue000"
"""Stands for a figure while the text around it is escaped; escaping leaves it alone."""


def place(index: Index, target: str, own: str | None) -> str | None:
    """The page, with the anchor, of the first figure that ``target`` names, if it is there.

    Args:
        index: the records.
        target: what follows ``figure:``.
        own: the record that the text belongs to, if any.
    """
    try:
        record, path = next(addresses(expression(target, own)))
    except ValueError:
        return None
    return index.place(f"{record}#{path}", record)


def line(index: Index, text: str, own: str, page: str) -> str:
    """A record's text as one line on ``page``, its figures linked."""
    marked, links = _marked(text)
    return _linked(inline(marked), links, index, own, page)


def paragraphs(index: Index, text: str, own: str, page: str) -> str:
    """A record's text as paragraphs on ``page``, its figures linked."""
    marked, links = _marked(text)
    return _linked(prose(marked), links, index, own, page)


_NAMED = re.compile(r"(?<![\w.#-])[\w-]+(?:#[\w.-]*\w)?(?![\w#-]|\.\w)")


def finding(index: Index, text: str, page: str) -> str:
    """What the audit says, as one line on ``page``: a record that it names by its id is told by its
    label and linked, with the end of the path into it."""
    links: list[str] = []

    def put(match: re.Match[str]) -> str:
        name, _, path = match[0].partition("#")
        record = index.record(name)
        if record is None:
            return match[0]
        label = inline(getattr(record, "label", name))
        if path:
            label = f"{inline('.'.join(path.split('.')[-2:]))} of {label}"
        links.append(at.link(label, index.place(match[0], name) or page_of(record), page))
        return _MARK

    parts = inline(_NAMED.sub(put, ranged(text).replace(_MARK, ""))).split(_MARK)
    return "".join(part for pair in zip(parts, [*links, ""], strict=True) for part in pair)


def in_html(index: Index, own: str | None, page: str) -> Callable[[str], str | None]:
    """What finds the figures of a text that is put into ``page`` as finished HTML."""

    def find(target: str) -> str | None:
        stands_at = place(index, target, own)
        if stands_at is None:
            return None
        return at.published(at.relative(stands_at, page))

    return find


def files_beside(index: Index, own: str, page: str) -> Callable[[str], str | None]:
    """What finds the pages of files that a text names, from where the text itself stands.

    Args:
        index: the records.
        own: the path of the text, or of another file in its folder, relative to the root.
        page: the page that the text is put into, as finished HTML.
    """

    def find(path: str) -> str | None:
        named = posixpath.normpath(posixpath.join(posixpath.dirname(own), path))
        found = index.page_of_file(named)
        return at.published(at.relative(found, page)) if found and found != page else None

    return find


def document(index: Index, markdown: str, page: str) -> str:
    """A hand-written page with its figures linked."""

    def put(link: FigureLink) -> str:
        target = place(index, link.target, None)
        return link.text if target is None else at.link(link.text, target, page)

    return replace_links(markdown, put, readable(markdown))


def _marked(text: str) -> tuple[str, list[FigureLink]]:
    links: list[FigureLink] = []

    def put(link: FigureLink) -> str:
        links.append(link)
        return _MARK

    return replace_links(text.replace(_MARK, ""), put), links


def _linked(escaped: str, links: list[FigureLink], index: Index, own: str, page: str) -> str:
    parts = escaped.split(_MARK)
    shown = [_with_runs(index, parts[0], page)]
    for link, part in zip(links, parts[1:], strict=True):
        target, text = place(index, link.target, own), inline(link.text)
        shown += [text if target is None else at.link(text, target, page)]
        shown += [_with_runs(index, part, page)]
    return "".join(shown)


_RUN = re.compile(r"\b\d{8}T\d{6}Z-[a-z0-9-]*[a-z0-9]")


def _with_runs(index: Index, escaped: str, page: str) -> str:
    """Escaped text with the ids of runs that are there as links to them."""

    def put(match: re.Match[str]) -> str:
        target = index.run_page(match[0])
        return at.link(match[0], target, page) if target else match[0]

    return _RUN.sub(put, escaped)
