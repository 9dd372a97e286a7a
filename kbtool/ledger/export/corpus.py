"""What was tried, what failed and what worked, as JSON Lines: build recipes and failed attempts.

The same records give the same bytes: lines are sorted, keys too, and nothing of the export itself
(its time, the tool's version, where the records stand) is in it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from kbtool.checks.text_rules import TEXT_RULES
from kbtool.ledger.export.lines import Export
from kbtool.ledger.rollup_json import number
from kbtool.model.base import Model
from kbtool.model.bug import Fix
from kbtool.model.corpus import (
    Corpus,
    CorpusAttempt,
    CorpusBug,
    CorpusBuild,
    CorpusFix,
    CorpusKill,
    CorpusPattern,
    CorpusRun,
    CorpusSession,
    CorpusStep,
    CorpusTiming,
)
from kbtool.model.errors import RecordError
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.kinds.build import BuildResult
from kbtool.model.kinds.minimise import FailingCase
from kbtool.model.kinds.mutants import MutantsResult
from kbtool.model.kinds.validate import ValidationResult
from kbtool.model.run import Run, StepRecord
from kbtool.model.session import Session
from kbtool.store.tree import KnowledgeBase

M = TypeVar("M", bound=Model)

_TYPES = ("session", "pattern", "bug", "fix", "run", "attempt")
"""The order of the lines."""


def corpus(base: KnowledgeBase, sessions: Sequence[Session]) -> Export:
    """The corpus of ``sessions``: they, what is in them, and the patterns of the knowledge base.

    Raises:
        RecordError: a line holds a secret, or the address of a machine.
    """
    chosen = {session.id for session in sessions}
    everything = [entry.record for entry in base.sessions.values()]
    runs = [entry.record for entry in base.runs if entry.record.session in chosen]
    fixes: dict[str, list[str]] = {}
    for session in everything:
        for name, fix in _named_fixes(session):
            fixes.setdefault(_absolute(session, fix.bug), []).append(name)
    items: list[Any] = [_line_of(CorpusPattern, entry.record) for entry in base.patterns.values()]
    for session in sessions:
        items.append(_session(session))
        items.extend(_bugs(session, fixes))
        items.extend(_fixes(session))
        items.extend(_attempts(session))
    for run in runs:
        items.append(_run(run))
        items.extend(_failed_run(run))
    items.sort(key=lambda item: (_TYPES.index(item.type), item.id))
    counts = Counter(item.type for item in items)
    head = Corpus(counts={kind: counts[kind] for kind in _TYPES})
    lines = [_line(item, str(base.root)) for item in (head, *items)]
    return Export("".join(lines).encode(), len(items))


def _line(item: Model, root: str) -> str:
    """The line of an item, fit to be published."""
    data = _without_paths(item.model_dump(mode="json"), root)
    text = json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    for rule in TEXT_RULES:
        for finding in rule(f"{data['type']} {data.get('id', '')}", text):
            raise RecordError(
                f"{finding.path} {finding.message}; nothing was exported: `kbtool check` says where"
            )
    return text + "\n"


_HOME = re.compile(r"(?<![\w.])(?:/home/|/Users/|/root\b|[A-Za-z]:\\Users\\)[^\s/\\'\"`:;,)\]}]*")
_NAME = r"[^\s/\\'\"`:;,=|<>()\[\]{}]+"
_PATH = re.compile(
    # Not inside a word, a relative path or the address of a page; but after a compiler's flag.
    r"(?:(?<=-I)|(?<=-L)|(?<=-isystem)|(?<=file://)|(?<![\w./\\~+@%#&?-]))"
    r"(?:~?/(?!/|(?:usr|opt|lib|lib64|bin|sbin|etc|dev|proc|sys)/)"
    rf"(?:{_NAME}/)+({_NAME})?|(?:~|[A-Za-z]:)\\(?:{_NAME}\\)+({_NAME})?)"
)


def without_paths(text: str, root: str) -> str:
    """``text`` with the paths of this machine cut down to their last part.

    What is under ``root`` stays as it is from there; what every system has (/usr, /opt …) stays.
    """
    text = text.replace(f"{root.rstrip('/')}/", "")
    text = _HOME.sub("~", text)
    return _PATH.sub(lambda match: match[1] or match[2] or "…", text)


def _without_paths(node: Any, root: str) -> Any:
    if isinstance(node, str):
        return without_paths(node, root) if "/" in node or "\\" in node else node
    if isinstance(node, dict):
        return {_without_paths(k, root): _without_paths(v, root) for k, v in node.items()}
    if isinstance(node, list):
        return [_without_paths(part, root) for part in node]
    return node


def _line_of(kind: type[M], record: Model, **own: Any) -> M:
    """A line, or a part of one: the fields that it has in common with a record, and its own."""
    kept = (kind.model_fields.keys() & type(record).model_fields.keys()) - own.keys()
    return kind(**{name: getattr(record, name) for name in kept}, **own)


def _session(session: Session) -> CorpusSession:
    environment = session.environment
    minutes = number(session.minutes)
    return _line_of(
        CorpusSession,
        session,
        day=session.day,
        minutes=None if minutes is None else float(minutes),
        environment=environment and environment.model_copy(update={"instance": None}),
        commit=session.repository.commit if session.repository else None,
    )


def _absolute(session: Session, reference: str) -> str:
    """A reference as it reads outside of its record."""
    return f"{session.id}{reference}" if reference.startswith("#") else reference


def _bugs(session: Session, fixes: dict[str, list[str]]) -> Iterator[CorpusBug]:
    for bug in session.bugs:
        id_ = f"{session.id}#bugs.{bug.id}"
        recurrence_of = bug.recurrence_of and _absolute(session, bug.recurrence_of)
        yield _line_of(
            CorpusBug, bug, id=id_, session=session.id, recurrence_of=recurrence_of,
            fixes=sorted(fixes.get(id_, [])),
        )  # fmt: skip


def _named_fixes(session: Session) -> Iterator[tuple[str, Fix]]:
    for place, fix in enumerate(session.fixes):
        yield f"{session.id}#fixes.{fix.id or place}", fix


def _fixes(session: Session) -> Iterator[CorpusFix]:
    for name, fix in _named_fixes(session):
        bug = _absolute(session, fix.bug)
        yield _line_of(CorpusFix, fix, id=name, session=session.id, bug=bug)


def _attempts(session: Session) -> Iterator[CorpusAttempt]:
    """What the session's record says did not work."""
    for bug in session.bugs:
        about = f"{session.id}#bugs.{bug.id}"
        for guess in bug.hypotheses:
            if guess.verdict == "rejected":
                yield CorpusAttempt(
                    id=f"{about}.hypotheses.{guess.id}", session=session.id, kind="hypothesis",
                    about=about, tried=guess.statement, why=guess.note,
                )  # fmt: skip
    for step in session.steps:
        if step.status == "failed":
            yield CorpusAttempt(
                id=f"{session.id}#steps.{step.id}", session=session.id, kind="step",
                about=step.pattern, tried=step.title, why=step.note,
            )  # fmt: skip
    for name, fix in _named_fixes(session):
        if fix.confirmed is False:
            yield CorpusAttempt(
                id=name, session=session.id, kind="fix",
                about=_absolute(session, fix.bug), tried=fix.change, why=fix.note,
            )  # fmt: skip
    for place, evidence in enumerate(session.evidence):
        if evidence.verdict in {"contradicted", "not_reproduced"}:
            yield CorpusAttempt(
                id=f"{session.id}#evidence.{place}", session=session.id, kind="evidence",
                about=evidence.pattern, tried=f"Following {evidence.pattern}", why=evidence.note,
            )  # fmt: skip


