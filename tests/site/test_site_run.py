"""The page of a run: what ran, where and when, then what came out; the rest is folded below."""

from __future__ import annotations

import copy
import re
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


def anchors(page: str) -> list[str]:
    return re.findall(r"^## .*\{#([a-z0-9-]+)\}$", page, re.MULTILINE)


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


def test_the_result_comes_first_and_what_prepared_it_last(root: Path) -> None:
    found = anchors(newest(index_of(root)))
    assert found == [
        "step-6", "step-5", "step-4", "step-3", "steps", "again", "step-1", "step-2", "machine",
        "identity", "attempts", "mentioned-by",
    ]  # fmt: skip


def test_what_failed_comes_first(root: Path) -> None:
    steps = copy.deepcopy(template(root)["steps"])[:2]
    steps[1] |= {"status": "failed", "error": "no such file", "result": None}
    put_run(root, 1, steps=steps, status="failed", identity=None)
    page = newest(index_of(root))
    assert anchors(page)[:3] == ["step-2", "steps", "again"]
    assert "no such file" in page and "no such file" not in page.partition("<details")[2]


@pytest.mark.parametrize("step", ["step-1", "step-2", "machine", "identity"])
def test_what_prepared_it_is_folded(root: Path, step: str) -> None:
    part = newest(index_of(root)).split(f"{{#{step}}}")[1].split("\n## ")[0]
    assert part.count('<details class="kb-figures"') == 1
    assert "|" not in part.partition("<details")[0]


def test_warnings_stand_between_the_status_and_the_rest(root: Path) -> None:
    put_run(root, 1)
    head = newest(index_of(root)).partition('<div class="kb-facts"')[0].split("\n\n")
    assert head[2].startswith('<span class="kb-chip kb-chip--good">passed</span> ')
    assert head[3:5] == [
        '!!! warning "Changed"',
        "    The code changed while the run was under way.",
    ]
    calm = {**template(root)["repository"], "changed_during_run": False}
    put_run(root, 2, repository=calm)
    assert "!!! warning" not in newest(index_of(root))


def test_a_flag_is_a_word_of_its_own_and_stands_once(root: Path) -> None:
    steps = copy.deepcopy(template(root)["steps"])
    steps[1]["result"]["flags"] = ["-O3", "-DA_B", "-O3"]
    put_run(root, 1, steps=steps)
    flags = '<span class="kb-flags"><code>-O3</code> <code>-DA_B</code></span>'
    assert f"Flags: {flags}" in newest(index_of(root))
