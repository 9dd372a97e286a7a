"""Where money and time went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial

from kbtool.ledger.budget import Budget, account, month_budgets
from kbtool.ledger.rollup import EXPECTED, NOWHERE, By, Rollup, Row, heading, links_of, running
from kbtool.ledger.session_costs import months_of
from kbtool.markdown.chart import Bar, stacked
from kbtool.markdown.escape import inline
from kbtool.markdown.figures import UNKNOWN, many, minutes, money
from kbtool.markdown.markup import (
    chip,
    folded,
    join,
    nothing,
    nowrap,
    optional,
    slim_table,
    stacked_table,
)
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.parts import cite, last, page_title, section, session_cell
from kbtool.site.sums import MONEY, cell, known_in, rollups


def _pages(source: Source) -> Iterator[Page]:
    yield Page(at.COSTS, partial(page, source.index))


PAGES = Pages(_pages, at.COSTS, "Costs")


_BY: tuple[tuple[By, str], ...] = (
    ("kind", "Kind"),
    ("month", "Month"),
    ("week", "Week"),
    ("card", "Card"),
    ("pattern", "Pattern"),
    ("kernel", "Kernel"),
    ("engineer", "Engineer"),
    ("outcome", "Outcome"),
    ("session", "Session"),
)
_DRAWN = {"kind", "month", "week", "card", "engineer", "outcome"}
"""The groupings that have a chart beside their table."""
_MOST_ROWS = 100
_MOST_BARS = 36
"""The most bars in a chart: with more sessions months are shown, and at most the latest of them."""


def page(index: Index) -> str:
    """Costs over time, by kind, month, card and so on, and the budgets of sessions and months."""
    sessions = list(index.costs.sessions.values())
    links = links_of(sessions, (attempts[-1] for attempts in index.runs.values()))
    if not any(session.costs for session in sessions):
        return join([page_title("Costs"), nothing("No session's record has a cost line yet.")])
    tables = {by: index.sums if by == "session" else rollups(sessions, by, links) for by, _ in _BY}
    ledger = "[in the ledger](#rates)" if index.base.ledger.rates else "in the ledger"
    return join(
        [
            page_title("Costs"),
            f"Known in all: **{known_in(index.sums)}**."
            " Every session is assumed to have cost time, GPU,"
            " AI and an engineer: what no record says is counted as unknown beside the sum, never"
            " as zero. Where no cost line pays for a card that runs held, its cost is estimated:"
            f" the time of the runs, at the rate of the card {ledger}. The command for these tables"
            " is `kbtool costs`.",
            section("Over time", "over-time", *_over_time(tables)),
            section("Budgets", "boxes", _budgets(index)),
            *(
                section(
                    f"By {title.lower()}", f"by-{by}",
                    *(_charts(index, by, tables[by]) if by in _DRAWN else ()),
                    *(_table(index, table, title) for table in tables[by]),
                )
                for by, title in _BY
            ),
            section("Rates", "rates", _rates(index)),
        ]
    )  # fmt: skip


def _over_time(tables: Mapping[By, list[Rollup]]) -> list[str]:
    """One chart per currency: the cost of each session or month, and the running total."""
    sessions = max(len(table.total.sessions) for table in tables["session"])
    by: By = "session" if sessions <= _MOST_BARS else "month"
    charts = []
    for table in tables[by]:
        if table.total.total is None:
            continue
        sums = {
            row.keys: running_total.total
            for row, running_total in zip(table.rows, running(table), strict=True)
        }
        bars = _set_apart(
            [
                _bar(row, by, running_total=None if row.key == NOWHERE.get(by) else sums[row.keys])
                for row in table.rows[-_MOST_BARS:]
            ],
            table.rows,
            by,
        )
        title = f"Money by {by} in {table.currency}, stacked by kind, and the running total"
        charts.append(stacked(title, bars, table.currency or ""))
    if charts:
        about = (
            f"One bar per {by}, in the order of the work; `?` if nothing is known: there the line"
            " of the running total is dashed."
            + (
                " Below each: of how many of its sessions money is known. Sessions without a date"
                " stand apart at the right and are not in the line."
                if by == "month"
                else ""
            )
        )
        charts.append(f"{about} The figures: [by {by}](#by-{by}).")
    return charts


def _charts(index: Index, by: By, tables: Sequence[Rollup]) -> list[str]:
    """One chart per currency: the cost of each row, by kind; a month beside its budget."""
    limits = {
        (budget.month, budget.currency): Decimal(budget.money)
        for budget in months_of(index.base.ledger)
        if budget.money is not None and by == "month"
    }
    charts = []
    for table in tables:
        currency = table.currency or ""
        bars = _set_apart(
            [_bar(row, by, limits.get((row.key, currency))) for row in table.rows[-_MOST_BARS:]],
            table.rows,
            by,
        )
        if table.total.total is not None and (len(bars) > 1 or bars[0].limit is not None):
            title = f"Money by {by} in {currency}, stacked by kind of cost"
            charts.append(stacked(title, bars, currency))
    return charts


def _set_apart(bars: list[Bar], rows: Sequence[Row], by: By) -> list[Bar]:
    """A gap before the last bar, where it is no month or week but what has no date."""
    has_rest = by in {"month", "week"} and any(row.key == NOWHERE[by] for row in rows[-1:])
    return [*bars[:-1], Bar("", {}), bars[-1]] if has_rest else bars


def _bar(
    row: Row, by: By, limit: Decimal | None = None, running_total: Decimal | None = None
) -> Bar:
    amounts = {kind: getattr(row, kind) for kind in MONEY}
    parts = {kind: amount for kind, amount in amounts.items() if amount}
    unknown = ", ".join(f"{kind} in {row.unknown[kind]}" for kind in MONEY if kind in row.unknown)
    label = row.label if by == "session" else f"{row.label}: {row.coverage} priced"
    return Bar(label, parts, unknown, limit, running_total)


def _budgets(index: Index) -> str:
    """The budgets of sessions and months, and what was spent; empty for a running session. Those
    that were kept are folded up."""
    accounts = [account(session, None) for session in index.costs.sessions.values()]
    named: list[tuple[str, Budget, bool]] = []
    for one in accounts:
        name = session_cell(index, index.sessions[one.session.id], at.COSTS)
        named += [(name, budget, one.session.status == "running") for budget in one.budgets]
    for limits in months_of(index.base.ledger):
        named += [(limits.month, one, False) for one in month_budgets(limits, accounts)]
    rows: dict[str, list[list[str]]] = {"exceeded": [], "running": [], UNKNOWN: [], "kept": []}
    for name, budget, runs in named:
        state = _state(budget, runs)
        rows[state].append(_budget_row(name, budget, state))
    kept = rows.pop("kept")
    others = [row for of_state in rows.values() for row in of_state]
    header, numeric = ["Session or month", "Budget", "Limit", "Spent", "Left", "State"], {2, 3, 4}
    return join(
        [
            stacked_table(header, others, numeric) if others else None,
            folded(f"{many(len(kept), 'budget')} kept", stacked_table(header, kept, numeric))
            if kept
            else None,
        ]
    )


def _rates(index: Index) -> str | None:
    """Prices by the hour, with the day and the place where each was stated."""
    ledger = index.base.ledger
    rows = []
    for price in ledger.rates:
        key = (price.source or "").partition(":")[0]
        source = ledger.sources.get(key)
        again = len(price.stated_again)
        rows.append(
            [
                inline(price.id),
                price.kind,
                optional(price.card),
                inline(price.rate),
                price.day + (f" to {price.until}" if price.until else ""),
                optional(price.purchase),
                optional(price.provider),
                optional(source and source.about)
                + (f"; stated again {again} times" if again > 1 else "")
                + ("; stated again" if again == 1 else ""),
                cite(price.source),
            ]
        )
    header = ["Rate", "For", "Card", "Price", "Stated on", "Bought", "From", "Stated in", "Source"]
    return stacked_table(header, rows, {3}) if rows else None


def _state(budget: Budget, runs: bool) -> str:
    if runs:
        return "running"
    if budget.spent is None:
        return UNKNOWN
    return "exceeded" if budget.exceeded else "kept"


def _budget_row(name: str, budget: Budget, state: str) -> list[str]:
    def figure(value: Decimal | None) -> str:
        if value is None:
            return UNKNOWN
        return minutes(value) if budget.unit == "min" else money(value, budget.unit)

    what = "time" if budget.unit == "min" else "money"
    known = (None, None) if state == "running" else (budget.spent, budget.left)
    return [name, what, figure(budget.limit), *map(figure, known), chip(state)]


def _table(index: Index, table: Rollup, title: str) -> str:
    currency = table.currency or ""
    columns = list(EXPECTED) + (["other"] if table.total.other is not None else [])
    if title == "Kind":
        rows = [[inline(row.label), money(row.total, currency), row.coverage] for row in table.rows]
        total = table.total
        rows.append(["**all**", f"**{money(total.total, currency)}**", f"**{total.coverage}**"])
        return slim_table(["Kind", "Money", "Sessions priced"], rows, {1, 2})
    shown, more = last(table.rows, _MOST_ROWS, f"kbtool costs --by {title.lower()}")
    rows = [
        [
            _label(index, row, title),
            str(len(row.sessions)) if title != "Session" else "",
            *(_lines(cell(row, column, currency)) for column in columns),
            money(row.total, currency),
            _priced(row, title),
        ]
        for row in shown
    ]
    total = table.total
    if table.repeated:  # so that the last column adds up
        less = money(-table.repeated, currency)
        several = "*minus what is in several rows*"
        rows.append([several, str(len(table.shared)), *[""] * len(columns), less, ""])
    rows.append(
        [
            "**all, counted once**" if table.repeated else "**all**",
            f"**{len(total.sessions)}**" if title != "Session" else "",
            *(_lines(f"**{cell(total, column, currency)}**") for column in columns),
            f"**{money(total.total, currency)}**",
            f"**{total.coverage}**",
        ]
    )
    names = [{"minutes": "Time", "gpu": "GPU", "ai": "AI"}.get(c, c.capitalize()) for c in columns]
    header = [
        heading(table.by[0]).capitalize(),
        "Sessions",
        *names,
        "Known in all",
        "Sessions priced",
    ]
    return join([stacked_table(header, rows, range(1, len(header))), more])


def _lines(text: str) -> str:
    """The known sum, and on a line of its own the unknown part."""
    return text.replace(" + ", " <br>+ ")


def _priced(row: Row, title: str) -> str:
    """Of how many sessions the money is known; of a single one, how."""
    if title != "Session":
        return row.coverage
    return "GPU estimated" if row.estimated else "stated" if row.priced else "no"


def _label(index: Index, row: Row, title: str) -> str:
    if title == "Session":
        return session_cell(index, index.sessions[row.key], at.COSTS)
    if title == "Pattern" and row.key != NOWHERE["pattern"]:
        return index.link(at.pattern_page(row.key), at.COSTS)
    if title == "Kernel" and row.key != NOWHERE["kernel"]:
        return index.link(at.kernel_page(row.key), at.COSTS)
    return nowrap(inline(row.label)) if title in {"Month", "Week"} else inline(row.label)
