"""The decisions of a session, with the options that were not taken, and its plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kbtool.markdown.escape import inline
from kbtool.markdown.markup import anchor, bullets, heading, join, optional, stacked_table
from kbtool.model.base import Quantity
from kbtool.model.decision import Decision, Plan
from kbtool.model.session import Session
from kbtool.site.index import Index
from kbtool.site.parts import cite, in_words, section, sourced, turned, why_unknown


def decisions(index: Index, session: Session) -> str:
    """Each decision: its question, its options, the choice and the reason."""
    made = (_decision(index, session, decision) for decision in session.decisions)
    return section("Decisions", "decisions", *made)


def stated(figures: Mapping[str, Quantity]) -> Iterator[str]:
    """The figures that a record states of something, each with its name."""
    return (f"{in_words(name)}: {inline(value)}" for name, value in figures.items())


def _decision(index: Index, session: Session, decision: Decision) -> str:
    prefix = f"decisions.{decision.id}"
    rows = []
    for option in decision.options:
        chosen = option.id == decision.chosen
        figures = "; ".join(stated(option.figures))
        rows.append(
            [
                anchor(f"{prefix}.{option.id}")
                + (f"**{inline(option.title)}**" if chosen else inline(option.title)),
                "taken" if chosen else "not taken" if decision.chosen else "open",
                optional(option.detail),
                figures,
                cite(option.source),
            ]
        )
    verdict = "" if decision.chosen else why_unknown(session, f"{prefix}.chosen")
    reason = f"Why: {inline(decision.reason)}" if decision.reason else None
    return join(
        [
            heading(3, inline(decision.question), prefix),
            stacked_table(["Option", "Taken", "Grounds", "Figures", "Source"], rows)
            if rows
            else None,
            f"No choice recorded: {verdict}" if verdict else None,
            reason,
            turned(index, session, prefix),
            sourced(decision.source),
        ]
    )


def plans(index: Index, session: Session) -> str:
    """The plans: what is to be done, in which time and for how much money."""
    return section("Plans", "plans", *(_plan(index, session, plan) for plan in session.plans))


def _plan(index: Index, session: Session, plan: Plan) -> str:
    prefix = f"plans.{plan.id}"
    about = [
        f"for {inline(plan.for_session)}" if plan.for_session else "",
        f"time {inline(plan.target)}" if plan.target else "",
        f"budget {inline(plan.budget)}" if plan.budget else "",
        *stated(plan.figures),
    ]
    rows = [
        [anchor(f"{prefix}.{s.id}") + inline(s.title), optional(s.target), optional(s.detail)]
        for s in plan.steps
    ]
    expected = [f"Expected: {inline(item)}" for item in plan.expected]
    return join(
        [
            heading(3, inline(plan.title), prefix),
            " · ".join(part for part in about if part),
            stacked_table(["Step", "Time", "How"], rows, {1}) if rows else None,
            bullets(expected),
            turned(index, session, prefix),
            sourced(plan.source),
        ]
    )
