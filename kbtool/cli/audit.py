"""``kbtool audit``: every claim recomputed from the figures that determine it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import json_option, knowledge_base, print_json, warn_unreadable
from kbtool.cli.selection import Selection, selection_options
from kbtool.model.words import many

if TYPE_CHECKING:
    from kbtool.ledger.claims.report import Answer

EPILOG = """\b
Examples:
  kbtool audit                       claims that do not hold, each with its computation
  kbtool audit --grade decision      only claims whose correct figure changes a decision
  kbtool audit --session last --all  every claim of one session, those that hold too
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
    from kbtool.cli.selection import select_of
    from kbtool.ledger.claims.many import audit_for
    from kbtool.ledger.claims.report import GRADES
    from kbtool.model.errors import UsageError

    if grades and everything:
        raise UsageError("--grade and --all exclude each other; give one")
    base = knowledge_base(ctx)
    shown = grades or (GRADES if everything or as_json else ("inconsistent", "decision"))

    def chosen(ordered: list[Any]) -> list[str]:
        return [session.id for session in select_of(base, ordered, selection)[0]]

    select = chosen if any(selection) else None
    answer = audit_for(base, shown, in_full=not as_json, select=select)  # type: ignore[arg-type]
    if as_json:
        print_json(answer.as_json())
    else:
        _print(answer)
    warn_unreadable(base)
    click.echo(_summary(answer), err=True)
    if not answer.passed:
        ctx.exit(1)


def _print(answer: Answer) -> None:
    for finding in answer.findings:
        click.echo("\n".join(_paragraph(finding)) + "\n")
    for stale in answer.stale:
        click.echo(f"{stale['path']}:{stale['line']}: stale: {stale['message']}\n")


def _paragraph(finding: dict[str, Any]) -> list[str]:
    known = ", acknowledged" if finding["acknowledged"] is not None else ""
    place = f"{finding['path']}:{finding['line']}"
    lines = [f"{place}: {finding['grade']}{known}: {finding['claim']}", f"  {finding['says']}"]
    stated = f"stated {finding['stated']}; " if finding["stated"] is not None else ""
    lines.append(f"  {stated}comes out {finding['derived'] or 'nothing'}")
    if finding["why"]:
        lines.append(f"  {finding['why']}")
    if finding["expression"]:
        lines.append(f"  = {finding['expression']}")
    for operand in finding["operands"]:
        if operand["path"] is not None:
            lines.append(f"      {operand['value']}  {operand['path']}:{operand['line']}")
    lines += [f"  changes {changed}" for changed in finding["turns"]]
    if finding["acknowledged"] is not None:
        lines.append(f"  acknowledged: {finding['acknowledged']}")
    return lines


def _summary(answer: Answer) -> str:
    counts = answer.counts
    wrong = counts["inconsistent"] + counts["decision"]
    claims = wrong + counts["consistent"] + counts["undetermined"]
    change = "changes" if counts["decision"] == 1 else "change"
    decisive = f"{counts['decision']:,} of them {change} a decision; " if counts["decision"] else ""
    stale = f"; {many(counts['stale'], 'acknowledgement')} of nothing" if counts["stale"] else ""
    left_out = len(set(answer.left_out))
    do = "does" if left_out == 1 else "do"
    without = f"; without {many(left_out, 'file')} that {do} not load" if left_out else ""
    return (
        f"audited {many(claims, 'claim')}: {counts['consistent']:,} consistent,"
        f" {wrong:,} inconsistent ({decisive}{counts['acknowledged']:,} acknowledged),"
        f" {counts['undetermined']:,} undetermined{stale}{without}"
    )
