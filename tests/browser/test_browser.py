"""The built site in a browser: every kind of page, both palettes, a phone, paper, no network."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browsing import Served, Visit

Open = Callable[..., Visit]


def test_every_kind_of_page_from_a_folder(own: Served, visit: Open) -> None:
    seen = visit(own.file)
    for page in own.one_of_each_kind():
        if page != "404.html":  # for a server alone: its links start from the server's root
            seen.goto(f"{own.file}/{page}")
            assert seen.page.locator("article h1").count() == 1, page


def test_every_kind_of_page_from_a_server_and_on_paper(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    for page in own.one_of_each_kind():
        seen.goto(f"{own.http}/{page}")
        assert seen.page.locator("article h1").count() == 1, page
        seen.page.emulate_media(media="print")
        assert seen.page.locator("article h1").is_visible(), page
        chrome = ".md-header, .md-tabs, .md-sidebar, .kb-search, .md-footer, .md-top"
        shown = seen.page.locator(chrome).locator("visible=true")
        assert shown.count() == 0, (page, shown.first.evaluate("e => e.className"))
        # Paper does not scroll: a command is on it to its end.
        cut = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"
        assert seen.page.locator(".kb-block > code").evaluate_all(cut) == [], page
        seen.page.emulate_media(media="screen")


def test_no_page_is_wider_than_a_phone(own: Served, visit: Open) -> None:
    phone = {"width": 360, "height": 740}
    seen = visit(own.http, viewport=phone, has_touch=True)
    wide = []
    for page in own.one_of_each_kind():
        seen.goto(f"{own.http}/{page}")
        width = seen.page.evaluate("document.documentElement.scrollWidth")
        if width > phone["width"]:
            wide.append((page, width))
    assert wide == []


@pytest.mark.parametrize("way", ["http", "file"])
def test_search_finds_a_pattern_by_a_word_of_its_title(own: Served, visit: Open, way: str) -> None:
    base = own.bases()[way]
    seen = visit(base)
    target = next(page for page in own.pages() if page.startswith("patterns/P"))
    seen.goto(f"{base}/{target}")
    title = seen.page.locator("article h1").inner_text().rstrip("¶ ")
    word = max(title.split(), key=len)
    seen.goto(f"{base}/sessions/index.html")
    found = [link.get_attribute("href").split("?")[0] for link in seen.ask(word).all()]
    assert f"{base}/{target}" in found[:10]
    seen.page.keyboard.press("ArrowDown")
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_url("**/*h=*")
    seen.page.locator("article mark").first.wait_for()


def test_a_literal_search_needs_every_word(own: Served, visit: Open) -> None:
    """Without quotes, records that have some of the words follow (ADR 0064)."""
    seen = visit(own.http)
    seen.goto(f"{own.http}/index.html")
    counts = []
    for query in (
        '"benchmark"', '"benchmark" "validate"', '"no such phrase anywhere" "benchmark" "zzzz"',
    ):  # fmt: skip
        seen.ask(query)
        counts.append(seen.page.locator(".kb-search__meta").inner_text().split()[0])
    many, fewer, fallback = map(int, counts)
    assert many > fewer > 0
    assert fallback == many  # no page has all: those with the most of them


@pytest.mark.parametrize("way", ["http", "file"])
def test_the_tab_of_a_record_is_that_of_its_list(own: Served, visit: Open, way: str) -> None:
    base = own.bases()[way]
    seen = visit(base)
    for page, tab in [
        ("sessions/2025-10-12-n2.html", "Sessions"),
        ("kernels/split_k_attention/results.html", "Kernels"),
        ("costs.html", "Costs"),
        ("index.html", "Home"),
        ("tags/cuda/index.html", None),
    ]:
        seen.goto(f"{base}/{page}")
        active = [
            one.strip() for one in seen.page.locator(".md-tabs__item--active").all_inner_texts()
        ]
        assert active == ([tab] if tab else []), page


def test_the_line_named_in_the_address_is_highlighted(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/kernels/split_k_attention/src/cuda/fused/fused.cuh.html#L10")
    band = """id => getComputedStyle(document.getElementById(id), "::before").backgroundColor"""
    meant, other = (seen.page.evaluate(band, name) for name in ("L10", "L11"))
    assert meant != other and "0, 0, 0, 0" not in meant
    seen.page.locator("#L12").click()
    assert seen.page.url.endswith("#L12")
    assert seen.page.evaluate(band, "L12") == meant


def test_a_missing_page_is_the_sites_own_from_any_depth(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    for path in ("nowhere.html", "a/b/c/nowhere.html"):
        response = seen.goto(f"{own.http}/{path}")
        seen.faults[:] = [fault for fault in seen.faults if "status of 404" not in fault]
        assert response.status == 404
        assert seen.page.locator("article h1").inner_text().startswith("404")
        assert "kbtool has no page at this address" in seen.page.locator("article").inner_text()
        links = seen.page.locator("article a[href]").all()
        names = {link.inner_text(): link.get_attribute("href") for link in links}
        assert set(names) >= {"Home", "Patterns", "Sessions", "Kernels", "Bugs"}
        for name, address in names.items():
            assert seen.page.request.get(f"{own.http}{address}").ok, name
        assert seen.ask("pattern").first.get_attribute("href").startswith(f"{own.http}/")
        seen.page.keyboard.press("Escape")
        seen.page.locator(".md-header__button.md-logo").first.click()
        seen.page.wait_for_url(f"{own.http}/index.html")


@pytest.mark.parametrize("way", ["http", "file"])
def test_no_script_in_a_record_is_executed(hostile: Served, visit: Open, way: str) -> None:
    base = hostile.bases()[way]
    seen = visit(base)
    seen.page.add_init_script("window.alert = () => { throw Error('an attack ran') }")
    for page in hostile.one_of_each_kind():
        if page != "404.html":
            seen.goto(f"{base}/{page}")
    seen.goto(f"{base}/index.html")
    for query in ("script", "<img", "onerror"):
        seen.ask(query)
        assert seen.page.locator(".kb-search__item mark").count() > 0
        assert seen.page.locator(".kb-search__item :is(script, img)").count() == 0
