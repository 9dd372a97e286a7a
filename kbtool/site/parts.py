"""Parts that pages of several kinds share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from kbtool.ledger.claims.report import Computation, Grade, Item
from kbtool.ledger.headline import Headline, headlines
from kbtool.ledger.measured import Group, Machine, groups
from kbtool.ledger.patterns import Edge
from kbtool.markdown.escape import attribute, code, inline
from kbtool.markdown.markup import (
    anchor,
    bullets,
    chip,
    clipped,
    folded,
    heading,
    join,
    muted,
    nothing,
    optional,
    stacked_table,
    yes_no,
)
from kbtool.model.address import split_reference
from kbtool.model.bug import Fix
from kbtool.model.claim import Claim, Derivation, Operand
from kbtool.model.kernel import Kernel
from kbtool.model.pattern import Pattern
from kbtool.model.run import Run
from kbtool.model.session import Session
from kbtool.site import addresses as at
from kbtool.site.index import Index, page_of
from kbtool.site.text.quoted import finding, line
from kbtool.store.sources import kernel_file, kernel_paths

T = TypeVar("T")

_SIZE = re.compile(r"\b([a-z])(\d+)\b")


def in_words(slug: str) -> str:
    """The name that a record gives a figure, as words: ``target-s128`` is the target at S=128."""
    spoken = _SIZE.sub(lambda found: f"{found[1].upper()}={found[2]}", slug)
    return inline(spoken.replace("-", " "))


TITLE = "title"
"""The anchor of each page's first heading; fixed, so that no text can claim another's."""


def page_title(text: str) -> str:
    """The first heading of a page."""
    return heading(1, text, TITLE)


def crumb(page: str, listing: str, name: str, record: str, path: str | None = None) -> str:
    """Where a page belongs, the record's id, the file that it is made from, the page as JSON."""
    parts = [f"{at.link(name, listing, page)} › {code(record)}"]
    if path:
        parts.append(code(path))
    if not at.is_source_page(page):
        parts.append(at.link("JSON", at.twin(page), page))
    return f"<small>{' · '.join(parts)}</small>"


def status_chip(status: str) -> str:
    """The status of a bug, as ``kbtool.ledger.faults`` words it, as a chip."""
    return chip("recurred" if status == "met again" else status)


def case_title(kernel: Kernel | None, case: str) -> str:
    """A case, ``SET/CASE``, with the title of its set, if the kernel has such a set."""
    name, _, rest = case.partition("/")
    known = kernel.case_sets.get(name) if kernel else None
    return f"{known.title}: {rest}" if known and rest else case


def compare_link(
    text: str, runs: Sequence[str], arm: str, page: str, reference: Sequence[str] = ()
) -> str:
    """A link to the page that compares, with the choice that ``addresses.compare`` takes; ``text``
    is escaped already.

    As HTML: mkdocs would look for the choice among the anchors of that page.
    """
    target = at.published(at.relative(at.compare(runs, arm, reference), page))
    return f'<a href="{attribute(target)}">{text}</a>'


