"""Zensical, the theme's successor, lays out the same site (ADR 0068)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import site_trees as trees
from site_html import Site

# The tests of what records may put on a page, on a site that Zensical laid out.
from test_site_build import (  # noqa: F401
    test_html_in_a_record_is_escaped,
    test_html_in_a_record_is_escaped_in_titles_and_navigation,
)

from kbtool.model.errors import MachineError, UsageError
from kbtool.site.html import zensical
from kbtool.site.html.build import build
from kbtool.site.html.serve import HOST, free_port
from kbtool.site.html.tree import SOURCE, packaged

pytestmark = pytest.mark.slow

TAG = re.compile(r"<[^>]*>")


@pytest.fixture
def hostile_site(hostile_zensical_site: Site) -> Site:
    return hostile_zensical_site


@pytest.fixture
def root(tmp_path: Path) -> Path:
    pytest.importorskip("zensical", reason="pip install 'kbtool[zensical]'")
    (tmp_path / "kb").mkdir()
    (tmp_path / "kb" / "kbtool.yaml").write_text("format: 2\ngenerator: zensical  # for now\n")
    return trees.make(tmp_path / "kb", sessions=1)


def article(page: str) -> str:
    """The article of a page, without what each generator puts there for itself, and without spaces
    between tags."""
    found = re.search(r"<article.*?</article>", page, re.DOTALL)
    assert found
    text = found[0].replace(" data-search-exclude", "")  # Zensical takes it out when it has read it
    text = text.replace('<a id="__skip" tabindex="-1"></a>', "").replace("&#x2f;", "/")
    return re.sub(r"\s+", "", text)


def alternates(page: str) -> list[str]:
    links = re.findall(r'<link rel="alternate[^>]*>', page)
    return [link.replace("&#x2f;", "/").replace('"./', '"') for link in links]


def test_both_generators_make_the_same_pages(real_site: Site, zensical_site: Site) -> None:
    assert zensical_site.built.problems == []
    assert set(zensical_site.pages) == set(real_site.pages)
    differ = []
    for path in real_site.pages:
        one, other = ((site.out / path).read_text("utf-8") for site in (real_site, zensical_site))
        assert 'generator" content="zensical-' in other and "zensical" not in one[:2000]
        same = article(one) == article(other) and alternates(one) == alternates(other)
        same = same and real_site.pages[path].title == zensical_site.pages[path].title
        differ += [] if same else [path]
    assert differ == []


def test_both_generators_copy_the_same_files(real_site: Site, zensical_site: Site) -> None:
    """Records as JSON, the feed, what programs read: all that is no page and no part of a theme."""
    source = real_site.root / SOURCE
    for path in source.rglob("*"):
        if path.is_file() and path.suffix != ".md":
            name = path.relative_to(source)
            assert (zensical_site.out / name).read_bytes() == path.read_bytes(), name


def test_both_generators_have_the_same_navigation(real_site: Site, zensical_site: Site) -> None:
    def tabs(site: Site) -> list[tuple[str, str]]:
        page = (site.out / "index.html").read_text("utf-8")
        tab = r'<a href="([^"]*)" class="md-tabs__link">\s*(.*?)\s*</a>'
        return [
            (href.removeprefix("./"), title) for href, title in re.findall(tab, page, re.DOTALL)
        ]

    assert tabs(zensical_site) == tabs(real_site)
    assert len(tabs(real_site)) > 10


def test_both_generators_have_the_same_search_text(real_site: Site, zensical_site: Site) -> None:
    def sections(entries: list[dict[str, str]]) -> dict[str, tuple[str, ...]]:
        return {
            entry["location"]: tuple(
                "".join(TAG.sub("", entry[key]).split()) for key in ("title", "text")
            )
            for entry in entries
        }

    one = json.loads((real_site.out / "search" / "search_index.json").read_text())["docs"]
    other = json.loads((zensical_site.out / "search.json").read_text())["items"]
    assert sections(one) == sections(other)


def test_links_that_lead_nowhere_are_reported(root: Path) -> None:
    notes = root / "docs" / "mine.md"
    notes.parent.mkdir()
    notes.write_text("# Mine\n\n[a](none.md), [b](#none), [c](index.md)\n")
    built = build(root, root / "site")
    assert built.problems == ["mine.md:3: page does not exist", "mine.md:3: anchor does not exist"]


def test_what_was_there_before_is_gone_and_other_folders_are_refused(root: Path) -> None:
    out = root.parent / "out"
    build(root, out)
    stale = out / "sessions" / "stale.html"
    stale.write_text("x")
    (root / "sessions" / trees.session_id(0) / "session.yaml").unlink()
    build(root, out)
    assert not stale.exists() and not (out / "sessions" / f"{trees.session_id(0)}.html").exists()
    (out / ".kbtool-site").unlink()
    with pytest.raises(UsageError, match="other than a site"):
        build(root, out)


def test_own_settings_templates_and_navigation_are_taken(root: Path) -> None:
    settings = packaged("mkdocs.yml").read_text("utf-8").replace("  - Compare: compare.md\n", "")
    settings = settings.replace("name: material\n", "name: material\n  custom_dir: ours\n")
    settings = settings.replace("site_name: kbtool", "site_name: Ours")
    (root / "mkdocs.yml").write_text(settings)
    (root / "ours" / "partials").mkdir(parents=True)
    (root / "ours" / "partials" / "copyright.html").write_text("<p>our own foot</p>")
    build(root, root / "site")
    page = (root / "site" / "index.html").read_text("utf-8")
    assert "Ours</title>" in page and "our own foot" in page and "kb-search" in page
    assert re.search(r'compare.html" class="md-tabs__link"', page)  # newer than these settings


@pytest.mark.parametrize(("text", "words"), [
    ("site_name: [", "Zensical could not build the site"),
    ("site_name: x\ntheme: {name: none}\n", "Theme 'none' is not installed"),
])  # fmt: skip
def test_what_stops_zensical_is_told(root: Path, text: str, words: str) -> None:
    (root / "mkdocs.yml").write_text(text)
    with pytest.raises(MachineError, match=words):
        build(root, root / "site")


def test_a_build_that_left_out_a_page_fails(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zensical says "no issues found" where it has built nothing."""
    monkeypatch.setattr(zensical, "command", lambda name: [sys.executable, "-c", "pass"])
    with pytest.raises(MachineError, match=r"no .*\.html"):
        build(root, root / "site")


def test_the_server_shows_a_changed_record(root: Path) -> None:
    port = free_port(HOST, 0)
    environment = {**os.environ, "KBTOOL_ROOT": str(root)}
    command = [sys.executable, "-m", "kbtool", "site", "serve", "--port", str(port)]
    page = f"http://127.0.0.1:{port}/sessions/{trees.session_id(0)}.html"
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert wait_for(page, "words about title")
            file = root / "sessions" / trees.session_id(0) / "session.yaml"
            file.write_text(file.read_text().replace("words about title", "another title"))
            assert wait_for(page, "another title")
        finally:
            server.send_signal(signal.SIGINT)
            said = server.communicate(timeout=30)[1]
    assert f"open http://127.0.0.1:{port}/" in said and "stopped" in said
    assert server.returncode == 0 and "Traceback" not in said


def wait_for(url: str, words: str, limit: float = 60) -> bool:
    return any(words in text for text in _read(url, limit))


def _read(url: str, limit: float) -> Iterator[str]:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                yield answer.read().decode()
        except OSError:
            pass
        time.sleep(0.2)
