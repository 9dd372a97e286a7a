"""What became of faults. A fault met again is the same fault; the last fix of it decides.

The one place where that is derived: for the audit, for what a mended bug cost, for a session as it
is shown, and for the site.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from kbtool.model.address import split_reference
from kbtool.model.bug import Bug, Fix
from kbtool.model.session import Session

Key = tuple[str, str]
"""A bug: its session, its id."""


class Meeting(NamedTuple):
    """A session that met a fault, and the bug that it is in the session's record."""

    session: Session
    bug: Bug


class Mend(NamedTuple):
    """A session that made a fix, and the fix."""

    session: Session
    fix: Fix

    @property
    def bug(self) -> Key:
        """The very bug that it names, which may be any meeting of its fault."""
        return bug_at(self.fix.bug, self.session.id)


class Faults:
    """Every fault, by the first bug that it is; sessions come in the order of the work, all."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self._place = {session.id: at for at, session in enumerate(sessions)}
        self.bugs: dict[Key, Meeting] = {}
        """Every bug, in the order of the work."""
        for session in sessions:
            for bug in session.bugs:
                self.bugs.setdefault((session.id, bug.id), Meeting(session, bug))
        self._first = {key: _first_met(key, self.bugs) for key in self.bugs}
        self._met: dict[Key, list[Meeting]] = defaultdict(list)
        for key, first in self._first.items():
            self._met[first].append(self.bugs[key])
        self.mends: dict[Key, list[Mend]] = defaultdict(list)
        """Fault → its fixes, those of a session in the order in which they stand there."""
        for session in sessions:
            for fix in session.fixes:
                mend = Mend(session, fix)
                self.mends[self.of(mend.bug)].append(mend)
        for mends in self.mends.values():
            mends.sort(key=self._when)

    def of(self, key: Key) -> Key:
        """The fault that a bug is."""
        return self._first.get(key, key)

    def meetings(self, key: Key) -> list[Meeting]:
        """Every meeting of the fault that a bug is, in the order of the work."""
        return self._met[self.of(key)]

    def again(self, key: Key) -> list[Meeting]:
        """The later meetings of the fault that a bug is."""
        met = self.meetings(key)
        return met[met.index(self.bugs[key]) + 1 :]

    def fixes(self, key: Key) -> list[Mend]:
        """The fixes that name this very bug; and the one that mended its fault by the name of
        another meeting, unless its session is among theirs."""
        named = [mend for mend in self.mends.get(self.of(key), ()) if mend.bug == key]
        last = self.mended(key)
        if last is not None and all(mend.session.id != last.session.id for mend in named):
            named.append(last)
        return named

    def mended(self, key: Key) -> Mend | None:
        """What mended the fault that a bug is: its last fix, if no test saw that fail and nobody
        met the fault since."""
        fault = self.of(key)
        mends, met = self.mends.get(fault), self._met.get(fault)
        if not mends or mends[-1].fix.confirmed is False:
            return None
        if met and self._place[met[-1].session.id] > self._when(mends[-1]):
            return None
        return mends[-1]

    def since(self, key: Key) -> list[Fix]:
        """The fixes of a bug that were made when it was met, or later."""
        met = self._place[key[0]]
        return [mend.fix for mend in self.mends.get(self.of(key), ()) if self._when(mend) >= met]

    def status(self, key: Key) -> str:
        """What became of a bug: fixed by what mended it, else as it was left when last met."""
        if self.mended(key) is not None:
            return "fixed"
        left = self.meetings(key)[-1].bug.status
        mends = self.mends.get(self.of(key))
        return "open" if left == "fixed" and mends and mends[-1].fix.confirmed is False else left

    def became(self, key: Key) -> str:
        """What became of this meeting of a fault: ``fixed`` with the fault, else ``met again``; of
        the newest, whether a fix failed, else what its session left it as."""
        if self.mended(key) is not None:
            return "fixed"
        if self.again(key):
            return "met again"
        return "fix unconfirmed" if self.since(key) else self.bugs[key].bug.status

    def _when(self, mend: Mend) -> int:
        """When a fix was made, as a place in the order of the work. Lines of work stand there one
        after another: the session of a fix may stand before the one whose bug it mends."""
        return max(self._place[mend.session.id], self._place.get(mend.bug[0], 0))


def bug_at(reference: str, own: str) -> Key:
    """The bug that a reference in the record ``own`` leads to."""
    record, path = split_reference(reference)
    return record or own, path.removeprefix("bugs.")


def _first_met(key: Key, met: dict[Key, Meeting]) -> Key:
    """The first meeting of the fault that a bug is."""
    first, seen = key, {key}
    while (again := met[first].bug.recurrence_of) and (before := bug_at(again, first[0])) in met:
        if before in seen:
            return key  # a circle, which `check` refuses; each bug is a fault of its own then
        seen.add(before)
        first = before
    return first
