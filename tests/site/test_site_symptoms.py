"""The catalogue of symptoms: a table of the tools, and a page of the messages of each."""

from __future__ import annotations

import html
from pathlib import Path

import site_trees as trees
from site_html import Site

from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import pages
from kbtool.store.tree import KnowledgeBase

OWN = """\
id: launcher
title: Our <launcher>
symptoms:
  - id: full
    title: The queue is full
    match: 'queue is full'
    example: 'launcher: queue is full, of 8'
    source: our launcher
    advice: Wait for a place, of which there are ${places}.
    command: launcher --status
    architectures: [sm_90]
    patterns: [P01, P99]
    values: {places: {after: 'of '}}
    causes:
      - {sign: '(?i)at <night>', advice: 'The backup holds ${places}.', command: backup --wait}
      - {sign: holiday, advice: Nobody is there.}
"""


def _made(root: Path) -> dict[str, str]:
    base = trees.make(root, sessions=1)
    (base / "symptoms").mkdir()
    (base / "symptoms" / "launcher.yaml").write_text(OWN)
    return pages(Index(KnowledgeBase(base)))


def test_each_symptom_has_its_message_its_advice_and_its_pattern(tmp_path: Path) -> None:
    made = _made(tmp_path / "kb")
    page = made["symptoms/launcher/index.md"]
    assert "Our &#60;launcher" in page
    for text in (
        "## The queue is full {#full}", "queue is full, of 8",
        "Wait for a place, of which there are N.", "launcher --status",
        "Only for <code>sm&#95;90</code>.",
        "](../../patterns/P01.md)", "our launcher",
        "<summary>2 causes that other details of the text give away</summary>",
        "| <code>at &#60;night&#62;</code> | The backup holds N. | <code>backup --wait</code> |",
        "| <code>holiday</code> | Nobody is there. | – |",
    ):  # fmt: skip
        assert text in page, text
    assert "P99" not in page
    assert "](launcher/index.md) | 1 |" in made[at.SYMPTOMS]
    assert "](nvcc/index.md)" in made[at.SYMPTOMS]  # those of kbtool are there too


def test_a_pattern_names_the_symptoms_of_the_catalogue(tmp_path: Path) -> None:
    pattern = _made(tmp_path / "kb")[at.pattern_page("P01")]
    assert "[The queue is full](../symptoms/launcher/index.md#full)" in pattern


def test_the_links_between_patterns_and_symptoms_lead_somewhere(real_site: Site) -> None:
    linked = {
        (path, link)
        for path, page in real_site.pages.items()
        if path.startswith("patterns/") and path != "patterns/index.html"
        for link in page.links
        if link.startswith("../symptoms/") and "#" in link
    }
    assert len(linked) > 20
    for path, link in linked:
        page, _, name = link.removeprefix("../").partition("#")
        assert name in real_site.pages[page].ids
        assert path in {one.lstrip("./") for one in real_site.pages[page].links}


def test_the_thread_that_a_wording_is_from_is_a_link(tmp_path: Path) -> None:
    base = trees.make(tmp_path / "kb", sessions=1)
    (base / "symptoms").mkdir()
    thread = "https://example.org/issues/1"
    text = OWN.replace("source: our launcher", f"source: {thread}")
    (base / "symptoms" / "launcher.yaml").write_text(text)
    page = pages(Index(KnowledgeBase(base)))[at.symptoms_page("launcher")]
    assert f'Wording from: <a href="{thread}" rel="noopener noreferrer">' in html.unescape(page)


def test_a_long_page_begins_with_a_list_of_its_symptoms(tmp_path: Path) -> None:
    made = _made(tmp_path / "kb")
    index = Index(KnowledgeBase(tmp_path / "kb"))
    known = index.base.catalogue["nvcc"].symptoms
    page, listed = html.unescape(made[at.symptoms_page("nvcc")]), 0
    for one in known:
        first = page.index(f"(#{one.id})")
        listed += first < page.index(f"{{#{known[0].id}}}")
    assert listed == len(known) > 8
    assert f"All {listed} symptoms of this page" in page
    assert "symptoms of this page" not in made[at.symptoms_page("launcher")]
