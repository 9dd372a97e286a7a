"""What the audit makes of every claim."""

from __future__ import annotations

from collections import Counter

from kbtool.ledger.audit import WRONG, Grade, Item
from kbtool.site import addresses as at
from kbtool.site.escape import inline
from kbtool.site.index import Index, page_of
from kbtool.site.markup import bullets, facts, join, nothing, slim_table
from kbtool.site.parts import optional, page_title, remarks, section


def page(index: Index) -> str:
    """The findings by grade, what is undetermined, and the grades of each record's claims."""
    report = index.audit
    if not report.items:
        return join([page_title("Audit"), nothing("No record makes a claim yet.")])
    counts = report.counts
    wrong = sum(counts[grade] for grade in WRONG)
    return join(
        [
            page_title("Audit"),
            "Every claim is recomputed from the figures that determine it: the claims that somebody"
            " wrote down, and those that the fields of a record make, as start, end and duration"
            " do. A figure stands for what rounds to it, so that what can be right is consistent."
            " The command is `kbtool audit`.",
            facts(
                [
                    ("Consistent", str(counts["consistent"])),
                    ("Inconsistent", str(counts["inconsistent"])),
                    ("Turning a decision", str(counts["decision"])),
                    ("Undetermined", str(counts["undetermined"])),
                    ("Acknowledged", f"{counts['acknowledged']} of {wrong}"),
                ]
            ),
            section("Turning a decision", "decision", _table(index, "decision")),
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


def _table(index: Index, grade: Grade) -> str:
    rows = []
    for item in index.audit.items:
        if item.grade != grade:
            continue
        came = index.audit.reckoned(item)
        rows.append(
            [
                _claim(index, item),
                optional(item.stated),
                optional(came.derived),
                inline(came.expression),
                ", ".join(_link(index, place) for place in item.turns),
                remarks(item, came),
            ]
        )
    header = ["Claim", "Stated", "Comes out", "Reckoned", "Turns", "Remark"]
    return slim_table(header, rows, {1}) if rows else nothing("None.")


def _undetermined(index: Index) -> str:
    rows = [
        [_claim(index, item), optional(item.stated), optional(index.audit.reckoned(item).why)]
        for item in index.audit.items
        if item.grade == "undetermined"
    ]
    return slim_table(["Claim", "Stated", "Why"], rows, {1}) if rows else nothing("None.")


def _by_record(index: Index) -> str:
    grades: dict[str, Counter[str]] = {}
    for item in index.audit.items:
        grades.setdefault(item.record, Counter())[item.grade] += 1
    columns = ("consistent", "inconsistent", "decision", "undetermined")
    rows = []
    for name, counts in grades.items():
        record = index.record(name)
        assert record is not None
        link = index.link(page_of(record), at.AUDIT)
        rows.append([link, *(str(counts[grade] or "") for grade in columns)])
    header = ["Record", "Consistent", "Inconsistent", "Turning a decision", "Undetermined"]
    return slim_table(header, rows, {1, 2, 3, 4})


def _claim(index: Index, item: Item) -> str:
    """What is claimed, linked to its place, with the record that claims it."""
    record = index.record(item.record)
    label = getattr(record, "label", item.record)
    return f"{_link(index, f'{item.record}#{item.where}', inline(item.says))} ({inline(label)})"


def _link(index: Index, reference: str, text: str | None = None) -> str:
    place = index.place(reference, "")
    shown = text or inline(reference.partition("#")[2])
    return at.link(shown, place, at.AUDIT) if place else shown
