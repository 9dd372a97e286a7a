"""The catalogue of symptoms: what each tool prints when something is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kbtool.markdown.escape import block, code, inline
from kbtool.markdown.markup import (
    anchor,
    bullets,
    folded,
    heading,
    join,
    nothing,
    outward,
    stacked_table,
)
from kbtool.model.symptom import KnownSymptom, Symptoms, filled
from kbtool.model.words import many
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.parts import cite, page_title, section


def _pages(source: Source) -> Iterator[Page]:
    index = source.index
    yield Page(at.SYMPTOMS, partial(listing, index))
    for tool in index.base.catalogue.values():
        yield Page(at.symptoms_page(tool.id), partial(page, index, tool))


PAGES = Pages(_pages, at.SYMPTOMS, "Symptoms")


def listing(index: Index) -> str:
    """Every tool, with the number of its symptoms."""
    rows = [
        [
            at.link(inline(tool.title), at.symptoms_page(tool.id), at.SYMPTOMS),
            str(len(tool.symptoms)),
            ", ".join(
                index.link(at.pattern_page(pattern), at.SYMPTOMS, inline(pattern))
                for pattern in sorted({one for known in tool.symptoms for one in known.patterns})
                if pattern in index.patterns
            )
            or "–",
        ]
        for tool in index.base.catalogue.values()
    ]
    return join(
        [
            page_title("Symptoms"),
            "What tools print when something is wrong, and what to do. `kbtool explain build.log`"
            " looks for all of it in a text, and for the symptoms of the patterns too; failing"
            " steps of recipes show the same advice.",
            stacked_table(["Tool", "Symptoms", "Patterns"], rows, {1})
            if rows
            else nothing("No symptom is known."),
        ]
    )


def page(index: Index, tool: Symptoms) -> str:
    """The symptoms of a tool."""
    here = at.symptoms_page(tool.id)
    return join(
        [
            page_title(f"Symptoms: {inline(tool.title)}"),
            f"<small>{at.link('Symptoms', at.SYMPTOMS, here)} › {code(tool.id)}</small>",
            _list(tool),
            *(_shown(index, known, here) for known in tool.symptoms),
        ]
    )


_MANY = 8
"""Symptoms of a page that needs no list of them."""
_LONGEST = 90
"""Letters of a message in the list."""


def _list(tool: Symptoms) -> str | None:
    """Every symptom of a long page, to filter by words of the message."""
    if len(tool.symptoms) <= _MANY:
        return None
    rows = [
        [f"[{inline(known.title)}](#{known.id})", code(_first(known))] for known in tool.symptoms
    ]
    return folded(
        f"All {len(rows)} symptoms of this page, in a list to filter",
        stacked_table(["Symptom", "An example of the message"], rows),
    )


def _first(known: KnownSymptom) -> str:
    """The first line of its example."""
    line = known.example.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _shown(index: Index, known: KnownSymptom, here: str) -> str:
    numbers = dict.fromkeys(known.values, "N")
    is_address = known.source.startswith("https://")
    wording = outward(known.source) if is_address else cite(known.source)
    patterns = [
        index.link(at.pattern_page(pattern), here)
        for pattern in known.patterns
        if pattern in index.patterns
    ]
    return section(
        inline(known.title),
        known.id,
        block(known.example),
        inline(filled(known.advice, numbers)),
        block(filled(known.command, numbers)) if known.command else None,
        _causes(known, numbers),
        f"Only for {', '.join(map(code, known.architectures))}." if known.architectures else None,
        f"Pattern: {', '.join(patterns)}" if patterns else None,
        f"Wording from: {wording}",
    )


def _causes(known: KnownSymptom, numbers: dict[str, str]) -> str | None:
    if not known.causes:
        return None
    rows = [
        [
            code(cause.sign.removeprefix("(?i)")),
            inline(filled(cause.advice, numbers)),
            code(filled(cause.command, numbers)) if cause.command else "–",
        ]
        for cause in known.causes
    ]
    table = stacked_table(["If the text has", "Do", "Run"], rows)
    return folded(f"{many(len(rows), 'cause')} that other details of the text give away", table)


def of_pattern(index: Index, pattern: str, here: str) -> str | None:
    """The symptoms of the catalogue that belong to a pattern."""
    shown = []
    for tool in index.base.catalogue.values():
        there = at.symptoms_page(tool.id)
        lines = [
            at.link(inline(known.title), f"{there}#{known.id}", here)
            for known in tool.symptoms
            if pattern in known.patterns
        ]
        if lines:
            shown += [heading(3, inline(tool.title), f"symptoms.{tool.id}"), bullets(lines)]
    if not shown:
        return None
    return join([anchor("symptoms.catalogue") + "Messages of tools that it helps with:", *shown])
