"""Claims that nobody wrote down as such, because the fields of a record make them.

A session that states when it began, when it ended and how long it took claims that the three agree.
Each rule is a generator; its docstring is the rule. A figure that a claim of the record derives in
the same way is left to that claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, NamedTuple

from kbtool.ledger.claims.operands import Given, Records, Unknown
from kbtool.ledger.claims.ties import Around, Before, Ties, paths_of
from kbtool.ledger.faults import bug_at
from kbtool.model import units
from kbtool.model.address import item_key
from kbtool.model.base import Quantity
from kbtool.model.bug import Bug, Fix
from kbtool.model.cards import (
    CAPABILITIES,
    LEAST_VISIBLE,
    MOST_VISIBLE,
    capability_of,
    card_of,
)
from kbtool.model.claim import Derivation
from kbtool.model.cost import CostLine
from kbtool.model.kinds import declared
from kbtool.model.session import Environment, Evidence, Session

LATER = "later"
"""The operation of a claim of which only the path is known before all sessions are read."""


class Implied(NamedTuple):
    """A claim that a session's fields make."""

    path: str
    """The field that states it."""
    says: str
    stated: Quantity | str | None
    """As stated: a figure, or the words of a fact."""
    how: str
    """A derivation, ``fact``, or ``LATER``."""
    of: tuple[Any, ...] = ()
    """Operands of a derivation."""
    holds: bool | None = None
    """Of a fact: whether it is one; ``None`` where nobody can tell."""
    derived: str = ""
    """Of a fact: what is one, or why nobody can tell."""
    where: Mapping[str, str] | None = None
    """Of an outcome: what an operand has to be to bear it out, where that is no success."""


class Links:
    """What rules about one session need to know of other records."""

    def __init__(self, records: Records, around: Around) -> None:
        """See the class.

        Args:
            records: the session, and all that refer to it or that it refers to.
            around: what is known of all sessions.
        """
        self.records = records
        self.around = around
        self.recurrences: dict[tuple[str, str], list[tuple[str, Bug]]] = defaultdict(list)
        """(session, bug) → where it was met again."""
        for id_, record in records.by_id.items():
            for bug in record.bugs if isinstance(record, Session) else ():
                if bug.recurrence_of is not None:
                    self.recurrences[bug_at(bug.recurrence_of, id_)].append((id_, bug))

    def tested(self, fix: Fix) -> bool | None:
        """Whether a test showed that a fix holds, by what is said to have shown it."""
        for reference in fix.shown_by:
            try:
                if shows_no_fix(self.records, reference, fix):
                    return False
            except Unknown:
                pass
        return fix.confirmed


def shows_no_fix(records: Records, reference: str, fix: Fix | None = None) -> str | None:
    """Why the step of a run does not show that a fault is gone; ``None`` if nothing speaks against.

    Args:
        records: all of them.
        reference: of the step.
        fix: the fix, where it is known which.

    Raises:
        Unknown: there is no such step.
    """
    step = records.at(reference, "")
    if step.outcome != "passed":
        return f"{reference} did not pass ({step.outcome})"
    kind = declared(step.kind)
    if kind.prepares and not kind.judges:
        return f"{reference} looks at the machine and tests no code"
    run = records.run(reference)
    if run and run.why_no_test:
        return f"{reference} is {run.why_no_test}, and tests no code"
    if run and run.kernel and fix and fix.kernel and run.kernel != fix.kernel:
        return f"{reference} is of kernel {run.kernel}, and the fix of {fix.kernel}"
    return None


def implied(session: Session, links: Links) -> Iterator[Implied]:
    """Every claim that the fields of a session make; sessions come in the order of the work."""
    written: dict[str | None, set[tuple[str, ...]]] = defaultdict(set)
    for claim in session.claims:
        if not claim.where:  # by which an outcome may say the opposite of what the fields do
            written[claim.how].add(tuple(str(operand) for operand in claim.of))
    outcomes = {
        str(operand) for claim in session.claims if claim.how == "outcome" for operand in claim.of
    }
    for rule in RULES:
        for found in rule(session, links):
            if found.how in {"fact", LATER}:
                covered = f"#{found.path}" in outcomes
            elif found.how in written and not found.where:
                of = tuple(f"#{o.path}" if isinstance(o, Given) else str(o) for o in found.of)
                covered = of in written[found.how]
            else:
                covered = False
            if not covered:
                yield found


