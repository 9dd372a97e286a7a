"""Parts that pages of several kinds share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from kbtool.ledger.audit import Item, Reckoned
from kbtool.model.claim import Claim, Derivation, Operand
from kbtool.model.pattern import Pattern
from kbtool.model.prose import plain
from kbtool.model.session import Evidence, Session
from kbtool.site import addresses as at
from kbtool.site.escape import attribute, code, inline
from kbtool.site.index import Index, page_of
from kbtool.site.markup import (
    anchor,
    bullets,
    chip,
    heading,
    join,
    nothing,
    slim_table,
    stacked_table,
)

T = TypeVar("T")

TITLE = "title"
"""The anchor of each page's first heading; fixed, so that no text can claim another's."""


def page_title(text: str) -> str:
    """The first heading of a page."""
    return heading(1, text, TITLE)


def crumb(page: str, listing: str, name: str, record: str, path: str | None = None) -> str:
    """Where a page belongs, the record's id, the file that it is made from, the page as JSON."""
    said = [f"{at.link(name, listing, page)} › {code(record)}"]
    if path:
        said.append(code(path))
    if not at.is_source_page(page):
        said.append(at.link("JSON", at.twin(page), page))
    return f"<small>{' · '.join(said)}</small>"


def compare_link(text: str, run: str, arm: str, page: str) -> str:
    """A link to the page that compares, with an arm of a run chosen; ``text`` is escaped already.

    As HTML: mkdocs would look for the choice among the anchors of that page.
    """
    target = at.published(at.relative(at.compare(run, arm), page))
    return f'<a href="{attribute(target)}">{text}</a>'


def front_matter(
    title: str,
    tags: Sequence[str] = (),
    contents: bool = True,
    found: bool = True,
    twin: str | None = None,
) -> str:
    """What the theme is told of a page: its title, its tags, no list of pages beside wide tables.

    Args:
        title: the title, escaped. The theme puts titles into the page as they are, and takes them
            unescaped from the heading unless they stand here.
        tags: the tags, which are slugs.
        contents: whether the page lists its headings at the side.
        found: whether the search finds the page.
        twin: the file beside the page that says the same in JSON.
    """
    lines = [f'title: "{title}"', "hide:", "  - navigation"]
    if not contents:
        lines.append("  - toc")
    if tags:
        lines += ["tags:", *(f'  - "{tag}"' for tag in tags)]
    if not found:
        lines += ["search:", "  exclude: true"]
    if twin:
        lines.append(f'twin: "{twin}"')
    return "\n".join(["---", *lines, "---", "", ""])


def cite(source: str | None) -> str:
    """Where a figure stands: source, then lines."""
    return f'<small class="kb-cite">{inline(source)}</small>' if source else ""


def optional(value: object) -> str:
    """A value or nothing."""
    return "" if value is None else inline(value)


def clipped(text: str, longest: int = 240) -> str:
    """So much of ``text`` as goes into a cell, cut between words."""
    words = " ".join(plain(text).split())
    return words if len(words) <= longest else words[:longest].rsplit(" ", 1)[0] + " …"


def claimed(evidence: Evidence) -> list[str]:
    """What evidence says was saved, lost and saved in money; empty where it says nothing."""
    mark = " expected" if evidence.expected else ""
    figures = (evidence.saved, evidence.lost, evidence.money)
    return [f"{inline(figure)}{mark}" if figure is not None else "" for figure in figures]


def yes_no(value: bool | None, unknown: str = "") -> str:
    """A boolean in words."""
    return unknown if value is None else "yes" if value else "no"


def folded(summary: str, body: str) -> str:
    """Something that few need, folded up."""
    return (
        f'<details class="kb-figures" markdown="block">\n<summary>{summary}</summary>\n\n{body}\n\n'
        "</details>"
    )


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


