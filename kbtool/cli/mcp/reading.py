"""The tools that read: plain functions over the knowledge base."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from kbtool.cli.mcp.answers import Answer, answer, outlined, page
from kbtool.model.base import Output
from kbtool.model.errors import NotFoundError, RecordError, UsageError
from kbtool.model.explanation import Fit, Hit
from kbtool.model.pattern import Pattern
from kbtool.model.run import Run
from kbtool.store.tree import Entry, KnowledgeBase

Limit = Annotated[int, Field(ge=1, le=100, description="So many results at most.")]
Offset = Annotated[int, Field(ge=0, description="Skip so many results.")]
Kind = Literal[
    "pattern", "symptom", "bug", "session", "recipe", "kernel", "term", "guide", "decision"
]


class SearchAnswer(Answer):
    """Records that have words of a question."""

    hits: list[Hit] = []
    """The best first."""
    unknown_words: list[str] = []
    """Words that no record has."""


def search(
    base: KnowledgeBase,
    words: Annotated[str, Field(description="Words, or a question.", max_length=2000)],
    kind: Annotated[Kind | None, Field(description="Only records of this kind.")] = None,
    limit: Limit = 10,
    offset: Offset = 0,
) -> SearchAnswer:
    """Search patterns, symptoms, bugs, sessions, recipes, kernels and pages under docs/ by words,
    the best first. Words count by their stems and synonyms; rare words count more."""
    from kbtool.runner import remedies

    if not words.strip():
        raise UsageError("words: say what to search for")
    found = remedies.search(base, words)
    hits = [hit for hit in found.hits if kind in (None, hit.kind)]
    shown, rest = page(hits, limit, offset)
    filtered = bool(found.hits) and not hits
    why = None
    if filtered:
        kinds = sorted({hit.kind for hit in found.hits})
        why = f"{len(found.hits)} records fit, none of them a {kind}: leave kind out, or ask for" \
              f" {' or '.join(kinds)}"  # fmt: skip
    elif not hits:
        why = "no record has any of these words: try others"
    elif not shown:
        why = f"there are {len(hits)} results: give a smaller offset"
    return answer(
        SearchAnswer, base, bool(shown), why=why,
        outcome="filtered_out" if (why and hits) or filtered else None,
        used=((hit.id, hit.path) for hit in shown),
        hits=shown, unknown_words=found.unknown, **rest,
    )  # fmt: skip


class ExplainAnswer(Answer):
    """What a text of a tool means, and what to do."""

    fits: list[Fit] = []
    """The best first; causes before warnings and consequences."""
    lines: int = 0
    """The lines that were read."""
    architectures: list[str] = []
    """The GPU architectures that the text names."""
    record: str | None = None
    """If nothing fits: the command that records the case once it is solved."""


def explain(
    base: KnowledgeBase,
    text: Annotated[
        str | None,
        Field(description="What a tool printed, or a question in words.", max_length=2_000_000),
    ] = None,
    run: Annotated[
        str | None, Field(description="Instead: the failing steps of this run, by its id.")
    ] = None,
    card: Annotated[
        str | None, Field(description="The card, or its architecture (sm_90), that it is about.")
    ] = None,
    limit: Limit = 5,
    offset: Offset = 0,
) -> ExplainAnswer:
    """Say what messages of compilers, linkers, CUDA, PyTorch, Triton, NCCL, sanitizers and
    profilers mean, and what to do. Give the output as it was printed; long logs are fine."""
    from kbtool.cli import explain as command
    from kbtool.runner import remedies

    if (text is None) == (run is None):
        raise UsageError("give one of text and run")
    about = [command.architecture_of(card)] if card is not None else []
    if run is not None:
        try:
            blocks, of_run = command.text_of_run(base, run)
        except NotFoundError as error:
            return answer(ExplainAnswer, base, False, why=str(error))
    else:
        blocks, of_run = [(text or "").encode("utf-8", "replace")], None
    found = remedies.explain(base, blocks, [*about, *([of_run] if of_run else [])])
    shown, rest = page(found.fits, limit, offset)
    why, outcome = None, None
    if not found.fits:
        why = "no message that is known is in it, and no record resembles it"
        others = remedies.explain(base, blocks, [of_run] if of_run else []).fits if about else []
        if others:
            outcome = "filtered_out"
            why = f"{len(others)} fit, for other architectures than {card}: leave card out"
    elif not shown:
        outcome, why = "filtered_out", f"there are {len(found.fits)}: give a smaller offset"
    return answer(
        ExplainAnswer, base, bool(shown), why=why, outcome=outcome,  # type: ignore[arg-type]
        used=_used_by(base, shown, run), fits=shown, lines=found.lines,
        architectures=found.architectures, record=found.record, **rest,
    )  # fmt: skip


def _used_by(base: KnowledgeBase, fits: Any, run: str | None) -> Iterator[tuple[str, str]]:
    """The records that fits come from."""
    from kbtool.store.packaged import SYMPTOMS

    entry = base.run(run) if run is not None else None
    if entry is not None:
        yield entry.record.id, entry.path
    for fit in fits:
        tool = fit.name.partition("/")[0]
        if tool in base.catalogue:
            own = base.symptoms.get(tool)
            yield fit.name, own.path if own else f"{SYMPTOMS}/{tool}.yaml"
        for pattern in fit.patterns:
            yield pattern.id, base.patterns[pattern.id].path
        for bug in fit.bugs:
            yield f"{bug.session}#bugs.{bug.id}", f"sessions/{bug.session}/session.yaml"
        if fit.how == "resemblance" and "#bugs." in fit.name:
            yield fit.name, f"sessions/{fit.name.partition('#')[0]}/session.yaml"


MOST_CUTS = 20
"""So many places that were cut are named."""


class RecordAnswer(Answer):
    """One record, or a part of it."""

    kind: str | None = None
    """session, bug, pattern, symptom, recipe, kernel, run."""
    id: str | None = None
    record: Any = None
    """The record as it stands, without keys that have their default."""
    cut: list[str] = []
    """Places that are not shown in full."""


def get_record(
    base: KnowledgeBase,
    id: Annotated[str, Field(description=
        "A pattern (P09), session (id or label), bug (SESSION#bugs.ID), symptom (TOOL/ID), recipe,"
        " kernel or run; or a part: ID#path, as in RUN#steps.benchmark.", max_length=1000)],
    room: Annotated[
        int, Field(ge=500, le=200_000, description="So many characters of JSON, about.")
    ] = 12_000,
) -> RecordAnswer:  # fmt: skip
    """Get one record, or the part of it that a path names. A large one is cut; `cut` says where,
    and ID#path shows that place."""
    from kbtool.model.address import AddressError, split_reference

    name, path = split_reference(id) if "#" in id else (id, "")
    if not name:
        raise UsageError(f"{id!r} names no record: write ID#path")
    try:
        found = _record_named(base, name)
    except NotFoundError as error:
        return answer(RecordAnswer, base, False, why=str(error))
    except RecordError as error:
        return answer(RecordAnswer, base, False, outcome="unknown", why=str(error))
    if found is None:
        near = difflib.get_close_matches(name, _names(base), 3)
        meant = f"; there is {', '.join(near)}" if near else ""
        return answer(
            RecordAnswer, base, False, why=f"there is no record {name!r}{meant}; search finds some"
        )
    kind, known, file, record = found
    value = _whole(base, kind, record)
    if path:
        try:
            kind, value = _part(base, kind, record, path)
        except AddressError as error:
            return answer(RecordAnswer, base, False, why=f"{known}: {error}",
                          used=[(known, file)], id=known)  # fmt: skip
    value, cut = outlined(value, room)
    whole = f"{known}#{path}" if path else known
    more = "a larger room, or id=ID#path with the path of a place in cut" if cut else None
    return answer(
        RecordAnswer, base, True, used=[(whole, file)], kind=kind, id=whole, record=value,
        cut=cut[:MOST_CUTS], left_out=len(cut), more=more,
    )  # fmt: skip