def duration_is_the_time_between(session: Session, links: Links) -> Iterator[Implied]:
    """The duration is the time from start to end, or that of the stretches of work together."""
    if session.duration is None:
        return
    says = f"The session took {session.duration}"
    if session.stretches:
        if all(stretch.ended is not None for stretch in session.stretches):
            each = tuple(
                Derivation(how="elapsed", of=[stretch.started, stretch.ended])
                for stretch in session.stretches
            )
            yield Implied("duration", says, session.duration, "sum", each)
    elif session.started and session.ended and session.started.zoned == session.ended.zoned:
        of = (Given("started", session.started), Given("ended", session.ended))
        yield Implied("duration", says, session.duration, "elapsed", of)


def _time(session: Session) -> Given | Derivation | None:
    """How long a session took: as stated, else by its stretches, else from start to end."""
    if session.duration is not None:
        return Given("duration", session.duration)
    if session.minutes is None:
        return None
    if session.stretches:
        each = [
            Derivation(how="elapsed", of=[stretch.started, stretch.ended])
            for stretch in session.stretches
            if stretch.ended is not None
        ]
        return Derivation(how="sum", of=[*each])
    return Derivation(how="elapsed", of=["#started", "#ended"])


def steps_fit_the_duration(session: Session, links: Links) -> Iterator[Implied]:
    """The steps take no longer together than the session."""
    times = tuple(
        Given(f"steps.{step.id}.actual", step.actual)
        for step in session.steps
        if step.actual is not None
    )
    if not times:
        return
    if session.duration is None:
        time = _time(session)
        if time is not None:
            steps = Derivation(how="sum", of=[f"#{step.path}" for step in times])
            says, spare = "The steps fit the time of the session", Quantity(">=0 min")
            yield Implied("steps", says, spare, "difference", (time, steps))
    elif session.duration.relation == "=":
        limit = Quantity(
            f"<= {session.duration.high or session.duration.low} {session.duration.unit}"
        )
        yield Implied("steps", "The steps fit the time of the session", limit, "sum", times)


def cost_is_rate_times_time(session: Session, links: Links) -> Iterator[Implied]:
    """A cost line's amount is its rate times its duration, or times the session's.

    An estimate is not judged here: a record whose estimate is not that product does not load.
    """
    for name, line in paths_of("costs", session.costs):
        if line.rate is None or line.amount is None or line.basis == "estimated":
            continue
        time: Given | Derivation | None = (
            Given(f"{name}.duration", line.duration) if line.duration else _time(session)
        )
        if time is None:
            continue
        yield Implied(
            name,
            f"{item_key(line)} cost {line.amount} {line.currency}",
            Quantity(f"{line.amount} {line.currency}"),
            "product",
            (time, Given(f"{name}.rate", line.rate)),
        )


def lines_pay_for_one_thing_each(session: Session, links: Links) -> Iterator[Implied]:
    """No cost is counted twice: no line stands there again, no bill beside its estimate, and no
    card is paid for by two lines that last as long as the session."""
    earlier: dict[str, list[tuple[str, CostLine]]] = defaultdict(list)
    for path, line in paths_of("costs", session.costs):
        before = earlier[line.kind]
        problems = [
            f"{other_path} {why}"
            for other_path, other in before
            if (why := _counted_twice(session, other, line)) is not None
        ]
        before.append((path, line))
        if problems:
            yield Implied(
                f"{path}.basis", f"{path} pays for something of its own", line.basis, "fact",
                holds=False, derived="; ".join(problems),
            )  # fmt: skip


def _counted_twice(session: Session, first: CostLine, second: CostLine) -> str | None:
    """What ``first`` is to a later line of its kind that pays for the same, or ``None``."""
    ours, theirs = vars(first), vars(second)
    if first.amount == second.amount and all(
        ours[name] == theirs[name] for name in ours if name != "source"
    ):
        return "is the same line: delete one, or say in the note of each what it pays for"
    is_gpu = first.kind == "gpu"
    both_open = is_gpu and first.is_open and second.is_open
    if not both_open and (first.basis == "billed") == (second.basis == "billed"):
        return None
    if is_gpu and not _may_be_one(session.card_of(first.card), session.card_of(second.card)):
        return None
    if both_open:
        return "lasts as long as the session too, and a card is paid for once: delete one"
    bill, other = (first, second) if first.basis == "billed" else (second, first)
    if other.basis == "estimated" or other.rate is not None or other.amount == bill.amount:
        says = "estimates" if other.basis == "estimated" else "claims"
        if other is first:
            return f"{says} what this bills: delete it, the bill settles it"
        return f"bills what this {says}: delete this line, the bill settles it"
    return None


