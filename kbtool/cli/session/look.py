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
from kbtool.cli.complete import session_names
from kbtool.cli.session.common import (
    bracketed,
    cost_line,
    minutes,
    named,
    run_summary,
    single_fields,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kbtool.ledger.faults import Faults
    from kbtool.model.bug import Bug, Fix
    from kbtool.model.claim import Claim
    from kbtool.model.decision import Decision, Plan
    from kbtool.model.measurement import Measurement
    from kbtool.model.run import Run
    from kbtool.model.session import Evidence, Session
    from kbtool.store.tree import Entry

STATUSES = ["planned", "running", "paused", "complete", "terminated", "unknown"]


@click.command(
    "list",
    epilog="""\b
Examples:
  kbtool session list
  kbtool session list --status paused
  kbtool session list --json | jq -r '.sessions[] | select(.engineer == "Marie") | .id'
""",
)
@click.option("--status", type=click.Choice(STATUSES), help="Only sessions of this status.")
@json_option
@click.pass_context
def list_(ctx: click.Context, status: str | None, as_json: bool) -> None:
    """List sessions, the earliest first; each comes after the session that it follows."""
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


@click.command(
    epilog="""\b
Examples:
  kbtool session show
  kbtool session show last
  kbtool session show SESSION --json | jq .session.bugs

\b
A bug's status is derived from the bugs and fixes of all sessions; if the session's own record says
otherwise, both are shown. The last line lists the fields that are not shown."""
)
@click.argument("name", metavar="[ID|LABEL]", required=False, shell_complete=session_names)
@json_option
@click.pass_context
def show(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """Show a session: costs, figures, bugs, claims, plans, runs; --json has all."""
    from kbtool.ledger.faults import Faults

    base = knowledge_base(ctx)
    entry = named(base, name, "running")
    record = entry.record
    runs = base.runs_of(record.id)
    faults = Faults([e.record for e in base.sessions.values()])
    if as_json:
        print_json({
            "path": entry.path,
            "session": stored(record),
            "bugs": {bug.id: faults.became((record.id, bug.id)) for bug in record.bugs},
            "runs": [{"path": run.path, **run_summary(run.record)} for run in runs],
        })  # fmt: skip
    else:
        notes = (base.root / entry.path).with_name("notes.md")
        shown = base.shown(notes) if notes.is_file() else None
        _print_session(entry, shown, faults, [run.record for run in runs])
    warn_unreadable(base)


def _summary(record: Session) -> dict[str, Any]:
    from kbtool.ledger.rollup_json import number

    return {
        "id": record.id,
        "label": record.label,
        "title": record.title,
        "status": record.status,
        "day": record.day,
        "minutes": number(record.minutes),
        "engineer": record.engineer,
        "follows": record.follows,
        "tags": record.tags,
    }


def _print_session(
    entry: Entry[Session], notes: str | None, faults: Faults, runs: list[Run]
) -> None:
    from kbtool.runner.words import headline

    record = entry.record
    click.echo(f"{record.label}: {record.title}")
    times = " to ".join(str(t) for t in (record.started, record.ended) if t is not None)
    budget = [str(b) for b in (record.budget_time, record.budget_money) if b is not None]
    facts = {
        "record": entry.path,
        "notes": notes,
        "origin": record.origin,
        "status": record.status,
        "engineer": record.engineer,
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
        "kernels": ", ".join(record.kernels),
        "tags": ", ".join(record.tags),
    }
    for name, value in facts.items():
        if value:
            click.echo(f"  {name + ':':<11}{value}")
    for reason, why in record.unknown.items():
        click.echo(f"  {'unknown:':<11}{reason}: {why}")
    _print_list("stretches", [str(stretch) for stretch in record.stretches])
    _print_list("costs", [cost_line(line) for line in record.costs])
    _print_list("steps", [
        f"{step.id} ({step.status}): {step.title}"
        f"{bracketed(target=step.target, actual=step.actual)}"
        for step in record.steps
    ])  # fmt: skip
    for measurement in record.measurements:
        _print_measurement(measurement)
    _print_nested("bugs", [_bug_lines(faults, record.id, bug) for bug in record.bugs])
    _print_list("fixes", [f"{fix.bug}: {_fix(fix)}" for fix in record.fixes])
    _print_list("commits", [
        f"{commit.sha or commit.id} ({commit.role}): {commit.title or 'no title'}"
        for commit in record.commits
    ])  # fmt: skip
    _print_nested("decisions", [_decision_lines(decision) for decision in record.decisions])
    _print_list("evidence", [
        f"{e.pattern} {e.verdict}: {e.note}{_gained(e)}" for e in record.evidence
    ])  # fmt: skip
    _print_nested("claims", [_claim_lines(claim) for claim in record.claims])
    _print_nested("plans", [_plan_lines(plan) for plan in record.plans])
    _print_list("deliverables", [
        f"{d.id} ({d.state}): {d.title}{bracketed(**{k: str(v) for k, v in d.sizes.items()})}"
        for d in record.deliverables
    ])  # fmt: skip
    _print_list("lessons", record.lessons)
    _print_list("runs", [
        f"{run.started:%Y-%m-%d %H:%M}  {run.source}  {run.outcome}"
        f"{'  ' + head if (head := headline(run)) else ''}  ({run.id})" for run in runs
    ])  # fmt: skip
    left = _left_out(record)
    if left:
        click.echo(f"\nnot shown: {', '.join(left)}; --json has all")


_SHOWN: dict[str, tuple[str, ...]] = {
    "": (
        "id", "label", "title", "origin", "status", "engineer", "follows", "started", "ended",
        "updated", "duration", "budget_time", "budget_money", "objective", "outcome", "grade",
        "kernels", "tags", "lessons", "unknown",
    ),
    "environment": ("card",),
    "repository": ("commit",),
    "stretches": ("started", "ended"),
    "costs": (
        "kind", "amount", "currency", "basis", "duration", "rate", "card", "invoice", "note",
    ),
    "steps": ("id", "title", "target", "actual", "status"),
    "measurements": ("id", "title", "kind", "validated"),
    "measurements.columns": ("unit",),
    "measurements.rows": ("id", "case", "values", "verdict"),
    "bugs.hypotheses": ("id", "statement", "likelihood", "verdict"),
    "fixes": ("bug", "change", "place", "commit", "confirmed", "shown_by", "note"),
    "commits": ("id", "sha", "title", "role"),
    "decisions": ("id", "question", "chosen", "reason"),
    "decisions.options": ("id",),
    "evidence": (
        "pattern", "verdict", "note", "saved", "lost", "money", "expected", "shown_by", "where",
    ),
    "claims": ("id", "says", "stated", "how", "of"),
    "plans": ("id", "title", "for_session", "target", "budget", "expected", "figures"),
    "plans.steps": ("id", "title", "target"),
    "deliverables": ("id", "title", "sizes", "state"),
}  # fmt: skip
"""Place in a record → the fields that are printed; the last line lists the others."""

_NOT_SHOWN = {"bugs": ("error_text", "mutants", "source")}
"""Place in a record → the fields that are not printed; all others are."""


def _is_shown(place: str, name: str) -> bool:
    if place in _NOT_SHOWN:
        return name not in _NOT_SHOWN[place]
    return name in _SHOWN.get(place, ())


def _left_out(record: Session) -> list[str]:
    """The fields of the record that are not printed: ``environment (cpu, cuda)``."""
    found: dict[str, dict[str, None]] = {}
    for path in _not_shown(record):
        parts = path.split(".")
        if parts[-1] in ("source", "cites") or parts[0] == "sources":
            found["sources"] = {}
            continue
        # If no part of it is printed, its name is enough.
        whole = next((n for n in range(1, len(parts)) if not _some_of(parts[:n])), len(parts))
        key, *rest = parts[:whole]
        found.setdefault(key, {})[".".join(rest)] = None
    return [f"{key} ({', '.join(rest)})" if any(rest) else key for key, rest in found.items()]


def _some_of(parts: list[str]) -> bool:
    place = ".".join(parts)
    return any(one == place or one.startswith(f"{place}.") for one in [*_SHOWN, *_NOT_SHOWN])


def _not_shown(item: Any, path: str = "") -> Iterator[str]:
    """The places where ``item`` has values other than defaults that are not printed."""
    from kbtool.model.base import Model

    if isinstance(item, Model):
        for name, field in type(item).model_fields.items():
            value = getattr(item, name)
            default = field.get_default(call_default_factory=True)
            if value not in (None, default) and not _is_shown(path, name):
                yield from _not_shown(value, f"{path}.{name}" if path else name)
    elif isinstance(item, list | dict) and any(isinstance(one, Model) for one in _values(item)):
        for one in _values(item):
            yield from _not_shown(one, path)
    else:
        yield path


def _values(items: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return items.values() if isinstance(items, dict) else items


def _print_measurement(measurement: Measurement) -> None:
    validation = {True: ", validated before", False: ", not validated before", None: ""}
    click.echo(f"\nmeasurement {measurement.id}: {measurement.title}"
               f" ({measurement.kind}{validation[measurement.validated]})")  # fmt: skip
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


def _bug_lines(faults: Faults, own: str, bug: Bug) -> list[str]:
    status = faults.became((own, bug.id))
    if status != bug.status:
        status += f"; the session left it {bug.status}"
    lines = [f"{bug.id} ({status}): {bug.title}{bracketed(lost=bug.minutes_lost)}"]
    for name in single_fields(type(bug)):
        value = getattr(bug, name)
        if value is not None and _is_shown("bugs", name) and name not in _ON_FIRST_LINE:
            lines.append(f"{name.replace('_', ' ')}: {value}")
    for guess in bug.hypotheses:
        held = f", {guess.likelihood}" if guess.likelihood else ""
        lines.append(f"hypothesis {guess.id} ({guess.verdict}{held}): {guess.statement}")
    lines += [
        f"fix in {by.label}: {_fix(fix)}" for by, fix in faults.fixes((own, bug.id)) if by.id != own
    ]
    return lines


_ON_FIRST_LINE = {"id", "title", "status", "minutes_lost"}
"""Fields of a bug that are printed on its first line."""


def _fix(fix: Fix) -> str:
    """What was changed, and whether a test showed that it helped."""
    tested = None if fix.confirmed is None else "yes" if fix.confirmed else "no"
    shown = {"shown by": ", ".join(fix.shown_by) or None}
    facts = bracketed(place=fix.place, commit=fix.commit, confirmed=tested, **shown)
    return fix.change + facts + (f": {fix.note}" if fix.note else "")


def _gained(edge: Evidence) -> str:
    """Time and money as stated; marked if only expected."""
    text = bracketed(saved=edge.saved, lost=edge.lost, money=edge.money)
    return f"{text[:-1]}, expected]" if text and edge.expected else text


def _decision_lines(decision: Decision) -> list[str]:
    lines = [f"{decision.id}: {decision.question} → {decision.chosen or 'open'}"]
    if decision.options:
        lines.append(f"options: {', '.join(option.id for option in decision.options)}")
    return [*lines, f"reason: {decision.reason}"] if decision.reason else lines


def _claim_lines(claim: Claim) -> list[str]:
    lines = [f"{claim.id}: {claim.says}"]
    stated = "" if claim.stated is None else f"stated: {claim.stated}"
    if claim.how is not None:
        follows = f"{claim.how} of {_operands(claim.of)}"
        stated = f"{stated}; derives from: {follows}" if stated else f"derives from: {follows}"
    return [*lines, stated] if stated else lines


def _operands(operands: Sequence[object]) -> str:
    """Operands on one line; if more than six, some of them and their number."""
    from kbtool.model.claim import Derivation

    texts = [
        f"{operand.how}({_operands(operand.of)})"
        if isinstance(operand, Derivation)
        else f"{operand}"
        for operand in operands
    ]
    if len(texts) > 6:
        return f"{texts[0]}, {texts[1]} … {texts[-1]} ({len(texts)} figures)"
    return ", ".join(texts)


def _plan_lines(plan: Plan) -> list[str]:
    meant = f" for {plan.for_session}" if plan.for_session else ""
    lines = [f"{plan.id}{meant}: {plan.title}{bracketed(target=plan.target, budget=plan.budget)}"]
    lines += [f"{step.id}: {step.title}{bracketed(target=step.target)}" for step in plan.steps]
    lines += [f"expected: {text}" for text in plan.expected]
    figures = [f"{name} {value}" for name, value in plan.figures.items()]
    return [*lines, f"figures: {', '.join(figures)}"] if figures else lines


def _print_nested(title: str, items: list[list[str]]) -> None:
    """Print a list whose items have further lines below them."""
    _print_list(title, ["\n      ".join(lines) for lines in items])


def _print_list(title: str, items: list[str]) -> None:
    if items:
        click.echo(f"\n{title}")
        for item in items:
            click.echo(f"  - {item}")
