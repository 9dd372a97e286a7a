"""The index of decisions about kbtool itself: one hand-written page each."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from functools import partial

from kbtool.markdown.escape import inline
from kbtool.markdown.markup import bullets, join, nothing
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.parts import page_title, patterns_of, section


def _pages(source: Source) -> Iterator[Page]:
    if at.DECISIONS not in source.documents:  # a hand-written index is kept
        yield Page(at.DECISIONS, partial(listing, source.documents))


PAGES = Pages(_pages, at.DECISIONS, "Decisions")


def listing(documents: Mapping[str, str]) -> str:
    """Every page under ``docs/adr/``, in the order of its file name."""
    folder = posixpath.dirname(at.DECISIONS)
    links = [
        at.link(inline(_title(text) or path), path, at.DECISIONS)
        for path, text in sorted(documents.items())
        if posixpath.dirname(path) == folder and path != at.DECISIONS
    ]
    body = bullets(links) if links else nothing("No decision is written down yet.")
    return join([page_title("Decisions"), "Why the project is built as it is.", body])


def with_patterns(index: Index, path: str, text: str) -> str:
    """A decision's page with the patterns that it became."""
    return join([text.rstrip(), section("Patterns", "patterns", patterns_of(index, path))]) + "\n"


def _title(text: str) -> str:
    for line in text.splitlines():
        if line.startswith("# "):
            return line[2:].strip()
    return ""
