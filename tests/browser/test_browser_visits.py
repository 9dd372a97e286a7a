"""Visits: somebody comes to the home page with a question, and counts the clicks to its answer.

Typing is no click. The answer has to be on the screen when the last click is done, without
scrolling. A visit that takes more clicks than its bound is a fault of the site, not of the bound.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from browsing import Served, Visit
from commands import Result
from site_html import Site

from kbtool.ledger.fastest import nearest
from kbtool.model.twin import Answers

Open = Callable[..., Visit]
Command = Callable[..., Result]

SEEN = """e => { const at = e.getBoundingClientRect(); return at.height > 0
  && at.top >= 0 && at.top < innerHeight && at.left >= 0 && at.left < innerWidth }"""


class Visitor:
    """Somebody on the site, who counts clicks."""

    def __init__(self, seen: Visit, site: Served, base: str) -> None:
        self.seen, self.page, self.site, self.base = seen, seen.page, site, base
        self.clicks = 0
        seen.goto(f"{base}/index.html")

    def click(self, target: Any) -> None:
        target.click()
        self.clicks += 1

    def follow(self, text: str, nth: int = 0) -> None:
        """Click a link of the page by its text, and arrive."""
        at = self.page.url
        self.click(self.page.locator("article").get_by_role("link", name=text).nth(nth))
        self.page.wait_for_function("at => location.href !== at", arg=at)
        self.page.wait_for_load_state("load")

    def search(self, words: str) -> Any:
        """Open the search as a hand does, and type; what it finds."""
        icon = "label.md-header__button[for=__search]"
        narrow = self.page.locator(icon).is_visible()
        self.click(self.page.locator(icon if narrow else ".kb-search__input"))
        self.page.wait_for_function("document.activeElement.name === 'query'")
        return self.seen.ask(words)

    def sees(self, target: Any) -> str:
        """The text of what has to be on the screen."""
        target.wait_for()
        self.page.wait_for_function(f"e => ({SEEN})(e)", arg=target.element_handle())
        text: str = target.inner_text()
        return text


@pytest.fixture(scope="module")
def serving(real_site: Site) -> Iterator[str]:
    """The address that ``kbtool site serve`` prints."""
    command = [sys.executable, "-m", "kbtool", "--root", str(real_site.root), "site", "serve"]
    with subprocess.Popen(
        [*command, "--port", "0"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        cwd=real_site.root, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as server:  # fmt: skip
        assert server.stderr is not None
        said = []
        for line in server.stderr:
            said.append(line)
            if address := re.search(r"open (http://127\.0\.0\.1:\d+)/", line):
                _wait_for(address[1])
                yield address[1]
                break
        else:
            pytest.fail("".join(said))
        server.terminate()


def _wait_for(address: str) -> None:
    """The address is printed just before the server listens."""
    for _ in range(600):
        try:
            urllib.request.urlopen(address).close()
        except urllib.error.URLError:
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"nothing answers at {address}")


def fastest_for_a_shape(one: Visitor, run: Command) -> None:
    """Which implementation is fastest for the GEMM of M=4, N=4096, K=4096?"""
    one.follow("Fastest for your shape", 1)
    for name, value in (("M", 4), ("N", 4096), ("K", 4096)):
        one.page.locator(f"#kb-fastest input[list='kb-measured-{name}']").fill(str(value))
    told = one.sees(one.page.locator("#kb-fastest .kb-verdict"))
    answers = Answers.model_validate_json((one.site.out / "answers.json").read_text())
    results = [of for of in answers.results if of.kernel == "split_k_gemm"]
    machine = one.page.get_by_label("Machine").input_value()
    dtype = one.page.locator("#kb-fastest label", has_text="dtype").locator("select").input_value()
    asked = {"M": 4, "N": 4096, "K": 4096, "dtype": dtype}
    best = nearest(answers.fields["split_k_gemm"], results, machine, asked)[0]
    assert f"{best.fastest} is fastest" in told or f"there {best.fastest}" in told


def what_bug_4_was(one: Visitor, run: Command) -> None:
    """What did it look like, what was its cause, and was it fixed?"""
    one.click(one.search("bug 4").first)
    one.page.wait_for_url("**/bugs/**/bug-4.html*")
    one.sees(one.page.locator("article .kb-chip").first)
    symptom = one.sees(one.page.locator("#symptom, h2:has-text('Symptom')").first)
    assert symptom.startswith("Symptom")


def what_was_spent(one: Visitor, run: Command) -> None:
    one.follow("What was spent")
    told = one.sees(one.page.locator("article p strong").first)
    costs = json.loads(run("costs", "--json", root=one.site.out.parent).out)
    total = costs["total"]["total"]
    total = total["amount"] if isinstance(total, dict) else total
    assert Decimal(told.split(" USD")[0].replace(",", "")) == round(Decimal(total), 2)


def whether_it_regressed(one: Visitor, run: Command) -> None:
    """Is the newest commit slower than the one before?"""
    one.follow("What became slower or faster")
    rows = one.page.locator("article table").first.locator("tbody tr")
    # The newest commit may have been timed alone: then its row says so, and the next answers.
    compared_with = one.page.locator("td:nth-child(4) code")
    several = one.page.locator("td:nth-child(4) code + code")
    row = rows.filter(has=compared_with).filter(has_not=several).first
    told = one.sees(row.locator("td").last)
    newest, before = (row.locator("code").nth(n).inner_text() for n in (0, 1))
    root = one.site.out.parent
    compared = json.loads(run("compare", before, newest, "--json", root=root).out)
    # Cases that one of the two alone timed are missing there, and new here.
    answer, row_says = (said.partition("; ")[0] for said in (compared["answer"], told))
    assert row_says == answer.replace("B is", "the newest is")


def what_to_do_about_an_80_minute_build(one: Visitor, run: Command) -> None:
    found = one.search("80-minute build")
    symptom = re.compile(r"/symptoms/(build-time|torch-extension|ninja)/.*#.+")
    hrefs = [str(link.get_attribute("href")) for link in found.all()]
    nth = next(n for n, href in enumerate(hrefs) if symptom.search(href))
    one.sees(found.nth(nth))
    one.click(found.nth(nth))
    one.page.wait_for_url(symptom)
    one.sees(one.page.locator(f"[id='{one.page.url.rpartition('#')[2]}']"))
    assert "MAX_JOBS" in one.page.locator("article").inner_text()


def what_to_do_about_an_80_minute_build_by_symptoms(one: Visitor, run: Command) -> None:
    """A list of symptoms that has no such row hands the words to the search."""
    one.follow("It misbehaves")
    one.page.get_by_label("Filter").first.fill("80-minute build")
    one.click(one.page.get_by_role("button", name="Search the whole site"))
    found = one.page.locator(".kb-search__item a").first
    found.wait_for()
    one.click(found)
    one.page.wait_for_url("**/symptoms/**")


def how_to_repeat_a_figure(one: Visitor, run: Command) -> None:
    """The commands that measure the first figure of the verdict again."""
    one.follow("Measure it again")
    place = one.page.locator(f"[id='{one.page.url.rpartition('#')[2]}']")
    commands = one.sees(place.locator("xpath=ancestor::p/following-sibling::*[1]//code").first)
    checkout, recipe = commands.splitlines()
    assert re.fullmatch(r"git checkout [0-9a-f]{40}", checkout)
    assert recipe.startswith("kbtool run-recipe ")


WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
# Each visit has both widths, both palettes and both ways; all of them, each pair of these.
ONE = [(WIDE, "light", "file"), (NARROW, "dark", "serve")]
OTHER = [(WIDE, "dark", "serve"), (NARROW, "light", "file")]
VISITS: list[tuple[Callable[[Visitor, Command], None], int, list[Any]]] = [
    (fastest_for_a_shape, 1, ONE),
    (what_bug_4_was, 2, OTHER),
    (what_was_spent, 1, ONE),
    (whether_it_regressed, 1, OTHER),
    (what_to_do_about_an_80_minute_build, 2, ONE),
    (what_to_do_about_an_80_minute_build_by_symptoms, 3, OTHER),
    (how_to_repeat_a_figure, 1, OTHER),
]


@pytest.mark.parametrize(
    ("task", "most", "size", "palette", "way"),
    [
        pytest.param(task, most, *how, id=f"{task.__name__}-{how[0]['width']}-{how[1]}-{how[2]}")
        for task, most, ways in VISITS
        for how in ways
    ],
)
def test_a_visit_from_home_ends_at_the_answer_in_few_clicks(
    own: Served, serving: str, visit: Open, kbtool: Command,
    task: Callable[[Visitor, Command], None], most: int, size: Any, palette: str, way: str,
) -> None:  # fmt: skip
    base = own.file if way == "file" else serving
    one = Visitor(visit(base, viewport=size, color_scheme=palette), own, base)
    scheme = one.page.evaluate("document.body.dataset.mdColorScheme")
    assert scheme == {"light": "default", "dark": "slate"}[palette]
    task(one, kbtool)
    assert one.clicks <= most, f"{task.__name__}: {one.clicks} clicks"
    assert one.page.evaluate("document.documentElement.scrollWidth") <= size["width"]


@pytest.mark.parametrize(
    ("page", "script"),
    [
        ("compare.html", "compare-runs.js"),
        ("kernels/split_k_gemm/fastest.html", "measured.js"),
        ("kernels/split_k_gemm/charts.html", "measured.js"),
    ],
)
def test_a_page_whose_data_does_not_load_says_so(
    own: Served, visit: Open, page: str, script: str
) -> None:
    seen = visit(own.http)
    seen.page.route(f"**/{script}", lambda route: route.abort())
    seen.goto(f"{own.http}/{page}")
    said = seen.page.locator("article", has_text=re.compile(rf"{script} could not be loaded"))
    said.wait_for()
    seen.faults[:] = [fault for fault in seen.faults if "ERR_FAILED" not in fault]


def test_a_comparison_with_a_run_that_is_not_there_says_so(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/compare.html#a=20991231T000000Z-none-0000/split_k")
    told = seen.page.locator("#kb-compare", has_text="this site has no run")
    assert "no run 20991231T000000Z-none-0000." in told.inner_text()
