"""Turn one file into facts: a pure function of path and bytes, so that it can be cached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbtool.checks.answers import look_up
from kbtool.checks.facts import Facts, Location, Ref
from kbtool.checks.guard import findings_of
from kbtool.checks.paths import claim_at, locate
from kbtool.checks.prose_rules import figures_have_sources, figures_in, prose_of
from kbtool.checks.record_file import RecordFile, promised_id, raw_id
from kbtool.checks.record_rules import RECORD_RULES, names_item
from kbtool.checks.rules import FACTS
from kbtool.checks.run_rules import benchmarks_are_possible, run_is_in_its_place
from kbtool.checks.text_rules import TEXT_RULES
from kbtool.model.base import Model
from kbtool.model.cheat import Catalogue
from kbtool.model.excuses import Excuses
from kbtool.model.finding import Finding, fault
from kbtool.model.kernel import Kernel
from kbtool.model.ledger import Ledger
from kbtool.model.pattern import Pattern
from kbtool.model.session import Session
from kbtool.model.symptom import Symptoms
from kbtool.store.document import DocumentError, conflict, parse
from kbtool.store.load import validate
from kbtool.store.scan import FileKind
from kbtool.store.sweeps import WRITTEN_BY_KBTOOL, open_sweep
from kbtool.store.tree import Entry, parse_run

_MODELS: dict[FileKind, type[Model]] = {
    "session": Session, "pattern": Pattern, "symptoms": Symptoms, "kernel": Kernel,
    "cheats": Catalogue, "ledger": Ledger, "excuses": Excuses,
}  # fmt: skip


def examine(path: str, kind: FileKind, raw: bytes, referenced: Sequence[str] = ()) -> Facts:
    """The facts of a file, and all findings that need no other file.

    Args:
        path: the file.
        kind: its kind.
        raw: its bytes.
        asked: for a run, the paths in it that other records refer to; the facts answer them.
    """
    facts = Facts(path, kind, promised_id(path, kind))
    try:
        _examine(facts, raw, referenced)
    except Exception as error:  # other files are checked, whatever is in this one
        facts.valid = False
        facts.findings.append(fault(path, "check", error))
    return facts


def _examine(facts: Facts, raw: bytes, referenced: Sequence[str]) -> None:
    path, kind = facts.path, facts.kind
    text = raw.decode("utf-8", errors="replace")
    if kind in {"notes", "text"}:
        unmerged = conflict(text, path)
        if unmerged is not None:
            facts.findings.append(unmerged)
    if kind == "text":
        pass
    elif kind == "notes":
        _examine_notes(facts, raw)
    elif kind == "run":
        _examine_run(facts, raw, referenced)
    elif kind == "sweep":
        _examine_sweep(facts, raw)
    else:
        _examine_record(facts, raw)
    for text_rule in TEXT_RULES:
        facts.findings.extend(findings_of(text_rule, path, path, text))
    prose = prose_of(facts, text)
    if prose is not None:
        facts.findings.extend(figures_have_sources(prose))
        for figure in figures_in(prose):
            if isinstance(figure, Finding):
                facts.findings.append(figure)
            else:
                facts.figures.append(figure)


def _examine_notes(facts: Facts, raw: bytes) -> None:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        facts.findings.append(
            Finding(facts.path, line, "encoding", "is not UTF-8 text; save it as UTF-8")
        )


def _examine_run(facts: Facts, raw: bytes, referenced: Sequence[str]) -> None:
    run = parse_run(raw, facts.path)
    if isinstance(run, Finding):
        facts.valid = False
        facts.findings.append(run)
        return
    facts.findings.extend(run_is_in_its_place(facts.path, run))
    facts.findings.extend(benchmarks_are_possible(facts.path, run))
    facts.id = run.id
    facts.run = {
        "attempt": run.attempt,
        "session": run.session,
        "recipe": run.recipe,
        "pattern": run.pattern,
        "kernel": run.kernel,
        "matched": sorted({name for step in run.steps for name in step.patterns}),
        "started": run.started.isoformat(),
        "ended": run.ended.isoformat(),
        "taken_in": run.taken_in is not None,
        "verdicts": run.verdicts,
        "parameters": run.parameters,
        "outcome": run.outcome,
        "commit": run.repository.commit,
        "validated_at": run.validated_at.isoformat(),
    }
    for fact in FACTS:
        if fact.kind == "run":
            fact.keep(facts, run)
    entry = Entry(facts.path, run, None)
    facts.answers = {path: look_up(entry, path) for path in referenced}


def _examine_sweep(facts: Facts, raw: bytes) -> None:
    try:
        sweep = open_sweep(raw)
    except ValueError as error:
        facts.valid = False
        facts.findings.append(Finding(facts.path, 1, "sweep", f"{error}{WRITTEN_BY_KBTOOL}"))
        return
    facts.id = sweep.id
    wanted = f"sessions/{sweep.session}/sweeps/{sweep.id}.json"
    if facts.path != wanted:
        facts.findings.append(Finding(facts.path, 1, "sweep", f"belongs at {wanted}; move it"))
    for fact in FACTS:
        if fact.kind == "sweep":
            fact.keep(facts, sweep)


def _examine_record(facts: Facts, raw: bytes) -> None:
    try:
        document = parse(raw, facts.path)
    except DocumentError as error:
        facts.valid = False
        facts.findings.append(error.finding)
        text = raw.decode("utf-8", errors="replace")
        facts.id = promised_id(facts.path, facts.kind, raw_id(text))
        return
    loaded = validate(document, _MODELS[facts.kind])
    record = None
    if isinstance(loaded, list):
        facts.valid = False
        facts.findings.extend(loaded)
    else:
        record = loaded
    file = RecordFile(facts.path, facts.kind, document, record)
    for rule in RECORD_RULES:
        facts.findings.extend(findings_of(rule, facts.path, file))
    facts.id = file.id
    _link(facts, file)
    for fact in FACTS if record is not None else ():
        if fact.kind == facts.kind:
            fact.keep(facts, record)


def _link(facts: Facts, file: RecordFile) -> None:
    """The links of the record, as far as they can be read."""
    for ref in file.references:
        if ref.role == "recurrence":
            session, _, path = ref.target.partition("#")
            bug = file.data["bugs"][ref.location[1]].get("id")
            earlier = f"{session or facts.id}#{path.removeprefix('bugs.')}"
            if isinstance(bug, str):
                facts.bugs.append((bug, earlier, ref.location))
        if ref.role == "claim":
            facts.claims.extend(_claimed(file, ref))
        if ref.target[0] != "#":
            facts.refs.append(ref)


def _claimed(file: RecordFile, ref: Ref) -> Iterator[tuple[str, str, Location]]:
    """The claim that holds ``ref`` and the claim that it refers to, if it refers to one."""
    claim = file.data["claims"][ref.location[1]].get("id")
    if not isinstance(claim, str):
        return
    if ref.target[0] != "#":
        yield claim, ref.target, ref.location
        return
    if names_item(file, ref) and not ref.target.startswith("#claims."):
        return
    for place in locate(file.data, ref.target[1:]):
        target = claim_at(file.data, place)
        if target is not None:
            yield claim, f"#{target}", ref.location
