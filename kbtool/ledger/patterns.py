"""What patterns are worth: how often each was followed, and what it saved.

Pure functions of records. What a pattern saved is told twice and never mixed: as sessions claim it
in their evidence, and as the times of steps show it against the times planned for them. A time that
nobody stated counts nowhere; it is listed with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Literal, get_args

from kbtool.ledger.claims.audit import GRADES, Judged, judge_implied
from kbtool.ledger.claims.implied import proof_of
from kbtool.ledger.claims.operands import Records
from kbtool.ledger.rollup import EXPECTED
from kbtool.ledger.rollup_json import number
from kbtool.model.base import Quantity
from kbtool.model.cost import CostLine
from kbtool.model.kinds.build import BuildResult
from kbtool.model.money import half_up, to_cent
from kbtool.model.pattern import Pattern
from kbtool.model.price import is_exact, per_hour
from kbtool.model.run import Run, StepRecord
from kbtool.model.session import Evidence, Session, Step

Verdict = Literal["proved", "applied", "contradicted", "not_reproduced", "discovered"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""Most telling first."""

Standing = Literal["proved", "applied", "disputed", "untested", "contradicted", "superseded"]
STANDINGS: dict[Standing, str] = {
    "proved": "a session proved it and none contradicts it",
    "applied": "sessions applied it without proof, and none contradicts it",
    "disputed": "some sessions support it and some contradict it",
    "untested": "no session says that it was applied",
    "contradicted": "sessions contradict it and none supports it",
    "superseded": "another pattern replaces it",
}
"""Every standing and what gives it, best first."""


@dataclass(frozen=True)
class Span:
    """A figure as far as it is known: from ``low`` to ``high``, both included."""

    low: Decimal
    high: Decimal | None
    """``None`` where nothing bounds it."""
    about: bool = False
    """Whether a part of it was stated as about so much."""

    @classmethod
    def of(cls, quantity: Quantity, factor: Decimal = Decimal(1)) -> Span:
        """What a stated figure, never negative, says of the true one; in ``factor`` of its unit."""
        low, high = quantity.low * factor, (quantity.high or quantity.low) * factor
        if quantity.relation in {"<", "<="}:
            return cls(Decimal(0), high)
        if quantity.relation in {">", ">="}:
            return cls(low, None)
        return cls(low, high, quantity.relation == "~")

    def __add__(self, other: Span) -> Span:
        high = None if self.high is None or other.high is None else self.high + other.high
        return Span(self.low + other.low, high, self.about or other.about)

    def __str__(self) -> str:
        low, about = shown(self.low), "~" if self.about else ""
        if self.high is None:
            return f"{about}{low}+"
        if self.high == self.low:
            return f"{about}{low}"
        return f"{about}{low}–{shown(self.high)}"


@dataclass(frozen=True)
class Edge:
    """What one session says of a pattern."""

    session: Session
    place: int
    """Its index in the session's ``evidence``."""
    evidence: Evidence
    proof: Judged | None = None
    """What the audit makes of ``shown_by``, if that is to show a proof."""

    @property
    def verdict(self) -> Verdict:
        """The verdict that counts: a proof that its ``shown_by`` does not bear out is applied."""
        if self.proof is not None and not self.proof.holds:
            return "applied"
        return self.evidence.verdict

    @property
    def unproved(self) -> str | None:
        """Why a stated proof counts as applied; ``None`` where the verdict is as stated."""
        if self.proof is None or self.proof.holds:
            return None
        why = self.proof.finding or self.proof.why
        return f"stated as proved, but the audit finds it {GRADES[self.proof.holds]}: {why}"


