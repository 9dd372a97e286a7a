"""What the money bought: bugs that were fixed, and speed.

Bugs. A fault met again is the same bug. It counts once, in the session of its last fix, unless that
fix was seen to fail (``confirmed: false``) or the fault was met in a later session. It is confirmed
if a test showed that it was gone, else claimed.

Speed. Each case that a validated run timed is held against the best earlier validated run of the
same case: same kernel, same card (without one: same processor and threads), same way of timing,
same name and no field of another value. It gained if its third quartile is below the best first
quartile until then; the gain is the ratio of the medians, and what is measured for the first time
gains nothing. Runs that others disturbed, and cases that were refused or not right again after
timing, do not count. A session without a validated benchmark may have tables with a ``subject``:
those not known to be wrong are held against the best earlier table on the same card for the same
case, word for word, and the gain is marked as claimed.

Gains are counted in doublings, log2 of the ratio, so that those of several sessions add up: twice
as fast is 1, four times is 2. Of several cases it is the mean over all that were measured again.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from kbtool.ledger.faults import Faults
from kbtool.ledger.rollup import KINDS, Row
from kbtool.model.base import Quantity
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.measurement import Measurement
from kbtool.model.money import cents
from kbtool.model.run import Run, another_problem
from kbtool.model.session import Session


class FixedBugs(NamedTuple):
    """How many bugs a session fixed for good."""

    confirmed: int
    claimed: int


@dataclass
class Speed:
    """Doublings of speed, by what was measured."""

    doublings: dict[str, float] = field(default_factory=dict)
    """What was measured again → doublings gained; 0 where it got no faster."""
    claimed: bool = False
    """Whether any of it rests on a table that somebody typed."""


def fixed_bugs(sessions: Sequence[Session]) -> dict[str, FixedBugs]:
    """Session id → the bugs that it fixed. Takes all sessions, in the order of the work."""
    faults = Faults(sessions)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for fault in faults.fixes_of_fault:
        last = faults.lasting_fix(fault)
        if last is not None:
            counts[last.session.id][0 if last.fix.confirmed else 1] += 1
    return {name: FixedBugs(*count) for name, count in counts.items()}


class _Time(NamedTuple):
    """What one measurement of a case found."""

    median: float
    low: float
    """The first quartile; the figure itself where there is but one."""
    high: float
    """The third quartile."""
    case: Mapping[str, object]
    """The fields of the case."""
    run: Run | None = None
    """The run that measured it; ``None`` of a figure that somebody typed."""

    def of_the_same(self, other: _Time) -> bool:
        """Whether no field that both cases have differs; a later harness may know more fields. Of
        another problem it is another case."""
        if self.run and other.run and another_problem(self.run, other.run):
            return False
        return all(other.case.get(key, value) == value for key, value in self.case.items())


def sped_up(sessions: Sequence[Session], runs: Iterable[Run]) -> dict[str, Speed]:
    """Session id → what it gained in speed; sessions in the order of the work, all of them."""
    gained: dict[str, Speed] = defaultdict(Speed)
    best: dict[str, _Time] = {}

    def measure(session: str, what: str, now: _Time, claimed: bool) -> None:
        before = best.get(what)
        if before is None or not now.of_the_same(before):
            best[what] = now
            return
        speed = gained[session]
        speed.claimed |= claimed
        faster = now.high < before.low
        more = math.log2(before.median / now.median) if faster else 0.0
        speed.doublings[what] = speed.doublings.get(what, 0.0) + more
        if faster:
            best[what] = now

    validated = set()
    for run in sorted(runs, key=lambda run: (run.started, run.attempt)):
        for step in run.steps:
            result = step.result
            if not isinstance(result, BenchmarkResult) or result.noise is not None:
                continue
            for case in result.cases:
                timing = case.arms.get(result.subject)
                if case.refused or not case.rechecked or timing is None:
                    continue
                validated.add(run.session)
                place = run.machine.card or f"{run.machine.cpu}, {result.threads} threads"
                what = json.dumps([run.kernel, place, result.device, result.protocol, case.name])
                now = _Time(timing.median_us, timing.low_us, timing.high_us, case.case, run)
                measure(run.session, what, now, claimed=False)
    for session in sessions:
        if session.id not in validated:
            for table in session.measurements:
                for what, time in _stated(session, table):
                    measure(session.id, what, _Time(time, time, time, {}), claimed=True)
    return dict(gained)


def _stated(session: Session, table: Measurement) -> Iterable[tuple[str, float]]:
    """Case and time of every row of a table that may be true."""
    card = session.environment.card if session.environment else None
    if table.subject is None or table.validated is False or card is None:
        return
    minutes = Quantity.MINUTES[table.columns[table.subject].unit]
    for row in table.rows:
        time = row.values.get(table.subject)
        if time and row.case and row.verdict != "fail":
            yield json.dumps(["stated", card, row.case], sort_keys=True), float(time * minutes)


def per_bug(row: Row, counts: Mapping[str, FixedBugs]) -> dict[str, object]:
    """What ``costs --per bug`` adds to a row: bugs fixed, and the money over their number."""
    here = [counts[name] for name in row.sessions if name in counts]
    confirmed, claimed = sum(one.confirmed for one in here), sum(one.claimed for one in here)
    return {
        "bugs_fixed": confirmed + claimed,
        "bugs_fixed_claimed": claimed,
        "per_bug": _per(row.total, confirmed + claimed),
        "per_bug_at_least": _in_part(row),
    }


def per_speedup(row: Row, gains: Mapping[str, Speed]) -> dict[str, object]:
    """What ``costs --per speedup`` adds to a row: the gain, and the money over its doublings."""
    here = [gains[name] for name in sorted(row.sessions) if name in gains]
    doublings = _mean(here)
    return {
        "speedup": None if doublings is None else round(2**doublings, 3),
        "speedup_cases": len({what for one in here for what in one.doublings}),
        "speedup_basis": None if not here
        else "claimed" if any(one.claimed for one in here) else "validated",
        "per_doubling": _per(row.total, doublings or 0),
        "per_doubling_at_least": _in_part(row),
    }  # fmt: skip


def _mean(gains: Collection[Speed]) -> float | None:
    """Doublings over all the cases that were measured again."""
    sums: dict[str, float] = defaultdict(float)
    for gain in gains:
        for what, doublings in gain.doublings.items():
            sums[what] += doublings
    return sum(sums.values()) / len(sums) if sums else None


def _in_part(row: Row) -> bool:
    """Whether the row's money is known in part only, so that what it bought cost at least that."""
    return any(kind in row.unknown for kind in KINDS)


def _per(amount: Decimal | None, number: float) -> str | None:
    """Money over a number, to the cent; nothing over nothing is nothing known."""
    if amount is None or number <= 0:
        return None
    return cents(Fraction(amount) / Fraction(str(number)))
