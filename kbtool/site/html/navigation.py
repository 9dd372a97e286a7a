"""The generated pages that a mkdocs.yml neither has in its navigation nor leaves out of it.

mkdocs.yml sets the order. Pages that are newer than a mkdocs.yml are reached all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbtool.site.pages import PAGES


def missing_pages(nav: Any, left_out: Any) -> list[dict[str, str]]:
    """Entries for the navigation ``nav``, by title; none where it lists every page by itself.

    Args:
        nav: as in mkdocs.yml, or None.
        left_out: a pathspec, or its text.
    """
    from pathspec import GitIgnoreSpec

    if nav is None:
        return []
    if not isinstance(left_out, GitIgnoreSpec):
        left_out = GitIgnoreSpec.from_lines(str(left_out or "").splitlines())
    named = set(_paths(nav))
    return [
        {kind.title: kind.path}
        for kind in PAGES
        if kind.path and kind.path not in named and not left_out.match_file(kind.path)
    ]


def _paths(nav: Any) -> Iterator[str]:
    """The pages of a navigation, at any depth."""
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _paths(entry)