@dataclass(frozen=True)
class TimedStep:
    """A step that carries a pattern: the time planned for it and the time it took, in minutes."""

    session: str
    """The id of its session."""
    run: Run | None
    """The run that it is a step of; ``None`` for a step of the session's own record."""
    place: int
    """Its index in the list of steps."""
    step: str
    planned: Decimal | None
    took: Decimal | None
    left_out: str | None
    """Why its times count for nothing, or ``None`` where they count."""
    prices: dict[str, Fraction] = field(default_factory=dict)
    """Currency → what a minute of the session cost, over the kinds of cost that it states."""
    unpriced: frozenset[str] = frozenset()
    """The kinds of cost that it does not state."""

    @property
    def saved(self) -> Decimal | None:
        """Minutes planned less minutes taken; below zero it cost time. ``None`` if left out."""
        if self.left_out or self.planned is None or self.took is None:
            return None
        return self.planned - self.took


@dataclass(frozen=True)
class Account:
    """A pattern, everything that records say of it, and what follows."""

    pattern: Pattern
    superseded_by: list[str]
    edges: list[Edge]
    """In the order of the work."""
    steps: list[TimedStep]

    def count(self, verdict: Verdict) -> int:
        """How many sessions give this verdict (``Edge.verdict``)."""
        return len({edge.session.id for edge in self.edges if edge.verdict == verdict})

    @property
    def standing(self) -> Standing:
        """What the evidence makes of the pattern; see ``STANDINGS``."""
        if self.superseded_by:
            return "superseded"
        against = self.count("contradicted") + self.count("not_reproduced")
        followed = self.count("proved") + self.count("applied")
        if against:
            return "disputed" if followed else "contradicted"
        if self.count("proved"):
            return "proved"
        return "applied" if followed else "untested"

    def claimed(self, what: Literal["saved", "lost"], *, expected: bool = False) -> Span | None:
        """Minutes that sessions say were saved or lost; ``None`` where none gives a figure.

        Args:
            what: which of the two.
            expected: those that were only expected, instead of those that were seen.
        """
        stated = [
            Span.of(value, Quantity.MINUTES[value.unit])
            for edge in self.edges
            if edge.evidence.expected == expected
            and (value := getattr(edge.evidence, what)) is not None
        ]
        return reduce(Span.__add__, stated) if stated else None

    def claimed_money(self, *, expected: bool = False) -> dict[str, Span]:
        """Currency → money that sessions say was saved."""
        sums: dict[str, Span] = {}
        for edge in self.edges:
            money = edge.evidence.money
            if money is not None and edge.evidence.expected == expected:
                span = Span.of(money)
                sums[money.unit] = sums[money.unit] + span if money.unit in sums else span
        return sums

    @property
    def counted(self) -> list[TimedStep]:
        """The steps whose times count."""
        return [step for step in self.steps if step.saved is not None]

    def timed(self, *, of_runs: bool | None = None) -> Decimal | None:
        """Minutes planned less minutes taken, over the steps that count; ``None`` without any.

        Args:
            of_runs: only those of runs, or only those of session records.
        """
        saved = [
            step.saved
            for step in self.counted
            if step.saved is not None and of_runs in {None, step.run is not None}
        ]
        return sum(saved, Decimal(0)) if saved else None

    def timed_money(self) -> dict[str, Decimal]:
        """Currency → those minutes at the price of a minute of their sessions, to the cent.

        Only kinds of cost that a session states are in it; see ``unpriced``.
        """
        sums: dict[str, Fraction] = {}
        for step in self.counted:
            for currency, price in step.prices.items():
                spent = Fraction(step.saved or 0) * price
                sums[currency] = sums.get(currency, Fraction(0)) + spent
        return {currency: to_cent(amount) for currency, amount in sums.items()}

    def unpriced(self) -> list[str]:
        """What ``timed_money`` lacks, in words: kinds of cost, steps of which nothing is known."""
        priced = [step for step in self.counted if step.prices]
        missing = set().union(*(step.unpriced for step in priced))
        lacks = [kind for kind in EXPECTED if kind in missing]
        rest = len(self.counted) - len(priced)
        if rest:
            lacks.append(f"{rest} step{'s' if rest > 1 else ''} of sessions that state no cost")
        return lacks

    def timed_money_text(self) -> str:
        """``timed_money`` in words, with what it lacks; empty where no cost is stated."""
        sums = sorted(self.timed_money().items())
        text = " + ".join(f"{amount} {currency}" for currency, amount in sums)
        lacks = self.unpriced() if text else []
        return text + (f" without {' and '.join(lacks)}" if lacks else "")

    @property
    def rank(self) -> tuple[int, int, int, Decimal, Decimal, str]:
        """What patterns are ordered by, the best first.

        The standing; more sessions that proved it; more that applied it; more minutes saved as
        claimed, the least that the claims amount to; then as the step times show; then the id.
        """
        saved, lost = self.claimed("saved"), self.claimed("lost")
        claimed = (saved.low if saved else Decimal(0)) - (lost.low if lost else Decimal(0))
        return (
            list(STANDINGS).index(self.standing),
            -self.count("proved"),
            -self.count("applied"),
            -claimed,
            -(self.timed() or Decimal(0)),
            self.pattern.id,
        )


