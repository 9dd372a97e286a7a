"""Mathematics: TeX as MathML, which browsers set by themselves, with neither scripts nor fonts.

latex2mathml passes on links, styles and unescaped text, so what it makes is not taken as it is: it
is written again here, from elements and attributes that cannot do harm, every text escaped. TeX
that it does not know stays TeX.
"""

from __future__ import annotations

import html
from functools import lru_cache
from itertools import zip_longest
from xml.etree.ElementTree import Element

from kbtool.markdown.escape import attribute, attribute_line, raw

LONGEST = 2_000
"""Characters of a formula; the converter takes seconds over much longer ones."""

ELEMENTS = frozenset(
    {
        "math", "mrow", "mi", "mo", "mn", "mtext", "mspace", "ms", "msub", "msup", "msubsup",
        "munder", "mover", "munderover", "mfrac", "msqrt", "mroot", "mtable", "mtr", "mtd",
        "mpadded", "mphantom", "mstyle", "menclose", "mmultiscripts", "mprescripts",
    }
)  # fmt: skip
_ATTRIBUTES = frozenset(
    {
        "display", "displaystyle", "scriptlevel", "stretchy", "fence", "form", "separator",
        "lspace", "rspace", "width", "height", "depth", "mathvariant", "linethickness", "accent",
        "accentunder", "columnalign", "rowspacing", "columnspacing", "movablelimits", "largeop",
        "minsize", "maxsize", "symmetric", "notation",
    }
)  # fmt: skip


@lru_cache(maxsize=4096)
def formula(tex: str, display: bool) -> str:
    """``tex`` as HTML: MathML, or the TeX as text where it cannot be read.

    Args:
        tex: without its dollars.
        display: whether it stands on lines of its own.
    """
    written = _mathml(tex, display)
    if written is None:
        dollars = "$$" if display else "$"
        written = f"<code>{attribute(dollars + tex.strip() + dollars)}</code>"
    return f'<div class="kb-math" tabindex="0">{raw(written)}</div>' if display else raw(written)


def _mathml(tex: str, display: bool) -> str | None:
    from latex2mathml.converter import convert_to_element

    if len(tex) > LONGEST:
        return None
    try:
        found = convert_to_element(tex, display="block" if display else "inline")
        return _written(found)
    except Exception:  # anything may come out of a parser that is given anything
        return None


def _written(element: Element) -> str:
    """``element`` and what is in it as HTML; ``ValueError`` for what is not known to be safe."""
    # What links, styles or is no mathematics at all makes the whole formula text.
    if element.tag not in ELEMENTS:
        raise ValueError(element.tag)
    given = {name: value for name, value in element.attrib.items() if name != "xmlns"}
    if not set(given) <= _ATTRIBUTES:
        raise ValueError(str(given))
    text = html.unescape(element.text or "")
    if element.tag == "mi" and (text.startswith("\\") or text in {"&", "}", "{", "$"}):
        raise ValueError(f"{text} was not understood")
    attributes = "".join(f' {name}="{attribute(value)}"' for name, value in given.items())
    if element.tag == "math":
        attributes += " data-search-exclude"
    inner = attribute_line(text)
    for child, after in zip_longest(element, element[1:]):
        inner += _written(child)
        if _is_function(child) and after is not None and after.tag != "mo":
            inner += '<mspace width="0.17em"></mspace>'  # ln l, not lnl
    # An infinity is a quantity: after it, and before it, a minus is a sign.
    tag = "mi" if text == "∞" else element.tag
    return f"<{tag}{attributes}>{inner}</{tag}>"


def _is_function(element: Element) -> bool:
    text = element.text or ""
    return element.tag == "mi" and len(text) > 1 and text.isalpha() and text.isascii()
