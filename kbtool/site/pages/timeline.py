"""The steps of a session: planned time, actual time, and the difference."""

from __future__ import annotations

from decimal import Decimal

from kbtool.markdown.escape import attribute, inline, raw
from kbtool.markdown.figures import minutes
from kbtool.markdown.markup import anchor, chip, muted, optional, stacked_table
from kbtool.model.base import Quantity
from kbtool.model.session import Session, Step
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.parts import cite, section, why_unknown

_WIDTH, _HEIGHT = 150, 14


def steps(index: Index, session: Session, here: str) -> str:
    """The table of steps, each with its bar, on one scale."""
    longest = max(
        (_end(time) for step in session.steps for time in (step.target, step.actual) if time),
        default=Decimal(0),
    )
    rows = [
        [
            anchor(f"steps.{step.id}") + inline(step.title),
            index.link(at.pattern_page(step.pattern), here, inline(step.pattern))
            if step.pattern
            else "",
            _bar(step, longest),
            optional(step.target),
            optional(step.actual) or why_unknown(session, f"steps.{step.id}.actual"),
            _overrun(step),
            chip(step.status),
            optional(step.note),
            cite(step.source),
        ]
        for step in session.steps
    ]
    header = [
        "Step", "Pattern", "Target and actual", "Target", "Actual", "Difference", "Status",
        "Remark", "Source",
    ]  # fmt: skip
    body = stacked_table(header, rows, {3, 4, 5}) if rows else None
    return section("Steps", "steps", _in_all(session), body, _key(rows))


def _in_all(session: Session) -> str | None:
    """The sums over the steps that state both times, each as one figure."""
    both = [
        (step.target.minutes, step.actual.minutes)
        for step in session.steps
        if step.target and step.actual and step.target.is_single and step.actual.is_single
    ]
    if not both:
        return None
    planned, took = (sum(times, Decimal(0)) for times in zip(*both, strict=True))
    late = took - planned
    difference = f"{minutes(abs(late))} {'over' if late > 0 else 'under'}" if late else "as planned"
    which = "All" if len(both) == len(session.steps) else f"{len(both)} of {len(session.steps)}"
    times = f"{minutes(planned)} planned, {minutes(took)} taken, {difference}"
    return f"{which} steps state both times: {times}."


def _key(rows: list[list[str]]) -> str | None:
    if not any(row[2] for row in rows):
        return None
    return muted("Frame: target. Bar: actual; pale where a range or a bound leaves it open.")


def _bar(step: Step, longest: Decimal) -> str:
    """A frame as long as the target and a bar as long as the actual time; empty without either."""
    if not longest or not (step.target or step.actual):
        return ""
    tooltip = f"target {step.target or 'not stated'}, actual {step.actual or 'not stated'}"
    drawn = []
    if step.actual:
        sure, end = _sure(step.actual), _end(step.actual)
        drawn.append(_rect("kb-actual", sure, longest, 3))
        if end > sure:
            drawn.append(_rect("kb-perhaps", end - sure, longest, 3, sure))
    if step.target:
        drawn.append(_rect("kb-target", _end(step.target), longest, 1))
    return raw(
        f'<span class="kb-bars" data-search-exclude><svg role="img" width="{_WIDTH}"'
        f' height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' aria-label="{attribute(tooltip)}"><title>{attribute(tooltip)}</title>{"".join(drawn)}'
        "</svg></span>"
    )


def _rect(
    css: str, length: Decimal, longest: Decimal, top: int, start: Decimal = Decimal(0)
) -> str:
    room = _WIDTH - 2
    left, wide = (1 + room * float(start / longest)), max(room * float(length / longest), 1)
    return (
        f'<rect class="{css}" x="{left:.1f}" y="{top}" width="{wide:.1f}"'
        f' height="{_HEIGHT - 2 * top}"/>'
    )


def _sure(time: Quantity) -> Decimal:
    """The least minutes that it may be."""
    return Decimal(0) if time.relation in {"<", "<="} else _in_minutes(time, time.low)


def _end(time: Quantity) -> Decimal:
    """The most minutes that it may be, as far as stated."""
    return _in_minutes(time, time.high if time.high is not None else time.low)


def _in_minutes(time: Quantity, figure: Decimal) -> Decimal:
    return max(figure * Quantity.MINUTES[time.unit], Decimal(0))


def _overrun(step: Step) -> str:
    if not (step.target and step.actual and step.target.is_single and step.actual.is_single):
        return ""
    late = step.actual.minutes - step.target.minutes
    return f"{'+' if late > 0 else '−' if late < 0 else '±'}{minutes(abs(late))}"
