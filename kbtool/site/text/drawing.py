"""Drawings: an SVG file of the knowledge base, put into a page so that it follows the palette.

An SVG is a document that can run scripts, load files and restyle the page. What is put in is
written again from shapes and words; a drawing with anything else is not shown at all.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from kbtool.markdown.escape import attribute, attribute_line, raw

LARGEST = 64 << 10
"""Characters of a drawing."""

_SHAPES = frozenset(
    {"svg", "g", "path", "rect", "line", "polyline", "polygon", "circle", "ellipse", "text",
     "tspan", "title", "desc"}
)  # fmt: skip
_NUMBERS = frozenset(
    {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "ry", "dx", "dy", "width", "height",
     "d", "points", "transform", "viewBox", "stroke-width", "stroke-dasharray", "font-size",
     "font-weight", "opacity"}
)  # fmt: skip
_WORDS = {
    "fill": {"none", "currentColor"},
    "stroke": {"none", "currentColor"},
    "text-anchor": {"start", "middle", "end"},
    "dominant-baseline": {"middle", "hanging", "central", "auto"},
    "stroke-linecap": {"round", "butt", "square"},
    "stroke-linejoin": {"round", "bevel", "miter"},
    "font-style": {"italic", "normal"},
    "role": {"img"},
}
_NUMERIC = re.compile(r"[-+0-9.,\sA-Za-z()%]*")
_CLASS = re.compile(r"kb-[a-z0-9-]+( kb-[a-z0-9-]+)*")
_SVG = "{http://www.w3.org/2000/svg}"


class DrawingError(ValueError):
    """Why a drawing is not put into a page."""


def inlined(text: str) -> str:
    """An SVG file as one line of HTML, with its title as its name.

    Raises:
        DrawingError: it is no SVG, has no title, or holds more than shapes and words.
    """
    if len(text) > LARGEST:
        raise DrawingError(f"is longer than {LARGEST:,} characters")
    if "<!" in text.replace("<!--", ""):
        raise DrawingError("declares a document type or entities")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise DrawingError(f"is no XML: {error}") from None
    title = root.find(f"{_SVG}title")
    if root.tag != f"{_SVG}svg" or "viewBox" not in root.attrib:
        raise DrawingError("is no SVG with a viewBox")
    if title is None or not (title.text or "").strip():
        raise DrawingError("has no title")
    name = f' role="img" aria-label="{attribute(title.text)}"'
    root.attrib.pop("role", None)
    return raw(
        '<span class="kb-drawing" data-search-exclude tabindex="0">'
        f"{_written(root).replace('<svg', f'<svg{name}', 1)}</span>"
    )


def _written(element: ElementTree.Element) -> str:
    tag = element.tag.removeprefix(_SVG)
    if tag not in _SHAPES:
        raise DrawingError(f"holds <{tag}>")
    attributes = "".join(_attribute(tag, name, value) for name, value in element.attrib.items())
    inner = attribute_line(_spaces(element.text))
    for child in element:
        inner += _written(child) + attribute_line(_spaces(child.tail))
    return f"<{tag}{attributes}>{inner}</{tag}>"


def _attribute(tag: str, name: str, value: str) -> str:
    allowed = (
        (name in _NUMBERS and _NUMERIC.fullmatch(value) and "url" not in value.lower())
        or value in _WORDS.get(name, ())
        or (name == "class" and _CLASS.fullmatch(value))
    )
    if not allowed:
        raise DrawingError(f"has {name}={value!r} on <{tag}>")
    return f' {name}="{" ".join(value.split())}"'


def _spaces(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "")
