"""``kbtool session`` ``list``, ``show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import (
    json_option,
    knowledge_base,
    print_json,
    print_table,
    warn_unreadable,
)
from kbtool.cli.session.common import (
    cost_line,
    headline,
    minutes,
    named,
    run_summary,
    stored,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtool.model.claim import Claim
    from kbtool.model.run import Run
    from kbtool.model.session import Bug, Measurement, Plan, Session
    from kbtool.store.tree import Entry

STATUSES = ["planned", "running", "paused", "complete", "terminated", "unknown"]


@click.command("list")
@click.option("--status", type=click.Choice(STATUSES), help="Only sessions of this status.")
@json_option
@click.pass_context
def list_(ctx: click.Context, status: str | None, as_json: bool) -> None:
    """List sessions, in the order of the work."""
    base = knowledge_base(ctx)
    chosen = [e.record for e in base.sessions.values() if status in (None, e.record.status)]
    if as_json:
        print_json({"sessions": [_summary(record) for record in chosen]})
    elif chosen:
        rows = [[r.id, r.label, r.status, minutes(r), r.title] for r in chosen]
        print_table(["id", "label", "status", "minutes", "title"], rows, {3})
    warn_unreadable(base)
    if not base.sessions:
        click.echo("kbtool: there are no sessions yet; `kbtool session new TITLE`", err=True)
    elif not chosen:
        click.echo(f"kbtool: no session is {status}", err=True)


@click.command()
@click.argument("name", metavar="[ID|LABEL]", required=False)
@json_option
@click.pass_context
def show(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """Show a session: costs, figures, bugs, claims, plans, runs; --json has all."""
    base = knowledge_base(ctx)
    entry = named(base, name, "running")
    runs = [e for e in base.runs if e.record.session == entry.record.id]
    if as_json:
        print_json({
            "path": entry.path,
            "session": stored(entry.record),
            "runs": [{"path": run.path, **run_summary(run.record)} for run in runs],
        })  # fmt: skip
    else:
        _print_session(entry, [run.record for run in runs])
    warn_unreadable(base)


def _summary(record: Session) -> dict[str, Any]:
    from kbtool.ledger.rollup import number

    return {
        "id": record.id,
        "label": record.label,
        "title": record.title,
        "status": record.status,
        "day": record.day,
        "minutes": number(record.minutes),
        "follows": record.follows,
        "tags": record.tags,
    }


def _print_session(entry: Entry[Session], runs: list[Run]) -> None:
    record = entry.record
    click.echo(f"{record.label}: {record.title}")
    times = " to ".join(str(t) for t in (record.started, record.ended) if t is not None)
    budget = [str(b) for b in (record.budget_time, record.budget_money) if b is not None]
    facts = {
        "record": entry.path,
        "status": record.status,
        "follows": record.follows,
        "time": times,
        "updated": record.updated,
        "minutes": None if record.minutes is None else minutes(record),
        "budget": ", ".join(budget),
        "card": record.environment and record.environment.card,
        "commit": record.repository and record.repository.commit,
        "objective": record.objective,
        "outcome": record.outcome,
        "grade": record.grade,
    }
    for name, value in facts.items():
        if value:
            click.echo(f"  {name + ':':<11}{value}")
    for reason, why in record.unknown.items():
        click.echo(f"  {'unknown:':<11}{reason}: {why}")
    _print_list("costs", [cost_line(line) for line in record.costs])
    _print_list("steps", [
        f"{step.id} ({step.status}): {step.title}{told(target=step.target, actual=step.actual)}"
        for step in record.steps
    ])  # fmt: skip
    for measurement in record.measurements:
        _print_measurement(measurement)
    _print_nested("bugs", [_bug_lines(bug) for bug in record.bugs])
    _print_list("fixes", [f"{fix.bug}: {fix.change}" for fix in record.fixes])
    _print_list("decisions", [
        f"{d.question} → {d.chosen or 'open'}" for d in record.decisions
    ])  # fmt: skip
    _print_list("evidence", [f"{e.pattern} {e.verdict}: {e.note}" for e in record.evidence])
    _print_nested("claims", [_claim_lines(claim) for claim in record.claims])
    _print_nested("plans", [_plan_lines(plan) for plan in record.plans])
    _print_list("deliverables", [
        f"{d.id} ({d.state}): {d.title}{told(**{k: str(v) for k, v in d.sizes.items()})}"
        for d in record.deliverables
    ])  # fmt: skip
    _print_list("lessons", record.lessons)
    _print_list("runs", [
        f"{run.started:%Y-%m-%d %H:%M}  {run.recipe}  {run.status}"
        f"{'  ' + head if (head := headline(run)) else ''}  ({run.id})" for run in runs
    ])  # fmt: skip
    left = [name for name in _NOT_SHOWN if getattr(record, name)]
    if left:
        click.echo(f"\nnot shown: {', '.join(left)}, notes and sources of single figures;"
                   " --json has all")  # fmt: skip


_NOT_SHOWN = ("environment", "repository", "stretches", "commits", "tags")


def _print_measurement(measurement: Measurement) -> None:
    said = {True: ", validated before", False: ", not validated before", None: ""}
    click.echo(f"\nmeasurement {measurement.id}: {measurement.title}"
               f" ({measurement.kind}{said[measurement.validated]})")  # fmt: skip
    columns = measurement.columns
    with_verdict = any(row.verdict for row in measurement.rows)
    units = {key: f"{key} {column.unit}".strip() for key, column in columns.items()}
    header = ["case", *units.values(), *(["verdict"] if with_verdict else [])]
    rows = []
    for row in measurement.rows:
        case = ", ".join(f"{key}={value}" for key, value in row.case.items()) or row.id
        figures = ["–" if (v := row.values.get(key)) is None else f"{v:f}" for key in columns]
        rows.append([case, *figures, *([row.verdict or "–"] if with_verdict else [])])
    print_table(header, rows, set(range(1, len(columns) + 1)), indent="  ")


def _bug_lines(bug: Bug) -> list[str]:
    lines = [f"{bug.id} ({bug.status}): {bug.title}{told(lost=bug.minutes_lost)}"]
    for name in ("symptom", "cause", "recurrence_of"):
        value = getattr(bug, name)
        if value is not None:
            lines.append(f"{name.replace('_', ' ')}: {value}")
    for guess in bug.hypotheses:
        held = f", {guess.likelihood}" if guess.likelihood else ""
        lines.append(f"hypothesis {guess.id} ({guess.verdict}{held}): {guess.statement}")
    return lines


def _claim_lines(claim: Claim) -> list[str]:
    lines = [f"{claim.id}: {claim.says}"]
    stated = "" if claim.stated is None else f"stated: {claim.stated}"
    if claim.how is not None:
        follows = f"{claim.how} of {_operands(claim.of)}"
        stated = f"{stated}; derives from: {follows}" if stated else f"derives from: {follows}"
    return [*lines, stated] if stated else lines


def _operands(operands: Sequence[object]) -> str:
    """Operands on one line; of more than six, the first and how many there are."""
    from kbtool.model.claim import Derivation

    said = [
        f"{operand.how}({_operands(operand.of)})"
        if isinstance(operand, Derivation)
        else f"{operand}"
        for operand in operands
    ]
    if len(said) > 6:
        return f"{said[0]}, {said[1]} … {said[-1]} ({len(said)} figures)"
    return ", ".join(said)


def _plan_lines(plan: Plan) -> list[str]:
    meant = f" for {plan.for_session}" if plan.for_session else ""
    lines = [f"{plan.id}{meant}: {plan.title}{told(target=plan.target, budget=plan.budget)}"]
    lines += [f"{step.id}: {step.title}{told(target=step.target)}" for step in plan.steps]
    lines += [f"expected: {text}" for text in plan.expected]
    figures = [f"{name} {value}" for name, value in plan.figures.items()]
    return [*lines, f"figures: {', '.join(figures)}"] if figures else lines


def _print_nested(title: str, items: list[list[str]]) -> None:
    """A list whose items have lines of their own below them."""
    _print_list(title, ["\n      ".join(lines) for lines in items])


def _print_list(title: str, items: list[str]) -> None:
    if items:
        click.echo(f"\n{title}")
        for item in items:
            click.echo(f"  - {item}")
