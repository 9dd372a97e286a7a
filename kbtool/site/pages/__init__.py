"""One module a kind of page; each function takes the index and returns Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date

from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import (
    audit,
    bug,
    costs,
    decisions,
    home,
    kernel,
    pattern,
    recipe,
    run,
    session,
)
from kbtool.site.parts import TITLE, front_matter


def pages(
    index: Index, today: date | None = None, documents: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Every generated page of the site: path → Markdown.

    Args:
        index: the records.
        today: the day that "this month" is reckoned from.
        documents: the hand-written pages, for the index of decisions.
    """
    made = {
        at.HOME: home.page(index, today),
        at.SESSIONS: session.listing(index),
        at.PATTERNS: pattern.listing(index),
        at.KERNELS: kernel.listing(index),
        at.BUGS: bug.listing(index),
        at.COSTS: costs.page(index),
        at.AUDIT: audit.page(index),
        at.RECIPES: recipe.listing(index),
        at.RUNS: run.listing(index),
        at.TAGS: home.tags(),
        at.DECISIONS: decisions.listing(documents or {}),
    }
    for one in index.sessions.values():
        made[at.session_page(one.id)] = session.page(index, one)
    for lesson in index.patterns.values():
        made[at.pattern_page(lesson.id)] = pattern.page(index, lesson)
    for manifest in index.kernels.values():
        made[at.kernel_page(manifest.id)] = kernel.page(index, manifest)
    for case in index.bugs.values():
        made[case.page] = bug.page(index, case)
    for owner, procedure in index.recipes.values():
        made[at.recipe_page(procedure.name)] = recipe.page(index, owner, procedure)
    for (session_id, run_id), attempts in index.runs.items():
        made[at.run_page(session_id, run_id)] = run.page(index, attempts)
    tags = {at.session_page(s.id): s.tags for s in index.sessions.values()}
    tags |= {at.pattern_page(p.id): p.tags for p in index.patterns.values()}
    return {path: _headed(path, text, tags.get(path, [])) for path, text in made.items()}


_TITLE = re.compile(rf"^# (.*) \{{#{TITLE}\}}$", re.MULTILINE)


def _headed(path: str, text: str, tags: Sequence[str]) -> str:
    title = _TITLE.search(text)
    assert title is not None, f"{path} has no title"
    return front_matter(title[1], tags, contents=not path.endswith("/index.md")) + text