def accounts(
    patterns: Iterable[Pattern], sessions: Sequence[Session], runs: Sequence[Run]
) -> list[Account]:
    """The account of every pattern, best first (``Account.rank``).

    Args:
        patterns: the patterns.
        sessions: every session, in the order of the work.
        runs: every run, oldest first; a resumed run has one entry an attempt.
    """
    patterns_by_id = {pattern.id: pattern for pattern in patterns}
    by_id = {id_: Account(pattern, [], [], []) for id_, pattern in patterns_by_id.items()}
    for pattern_id, account in by_id.items():
        for older in account.pattern.supersedes:
            if older.pattern in by_id:
                by_id[older.pattern].superseded_by.append(pattern_id)
    last = {run.id: run for run in sorted(runs, key=lambda run: run.attempt)}
    records = Records(
        {**{session.id: session for session in sessions}, **patterns_by_id},
        [session.id for session in sessions],
        last.get,
    )
    for session in sessions:
        for place, evidence in enumerate(session.evidence):
            if evidence.pattern in by_id:
                claim = proof_of(evidence, f"evidence.{place}")
                proof = judge_implied(claim, session.id, records) if claim else None
                by_id[evidence.pattern].edges.append(Edge(session, place, evidence, proof))
        for place, step in enumerate(session.steps):
            if step.pattern in by_id:
                by_id[step.pattern].steps.append(_step_of_session(session, place, step))
    of_id = {session.id: session for session in sessions}
    for run in runs:
        if run.pattern in by_id:
            account = by_id[run.pattern]
            account.steps.extend(_steps_of_run(run, account.pattern, of_id.get(run.session)))
    return sorted(by_id.values(), key=lambda account: account.rank)


def _step_of_session(session: Session, place: int, step: Step) -> TimedStep:
    left_out = None
    if step.status != "done":
        left_out = f"the step is {step.status}, not done"
    elif step.target is None:
        left_out = "no time was planned for it"
    elif step.actual is None:
        left_out = "the time it took is not recorded"
    elif not (is_exact(step.target) and is_exact(step.actual)):
        left_out = "its times are no single figures"
    return TimedStep(
        session.id, None, place, step.id,
        None if step.target is None else step.target.minutes,
        None if step.actual is None else step.actual.minutes,
        left_out, *_prices(session),
    )  # fmt: skip


def _steps_of_run(run: Run, pattern: Pattern, session: Session | None) -> Iterator[TimedStep]:
    """The steps that this attempt of a run came to; those before were told by earlier attempts."""
    prices = _prices(session) if session else ({}, frozenset(EXPECTED[1:]))
    as_planned = any(
        recipe.name == run.recipe
        and all(
            name in recipe.parameters and recipe.parameters[name].default == value
            for name, value in run.parameters.items()
        )
        for recipe in pattern.recipes
    )
    for place, step in enumerate(run.steps):
        if step.attempt == run.attempt and step.status != "not-run":
            yield TimedStep(
                run.session, run, place, step.id,
                _minutes(step.expected_seconds),
                None if step.seconds is None else _minutes(step.seconds),
                _left_out(step, as_planned=as_planned), *prices,
            )  # fmt: skip


