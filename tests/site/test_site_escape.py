"""Text from a record shows as text, wherever it is put."""

from __future__ import annotations

import html
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_html import Page, fragment
from site_trees import ATTACK

from kbtool.markdown import escape, markup
from kbtool.site.text import maths
from kbtool.site.text.prose import rendered

TRICKY = st.sampled_from(
    [
        "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</td></tr>", "-->", "<!--",
        "[a](javascript:alert(1))", "![a](http://e.example/x.png)", "[a]: http://e.example", "[a]",
        "|", "||", "---", "===", "***", "# ", "> ", "- ", "+ ", "1. ", "12) ", "!!! note", "??? x",
        "```", "~~~", "`", "``", "    ", "\t", "\n", "\n\n", "\r", "\u2028", "\u202e", "\x00",
        "\x02", "\x03", "\x02wzxhzdk:0\x03", "\x02klzzwxh:0000\x03", "&lt;", "&#60;", "&",
        "{{ 7*7 }}", "{% raw %}", "{: .x #y onclick=z }", "{#id}", "*", "_", "__", "~~", "^^", "==",
        "\\", "$$", ":smile:", "http://e.example", "<http://e.example>", "a@e.example", "[^1]",
        "[^1]: x", "*[x]: y", "--8<-- \"x\"", "[TOC]", "</p>", "</div>", '"', "'", "=", ":   x",
        "é", "…", "\ud800", "\ufeff", "$", "$x_1$", "$\\href{javascript:alert(1)}{x}$", "\\text{",
        "$\\text{<script>alert(1)</script>}$", "$\\class{x}{y}$", "$$\n\\style{color:red}{x}\n$$",
    ]
)  # fmt: skip
TEXT = st.lists(st.one_of(TRICKY, st.text(max_size=8)), max_size=8).map("".join)


@cache
def _markdown() -> Any:
    import markdown
    from mkdocs.config import load_config

    own = Path(__file__).parents[2] / "mkdocs.yml"
    config = load_config(str(own), docs_dir=str(own.parent / "docs"))
    return markdown.Markdown(
        extensions=config.markdown_extensions, extension_configs=config.mdx_configs
    )


def render(source: str) -> Page:
    parser = _markdown()
    parser.reset()
    return fragment(parser.convert(source))


def tags(page: Page) -> list[str]:
    return [tag for tag, _ in page.elements]


def shown(text: str) -> str:
    """What is to be read on the page: the hidden and the unprintable named, spaces made one."""
    visible = re.sub(
        "[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]",
        lambda match: f"‹U+{ord(match[0]):04X}›",
        " ".join(text.split()),
    )
    return re.sub("[\x00-\x1f\x7f-\x9f\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", visible)


def read(page: Page) -> str:
    return " ".join(page.text.split())


@given(TEXT)
def test_inline_text_is_escaped(text: str) -> None:
    page = render(f"before {escape.inline(text)} after")
    assert tags(page) == ["p"]
    assert read(page) == " ".join(f"before {shown(text)} after".split())


@given(TEXT)
def test_inline_text_opens_no_markdown_block(text: str) -> None:
    page = render(escape.inline(text))
    assert tags(page) == (["p"] if shown(text) else [])
    assert read(page) == shown(text)


@given(TEXT)
def test_a_cell_is_text(text: str) -> None:
    cell = escape.inline(text)
    page = render(markup.table(["A", "B"], [["x", cell], [cell, "y"]]))
    # A long cell is wrapped in a span that gives it room.
    assert [tag for tag in tags(page) if tag != "span"] == [
        "table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td", "tr", "td", "td",
    ]  # fmt: skip
    assert read(page) == " ".join(f"A B x {shown(text)} {shown(text)} y".split())


@given(TEXT)
def test_a_heading_is_text(text: str) -> None:
    page = render(markup.heading(2, escape.inline(text), "costs.a_b"))
    assert tags(page) == ["h2", "a"]
    assert page.ids == {"costs.a_b"}
    assert read(page).removesuffix("¶") == (shown(text) or "–")


@given(TEXT)
def test_a_link_keeps_its_target(text: str) -> None:
    page = render(f"see [{escape.inline(text) or '–'}](sessions/x.md#y) there")
    assert tags(page) == ["p", "a"]
    assert page.links == ["sessions/x.md#y"]
    assert read(page) == f"see {shown(text) or '–'} there"