def script(function: str, value: Any) -> bytes:
    """A file that hands data to a page: a call of ``function``, because a page opened from a disk
    may load a script but read no file. ASCII, so that no character ends a line or an element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f"{function}({text.replace('<', chr(92) + 'u003c')});\n".encode("ascii")


def newer_noisy(index: Index, newer: Run | None, page: str) -> str:
    """That a newer run than the one that is told was noisy; empty where there is none."""
    if newer is None:
        return ""
    return index.link(at.run_page(newer.session, newer.id), page, "a newer one was noisy")


def front_matter(
    title: str,
    tags: Mapping[str, str] | None = None,
    contents: bool = True,
    found: bool = True,
    twin: str | None = None,
) -> str:
    """What the theme is told of a page: its title, its tags, no list of pages beside wide tables.

    Args:
        title: the title, escaped. The theme puts titles into the page as they are, and takes them
            unescaped from the heading unless they stand here.
        tags: the tags, which are slugs → where their pages are.
        contents: whether the page lists its headings at the side.
        found: whether the search finds the page.
        twin: the file beside the page that says the same in JSON.
    """
    lines = [f'title: "{title}"', "hide:", "  - navigation"]
    if not contents:
        lines.append("  - toc")
    if tags:
        lines += ["tags:", *(f'  - "{tag}"' for tag in tags)]
        lines += ["tag_pages:", *(f'  "{tag}": "{page}"' for tag, page in tags.items())]
    if not found:
        lines += ["search:", "  exclude: true"]
    if twin:
        lines.append(f'twin: "{twin}"')
    return "\n".join(["---", *lines, "---", "", ""])


def cite(source: str | None) -> str:
    """Where a figure stands: source, then lines."""
    return f'<small class="kb-cite">{inline(source)}</small>' if source else ""


def sourced(source: str | None) -> str | None:
    """The same as a line of its own."""
    return f"Source: {cite(source)}" if source else None


EVIDENCE = ("Verdict", "What happened", "Saved", "Lost", "Money", "Source")


def evidence_cells(index: Index, edge: Edge, page: str) -> list[str]:
    """What a session says of a pattern, as cells under ``EVIDENCE``."""
    evidence = edge.evidence
    note = line(index, evidence.note, edge.session.id, page)
    if edge.unproved:
        note += f" ({inline(edge.unproved)})"
    mark = " expected" if evidence.expected else ""
    figures = (evidence.saved, evidence.lost, evidence.money)
    return [
        chip(edge.verdict.replace("_", " ")),
        note,
        *(f"{inline(figure)}{mark}" if figure is not None else "" for figure in figures),
        cite(evidence.source),
    ]


def confirmed(index: Index, own: Session, fix: Fix, page: str, unknown: str = "") -> str:
    """Whether a test confirmed a fix of the session ``own``, and what showed it."""
    shown = []
    for reference in fix.shown_by:
        name, path = split_reference(reference)
        place = index.place(reference, own.id)
        text = inline(name or path)
        shown.append(at.link(text, place, page) if place else text)
    return ": ".join(filter(None, [yes_no(fix.confirmed, unknown), ", ".join(shown)]))


def fixed_place(index: Index, place: str | None, page: str) -> str:
    """Where a fix was made: a link where it is a file of a kernel that is shown."""
    if not place:
        return ""
    for kernel in index.kernels.values():
        listed = any(place in paths for paths in kernel_paths(kernel).values())
        if listed and kernel_file(index.base, kernel.id, place) is not None:
            return at.link(code(place), at.source_page(kernel.id, place), page)
    return code(place)


def section(title: str, name: str, *blocks: str | None, level: int = 2) -> str:
    """A heading and what stands under it; nothing at all where that is nothing."""
    body = [block for block in blocks if block and block.strip()]
    return join([heading(level, title, name), *body]) if body else ""


def last(rows: Sequence[T], most: int, command: str) -> tuple[Sequence[T], str | None]:
    """The last ``most`` rows, and a line that says how many there are and what prints them all."""
    if len(rows) <= most:
        return rows, None
    return rows[-most:], f"The last {most} of {len(rows):,}; {code(command)} tells them all."


MENTIONS = 50
"""Places that a page lists as leading to it."""


def backlinks(index: Index, page: str, here: str | None = None) -> str:
    """Who refers to ``page``, for itself or for another page, ``here``."""
    here = here or page
    reasons: dict[str, dict[str, None]] = {}
    for mention in index.mentions.get(page, []):
        reasons.setdefault(mention.source, {})[mention.why] = None
    shown = list(reasons.items())[:MENTIONS]
    # Runs are many: one line has them all.
    runs = [
        index.run_link(index.run_at[source], here) for source, why in shown if list(why) == ["run"]
    ]
    rows = [
        f"{index.link(source, here)} ({', '.join(why)})"
        for source, why in shown
        if list(why) != ["run"]
    ]
    if runs:
        rows.append(f"runs: {', '.join(runs)}")
    if len(reasons) > MENTIONS:
        rows.append(f"and {len(reasons) - MENTIONS} more")
    # Several places of one record may refer here; each is a link of its own.
    return section(
        "Mentioned by", "mentioned-by",
        bullets(rows) if rows else nothing("No other record refers to this one."),
    )  # fmt: skip


def patterns_of(index: Index, page: str) -> str:
    """The patterns that a bug, a decision or a lesson became."""
    return ", ".join(
        index.link(at.pattern_page(pattern.id), page) for pattern in index.became.get(page, ())
    )


def unknowns(record: Session | Pattern) -> str:
    """What nobody knows, and why."""
    rows = [
        [anchor(f"unknown.{at.fragment(path)}") + code(path), inline(why)]
        for path, why in record.unknown.items()
    ]
    return section("Not known", "unknown", stacked_table(["What", "Why"], rows) if rows else None)


def why_unknown(record: Session | Pattern, path: str) -> str:
    """``unknown``, linked to the reason where the record gives one; empty where it does not."""
    if path not in record.unknown:
        return ""
    return f"[unknown](#unknown.{at.fragment(path)})"


GRADES: dict[Grade, str] = {
    "decision": "changing a decision",
    "inconsistent": "inconsistent",
    "undetermined": "undetermined",
    "consistent": "consistent",
}
"""What a grade is called, the gravest first."""


def claims(index: Index, record: Session | Pattern) -> str:
    """The claims of a record, each with what it derives from, what comes out, and its grade.

    Those that hold are folded up below those that do not.
    """
    anchors = index.anchors(record)
    rows: list[list[str]] = []
    hold: list[list[str]] = []
    for claim in record.claims:
        place = anchors.get(claim)
        item = index.audited[record.id, f"claims.{claim.id}"]
        computed = index.audit.computation(item)
        (hold if item.grade == "consistent" else rows).append(
            [
                f"{anchor(place) if place else ''}{inline(claim.says)} {cite(claim.source)}",
                optional(claim.stated),
                (
                    f"{finding(index, computed.derived, page_of(record))} <br>"
                    if computed.derived
                    else ""
                )
                + muted(_derivation(index, record, claim)),
                chip(item.grade),
                " · ".join(
                    part for part in (optional(claim.note), remarks(item, computed)) if part
                ),
            ]
        )
    header = ["Claim", "Stated", "Recomputed", "Grade", "Remark"]
    shown = stacked_table(header, rows) if rows else None
    held = stacked_table(header, hold) if hold else None
    if held and shown:
        held = folded(f"Claims that hold: {len(hold)}", held)
    return section("Claims", "claims", shown, held)


def turned(index: Index, session: Session, path: str) -> str | None:
    """What the audit says of a decision or a plan that rests on a claim that does not hold."""
    here = at.session_page(session.id)
    links = []
    for item in index.turning.get(f"{session.id}#{path}", []):
        place = index.place(f"{item.record}#{item.where}", item.record)
        links.append(at.link(inline(item.says), place, here) if place else inline(item.says))
    return f"Rests on what does not hold: {'; '.join(links)}" if links else None


def remarks(item: Item, computed: Computation) -> str:
    """What the audit has to say of a claim beside its grade."""
    texts = []
    if item.how is not None and computed.why:
        texts.append(inline(computed.why))
    if item.acknowledged is not None:
        texts.append(f"acknowledged: {inline(item.acknowledged)}")
    return " · ".join(texts)


def _derivation(index: Index, record: Session | Pattern, claim: Claim) -> str:
    if claim.how is None:
        reason = why_unknown(record, f"claims.{claim.id}.how")
        return reason or "nothing recorded determines it"
    return _operation(index, record, claim.how, claim.of)


def _operation(index: Index, record: Session | Pattern, how: str, of: Sequence[Operand]) -> str:
    shown = []
    for path, alike in groupby(of, key=lambda one: _path(one) if isinstance(one, str) else None):
        if path is not None:
            shown.append(_references(index, record, path, [one for one in alike if one]))
            continue
        for operand in alike:
            if isinstance(operand, Derivation):
                shown.append(f"({_operation(index, record, operand.how, operand.of)})")
            else:
                shown.append(inline(operand))
    return f"{inline(how)} of {', '.join(shown)}"


def _path(reference: str) -> str:
    """The end of a reference, which is what tells operands apart: ``build.actual``."""
    return ".".join(reference.partition("#")[2].split(".")[-2:])


def _references(
    index: Index, record: Session | Pattern, path: str, references: Sequence[object]
) -> str:
    """The same field of several records: ``duration of N, N+1``; of this one the name alone."""
    links = []
    for reference in map(str, references):
        place = index.place(reference, record.id)
        name = reference.partition("#")[0]
        other = index.record(name) if name else record
        label = inline(getattr(other, "label", name or record.id))
        if place is None:
            links.append(f"{label} (no such record)")
        else:
            links.append(at.link(label, place, page_of(record)))
            if len(references) == 1 and other is record:
                return at.link(code(path), place, page_of(record))
    return f"{code(path)} of {', '.join(links)}"


_TITLE = 60
"""Letters of a session's title that fit into a cell."""


def session_cell(index: Index, session: Session, page: str, target: str = "") -> str:
    """A link to a session by its title, which says more than its label; the label in small print.

    Args:
        index: the records.
        session: the session.
        page: where the link stands.
        target: where it leads, if not to the page of the session.
    """
    title = inline(clipped(session.title, _TITLE))
    linked = index.link(target or at.session_page(session.id), page, title)
    return f"{linked} {muted(inline(session.label))}"


def latest_results(index: Index) -> list[tuple[Kernel, Machine, Headline, list[Group]]]:
    """How each kernel stands on each machine, case set and dtype, the newest first; with all groups
    of that machine."""
    found = [
        (kernel, machine, one, every)
        for kernel in index.kernels.values()
        for machine, every in groups(index.runs_of(kernel=kernel.id), kernel).items()
        for one in headlines(every)
    ]
    return sorted(found, key=lambda one: one[2].newest.run.started, reverse=True)
