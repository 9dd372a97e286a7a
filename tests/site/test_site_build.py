"""Built sites: complete, closed in themselves, every link and anchor good."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import site_trees as trees
from site_html import Site, read_site
from site_trees import attack

from kbtool.model.pattern import Pattern
from kbtool.model.session import Session
from kbtool.site import addresses as at
from kbtool.site.html.build import build
from kbtool.site.html.tree import packaged
from kbtool.site.index import Index
from kbtool.site.pages import pages
from kbtool.store.tree import KnowledgeBase


def test_a_strict_build_has_no_problem(site: Site) -> None:
    assert site.built.problems == []


def test_every_record_has_a_page(site: Site) -> None:
    base = KnowledgeBase(site.root)
    wanted = [at.session_page(name) for name in base.sessions]
    wanted += [at.pattern_page(name) for name in base.patterns]
    wanted += [at.kernel_page(name) for name in base.kernels]
    wanted += [at.recipe_page(name) for name in base.recipes()]
    wanted += [at.run_page(entry.record.session, entry.record.id) for entry in base.runs]
    wanted += [
        at.bug_page(name, bug.id) for name, e in base.sessions.items() for bug in e.record.bugs
    ]
    missing = [page for page in wanted if page.removesuffix(".md") + ".html" not in site.pages]
    assert missing == []
    assert site.built.pages >= len(set(wanted)) + 10


def test_every_internal_link_and_anchor_resolves(site: Site) -> None:
    broken = []
    for path, page in site.pages.items():
        if path == "404.html":
            continue  # served at any address, so its links start from the root
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = posixpath.normpath(
                posixpath.join(posixpath.dirname(path), unquote(parts.path))
            )
            target = path if not parts.path else target
            if target not in site.pages and not (site.out / target).is_file():
                broken.append(f"{path}: {link}")
                continue
            if "=" in parts.fragment:
                continue  # what a page shows when it opens, not a place on it
            anchor = unquote(parts.fragment)
            if anchor not in {"", "__top"} and anchor not in site.pages[target].ids:
                broken.append(f"{path}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Site) -> None:
    outside = [
        f"{path}: {url}"
        for path, page in site.pages.items()
        for url in page.resources
        if re.match(r"(?i)[a-z+]*:?//", url)
    ]
    for path in site.out.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        outside += [
            f"{path.name}: {url}"
            for url in re.findall(r"url\(\s*[\"']?([^\"')]+)", text)
            + re.findall(r"@import\s+[\"']([^\"']+)", text)
            if re.match(r"(?i)(https?:)?//", url)
        ]
    assert outside == []
    assert "assets/vendor/iframe-worker.js" in (site.out / "index.html").read_text()


def test_search_works_without_a_server(plain_site: Site) -> None:
    index = (plain_site.out / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = ")
    assert "words about objective" in index


def test_titles_in_the_search_index_have_no_markup(site: Site) -> None:
    index = json.loads((site.out / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert [doc["title"] for doc in index["docs"] if "<" in doc["title"]] == []


@pytest.mark.slow
def test_a_missing_page_leads_back_from_below_the_path_of_the_site(tmp_path: Path) -> None:
    root = trees.empty(tmp_path / "kb")
    own = packaged("mkdocs.yml").read_text(encoding="utf-8")
    own = own.replace("site_name: kbtool", "site_name: A & B\nsite_url: https://example.org/kb/")
    (root / "mkdocs.yml").write_text(own, encoding="utf-8")
    build(root, root / "site")
    page = read_site(root / "site")["404.html"]
    assert "A & B has no page at this address" in page.text
    assert {"/kb/index.html", "/kb/patterns/index.html", "/kb/bugs/index.html"} <= set(page.links)
    assert "/kb/guide/index.html" in page.links, "sections of the navigation too"


def test_no_heading_skips_a_level(real_site: Site) -> None:
    for path, page in real_site.pages.items():
        above = 0
        for tag, _ in page.elements:
            if re.fullmatch("h[1-6]", tag):
                assert int(tag[1]) <= above + 1, path
                above = int(tag[1])


def test_bugs_and_sessions_link_to_each_other(plain_site: Site) -> None:
    first, second = trees.session_id(0), trees.session_id(1)
    bug = f"bugs/{first}/nan.html"
    assert f"../../sessions/{first}.html#bugs.nan" in plain_site.pages[bug].links
    assert f"../../sessions/{second}.html#fixes" in plain_site.pages[bug].links
    assert f"../bugs/{first}/nan.html" in plain_site.pages[f"sessions/{second}.html"].links
    assert f"../bugs/{second}/nan.html" not in plain_site.pages[f"bugs/{first}/nan.html"].links
    assert f"../{second}/nan.html" in plain_site.pages[bug].links
    assert f"{second}.html" in plain_site.pages[f"sessions/{first}.html"].links
    assert f"../sessions/{first}.html" in plain_site.pages["patterns/P01.html"].links
    assert "P02.html" in plain_site.pages["patterns/P01.html"].links
    assert "../recipes/copy.html" in plain_site.pages["patterns/P01.html"].links
    assert "../patterns/P01.html" in plain_site.pages["recipes/copy.html"].links
    claim = f"../sessions/{first}.html#evidence.P01"
    assert claim in plain_site.pages["patterns/P01.html"].links


def test_every_reference_of_a_claim_leads_to_its_item(real_site: Site) -> None:
    """A reference that resolves to an item lands on it, not on the page at large."""
    index = Index(KnowledgeBase(real_site.root))
    nowhere = []
    from kbtool.site.index import references

    records: list[Pattern | Session] = [*index.sessions.values(), *index.patterns.values()]
    for record in records:
        for claim in record.claims:
            for reference in references(claim.of):
                place = index.place(reference, record.id)
                path = reference.partition("#")[2]
                if place is None or ("." in path and "#" not in place):
                    nowhere.append(f"{record.id}: {claim.id}: {reference} -> {place}")
    assert nowhere == []


def test_html_in_a_record_is_escaped(hostile_site: Site) -> None:
    base = KnowledgeBase(hostile_site.root)
    assert not base.findings
    for path, page in hostile_site.pages.items():
        for tag, attributes in page.elements:
            assert tag not in {"script", "img", "iframe", "object", "form", "base"}, path
            assert not [name for name in attributes if name.startswith("on")], path
            assert "x" not in (attributes.get("class") or "").split(), path
        for link in page.links:
            assert not link.lower().startswith(("javascript:", "data:")), path
            assert "evil.example" not in link.partition("#")[0] or path.startswith(
                ("sessions/", "kernels/")
            ), path
    shown = hostile_site.pages[f"sessions/{trees.session_id(0)}.html"].text
    for name in ("title", "objective", "step", "bug", "claim", "lesson", "row", "option"):
        assert attack(name).partition(" |")[0] in " ".join(shown.split())
    assert "{{ 7*7 }}" in shown and "49" not in hostile_site.pages["index.html"].text


def test_html_in_a_record_is_escaped_in_titles_and_navigation(hostile_site: Site) -> None:
    """Titles and tables of contents pass through templates that escape nothing."""
    for path in hostile_site.out.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "<script>alert" not in text, path
        assert "<img src=x" not in text, path
        head = text[: text.index("</head>")]
        assert head.count("<title>") == 1
        assert "<b>" not in head


def test_pages_of_an_empty_site_say_what_is_missing(empty_site: Site) -> None:
    for page, words in {
        "index.html": "No recipe was run",
        "sessions/index.html": "no sessions yet",
        "patterns/index.html": "no patterns yet",
        "kernels/index.html": "no kernels yet",
        "bugs/index.html": "No session's record names a bug",
        "costs.html": "No session's record has a cost line",
        "recipes/index.html": "There are no recipes",
        "runs/index.html": "no recipe was run",
    }.items():
        assert words in empty_site.pages[page].text, page


def test_a_page_shows_what_its_record_says(plain_site: Site) -> None:
    session = plain_site.pages[f"sessions/{trees.session_id(1)}.html"].text
    for words in ("60 min", "0.35 USD", "ai, engineer", "+50 min", "not taken", "sum of",
                  "words about nobody", "fixed", "words about lesson"):  # fmt: skip
        assert words in session, words
    run = plain_site.pages[f"runs/{trees.session_id(2)}/20251121T101010Z-copy.html"].text
    for words in ("1 of 1 case passed", "0.500", "2.50", "no data because", "Attempts",
                  "refused", "kbtool run-recipe copy --set 'seed=words about seed'",
                  "# No known commit holds what was measured.", "work tree differed"):  # fmt: skip
        assert words in run, words
    kernel = plain_site.pages["kernels/copy/correctness.html"].text
    assert "no data because no run in this knowledge base built it" in kernel
    assert "1 of 1 case passed" in kernel
    patterns = plain_site.pages["patterns/P01.html"].text
    assert "3 proved" in patterns and "words about unsolved" in patterns


def test_pages_are_the_same_for_the_same_records(plain_site: Site) -> None:
    base = KnowledgeBase(plain_site.root)
    assert pages(Index(base)) == pages(Index(KnowledgeBase(plain_site.root)))
