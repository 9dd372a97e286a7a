"""Where money and time went."""

from __future__ import annotations

from kbtool.ledger.rollup import EXPECTED, By, Rollup, Row
from kbtool.site import addresses as at
from kbtool.site.escape import inline
from kbtool.site.figures import money
from kbtool.site.index import Index
from kbtool.site.markup import join, nothing, slim_table
from kbtool.site.parts import page_title, section
from kbtool.site.sums import MONEY, cell, rollups

_BY: tuple[tuple[By, str], ...] = (
    ("kind", "Kind"),
    ("month", "Month"),
    ("card", "Card"),
    ("session", "Session"),
)


def page(index: Index) -> str:
    """Costs by kind, by month, by card, by session."""
    sessions = list(index.sessions.values())
    if not any(session.costs for session in sessions):
        return join([page_title("Costs"), nothing("No session's record has a cost line yet.")])
    return join(
        [
            page_title("Costs"),
            "Sums of what the records state. Every session is taken to have cost time, GPU, AI and"
            " an engineer: where a record does not say how much, it is counted as unknown beside"
            " the sum, never as zero. The command for these tables is `kbtool costs`.",
            *(
                section(
                    f"By {title.lower()}", f"by-{by}",
                    *(_table(index, table, title) for table in rollups(sessions, by)),
                )
                for by, title in _BY
            ),
        ]
    )  # fmt: skip


def _table(index: Index, table: Rollup, title: str) -> str:
    currency = table.currency or ""
    columns = list(EXPECTED) + (["other"] if table.total.other is not None else [])
    if title == "Kind":
        rows = [
            [inline(row.label), money(row.total, currency), _missing(row)] for row in table.rows
        ]
        rows.append(["**all**", f"**{money(table.total.total, currency)}**", ""])
        return slim_table(["Kind", "Money", "Sessions that do not say"], rows, {1, 2})
    rows = [
        [
            _label(index, row, title),
            str(len(row.sessions)) if title != "Session" else "",
            *(cell(row, column, currency) for column in columns),
            money(row.total, currency),
        ]
        for row in table.rows
    ]
    total = table.total
    rows.append(
        [
            "**all**",
            f"**{len(total.sessions)}**" if title != "Session" else "",
            *(f"**{cell(total, column, currency)}**" for column in columns),
            f"**{money(total.total, currency)}**",
        ]
    )
    names = [{"minutes": "Time", "gpu": "GPU", "ai": "AI"}.get(c, c.capitalize()) for c in columns]
    header = [title, "Sessions", *names, "Known in all"]
    return slim_table(header, rows, range(1, len(header)))


def _missing(row: Row) -> str:
    return str(max((row.unknown.get(kind, 0) for kind in MONEY), default=0) or "none")


def _label(index: Index, row: Row, title: str) -> str:
    if title == "Session":
        return index.link(at.session_page(row.key), at.COSTS, inline(row.label))
    return inline(row.label)
