"""The history of a kernel: a case by commit, what a commit changed, and where that leads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from browsing import SETTLED, Served, Visit
from test_browser_axe import PALETTES, axe

Open = Callable[..., Visit]
KERNEL = "split_k_attention"


@pytest.fixture(scope="module")
def told(own: Served) -> dict[str, Any]:
    """What the page's script is given."""
    text = (own.out / "kernels" / KERNEL / "history.js").read_text()
    data: dict[str, Any] = json.loads(text.removeprefix("kbtoolHistory(").rstrip().rstrip(");"))
    return data


@pytest.fixture(scope="module")
def changed(told: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """A course between plain kernels, and the place of a commit that made it faster."""
    return next(
        (course, number)
        for course in told["courses"]
        for number, point in enumerate(course["points"])
        if point.get("tone") == "faster" and course["metric"] == "between"
    )


def opened(seen: Visit, base: str, state: str = "") -> None:
    seen.goto("about:blank")
    seen.goto(f"{base}/kernels/{KERNEL}/history.html{state}")
    seen.page.locator("#kb-history canvas").wait_for()
    seen.page.evaluate(SETTLED)


def address(course: dict[str, Any]) -> str:
    return f"#on={course['machine']}&set={course['set']}&case={course['case']}"


@pytest.mark.parametrize("way", ["http", "file"])
def test_it_begins_with_the_longest_case_and_its_commits(
    own: Served, visit: Open, told: dict[str, Any], way: str
) -> None:
    base = own.bases()[way]
    seen = visit(base)
    opened(seen, base)
    longest = max(
        len(course["points"]) for course in told["courses"] if course["metric"] == "between"
    )
    fields = ("machine", "set", "case", "metric")
    chosen = [seen.page.locator(f"#kb-history-{name}").input_value() for name in fields]
    (course,) = (one for one in told["courses"] if [one[name] for name in fields] == chosen)
    assert len(course["points"]) == longest
    rows = seen.page.locator("#kb-history tbody tr")
    commits = rows.locator("th").all_inner_texts()
    assert commits == [one["commit"] for one in course["points"]]
    page = told["runs"][course["points"][0]["run"]][1]
    first = rows.first.locator("th a")
    assert first.get_attribute("href", timeout=1000).endswith(page)  # type: ignore[union-attr]


def test_a_change_is_told_and_leads_to_the_same_verdict_on_compare(
    own: Served, visit: Open, changed: tuple[dict[str, Any], int]
) -> None:
    course, number = changed
    point, before = course["points"][number], course["points"][number - 1]
    seen = visit(own.http)
    opened(seen, own.http, address(course))
    link = seen.page.get_by_role("link", name=point["change"]).first
    link.click()
    seen.page.wait_for_url("**/compare.html#*")
    seen.page.locator("#kb-answer").wait_for()
    ours = next(iter(point["arms"]))
    seen.page.locator(f"[data-case='{course['set']}/{course['case']}']").wait_for()
    cells = seen.page.locator("article table").first.locator("tbody tr td").all_inner_texts()
    shown = [float(cell.split()[0].replace(",", "")) for cell in cells[1:4]]
    assert shown == pytest.approx(
        [before["arms"][ours][0], point["arms"][ours][0], point["ratio"]], rel=5e-3
    )
    assert cells[4] == "faster"


def test_each_step_has_the_answer_of_the_page_that_it_leads_to(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    opened(seen, own.http)
    rows = seen.page.locator("#steps ~ .kb-stack tbody tr, #steps ~ details tbody tr").all()
    steps = [
        (row.locator("td").nth(4).text_content(), row.get_by_text("compare").get_attribute("href"))
        for row in rows
        if row.get_by_text("compare", exact=True).count()
    ]
    assert len(steps) >= 10
    for said, to in steps[::3]:
        seen.goto("about:blank")
        seen.goto(f"{own.http}/kernels/{KERNEL}/{to}")
        answer = seen.page.locator("#kb-answer").inner_text()
        assert answer.replace("B is", "it is") == (said or "").strip()


def test_every_choice_has_commits_and_is_kept_in_the_address(
    own: Served, visit: Open, told: dict[str, Any]
) -> None:
    seen = visit(own.http)
    opened(seen, own.http)
    for name in ("metric", "set", "machine"):
        select = seen.page.locator(f"#kb-history-{name}")
        for value in select.evaluate("one => [...one.options].map(option => option.value)"):
            select.select_option(value)
            assert select.input_value() == value
            assert seen.page.locator("#kb-history tbody tr").count() >= 1
            assert seen.page.evaluate("document.activeElement.id") == f"kb-history-{name}"
    seen.page.locator(".kb-legend button").last.click()
    figures = seen.page.locator("#kb-history table").inner_text()
    again = visit(own.http)
    opened(again, own.http, seen.page.url.partition(".html")[2])
    assert again.page.locator("#kb-history table").inner_text() == figures
    assert again.page.locator(".kb-legend button").last.get_attribute("aria-pressed") == "false"


@pytest.mark.parametrize("width", [1440, 390])
def test_the_keyboard_reads_commits_and_opens_a_run(
    own: Served, visit: Open, changed: tuple[dict[str, Any], int], told: dict[str, Any], width: int
) -> None:
    course, _ = changed
    seen = visit(own.http, viewport={"width": width, "height": 900})
    opened(seen, own.http, address(course))
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    seen.page.locator(".kb-uplot").focus()
    seen.page.keyboard.press("End")
    last = course["points"][-1]
    said = seen.page.locator("#kb-history output").inner_text()
    assert said.startswith(f"commit {last['commit']}: ")
    assert last["change"] in seen.page.locator(".kb-told").inner_text()
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_url("**/runs/**")
    assert seen.page.url.endswith(told["runs"][last["run"]][1])


@pytest.mark.parametrize("palette", PALETTES)
def test_axe_finds_no_violation(own: Served, visit: Open, palette: str) -> None:
    seen = visit(own.http, color_scheme=palette, reduced_motion="reduce")
    opened(seen, own.http)
    seen.page.locator(".kb-uplot").focus()
    seen.page.keyboard.press("ArrowRight")
    seen.page.evaluate(axe())
    found = seen.page.evaluate(
        "axe.run('#kb-history', {resultTypes: ['violations']}).then(f => f.violations.map("
        "v => [v.id, v.nodes.slice(0, 3).map(n => n.html.slice(0, 160))]))"
    )
    assert found == []


def test_without_scripts_the_drawing_and_its_figures_are_there(own: Served, visit: Open) -> None:
    seen = visit(own.http, java_script_enabled=False)
    seen.page.goto(f"{own.http}/kernels/{KERNEL}/history.html")
    assert seen.page.locator("#kb-history .kb-chart svg").is_visible()
    assert seen.page.locator("#kb-history tbody tr").count() >= 2
    assert seen.page.locator("#kb-history tbody a[href*='compare.html']").count() >= 1