def _left_out(step: StepRecord, *, as_planned: bool) -> str | None:
    """Why the times of a run's step say nothing of what the pattern saves."""
    if not as_planned:
        return "the run's parameters are not those that the recipe's times are for"
    if step.status != "passed":
        return f"the step ended as {step.status}"
    if step.seconds is None:
        return "the time it took is not recorded"
    if step.expected_from == "history":
        return "the time expected comes from earlier runs of the same recipe"
    if isinstance(step.result, BuildResult) and (step.result.warm or step.result.reused):
        return "the library was there already, whole or in part"
    return None


def _minutes(seconds: float) -> Decimal:
    return Decimal(str(seconds)) / 60


def _prices(session: Session) -> tuple[dict[str, Fraction], frozenset[str]]:
    """What a minute of the session cost by currency; the kinds of cost that it does not state."""
    sums: dict[str, Fraction] = {}
    missing = set(EXPECTED[1:])
    for line in session.costs:
        price = _price(line, session.minutes)
        if price is not None:
            sums[line.currency] = sums.get(line.currency, Fraction(0)) + price
            missing.discard(line.kind)
    return sums, frozenset(missing)


def _price(line: CostLine, session_minutes: Decimal | None) -> Fraction | None:
    """What a minute cost: by its rate, else its amount over its time or the session's."""
    if line.rate is not None and is_exact(line.rate):
        return per_hour(line.rate) / 60
    minutes = session_minutes
    if line.duration is not None:
        minutes = line.duration.minutes if is_exact(line.duration) else None
    if line.amount is None or not minutes:
        return None
    return Fraction(line.amount) / Fraction(minutes)


def time_text(minutes: Decimal | None) -> str:
    """A time in words: ``8 min``, and ``11.94 s`` where it is short and of no whole minutes."""
    if minutes is None:
        return "–"
    if abs(minutes) < 2 and minutes != minutes.to_integral_value():
        return f"{shown(minutes * 60, 2)} s"
    return f"{shown(minutes)} min"


def saving_text(minutes: Decimal | None) -> str:
    """What a time comes to: ``2 min saved``, ``96 min lost``."""
    if minutes is None:
        return "–"
    return f"{time_text(abs(minutes))} {'lost' if minutes < 0 else 'saved'}"


def shown(figure: Decimal, places: int = 1) -> str:
    """A figure to so many decimal places at most, without noughts that say nothing."""
    text = f"{half_up(figure, places):,f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in {"-0", ""} else text


def span_json(span: Span | None) -> dict[str, object] | None:
    """A span as JSON: its ends as decimal text, ``high`` null where nothing bounds it."""
    if span is None:
        return None
    high = None if span.high is None else f"{span.high:f}"
    return {"low": f"{span.low:f}", "high": high, "about": span.about}


def account_json(account: Account, rank: int) -> dict[str, object]:
    """The figures of one account: minutes as numbers, what is claimed as spans, money as text."""

    def claimed(*, expected: bool) -> dict[str, object]:
        money = account.claimed_money(expected=expected)
        return {
            "saved_minutes": span_json(account.claimed("saved", expected=expected)),
            "lost_minutes": span_json(account.claimed("lost", expected=expected)),
            "money": {currency: span_json(span) for currency, span in sorted(money.items())},
        }

    return {
        "rank": rank,
        "id": account.pattern.id,
        "title": account.pattern.title,
        "standing": account.standing,
        "why": STANDINGS[account.standing],
        "superseded_by": account.superseded_by,
        "verdicts": {verdict: account.count(verdict) for verdict in VERDICTS},
        "claimed": claimed(expected=False),
        "expected": claimed(expected=True),
        "step_times": {
            "saved_minutes": number(account.timed()),
            "of_sessions": number(account.timed(of_runs=False)),
            "of_runs": number(account.timed(of_runs=True)),
            "money": {
                currency: str(amount) for currency, amount in sorted(account.timed_money().items())
            },
            "money_lacks": account.unpriced(),
            "counted": len(account.counted),
            "left_out": len(account.steps) - len(account.counted),
        },
    }
