"""The generated pages: one module per kind of page, listed in ``PAGES``."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date

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
from kbtool.site.pages.base import Pages, Source
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
    wanted: Callable[[str], bool] = lambda path: True,
) -> dict[str, str]:
    """The generated pages of the site: path → Markdown.

    Args:
        index: the records.
        today: the day that "this month" refers to.
        documents: the hand-written pages, for the index of decisions.
        wanted: the paths to make. Default: all.
    """
    sources = Source(index, today, documents or {})
    made = {page.path: page.text for kind in PAGES for page in kind.make(sources)}
    own_tags = {at.session_page(s.id): s.tags for s in index.sessions.values()}
    own_tags |= {at.pattern_page(p.id): p.tags for p in index.patterns.values()}
    twins = {path: posixpath.basename(at.twin(path)) for path in index.titles}
    paths = [path for path in made if wanted(path)]
    # Computed once here: each worker process that makes pages would compute it again.
    _ = index.audit, index.audited, index.turning, index.judged, index.terms, index.verdicts
    _ = index.measured, index.arms
    texts = shared(lambda path: made[path](), paths)
    return {
        path: _headed(path, text, own_tags.get(path, []), twins.get(path))
        for path, text in zip(paths, texts, strict=True)
    }


_TITLE = re.compile(rf"^# (.*) \{{#{TITLE}\}}$", re.MULTILINE)


def _headed(path: str, text: str, own_tags: Sequence[str], twin: str | None) -> str:
    title = _TITLE.search(text)
    assert title is not None, f"{path} has no title"
    is_source = at.is_source_page(path)
    contents = not path.endswith("/index.md") and not is_source
    pages_of = {tag: at.published(at.relative(at.tag_page(tag), path)) for tag in own_tags}
    return front_matter(title[1], pages_of, contents, found=not is_source, twin=twin) + text
