"""How a module declares the pages that it makes, and its place in the navigation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

from kbtool.site.index import Index


@dataclass(frozen=True)
class Source:
    """The inputs of the pages."""

    index: Index
    today: date | None = None
    """The day that "this month" refers to."""
    documents: Mapping[str, str] = field(default_factory=dict)
    """The hand-written pages: path → Markdown."""


class Page(NamedTuple):
    """One generated page."""

    path: str
    """Its address, relative to the root of the site."""
    text: Callable[[], str]
    """Makes its Markdown, which begins with ``page_title``."""


class Pages(NamedTuple):
    """The pages of one module; ``kbtool.site.pages`` lists them all."""

    make: Callable[[Source], Iterable[Page]]
    path: str | None = None
    """The page that is in the navigation, if any."""
    title: str = ""
    """Its title there."""
