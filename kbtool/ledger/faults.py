"""What became of faults. A fault met again is the same fault; the last fix of it decides.

The one place where that is derived: for the audit, for the cost of a fixed bug, for `session show`
and for the site.
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


class BugFix(NamedTuple):
    """A session that made a fix, and the fix."""

    session: Session
    fix: Fix

    @property
    def bug(self) -> Key:
        """The bug that it names, which may be any occurrence of its fault."""
        return bug_at(self.fix.bug, self.session.id)


class Faults:
    """Every fault, identified by its first bug. Takes all sessions, in the order of the work."""

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
        self.fixes_of_fault: dict[Key, list[BugFix]] = defaultdict(list)
        """Fault → its fixes, in the order of the work."""
        for session in sessions:
            for fix in session.fixes:
                bug_fix = BugFix(session, fix)
                self.fixes_of_fault[self.of(bug_fix.bug)].append(bug_fix)
        for fixes in self.fixes_of_fault.values():
            fixes.sort(key=self._when)

    def of(self, key: Key) -> Key:
        """The fault of which a bug is an occurrence."""
        return self._first.get(key, key)

    def meetings(self, key: Key) -> list[Meeting]:
        """Every meeting of the fault that a bug is, in the order of the work."""
        return self._met[self.of(key)]

    def again(self, key: Key) -> list[Meeting]:
        """The later meetings of the fault that a bug is."""
        met = self.meetings(key)
        return met[met.index(self.bugs[key]) + 1 :]

    def fixes(self, key: Key) -> list[BugFix]:
        """The fixes that name this bug, and the lasting fix of its fault if that names another
        occurrence and is of another session."""
        named = [
            bug_fix for bug_fix in self.fixes_of_fault.get(self.of(key), ()) if bug_fix.bug == key
        ]
        last = self.lasting_fix(key)
        if last is not None and all(bug_fix.session.id != last.session.id for bug_fix in named):
            named.append(last)
        return named

    def lasting_fix(self, key: Key) -> BugFix | None:
        """The last fix of a bug's fault, unless a test saw it fail or the fault recurred later."""
        fault = self.of(key)
        fixes, met = self.fixes_of_fault.get(fault), self._met.get(fault)
        if not fixes or fixes[-1].fix.confirmed is False:
            return None
        if met and self._place[met[-1].session.id] > self._when(fixes[-1]):
            return None
        return fixes[-1]

    def since(self, key: Key) -> list[Fix]:
        """The fixes of a bug that were made in its session or later."""
        met = self._place[key[0]]
        return [
            bug_fix.fix
            for bug_fix in self.fixes_of_fault.get(self.of(key), ())
            if self._when(bug_fix) >= met
        ]

    def status(self, key: Key) -> str:
        """The status of a bug: fixed by a lasting fix, else as the last session with it left it."""
        if self.lasting_fix(key) is not None:
            return "fixed"
        left = self.meetings(key)[-1].bug.status
        fixes = self.fixes_of_fault.get(self.of(key))
        return "open" if left == "fixed" and fixes and fixes[-1].fix.confirmed is False else left

    def became(self, key: Key) -> str:
        """The status of this occurrence: ``fixed`` if the fault is fixed, else ``met again`` if
        it recurred, else ``fix unconfirmed`` if it has a fix, else as its session left it."""
        if self.lasting_fix(key) is not None:
            return "fixed"
        if self.again(key):
            return "met again"
        return "fix unconfirmed" if self.since(key) else self.bugs[key].bug.status

    def _when(self, bug_fix: BugFix) -> int:
        """When a fix was made, as a place in the order of the work. That order lists one line of
        work after another, so the session of a fix may come before the session of its bug."""
        return max(self._place[bug_fix.session.id], self._place.get(bug_fix.bug[0], 0))


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
