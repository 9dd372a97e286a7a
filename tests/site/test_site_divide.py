"""Heavy pages are cut into parts: nothing is lost, and every link finds its place."""

from __future__ import annotations

import re
from html import unescape

import pytest
from markdown.extensions.toc import slugify  # type: ignore[import-untyped]

from kbtool.site import divide
from kbtool.site.divide import BUDGET, divided, weight
from kbtool.site.markup import slug, stacked_table

FRONT = (
    '---\ntitle: "A"\nhide:\n  - navigation\ntags:\n  - "t"\ntag_pages:\n  "t": "x.html"\n'
    'twin: "a.json"\n---\n\n'
)
LONG = "\n\n".join(["word " * 200] * 8)


def sections(*names: str, level: int = 2) -> str:
    return "\n\n".join(f"{'#' * level} {n.upper()} {{#{n}}}\n\n{n} begins\n\n{LONG}" for n in names)


HEAVY = f"{FRONT}# A {{#title}}\n\nintro, [c](#c)\n\n{sections('b', 'c', 'd', 'e')}\n"


def test_a_light_page_stays_as_it_is() -> None:
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
    assert second.startswith('---\ntitle: "A, part 2"\nhide:\n  - navigation\n---\n')
    assert "# A, part 2 {#title}" in second
    assert "In 2 parts: **B … C** · [D … E](a~d.md)" in first
    assert "In 2 parts: [B … C](a.md) · **D … E**" in second
    assert "Goes on with [D … E](a~d.md){ .kb-next }." in first
    assert "Goes on" not in second


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
    assert "### Z {#z}" in made["a~z.md"]


def test_a_long_table_is_cut_between_rows() -> None:
    rows = [[f"row {n} {'word ' * 30}", str(n)] for n in range(300)]
    table = stacked_table(["What", "Many"], rows, {1}, filtered=True)
    made = divided({"a.md": f"# A\n\n## B {{#b}}\n\nbefore\n\n{table}\n\nafter\n"})
    assert len(made) > 2
    assert list(made)[:2] == ["a.md", "a~b-2.md"]
    shown = "\n".join(made.values())
    assert re.findall(r"^\| .*row (\d+) ", shown, re.M) == [str(n) for n in range(300)]
    for text in made.values():
        assert weight(text) < BUDGET + 1_000
        assert text.count("| What | Many |\n| --- | ---: |") == 1
        assert text.count('<div class="kb-stack" data-kb-filter markdown="block">') == 1
        assert text.count("</div>") == 1
    assert [("before" in text, "after" in text) for text in made.values()] == [
        (number == 0, number == len(made) - 1) for number in range(len(made))
    ]


def test_what_is_no_heading_is_no_place_to_cut() -> None:
    code = "```sh\n## no heading\n" + "echo word word word\n" * 2_000 + "```"
    assert list(divided({"a.md": f"# A\n\n{code}\n"})) == ["a.md"]


def test_a_page_may_say_itself_where_it_may_be_cut() -> None:
    pieces = [f"{divide.mark(f'L{n}', f'Lines {n}')}\n\n<pre>{LONG}{LONG}</pre>" for n in (1, 9)]
    made = divided({"a.md": "# A {#title}\n\n" + "\n\n".join(pieces)})
    assert list(made) == ["a.md", "a~L9.md"]
    assert "**Lines 1** · [Lines 9](a~L9.md)" in made["a.md"]
    assert not any("<!--" in text for text in made.values())


def test_a_last_part_of_little_stays_where_it_is() -> None:
    little = HEAVY.partition("## D")[0] + "## D {#d}\n\nlittle\n\n## E {#e}\n\nlittle\n"
    assert weight(little) < BUDGET
    assert list(divided({"a.md": little.replace("b begins", "word " * 770)})) == ["a.md"]


@pytest.mark.parametrize("words", ["Right or wrong", "Q, K, V", "Why <x>?", "Größe – a_b", "A  B"])
def test_a_heading_without_an_anchor_has_the_one_that_markdown_makes(words: str) -> None:
    assert slug(words) == slugify(words, "-")
