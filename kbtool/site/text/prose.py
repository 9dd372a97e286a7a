"""Prose that people wrote beside records, shown as Markdown with its teeth drawn.

It is parsed here, by a CommonMark parser that takes no HTML, and put into the page as finished
HTML, which the site's own Markdown passes on untouched: no attribute lists, no snippets, no
templates, no raw tags, nothing loaded from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kbtool.markdown.escape import attribute, block, inline, raw
from kbtool.markdown.markup import heading, join, slug
from kbtool.model.prose import SCHEME
from kbtool.site.text.maths import formula

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Figure = Callable[[str], str | None]
File = Callable[[str], str | None]
Drawing = Callable[[str], str | None]


def _nowhere(_: str) -> None:
    return None


_SAFE_SCHEMES = ("http://", "https://", "mailto:")


def rendered(
    text: str,
    prefix: str,
    level: int,
    figure: Figure = _nowhere,
    file: File = _nowhere,
    drawing: Drawing = _nowhere,
) -> str:
    """``text``, untrusted Markdown, as blocks of a page.

    Args:
        text: the Markdown.
        prefix: what the anchors of its headings begin with.
        level: the level that its highest heading gets.
        figure: where a figure that the text takes from a record stands: what follows ``figure:`` in
            the target of its link → an address relative to the page, or ``None``. Nowhere if not
            given.
        file: where a file that the text links to, or names as code, has its page: the same.
        drawing: the HTML of an image that the text shows; ``None`` names the image instead.
    """
    tokens = _parser().parse(text)
    headings = [
        (token, _plain(tokens[position + 1].children or []))
        for position, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0
    ]
    highest = min((int(token.tag[1]) for token, _ in headings), default=1)
    anchors: dict[str, str] = {}
    for number, (_, title) in enumerate(headings, 1):
        anchors.setdefault(f"#{slug(title)}", f"#{prefix}-{number}")
    env = {"figure": figure, "file": file, "drawing": drawing, "anchors": anchors}
    blocks: list[str] = []
    pending: list[Token] = []
    position = count = 0
    while position < len(tokens):
        token = tokens[position]
        if token.type == "heading_open" and token.level == 0:
            blocks.append(_html(pending, env))
            pending = []
            count += 1
            depth = min(level + int(token.tag[1]) - highest, 6)
            blocks.append(heading(depth, inline(headings[count - 1][1]), f"{prefix}-{count}"))
            position += 3
            continue
        pending.append(token)
        position += 1
    blocks.append(_html(pending, env))
    return join(blocks)


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table"])
    # Dollars are money too: "$5 and $6" is no formula.
    dollarmath_plugin(parser, allow_labels=False, allow_space=False, allow_digits=False)
    for rule in ("math_inline", "math_block"):
        parser.add_render_rule(rule, _math)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("heading_open", _nested_heading)
    parser.add_render_rule("heading_close", _nested_heading)
    parser.add_render_rule("code_inline", _code)
    parser.add_render_rule("link_open", _link_open)
    parser.add_render_rule("link_close", _link_close)
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("code_block", _fence)
    return parser


def _html(tokens: Sequence[Token], env: dict[str, Any]) -> str:
    if not tokens:
        return ""
    parser = _parser()
    markup = parser.renderer.render(tokens, parser.options, env)
    return f'<div class="kb-prose">{raw(_without_controls(markup))}</div>'


def _without_controls(markup: str) -> str:
    return "".join(c for c in markup if c >= " " or c == "\n")


def _plain(children: Sequence[Token]) -> str:
    return "".join(
        " " if child.type in {"softbreak", "hardbreak"} else child.content for child in children
    )


def _nested_heading(self: Any, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
    """A heading inside a quotation or a list is not one of the page's own."""
    return "<h6>" if tokens[idx].nesting == 1 else "</h6>"


def _image(self: Any, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
    """A page loads nothing that is not its own: an image is put in as a drawing, or named."""
    token = tokens[idx]
    drawn: str | None = env["drawing"](unquote(str(token.attrs.get("src", ""))))
    if drawn is not None:
        return drawn
    about = attribute(_plain(token.children or []) or "no description")
    return f"<em>[image: {about}, {attribute(token.attrs.get('src', ''))}]</em>"


def _link_open(self: Any, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
    target = str(tokens[idx].attrs.get("href", ""))
    if target.lower().startswith(_SAFE_SCHEMES):
        return f'<a href="{attribute(target)}" rel="noopener noreferrer">'
    stands_at = _stands_at(target, env)
    if stands_at is not None:
        return f'<a href="{attribute(stands_at)}">'
    # Relative to a source file, which is not where the page is.
    return f'<span class="kb-file" title="{attribute(target)}">'


def _stands_at(target: str, env: Any) -> str | None:
    """The page of a figure or of a file, or a heading of this text."""
    if target.startswith("#"):
        anchor: str | None = env["anchors"].get(unquote(target))
        return anchor
    find = env["figure"] if target.startswith(SCHEME) else env["file"]
    found: str | None = find(unquote(target.removeprefix(SCHEME)))
    return found


def _link_close(self: Any, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
    depth = 0
    for token in reversed(tokens[:idx]):
        if token.type == "link_close":
            depth += 1
        elif token.type == "link_open":
            if depth == 0:
                target = str(token.attrs.get("href", ""))
                safe = target.lower().startswith(_SAFE_SCHEMES)
                return "</a>" if safe or _stands_at(target, env) is not None else "</span>"
            depth -= 1
    return "</span>"


def _fence(self: Any, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
    return block(tokens[idx].content)


def _math(self: Any, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
    return formula(tokens[idx].content, tokens[idx].type == "math_block")


def _code(self: Any, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
    """Code inside a line; the name of a file that has a page leads there."""
    content = tokens[idx].content
    stands_at: str | None = env["file"](content)
    inside_link = sum(token.type == "link_open" for token in tokens[:idx]) != sum(
        token.type == "link_close" for token in tokens[:idx]
    )
    if stands_at is None or inside_link:
        return f"<code>{attribute(content)}</code>"
    return f'<a href="{attribute(stands_at)}"><code>{attribute(content)}</code></a>'
