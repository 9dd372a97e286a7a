"""``kbtool costs``: where money and time went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbtool.cli.common import (
    json_option,
    knowledge_base,
    minutes_text,
    print_json,
    print_table,
    warn_unreadable,
)
from kbtool.cli.complete import session_names
from kbtool.cli.selection import Selection, select_of, selection_options
from kbtool.model.words import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtool.ledger.rollup import By, Costed, Rollup, Row
    from kbtool.ledger.rollup_json import Extra
    from kbtool.store.tree import KnowledgeBase

EPILOG = """\b
Examples:
  kbtool costs                              one row per session
  kbtool costs --by month                   one row per month, and one for undated sessions
  kbtool costs --by month,kind              a row for each kind in each month
  kbtool costs --by day --running           with the sum up to each day
  kbtool costs --by engineer,month          who worked, and what it cost, month by month
  kbtool costs --by pattern --per bug       the cost of each bug that was fixed
  kbtool costs --session FIRST..LAST        from one session to another
  kbtool costs --session FIRST..            from one session on; ..LAST up to one
  kbtool costs --session last --compare SESSION    how much cheaper and shorter than that one
  kbtool costs --since 2025-10-12 --csv > costs.csv
  kbtool costs --json | jq .total

\b
Money is an exact decimal. A figure that no record states is shown as '–', as null in JSON and empty
in CSV; it is counted as unknown, never as zero. Minutes by kind of cost are those that the cost
lines state, and are not summed. Amounts in different currencies are never added.

\b
Column priced: of how many of the sessions that began any money is known. Where no cost line pays
for a card that runs held, its cost is estimated: the time of the runs on it, at the rate that the
ledger has for the card on the session's day. Without a rate it is unknown. Exports and
`kbtool status` hold stated costs only.

\b
Groupings: session, day, week (ISO), month, kind of cost, card, pattern (the session has evidence
for it, did one of its steps or ran its recipe), kernel (named by the session or one of its runs),
engineer (who worked, not who was paid), outcome (how the session ended). A cost without a known
card, or a session without an engineer, is in the row 'unstated'. A session of several patterns or
kernels is in the row of each; the total counts it once. Attributed and unattributed amounts
(undated, of no pattern …) sum to the total, to the cent.

\b
--compare sums only the kinds of cost that are fully known for both sessions in the same currency,
and names the others.

\b
--per bug: the row's money divided by the bugs fixed in its sessions. A bug that recurs is the same
bug: it counts once, in the session of its last fix, unless it recurred later or a test showed that
the fix failed. Bugs whose fix no test confirmed are included, and their number is shown as claimed.

\b
--per speedup: the row's money divided by the doublings of speed gained in its sessions. A case of a
validated run is compared with the best earlier validated run of the same case, kernel and card; it
counts if the quartiles of the two do not overlap. If a session has no such run, the
measurements typed into session.yaml are compared instead (those that name a subject), and the gain
is shown as claimed. The gain of several cases is the geometric mean over those measured again. '≥':
only part of the money is known.