@given(TEXT)
def test_text_is_escaped_in_lists_cards_boxes_and_code(text: str) -> None:
    line = escape.inline(text)
    assert tags(render(markup.bullets([f"x {line}"]))) == ["ul", "li"]
    page = render(markup.facts([("Status", f"x {line}")]))
    assert tags(page) == ["div", "p", "small", "br"]
    assert tags(render(markup.admonition("danger", "Title", f"x {line}"))) == ["div", "p", "p"]
    page = render(f"x {escape.code(text)} y")
    assert tags(page) == ["p", "code"]
    assert read(page) == " ".join(f"x {shown(text)} y".split())


@given(TEXT)
def test_paragraphs_are_text(text: str) -> None:
    page = render(escape.prose(text))
    assert set(tags(page)) <= {"p", "br"}
    assert "".join(page.text.split()) == "".join(shown(text).split())


@given(TEXT)
def test_a_block_keeps_every_space(text: str) -> None:
    page = render(f"before\n\n{escape.block(text)}\n\nafter")
    assert tags(page) == ["p", "pre", "code", "p"]
    assert _solid(page.text) == _solid(f"before{text}after")


def _solid(text: str) -> str:
    """Without white space, and without the marks that stand for what cannot be printed."""
    named = re.sub(r"‹U\+[0-9A-F]{4}›", "", shown(text))
    return re.sub("[\\s\ufffd\u061c\u200b-\u206f\ufeff]", "", named)


def test_a_block_keeps_indentation() -> None:
    page = render(escape.block("if x:\n    y = 1\n\n\tz"))
    assert page.text == "if x:\n    y = 1\n\n\tz"


@given(TEXT)
def test_an_attribute_stays_inside_its_quotes(text: str) -> None:
    page = fragment(f'<span title="{escape.attribute(text)}">x</span>')
    assert page.elements == [("span", {"title": shown(text)})]
    assert html.unescape(escape.attribute("a'b\"c")) == "a'b\"c"


PROSE_TAGS = {
    "p", "em", "strong", "ul", "ol", "li", "code", "pre", "h3", "h4", "h5", "h6", "blockquote",
    "table", "thead", "tbody", "tr", "th", "td", "hr", "br", "a", "div", "span",
} | maths.ELEMENTS  # fmt: skip


@given(TEXT)
def test_prose_has_only_harmless_elements(text: str) -> None:
    page = render(f"before\n\n{rendered(text, 'notes', 3)}\n\nafter")
    _harmless(page)
    assert page.text.startswith("before") and page.text.endswith("after")


def _harmless(page: Page) -> None:
    for tag, given_attributes in page.elements:
        assert tag in PROSE_TAGS
        assert not [name for name in given_attributes if name.startswith("on")]
    for link in page.links:
        assert link.startswith(("http://", "https://", "mailto:", "#"))
    assert not page.resources


def test_prose_keeps_markdown_and_drops_scripts_and_remote_images() -> None:
    page = render(
        rendered(
            "---\ntitle: x\n---\n# One\n\ntext **bold** <b onclick=x>raw</b>\n\n## Two {: .x }\n\n"
            "```python\na < b\n\nc\n```\n\n| a | b |\n|---|---|\n| {{ 7*7 }} | <td> |\n\n"
            "[good](https://a.example) [bad](javascript:alert(1)) [file](../src/a.cu)\n"
            "![alt](http://evil.example/x.png)\n\n    code\n\n\n    more <i>\n" + ATTACK,
            "notes",
            3,
        )
    )
    _harmless(page)
    assert {"notes-1", "notes-2"} <= page.ids
    assert "https://a.example" in page.links
    for expected in ("<b onclick=x>raw</b>", "{{ 7*7 }}", "a < b", "more <i>", "[image: alt"):
        assert expected in page.text
    assert ("h3", {"id": "notes-2"}) in page.elements


def test_a_link_to_a_heading_of_the_same_text_leads_there() -> None:
    text = "# A: *what* it is\n\n[there](#limits-of-a) [here](#a-what-it-is) [no](#gone)\n\n"
    text += "## Limits of `a`\n\nfew\n\n## Limits of `a`\n\nmore"
    page = render(rendered(text, "about", 3))
    assert ("a", {"href": "#about-2"}) in page.elements
    assert ("a", {"href": "#about-1"}) in page.elements
    assert {"about-1", "about-2", "about-3"} <= page.ids
    assert ("span", {"class": "kb-file", "title": "#gone"}) in page.elements


@pytest.mark.parametrize("name", ["bugs._x_.y", "measurements.a__b", "a_b", "x-_y"])
def test_an_anchor_with_underscores(name: str) -> None:
    assert name in render(markup.heading(3, "x", name)).ids
