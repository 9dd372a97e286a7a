"""Long lists, cut into pages: a page with every record would grow for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from kbtool.site import addresses as at

ROWS = 50
"""Rows of one page at most."""

HEAVY_ROWS = 24
"""The same where a row holds sentences: ``divide`` would cut a page of more."""

T = TypeVar("T")


class Part(NamedTuple):
    """One page of a list."""

    listing: str
    """The list's first page."""
    number: int
    """From 1."""
    of: int
    """How many pages the list has."""

    @property
    def here(self) -> str:
        """This page."""
        return at.listing_page(self.listing, self.number)

    @property
    def suffix(self) -> str:
        """What tells its title from those of the others."""
        return f", page {self.number}" if self.number > 1 else ""

    def rows(self, every: Sequence[T]) -> Sequence[T]:
        """Those of ``every`` that this page shows: on each as many, but for one."""
        size, more = divmod(len(every), self.of)
        start = (self.number - 1) * size + min(self.number - 1, more)
        return every[start : start + size + (self.number <= more)]

    def turn(self) -> str:
        """Links to the other pages; nothing where there are none."""
        if self.of == 1:
            return ""
        near = {1, self.of, *range(self.number - 2, self.number + 3)}
        shown, last = [], 0
        for number in sorted(near & set(range(1, self.of + 1))):
            if number > last + 1:
                shown.append("…")
            target = at.listing_page(self.listing, number)
            linked = at.link(str(number), target, self.here)
            shown.append(f"**{number}**" if number == self.number else linked)
            last = number
        return f"Page {' '.join(shown)} of {self.of}; the search finds what is on any of them."


def parts(listing: str, count: int, rows: int = ROWS) -> Iterator[Part]:
    """The pages of a list of ``count`` rows, ``rows`` on each; one, where there are none."""
    of = max(1, -(-count // rows))
    for number in range(1, of + 1):
        yield Part(listing, number, of)