def _record_named(base: KnowledgeBase, name: str) -> tuple[str, str, str, Any] | None:
    """Kind, id, file and record of what a name means."""
    from kbtool.store.packaged import SYMPTOMS

    pattern = base.patterns.get(name) or base.patterns.get(name.upper())
    if pattern is not None:
        return "pattern", pattern.record.id, pattern.path, pattern.record
    if name in base.kernels:
        return "kernel", name, base.kernels[name].path, base.kernels[name].record
    recipes = base.recipes()
    if name in recipes:
        of, recipe = recipes[name]
        return "recipe", name, base.patterns[of.id].path, recipe
    tool, slash, symptom = name.partition("/")
    if slash and tool in base.catalogue:
        for one in base.catalogue[tool].symptoms:
            if one.id == symptom:
                own = base.symptoms.get(tool)
                return "symptom", name, own.path if own else f"{SYMPTOMS}/{tool}.yaml", one
    if slash and tool in base.patterns:
        for known in base.patterns[tool].record.symptoms:
            if known.id == symptom:
                return "symptom", name, base.patterns[tool].path, known
    run = base.run(name)
    if run is not None:
        return "run", run.record.id, run.path, run.record
    if slash:
        return None
    try:
        entry = base.session(name)
    except NotFoundError as error:
        if "several" in str(error):
            raise
        return None
    return "session", entry.record.id, entry.path, entry.record


