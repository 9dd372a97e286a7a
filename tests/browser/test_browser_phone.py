"""Code, charts, formulas and headings on a phone, and a page without its stylesheets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browsing import SETTLED, Served, Visit

Open = Callable[..., Visit]

PHONE = {"width": 390, "height": 900}

CUT = """all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"""

OVER_CODE = """all => all.filter(nav => {
  const code = nav.parentNode.querySelector("code").getBoundingClientRect();
  return nav.getBoundingClientRect().left < code.right;
}).length"""

CONTRAST = """button => {
  const luminance = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(part => part / 255)
      .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = getComputedStyle(button.closest("pre")).backgroundColor;
  const [low, high] = [getComputedStyle(button).color, ground].map(luminance).sort((a, b) => a - b);
  return [ground, (high + 0.05) / (low + 0.05)];
}"""


@pytest.mark.parametrize("palette", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_button_that_copies_is_seen_beside_the_code(
    own: Served, visit: Open, width: int, palette: str
) -> None:
    size = {"width": width, "height": 900}
    seen = visit(own.http, viewport=size, color_scheme=palette, reduced_motion="reduce")
    for page in ("guide/attach.html", "symptoms/cuda-runtime/index.html"):
        seen.goto(f"{own.http}/{page}")
        seen.page.locator(".md-code__button").first.wait_for()
        assert seen.page.locator(".md-code__nav").evaluate_all(OVER_CODE) == 0
        ground, contrast = seen.page.locator(".md-code__button").first.evaluate(CONTRAST)
        assert ground.startswith("rgb(") and contrast >= 3


def test_on_a_wide_screen_no_line_that_a_record_says_is_cut(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    for page in own.one_of_each_kind():
        seen.goto(f"{own.http}/{page}")
        assert seen.page.locator(".kb-block > code").evaluate_all(CUT) == [], page


def test_on_a_phone_a_chart_is_readable_and_says_that_there_is_more(
    own: Served, visit: Open
) -> None:
    seen = visit(own.http, viewport=PHONE)
    for page in ("costs.html", "kernels/split_k_attention/variants.html"):
        seen.goto(f"{own.http}/{page}")
        chart = seen.page.locator(".kb-chart:visible").first
        assert chart.get_attribute("role") == "region"
        assert chart.get_attribute("aria-label") == chart.locator("svg").get_attribute("aria-label")
        said = "chart => getComputedStyle(chart, '::before').content"
        assert "Scroll sideways" in chart.evaluate(said)
        high = """texts => texts.map(text =>
          parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"""
        assert min(chart.locator("text").evaluate_all(high)) >= 10, page
        chart.evaluate("chart => { chart.scrollLeft = chart.scrollWidth }")
        seen.page.evaluate(SETTLED)
        assert "kb-more" not in chart.get_attribute("class")


def test_on_a_phone_a_formula_scrolls_in_its_frame_and_says_so(own: Served, visit: Open) -> None:
    seen = visit(own.http, viewport=PHONE)
    seen.goto(f"{own.http}/kernels/split_k_attention/about.html")
    says = """all => all.map(e => [e.scrollWidth > e.clientWidth + 1,
      getComputedStyle(e, "::before").content.includes("Scroll sideways"), e.tabIndex === 0])"""
    found = seen.page.locator(".kb-math").evaluate_all(says)
    assert {tuple(one) for one in found} == {(True, True, True), (False, False, False)}


def test_on_a_phone_no_code_is_cut_and_no_link_of_a_heading_takes_a_line(
    own: Served, visit: Open
) -> None:
    seen = visit(own.http, viewport=PHONE)
    taller = """heads => heads.filter(head => {
      const before = head.offsetHeight;
      head.querySelector(".headerlink").remove();
      return head.offsetHeight !== before;
    }).map(head => head.textContent)"""
    for page in own.one_of_each_kind():
        seen.goto(f"{own.http}/{page}")
        assert seen.page.locator("pre > code").evaluate_all(CUT) == [], page
        heads = seen.page.locator(":is(h1, h2, h3, h4):has(.headerlink)")
        assert heads.evaluate_all(taller) == [], page


def test_on_a_phone_the_lines_of_a_source_are_cut_and_need_no_scrolling(
    own: Served, visit: Open
) -> None:
    seen = visit(own.http, viewport=PHONE)
    seen.goto(f"{own.http}/kernels/split_k_attention/src/harness.py.html")
    source = seen.page.locator(".kb-source pre")
    assert source.evaluate("e => e.scrollWidth <= e.clientWidth")
    # The numbers of lines stand one below the other, left of all words.
    lefts = source.locator("a[id]").evaluate_all(
        "all => all.map(a => a.getBoundingClientRect().left)"
    )
    assert len(lefts) > 100 and max(lefts) - min(lefts) < 1
    assert source.evaluate("e => e.getBoundingClientRect().left") <= min(lefts)


@pytest.mark.parametrize("scripts", [True, False])
def test_a_missing_page_is_readable_without_its_stylesheets(
    own: Served, visit: Open, scripts: bool
) -> None:
    seen = visit("file:", viewport=PHONE, java_script_enabled=scripts)
    seen.page.goto(f"{own.file}/404.html")
    assert seen.page.locator("h1").bounding_box()["y"] < 100
    shown = seen.page.locator("body > *:not(script), .md-sidebar, svg").locator("visible=true")
    assert [one.get_attribute("class") for one in shown.all()] == ["md-container"]
    if scripts:  # they lead from a disk to the pages beside it
        home = seen.page.get_by_role("link", name="Home", exact=True)
        assert home.evaluate("link => link.href") == f"{own.file}/index.html"
    seen.faults.clear()  # its stylesheets and scripts are at the root of a server


def test_a_missing_page_with_its_stylesheets_has_all_of_the_site(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/404.html")
    for part in (".md-header", ".md-tabs", ".md-footer", "article p >> text=The search"):
        assert seen.page.locator(part).first.is_visible(), part