def _may_be_one(one: str | None, other: str | None) -> bool:
    """Whether two lines may pay for one card: a line need not name it."""
    if one is None or other is None or one == other:
        return True
    first, second = card_of(one), card_of(other)
    return first is not None and first == second


def work_begins_after_that_before(session: Session, links: Links) -> Iterator[Implied]:
    """A session begins after the end of the one that it follows."""
    ties, before = links.around.ties[session.id], links.around.before
    if before is not None:
        yield from begins_after(ties, before[session.id])
    elif session.follows is not None:
        yield from (_later(name) for name, _ in ties.moments[:1])


def begins_after(ties: Ties, before: Before | None) -> Iterator[Implied]:
    """The same of a session that is known by its ties."""
    if not ties.moments or before is None:
        return
    name, moment = ties.moments[0]
    passed = moment.since(before.moment)
    if passed is not None:
        yield Implied(
            name,
            f"The session came after {before.session}, which it follows",
            str(moment),
            "fact",
            holds=passed.total_seconds() >= 0,
            derived=f"{before.session} has {before.field} {before.moment}",
        )


def log_is_changed_last(session: Session, links: Links) -> Iterator[Implied]:
    """A session is written down after the work."""
    known = links.around.ties[session.id].moments
    if len(known) < 2 or known[-1][0] != "updated":
        return
    (name, earlier), (_, updated) = known[-2:]
    passed = updated.since(earlier)
    if passed is not None:
        yield Implied(
            "updated",
            "The log was last changed after the work",
            str(updated),
            "fact",
            holds=passed.total_seconds() >= 0,
            derived=f"{name} {earlier}",
        )


def day_is_that_of_the_start(session: Session, links: Links) -> Iterator[Implied]:
    """A session begins on the day of its id, by the clock that its start is written in.

    One in UTC may begin on the day before or after, as far as clocks are ahead or behind.
    """
    if session.day is None or session.started is None:
        return
    try:
        midnight = datetime.fromisoformat(session.day)
    except ValueError:
        return  # the calendar has no such day; `kbtool check` says so
    ahead, behind = (14, 12) if session.started.text.endswith("Z") else (0, 0)
    passed = session.started.at.replace(tzinfo=None) - midnight
    holds = timedelta(hours=-ahead) <= passed < timedelta(hours=24 + behind)
    yield Implied(
        "id", f"The session began on {session.day}", session.day, "fact",
        holds=holds, derived=f"started {session.started}",
    )  # fmt: skip


def card_is_as_stated(session: Session, links: Links) -> Iterator[Implied]:
    """Architecture, compute capability and memory are those of the card."""
    environment = session.environment
    if environment is None:
        return
    card = card_of(environment.card) if environment.card else None
    stated = environment.compute_capability
    capability = capability_of(stated) if stated else None
    if card is not None and stated is not None and capability is not None:
        yield _fact(
            "compute_capability", f"The {card.name} has {stated}", stated,
            capability == card.capability, f"the {card.name} has sm_{card.capability}",
        )  # fmt: skip
    real = CAPABILITIES.get(card.capability if card else capability or "")
    subject = card.name if card else stated
    if real is not None and environment.architecture is not None:
        named = environment.architecture
        yield _fact(
            "architecture", f"The {subject} is an {named}", named,
            real.architecture.split()[0].lower() in named.lower(),
            f"the {subject}, sm_{card.capability if card else capability}, is"
            f" {real.architecture}",
        )  # fmt: skip
    yield from _memory(environment, card.memory_gb if card else (), subject)
    if real is not None and environment.shared_memory is not None:
        most = Fraction(real.shared_kib * 1024)
        yield _fact(
            "shared_memory", f"A block may use {environment.shared_memory}",
            str(environment.shared_memory), _bytes(environment.shared_memory) <= most,
            f"a multiprocessor of the {subject} has {real.shared_kib} KiB",
        )  # fmt: skip


def _memory(
    environment: Environment, nominal: tuple[int, ...], card: str | None
) -> Iterator[Implied]:
    if not nominal or environment.card_memory is None:
        return
    seen = float(_bytes(environment.card_memory)) / 1e9
    holds = any(LEAST_VISIBLE * size <= seen <= MOST_VISIBLE * size for size in nominal)
    sizes = " or ".join(f"{size} GB" for size in nominal)
    yield _fact(
        "card_memory", f"The {card} has {environment.card_memory}", str(environment.card_memory),
        holds, f"the {card} has {sizes}",
    )  # fmt: skip


def _bytes(memory: Quantity) -> Fraction:
    return Fraction(memory.low) * units.unit_of(memory.unit).scale


