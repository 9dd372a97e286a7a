"""``kbtool costs``: where money and time went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbtool.cli.common import (
    json_option,
    knowledge_base,
    print_json,
    print_table,
    warn_unreadable,
)

if TYPE_CHECKING:
    from kbtool.ledger.rollup import Rollup
    from kbtool.model.session import Session
    from kbtool.store.tree import KnowledgeBase

EPILOG = """\b
Examples:
  kbtool costs                              a row a session
  kbtool costs --by month                   a row a month; undated sessions apart
  kbtool costs --session N..N+7A            a part of the work, in the order of the work
  kbtool costs --session N+5..              from one session on; ..N+3 up to one
  kbtool costs --session N+2 --session N+4  just these
  kbtool costs --since 2025-10-12 --csv > costs.csv
  kbtool costs --json | jq .total

\b
Money is exact (decimal); a figure that no record states is '–', null in JSON and empty in CSV,
and is counted as unknown: it is never zero. Minutes are numbers; by kind, they are those that the
cost lines state, and have no sum. Currencies are never added."""

COLUMNS = ("minutes", "gpu", "ai", "engineer", "other", "total")


@click.command(epilog=EPILOG)
@click.option(
    "--by",
    type=click.Choice(["session", "day", "month", "kind", "card"]),
    default="session",
    show_default=True,
    help="What makes a row.",
)
@click.option(
    "--session",
    "names",
    multiple=True,
    metavar="ID|LABEL|A..B|A..|..B",
    help="Only this session, or those from A to B in the order of the work; repeatable.",
)
@click.option("--since", metavar="YYYY-MM-DD", help="Only sessions of this day and later.")
@click.option("--until", metavar="YYYY-MM-DD", help="Only sessions of this day and earlier.")
@click.option("--currency", metavar="CODE", help="The currency to sum, where there are several.")
@json_option
@click.option(
    "--csv", "as_csv", is_flag=True, default=False, help="Comma-separated, with a header."
)
@click.pass_context
def costs(
    ctx: click.Context,
    by: str,
    names: tuple[str, ...],
    since: str | None,
    until: str | None,
    currency: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Sum the costs and the time of sessions."""
    from kbtool.ledger import rollup
    from kbtool.model.errors import UsageError

    if as_json and as_csv:
        raise UsageError("--json and --csv: take one")
    base = knowledge_base(ctx)
    sessions = _selected(base, names)
    sessions, undated = _between(sessions, since, until)
    table = rollup.roll_up(sessions, by, currency.upper() if currency else None)  # type: ignore[arg-type]
    if as_json:
        print_json(rollup.as_json(table, [finding.path for finding in base.findings]))
    elif as_csv:
        _print_csv(table)
    elif sessions:
        _print_costs(table, by)
    warn_unreadable(base)
    _tell_gaps(table, undated, empty=not sessions, any_at_all=bool(base.sessions))


def _selected(base: KnowledgeBase, names: tuple[str, ...]) -> list[Session]:
    """The sessions that are named, in the order of the work; all if none is."""
    from kbtool.ledger.rollup import select_range
    from kbtool.model.errors import UsageError

    ordered = [entry.record for entry in base.sessions.values()]
    if not names:
        return ordered
    wanted: set[str] = set()
    for name in names:
        first, dots, last = (part.strip() for part in name.partition(".."))
        if not first and not last:
            raise UsageError(
                f"--session {name!r} names no session; write ID, LABEL, A..B, A.. or ..B"
            )
        start, end = (base.session(part).record.id if part else None for part in (first, last))
        chosen = select_range(ordered, start, end if dots else start)
        wanted.update(session.id for session in chosen)
    return [session for session in ordered if session.id in wanted]


def _between(
    sessions: list[Session], since: str | None, until: str | None
) -> tuple[list[Session], int]:
    """The sessions of these days, and how many are left out because they have no date."""
    from datetime import date

    from kbtool.model.errors import UsageError

    for option, day in (("--since", since), ("--until", until)):
        if day is not None:
            try:
                valid = date.fromisoformat(day).isoformat() == day
            except ValueError:
                valid = False
            if not valid:
                raise UsageError(f"{option}: {day!r} is no day; write YYYY-MM-DD")
    if since is None and until is None:
        return sessions, 0
    dated = [session for session in sessions if session.day is not None]
    kept = [s for s in dated if (since or "") <= (s.day or "") <= (until or "9999-99-99")]
    return kept, len(sessions) - len(dated)


def _print_costs(table: Rollup, by: str) -> None:
    from kbtool.ledger.rollup import row_json

    columns = [c for c in COLUMNS if c != "other" or table.total.other is not None]
    header = [
        by,
        *(column if column == "minutes" else _headed(column, table) for column in columns),
    ]
    rows = []
    for row in [*table.rows, table.total]:
        figures = row_json(row)
        cells = ["–" if figures[c] is None else f"{figures[c]}" for c in columns]
        rows.append([row.label, *cells])
    # The total is set off by a rule of its own.
    widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
    rows.insert(-1, ["─" * width for width in widths])
    print_table(header, rows, set(range(1, len(header))))


def _headed(column: str, table: Rollup) -> str:
    return f"{column} {table.currency}" if column == "total" and table.currency else column


def _print_csv(table: Rollup) -> None:
    import csv
    import io

    from kbtool.ledger.rollup import EXPECTED, row_json

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    unknown = [f"unknown_{column}" for column in EXPECTED]
    writer.writerow(["key", "label", *COLUMNS, "currency", "sessions", *unknown])
    for row in table.rows:
        figures = row_json(row)
        writer.writerow(
            [
                row.key,
                row.label,
                *("" if figures[column] is None else figures[column] for column in COLUMNS),
                table.currency or "",
                len(row.sessions),
                *(row.unknown.get(column, 0) for column in EXPECTED),
            ]
        )
    click.echo(text.getvalue(), nl=False)


def _tell_gaps(table: Rollup, undated: int, *, empty: bool, any_at_all: bool) -> None:
    """On stderr: what the sums do not cover."""
    if not any_at_all:
        click.echo("kbtool: there are no sessions yet; `kbtool session new TITLE`", err=True)
    elif empty:
        click.echo("kbtool: no session is in that selection", err=True)
    many = len(table.total.sessions)
    gaps = ", ".join(
        f"{column} in {table.total.unknown[column]}"
        for column in COLUMNS
        if column in table.total.unknown
    )
    if gaps:
        click.echo(
            f"kbtool: not in the sums, because no record says: {gaps} of {many} sessions", err=True
        )
    if undated:
        click.echo(f"kbtool: left out: {undated} sessions without a date", err=True)
    for name, lines in table.other_currencies.items():
        click.echo(f"kbtool: left out: {lines} cost lines in {name}", err=True)
