"""The status of bugs that recur: the last fix decides, whichever occurrence it names."""

from __future__ import annotations

from typing import Any

import pytest
from costed import session

from kbtool.ledger.faults import Faults

A, B, C, D = (f"2025-01-0{day}-{name}" for day, name in enumerate("abcd", 1))
X, Y, Z = f"{A}#bugs.x", f"{B}#bugs.y", f"{C}#bugs.z"


def bug(id_: str, again: str | None = None, status: str = "open") -> dict[str, Any]:
    return {"id": id_, "title": id_, "status": status, "recurrence_of": again}


def fix(reference: str, confirmed: bool | None = None) -> dict[str, Any]:
    return {"bug": reference, "change": "c", "confirmed": confirmed}


def became(*sessions: Any) -> dict[str, str]:
    """Bug → what became of it."""
    faults = Faults(sessions)
    return {key[1]: faults.became(key) for key in faults.bugs}


def fixers(faults: Faults, key: tuple[str, str]) -> list[str]:
    return [mend.session.id for mend in faults.fixes(key)]


@pytest.mark.parametrize("left", ["open", "worked-around", "unknown", "fixed"])
def test_without_a_fix_a_bug_is_as_its_session_left_it(left: str) -> None:
    assert became(session(A, bugs=[bug("x", status=left)])) == {"x": left}


@pytest.mark.parametrize(
    ("tested", "status"),
    [
        ([None], "fixed"),
        ([True], "fixed"),
        ([False], "fix unconfirmed"),
        ([False, True], "fixed"),
        ([False, None], "fixed"),
        ([True, False], "fix unconfirmed"),
    ],
)
@pytest.mark.parametrize("left", ["open", "fixed"])
def test_of_several_fixes_the_last_decides(left: str, tested: list[Any], status: str) -> None:
    met = [bug("x", status=left)]
    own = session(A, bugs=met, fixes=[fix("#bugs.x", one) for one in tested])
    assert became(own) == {"x": status}
    later = [session(name, fixes=[fix(X, one)]) for name, one in zip((B, C), tested, strict=False)]
    assert became(session(A, bugs=met), *later) == {"x": status}


def test_a_bug_that_recurs_later_refutes_its_fix() -> None:
    first = session(A, bugs=[bug("x", status="fixed")], fixes=[fix("#bugs.x", confirmed=True)])
    again = session(B, bugs=[bug("y", X)])
    assert became(first, again) == {"x": "met again", "y": "open"}
    left = session(B, bugs=[bug("y", X, "fixed")])
    assert became(first, left) == {"x": "met again", "y": "fixed"}
    failed = session(C, fixes=[fix(Y, confirmed=False)])
    assert became(first, again, failed) == {"x": "met again", "y": "fix unconfirmed"}


@pytest.mark.parametrize("named", [X, Y, Z])
def test_a_fix_applies_to_every_recurrence_of_the_bug(named: str) -> None:
    met = [
        session(A, bugs=[bug("x")]),
        session(B, bugs=[bug("y", X)]),
        session(C, bugs=[bug("z", Y)]),
    ]
    assert became(*met, session(D, fixes=[fix(named)])) == dict.fromkeys("xyz", "fixed")
    failed = became(*met, session(D, fixes=[fix(named, confirmed=False)]))
    assert failed == {"x": "met again", "y": "met again", "z": "fix unconfirmed"}


def test_two_recurrences_of_one_bug_belong_to_one_fault() -> None:
    faults = Faults([
        session(A, bugs=[bug("x")]),
        session(B, bugs=[bug("y", X)]),
        session(C, bugs=[bug("z", X)]),
    ])  # fmt: skip
    assert [one.bug.id for one in faults.meetings((B, "y"))] == ["x", "y", "z"]
    assert [one.bug.id for one in faults.again((B, "y"))] == ["z"]
    assert not faults.again((C, "z"))


def test_the_fixes_of_a_bug_name_it_or_mended_its_fault() -> None:
    first = session(A, bugs=[bug("x")], fixes=[fix("#bugs.x")])
    again = session(B, bugs=[bug("y", X)], fixes=[fix("#bugs.y")])
    faults = Faults([first, again])
    assert fixers(faults, (A, "x")) == [A, B]
    assert fixers(faults, (B, "y")) == [B]
    # A session that names both has one fix of each.
    both = session(B, bugs=[bug("y", X)], fixes=[fix("#bugs.y"), fix(X)])
    faults = Faults([session(A, bugs=[bug("x")]), both])
    assert fixers(faults, (A, "x")) == fixers(faults, (B, "y")) == [B]
    # What mended nothing is told at the meeting that it names.
    faults = Faults([first, session(B, bugs=[bug("y", X)])])
    assert (fixers(faults, (A, "x")), fixers(faults, (B, "y"))) == ([A], [])


def test_a_fix_comes_after_the_bug_that_it_names_wherever_its_session_stands() -> None:
    """Lines of work stand one after another."""
    early = session(A, fixes=[fix(f"{C}#bugs.z")])
    met = session(C, bugs=[bug("z")])
    assert became(early, met) == {"z": "fixed"}
    between = session(B, bugs=[bug("y", Z)])
    assert became(early, met, between) == {"z": "met again", "y": "open"}
    failed = session(B, bugs=[bug("y")], fixes=[fix("#bugs.y", confirmed=False)])
    again = session(C, bugs=[bug("z", Y)])
    assert became(early, failed, again) == {"y": "fixed", "z": "fixed"}


def test_each_bug_of_a_circle_is_a_fault_of_its_own() -> None:
    met = [
        session(A, bugs=[bug("x", Y)]),
        session(B, bugs=[bug("y", X)]),
        session(C, bugs=[bug("z", "#bugs.z")], fixes=[fix(X)]),
    ]
    faults = Faults(met)
    assert [len(faults.meetings(key)) for key in faults.bugs] == [1, 1, 1]
    assert became(*met) == {"x": "fixed", "y": "open", "z": "open"}


def test_a_recurrence_of_an_unrecorded_bug_counts_as_its_first_occurrence() -> None:
    met = session(B, bugs=[bug("y", X)])
    assert became(met, session(C, fixes=[fix(X)])) == {"y": "open"}
    assert became(met, session(C, fixes=[fix(Y)])) == {"y": "fixed"}
