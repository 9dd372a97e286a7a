"""The generated pages: one module per kind of page, listed in ``PAGES``."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial

from kbtool.site import addresses as at
from kbtool.site.html.engine import shared
from kbtool.site.index import Index
from kbtool.site.pages import (
    audit,
    bug,
    cases,
    compare,
    costs,
    decisions,
    home,
    kernel,
    pattern,
    recipe,
    reference,
    regressions,
    run,
    session,
    source,
    sweep,
    symptoms,
    tags,
    wrong,
)
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.parts import TITLE, front_matter

PAGES: tuple[Pages, ...] = (
    home.PAGES,
    wrong.PAGES,
    session.PAGES,
    pattern.PAGES,
    symptoms.PAGES,
    kernel.PAGES,
    cases.PAGES,
    source.PAGES,
    bug.PAGES,
    run.PAGES,
    sweep.PAGES,
    compare.PAGES,
    regressions.PAGES,
    costs.PAGES,
    audit.PAGES,
    recipe.PAGES,
    reference.PAGES,
    tags.PAGES,
    decisions.PAGES,
)
"""Every kind of generated page, in the order of the navigation."""


def pages(
    index: Index,
    today: date | None = None,
    documents: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The generated pages of the site: path → Markdown.

    Args:
        index: the records.
        today: the day that "this month" refers to.
        documents: the hand-written pages, for the index of decisions.
    """
    making = makers(index, today, documents)
    # Computed once here: each worker process that makes pages would compute it again.
    _ = index.audit, index.audited, index.turning, index.judged, index.terms, index.verdicts
    _ = index.measured, index.arms
    texts = shared(lambda path: making[path](), [*making])
    return dict(zip(making, texts, strict=True))


def makers(
    index: Index, today: date | None = None, documents: Mapping[str, str] | None = None
) -> dict[str, Callable[[], str]]:
    """The same, each page made when its function is called."""
    sources = Source(index, today, documents or {})
    tags = {at.session_page(s.id): index.tags_of(s) for s in index.sessions.values()}
    tags |= {at.pattern_page(p.id): index.tags_of(p) for p in index.patterns.values()}
    return {
        page.path: partial(_headed, index, page, tags.get(page.path, []))
        for kind in PAGES
        for page in kind.make(sources)
    }


_TITLE = re.compile(rf"^# (.*) \{{#{TITLE}\}}$", re.MULTILINE)


def _headed(index: Index, page: Page, own_tags: Sequence[str]) -> str:
    path, text = page.path, page.text()
    twin = posixpath.basename(at.twin(path)) if path in index.titles else None
    title = _TITLE.search(text)
    assert title is not None, f"{path} has no title"
    is_source = at.is_source_page(path)
    contents = not path.endswith("/index.md") and not is_source
    pages_of = {tag: at.published(at.relative(at.tag_page(tag), path)) for tag in own_tags}
    return front_matter(title[1], pages_of, contents, found=not is_source, twin=twin) + text
