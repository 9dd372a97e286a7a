"""``kbtool audit``: every claim recomputed from the figures that determine it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, knowledge_base, print_json, warn_unreadable
from kbtool.cli.selection import Selection, selection_options
from kbtool.model.words import many

if TYPE_CHECKING:
    from kbtool.ledger.claims.report import Item, Report

EPILOG = """\b
Examples:
  kbtool audit                       claims that do not hold, each with its computation
  kbtool audit --grade decision      only claims whose correct figure changes a decision
  kbtool audit --session N+7A --all  every claim of one session, those that hold too
  kbtool audit --json | jq '.findings[] | select(.grade != "consistent")'

\b
A figure stands for every value that rounds to it, and so does each operand: a claim that can be
right is consistent. A claim with an unknown operand is undetermined, never wrong. To keep a wrong
figure in a record, give the reason there: acknowledged: {claims.total: the table has eight rows}.
Exit status: 0 every claim is consistent or acknowledged; 1 one is not, an acknowledged claim is not
wrong, or a record does not load and is left out; 2 usage."""


@click.command(epilog=EPILOG)
@selection_options
@click.option(
    "--grade",
    "grades",
    multiple=True,
    type=click.Choice(["consistent", "inconsistent", "decision", "undetermined"]),
    help="Only claims of this grade; repeatable.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    default=False,
    help="Every grade; what --json lists anyway.",
)
@json_option
@click.pass_context
def audit(
    ctx: click.Context,
    selection: Selection,
    grades: tuple[str, ...],
    everything: bool,
    as_json: bool,
) -> None:
    """Recompute every claim and grade it: consistent, inconsistent, or changing a decision.

    Checked are sums, differences, durations, rates, percentages, speedups, averages, counts, the
    order of times, figures that two records state, units, properties of cards, and claims of
    success.
    """
    from kbtool.cli.selection import select_sessions
    from kbtool.ledger.claims.audit import audit as audit_records
    from kbtool.ledger.claims.report import GRADES
    from kbtool.ledger.claims.report import as_json as report_json
    from kbtool.model.errors import UsageError

    if grades and everything:
        raise UsageError("--grade and --all exclude each other; give one")
    base = knowledge_base(ctx)
    report = audit_records(base)
    if any(selection):
        sessions, _ = select_sessions(base, selection)
        report = report.only(session.id for session in sessions)
    shown: tuple[str, ...] = grades
    if not grades:
        shown = GRADES if everything or as_json else ("inconsistent", "decision")
    if as_json:
        print_json(report_json(report, shown))  # type: ignore[arg-type]
    else:
        _print(report, shown)
    warn_unreadable(base)
    click.echo(_summary(report), err=True)
    if not report.passed:
        ctx.exit(1)


def _print(report: Report, grades: tuple[str, ...]) -> None:
    for item in report.items:
        if item.grade in grades:
            click.echo("\n".join(_paragraph(report, item)) + "\n")
    for stale in report.stale:
        path, line = report.place(stale.record, stale.where)
        click.echo(f"{path}:{line}: stale: {stale.message}\n")


def _paragraph(report: Report, item: Item) -> list[str]:
    from kbtool.ledger.claims.words import shown

    path, line = report.place(item.record, item.where)
    computed = report.computation(item)
    known = ", acknowledged" if item.acknowledged is not None else ""
    lines = [f"{path}:{line}: {item.grade}{known}: {item.claim}", f"  {item.says}"]
    stated = f"stated {item.stated}; " if item.stated is not None else ""
    lines.append(f"  {stated}comes out {computed.derived or 'nothing'}")
    if computed.why:
        lines.append(f"  {computed.why}")
    if computed.expression:
        lines.append(f"  = {computed.expression}")
    for leaf in computed.leaves:
        if leaf.record is not None and leaf.path is not None:
            where, at = report.place(leaf.record, leaf.path)
            lines.append(f"      {shown(leaf.value)}  {where}:{at}")
    lines += [f"  turns {place}" for place in item.turns]
    if item.acknowledged is not None:
        lines.append(f"  acknowledged: {item.acknowledged}")
    return lines


def _summary(report: Report) -> str:
    counts = report.counts
    wrong = counts["inconsistent"] + counts["decision"]
    turning = f", {counts['decision']} of them turning a decision" if counts["decision"] else ""
    stale = f"; {many(counts['stale'], 'acknowledgement')} of nothing" if counts["stale"] else ""
    left_out = len({finding.path for finding in report.base.findings})
    do = "does" if left_out == 1 else "do"
    without = f"; without {many(left_out, 'file')} that {do} not load" if left_out else ""
    return (
        f"audited {many(len(report.items), 'claim')}: {counts['consistent']:,} consistent,"
        f" {wrong:,} inconsistent{turning} ({counts['acknowledged']:,} acknowledged),"
        f" {counts['undetermined']:,} undetermined{stale}{without}"
    )
