"""Charts, formulas and drawings show the measured values, and nothing unsafe."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import unescape
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_html import fragment
from test_site_escape import TEXT, render, shown

from kbtool.markdown.chart import SPARK_HEIGHT, SPARK_POINTS, SPARK_WIDTH, sparkline
from kbtool.markdown.markup import table
from kbtool.markdown.plot import SERIES, WIDTH, Axis, Mark, Point, Row, Series, plot, rows
from kbtool.site.text import maths
from kbtool.site.text.drawing import DrawingError, inlined
from kbtool.site.text.maths import formula

FLOAT = st.floats(allow_nan=True, allow_infinity=True)
POSITIVE = st.floats(min_value=1e-6, max_value=1e12)
SCALE = st.sampled_from(["linear", "log2", "log10"])


def parsed(chart: str) -> ElementTree.Element:
    assert "\n" not in chart  # Markdown must pass it on as one block
    root = ElementTree.fromstring(f"<p>{chart.replace(' data-search-exclude', '')}</p>")
    (svg,) = (one for one in root.iter("svg") if one.get("class") != "kb-key")
    return svg


def legends(chart: str) -> list[list[str]]:
    """The names in each legend of a chart."""
    lists = re.findall(r"<ul .*?</ul>", chart)
    return [[unescape(name) for name in re.findall(r"</svg> (.*?)</li>", one)] for one in lists]


def titles(svg: ElementTree.Element) -> list[str]:
    return [title.text or "" for title in svg.iter("title")]


def places(svg: ElementTree.Element) -> dict[str, tuple[float, float]]:
    """Title of a mark → where its shape is."""
    found = {}
    for group in svg.iter("g"):
        shape, title = group.find("path[last()]"), group.find("title")
        if title is not None and shape is not None:
            x, y = re.match(r"M([-\d.]+),([-\d.]+)", shape.get("d", "")).groups()  # type: ignore[union-attr]
            found[title.text or ""] = (float(x), float(y))
    return found


def test_a_sparkline_follows_its_values_and_marks_the_last() -> None:
    svg = parsed(sparkline("ratio <of> runs", [1, 3, 2]))
    assert svg.get("aria-label") == "ratio <of> runs"
    line = svg.find("polyline")
    assert line is not None
    points = [tuple(map(float, one.split(","))) for one in line.get("points", "").split()]
    heights = [y for _, y in points]
    assert heights[1] < heights[2] < heights[0]  # the largest is the highest
    dot = svg.find("circle")
    assert dot is not None and (float(dot.get("cx", "")), float(dot.get("cy", ""))) == points[-1]


def heights(values: list[float]) -> list[float]:
    line = parsed(sparkline("t", values)).find("polyline")
    assert line is not None
    return [float(one.split(",")[1]) for one in line.get("points", "").split()]


@pytest.mark.parametrize("values", [[11.93, 11.88], [1.327, 1.333], [-2.0, -2.01], [5, 5]])
def test_values_that_differ_within_noise_are_drawn_flat(values: list[float]) -> None:
    first, last = heights(values)
    assert abs(first - last) < 1.5 and abs((first + last) / 2 - SPARK_HEIGHT / 2) < 1


def test_values_that_change_use_the_height_of_a_sparkline() -> None:
    assert heights([1, 1.2]) == [SPARK_HEIGHT - 3, 3]


@given(st.lists(FLOAT, max_size=200))
def test_a_sparkline_stays_inside_and_small(values: list[float]) -> None:
    drawn = sparkline("t", values)
    finite = [value for value in values if math.isfinite(value)]
    assert bool(drawn) == bool(finite)
    if not drawn:
        return
    assert len(drawn) < 1_100
    numbers = re.findall(r"([\d.-]+),([\d.-]+)", drawn)
    assert len(numbers) <= SPARK_POINTS
    for x, y in numbers:
        assert 0 <= float(x) <= SPARK_WIDTH and 0 <= float(y) <= SPARK_HEIGHT


def test_a_sparkline_stands_in_a_cell_of_a_table() -> None:
    page = render(table(["A", "B"], [[sparkline("t | u", [1, 2]), "x"]]))
    assert [tag for tag, _ in page.elements].count("td") == 2
    assert ("svg", "t | u") in [(tag, given.get("aria-label")) for tag, given in page.elements]


def test_a_logarithmic_axis_has_equal_steps_for_equal_factors() -> None:
    points = [Point(1, 10, "a"), Point(10, 100, "b"), Point(100, 1000, "c")]
    drawn = plot("t", Axis("x", "log10"), Axis("y", "log10"), [Series("s", points)])
    at = places(parsed(drawn))
    assert at["b"][0] - at["a"][0] == pytest.approx(at["c"][0] - at["b"][0], abs=0.2)
    assert at["a"][1] - at["b"][1] == pytest.approx(at["b"][1] - at["c"][1], abs=0.2)
    assert at["a"][1] > at["c"][1]  # more is higher


def test_a_bar_reaches_from_the_low_to_the_high_quartile() -> None:
    points = [Point(1, 2, "a", 1, 4), Point(2, 1, "low"), Point(3, 4, "high")]
    svg = parsed(plot("t", Axis("x"), Axis("y", "log2"), [Series("s", points)]))
    at = places(svg)
    bar = svg.find(".//path[@class='kb-bar']")
    assert bar is not None
    low, high = re.match(r"M[\d.]+,([\d.]+)V([\d.]+)", bar.get("d", "")).groups()  # type: ignore[union-attr]
    assert float(low) == pytest.approx(at["low"][1], abs=0.1)
    assert float(high) == pytest.approx(at["high"][1], abs=0.1)


def test_the_ceiling_is_a_line_through_what_the_machine_allows() -> None:
    points = [
        Point(10, 10, "at the ceiling"),
        Point(100, 100, "there too"),
        Point(100, 200, "above"),
    ]
    svg = parsed(
        plot(
            "t", Axis("x", "log10"), Axis("y", "log10"), [Series("s", points)],
            ("ceiling", [(10, 10), (100, 100)]),
        )
    )  # fmt: skip
    (line,) = [one for one in svg.iter("polyline") if one.get("class") == "kb-ceiling"]
    ends = [tuple(map(float, one.split(","))) for one in line.get("points", "").split()]
    at = places(svg)
    assert ends == [at["at the ceiling"], at["there too"]]
    assert at["above"][1] < at["there too"][1]
    assert "ceiling" in titles(svg)


def test_series_differ_in_shape_and_not_in_colour_alone() -> None:
    count = 3 * SERIES
    series = [Series(f"s{n}", [Point(n + 1, n + 1, f"p{n}")]) for n in range(count)]
    svg = parsed(plot("t", Axis("x"), Axis("y"), series))
    groups = [group for group in svg.iter("g") if group.find("title") is not None]
    colours = [group.get("class") for group in groups]
    shapes = [re.sub(r"^M[^a-z]*", "", g.find("path").get("d", "")) for g in groups]  # type: ignore[union-attr]
    faces = [(g.find("path").get("class"), s) for g, s in zip(groups, shapes, strict=True)]  # type: ignore[union-attr]
    assert len(set(faces[-SERIES:])) == len(set(colours)) == SERIES  # the first are drawn last
    assert len(set(zip(colours, faces, strict=True))) == count


def test_points_that_lead_somewhere_are_links_in_a_group_and_others_an_image() -> None:
    linked = parsed(plot("t", Axis("x"), Axis("y"), [Series("s", [Point(1, 1, "a", to="r.html")])]))
    assert linked.get("role") == "group"
    (link,) = linked.iter("a")
    assert (link.get("href"), link.get("aria-label")) == ("r.html", "a")
    plain = parsed(plot("t", Axis("x"), Axis("y"), [Series("s", [Point(1, 1, "a")])]))
    assert plain.get("role") == "img" and not list(plain.iter("a"))


def test_values_without_a_logarithm_are_left_out() -> None:
    points = [Point(0, 1, "none"), Point(1, -1, "less"), Point(1, math.inf, "more")]
    assert plot("t", Axis("x", "log10"), Axis("y", "log10"), [Series("s", points)]) == ""
    drawn = plot("t", Axis("x", "log2"), Axis("y"), [Series("s", [*points, Point(2, 2, "ok")])])
    assert set(places(parsed(drawn))) == {"less", "ok"}


@given(
    st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=20), SCALE, SCALE, st.booleans()
)
def test_every_mark_of_a_plot_is_inside_it(
    values: list[tuple[float, float]], across: str, up: str, joined: bool
) -> None:
    points = [Point(x, y, f"p{n}", y / 2, y * 2) for n, (x, y) in enumerate(values)]
    axes = Axis("x", across), Axis("y", up)  # type: ignore[arg-type]
    svg = parsed(plot("t", *axes, [Series("s", points, joined)]))
    height = float(svg.get("viewBox", "").split()[3])
    at = places(svg)
    assert len(at) == len(points)
    for x, y in at.values():
        assert 0 <= x <= WIDTH and 0 <= y <= height
    for text in svg.iter("text"):
        assert 0 <= float(text.get("x", "0")) <= WIDTH
    assert len(list(svg.iter("text"))) < 60


def test_rows_put_values_to_scale_and_equal_ones_below_each_other() -> None:
    cases = [Row("one", {"a": Mark(1, "a 1"), "b": Mark(1, "b 1"), "c": Mark(8, "c 8")})]
    at = places(parsed(rows("t", Axis("x", "log2"), ["a", "b", "c"], cases, 2.0)))
    assert at["a 1"][0] == at["b 1"][0] < at["c 8"][0]
    assert at["a 1"][1] < at["b 1"][1] < at["c 8"][1]


def test_the_first_series_is_on_top() -> None:
    one = {name: Mark(1, name) for name in "abc"}
    drawn = [
        rows("t", Axis("x", "log2"), list("abc"), [Row("one", one)]),
        plot("t", Axis("x"), Axis("y"), [Series(name, [Point(1, 1, name)]) for name in "abc"]),
    ]
    for chart in drawn:
        marks = [title for title in titles(parsed(chart)) if title in one]
        assert marks == ["c", "b", "a"]  # what is drawn last is on top


def test_a_tall_chart_has_its_axis_and_its_legend_at_both_ends() -> None:
    def words(count: int) -> tuple[list[str], list[float], list[list[str]]]:
        cases = [Row(f"r{at}", {"ours": Mark(1 + at, "m")}) for at in range(count)]
        chart = rows("t", Axis("µs", "log2"), ["ours"], cases)
        assert chart.startswith("<div><ul") and chart.endswith("</ul></div>") == (count > 12)
        texts = [one for one in parsed(chart).iter("text") if one.get("class") != "kb-case"]
        ends = [float(one.get("y", "")) for one in texts]
        return [one.text or "" for one in texts], ends, legends(chart)

    said, places_of, keys = words(13)
    assert said.count("µs") == said.count("8") == 2 and keys == [["ours"]] * 2
    eight = [y for text, y in zip(said, places_of, strict=True) if text == "8"]
    assert max(eight) - min(eight) > 13 * 40
    assert words(12)[0].count("8") == 1 and words(12)[2] == [["ours"]]


def test_the_columns_of_a_legend_are_as_wide_as_the_longest_name() -> None:
    names = ["ours", "a name of 22 letters …", "<b>"]
    series = [Series(name, [Point(1, 1, "p")]) for name in [*names, "without a point"]]
    series[3] = series[3]._replace(points=[])
    chart = plot("t", Axis("x"), Axis("y"), series, ("ceiling", [(1, 1), (2, 2)]))
    assert legends(chart) == [[*names, "ceiling"]]
    assert 'style="--kb-name: 22ch"' in chart
    # It does not scroll with the chart.
    assert chart.index("</ul>") < chart.index('class="kb-chart')


def test_a_ceiling_far_off_is_an_arrow_at_the_edge() -> None:
    near = Row("near", {"a": Mark(8, "a 8")}, Mark(4, "ceiling 4"))
    far = Row("far", {"a": Mark(8.1, "a 8.1")}, Mark(0.01, "ceiling 0.01"))
    svg = parsed(rows("t", Axis("x", "log10"), ["a"], [near, far]))
    shapes = [
        path.get("d", "")
        for path in svg.iter("path")
        if path.get("class") == "kb-ceiling" and path.find("title") is not None
    ]
    assert [("l-8,8" in shape) for shape in shapes] == [False, True]
    assert {"ceiling 4", "ceiling 0.01"} <= set(titles(svg))


def test_without_values_there_is_no_chart() -> None:
    assert rows("t", Axis("x"), ["a"], [Row("one", {})]) == ""
    assert rows("t", Axis("x", "log10"), ["a"], [Row("one", {"a": Mark(0, "none")})]) == ""


@given(TEXT)
def test_names_in_charts_are_text(text: str) -> None:
    words = shown(text)
    drawn = plot(text, Axis(text), Axis(text), [Series(text, [Point(1, 1, text, to="x.html")])])
    drawn += rows(text, Axis(text), [text], [Row(text, {text: Mark(1, text)}, Mark(2, text))])
    page = fragment(drawn)
    assert {tag for tag, _ in page.elements} <= {
        "div", "svg", "g", "a", "path", "text", "title", "line", "polyline", "ul", "li",
    }  # fmt: skip
    for _, given_attributes in page.elements:
        assert not [name for name in given_attributes if name.startswith("on")]
        if "aria-label" in given_attributes:
            assert given_attributes["aria-label"] == words


@pytest.mark.parametrize(
    ("tex", "wanted"),
    [
        (r"x_j", "<msub><mi>x</mi><mi>j</mi></msub>"),
        (r"\frac{o}{l}", "<mfrac>"),
        (r"\sum_{j \in S} e^{x_j - m}", "∑"),
        (r"-\infty", "<mi>∞</mi>"),
        (r"\ln l", '<mi>ln</mi><mspace width="0.17em"></mspace><mi>l</mi>'),
        (r"\text{a < b}", "&#60;"),
    ],
)
def test_tex_is_rendered_as_mathml(tex: str, wanted: str) -> None:
    made = formula(tex, display=False)
    assert made.startswith("<math") and wanted in made


@pytest.mark.parametrize(
    "tex",
    [
        r"\href{javascript:alert(1)}{x}", r"\style{color:red}{x}", r"\class{a}{b}", r"\unknown{x}",
        "x_", "{" * 500, r"\left(x", "a & b", "x" * (maths.LONGEST + 1), "",
    ],
)  # fmt: skip
def test_tex_that_is_not_known_to_be_safe_stays_text(tex: str) -> None:
    page = fragment(formula(tex, display=True))
    assert [tag for tag, _ in page.elements] in (["div", "code"], ["div", "math", "mrow"])
    if tex:
        assert page.text == f"$${tex}$$"


@given(TEXT)
def test_a_formula_has_only_harmless_elements(text: str) -> None:
    page = fragment(formula(text, display=False))
    for tag, given_attributes in page.elements:
        assert tag in maths.ELEMENTS | {"code"}
        assert not set(given_attributes) & {"href", "style", "class", "src"}


def test_dollar_amounts_are_not_read_as_formulas() -> None:
    from kbtool.site.text.prose import rendered

    page = render(rendered("It cost $5 and then $6; $x_1$ is a formula.", "n", 3))
    assert "It cost $5 and then $6;" in page.text
    assert [tag for tag, _ in page.elements].count("math") == 1


SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><title>T &lt;b&gt;</title>{}</svg>'


def test_a_drawing_is_written_again_with_its_title_as_its_name() -> None:
    made = inlined(
        SVG.format('<g class="kb-line"><path d="M1,1h2"/><text x="1">a &amp; b</text></g>')
    )
    svg = parsed(made)
    assert (svg.get("role"), svg.get("aria-label")) == ("img", "T <b>")
    assert [text.text for text in svg.iter("text")] == ["a & b"]


@pytest.mark.parametrize(
    "inner",
    [
        "<script>alert(1)</script>", "<foreignObject/>", '<a href="x">x</a>', "<style>*{}</style>",
        '<image href="http://evil.example/x.png"/>', '<use href="#x"/>', '<rect onclick="x"/>',
        '<rect style="fill:red"/>', '<rect fill="url(#x)"/>', '<path d="url(http://e)"/>',
        '<g class="md-header"/>', '<g id="title"/>', '<animate attributeName="x"/>', "<text>",
        '<h:script xmlns:h="http://www.w3.org/1999/xhtml">alert(1)</h:script>',
    ],
)  # fmt: skip
def test_a_drawing_with_more_than_shapes_is_refused(inner: str) -> None:
    with pytest.raises(DrawingError):
        inlined(SVG.format(inner))


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE svg [<!ENTITY a "b">]>' + SVG.format(""),
        SVG.format("<!-- " + "x" * 70_000 + " -->"),
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"/>', "<svg/>", "no XML",
    ],
)  # fmt: skip
def test_a_file_that_is_no_svg_drawing_is_refused(text: str) -> None:
    with pytest.raises(DrawingError):
        inlined(text)


def linear(colour: str) -> list[float]:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def oklab(colour: str) -> list[float]:
    """A colour in Oklab, where a distance is about the difference that people see."""

    def times(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
        return [sum(a * b for a, b in zip(row, values, strict=True)) for row in rows]

    cones = times(
        [
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        ],
        linear(colour),
    )
    return times(
        [
            (0.2104542553, 0.7936177850, -0.0040720468),
            (1.9779984951, -2.4285922050, 0.4505937099),
            (0.0259040371, 0.7827717662, -0.8086757660),
        ],
        [math.cbrt(cone) for cone in cones],
    )


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        red, green, blue = linear(colour)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted([light(one), light(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("palette", "paper"), [(":root", "#ffffff"), ("slate", "#1e2129")])
def test_series_stand_out_from_the_paper_of_both_palettes(palette: str, paper: str) -> None:
    css = (Path(__file__).parents[2] / "kbtool/site/assets/charts.css").read_text()
    (body,) = re.findall(rf"{re.escape(palette)}[^{{}}]*{{([^}}]*--kb-series-1:[^}}]*)}}", css)
    tones = re.findall(r"--kb-series-\d+: (#[0-9a-f]{6});", body)
    assert len(set(tones)) == SERIES
    for tone in tones:
        assert contrast(tone, paper) >= 4.5, tone
    # Tones 0.07 apart in Oklab were taken for each other.
    nearest = min(combinations(map(oklab, tones), 2), key=lambda pair: math.dist(*pair))
    assert math.dist(*nearest) >= 0.1


def test_the_name_of_a_row_stands_clear_of_its_marks() -> None:
    names = [f"arm {number}" for number in range(SERIES)]
    case = Row("case", {name: Mark(2.0, name) for name in names})
    svg = parsed(rows("t", Axis("x", "log2"), names, [case, case]))
    labels = [float(one.get("y", "")) for one in svg.iter("text") if one.get("class") == "kb-case"]
    heights = [y for _, y in places(svg).values()]  # of the second row, which has the same titles
    assert labels[1] + 3 < min(heights) - 5.5  # what hangs below a line of text; half a mark
    assert labels[0] < labels[1] - 11 - 2 * 5.5


def test_the_line_that_marks_are_held_against_crosses_no_name() -> None:
    cases = [Row(name, {"a": Mark(2.0, name)}) for name in ("one", "two")]
    svg = parsed(rows("t", Axis("x", "log2"), ["a"], cases, 1.0))
    (line,) = (one.get("d", "") for one in svg.iter("path") if one.get("class") == "kb-reference")
    spans = [
        (float(top), float(top) + float(long))
        for top, long in re.findall(r"M[\d.]+,([\d.]+)v([\d.]+)", line)
    ]
    names = [float(one.get("y", "")) for one in svg.iter("text") if one.get("class") == "kb-case"]
    heights = [y for _, y in places(svg).values()]
    assert len(spans) == len(names) == len(heights) == 2
    for (top, foot), height in zip(spans, heights, strict=True):
        assert top < height < foot, "it stands beside the mark"
        assert not any(name - 11 < foot and top < name + 3 for name in names), "and beside no name"


def test_an_arrow_for_a_ceiling_is_explained() -> None:
    near, far = (Row("r", {"a": Mark(8.0, "a")}, Mark(at, "c")) for at in (7.0, 0.001))
    said = [legends(rows("t", Axis("x", "log2"), ["a"], [one])) for one in (near, far)]
    assert said == [[["a", "ceiling"]], [["a", "ceiling, < where it is beyond the axis"]]]
