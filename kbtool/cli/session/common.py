"""What the commands share: finding a session, refusing texts, words for what a record holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbtool.cli.common import knowledge_base
from kbtool.model.words import many

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from kbtool.model.run import Run
    from kbtool.model.session import CostLine, Session
    from kbtool.store.tree import Entry, KnowledgeBase


def named(base: KnowledgeBase, name: str | None, status: str) -> Entry[Session]:
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


def path_of(ctx: click.Context, name: str | None, status: str) -> tuple[Path, Session]:
    """Where that session's record is, and what it says; refused if it is not sound."""
    base = knowledge_base(ctx)
    if name is not None:
        # An unsound record has no label to go by; its folder leads to it, and to its findings.
        path = base.root / "sessions" / name / "session.yaml"
        if "/" not in name and path.is_file() and name not in base.sessions:
            _refuse_unsound(base, name)
    entry = named(base, name, status)
    return base.root / entry.path, entry.record


def _refuse_unsound(base: KnowledgeBase, name: str) -> None:
    from kbtool.model.errors import RecordError

    base.sessions  # noqa: B018 - loads them, and finds what is wrong
    own = [str(f) for f in base.findings if f.path == f"sessions/{name}/session.yaml"]
    if own:
        raise RecordError("\n".join([f"sessions/{name} is not sound; mend it first:", *own]))


def refuse_title(title: str) -> None:
    """Raise if there is nothing in it, or what a record may not hold."""
    from kbtool.model.errors import UsageError

    if not title.strip():
        raise UsageError("the title is empty")
    refuse_prose("title", title)


def refuse_prose(what: str, text: str) -> None:
    """Raise if the text, ``what`` it is in words, has several lines or holds a secret."""
    from kbtool.model.errors import UsageError

    refuse_secrets(text)
    if len(text.strip().splitlines()) > 1:
        raise UsageError(f"the {what} has more than one line; prose goes into notes.md")


def refuse_secrets(*texts: str) -> None:
    """Raise if a text breaks a rule for all texts of records."""
    from kbtool.checks.text_rules import TEXT_RULES
    from kbtool.model.errors import UsageError

    for text in texts:
        for rule in TEXT_RULES:
            for finding in rule("", text):
                raise UsageError(f"the text {finding.message}")


def minutes(record: Session) -> str:
    """How long it took; a dash where that is not known."""
    if record.minutes is None:
        return "–"
    return f"{record.minutes:.1f}".removesuffix(".0")


def stored(record: Session) -> Any:
    """The record as it is stored."""
    return record.model_dump(mode="json", exclude_defaults=True)


def run_summary(run: Run) -> dict[str, Any]:
    """A run in a few fields, for JSON."""
    return {
        "id": run.id,
        "attempt": run.attempt,
        "started": run.started.isoformat(),
        "recipe": run.recipe,
        "status": run.status,
        "headline": headline(run),
    }


def headline(run: Run) -> str:
    """The figures of a run that one wants first."""
    from kbtool.model.results import BenchmarkResult, ValidationResult

    said = []
    for step in run.steps:
        result = step.result
        if isinstance(result, ValidationResult):
            passed = sum(case.passed for case in result.cases)
            left = f", {result.not_reached} not reached" if result.not_reached else ""
            said.append(f"{passed} of {many(len(result.cases), 'case')} correct{left}")
        elif isinstance(result, BenchmarkResult):
            ratios = sorted(r for case in result.cases if (r := result.ratio(case)) is not None)
            if result.noise is not None:
                said.append(result.noise)
            elif ratios:
                said.append(f"{ratios[0]:.2f}–{ratios[-1]:.2f} times {result.baseline}")
    failed = [step for step in run.steps if step.status not in {"passed", "not-run"}]
    said.extend(f"{step.id}: {step.message or step.status}" for step in failed)
    return "; ".join(said)


def cost_line(line: CostLine) -> str:
    """A line of the costs, in words."""
    unknown = f"{'so far ' if line.is_open else ''}unknown, in {line.currency}"
    amount = unknown if line.amount is None else f"{line.amount} {line.currency}"
    said = f"{line.kind} {amount} ({line.basis})"
    return said + told(duration=line.duration, rate=line.rate, card=line.card)


def told(**figures: object) -> str:
    """What is known of ``figures``, in brackets: `` [target 25 min, actual 75 min]``."""
    known = [f"{name} {value}" for name, value in figures.items() if value is not None]
    return f" [{', '.join(known)}]" if known else ""
