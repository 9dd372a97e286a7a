"""``kbtool session``: make, list, show and keep sessions; take in runs made elsewhere."""

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

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kbtool.model.claim import Claim
    from kbtool.model.run import Run
    from kbtool.model.session import Bug, CostLine, Measurement, Plan, Session
    from kbtool.runner.intake import Intake
    from kbtool.store.tree import Entry, KnowledgeBase

EPILOG = """\b
Examples:
  kbtool session new "Fix the NaN at S=4" --budget-time '2 h'
  kbtool session note "the tail is read past its end"
  kbtool session cost gpu 0.40 --basis billed
  kbtool session close --outcome "fixed; validated at 1e-3"
  kbtool session import ~/from-the-card --session N+8
  kbtool session list --status running
  kbtool session show N+7A

\b
A session goes by its id, its label, or the beginning of its id. Without one, a command takes the
session that is running (resume: the one that is paused)."""

STATUSES = ["planned", "running", "paused", "complete", "terminated", "unknown"]


@click.group(epilog=EPILOG)
def session() -> None:
    """Make, list, show and keep the records of sittings."""


@session.command(
    epilog="""\b
Examples:
  kbtool session new "Fix the NaN at S=4"
  kbtool session new "Two passes" --label N+8 --objective "reach 1.2 times SDPA" --budget-time '2 h'
  cd "$(kbtool session new Profile --json | jq -r .folder)"
"""
)
@click.argument("title")
@click.option("--label", help="The session's own name: N+8. The name in its id if not given.")
@click.option("--objective", help="What it sets out to do.")
@click.option("--budget-time", metavar="TIME", help="The time box: '2 h'.")
@click.option("--budget-money", metavar="MONEY", help="The money box: '5 USD'.")
@click.option("--planned", is_flag=True, default=False, help="Plan it; do not start it yet.")
@json_option
@click.pass_context
def new(
    ctx: click.Context,
    title: str,
    label: str | None,
    objective: str | None,
    budget_time: str | None,
    budget_money: str | None,
    planned: bool,
    as_json: bool,
) -> None:
    """Make a session: a record with the machine and the commit filled in, and notes."""
    from kbtool.gpu.probe import probe_machine
    from kbtool.model.errors import UsageError
    from kbtool.store.repository import repository_state
    from kbtool.store.sessions import create_session

    base = knowledge_base(ctx)
    _refuse_title(title)
    for what, text in (("label", label), ("objective", objective)):
        _refuse_prose(what, text or "")
    if label is not None:
        _refuse_taken_label(base, label)
    try:
        entry = create_session(
            base,
            title=title.strip(),
            label=label.strip() if label is not None else None,
            status="planned" if planned else "running",
            objective=objective.strip() if objective is not None else None,
            budget_time=budget_time,
            budget_money=budget_money,
            machine=None if planned else probe_machine(),
            repository=None if planned else repository_state(base.root),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    folder = (base.root / entry.path).parent
    if as_json:
        print_json({"id": entry.record.id, "folder": str(folder), "record": _record(entry.record)})
        return
    click.echo(entry.path)
    click.echo(f"{entry.record.id} is {entry.record.status}", err=True)
    click.echo("fill in session.yaml; `kbtool session note TEXT` keeps notes; then"
               " `kbtool session close`", err=True)  # fmt: skip


@session.command("list")
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
        rows = [[r.id, r.label, r.status, _minutes(r), r.title] for r in chosen]
        print_table(["id", "label", "status", "minutes", "title"], rows, {3})
    warn_unreadable(base)
    if not base.sessions:
        click.echo("kbtool: there are no sessions yet; `kbtool session new TITLE`", err=True)
    elif not chosen:
        click.echo(f"kbtool: no session is {status}", err=True)


@session.command()
@click.argument("name", metavar="[ID|LABEL]", required=False)
@json_option
@click.pass_context
def show(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """Show a session: costs, figures, bugs, claims, plans, runs; --json has all."""
    base = knowledge_base(ctx)
    entry = _named(base, name, "running")
    runs = [e for e in base.runs if e.record.session == entry.record.id]
    if as_json:
        print_json({
            "path": entry.path,
            "session": _record(entry.record),
            "runs": [{"path": run.path, **_run_summary(run.record)} for run in runs],
        })  # fmt: skip
    else:
        _print_session(entry, [run.record for run in runs])
    warn_unreadable(base)


@session.command()
@click.argument("name", metavar="ID|LABEL")
@click.pass_context
def start(ctx: click.Context, name: str) -> None:
    """Begin a planned session now."""
    from kbtool.store.edit import start_session

    path, _ = _path(ctx, name, "planned")
    _say_status(start_session(path))


@session.command()
@click.argument("name", metavar="[ID|LABEL]", required=False)
@click.pass_context
def pause(ctx: click.Context, name: str | None) -> None:
    """Stop the clock."""
    from kbtool.store.edit import pause_session

    path, _ = _path(ctx, name, "running")
    _say_status(pause_session(path))


@session.command()
@click.argument("name", metavar="[ID|LABEL]", required=False)
@click.pass_context
def resume(ctx: click.Context, name: str | None) -> None:
    """Start the clock again; the pause does not count as work."""
    from kbtool.store.edit import resume_session

    path, _ = _path(ctx, name, "paused")
    _say_status(resume_session(path))


@session.command()
@click.argument("name", metavar="[ID|LABEL]", required=False)
@click.option("--outcome", help="What came of it.")
@click.option(
    "--as",
    "status",
    type=click.Choice(["complete", "terminated"]),
    default="complete",
    show_default=True,
    help="How it ended.",
)
@click.pass_context
def close(ctx: click.Context, name: str | None, outcome: str | None, status: str) -> None:
    """End a session now."""
    from kbtool.store.edit import close_session

    path, record = _path(ctx, name, "running")
    _refuse_secrets(outcome or "")
    closed = close_session(path, status=status, outcome=outcome)  # type: ignore[arg-type]
    _say_status(closed)
    if not record.costs:
        click.echo("no cost is recorded: `kbtool session cost gpu 0.40 --basis billed"
                   f" --session {record.id}`", err=True)  # fmt: skip


@session.command(
    epilog="""\b
Example:
  kbtool session note "S=4 differs by 0.08; the bound of 0.1 hides it"
"""
)
@click.argument("text")
@click.option("--session", "name", metavar="ID|LABEL", help="The session, if not the running one.")
@click.pass_context
def note(ctx: click.Context, text: str, name: str | None) -> None:
    """Add a line with the time to notes.md."""
    from kbtool.store.edit import add_note

    path, _ = _path(ctx, name, "running")
    _refuse_secrets(text)
    click.echo(add_note(path, text))


@session.command(
    epilog="""\b
Examples:
  kbtool session cost gpu 0.40 --basis billed
  kbtool session cost gpu --rate l4                       for as long as the session lasts
  kbtool session cost engineer --rate '50 USD/h' --duration '90 min' --session N+7A
  kbtool session cost gpu 0.36 --basis estimated --rate l4 --duration '107 min'

\b
An estimate may leave AMOUNT out: it is the rate times the duration, or times the session's own time
without its pauses, to the cent. Where both are given they must agree."""
)
@click.argument("kind", type=click.Choice(["gpu", "ai", "engineer", "other"]))
@click.argument("amount", required=False)
@click.option(
    "--basis",
    type=click.Choice(["billed", "estimated", "claimed"]),
    help="On an invoice; from a rate and a time; stated by somebody.",
)
@click.option(
    "--currency",
    metavar="CODE",
    help="Three capitals, as in ISO 4217; that of the rate, else USD.",
)
@click.option("--duration", metavar="TIME", help="The time paid for: '2 h'.")
@click.option(
    "--rate",
    metavar="ID|RATE",
    help="A rate of sessions/ledger.yaml, or the price of a unit of time: '0.20 USD/h'.",
)
@click.option("--card", help="The card paid for, if not the session's.")
@click.option("--note", "remark", help="What the line covers.")
@click.option("--session", "name", metavar="ID|LABEL", help="The session, if not the running one.")
@click.pass_context
def cost(
    ctx: click.Context,
    kind: str,
    amount: str | None,
    basis: str | None,
    currency: str | None,
    duration: str | None,
    rate: str | None,
    card: str | None,
    remark: str | None,
    name: str | None,
) -> None:
    """Add a line to the costs of a session: AMOUNT, a decimal number, of KIND."""
    from pydantic import ValidationError

    from kbtool.ledger.rates import find_rate, sound_ledger
    from kbtool.model.errors import UsageError
    from kbtool.model.price import currency_of
    from kbtool.model.session import CostLine
    from kbtool.store.edit import add_cost

    path, record = _path(ctx, name, "running")
    if amount is None and rate is None:
        raise UsageError("give the amount, or --rate to derive it from")
    if basis is None and amount is not None:
        raise UsageError("say what the amount rests on: --basis billed, estimated or claimed")
    if amount is None and basis not in (None, "estimated"):
        raise UsageError(f"an amount that is {basis} is known; give it")
    ledger = sound_ledger(knowledge_base(ctx))
    found = None if rate is None else find_rate(ledger, "--rate", rate)
    given = {
        "kind": kind,
        "amount": None if amount is None else amount.strip(),
        "basis": basis or "estimated",
        "duration": duration,
        "rate": None if found is None else found.rate.text,
        "card": card,
        "note": remark,
    }
    if found is not None and found.price is not None:
        price = found.price
        if price.kind != kind:
            raise UsageError(f"{price.id} is a rate of {price.kind}, not of {kind}")
        given["rate_id"] = price.id
        if card is None and _other_card(record, price.card):
            given["card"] = price.card
    line = {key: value for key, value in given.items() if value is not None}
    paid_in = (currency or ("USD" if found is None else currency_of(found.rate))).upper()
    if paid_in != "USD":
        line["currency"] = paid_in
    _refuse_secrets(*line.values())
    try:
        CostLine.model_validate(line)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = problem["loc"][0] if problem["loc"] else "cost"
        said = problem["msg"].removeprefix("Value error, ")
        raise UsageError(f"{place}: {said}") from None
    # Read back: what an open line comes to follows from the session's time.
    added = add_cost(path, line).costs[-1]
    click.echo(f"{record.id}: {_cost_line(added)}")


@session.command(
    "import",
    epilog="""\b
Examples:
  kbtool session import ~/from-the-card/sessions/2026-11-21-run-of-recipe-split-k --session N+8
  kbtool session import runs/*.json --new "Sweep on the H100" --dry-run
  kbtool session import ../clone-on-the-card      each run into the session that it names

\b
Exit status: 0 taken in, or here already; 1 one is refused, and nothing was written; 2 usage.""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--session",
    "name",
    metavar="ID|LABEL",
    help="Take all of them into this session. Without it, each goes to the one that it names.",
)
@click.option("--new", "title", metavar="TITLE", help="Make a session for them.")
@click.option("--dry-run", is_flag=True, default=False, help="Judge them and write nothing.")
@json_option
@click.pass_context
def import_(
    ctx: click.Context,
    paths: tuple[str, ...],
    name: str | None,
    title: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Take in runs that were made on another machine: all that are sound, or none.

    PATH is a run record, or a folder that was copied from there: of runs, of a session, of a whole
    knowledge base. A run that was edited or cut off is refused, as is what `kbtool check` would
    find; what is here already is skipped. Of the rest it is told whether the commit and the
    sources that they name are those of this repository.
    """
    from pathlib import Path

    from kbtool.model.errors import UsageError
    from kbtool.runner.intake import run_files, take_in

    base = knowledge_base(ctx)
    if name is not None and title is not None:
        raise UsageError(
            "--session names a session that is here, --new makes one; give one of them"
        )
    if title is not None:
        _refuse_title(title)
        title = title.strip()
    files, journals = run_files([Path(path) for path in paths])
    intake = take_in(base.root, files, session=name, new=title, dry_run=dry_run)
    if as_json:
        print_json({
            "session": intake.session,
            "made": intake.made,
            "dry_run": dry_run,
            "taken": [
                {"file": one.file, "path": one.path, **_run_summary(one.run),
                 "taken_in": one.run.taken_in, "remarks": one.remarks}
                for one in intake.taken
            ],
            "known": [
                {"file": one.file, "path": one.path, "id": one.run.id} for one in intake.known
            ],
            "refused": [finding._asdict() for finding in intake.refused],
        })  # fmt: skip
    else:
        _print_intake(intake)
    for path in journals:
        click.echo(f"kbtool: {path} is of a run that was cut off: `kbtool recover` on that machine"
                   " writes its record", err=True)  # fmt: skip
    if intake.refused:
        click.echo("kbtool: nothing was taken in", err=True)
        ctx.exit(1)
    _say_taken(intake, dry_run)


def _named(base: KnowledgeBase, name: str | None, status: str) -> Entry[Session]:
    """The session of that name, or without one the only session of that status."""
    from kbtool.model.errors import UsageError

    if name is not None:
        return base.session(name)
    there = [entry for entry in base.sessions.values() if entry.record.status == status]
    if len(there) == 1:
        return there[0]
    if there:
        names = ", ".join(entry.record.id for entry in there)
        raise UsageError(f"more than one session is {status}: {names}; name one")
    raise UsageError(f"no session is {status}; name one (see `kbtool session list`)")


def _path(ctx: click.Context, name: str | None, status: str) -> tuple[Path, Session]:
    base = knowledge_base(ctx)
    if name is not None:
        # An unsound record has no label to go by; its folder leads to it, and to its findings.
        path = base.root / "sessions" / name / "session.yaml"
        if "/" not in name and path.is_file() and name not in base.sessions:
            _refuse_unsound(base, name)
    entry = _named(base, name, status)
    return base.root / entry.path, entry.record


def _refuse_unsound(base: KnowledgeBase, name: str) -> None:
    from kbtool.model.errors import RecordError

    base.sessions  # noqa: B018 - loads them, and finds what is wrong
    own = [str(f) for f in base.findings if f.path == f"sessions/{name}/session.yaml"]
    if own:
        raise RecordError("\n".join([f"sessions/{name} is not sound; mend it first:", *own]))


def _refuse_taken_label(base: KnowledgeBase, label: str) -> None:
    from kbtool.model.errors import UsageError

    if not label.strip():
        raise UsageError("the label is empty")
    for entry in base.sessions.values():
        if entry.record.label == label.strip():
            raise UsageError(f"session {entry.record.id} has the label {label.strip()!r} already")


def _refuse_title(title: str) -> None:
    from kbtool.model.errors import UsageError

    if not title.strip():
        raise UsageError("the title is empty")
    _refuse_prose("title", title)


def _refuse_prose(what: str, text: str) -> None:
    from kbtool.model.errors import UsageError

    _refuse_secrets(text)
    if len(text.strip().splitlines()) > 1:
        raise UsageError(f"the {what} has more than one line; prose goes into notes.md")


def _refuse_secrets(*texts: str) -> None:
    from kbtool.checks.text_rules import TEXT_RULES
    from kbtool.model.errors import UsageError

    for text in texts:
        for rule in TEXT_RULES:
            for finding in rule("", text):
                raise UsageError(f"the text {finding.message}")


def _print_intake(intake: Intake) -> None:
    for taken in intake.taken:
        run = taken.run
        head = _headline(run)
        click.echo(taken.path)
        click.echo(f"  {run.recipe} {run.status}{f', {head}' if head else ''}")
        if run.taken_in is not None:
            click.echo(f"  made in session {run.taken_in.session}")
        for remark in taken.remarks:
            click.echo(f"  note: {remark}")
    for known in intake.known:
        click.echo(f"{known.path}\n  is here already: {known.file}")
    for finding in intake.refused:
        click.echo(str(finding))


def _say_taken(intake: Intake, dry_run: bool) -> None:
    known = f"{len(intake.known)} here already"
    if dry_run:
        click.echo(f"dry run: {len(intake.taken)} would be taken in, {known}; nothing was written",
                   err=True)  # fmt: skip
        return
    click.echo(f"{len(intake.taken)} taken in, {known}", err=True)
    for session in dict.fromkeys(taken.run.session for taken in intake.taken):
        click.echo(f"session: kbtool session show {session}", err=True)


def _say_status(record: Session) -> None:
    spent = "" if record.minutes is None else f" after {_minutes(record)} min"
    click.echo(f"{record.id} is {record.status}{spent}")


def _minutes(record: Session) -> str:
    if record.minutes is None:
        return "–"
    return f"{record.minutes:.1f}".removesuffix(".0")


def _record(record: Session) -> Any:
    return record.model_dump(mode="json", exclude_defaults=True)


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


def _run_summary(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "attempt": run.attempt,
        "started": run.started.isoformat(),
        "recipe": run.recipe,
        "status": run.status,
        "headline": _headline(run),
    }


def _headline(run: Run) -> str:
    """The figures of a run that one wants first."""
    from kbtool.model.results import BenchmarkResult, ValidationResult

    said = []
    for step in run.steps:
        result = step.result
        if isinstance(result, ValidationResult):
            passed = sum(case.passed for case in result.cases)
            left = f", {result.not_reached} not reached" if result.not_reached else ""
            said.append(f"{passed} of {len(result.cases)} cases correct{left}")
        elif isinstance(result, BenchmarkResult):
            ratios = sorted(r for case in result.cases if (r := result.ratio(case)) is not None)
            if result.noise is not None:
                said.append(result.noise)
            elif ratios:
                said.append(f"{ratios[0]:.2f}–{ratios[-1]:.2f} times {result.baseline}")
    failed = [step for step in run.steps if step.status not in {"passed", "not-run"}]
    said.extend(f"{step.id}: {step.message or step.status}" for step in failed)
    return "; ".join(said)


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
        "minutes": None if record.minutes is None else _minutes(record),
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
    _print_list("costs", [_cost_line(line) for line in record.costs])
    _print_list("steps", [
        f"{step.id} ({step.status}): {step.title}{_told(target=step.target, actual=step.actual)}"
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
        f"{d.id} ({d.state}): {d.title}{_told(**{k: str(v) for k, v in d.sizes.items()})}"
        for d in record.deliverables
    ])  # fmt: skip
    _print_list("lessons", record.lessons)
    _print_list("runs", [
        f"{run.started:%Y-%m-%d %H:%M}  {run.recipe}  {run.status}"
        f"{'  ' + head if (head := _headline(run)) else ''}  ({run.id})" for run in runs
    ])  # fmt: skip
    left = [name for name in _NOT_SHOWN if getattr(record, name)]
    if left:
        click.echo(f"\nnot shown: {', '.join(left)}, notes and sources of single figures;"
                   " --json has all")  # fmt: skip


_NOT_SHOWN = ("environment", "repository", "stretches", "commits", "tags")


def _told(**figures: object) -> str:
    """What is known of ``figures``, in brackets: `` [target 25 min, actual 75 min]``."""
    known = [f"{name} {value}" for name, value in figures.items() if value is not None]
    return f" [{', '.join(known)}]" if known else ""


def _other_card(record: Session, card: str | None) -> bool:
    """Whether a price is of another card than the session's."""
    own = record.environment.card if record.environment else None
    return card is not None and (own is None or card.lower() not in own.lower())


def _cost_line(line: CostLine) -> str:
    unknown = f"{'so far ' if line.is_open else ''}unknown, in {line.currency}"
    amount = unknown if line.amount is None else f"{line.amount} {line.currency}"
    said = f"{line.kind} {amount} ({line.basis})"
    return said + _told(duration=line.duration, rate=line.rate, card=line.card)


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
    lines = [f"{bug.id} ({bug.status}): {bug.title}{_told(lost=bug.minutes_lost)}"]
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
    lines = [f"{plan.id}{meant}: {plan.title}{_told(target=plan.target, budget=plan.budget)}"]
    lines += [f"{step.id}: {step.title}{_told(target=step.target)}" for step in plan.steps]
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