def _fact(key: str, says: str, stated: str, holds: bool, derived: str) -> Implied:
    return Implied(f"environment.{key}", says, stated, "fact", holds=holds, derived=derived)


def fixed_bugs_are_gone(session: Session, links: Links) -> Iterator[Implied]:
    """A bug called fixed has a fix, the last test of one was passed, and it is not met again."""
    for bug in session.bugs:
        if bug.status != "fixed":
            continue
        key = (session.id, bug.id)
        fixes = links.records.faults.since(key)
        tests = [tested for fix in fixes if (tested := links.tested(fix)) is not None]
        problems = [
            f"met again as {record}#bugs.{met.id}" for record, met in links.recurrences[key]
        ]
        if not fixes:
            problems.append("no record has a fix of it")
        elif tests and not tests[-1]:
            problems.append("the last fix of it that was tested was seen to fail")
        if not problems and not tests:
            continue  # nothing speaks for it or against it
        passed = "a test confirmed the fix" + ("" if all(tests) else ", after one that failed")
        yield Implied(
            f"bugs.{bug.id}.status", f"Fixed: {bug.title}", "fixed", "fact",
            holds=not problems, derived="; ".join(problems) or passed,
        )  # fmt: skip


def confirmed_fixes_are_shown(session: Session, links: Links) -> Iterator[Implied]:
    """Each step that showed a fault to be gone passed, and tested the kernel that was fixed."""
    for path, fix in paths_of("fixes", session.fixes):
        if fix.shown_by:
            failed: list[str] = []
            unknown: list[str] = []
            for reference in dict.fromkeys(fix.shown_by):
                try:
                    failed += filter(None, [shows_no_fix(links.records, reference, fix)])
                except Unknown:
                    unknown.append(reference)
            holds = False if failed else None if unknown else True
            outcome = "; ".join(failed) or "each of the steps passed"
            if not failed and unknown:
                outcome = f"there is no {', '.join(unknown)}; see `kbtool check`"
            yield Implied(
                f"{path}.shown_by", f"A test confirmed the fix of {fix.bug}",
                ", ".join(fix.shown_by), "fact", holds=holds, derived=outcome,
            )  # fmt: skip


def proofs_show(session: Session, links: Links) -> Iterator[Implied]:
    """What shows that a pattern proved itself bears that out."""
    for path, evidence in paths_of("evidence", session.evidence):
        proof = proof_of(evidence, path)
        if proof is not None:
            yield proof


def proof_of(evidence: Evidence, path: str) -> Implied | None:
    """The claim that a pattern proved itself; ``None`` where nothing but the session says so.

    The audit judges it, and the ranking of patterns counts the proof only if it holds.

    Args:
        evidence: what a session says of the pattern.
        path: the field that holds it.
    """
    if evidence.verdict != "proved" or not evidence.shown_by:
        return None
    says = f"{evidence.pattern} proved itself"
    of = tuple(evidence.shown_by)
    return Implied(f"{path}.shown_by", says, None, "outcome", of, where=evidence.where)


def commits_are_there(session: Session, links: Links) -> Iterator[Implied]:
    """A commit that a fix or the session names is in the repository that the session names."""
    ties, commits = links.around.ties[session.id], links.around.commits
    if commits is not None:
        yield from commits_found(ties, commits)
    else:
        yield from (_later(path) for path, _ in ties.commits)


def commits_found(ties: Ties, found: Mapping[str, bool]) -> Iterator[Implied]:
    """The same of a session that is known by its ties."""
    for path, commit in ties.commits:
        holds: bool | None = None
        if found.get(commit):
            holds, outcome = True, "the repository has it"
        elif ties.commit is not None and found.get(ties.commit):
            own = ties.commit[:12]
            holds, outcome = False, f"the repository, which has the session's {own}, has none"
        elif found:
            outcome = "this repository does not have it, and the session names none that does"
        else:
            outcome = "there is no repository here that can tell, or a shallow one"
        yield Implied(
            path, f"There is a commit {commit}", commit, "fact", holds=holds, derived=outcome
        )


def _later(path: str) -> Implied:
    return Implied(path, "", None, LATER)


Rule = Callable[[Session, Links], Iterator[Implied]]
RULES: tuple[Rule, ...] = (
    duration_is_the_time_between,
    steps_fit_the_duration,
    cost_is_rate_times_time,
    lines_pay_for_one_thing_each,
    work_begins_after_that_before,
    log_is_changed_last,
    day_is_that_of_the_start,
    card_is_as_stated,
    fixed_bugs_are_gone,
    confirmed_fixes_are_shown,
    proofs_show,
    commits_are_there,
)
"""The rules."""
