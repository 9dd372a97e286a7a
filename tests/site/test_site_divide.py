"""Large pages are split into parts without losing text, and links lead to the right part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape

import pytest
from markdown.extensions.toc import slugify  # type: ignore[import-untyped]
from site_html import Site

from kbtool.markdown.markup import folded, slug, stacked_table
from kbtool.site.html import divide
from kbtool.site.html.divide import BUDGET, divided, weight

FRONT = (
    '---\ntitle: "A"\nhide:\n  - navigation\ntags:\n  - "t"\ntag_pages:\n  "t": "x.html"\n'
    'twin: "a.json"\n---\n\n'
)
LONG = "\n\n".join(["word " * 200] * 8)


def sections(*names: str, level: int = 2) -> str:
    return "\n\n".join(f"{'#' * level} {n.upper()} {{#{n}}}\n\n{n} begins\n\n{LONG}" for n in names)


HEAVY = f"{FRONT}# A {{#title}}\n\nintro, [c](#c)\n\n{sections('b', 'c', 'd', 'e')}\n"


def test_a_small_page_is_not_split() -> None:
    pages = {"a.md": "# A\n\n## B {#b}\n\ntext [b](#b)\n", "c.md": "# C\n\n[b](a.md#b)\n"}
    assert divided(pages) == pages


def test_every_section_is_on_one_part_and_no_part_is_heavy() -> None:
    made = divided({"f/a.md": HEAVY})
    assert list(made) == ["f/a.md", "f/a~d.md"]
    for name, part in {"b": 0, "c": 0, "d": 1, "e": 1}.items():
        assert [f"{name} begins" in text for text in made.values()] == [part == 0, part == 1]
    assert all(weight(text) < BUDGET + 2_000 for text in made.values())


def test_a_part_is_a_page_of_its_own_and_says_where_the_others_are() -> None:
    first, second = divided({"f/a.md": HEAVY}).values()
    assert first.startswith(FRONT) and "# A {#title}" in first
    assert second.startswith('---\ntitle: "A: D"\nhide:\n  - navigation\n---\n')
    assert "# A: D {#title}" in second
    assert "Part 1 of 2:" in first
    assert "- **[B](#b)** · **[C](#c)**\n- [D](a~d.md#d) · [E](a~d.md#e)\n" in first
    assert "Part 2 of 2 of [A](a.md):" in second
    assert "- [B](a.md#b) · [C](a.md#c)\n- **[D](#d)** · **[E](#e)**\n" in second
    assert "Goes on with [D](a~d.md){ .kb-next }." in first
    assert "Goes on" not in second


def titles(made: Mapping[str, str]) -> list[str]:
    return [re.findall("^# (.*)", text, re.MULTILINE)[0] for text in made.values()]


def test_a_part_is_named_after_its_first_heading_and_the_one_above_where_two_are_alike() -> None:
    heads = (
        "### <code>X</code> {#x}",
        "### Only <i>Y</i> {#y}",
        "## C {#c}\n\n### <code>X</code> {#cx}",
    )
    text = "\n\n".join(f"{head}\n\n{LONG}\n\n{LONG}" for head in (*heads, "### [Z](z.md) {#z}"))
    made = divided({"a.md": f"{FRONT}# A\n\n## B {{#b}}\n\n{LONG}\n\n{text}\n"})
    assert titles(made) == [
        "A", "A: B › <code>X</code>", "A: Only <i>Y</i>", "A: C › <code>X</code>", "A: Z",
    ]  # fmt: skip
    named = [text.split('"')[1] for text in made.values()]
    assert named == ["A", "A: B › X", "A: Only Y", "A: C › X", "A: Z"]
    assert (
        "- [B](a.md#b): **[<code>X</code>](#x)** · [Only <i>Y</i>](a~y.md#y)\n"
        "- [C](a~y.md#c): [<code>X</code>](a~cx.md#cx) · [Z](a~z.md#z)\n"
    ) in made["a~x.md"]  # a link in a link is none


def test_the_name_of_a_part_is_no_longer_than_one_can_read() -> None:
    long = f"<code>{'word ' * 60}&#60;x&#62;</code>"
    made = divided({"a.md": f"{FRONT}# A\n\n{sections('b', 'c')}\n\n## {long} {{#d}}\n\n{LONG}"})
    short = f"{'word ' * 20}…"
    assert f'title: "A: {short}"' in made["a~d.md"] and f"# A: {short}\n" in made["a~d.md"]
    assert f"[{short}](a~d.md#d)" in made["a.md"]
    assert f"## {long} {{#d}}" in made["a~d.md"]


def test_continued_sections_are_titled_continued() -> None:
    made = divided({"a.md": f"# A\n\n## B {{#b}}\n\n{table(600)}\n\n### C {{#c}}\n\n{table(300)}"})
    named = [title.removeprefix("A: ") for title in titles(made)]
    assert named[:4] == ["A", "B, continued", "B, continued (2)", "B, continued (3)"]
    assert named[-1].startswith("C, continued") and len({*named}) == len(named)
    assert "**[B](#b)**: [continued](a~b-2.md#b-2) · [continued (2)](a~b-3.md#b-3)" in made["a.md"]


def test_headings_are_as_deep_as_they_are_nested_on_their_part() -> None:
    deep = sections("u", "v", "w", "x", level=4).replace("#### V", "##### V")
    code = "```sh\n#### no heading\n```"
    made = divided(
        {"a.md": f"# A\n\n## B {{#b}}\n\n### C {{#c}}\n\n{deep}\n\n{code}\n\n## D {{#d}}"}
    )
    levels = {
        path: re.findall(r"^(#+) (\w)", text, re.MULTILINE)[1:] for path, text in made.items()
    }
    assert levels["a.md"] == [("##", "B"), ("###", "C"), ("####", "U"), ("#####", "V")]
    assert levels["a~w.md"][:2] == [("##", "W"), ("##", "X")]
    assert levels["a~w.md"][-1] == ("##", "D")
    assert code in made["a~w.md"]


def test_a_long_list_of_parts_names_what_parts_begin_with() -> None:
    many = sections("b", "c", "d") + "\n\n### {0} {{#{0}}}\n\n".join(["", *map(str, range(300))])
    made = divided({"a.md": f"# A\n\n{many}"})
    for text in made.values():
        listed = text.partition("<nav")[2].partition("</nav>")[0]
        assert all(name in listed for name in ("[B]", "[C]", "[D]"))
        assert all(f"{page}#" in text for page in made if made[page] != text)
        assert weight(listed) < BUDGET // 8


def test_links_lead_to_the_part_that_has_the_anchor() -> None:
    html = '<a href="{0}a.html#e">x</a> <a href="{0}a.html&#35;b">x</a> <a href="#x">x</a>'
    made = divided(
        {
            "f/a.md": HEAVY.replace("d begins", "[b](#b) [e](#e) [page](a.md)"),
            "g/o.md": f"[d](../f/a.md#d) [b](../f/a.md#b) [o](#d)\n\n{html.format('../f/')}\n",
        }
    )
    assert "intro, [c](#c)" in made["f/a.md"]
    assert "[b](a.md#b) [e](#e) [page](a.md)" in made["f/a~d.md"]
    assert unescape(made["g/o.md"]) == (
        "[d](../f/a~d.md#d) [b](../f/a.md#b) [o](#d)\n\n"
        '<a href="../f/a~d.html#e">x</a> <a href="../f/a.html#b">x</a>'
        ' <a href="#x">x</a>\n'
    )


def test_a_section_that_is_heavy_itself_is_cut_at_its_own_headings() -> None:
    inner = sections("x", "y", "z", level=3)
    made = divided({"a.md": f"# A\n\n## B {{#b}}\n\n{inner}\n"})
    assert list(made) == ["a.md", "a~z.md"]
    assert "## Z {#z}" in made["a~z.md"]


def table(rows: int, name: str = "row") -> str:
    lines = [[f"{name} {n} {'word ' * 30}", str(n)] for n in range(rows)]
    return stacked_table(["What", "Many"], lines, {1}, filtered=True)


@pytest.mark.parametrize("rows", [300, 240, 710])
def test_a_long_table_is_cut_between_rows(rows: int) -> None:
    made = divided({"a.md": f"# A\n\n## B {{#b}}\n\nbefore\n\n{table(rows)}\n\nafter\n"})
    assert len(made) > 2
    assert list(made)[:2] == ["a.md", "a~b-2.md"]
    shown = "\n".join(made.values())
    assert re.findall(r"^\| .*row (\d+) ", shown, re.M) == [str(n) for n in range(rows)]
    for text in made.values():
        assert weight(text) < BUDGET + 1_000
        assert text.count("| What | Many |\n| --- | ---: |") == 1
        assert text.count('<div class="kb-stack" data-kb-filter markdown="block">') == 1
        assert text.count("</div>") == 1
    assert [("before" in text, "after" in text) for text in made.values()] == [
        (number == 0, number == len(made) - 1) for number in range(len(made))
    ]


def test_two_long_tables_under_one_heading_are_cut_into_parts_of_their_own() -> None:
    both = f"{table(200)}\n\n{table(300, 'line')}"
    made = divided({"a.md": f"# A\n\n## B {{#b}}\n\n{both}\n\n## C {{#c}}\n\nlast\n"})
    shown = "\n".join(made.values())
    for name, rows in (("row", 200), ("line", 300)):
        assert re.findall(rf"^\| .*{name} (\d+) ", shown, re.M) == [str(n) for n in range(rows)]
    anchors = re.findall(r"\{#(b[-\d]*)\}", shown)
    assert len({*anchors}) == len(anchors) >= 5


def test_what_follows_a_long_table_is_not_on_a_part_that_its_rows_fill() -> None:
    made = divided({"a.md": f"# A\n\n## B {{#b}}\n\n{table(95)}\n\n{LONG}\n\nafter\n"})
    assert all(weight(text) < BUDGET + 1_000 for text in made.values())
    assert [("row" in text, "after" in text) for text in made.values()] == [
        (True, False), (False, True),
    ]  # fmt: skip


def test_a_chart_before_a_table_that_is_cut_is_on_the_first_part_alone() -> None:
    chart = '<div class="kb-chart kb-plot" tabindex="0"><svg role="img">drawn</svg></div>'
    made = divided(
        {"a.md": f"# A\n\n## B {{#b}}\n\n{chart}\n\n{chart}\n\n{folded('Rows', table(250))}\n"}
    )
    assert [text.count("drawn") for text in made.values()] == [2, *[0] * (len(made) - 1)]
    assert all(text.count("<summary>Rows</summary>") == 1 for text in made.values())


def test_a_drawing_counts_towards_the_size_and_a_chart_does_not() -> None:
    drawing = f'<svg role="img">{"x" * 500}</svg>'
    assert weight(drawing) > 500
    assert weight(f'<div class="kb-chart" tabindex="0">{drawing}</div>') < 100


def test_coloured_code_weighs_several_times_its_text() -> None:
    code = "a = f(b, 1)\n" * 100
    assert weight(f"```python\n{code}```") > 5 * len(code) > 2 * weight(f"```text\n{code}```")


def test_code_that_looks_like_a_heading_is_no_place_to_split() -> None:
    code = "```sh\n## no heading\n" + "echo word word word\n" * 2_000 + "```"
    assert list(divided({"a.md": f"# A\n\n{code}\n"})) == ["a.md"]


def test_a_page_may_say_itself_where_it_may_be_cut() -> None:
    pieces = [f"{divide.mark(f'L{n}', f'Lines {n}')}\n\n<pre>{LONG}{LONG}</pre>" for n in (1, 9)]
    made = divided({"a.md": "# A {#title}\n\n" + "\n\n".join(pieces)})
    assert list(made) == ["a.md", "a~L9.md"]
    assert "- **[Lines 1](#L1)**\n- [Lines 9](a~L9.md#L9)\n" in made["a.md"]
    assert not any("<!--" in text for text in made.values())


def test_a_short_last_section_is_not_split_off() -> None:
    little = HEAVY.partition("## D")[0] + "## D {#d}\n\nlittle\n\n## E {#e}\n\nlittle\n"
    assert weight(little) < BUDGET
    assert list(divided({"a.md": little.replace("b begins", "word " * 770)})) == ["a.md"]


@pytest.mark.parametrize("words", ["Right or wrong", "Q, K, V", "Why <x>?", "Größe – a_b", "A  B"])
def test_a_heading_without_an_anchor_has_the_one_that_markdown_makes(words: str) -> None:
    assert slug(words) == slugify(words, "-")


def test_no_heading_of_the_site_skips_a_level_and_no_two_parts_have_one_title(
    real_site: Site,
) -> None:
    told = []
    for path, page in real_site.pages.items():
        above = 0
        for tag, _ in page.elements:
            if re.fullmatch("h[1-6]", tag):
                assert int(tag[1]) <= above + 1, path
                above = int(tag[1])
        told += [page.title] if "~" in path else []
    assert len({*told}) == len(told) > 50
