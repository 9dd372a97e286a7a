"""``kbtool session`` ``evidence``, ``decision``, ``hypothesis``, ``plan``, ``step``, ``lesson``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, knowledge_base, print_json
from kbtool.cli.complete import own_bug_names, pattern_names, session_names
from kbtool.cli.session.common import (
    ModelCommand,
    added,
    current,
    in_order,
    item_of,
    keep,
    refuse_prose,
    run_place,
    session_option,
    tell,
)

if TYPE_CHECKING:
    from kbtool.model.session import Session
    from kbtool.store.dump import Data, Fields
    from kbtool.store.tree import KnowledgeBase

VERDICTS = ("discovered", "applied", "proved", "contradicted", "not_reproduced")


class EvidenceCommand(ModelCommand):
    """The command that adds evidence, with an option for every field that has one value."""

    model = "kbtool.model.session:Evidence"


@click.command(
    cls=EvidenceCommand,
    epilog="""\b
Examples, with a pattern of your knowledge base (`kbtool patterns` lists them) for PATTERN:
  kbtool session evidence PATTERN applied "it failed at once, not after the build" --saved '20 min'
  kbtool session evidence PATTERN proved "the bug was found" --shown-by last#steps.validate

\b
PATTERN is an id, or words of the title that only one pattern has. discovered: first written down
here; applied: followed; proved: it paid, and --saved, --money or --shown-by shows it; contradicted:
it was followed and failed; not_reproduced: a stated gain was sought and not found.""",
)
@click.argument("pattern", metavar="PATTERN", shell_complete=pattern_names)
@click.argument("verdict", metavar="VERDICT", type=click.Choice(VERDICTS))
@click.argument("note", metavar="NOTE")
@click.option("--expected", is_flag=True, default=False,
              help="The time and the money are expected, not yet seen.")  # fmt: skip
@click.option(
    "--shown-by", "shown_by", metavar="REFERENCE", multiple=True,
    help="Where it shows: RUN#steps.ID, #fixes.ID, #measurements.ID; repeatable. RUN may be last.",
)  # fmt: skip
@session_option
@json_option
@click.pass_context
def evidence(
    ctx: click.Context, /, name: str | None, expected: bool, shown_by: tuple[str, ...],
    as_json: bool, **given: str | None,
) -> None:  # fmt: skip
    """Say what the session shows of a pattern: VERDICT, and in NOTE what happened.

    \b
    VERDICT: discovered, applied, proved, contradicted or not_reproduced.
    """
    from kbtool.model.session import Evidence

    base = knowledge_base(ctx)
    _, record = current(base, name)
    shown = [run_place(base, one) for one in shown_by]
    for reference in shown:
        _refuse_nothing(base, record, reference)
    item = item_of(Evidence, {
        **in_order(Evidence, given, pattern=_pattern(base, given["pattern"] or "")),
        "expected": "true" if expected else None,
        "shown_by": shown or None,
    })  # fmt: skip
    record = added(base, name, "evidence", item)
    tell(record, "evidence", item, as_json, f"evidence: {item['pattern']} {item['verdict']}")


class DecisionCommand(ModelCommand):
    """The command that adds a decision."""

    model = "kbtool.model.decision:Decision"


@click.command(
    cls=DecisionCommand,
    epilog="""\b
Examples:
  kbtool session decision "Keep the card until tomorrow?" "stop it" --or "keep it" \\
    --because "nobody waits for it"
  kbtool session decision "Which tile?" --or 64x64 --or 128x64       stays open
  kbtool session decision which-tile 64x64 --because "fewer spills"  decides it

