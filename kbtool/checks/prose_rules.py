"""Rules over prose: figures link to records and agree with them.

The target of a link names the record of a figure (``kbtool.model.prose``). The two agree if they
are equal at the digits that the text gives, with units converted, as for claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbtool.checks.facts import Facts, FigureFacts
from kbtool.model.finding import Finding
from kbtool.model.prose import (
    SCHEME,
    Address,
    Expression,
    addresses,
    blank,
    broken_links,
    expression,
    figure_links,
    readable,
)

if TYPE_CHECKING:
    from kbtool.model.base import Quantity
    from kbtool.model.figures import Figure


class Prose(NamedTuple):
    """A text as the rules read it."""

    path: str
    text: str
    """With its code and its comments blanked, every other character in its place."""
    own: str | None
    """The record that it belongs to, if any."""


def prose_of(facts: Facts, text: str) -> Prose | None:
    """The prose in a file; ``None`` if these rules do not apply to it."""
    if SCHEME not in text and not _GUIDED.fullmatch(facts.path):
        return None
    if facts.path.endswith(".yaml"):
        return Prose(facts.path, _COMMENT.sub(blank, text), own_record(facts))
    if facts.path.endswith(".md"):
        return Prose(facts.path, readable(text), own_record(facts))
    return None


def own_record(facts: Facts) -> str | None:
    """The id of the record that the prose in a file belongs to, if any."""
    return facts.id if facts.kind in {"session", "notes", "pattern"} else None


_COMMENT = re.compile(r"^[ \t]*#.*$", re.M)


def figures_in(prose: Prose) -> Iterator[FigureFacts | Finding]:
    """The figures that a text takes from records; a finding for each that cannot be one."""
    for position, problem in broken_links(prose.text):
        yield Finding(prose.path, _line(prose, position), "figure", problem)
    for link in figure_links(prose.text):
        line = _line(prose, link.start)
        wrong = _cannot_be(link.text, link.target, prose.own)
        if wrong is not None:
            yield Finding(prose.path, line, "figure", wrong)
        else:
            parsed = expression(link.target, prose.own)
            places = [f"{record}#{path}" for record, path in addresses(parsed)]
            yield FigureFacts(line, link.text, link.target, places)


def figures_have_sources(prose: Prose) -> Iterator[Finding]:
    """In README.md, in a kernel's README.md and DESIGN.md, and in the guide, a figure of
    performance (a number with µs, ms, GB/s, TFLOP/s, ×) is a link: to the record that it comes
    from, or to where else it stands.

    Code, formulas and products (``16×16``) are none. Decisions and the prose of sessions may tell
    of what no record holds any more.
    """
    if not _GUIDED.fullmatch(prose.path):
        return
    text = prose.text
    for link in figure_links(text):
        text = text[: link.start] + " " * (link.end - link.start) + text[link.end :]
    text = _FORMULA.sub(blank, _LINK.sub(blank, text))
    for found in _PERFORMANCE.finditer(text):
        figure = " ".join(found[0].split())
        yield Finding(
            prose.path, _line(prose, found.start()), "figure",
            f"{figure} has no source: write [{figure}](figure:RUN#path), link to its source,"
            " or leave the figure out",
        )  # fmt: skip


_GUIDED = re.compile(r"README\.md|kernels/[^/]+/(?:README|DESIGN)\.md|docs/guide/.+\.md")
_LINK = re.compile(
    # With a target, with a label, or the definition of one.
    r"!?\[[^\[\]]*\](?:\((?:[^()\n]|\([^()\n]*\))*\)?|\[[^\[\]]+\]|:[^\n]*)"
)
_FORMULA = re.compile(r"\$\$.+?\$\$|\$[^$\n]+\$", re.S)
_PERFORMANCE = re.compile(
    r"(?<![\w.,×^=])\d[\d,]*(?:\.\d+)?\s?"
    r"(?:(?:ns|us|µs|μs|ms|[kKMGT]i?B/s|[kMGTP]?FLOPS?(?:/s)?)(?![\w/])|×(?!\s?[\d(]))"
)


def judged(text: str, target: str, own: str | None, values: Sequence[str]) -> str:
    """What is wrong with a figure, given what stands at its addresses; empty where it agrees.

    Args:
        text: the figure as the text has it.
        target: where it comes from.
        own: the record that the text belongs to.
        values: the figures at the addresses of ``target``, in their order, as quantities.
    """
    from kbtool.model.agreement import agrees
    from kbtool.model.base import Quantity
    from kbtool.model.figure_text import text_of
    from kbtool.model.figures import NoFigure, WrongUnits

    stated = Quantity(_normal(text))
    try:
        comes_out = _computed(expression(target, own), "same", map(Quantity, values))
        if agrees(stated, comes_out):
            return ""
        return f"the text says {text.strip()}, but {target} is {text_of(comes_out, stated)}"
    except (NoFigure, WrongUnits) as error:
        return f"{text.strip()} cannot be {target}: {error}"


def _computed(parsed: Expression, within: str, values: Iterator[Quantity]) -> Figure:
    """The figure that follows; ``within`` is the operation that takes it."""
    from kbtool.model.figures import ADDED, OPERATIONS, figure_of

    if isinstance(parsed, Address):
        return figure_of(next(values), added=within in ADDED)
    return OPERATIONS[parsed.how]([_computed(operand, parsed.how, values) for operand in parsed.of])


def _cannot_be(text: str, target: str, own: str | None) -> str | None:
    """What is wrong with a figure whatever stands at its addresses, or ``None``."""
    from kbtool.model.base import Quantity

    try:
        parsed = expression(target, own)
        Quantity(_normal(text))
    except ValueError as error:
        return str(error)
    return _wrong_operation(parsed)


def _wrong_operation(parsed: Expression) -> str | None:
    from kbtool.model.claim import ARITY
    from kbtool.model.figures import OPERATIONS

    if isinstance(parsed, Address):
        return None
    if parsed.how not in OPERATIONS:
        return f"{parsed.how!r} is not an operation; use one of {', '.join(OPERATIONS)}"
    wanted = ARITY.get(parsed.how, len(parsed.of))
    if len(parsed.of) != wanted:
        return f"{parsed.how} takes {wanted} operands, not {len(parsed.of)}"
    return next(filter(None, map(_wrong_operation, parsed.of)), None)


def _line(prose: Prose, position: int) -> int:
    return prose.text.count("\n", 0, position) + 1


_SIGNS = {"µs": "us", "μs": "us", "−": "-", "≈": "~", "≤": "<=", "≥": ">=", "–": "..", "**": ""}


def _normal(text: str) -> str:
    """A figure of a text as a quantity is written: ``1,234 µs`` → ``1234 us``."""
    for sign, plain in _SIGNS.items():
        text = text.replace(sign, plain)
    return re.sub(r"(?<=\d),(?=\d{3})", "", " ".join(text.split()))
