"""Figures in prose become links to their place in a record."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest
import site_trees as trees
from markdown import markdown
from markdown.extensions.toc import slugify  # type: ignore[import-untyped]
from site_html import fragment
from site_trees import session_id

from kbtool.markdown.escape import inline
from kbtool.markdown.markup import slug
from kbtool.site import addresses as at
from kbtool.site.html.tree import source_files
from kbtool.site.index import Index
from kbtool.site.pages import pages
from kbtool.site.text.quoted import document, finding, line, paragraphs, place
from kbtool.store.tree import KnowledgeBase


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(KnowledgeBase(trees.make(tmp_path)))


@pytest.fixture
def run(index: Index) -> tuple[str, str, int]:
    """Session and id of a run, and the number of a step of it that found something."""
    (session, run), attempts = next(iter(index.runs.items()))
    found = [number for number, step in enumerate(attempts[-1].steps, 1) if step.result]
    return session, run, found[-1]


def test_a_figure_leads_to_the_step_of_its_run(index, run):
    session, name, number = run
    step = index.runs[session, name][-1].steps[number - 1]
    page = at.run_page(session, name)
    assert place(index, f"{name}#steps.{step.id}.seconds", None) == f"{page}#step-{number}"
    assert place(index, f"ratio({name}#steps.{step.id}.a,#b)", None) == f"{page}#step-{number}"
    assert place(index, f"{name}#machine.cores", None) == page


def test_a_figure_leads_to_the_place_in_a_session(index):
    first = session_id(0)
    page = at.session_page(first)
    assert place(index, f"{first}#evidence.P01.saved", None) == f"{page}#evidence.P01"
    assert place(index, "#evidence.P01.saved", first) == f"{page}#evidence.P01"


@pytest.mark.parametrize("target", ["20250101T090000Z-gone#a", "2025-01-01-gone#a", "#a", "a"])
def test_a_figure_link_without_target_becomes_text(index, target):
    assert place(index, target, None) is None
    assert document(index, f"It takes [5 ms](figure:{target}).", "guide/a.md") == "It takes 5 ms."


def test_the_text_of_a_record_is_escaped_around_its_figures(index):
    first = session_id(0)
    text = f"<b>a</b> [5 <i>ms](figure:{first}#evidence.P01) [x](http://evil.example) \ue000 *b*"
    shown = line(index, text, "P01", "patterns/P01.md")
    page = fragment(markdown(shown))
    assert page.links == [f"../sessions/{first}.md#evidence.P01"]
    assert page.text.split() == ["<b>a</b>", "5", "<i>ms", "[x](http://evil.example)", "*b*"]
    assert paragraphs(index, f"a\n\n{text}", "P01", "patterns/P01.md") == f"a\n\n{shown}"


def test_inline_text_shows_the_figure_without_link():
    assert inline("takes [5 ms](figure:R#a), so") == inline("takes 5 ms, so")


def test_figure_links_in_a_guide_page_lead_to_the_record(index):
    first = session_id(0)
    text = (
        f"[5 ms][a] and\n\n```md\n[6 ms](figure:{first}#x)\n```\n\n[a]: <figure:{first}#evidence>\n"
    )
    assert document(index, text, "guide/a.md") == (
        f"[5 ms](../sessions/{first}.md#evidence) and\n\n```md\n[6 ms](figure:{first}#x)\n```\n\n\n"
    )


def test_figure_links_work_on_every_kind_of_page(tmp_path: Path):
    root = trees.make(tmp_path)
    first = session_id(0)
    link = f"[5 ms](figure:{first}#evidence.P01)"
    for path in ("docs/a.md", "kernels/copy/README.md", f"sessions/{first}/notes.md"):
        file = root / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"It takes {link}.\n")
    files = source_files(KnowledgeBase(root))
    assert f"[5 ms](sessions/{first}.md#evidence.P01)" in files["a.md"].decode()
    html = f'<a href="../sessions/{first}.html&#35;evidence.P01">5 ms</a>'
    assert html in files["kernels/copy.md"].decode()
    assert '<a href="&#35;evidence.P01">5 ms</a>' in files[f"sessions/{first}.md"].decode()


def test_links_to_files_that_have_a_page(tmp_path: Path) -> None:
    root = trees.make(tmp_path)
    first, second = session_id(0), session_id(1)
    run = next((root / "sessions").glob("*/runs/*.json"))
    (root / "docs" / "adr").mkdir(parents=True)
    (root / "docs" / "adr" / "0001-why.md").write_text("# Why\n")
    (root / "sessions" / second / "notes.md").write_text(
        f"[it](session.yaml) [before](../{first}/session.yaml)"
        f" [run](../{run.parts[-3]}/runs/{run.name})"
    )
    (root / "kernels" / "copy" / "README.md").write_text(
        f"[why](../../docs/adr/0001-why.md) [told](../../sessions/{second}/notes.md)"
        " [not](../../sessions/gone.md) [out](../../../etc/passwd)"
    )
    files = source_files(KnowledgeBase(root))
    about, told = (files[page].decode() for page in ("kernels/copy.md", f"sessions/{second}.md"))
    assert '<a href="../adr/0001-why.html">why</a>' in about
    assert f'<a href="../sessions/{second}.html&#35;notes">told</a>' in about
    assert '<span class="kb-file" title="../../sessions/gone.md">not</span>' in about
    assert '<span class="kb-file" title="../../../etc/passwd">out</span>' in about
    assert '<span class="kb-file" title="session.yaml">it</span>' in told
    assert f'<a href="{first}.html">before</a>' in told
    told_by = json.loads(run.read_text())["id"]
    assert f'<a href="../runs/{run.parts[-3]}/{told_by}.html">run</a>' in told


def test_patterns_have_the_figures_of_the_ledger(index):
    made = pages(index)
    account = index.accounts["P02"]
    assert account.standing in made[at.PATTERNS]
    shown = made[at.pattern_page("P01")]
    assert "another pattern replaces it" in shown
    saved = index.accounts["P01"].claimed("saved")
    assert saved is not None and f"{saved} min" in shown


def test_a_finding_names_records_by_their_labels(index: Index) -> None:
    name = trees.session_id(0)
    text = f"{name}#bugs.nan.status is open; 2 figures of {name} are 1..2"
    text += " of evidence.P01.saved and <b>2099-01-01-x</b>"
    made = unescape(finding(index, text, at.AUDIT))
    assert made.startswith(f"[nan.status of words about label 0](sessions/{name}.md#bugs.nan)")
    assert (
        f"2 figures of [words about label 0](sessions/{name}.md) are 1–2 of evidence.P01.saved and"
        in made
    )
    assert made.endswith("<b>2099-01-01-x</b>")
    assert "<b>" not in finding(index, text, at.AUDIT)


@pytest.mark.parametrize("words", ["Right or wrong", "Q, K, V", "Why <x>?", "Größe – a_b", "A  B"])
def test_a_heading_without_an_anchor_has_the_one_that_markdown_makes(words: str) -> None:
    assert slug(words) == slugify(words, "-")
