"""The catalogue of symptoms: what each tool prints when something is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kbtool.markdown.escape import block, code, inline
from kbtool.markdown.markup import anchor, bullets, join, nothing, stacked_table
from kbtool.model.symptom import KnownSymptom, Symptoms, filled
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
            *(_shown(index, known, here) for known in tool.symptoms),
        ]
    )


def _shown(index: Index, known: KnownSymptom, here: str) -> str:
    numbers = dict.fromkeys(known.values, "N")
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
        f"Only for {', '.join(map(code, known.architectures))}." if known.architectures else None,
        f"Pattern: {', '.join(patterns)}" if patterns else None,
        f"The wording: {cite(known.source)}",
    )


def of_pattern(index: Index, pattern: str, here: str) -> str | None:
    """The symptoms of the catalogue that belong to a pattern."""
    lines = []
    for tool in index.base.catalogue.values():
        there = at.symptoms_page(tool.id)
        lines += [
            f"{at.link(inline(known.title), f'{there}#{known.id}', here)} ({inline(tool.title)})"
            for known in tool.symptoms
            if pattern in known.patterns
        ]
    if not lines:
        return None
    return join([anchor("symptoms.catalogue") + "Messages of tools that it helps with:",
                 bullets(lines)])  # fmt: skip