\b
CHOSEN and each --or are the options. QUESTION may be the id of a decision that is open.""",
)
@click.argument("question", metavar="QUESTION")
@click.argument("chosen", metavar="[CHOSEN]", required=False)
@click.option("--or", "others", metavar="OPTION", multiple=True,
              help="Another option; repeatable.")  # fmt: skip
@click.option("--because", "reason", metavar="TEXT", help="Why.")
@click.option("--id", metavar="ID", help="Its name for references; made of QUESTION if not given.")
@session_option
@json_option
@click.pass_context
def decision(
    ctx: click.Context, /, name: str | None, chosen: str | None, others: tuple[str, ...],
    as_json: bool, **given: str | None,
) -> None:  # fmt: skip
    """Add a decision: QUESTION, the option CHOSEN, the others, and why."""
    from kbtool.model.decision import Decision
    from kbtool.model.errors import UsageError
    from kbtool.store.edit import decide
    from kbtool.store.sessions import slug

    base = knowledge_base(ctx)
    path, record = current(base, name)
    question = (given["question"] or "").strip()
    left = next((one for one in record.decisions if one.id == question), None)
    if left is not None:
        if left.chosen is not None:
            raise UsageError(f"decision {left.id!r} is made: {left.chosen}; correct it in the file")
        ids = {key: one.id for one in left.options for key in (one.id, one.title)}
        if chosen is None or others or chosen not in ids:
            known = ", ".join(one.id for one in left.options) or "none"
            raise UsageError(f"decision {left.id!r} is open: choose one of its options, {known}")
        refuse_prose("reason", given["reason"] or "")
        after = decide(path, left.id, ids[chosen], given["reason"])
        at = next(one for one in after.decisions if one.id == left.id)
        item: Fields = at.model_dump(mode="json", exclude_defaults=True)
    else:
        titles = [text for text in (chosen, *others) if text is not None]
        for text in titles:
            refuse_prose("option", text)
        options: list[Data] = [
            {"id": slug(text, f"option-{number}"), "title": text.strip()}
            for number, text in enumerate(titles, 1)
        ]
        fields = in_order(
            Decision, given, id=given["id"] or slug(question, "decision"), question=question,
            options=options or None,
            chosen=None if chosen is None else slug(chosen, "option-1"),
        )  # fmt: skip
        item = item_of(Decision, fields)
        after = added(base, name, "decisions", item)
    choice = item.get("chosen") or "open"
    tell(after, f"decisions.{item['id']}", item, as_json, f"decision {item['id']}: {choice}")


class HypothesisCommand(ModelCommand):
    """The command that adds or judges a hypothesis."""

    model = "kbtool.model.bug:Hypothesis"


@click.command(
    cls=HypothesisCommand,
    epilog="""\b
Examples:
  kbtool session hypothesis nan-in-the-last-tile "the tail is read past its end" --likelihood '80 %'
  kbtool session hypothesis nan-in-the-last-tile the-tail-is-read-past-its-end --verdict confirmed

\b
BUG is the id of a bug of the session, or a part of it that only one has; last is the newest.""",
)
@click.argument("bug", metavar="BUG", shell_complete=own_bug_names)
@click.argument("statement", metavar="STATEMENT|ID")
@click.option("--verdict", type=click.Choice(["open", "confirmed", "rejected"]),
              help="As it stands now. Default: open.")  # fmt: skip
@click.option("--id", metavar="ID", help="Its name for references; made of STATEMENT if not given.")
@session_option
@json_option
@click.pass_context
def hypothesis(
    ctx: click.Context, /, name: str | None, bug: str, as_json: bool, **given: str | None
) -> None:
    """Add what a bug might be; with the ID of a hypothesis, say what became of it."""
    from kbtool.model.bug import Hypothesis
    from kbtool.model.errors import UsageError
    from kbtool.store.edit import add_inside, set_hypothesis
    from kbtool.store.sessions import slug

    base = knowledge_base(ctx)
    path, record = current(base, name)
    own = _bug(record, bug)
    known = next(one for one in record.bugs if one.id == own)
    statement = (given["statement"] or "").strip()
    if any(one.id == statement for one in known.hypotheses):
        changes = {
            key: value
            for key, value in given.items()
            if value is not None and key not in {"statement", "id"}
        }
        if not changes:
            raise UsageError(f"say what became of {statement}: --verdict confirmed or rejected")
        for key, value in changes.items():
            refuse_prose(key, value)
        after = set_hypothesis(path, own, statement, changes)
        judged = next(one for one in after.bugs if one.id == own).hypotheses
        one = next(one for one in judged if one.id == statement)
        item: Fields = one.model_dump(mode="json", exclude_defaults=True)
    else:
        own_id = given["id"] or slug(statement, "hypothesis")
        fields = in_order(Hypothesis, given, id=own_id, statement=statement)
        item = item_of(Hypothesis, fields)
        after = add_inside(path, "bugs", own, "hypotheses", item)
    keep(base, after)
    said = f"hypothesis {item['id']} of {own}: {item.get('verdict', 'open')}"
    tell(after, f"bugs.{own}.hypotheses.{item['id']}", item, as_json, said)


class PlanCommand(ModelCommand):
    """The command that adds a plan."""

    model = "kbtool.model.decision:Plan"


@click.command(
    cls=PlanCommand,
    epilog="""\b