def backlinks(index: Index, page: str) -> str:
    """Who refers to this page."""
    reasons: dict[str, dict[str, None]] = {}
    for mention in index.mentions.get(page, []):
        reasons.setdefault(mention.source, {})[mention.why] = None
    shown = list(reasons.items())[:MENTIONS]
    rows = [f"{index.link(source, page)} ({', '.join(why)})" for source, why in shown]
    if len(reasons) > MENTIONS:
        rows.append(f"and {len(reasons) - MENTIONS} more")
    # Several places of one record may refer here; each is a link of its own.
    return section(
        "Mentioned by", "mentioned-by",
        bullets(rows) if rows else nothing("No other record refers to this one."),
    )  # fmt: skip


def unknowns(record: Session | Pattern) -> str:
    """What nobody knows, and why."""
    rows = [
        [anchor(f"unknown.{at.fragment(path)}") + code(path), inline(why)]
        for path, why in record.unknown.items()
    ]
    return section("Not known", "unknown", slim_table(["What", "Why"], rows) if rows else None)


def why_unknown(record: Session | Pattern, path: str) -> str:
    """``unknown``, linked to the reason where the record gives one; empty where it does not."""
    if path not in record.unknown:
        return ""
    return f"[unknown](#unknown.{at.fragment(path)})"


def claims(index: Index, record: Session | Pattern) -> str:
    """The claims of a record, each with what it derives from, what comes out, and its grade."""
    anchors = index.anchors(record)
    rows = []
    for claim in record.claims:
        place = anchors.get(claim)
        item = index.audited[record.id, f"claims.{claim.id}"]
        came = index.audit.reckoned(item)
        rows.append(
            [
                f"{anchor(place) if place else ''}{inline(claim.says)} {cite(claim.source)}",
                optional(claim.stated),
                optional(came.derived),
                chip(item.grade),
                f'<span class="kb-wrap">{_derivation(index, record, claim)}</span>',
                " · ".join(part for part in (optional(claim.note), remarks(item, came)) if part),
            ]
        )
    header = ["Claim", "Stated", "Comes out", "Grade", "Derives from", "Remark"]
    body = stacked_table(header, rows, filtered=True) if rows else None
    return section("Claims", "claims", body)


def turned(index: Index, session: Session, path: str) -> str | None:
    """What the audit says of a decision or a plan that rests on a claim that does not hold."""
    here = at.session_page(session.id)
    links = []
    for item in index.turning.get(f"{session.id}#{path}", []):
        place = index.place(f"{item.record}#{item.where}", item.record)
        links.append(at.link(inline(item.says), place, here) if place else inline(item.says))
    return f"Rests on what does not hold: {'; '.join(links)}" if links else None


def remarks(item: Item, came: Reckoned) -> str:
    """What the audit has to say of a claim beside its grade."""
    said = []
    if item.how is not None and came.why:
        said.append(inline(came.why))
    if item.acknowledged is not None:
        said.append(f"left so: {inline(item.acknowledged)}")
    return " · ".join(said)


def _derivation(index: Index, record: Session | Pattern, claim: Claim) -> str:
    if claim.how is None:
        reason = why_unknown(record, f"claims.{claim.id}.how")
        return reason or "nothing recorded determines it"
    return _operation(index, record, claim.how, claim.of)


def _operation(index: Index, record: Session | Pattern, how: str, of: Sequence[Operand]) -> str:
    shown = []
    for operand in of:
        if isinstance(operand, Derivation):
            shown.append(f"({_operation(index, record, operand.how, operand.of)})")
        elif isinstance(operand, str):
            shown.append(_reference(index, record, operand))
        else:
            shown.append(inline(operand))
    return f"{inline(how)} of {', '.join(shown)}"


def _reference(index: Index, record: Session | Pattern, reference: str) -> str:
    place = index.place(reference, record.id)
    if place is None:
        return f"{code(reference)} (no such record)"
    return at.link(code(reference), place, page_of(record))


def session_cell(index: Index, session: Session, page: str) -> str:
    """A link to a session by its label."""
    return index.link(at.session_page(session.id), page, inline(session.label))
