"""One file to facts: a pure function of its path and bytes, so that a cache can stand for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbtool.checks.facts import (
    Facts,
    InvoiceFacts,
    Location,
    MutantFacts,
    RateFacts,
    RecipeFacts,
    Ref,
)
from kbtool.checks.paths import claim_at, locate
from kbtool.checks.prose_rules import figures_have_sources, figures_in, prose_of
from kbtool.checks.record_rules import (
    RECORD_RULES,
    RecordFile,
    benchmarks_are_possible,
    names_item,
    promised_id,
    raw_id,
    run_is_in_its_place,
)
from kbtool.checks.text_rules import TEXT_RULES
from kbtool.model.base import Model
from kbtool.model.finding import Finding
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.base import names_in
from kbtool.model.ledger import Ledger
from kbtool.model.pattern import Pattern
from kbtool.model.recipe import Recipe
from kbtool.model.session import Session
from kbtool.store.document import DocumentError, conflict, parse
from kbtool.store.load import validate
from kbtool.store.scan import FileKind
from kbtool.store.tree import parse_run

_MODELS: dict[FileKind, type[Model]] = {
    "session": Session, "pattern": Pattern, "kernel": Kernel, "ledger": Ledger,
}  # fmt: skip


def examine(path: str, kind: FileKind, raw: bytes) -> Facts:
    """What the file says, and everything that is wrong with it by itself."""
    facts = Facts(path, kind, promised_id(path, kind))
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
        _examine_run(facts, raw)
    else:
        _examine_record(facts, raw)
    for text_rule in TEXT_RULES:
        facts.findings.extend(text_rule(path, text))
    prose = prose_of(facts, text)
    if prose is not None:
        facts.findings.extend(figures_have_sources(prose))
        for figure in figures_in(prose):
            if isinstance(figure, Finding):
                facts.findings.append(figure)
            else:
                facts.figures.append(figure)
    return facts


def _examine_notes(facts: Facts, raw: bytes) -> None:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        facts.findings.append(
            Finding(facts.path, line, "encoding", "is not UTF-8 text; save it as UTF-8")
        )


def _examine_run(facts: Facts, raw: bytes) -> None:
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
        "validated_at": run.validated_at.isoformat(),
    }


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
        facts.findings.extend(rule(file))
    facts.id = file.id
    _link(facts, file)
    if isinstance(record, Session):
        _describe_session(facts, record)
    if isinstance(record, Pattern):
        facts.recipes = [_recipe(recipe, i) for i, recipe in enumerate(record.recipes)]
    if isinstance(record, Kernel):
        _describe_kernel(facts, record)
    if isinstance(record, Ledger):
        facts.prices = {
            price.id: [price.kind, price.rate.text, price.until, price.card]
            for price in record.rates
        }


def _link(facts: Facts, file: RecordFile) -> None:
    """Where the record leads, as far as that can be told of it."""
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
    """From the claim that holds ``ref`` to the one that it leads to, if it leads to one."""
    claim = file.data["claims"][ref.location[1]].get("id")
    if not isinstance(claim, str):
        return
    if ref.target[0] != "#":
        yield claim, ref.target, ref.location
        return
    if names_item(file.data, ref) and not ref.target.startswith("#claims."):
        return
    for place in locate(file.data, ref.target[1:]):
        target = claim_at(file.data, place)
        if target is not None:
            yield claim, f"#{target}", ref.location


def _describe_session(facts: Facts, session: Session) -> None:
    facts.label = session.label
    for at, bug in enumerate(session.bugs):
        facts.mutants += [
            MutantFacts(["bugs", at, "mutants", index], *(getattr(mutant, key) for key in _EDIT))
            for index, mutant in enumerate(bug.mutants)
        ]
    for at, line in enumerate(session.costs):
        if line.rate_id is not None and line.rate is not None:
            place: Location = ["costs", at, "rate_id"]
            card = session.card_of(line.card)
            facts.rates.append(
                RateFacts(place, line.rate_id, line.kind, line.rate.text, session.day, card)
            )
        if line.invoice is not None and line.amount is not None:
            place = ["costs", at, "invoice"]
            facts.invoices.append(
                InvoiceFacts(place, line.invoice, str(line.amount), line.currency, line.note)
            )
    facts.times = {
        name: moment.text
        for name, moment in (("started", session.started), ("ended", session.ended))
        if moment is not None and moment.zoned
    }
    facts.confirmed = [
        (["fixes", at, "confirmed"], fix.kernel)
        for at, fix in enumerate(session.fixes)
        if fix.confirmed and not fix.shown_by
    ]
    facts.unended = (
        session.origin == "tool"
        and session.status in {"complete", "terminated"}
        and session.started is not None
        and session.ended is None
    )


_EDIT = MutantFacts._fields[1:]


def _describe_kernel(facts: Facts, kernel: Kernel) -> None:
    facts.names = {
        "case_sets": list(kernel.case_sets),
        "targets": list(kernel.targets),
        "variants": [f"{name}/{one}" for name, t in kernel.targets.items() for one in t.variants],
    }
    facts.files = [(["harness"], kernel.harness)]
    if kernel.interface is not None:
        facts.files.append((["interface"], kernel.interface))
    for name, target in kernel.targets.items():
        for key in ("sources", "headers"):
            facts.files += [
                (["targets", name, key, index], path)
                for index, path in enumerate(getattr(target, key))
            ]
        for architecture, sources in target.architecture_sources.items():
            facts.files += [
                (["targets", name, "architecture_sources", architecture, index], path)
                for index, path in enumerate(sources)
            ]


_CASE_SETS = {"case_sets", "case_set", "profile"}
"""Fields of steps that name case sets, whatever the kind of step."""


def _recipe(recipe: Recipe, index: int) -> RecipeFacts:
    """What a recipe asks of others, whichever of its choices is taken."""
    facts = RecipeFacts(recipe.name, ["recipes", index], recipe.kernel, [], [], [])
    lists: tuple[list[Any], ...] = (facts.case_sets, facts.targets, facts.paths)
    for bound in _bindings(recipe):
        for place, step in enumerate(bound.steps):
            where = ["recipes", index, "steps", place]
            asked: tuple[list[Any], ...] = ([], [], [])
            for key in _CASE_SETS & type(step).model_fields.keys():
                names = names_in(getattr(step, key))
                asked[0].extend(([*where, key], name) for name in names)
            if step.kind == "build":
                asked[1].append(([*where, "target"], step.target))
            elif step.kind == "command":
                asked[2].append(([*where, "cwd"], step.cwd))
                asked[2].extend(
                    ([*where, "produces", i], path) for i, path in enumerate(step.produces)
                )
            for known, new in zip(lists, asked, strict=True):
                known.extend(item for item in new if item not in known)
    return facts


def _bindings(recipe: Recipe) -> list[Recipe]:
    """The recipe with its defaults, then with each other choice of each parameter."""
    bound = [recipe]
    for name, parameter in recipe.parameters.items():
        for choice in parameter.choices:
            if choice != parameter.default:
                try:
                    bound.append(recipe.bind({name: choice})[0])
                except ValueError:
                    continue  # told when it is run; the defaults at least are sound
    return bound