def _names(base: KnowledgeBase) -> list[str]:
    return [
        *base.patterns, *base.kernels, *base.recipes(), *base.sessions,
        *(entry.record.label for entry in base.sessions.values()), *base._files_of_runs,
        *(f"{tool}/{one.id}" for tool, known in base.catalogue.items() for one in known.symptoms),
    ]  # fmt: skip


def _plain(value: Any) -> Any:
    """A part of a record as plain data."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return value if isinstance(value, int | float | bool | None) else str(value)


def _whole(base: KnowledgeBase, kind: str, record: Any) -> Any:
    value = _plain(record)
    if kind == "session":
        from kbtool.cli.session.common import run_summary

        entry = base.sessions[record.id]
        notes = (base.root / entry.path).with_name("notes.md")
        value["runs"] = [run_summary(run.record) for run in base.runs_of(record.id)]
        value["notes"] = notes.read_text("utf-8", "replace") if notes.is_file() else None
        value["bugs_now"] = _bugs_now(base, record)
        value["lessons_became"] = {
            number: ids
            for number, lesson in enumerate(record.lessons, 1)
            if (ids := [p.id for p in _patterns(base) if p.has_lesson(record.id, lesson)])
        }
    if kind == "pattern":
        from kbtool.store.sources import places_of

        value["places"] = places_of(base, record)
    return value


def _part(base: KnowledgeBase, kind: str, record: Any, path: str) -> tuple[str, Any]:
    from kbtool.model.address import resolve
    from kbtool.model.bug import Bug

    if kind == "session" and path in {"notes", "runs", "bugs_now"}:
        return path, _whole(base, kind, record)[path]
    found = resolve(record, path)
    if isinstance(found, Bug):
        faults = _faults(base)
        key = (record.id, found.id)
        return "bug", {
            **_plain(found),
            "status_now": faults.became(key),
            "became": [p.id for p in _patterns(base) if f"{record.id}#bugs.{found.id}" in p.bugs],
            "fixes": [{"session": one.session.id, **_plain(one.fix)} for one in faults.fixes(key)],
        }
    return f"part of a {kind}", _plain(found)


def _patterns(base: KnowledgeBase) -> list[Pattern]:
    return [entry.record for entry in base.patterns.values()]


def _faults(base: KnowledgeBase) -> Any:
    from kbtool.ledger.faults import Faults

    return Faults([entry.record for entry in base.sessions.values()])


def _bugs_now(base: KnowledgeBase, record: Any) -> dict[str, str]:
    faults = _faults(base)
    return {bug.id: faults.became((record.id, bug.id)) for bug in record.bugs}


class Listed(Output):
    """A record in a list."""

    id: str
    """What get_record takes."""
    title: str
    status: str | None
    """Of a bug: what later fixes made of it. Of a pattern: its stated status."""
    path: str


class ListAnswer(Answer):
    """Records of one kind."""

    listed: list[Listed] = []
    """Sessions, bugs and runs: the newest first."""


def list_records(
    base: KnowledgeBase,
    kind: Literal["session", "bug", "pattern", "kernel", "run"],
    status: Annotated[
        str | None, Field(description="Only those of this status: open, running, failed.")
    ] = None,
    limit: Limit = 20,
    offset: Offset = 0,
) -> ListAnswer:
    """List records of a kind: open bugs, running sessions, the newest runs."""
    if kind == "run" and status is None:  # the others need not be read
        return _newest_runs(base, limit, offset)
    every = list(_listed(base, kind))
    wanted = [one for one in every if status in (None, one.status)]
    shown, rest = page(wanted, limit, offset)
    why, outcome = None, None
    if not every:
        why = f"there is no {kind}"
    elif not wanted:
        known = sorted({one.status for one in every if one.status})
        why = f"{len(every)} of this kind, none of status {status!r}; there is {', '.join(known)}"
        outcome = "filtered_out"
    elif not shown:
        outcome, why = "filtered_out", f"there are {len(wanted)}: give a smaller offset"
    return answer(
        ListAnswer, base, bool(shown), why=why, outcome=outcome,  # type: ignore[arg-type]
        used=((one.id, one.path) for one in shown), listed=shown, **rest,
    )  # fmt: skip


def _newest_runs(base: KnowledgeBase, limit: int, offset: int) -> ListAnswer:
    """A page of runs. An id begins with the time of the run."""
    ids, rest = page(sorted(base._files_of_runs, reverse=True), limit, offset)
    shown = [_run(entry) for id_ in ids if (entry := base.run(id_)) is not None]
    return answer(
        ListAnswer, base, bool(shown), why=None if shown else "there is no such run",
        used=((one.id, one.path) for one in shown), listed=shown, **rest,
    )  # fmt: skip


def _run(entry: Entry[Run]) -> Listed:
    from kbtool.runner.words import headline

    run, head = entry.record, headline(entry.record)
    title = f"{run.source}: {head}" if head else run.source
    return Listed(id=run.id, title=title, status=run.outcome, path=entry.path)


def _listed(base: KnowledgeBase, kind: str) -> Iterator[Listed]:
    if kind == "session":
        for entry in reversed(base.sessions.values()):
            one = entry.record
            yield Listed(
                id=one.id, title=f"{one.label}: {one.title}", status=one.status, path=entry.path
            )
    elif kind == "bug":
        faults = _faults(base)
        for (session, bug), met in reversed(faults.bugs.items()):
            yield Listed(
                id=f"{session}#bugs.{bug}", title=met.bug.title,
                status=faults.became((session, bug)), path=base.sessions[session].path,
            )  # fmt: skip
    elif kind == "pattern":
        for entry_ in base.patterns.values():
            pattern = entry_.record
            yield Listed(
                id=pattern.id, title=pattern.title, status=pattern.stated_status, path=entry_.path
            )
    elif kind == "kernel":
        for manifest in base.kernels.values():
            kernel = manifest.record
            yield Listed(id=kernel.id, title=kernel.title, status=None, path=manifest.path)
    else:
        newest = {entry.record.id: entry for entry in base.runs}  # the last attempt of each
        yield from map(_run, reversed(newest.values()))


class RecipeSummary(Output):
    """A recipe: steps that kbtool runs."""

    name: str
    title: str
    about: str | None
    pattern: str
    kernel: str | None
    steps: list[str]
    """The kinds of its steps, in order."""
    expected_minutes: float
    """As its author expects."""
    parameters: dict[str, dict[str, Any]]
    """Name → type, default, choices, help."""


class RecipesAnswer(Answer):
    """The recipes."""

    recipes: list[RecipeSummary] = []


def list_recipes(
    base: KnowledgeBase,
    kernel: Annotated[str | None, Field(description="Only recipes of this kernel.")] = None,
    limit: Limit = 20,
    offset: Offset = 0,
) -> RecipesAnswer:
    """List the recipes: what they do, their parameters, and how long they take."""
    known = base.recipes()
    wanted = [one for one in known.values() if kernel in (None, one[1].kernel)]
    shown, rest = page(wanted, limit, offset)
    why, outcome = None, None
    if not known:
        why = "there are no recipes: a recipe is part of a pattern"
    elif not wanted:
        outcome = "filtered_out"
        kernels = sorted({one.kernel for _, one in known.values() if one.kernel})
        why = f"{len(known)} recipes, none of kernel {kernel!r}; there is {', '.join(kernels)}"
    elif not shown:
        outcome, why = "filtered_out", f"there are {len(wanted)}: give a smaller offset"
    return answer(
        RecipesAnswer, base, bool(shown), why=why, outcome=outcome,  # type: ignore[arg-type]
        used=((recipe.name, base.patterns[pattern.id].path) for pattern, recipe in shown),
        recipes=[
            RecipeSummary(
                name=recipe.name, title=recipe.title, about=recipe.about, pattern=pattern.id,
                kernel=recipe.kernel, steps=[step.kind for step in recipe.steps],
                expected_minutes=round(
                    float(sum(step.expected.minutes for step in recipe.steps)), 2
                ),
                parameters={
                    name: one.model_dump(mode="json", exclude_defaults=True)
                    for name, one in recipe.parameters.items()
                },
            )
            for pattern, recipe in shown
        ], **rest,
    )  # fmt: skip


class PlannedStep(Output):
    """What a step of a recipe would do."""

    id: str
    kind: str
    title: str
    would: list[str]
    stops: str | None
    """Why the run would stop here: what this machine lacks."""


class PlanAnswer(Answer):
    """What a recipe would do on this machine."""

    recipe: str | None = None
    parameters: dict[str, str] = {}
    steps: list[PlannedStep] = []
    runs_here: bool | None = None
    """Whether every step could run on this machine."""


def plan_recipe(
    base: KnowledgeBase,
    recipe: Annotated[str, Field(description="The name of a recipe.")],
    settings: Annotated[
        dict[str, str] | None, Field(description="Parameters of the recipe: name → value.")
    ] = None,
) -> PlanAnswer:
    """Say what each step of a recipe would do on this machine, and where it would stop. Nothing is
    run or written."""
    from kbtool.cli.recipe import bound_recipe
    from kbtool.gpu.probe import probe_machine
    from kbtool.runner.engine import Job, plan

    try:
        pattern, bound, parameters = bound_recipe(base, recipe, settings or {})
    except NotFoundError as error:
        return answer(PlanAnswer, base, False, why=str(error))
    steps = [
        PlannedStep(id=step.id, kind=step.kind, title=step.title, would=lines, stops=problem)
        for step, lines, problem in plan(Job(base, pattern, bound, parameters, probe_machine()))
    ]
    used = [(recipe, base.patterns[pattern.id].path)]
    if bound.kernel in base.kernels:
        used.append((bound.kernel, base.kernels[bound.kernel].path))
    return answer(
        PlanAnswer, base, True, used=used, recipe=recipe, parameters=parameters, steps=steps,
        runs_here=not (steps and steps[-1].stops),
    )  # fmt: skip
