"""The chart of a kernel: what is chosen, read, hidden, enlarged, and where a point leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from browsing import SETTLED, Served, Visit
from test_browser_axe import PALETTES, axe

from kbtool.ledger.scaling import Line, axes, lines
from kbtool.model.twin import Answers

Open = Callable[..., Visit]
KERNEL = "split_k_attention"


@pytest.fixture(scope="module")
def answers(own: Served) -> Answers:
    return Answers.model_validate_json((own.out / "answers.json").read_text())


@pytest.fixture(scope="module")
def longest(answers: Answers) -> Line:
    """The line that the page begins with."""
    results = [one for one in answers.results if one.kernel == KERNEL]
    known = answers.fields[KERNEL]
    return lines(known, results, axes(known, results)[0])[0]


def opened(seen: Visit, base: str, state: str = "", kernel: str = KERNEL) -> None:
    seen.goto("about:blank")
    seen.goto(f"{base}/kernels/{kernel}/charts.html{state}")
    seen.page.locator("#kb-chart canvas").wait_for()
    seen.page.evaluate(SETTLED)


def sizes(seen: Visit) -> list[int]:
    cells = seen.page.locator("#kb-chart tbody th").all_inner_texts()
    return [int(cell.replace(",", "")) for cell in cells]


def span(seen: Visit) -> list[float]:
    """What the horizontal axis shows."""
    found: list[float] = seen.page.evaluate(
        "[kbChart.plot().scales.x.min, kbChart.plot().scales.x.max]"
    )
    return found


@pytest.mark.parametrize("way", ["http", "file"])
def test_it_begins_with_the_longest_line_and_its_figures(
    own: Served, visit: Open, longest: Line, way: str
) -> None:
    base = own.bases()[way]
    seen = visit(base)
    opened(seen, base)
    assert sizes(seen) == [size for size, _, _ in longest.points]
    names = seen.page.locator("#kb-chart thead th").all_inner_texts()
    assert names[0] == longest.axis
    of_first, case = longest.points[0][1:]
    assert set(names[1:-1]) >= set(case.arms) and names[-1] == "At the measured ceilings"
    first = seen.page.locator("#kb-chart tbody tr").first.locator("td a").first
    arm = case.arms[of_first.subject]
    assert first.get_attribute("href", timeout=1000).endswith(f"{arm.run}.html")  # type: ignore[union-attr]
    assert first.inner_text() == f"{arm.between_us:.2f}"


def test_a_choice_is_kept_in_the_address_and_has_cases(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    opened(seen, own.http)
    for name in ("machine", "over", "measure"):
        select = seen.page.locator(f"#kb-chart-{name}")
        for value in select.evaluate("one => [...one.options].map(option => option.value)"):
            select.select_option(value)
            assert select.input_value() == value
            assert len(sizes(seen)) >= 3
            assert seen.page.evaluate("document.activeElement.id") == f"kb-chart-{name}"
    seen.page.locator("#kb-chart-over").select_option("Skv")
    seen.page.locator("#kb-chart-machine").select_option("NVIDIA H100 80GB HBM3")
    seen.page.locator("#kb-chart-measure").select_option("ratio")
    seen.page.locator(".kb-legend button", has_text="sdpa").first.click()
    figures = seen.page.locator("#kb-chart table").inner_text()
    again = visit(own.http)
    opened(again, own.http, seen.page.url.partition(".html")[2])
    assert again.page.locator("#kb-chart table").inner_text() == figures
    pressed = again.page.locator(".kb-legend button", has_text="sdpa").first
    assert pressed.get_attribute("aria-pressed") == "false"


def test_the_share_of_the_ceilings_is_their_time_by_that_of_each(
    own: Served, visit: Open, longest: Line
) -> None:
    seen = visit(own.http)
    opened(seen, own.http, "#measure=share")
    names = seen.page.locator("#kb-chart thead th").all_inner_texts()
    for row, (_, of, case) in zip(
        seen.page.locator("#kb-chart tbody tr").all(), longest.points, strict=True
    ):
        cell = row.locator("td").nth(names.index(of.subject) - 1).locator("a").inner_text()
        us = case.arms[of.subject].between_us
        assert us and case.floor_us
        assert float(cell) == pytest.approx(100 * case.floor_us / us, rel=5e-3)
    assert "At the measured ceilings" not in names
    seen.page.locator(".kb-uplot").focus()
    seen.page.keyboard.press("ArrowRight")
    shares = seen.page.locator(".kb-readout li").all_inner_texts()
    told = [float(one.split()[1]) for one in shares]
    assert told == sorted(told, reverse=True), "the largest share first"


def test_the_keyboard_reads_points_zooms_and_opens_a_run(
    own: Served, visit: Open, longest: Line
) -> None:
    seen = visit(own.http)
    opened(seen, own.http)
    chart, said = seen.page.locator(".kb-uplot"), seen.page.locator("#kb-chart output")
    chart.focus()
    seen.page.keyboard.press("ArrowRight")
    size, of, case = longest.points[0]
    times = {name: arm.between_us for name, arm in case.arms.items() if arm.between_us}
    fastest = min(times, key=lambda name: times[name])
    assert said.inner_text().startswith(f"{longest.axis} {size:.0f}: {fastest} ")
    assert seen.page.locator(".kb-readout li").count() == len(times)
    seen.page.keyboard.press("End")
    last = longest.points[-1]
    assert said.inner_text().startswith(f"{longest.axis} {last[0]:.0f}: ")
    whole = span(seen)
    seen.page.keyboard.press("+")
    near = span(seen)
    assert whole[0] < near[0] and near[1] / near[0] < whole[1] / whole[0]
    for _ in range(8):
        seen.page.keyboard.press("-")
    assert span(seen) == pytest.approx(whole), "no further out than all"
    seen.page.keyboard.press("+")
    seen.page.keyboard.press("0")
    assert span(seen) == pytest.approx(whole)
    seen.page.keyboard.press("Home")
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_url("**/runs/**")
    assert case.arms[fastest].run in seen.page.url and of.machine == longest.machine


def test_the_pointer_reads_enlarges_and_opens(own: Served, visit: Open, longest: Line) -> None:
    seen = visit(own.http)
    opened(seen, own.http)
    size, of, case = longest.points[2]
    us = case.arms[of.subject].between_us
    box, place = seen.page.evaluate(
        "([x, y]) => { const u = kbChart.plot(), b = u.over.getBoundingClientRect();"
        " return [[b.left, b.top, b.width, b.height], [u.valToPos(x, 'x'), u.valToPos(y, 'y')]]; }",
        [size, us],
    )
    seen.page.mouse.move(box[0] + place[0], box[1] + place[1])
    assert f"{longest.axis} {size:,.0f}" in seen.page.locator(".kb-told").inner_text()
    whole = span(seen)
    seen.page.mouse.move(box[0] + box[2] * 0.4, box[1] + 50)
    seen.page.mouse.down()
    seen.page.mouse.move(box[0] + box[2] * 0.9, box[1] + 60, steps=4)
    seen.page.mouse.up()
    assert span(seen)[0] > whole[0] * 1.5
    assert "charts.html" in seen.page.url
    seen.page.get_by_role("button", name="Whole line").click()
    assert span(seen) == pytest.approx(whole)
    box = seen.page.evaluate(
        "Object.values(kbChart.plot().over.getBoundingClientRect().toJSON()).slice(0, 2)"
    )
    seen.page.mouse.move(box[0] + place[0] - 30, box[1] + place[1])
    seen.page.mouse.click(box[0] + place[0], box[1] + place[1])
    seen.page.wait_for_url("**/runs/**")


def test_an_arm_that_is_hidden_is_neither_drawn_nor_read(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    opened(seen, own.http)
    seen.page.locator(".kb-uplot").focus()
    seen.page.keyboard.press("ArrowRight")
    before = seen.page.locator(".kb-readout li").count()
    button = seen.page.locator(".kb-legend button").first
    name = button.inner_text().strip()
    button.click()
    shown = seen.page.evaluate("kbChart.plot().series.map(one => [one.label, one.show])")
    assert [name, False] in shown
    assert seen.page.locator(".kb-readout li").count() == before - 1
    button.click()
    assert seen.page.locator(".kb-readout li").count() == before


def test_a_finger_reads_a_point_and_the_page_keeps_its_width(own: Served, visit: Open) -> None:
    seen = visit(own.http, viewport={"width": 390, "height": 844}, has_touch=True)
    opened(seen, own.http)
    over = seen.page.locator(".u-over")
    over.scroll_into_view_if_needed()
    box: Any = over.bounding_box()
    seen.page.touchscreen.tap(box["x"] + box["width"] * 0.7, box["y"] + box["height"] / 2)
    seen.page.locator(".kb-readout li").first.wait_for()
    assert "charts.html" in seen.page.url
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("palette", PALETTES)
@pytest.mark.parametrize("page", ["charts", "fastest"])
def test_axe_finds_no_violation(own: Served, visit: Open, palette: str, page: str) -> None:
    seen = visit(own.http, color_scheme=palette, reduced_motion="reduce")
    seen.goto(f"{own.http}/kernels/split_k_gemm/{page}.html")
    seen.page.locator("#kb-chart canvas, #kb-fastest .kb-verdict").first.wait_for()
    if page == "charts":
        seen.page.locator(".kb-uplot").focus()
        seen.page.keyboard.press("ArrowRight")
    seen.page.locator("details").first.evaluate("one => { one.open = true; }")
    seen.page.evaluate(
        "document.querySelectorAll('details tr:nth-child(n+9)').forEach(row => row.remove())"
    )
    seen.page.evaluate(axe())
    found = seen.page.evaluate(
        "axe.run({resultTypes: ['violations']}).then(f => f.violations.map("
        "v => [v.id, v.nodes.slice(0, 3).map(n => n.html.slice(0, 160))]))"
    )
    assert found == []


def test_without_scripts_the_drawing_and_its_figures_are_there(
    own: Served, visit: Open, longest: Line
) -> None:
    seen = visit(own.http, java_script_enabled=False)
    seen.page.goto(f"{own.http}/kernels/{KERNEL}/charts.html")
    assert seen.page.locator("#kb-chart .kb-chart svg").is_visible()
    rows = seen.page.locator("#kb-chart tbody tr")
    assert rows.count() == len(longest.points)


def test_only_its_pages_load_the_library(own: Served, visit: Open) -> None:
    seen, asked = visit(own.http), []
    seen.page.on("request", lambda request: asked.append(request.url))
    seen.goto(f"{own.http}/kernels/{KERNEL}.html")
    assert not [url for url in asked if "uplot" in url]
    opened(seen, own.http)
    assert len([url for url in asked if "uplot" in url]) == 2
