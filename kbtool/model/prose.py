"""Figures in prose that are taken from records by reference.

A figure is a link whose target names the place that it comes from::

    tiled takes [5.56 µs](figure:RUN#steps.benchmark.M=1_N=4096.arms.tiled), which is
    [3.7×](figure:ratio(RUN#steps.benchmark.M=1_N=4096.arms.naive,#steps.benchmark.…tiled)) …

or, as Markdown has it too, ``[5.56 µs][tiled]`` or ``[5.56 µs]`` with a definition below:
``[tiled]: <figure:RUN#…>``. A target is an address, or an operation of claims (``how``) over
targets. An address without a record is in the record named before it, at first in the one that the
text belongs to.

No Pydantic here: ``kbtool check`` reads the targets each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

SCHEME = "figure:"


class FigureLink(NamedTuple):
    """A figure in a text, and where it is said to come from."""

    start: int
    """Where the link begins in the text."""
    end: int
    text: str
    """What the reader sees."""
    target: str
    """What follows ``figure:``."""


class Address(NamedTuple):
    """The place of a figure: ``RECORD#path``."""

    record: str
    path: str


class Operation(NamedTuple):
    """A figure that follows from others."""

    how: str
    of: tuple[Expression, ...]


Expression = Address | Operation

_TARGET = r"(?:[^()<>\s]|\((?:[^()<>\s]|\((?:[^()<>\s]|\([^()<>\s]*\))*\))*\))+"
"""Anything without a space, parentheses in pairs and three deep at most."""
_INLINE = re.compile(rf"\[([^\[\]]+)\]\(<?{SCHEME}({_TARGET})>?\)")
_DEFINITION = re.compile(rf"^ {{0,3}}\[([^\[\]]+)\]:[ \t]*<?{SCHEME}({_TARGET})>?[ \t]*$", re.M)
_LABELLED = re.compile(r"\[([^\[\]]+)\](?:\[([^\[\]]*)\])?(?![\[(:])")
_MEANT = re.compile(rf"\]\(\s*<?\s*{SCHEME}|^ {{0,3}}\[[^\[\]]+\]:[ \t]*<?{SCHEME}", re.M)

_NO_LINK = (
    "is no link to a figure: write [FIGURE](figure:RECORD#path), without spaces in the target and"
    " with its parentheses in pairs"
)

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_UNREAD = re.compile(
    # Code inside a line may run over its end, never over that of its paragraph.
    r"(?s)<!--.*?-->|(?<!`)(`+)(?!`)(?:(?!\n[ \t]*\n).)+?(?<!`)\1(?!`)"
)


def figure_links(text: str) -> Iterator[FigureLink]:
    """The figures that ``text`` takes from records, in order.

    Args:
        text: Markdown, or the text of a record; code must be blanked already (``readable``).
    """
    if SCHEME not in text:
        return
    definitions = {_label(found[1]): found for found in _DEFINITION.finditer(text)}
    links = [FigureLink(*found.span(), found[1], found[2]) for found in _INLINE.finditer(text)]
    if definitions:
        for found in _LABELLED.finditer(text):
            definition = definitions.get(_label(found[2] or found[1]))
            if definition is not None:
                links.append(FigureLink(*found.span(), found[1], definition[2]))
    yield from sorted(links)


def broken_links(text: str) -> Iterator[tuple[int, str]]:
    """Where ``text`` begins a figure link that is none, or defines one that nothing uses; and why.

    Args:
        text: as for ``figure_links``.
    """
    if SCHEME not in text:
        return
    sound = {found.end(1) for found in _INLINE.finditer(text)}
    defined = {found.start() for found in _DEFINITION.finditer(text)}
    for found in _MEANT.finditer(text):
        if found.start() not in sound | defined:
            yield found.start(), _NO_LINK
    used = {link.target for link in figure_links(text)}
    for found in _DEFINITION.finditer(text):
        if found[2] not in used:
            yield found.start(), f"defines the figure [{found[1]}], which the text does not use"


def expression(target: str, own: str | None) -> Expression:
    """What a target says.

    Args:
        target: what follows ``figure:``.
        own: the record that the text belongs to, if any.

    Raises:
        ValueError: it is neither an address nor an operation over such.
    """
    return _parse(target, own)[0]


def addresses(parsed: Expression) -> Iterator[Address]:
    """The addresses in an expression, in order."""
    if isinstance(parsed, Address):
        yield parsed
    else:
        for operand in parsed.of:
            yield from addresses(operand)


def replace_links(text: str, put: Callable[[FigureLink], str], within: str | None = None) -> str:
    """``text`` with something else in the place of each figure link, and without definitions.

    Args:
        text: the text.
        put: a link → what to put there.
        within: the text with what holds no figures blanked (``readable``); as it is if not given.
    """
    if SCHEME not in text:
        return text
    within = text if within is None else within
    places = [(link.start, link.end, put(link)) for link in figure_links(within)]
    places += [(*found.span(), "") for found in _DEFINITION.finditer(within)]
    parts, position = [], 0
    for start, end, new in sorted(places):
        parts += [text[position:start], new]
        position = end
    return "".join([*parts, text[position:]])


def plain(text: str) -> str:
    """``text`` with its figures as the reader sees them, without where they come from."""
    return replace_links(text, lambda link: link.text)


def readable(markdown: str) -> str:
    """Markdown with its code and comments blanked; every other character stays in its place."""
    if "`" not in markdown and "~~~" not in markdown and "<!--" not in markdown:
        return markdown
    lines, fence = [], ""
    for line in markdown.split("\n"):
        found = _FENCE.match(line)
        if fence:
            closes = found is not None and found[1].startswith(fence)
            fence = "" if closes and not line.strip("`~ \r") else fence
            lines.append(" " * len(line))
        elif found is not None:
            fence = found[1]
            lines.append(" " * len(line))
        else:
            lines.append(line)
    return _UNREAD.sub(blank, "\n".join(lines))


def blank(found: re.Match[str]) -> str:
    """Spaces as long as what was found, its line breaks kept."""
    return "".join("\n" if char == "\n" else " " for char in found[0])


def _label(text: str) -> str:
    return " ".join(text.split()).casefold()


_CALL = re.compile(r"([a-z_]+)\((.*)\)")


def _parse(target: str, record: str | None) -> tuple[Expression, str | None]:
    """An expression, and the record that its last address is in."""
    call = _CALL.fullmatch(target)
    if call is None:
        name, mark, path = target.partition("#")
        if not mark or not path:
            raise ValueError(f"{target!r} is no address of a figure; write RECORD#path")
        if not name and record is None:
            raise ValueError(f"{target!r} names no record; write RECORD#{path}")
        return Address(name or record or "", path), name or record
    operands = []
    for part in _operands(call[2]):
        operand, record = _parse(part, record)
        operands.append(operand)
    return Operation(call[1], tuple(operands)), record


def _operands(text: str) -> list[str]:
    """``text`` at the commas that are in no parentheses."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts
