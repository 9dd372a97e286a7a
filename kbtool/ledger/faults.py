"""What became of faults. A fault met again is the same fault; the last fix of it decides.

The one place where that is derived: for the audit, and for what a mended bug cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from kbtool.model.address import split_reference
from kbtool.model.session import Bug, Fix, Session

Key = tuple[str, str]
"""A bug: its session, its id."""


class Meeting(NamedTuple):
    """A session that met a fault, by its place in the order of the work."""

    at: int
    bug: Bug


class Mend(NamedTuple):
    """A session that made a fix, by its place in the order of the work."""

    at: int
    fix: Fix


class Faults:
    """Every fault, by the first bug that it is; sessions come in the order of the work, all."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self._place = {session.id: at for at, session in enumerate(sessions)}
        self._first: dict[Key, Key] = {}
        self._met: dict[Key, list[Meeting]] = defaultdict(list)
        self.mends: dict[Key, list[Mend]] = defaultdict(list)
        """Fault → its fixes, those of a session in the order in which they stand there."""
        for at, session in enumerate(sessions):
            for bug in session.bugs:
                key = (session.id, bug.id)
                again = bug.recurrence_of
                self._first[key] = self.of(bug_at(again, session.id)) if again else key
                self._met[self._first[key]].append(Meeting(at, bug))
        for at, session in enumerate(sessions):
            for fix in session.fixes:
                self.mends[self.of(bug_at(fix.bug, session.id))].append(Mend(at, fix))

    def of(self, key: Key) -> Key:
        """The fault that a bug is."""
        return self._first.get(key, key)

    def mended(self, fault: Key) -> Mend | None:
        """The fix that mended a fault: its last, if no test saw it fail and no one met it since."""
        last = self.mends[fault][-1] if self.mends.get(fault) else None
        if last is None or last.fix.confirmed is False:
            return None
        met = self._met.get(fault)
        return last if not met or met[-1].at <= last.at else None

    def since(self, key: Key) -> list[Fix]:
        """The fixes of a bug that were made when it was met, or later."""
        met = self._place[key[0]]
        return [fix for at, fix in self.mends.get(self.of(key), ()) if at >= met]

    def status(self, key: Key) -> str:
        """What became of a bug: fixed by what mended it, else as it was left when last met."""
        fault = self.of(key)
        if self.mended(fault) is not None:
            return "fixed"
        left = self._met[fault][-1].bug.status
        failed = [mend.fix.confirmed is False for mend in self.mends.get(fault, ())]
        return "open" if left == "fixed" and failed and failed[-1] else left


def bug_at(reference: str, own: str) -> Key:
    """The bug that a reference in the record ``own`` leads to."""
    record, path = split_reference(reference)
    return record or own, path.removeprefix("bugs.")