Examples:
  kbtool session plan "Merge on the card" --target '2 h' --for N+8
  kbtool session plan "Merge on the card" --step "Write it=30 min" --step "Time it" \\
    --expect "no second launch below 40 splits"
""",
)
@click.argument("title", metavar="TITLE")
@click.option("--for", "for_session", metavar="LABEL", shell_complete=session_names,
              help="The session that it is for.")  # fmt: skip
@click.option("--step", "steps", metavar="TITLE[=TIME]", multiple=True,
              help="A step, and the time planned for it; repeatable.")  # fmt: skip
@click.option("--expect", "expected", metavar="TEXT", multiple=True,
              help="What it is expected to bring; repeatable.")  # fmt: skip
@click.option("--id", metavar="ID", help="Its name for references; made of TITLE if not given.")
@session_option
@json_option
@click.pass_context
def plan(
    ctx: click.Context, /, name: str | None, steps: tuple[str, ...], expected: tuple[str, ...],
    as_json: bool, **given: str | None,
) -> None:  # fmt: skip
    """Add a plan for a later session: its aim, its steps, what it should bring."""
    from kbtool.model.decision import Plan
    from kbtool.store.sessions import slug

    base = knowledge_base(ctx)
    title = (given["title"] or "").strip()
    for text in (*steps, *expected):
        refuse_prose("plan", text)
    fields = in_order(
        Plan, given, id=given["id"] or slug(title, "plan"), title=title,
        steps=[_planned(text, at) for at, text in enumerate(steps, 1)] or None,
        expected=list(expected) or None,
    )  # fmt: skip
    item = item_of(Plan, fields)
    record = added(base, name, "plans", item)
    tell(record, f"plans.{item['id']}", item, as_json, f"plan {item['id']}: {item['title']}")


class StepCommand(ModelCommand):
    """The command that adds a step."""

    model = "kbtool.model.session:Step"


@click.command(
    cls=StepCommand,
    epilog="""\b
Examples:
  kbtool session step "Build it" --target '5 min' --actual '12 min'
  kbtool session step "Port the merge" --status skipped --note "the card was gone"
""",
)
@click.argument("title", metavar="TITLE")
@click.option("--pattern", metavar="PATTERN", shell_complete=pattern_names,
              help="The pattern that it was done by: its two times count for it.")  # fmt: skip
@click.option("--status", type=click.Choice(["done", "failed", "skipped", "unknown"]),
              help="How it ended. Default: done with --actual, else unknown.")  # fmt: skip
@click.option("--id", metavar="ID", help="Its name for references; made of TITLE if not given.")
@session_option
@json_option
@click.pass_context
def step(ctx: click.Context, /, name: str | None, as_json: bool, **given: str | None) -> None:
    """Add a step: how long it should have taken, and how long it took."""
    from kbtool.model.session import Step
    from kbtool.store.sessions import slug

    base = knowledge_base(ctx)
    title = (given["title"] or "").strip()
    fields = in_order(Step, given, id=given["id"] or slug(title, "step"), title=title)
    fields["status"] = given["status"] or ("done" if given.get("actual") else None)
    if given.get("pattern"):
        fields["pattern"] = _pattern(base, str(given["pattern"]))
    item = item_of(Step, fields)
    record = added(base, name, "steps", item)
    tell(record, f"steps.{item['id']}", item, as_json, f"step {item['id']}: {item['title']}")


@click.command(
    epilog="""\b
