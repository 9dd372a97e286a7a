"""The audit of all claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from kbtool.ledger.claims.report import WRONG, Computation, Grade, Item
from kbtool.markdown.escape import inline
from kbtool.markdown.figures import ranged
from kbtool.markdown.markup import (
    bullets,
    facts,
    join,
    muted,
    nothing,
    optional,
    stacked_table,
)
from kbtool.site import addresses as at
from kbtool.site.index import Index, page_of
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.parts import last, page_title, remarks, section
from kbtool.site.text.quoted import finding


def _pages(source: Source) -> Iterator[Page]:
    yield Page(at.AUDIT, partial(page, source.index))


PAGES = Pages(_pages, at.AUDIT, "Audit")


def page(index: Index) -> str:
    """The findings by grade, the undetermined claims, and the grades by record."""
    report = index.audit
    if not report.items:
        return join([page_title("Audit"), nothing("No record makes a claim yet.")])
    counts = report.counts
    wrong = sum(counts[grade] for grade in WRONG)
    return join(
        [
            page_title("Audit"),
            "Every claim is recomputed from the figures that determine it: claims that somebody"
            " wrote down, and those implied by the fields of a record, such as start, end and"
            " duration. A figure stands for every value that rounds to it, so a claim that can be"
            " right is consistent. Acknowledged: the record keeps the figure as its log has it, and"
            " says why. The command is `kbtool audit`.",
            facts(
                [
                    ("Changing a decision", _count(counts["decision"], "decision")),
                    ("Inconsistent", _count(counts["inconsistent"], "inconsistent")),
                    ("Undetermined", _count(counts["undetermined"], "undetermined")),
                    ("Consistent", _count(counts["consistent"], "by-record")),
                    ("Acknowledged", f"{counts['acknowledged']} of {wrong}"),
                ]
            ),
            section("Changing a decision", "decision", _table(index, "decision")),
            section("Inconsistent", "inconsistent", _table(index, "inconsistent")),
            section("Undetermined", "undetermined", _undetermined(index)),
            section("By record", "by-record", _by_record(index)),
            section(
                "Acknowledged for nothing",
                "stale",
                bullets(f"{inline(one.record)}: {inline(one.message)}" for one in report.stale),
            ),
        ]
    )  # fmt: skip


def _count(count: int, place: str) -> str:
    return f"[{count}](#{place})"


def _table(index: Index, grade: Grade) -> str:
    rows = []
    found, more = _of(index, grade)
    for item in found:
        computed = index.audit.computation(item)
        rows.append(
            [
                _claim(index, item),
                optional(item.stated),
                _outcome(index, computed),
                _remark(index, item, computed),
            ]
        )
    header = ["Claim", "Stated", "Recomputed", "Remark"]
    return join([stacked_table(header, rows), more]) if rows else nothing("None.")


def _of(index: Index, grade: Grade) -> tuple[Sequence[Item], str | None]:
    """The claims of a grade, up to the limit of a page, and a line on the rest."""
    found = [one for one in index.audit.items if one.grade == grade]
    return last(found, _MOST, f"kbtool audit --grade {grade}")


_MOST = 200


def _outcome(index: Index, computed: Computation) -> str:
    """The computed figure, and its computation if that says more."""
    how = computed.expression if computed.expression != computed.derived else ""
    return finding(index, computed.derived or "", at.AUDIT) + (
        f"<br>{muted(f'= {inline(ranged(how))}')}" if how else ""
    )


def _remark(index: Index, item: Item, computed: Computation) -> str:
    changed = ", ".join(_link(index, place) for place in item.turns)
    parts = [f"Changes {changed}" if changed else "", remarks(item, computed)]
    return " · ".join(part for part in parts if part)


def _undetermined(index: Index) -> str:
    found, more = _of(index, "undetermined")
    rows = [
        [_claim(index, item), optional(item.stated), optional(index.audit.computation(item).why)]
        for item in found
    ]
    header = ["Claim", "Stated", "Why"]
    return join([stacked_table(header, rows), more]) if rows else nothing("None.")


def _by_record(index: Index) -> str:
    grades: dict[str, Counter[str]] = {}
    for item in index.audit.items:
        grades.setdefault(item.record, Counter())[item.grade] += 1
    columns = ("consistent", "inconsistent", "decision", "undetermined")
    rows = []
    shown, more = last(list(grades.items()), _MOST, "kbtool audit --all")
    for name, counts in shown:
        record = index.record(name)
        assert record is not None
        link = index.link(page_of(record), at.AUDIT)
        rows.append([link, *(str(counts[grade] or "") for grade in columns)])
    header = ["Record", "Consistent", "Inconsistent", "Changing a decision", "Undetermined"]
    return join([stacked_table(header, rows, {1, 2, 3, 4}), more])


def _claim(index: Index, item: Item) -> str:
    """The claim, linked to its place, with the record that makes it."""
    record = index.record(item.record)
    label = getattr(record, "label", item.record)
    claim = _link(index, f"{item.record}#{item.where}", inline(item.says))
    return f"{claim} {muted(inline(label))}"


def _link(index: Index, reference: str, text: str | None = None) -> str:
    place = index.place(reference, "")
    shown = text or inline(reference.partition("#")[2])
    return at.link(shown, place, at.AUDIT) if place else shown
