"""The table of tags, and a page of the sessions and patterns of each tag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from kbtool.markdown.escape import inline
from kbtool.markdown.markup import anchor, join, nothing, nowrap, slim_table, table
from kbtool.model.pattern import Pattern
from kbtool.model.session import Session
from kbtool.site import addresses as at
from kbtool.site.index import Index, page_of
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.parts import page_title


def _pages(source: Source) -> Iterator[Page]:
    index = source.index
    yield Page(at.TAGS, partial(listing, index))
    for tag, records in tagged(index).items():
        yield Page(at.tag_page(tag), partial(page, index, tag, records))


PAGES = Pages(_pages, at.TAGS, "Tags")


def tagged(index: Index) -> dict[str, list[Session | Pattern]]:
    """Tag → its sessions, newest first, then its patterns."""
    found: dict[str, list[Session | Pattern]] = {}
    records: list[Session | Pattern] = [*index.newest]
    for record in [*records, *index.patterns.values()]:
        for tag in index.tags_of(record):
            found.setdefault(tag, []).append(record)
    return dict(sorted(found.items()))


def listing(index: Index) -> str:
    """Every tag, with the number of its records."""
    rows = []
    for tag, records in tagged(index).items():
        sessions = sum(isinstance(record, Session) for record in records)
        # The anchor is the one that the theme's own list of tags had.
        link = anchor(f"tag:{tag}") + at.link(inline(tag), at.tag_page(tag), at.TAGS)
        rows.append([link, str(sessions), str(len(records) - sessions)])
    shown = table(["Tag", "Sessions", "Patterns"], rows, {1, 2}) if rows else nothing(
        "No session and no pattern has a tag."
    )  # fmt: skip
    about = "What a session or a pattern is about, in a word. A tag leads to all that have it."
    return join([page_title("Tags"), about if rows else None, shown])


def page(index: Index, tag: str, records: Sequence[Session | Pattern]) -> str:
    """The records of a tag."""
    here = at.tag_page(tag)
    several = len({type(record) for record in records}) > 1
    rows = [
        [
            index.link(page_of(record), here),
            *(["session" if isinstance(record, Session) else "pattern"] if several else []),
            nowrap(record.day or "undated") if isinstance(record, Session) else "",
        ]
        for record in records
    ]
    return join(
        [
            page_title(f"Tag: {inline(tag)}"),
            f"<small>{at.link('Tags', at.TAGS, here)}</small>",
            slim_table(["What", *(["Kind"] if several else []), "Date"], rows),
        ]
    )
