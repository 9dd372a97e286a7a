"""The index of decisions about kbtool itself: one hand-written page each."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import partial

from kbtool.markdown.escape import code, inline
from kbtool.markdown.markup import chip, join, nothing, nowrap, stacked_table
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.parts import page_title, patterns_of, section


def _pages(source: Source) -> Iterator[Page]:
    if at.DECISIONS not in source.documents:  # a hand-written index is kept
        yield Page(at.DECISIONS, partial(listing, source.documents))


_STATUS = re.compile(r"^\*\*Status:\*\* *(.+(?:\n.+)*)", re.MULTILINE)

PAGES = Pages(_pages, at.DECISIONS, "Decisions")


def listing(documents: Mapping[str, str]) -> str:
    """Every page under ``docs/adr/``, in the order of its file name, with its line ``**Status:**``:
    the status, the day, and after a semicolon what it has to do with others."""
    folder = posixpath.dirname(at.DECISIONS)
    rows = [
        [at.link(_coded(_title(text) or path), path, at.DECISIONS), *_status(text)]
        for path, text in sorted(documents.items())
        if posixpath.dirname(path) == folder and path != at.DECISIONS
    ]
    header = ["Decision", "Status", "Decided", "Remark"]
    body = stacked_table(header, rows) if rows else nothing("No decision is written down yet.")
    return join([page_title("Decisions"), "Why the project is built as it is.", body])


def _status(text: str) -> list[str]:
    found = _STATUS.search(text)
    if found is None:
        return ["", "", ""]
    said, _, since = " ".join(found[1].split()).replace("|", r"\|").partition("; ")
    status, day, more = (*said.split(", ", 2), "", "")[:3]
    first, _, later = day.rstrip(".").partition(" ")
    rest = "; ".join(filter(None, [later, more, since]))
    status = "replaced" if since.startswith("replaced") else status
    return [chip(status), nowrap(inline(first)) if first else "", rest]


def with_patterns(index: Index, path: str, text: str) -> str:
    """A decision's page with the patterns that it became."""
    return join([text.rstrip(), section("Patterns", "patterns", patterns_of(index, path))]) + "\n"


def _coded(title: str) -> str:
    """A title with what stands between backticks as code."""
    parts = re.split(r"`([^`]+)`", title)
    return "".join(code(part) if place % 2 else inline(part) for place, part in enumerate(parts))


def _title(text: str) -> str:
    for line in text.splitlines():
        if line.startswith("# "):
            return line[2:].strip()
    return ""
