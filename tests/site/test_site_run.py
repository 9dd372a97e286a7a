"""The page of a run and the links to it."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest
import site_trees as trees
from test_site_home import index_of, put_run, template

from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import run

ID = "20251121T101010Z-copy"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return trees.make(tmp_path / "kb")


def newest(index: Index) -> str:
    return unescape(run.page(index, next(iter(index.runs.values()))))


def test_the_title_says_what_ran_where_and_when(root: Path) -> None:
    title, crumb, *_ = newest(index_of(root)).split("\n\n")
    assert title == "# words about recipe (words about cpu, 2025-11-21 10:10 UTC) {#title}"
    assert f"› <code>{ID}</code> ·" in crumb
    put_run(root, 1, machine={**template(root)["machine"], "card": "H200"})
    assert newest(index_of(root)).startswith("# words about recipe (H200, 2025-11-23 10:10 UTC) {")


def test_the_title_has_the_name_of_a_recipe_that_is_gone(root: Path) -> None:
    index = index_of(root)
    (made,) = index.runs_of()
    gone = made.model_copy(update={"recipe": "gone"})
    assert index.run_title(gone) == "gone (words about cpu, 2025-11-21 10:10 UTC)"


def test_a_link_to_a_run_shows_its_start_and_has_its_id_as_title(root: Path) -> None:
    index = index_of(root)
    (made,) = index.runs_of()
    link = f'[2025-11-21 10:10 UTC](../runs/{made.session}/{ID}.md "{ID}")'
    assert index.run_link(made, at.RECIPES) == f'<span class="kb-nowrap">{link}</span>'
