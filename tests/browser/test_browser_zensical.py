"""One page of each kind looks and works the same where Zensical laid it out (ADR 0068).

The tests of the other files, on such a site: at least one of each script and each way to open it.
"""

# ruff: noqa: F401
from __future__ import annotations

import base64
from collections.abc import Callable, Iterator

import pytest
from browsing import SETTLED, Served, Visit, served
from site_html import Site
from test_browser import (
    test_a_missing_page_is_the_sites_own_from_any_depth,
    test_every_kind_of_page_from_a_folder,
    test_every_kind_of_page_from_a_server_and_on_paper,
    test_no_page_is_wider_than_a_phone,
    test_no_script_in_a_record_is_executed,
    test_search_finds_a_pattern_by_a_word_of_its_title,
    test_the_line_named_in_the_address_is_highlighted,
    test_the_tab_of_a_record_is_that_of_its_list,
)
from test_browser_axe import test_axe_finds_no_violation_on_any_kind_of_page
from test_browser_chart import (
    test_a_choice_is_kept_in_the_address_and_has_cases,
    test_only_its_pages_load_the_library,
)
from test_browser_costs import test_sums_have_their_coverage_beside_them
from test_browser_fastest import answers, test_the_form_asks_and_the_address_keeps_what_was_asked
from test_browser_history import (
    changed,
    test_a_change_is_told_and_leads_to_the_same_verdict_on_compare,
    told,
)
from test_browser_regressions import test_an_earlier_commit_is_opened_and_compared_case_by_case
from test_browser_search import (
    test_a_question_finds_its_page_among_the_first_three,
    test_results_are_added_as_one_scrolls,
    test_the_search_is_worked_by_keys_and_by_touch,
)
from test_browser_tables import (
    test_a_filter_counts_and_the_address_keeps_it,
    test_a_keyboard_scrolls_a_frame_that_is_too_narrow,
    test_a_listing_sorts_by_a_figure,
)
from test_browser_wrong import test_a_symptom_leads_to_its_bugs_and_the_command_that_helps

Open = Callable[..., Visit]

BUT_THE_FOOT = ".md-copyright { height: 2rem; overflow: hidden; visibility: hidden }"
"""It names the generator."""

ROUNDING = 2
"""Of 255: how far the same pixel of the same page may be apart when it is drawn once more."""
FURTHEST = """async (pictures) => {
  const [one, other] = await Promise.all(pictures.map(async (png) => {
    const file = await fetch(`data:image/png;base64,${png}`);
    const picture = await createImageBitmap(await file.blob());
    const context = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
    context.drawImage(picture, 0, 0);
    return context.getImageData(0, 0, picture.width, picture.height).data;
  }));
  return one.reduce((most, value, at) => Math.max(most, Math.abs(value - other[at])), 0);
}"""


class Few(Served):
    """A site whose tags are one kind of page, and whose tools with symptoms are one kind too."""

    def one_of_each_kind(self) -> list[str]:
        """The first page of each folder's folders, and all others."""
        kept: dict[str, str] = {}
        for page in super().one_of_each_kind():
            kept.setdefault(page if page.count("/") < 2 else page.split("/")[0], page)
        return list(kept.values())


@pytest.fixture(scope="module")
def own(zensical_site: Site) -> Iterator[Served]:
    with served(zensical_site.out) as site:
        yield Few(site.out, site.http)


@pytest.fixture(scope="module")
def hostile(hostile_zensical_site: Site) -> Iterator[Served]:
    with served(hostile_zensical_site.out) as site:
        yield Few(site.out, site.http)


@pytest.fixture(scope="module")
def by_mkdocs(real_site: Site) -> Iterator[Served]:
    with served(real_site.out) as site:
        yield site


@pytest.mark.parametrize(("width", "palette"), [(1440, "light"), (390, "dark")])
def test_a_page_of_each_kind_looks_the_same(
    own: Served, by_mkdocs: Served, visit: Open, width: int, palette: str
) -> None:
    """Every pixel of its beginning, and its height."""
    options = {"color_scheme": palette, "reduced_motion": "reduce"}
    sites = [
        (visit(site.http, viewport={"width": width, "height": 900}, **options), site.http)
        for site in (by_mkdocs, own)
    ]

    def apart(page: str, until: str) -> bool:
        """Whether the two look different."""
        looks = [looks_of(seen, f"{base}/{page}", until) for seen, base in sites]
        (height, picture), (other_height, other) = looks
        if height != other_height or picture == other:
            return height != other_height
        pictures = [base64.b64encode(png).decode() for png in (picture, other)]
        return bool(sites[0][0].page.evaluate(FURTHEST, pictures) > ROUNDING)

    pages = own.one_of_each_kind()
    differ = [page for page in pages if apart(page, "load")]
    # What a page asks for by script may have come late to one of the two.
    differ = [page for page in differ if apart(page, "networkidle")]
    assert len(pages) > 20 and differ == []


def looks_of(seen: Visit, url: str, until: str) -> tuple[int, bytes]:
    """The height of a page and the picture of its beginning."""
    seen.page.goto(url, wait_until=until)
    seen.page.add_style_tag(content=BUT_THE_FOOT)
    seen.page.evaluate(SETTLED)
    height: int = seen.page.evaluate("document.documentElement.scrollHeight")
    return height, seen.page.screenshot(animations="disabled", caret="hide")


@pytest.mark.parametrize("generator", ["by_mkdocs", "own"])
def test_the_palette_is_kept_from_page_to_page(
    generator: str, visit: Open, request: pytest.FixtureRequest
) -> None:
    site: Served = request.getfixturevalue(generator)
    seen = visit(site.http, color_scheme="light")
    ground = "document.body.dataset.mdColorScheme"
    seen.goto(f"{site.http}/index.html")
    toggle = seen.page.locator("form[data-md-component=palette] label:visible")
    names = []
    for _ in range(3):
        names.append(toggle.get_attribute("title"))
        toggle.click()
    assert names == ["Switch to light", "Switch to dark", "Switch to the system's"]
    toggle.click()
    toggle.click()
    assert seen.page.evaluate(ground) == "slate"
    seen.goto(f"{site.http}/costs.html")
    assert seen.page.evaluate(ground) == "slate"
