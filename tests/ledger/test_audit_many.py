"""The audit of many sessions says what that of few does, whatever was kept before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from knowledge import RUN, Knowledge, sealed

from kbtool.ledger.claims import many, ties
from kbtool.ledger.claims.audit import audit
from kbtool.ledger.claims.many import audit_for
from kbtool.ledger.claims.report import GRADES, answer_of
from kbtool.store.tree import KnowledgeBase

OWN = """\
started: 2025-01-{day:02}T09:00Z
ended: 2025-01-{day:02}T10:00Z
repository: {{commit: "{day:07x}"}}
costs:
- {{kind: gpu, amount: 1.50, basis: claimed}}
- {{kind: ai, amount: 0.25, basis: claimed}}
bugs:
- {{id: nan, title: NaN, symptom: NaN, status: fixed}}
fixes:
- {{bug: "#bugs.nan", change: a bound, commit: "{day:07x}", confirmed: true}}
"""
CLAIM = '- {{id: {id}, says: in all, stated: {stated}, how: {how}, of: ["{of}"]}}\n'
TOTAL = CLAIM.format(id="total", stated="1.75 USD", how="sum", of="#costs")
FIRST, LAST = "2025-01-01-s", "2025-01-06-s"


def own(day: int, more: str = "", claims: str = TOTAL) -> str:
    follows = f"follows: 2025-01-{day - 1:02}-s\n" if day > 1 else ""
    return f"{follows}{OWN.format(day=day)}claims:\n{claims}{more}"


@pytest.fixture
def base(base: Knowledge, monkeypatch: pytest.MonkeyPatch) -> Knowledge:
    """A knowledge base that is audited as one of many sessions; its files have settled."""
    monkeypatch.setattr(many, "MANY", 2)
    monkeypatch.setattr("kbtool.store.cache.SETTLED_NS", -10_000_000_000)
    for day in range(1, 7):
        base.session(f"2025-01-{day:02}-s", own(day), label=f"N{day}")
    base.pattern("P01")
    return base


def told(root: Path, **how: Any) -> dict[str, Any]:
    """The answer of an audit that may use what was kept; it is that of one that keeps nothing."""
    answer = audit_for(KnowledgeBase(root), **how).as_json()
    plain = answer_of(audit(KnowledgeBase(root))).as_json()
    if not how:
        assert json.dumps(answer) == json.dumps(plain)
    return answer


def test_sessions_without_links_are_audited_by_themselves(base, monkeypatch):
    first = told(base.root)
    assert first["left_out"] == [] and first["counts"]["inconsistent"] == 0
    assert {f["claim"] for f in first["findings"]} == {"started", "id", "bugs.nan.status", "total"}
    assert {f["claim"] for f in first["undetermined"]} == {"fixes.0.commit"}
    monkeypatch.setattr(many, "_alone", None)  # all is kept
    assert told(base.root) == first


def changed(base: Knowledge, change: str) -> None:
    """Write down something that changes what the audit says of another record."""
    if change == "pattern":
        wrong = CLAIM.format(id="a", stated="2 USD", how="same", of=f"{FIRST}#claims.total")
        base.pattern("P01", f"claims:\n{wrong}")
    elif change == "run":
        base.write(f"sessions/{FIRST}/runs/{RUN['id']}.json", sealed(RUN))
        of = f"{RUN['id']}#steps.look.expected_seconds"
        wrong = CLAIM.format(id="t", stated="9 s", how="same", of=of)
        base.session(LAST, own(6, claims=TOTAL + wrong))
    elif change == "claim":
        wrong = CLAIM.format(id="a", stated="2 USD", how="same", of=f"{FIRST}#claims.total")
        base.session(LAST, own(6, claims=TOTAL + wrong))
    elif change == "fix":
        text = own(6).replace("#bugs.nan", f"{FIRST}#bugs.nan").replace("true}", "false}")
        base.session(LAST, text)
    elif change == "recurrence":
        again = f'status: open, recurrence_of: "{FIRST}#bugs.nan"}}'
        base.session(LAST, own(6).replace("status: fixed}", again))
    elif change == "escape":
        again = f'status: open, recurrence_of: "{FIRST}\\x23bugs.nan"}}'
        base.session(LAST, own(6).replace("status: fixed}", again))
    elif change == "rests_on":
        base.session(FIRST, own(1).replace("1.75", "1.85"))
        rests = f'outcome: done\nrests_on: {{outcome: ["{FIRST}#claims.total"]}}\n'
        base.session(LAST, own(6, rests))
    elif change == "end":
        base.session(
            "2025-01-05-s", own(5).replace("T10:00Z", "T10:00Z\nupdated: 2025-01-04T09:00Z")
        )
        base.session("2025-01-03-s", own(3).replace("ended: 2025-01-03", "ended: 2025-01-08"))
    elif change == "acknowledged":
        base.session(LAST, own(6, "acknowledged: {claims.total: a slip, started: a slip}\n"))
    elif change == "unsound":
        base.session(LAST, own(6, "grade: [a]\n"))
    else:
        assert change == "gone"
        (base.root / "sessions" / "2025-01-05-s" / "session.yaml").unlink()


@pytest.mark.parametrize(
    "change",
    ["pattern", "run", "claim", "fix", "recurrence", "escape", "rests_on", "end", "acknowledged",
     "unsound", "gone"],
)  # fmt: skip
def test_a_change_of_one_record_changes_what_is_said_of_others(base, change):
    before = told(base.root)
    changed(base, change)
    after = told(base.root)
    assert after["counts"] != before["counts"] or after["left_out"]
    assert told(base.root) == after


def test_commits_are_looked_up_in_every_audit(base, monkeypatch):
    told(base.root)
    known = {f"{day:07x}": True for day in (1, 2)}
    monkeypatch.setattr(ties, "commits_known", lambda _, commits: dict.fromkeys(commits) | known)
    grades = {
        f["record"]: f["grade"] for f in told(base.root)["findings"] if "commit" in f["claim"]
    }
    assert grades == {FIRST: "consistent", "2025-01-02-s": "consistent"}
    text = own(2).replace(
        'change: a bound, commit: "0000002"', 'change: a bound, commit: "0000003"'
    )
    base.session("2025-01-02-s", text)
    assert told(base.root)["counts"]["inconsistent"] == 1


def test_chosen_sessions_and_grades(base):
    changed(base, "claim")
    every = told(base.root)
    some = told(base.root, select=lambda ordered: [one.id for one in ordered[2:]])
    assert some["findings"] == [f for f in every["findings"] if f["record"] > "2025-01-03"]
    for grade in GRADES:
        listed = told(base.root, grades=(grade,))
        kept = [f for f in every["findings"] + every["undetermined"] if f["grade"] == grade]
        assert listed["findings"] + listed["undetermined"] == kept
        assert listed["counts"] == every["counts"]
