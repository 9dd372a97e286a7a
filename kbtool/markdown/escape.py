"""Text from a record becomes text on a page, whatever it contains.

Three languages meet in a page: Markdown, HTML, and the templates around it. A character that means
something in any of them is written as a numeric character reference, which means nothing in all
three and shows as itself. This is the only module that decides what is safe.
"""

from __future__ import annotations

import re

from kbtool.markdown.figures import figure
from kbtool.model.prose import plain

_HIDDEN = "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
"""Characters that change how the text around them is read, and do not show."""

_UNSAFE = re.compile(
    # ASCII, less what no extension gives a meaning inside a line; controls; surrogates; the hidden.
    rf"[\x00-\x1f!-$&*:<-@\[-`{{-\x9f\ud800-\udfff{_HIDDEN}]"
)

_START = re.compile(r"(\d*)([.)+\-])")
"""At the beginning of a block these open a list or draw a rule."""


def inline(value: object) -> str:
    """``value`` as one line of text, for a paragraph, a table cell, a heading or a link.

    A figure that it takes from a record shows as the figure; ``kbtool.site.text.quoted`` links it.
    """
    words = " ".join(plain(figure(value)).split())
    start = _START.match(words)
    escaped = _UNSAFE.sub(_written, words)
    if start:
        # "1." and "-" open a list only where a block begins; there is no telling where this goes.
        at = start.start(2)
        escaped = f"{escaped[:at]}&#{ord(words[at])};{escaped[at + 1 :]}"
    return escaped


def prose(value: object) -> str:
    """``value`` as paragraphs; a single line break is kept."""
    paragraphs = re.split(r"\n[ \t]*\n", str(value).strip())
    return "\n\n".join(
        "<br>".join(line for line in map(inline, paragraph.splitlines()) if line)
        for paragraph in paragraphs
        if paragraph.strip()
    )


def code(value: object) -> str:
    """``value`` in the type of code, inside a line."""
    return f"<code>{inline(value)}</code>"


def block(value: object) -> str:
    """``value`` as a block of code, every space and line break kept.

    One line of HTML: there is no fence to close and no line to begin something on.
    """
    lines = "&#10;".join(map(attribute_line, re.split(r"\r\n?|\n", str(value).rstrip())))
    return f'<pre class="kb-block"><code>{lines}</code></pre>'


def attribute(value: object) -> str:
    """``value`` inside a quoted HTML attribute, or as text in raw HTML."""
    return attribute_line(" ".join(str(value).split()))


def attribute_line(line: str) -> str:
    """Like ``attribute``, with the spaces as they are."""
    return _UNSAFE.sub(_written, line).replace("'", "&#39;")


def raw(markup: str) -> str:
    """HTML that is safe already, made one line that Markdown passes on as it is."""
    return markup.strip().replace("\n", "&#10;")


def _written(match: re.Match[str]) -> str:
    char = match[0]
    if char == "\t" or " " < char < "\x7f":
        return f"&#{ord(char)};"
    if char < "\xa0" or "\ud800" <= char <= "\udfff":
        # Python-Markdown keeps its own placeholders between control characters.
        return "\N{REPLACEMENT CHARACTER}"
    return f"‹U+{ord(char):04X}›"
