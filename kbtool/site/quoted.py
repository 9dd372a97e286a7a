"""Figures that prose takes from records (``kbtool.model.prose``), as links to where they stand."""

from __future__ import annotations

from collections.abc import Callable

from kbtool.model.prose import FigureLink, addresses, expression, readable, replace_links
from kbtool.site import addresses as at
from kbtool.site.escape import inline, prose
from kbtool.site.index import Index

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


def in_html(index: Index, own: str | None, page: str) -> Callable[[str], str | None]:
    """What finds the figures of a text that is put into ``page`` as finished HTML."""

    def find(target: str) -> str | None:
        stands_at = place(index, target, own)
        if stands_at is None:
            return None
        return at.published(at.relative(stands_at, page))

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
    shown = [parts[0]]
    for link, part in zip(links, parts[1:], strict=True):
        target, text = place(index, link.target, own), inline(link.text)
        shown += [text if target is None else at.link(text, target, page), part]
    return "".join(shown)