\b
Exit status: 0 done; 1 a record does not load and is not in the sums; 2 usage."""

COLUMNS = ("minutes", "gpu", "ai", "engineer", "other", "total")


def _groupings(
    ctx: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> tuple[By, ...]:
    if ctx.resilient_parsing:  # a shell that completes a name does not wait for the models
        return ()
    from kbtool.ledger.rollup import BY

    names = tuple(part.strip() for text in texts for part in text.split(","))
    for name in names:
        if name not in BY:
            raise click.BadParameter(f"{name!r} is no grouping; there is {', '.join(BY)}")
    return names  # type: ignore[return-value]


@click.command(epilog=EPILOG)
@click.option(
    "--by",
    metavar="GROUPING[,GROUPING…]",
    multiple=True,
    callback=_groupings,
    default=["session"],
    show_default=True,
    help="What makes a row: session, day, week, month, kind, card, pattern, kernel,"
    " engineer, outcome; several are combined.",
)
@selection_options
@click.option("--currency", metavar="CODE", help="The currency to sum, where there are several.")
@click.option("--running", is_flag=True, default=False, help="Add the sum of all rows up to each.")
@click.option(
    "--compare",
    "earlier",
    metavar="ID|LABEL",
    shell_complete=session_names,
    help="Add how much cheaper and shorter each session was than this one.",
)
@click.option(
    "--per",
    "per",
    type=click.Choice(["bug", "speedup"]),
    multiple=True,
    help="Add the cost of each bug fixed, or of each doubling of speed; repeatable.",
)
@json_option
@click.option(
    "--csv", "as_csv", is_flag=True, default=False, help="Comma-separated, with a header."
)
@click.pass_context
def costs(
    ctx: click.Context,
    by: tuple[By, ...],
    selection: Selection,
    currency: str | None,
    running: bool,
    earlier: str | None,
    per: tuple[str, ...],
    as_json: bool,
    as_csv: bool,
) -> None:
    """Sum the costs and the time of sessions."""
    from kbtool.ledger import rollup, rollup_json
    from kbtool.ledger.estimated import costs_of
    from kbtool.model.errors import UsageError

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; give one")
    if earlier is not None and by != ("session",):
        raise UsageError("--compare compares sessions: leave --by out")
    base = knowledge_base(ctx)
    ordered = [*costs_of(base).sessions.values()]
    sessions, undated = select_of(base, ordered, selection)
    links = None
    if {"pattern", "kernel"} & set(by):
        runs = [entry.record for entry in base.runs]
        links = rollup.links_of(sessions, runs)
    table = rollup.roll_up(sessions, by, currency.upper() if currency else None, links)
    extras: list[Extra] = []
    if running:
        extras.append(_running(table))
    if earlier is not None:
        extras.append(_compared(base, ordered, table, earlier))
    extras += [_per(base, table, what) for what in dict.fromkeys(per)]
    if as_json:
        print_json(rollup_json.as_json(table, [finding.path for finding in base.findings], extras))
    elif as_csv:
        _print_csv(table, extras)
    elif sessions:
        _print_costs(table, extras)
    warn_unreadable(base)
    _tell_gaps(table, undated, empty=not sessions, any_at_all=bool(ordered))
    if base.findings:
        ctx.exit(1)  # the sums lack something


def _running(table: Rollup) -> Extra:
    from kbtool.ledger.rollup import running
    from kbtool.ledger.rollup_json import number
    from kbtool.model.money import amount_json

    return {
        row.keys: {
            "running_minutes": number(so_far.minutes),
            "running_total": amount_json(so_far.total),
        }
        for row, so_far in zip(table.rows, running(table), strict=True)
    }


def _compared(
    base: KnowledgeBase, sessions: Sequence[Costed], table: Rollup, earlier: str
) -> Extra:
    from kbtool.ledger.compare import compare, compare_json
    from kbtool.ledger.rollup import roll_up
    from kbtool.model.errors import UsageError

    name = base.session_named(earlier, {session.id: session.label for session in sessions})
    order = {session.id: at for at, session in enumerate(sessions)}
    before = sessions[order[name]]
    used = {line.currency for line in before.costs}
    chosen = table.currency if not used or table.currency in used else None
    if used and chosen is None and table.currency is not None:
        raise UsageError(
            f"{before.label} was not paid in {table.currency} but in {', '.join(sorted(used))}"
        )
    row = roll_up([before], "session", chosen).rows[0]
    extra = {
        one.keys: compare_json(
            compare(one, row) if order[one.key] > order[before.id] else None, before.label
        )
        for one in table.rows
    }
    if table.rows and all(value["compared"] is None for value in extra.values()):
        raise UsageError(f"--compare: no session selected comes after {before.label}")
    return extra


def _per(base: KnowledgeBase, table: Rollup, what: str) -> Extra:
    from kbtool.ledger import gain

    ordered = [entry.record for entry in base.sessions.values()]
    rows = [*table.rows, table.total]
    if what == "bug":
        counts = gain.fixed_bugs(ordered)
        return {row.keys: gain.per_bug(row, counts) for row in rows}
    gains = gain.sped_up(ordered, [entry.record for entry in base.runs])
    return {row.keys: gain.per_speedup(row, gains) for row in rows}


def _print_costs(table: Rollup, extras: list[Extra]) -> None:
    from kbtool.ledger.rollup import heading
    from kbtool.ledger.rollup_json import row_json

    columns = [c for c in COLUMNS if c != "other" or table.total.other is not None]
    shown = [column for column in _EXTRA_COLUMNS if any(_holds(extra, column) for extra in extras)]
    header = [
        *map(heading, table.by),
        *(column if column == "minutes" else _headed(column, table) for column in columns),
        "priced",
        *shown,
    ]
    rows = []
    for row in [*table.rows, table.total]:
        figures = row_json(row)
        labels = row.labels or ("total", *[""] * (len(table.by) - 1))
        cells = [_cell(column, figures[column]) for column in columns]
        extra_cells = _extra_cells(row, extras)
        cells.append(_priced(row, table))
        rows.append([*labels, *cells, *(extra_cells.get(column, "–") for column in shown)])
    text = {header.index(column) for column in shown if column in _TEXT_COLUMNS}
    print_table(header, rows, set(range(len(table.by), len(header))) - text, total=True)


def _priced(row: Row, table: Rollup) -> str:
    """Of how many sessions of the row the money is known; of a single one, how."""
    if table.by != ("session",) or row is table.total:
        return row.coverage
    return "gpu estimated" if row.estimated else "stated" if row.priced else "no"


def _cell(column: str, value: object) -> str:
    if value is None:
        return "–"
    timed = column in {"minutes", "running minutes", "minutes saved"}
    return minutes_text(value) if timed and isinstance(value, int | float) else f"{value}"


_EXTRA_COLUMNS = (
    "running minutes", "running total", "saved", "saved %", "minutes saved", "minutes saved %",
    "compared over", "bugs", "per bug", "speedup", "per doubling",
)  # fmt: skip
_TEXT_COLUMNS = frozenset(("compared over",))


def _holds(extra: Extra, column: str) -> bool:
    first = next(iter(extra.values()), {})
    return column in _cells(first)


def _extra_cells(row: Row, extras: list[Extra]) -> dict[str, str]:
    cells: dict[str, str] = {}
    for extra in extras:
        cells |= {
            column: _cell(column, value)
            for column, value in _cells(extra.get(row.keys, {})).items()
            if value is not None
        }
    return cells


def _cells(values: object) -> dict[str, object]:
    """The values that an extra adds to a row, as columns of the table."""
    given: dict[str, object] = dict(values)  # type: ignore[call-overload]
    cells: dict[str, object] = {
        column: given[column.replace(" ", "_")]
        for column in ("running minutes", "running total")
        if column.replace(" ", "_") in given
    }
    if "compared" in given:
        compared = given["compared"]
        found: dict[str, object] = compared if isinstance(compared, dict) else {}
        over = ", ".join(found["kinds"]) if found.get("kinds") else None  # type: ignore[arg-type]
        left = _not_compared(found.get("not_compared"))
        cells |= {
            "saved": found.get("saved"),
            "saved %": found.get("saved_percent"),
            "minutes saved": found.get("minutes_saved"),
            "minutes saved %": found.get("minutes_saved_percent"),
            "compared over": f"{over or 'nothing'}; {left}" if left else over,
        }
    if "bugs_fixed" in given:
        claimed = given["bugs_fixed_claimed"]
        cells["bugs"] = f"{given['bugs_fixed']}" + (f" ({claimed} claimed)" if claimed else "")
        cells["per bug"] = _at_least(given, "per_bug")
    if "speedup" in given:
        factor, claimed = given["speedup"], given["speedup_basis"] == "claimed"
        cells["speedup"] = None if factor is None else f"{factor:g}×{' claimed' if claimed else ''}"
        cells["per doubling"] = _at_least(given, "per_doubling")
    return cells


def _not_compared(kinds: object) -> str:
    """``unknown: ai; in another currency: gpu``."""
    unknown: list[str] = []
    foreign: list[str] = []
    for kind, why in kinds.items() if isinstance(kinds, dict) else ():
        (foreign if why == "other currency" else unknown).append(kind)
    groups = (("unknown", unknown), ("in another currency", foreign))
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in groups if names)


def _at_least(given: dict[str, object], name: str) -> str | None:
    """Money over a number; ``≥`` where not all of the money is known."""
    amount = given[name]
    return None if amount is None else f"{'≥ ' if given[f'{name}_at_least'] else ''}{amount}"


def _headed(column: str, table: Rollup) -> str:
    return f"{column} {table.currency}" if column == "total" and table.currency else column


def _print_csv(table: Rollup, extras: list[Extra]) -> None:
    import csv
    import io

    from kbtool.ledger.export.lines import as_text
    from kbtool.ledger.rollup import EXPECTED, heading
    from kbtool.ledger.rollup_json import row_json

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    unknown = [f"unknown_{column}" for column in EXPECTED]
    # With several groupings each has a column; with one, the key is its value.
    groupings = table.by if len(table.by) > 1 else ()
    more = list(
        dict.fromkeys(name for extra in extras for row in extra.values() for name in _flat(row))
    )
    named = [heading(by).replace(" ", "_") for by in groupings]
    counts = ("sessions", "priced", "estimated")
    writer.writerow(["key", "label", *named, *COLUMNS, "currency", *counts, *unknown, *more])
    for row in table.rows:
        figures = row_json(row)
        extra_values: dict[str, object] = {}
        for extra in extras:
            extra_values |= _flat(extra.get(row.keys, {}))
        writer.writerow(
            [
                as_text(row.key),
                as_text(row.label),
                *(map(as_text, row.keys) if groupings else ()),
                *("" if figures[column] is None else figures[column] for column in COLUMNS),
                table.currency or "",
                *(figures[count] for count in counts),
                *(row.unknown.get(column, 0) for column in EXPECTED),
                *("" if extra_values.get(name) is None else extra_values[name] for name in more),
            ]
        )
    click.echo(text.getvalue().encode(), nl=False)  # a file for programs is UTF-8, as exports are


def _flat(values: object) -> dict[str, object]:
    """The values that an extra adds to a row, one per column; lists and mappings as words."""
    given: dict[str, object] = dict(values)  # type: ignore[call-overload]
    compared = given.pop("compared", None)
    if isinstance(compared, dict):
        given |= {
            f"compared_{name}": " ".join(value) if isinstance(value, (list, dict)) else value
            for name, value in compared.items()
        }
    return given


def _tell_gaps(table: Rollup, undated: int, *, empty: bool, any_at_all: bool) -> None:
    """Print on stderr what the sums leave out, and what is in several rows."""
    from kbtool.model.money import amount_text

    if not any_at_all:
        click.echo("kbtool: there are no sessions yet; `kbtool session new TITLE`", err=True)
    elif empty:
        click.echo("kbtool: no session is in that selection", err=True)
    if table.total.estimated:
        click.echo(
            f"kbtool: gpu is estimated for {many(len(table.total.estimated), 'session')}: the time"
            " that runs held a card, at its rate in sessions/ledger.yaml",
            err=True,
        )
    gaps = [
        f"{column} for {table.total.unknown[column]}"
        for column in COLUMNS
        if column in table.total.unknown
    ]
    if gaps:
        gaps[0] += f" of {many(len(table.total.sessions), 'session')}"
        why = "no record gives it" + (f" in {table.currency}" if table.other_currencies else "")
        click.echo(f"kbtool: not in the sums, because {why}: {', '.join(gaps)}", err=True)
    currency = table.currency or ""
    if table.shared:
        stand = "stands" if len(table.shared) == 1 else "stand"
        click.echo(
            f"kbtool: {many(len(table.shared), 'session')} {stand} in several rows, which together"
            f" exceed the total by {amount_text(table.repeated)} {currency}".rstrip()
            + "; the total counts once",
            err=True,
        )
    if table.unattributed:
        click.echo(
            f"kbtool: attributed {amount_text(table.attributed)} {currency}, unattributed"
            f" {amount_text(table.unattributed)} {currency}",
            err=True,
        )
    if undated:
        click.echo(f"kbtool: left out: {many(undated, 'session')} without a date", err=True)
    for name, lines in table.other_currencies.items():
        click.echo(f"kbtool: left out: {many(lines, 'cost line')} in {name}", err=True)
