"""One module a kind of page; each function takes the index and returns Markdown."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial

from kbtool.site import addresses as at
from kbtool.site.engine import shared
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
    run,
    session,
    source,
    tags,
)
from kbtool.site.paging import HEAVY_ROWS, ROWS, Part, parts
from kbtool.site.parts import TITLE, front_matter


def pages(
    index: Index,
    today: date | None = None,
    documents: Mapping[str, str] | None = None,
    wanted: Callable[[str], bool] = lambda path: True,
) -> dict[str, str]:
    """The generated pages of the site: path → Markdown.

    Args:
        index: the records.
        today: the day that "this month" is reckoned from.
        documents: the hand-written pages, for the index of decisions.
        wanted: which paths to make; all, if not given.
    """
    made: dict[str, Callable[[], str]] = {
        at.HOME: partial(home.page, index, today),
        at.PATTERNS: partial(pattern.listing, index),
        at.KERNELS: partial(kernel.listing, index),
        at.COSTS: partial(costs.page, index),
        at.AUDIT: partial(audit.page, index),
        at.RECIPES: partial(recipe.listing, index),
        at.COMPARE: partial(compare.page, index),
        at.TAGS: partial(tags.listing, index),
        at.DECISIONS: partial(decisions.listing, documents or {}),
    }
    lists: list[tuple[str, int, int, Callable[[Index, Part], str]]] = [
        (at.SESSIONS, len(index.sessions), ROWS, session.listing),
        (at.BUGS, len(index.bugs), HEAVY_ROWS, bug.listing),
        (at.RUNS, len(index.runs), HEAVY_ROWS, run.listing),
    ]
    for path, count, rows, listing in lists:
        made |= {part.here: partial(listing, index, part) for part in parts(path, count, rows)}
    for tag, records in tags.tagged(index).items():
        for part in parts(at.tag_page(tag), len(records)):
            made[part.here] = partial(tags.page, index, tag, records, part)
    made |= {path: partial(str, text) for path, text in reference.pages().items()}
    for one in index.sessions.values():
        made[at.session_page(one.id)] = partial(session.page, index, one)
    for lesson in index.patterns.values():
        made[at.pattern_page(lesson.id)] = partial(pattern.page, index, lesson)
    for manifest in index.kernels.values():
        made[at.kernel_page(manifest.id)] = partial(kernel.page, index, manifest)
        made[at.cases_page(manifest.id)] = partial(cases.page, manifest)
        for files in source.texts(index, manifest).values():
            for path, text in files.items():
                made[at.source_page(manifest.id, path)] = partial(
                    source.page, index, manifest, path, text
                )
    for case in index.bugs.values():
        made[case.page] = partial(bug.page, index, case)
    for owner, procedure in index.recipes.values():
        made[at.recipe_page(procedure.name)] = partial(recipe.page, index, owner, procedure)
    for (session_id, run_id), attempts in index.runs.items():
        made[at.run_page(session_id, run_id)] = partial(run.page, index, attempts)
    own_tags = {at.session_page(s.id): s.tags for s in index.sessions.values()}
    own_tags |= {at.pattern_page(p.id): p.tags for p in index.patterns.values()}
    twins = {path: posixpath.basename(at.twin(path)) for path in index.titles}
    paths = [path for path in made if wanted(path)]
    # What every page asks of the index is worked out here, and not again in each fork.
    _ = index.audit, index.audited, index.turning, index.judged, index.terms
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
    is_list = path.endswith("/index.md") or "/page/" in path
    contents = not is_list and not is_source
    pages_of = {tag: at.published(at.relative(at.tag_page(tag), path)) for tag in own_tags}
    return front_matter(title[1], pages_of, contents, found=not is_source, twin=twin) + text