Example:
  kbtool session lesson "Reset the workspace before each call, not after."
""",
)
@click.argument("text")
@session_option
@json_option
@click.pass_context
def lesson(ctx: click.Context, text: str, name: str | None, as_json: bool) -> None:
    """Add what was learned, in a sentence: TEXT."""
    from kbtool.model.errors import UsageError

    base = knowledge_base(ctx)
    if not text.strip():
        raise UsageError("the lesson is empty")
    refuse_prose("lesson", text)
    record = added(base, name, "lessons", text.strip())
    if as_json:
        print_json({"session": record.id, "path": f"sessions/{record.id}/session.yaml",
                    "lesson": text.strip()})  # fmt: skip
    else:
        click.echo(f"{record.id}: lesson: {text.strip()}")


def _refuse_nothing(base: KnowledgeBase, record: Session, reference: str) -> None:
    """Raise if nothing stands at the reference."""
    from kbtool.ledger.claims.operands import Unknown, records_of
    from kbtool.model.errors import UsageError

    try:
        records_of(base).at(reference, record.id)
    except Unknown as error:
        raise UsageError(f"--shown-by: {error}; a step of a run is RUN#steps.ID") from None


def _pattern(base: KnowledgeBase, name: str) -> str:
    """The id of the pattern that ``name`` means: an id, or words of a title that one has.

    Raises:
        NotFoundError: there is none, or several have the words.
    """
    from kbtool.model.errors import NotFoundError
    from kbtool.store.sessions import slug

    by_id = {id_.lower(): id_ for id_ in base.patterns}
    if name.lower() in by_id:
        return by_id[name.lower()]
    words = slug(name, "")
    found = [
        id_
        for id_, entry in base.patterns.items()
        if words and f"-{words}-" in f"-{slug_of(entry.record.title)}-"
    ]
    if len(found) == 1:
        return found[0]
    if found:
        some = ", ".join(f"{id_} {base.patterns[id_].record.title}" for id_ in found[:5])
        raise NotFoundError(f"{name!r} matches several patterns: {some}; write the id")
    known = ", ".join(list(base.patterns)[:10]) or "none"
    raise NotFoundError(f"there is no pattern {name!r}; `kbtool patterns` lists them: {known}")


def slug_of(title: str) -> str:
    """The words of a title, joined by hyphens, however many they are."""
    return re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-")


def _bug(record: Session, name: str) -> str:
    from kbtool.model.errors import NotFoundError
    from kbtool.store.tree import LAST, meant

    ids = [bug.id for bug in record.bugs]
    found = (
        ids[-1:]
        if name == LAST
        else meant(name.removeprefix("#").removeprefix("bugs."), ids, inside=True)
    )
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFoundError(f"{name!r} matches several bugs: {', '.join(found)}; write more of it")
    known = ", ".join(ids) or "none"
    raise NotFoundError(
        f"there is no bug {name!r} in {record.id}; it has {known}. `kbtool session bug TITLE` adds"
        " one"
    )


def _planned(text: str, number: int) -> dict[str, Data]:
    """A step of a plan: its title, and behind the last equals sign its time, if it is one."""
    from kbtool.ledger.rates import figure
    from kbtool.model.base import Duration
    from kbtool.model.errors import UserError
    from kbtool.store.sessions import slug

    title, equals, time = text.rpartition("=")
    try:
        is_time = bool(equals) and bool(figure(Duration, time))
    except (UserError, ValueError):
        is_time = False
    title = title.strip() if is_time else text.strip()
    step: dict[str, Data] = {"id": slug(title, f"step-{number}"), "title": title}
    return {**step, "target": time.strip()} if is_time else step