_FAILED = {"failed", "timeout", "crashed"}
"""How a run ends whose recipe did not work; a machine that lacks something is no such thing."""


def _run_id(run: Run) -> str:
    return run.id if run.attempt == 1 else f"{run.id}.{run.attempt}"


def _failed_run(run: Run) -> Iterator[CorpusAttempt]:
    if run.status in _FAILED:
        step = next((step for step in run.steps if step.status != "passed"), run.steps[-1])
        yield CorpusAttempt(
            id=_run_id(run), session=run.session, kind="run", about=run.pattern,
            tried=f"{run.origin.title()} {run.source}, step {step.id}: {step.title}",
            why=step.error or step.message,
        )  # fmt: skip


def _run(run: Run) -> CorpusRun:
    return _line_of(
        CorpusRun,
        run,
        id=_run_id(run),
        commit=run.repository.commit,
        dirty=run.repository.dirty,
        steps=[_line_of(CorpusStep, step, **_found(step)) for step in run.steps],
    )


def _found(step: StepRecord) -> dict[str, Any]:
    """What the step found, without what only a machine reads: samples, every passed case."""
    match step.result:
        case BuildResult() as build:
            return {"build": _line_of(CorpusBuild, build)}
        case ValidationResult() as validation:
            failing = [
                FailingCase(case_set=case.case_set, name=case.name, message=case.message or "")
                for case in validation.cases
                if not case.passed
            ]
            return {"cases": len(validation.cases), "failing": failing}
        case BenchmarkResult() as benchmark:
            return {
                "timings": [
                    _line_of(CorpusTiming, time, case=case.name, arm=arm)
                    for case in benchmark.cases
                    if case.refused is None
                    for arm, time in case.arms.items()
                ]
            }  # fmt: skip
        case MutantsResult() as mutants:
            return {
                "kills": [
                    _line_of(CorpusKill, one, mutant=one.mutant.id) for one in mutants.mutants
                ]
            }
    return {}
