"""``kbtool audit`` from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from knowledge import Knowledge, line_of

REPOSITORY = Path(__file__).parents[2]

CLAIMS = """\
costs:
  - {kind: gpu, amount: 0.35, basis: claimed}
  - {kind: ai, amount: 1.00, basis: claimed}
decisions:
  - id: keep
    question: Keep the card?
    chosen: keep
    options:
      - {id: keep, title: Keep it, figures: {cost: 2.40 USD}}
      - {id: stop, title: Stop it, figures: {loss: 0.80..1.20 USD}}
claims:
  - {id: total, says: The total, stated: 1.35 USD, how: sum, of: ["#costs"]}
  - {id: items, says: The items, stated: 3, how: count, of: ["#costs"]}
  - id: pays
    says: Keeping it pays
    stated: ">0 USD"
    how: difference
    of: ["#decisions.keep.stop.loss", "#decisions.keep.keep.cost"]
  - {id: saved, says: Time saved, stated: 8 h}
"""


@pytest.fixture
def path(base: Knowledge) -> Path:
    base.session("2025-01-02-b", "follows: 2025-01-01-a\n")
    return base.session(more=CLAIMS, label="N")


def test_an_inconsistent_claim_is_shown_with_its_computation(base, path, kbtool):
    done = kbtool("audit", root=base.root)
    assert done.code == 1
    first, second = done.out.strip().split("\n\n")
    shown = "sessions/2025-01-01-a/session.yaml"
    assert first.splitlines()[:4] == [
        f"{shown}:{line_of(path, 'id: items')}: inconsistent: items",
        "  The items",
        "  stated 3; comes out 2",
        "  = count of 2 items",
    ]
    assert second.splitlines() == [
        f"{shown}:{line_of(path, 'id: pays')}: decision: pays",
        "  Keeping it pays",
        "  stated >0 USD; comes out -1.6..-1.2 USD",
        "  = 0.80..1.20 USD − 2.40 USD",
        f"      0.80..1.20 USD  {shown}:{line_of(path, 'id: stop')}",
        f"      2.40 USD  {shown}:{line_of(path, 'id: keep', 2)}",
        "  changes 2025-01-01-a#decisions.keep",
    ]
    assert done.err.strip() == (
        "audited 4 claims: 1 consistent, 2 inconsistent (1 of them changes a decision;"
        " 0 acknowledged), 1 undetermined"
    )


def test_json_keeps_the_contract(base, path, kbtool):
    done = kbtool("audit", "--json", root=base.root)
    assert done.code == 1
    answer = json.loads(done.out)
    assert {"path", "line", "record", "claim", "stated", "derived", "grade"} <= set(
        answer["findings"][0]
    )
    assert {f["claim"]: f["grade"] for f in answer["findings"]} == {
        "total": "consistent", "items": "inconsistent", "pays": "decision"
    }  # fmt: skip
    assert [f["claim"] for f in answer["undetermined"]] == ["saved"]
    assert answer["counts"] == {
        "consistent": 1, "inconsistent": 1, "decision": 1, "undetermined": 1,
        "acknowledged": 0, "unacknowledged": 2, "stale": 0,
    }  # fmt: skip
    some = json.loads(kbtool("audit", "--json", "--grade", "decision", root=base.root).out)
    assert [f["claim"] for f in some["findings"]] == ["pays"] and some["undetermined"] == []
    assert some["counts"] == answer["counts"]


def test_acknowledged_claims_exit_0(base, path, kbtool):
    path.write_text(path.read_text() + "acknowledged:\n  claims.items: a slip\n")
    assert kbtool("audit", root=base.root).code == 1
    path.write_text(path.read_text() + "  claims.pays: the log says so\n")
    done = kbtool("audit", root=base.root)
    assert done.code == 0
    assert "inconsistent, acknowledged: items" in done.out
    assert "acknowledged: a slip" in done.out
    path.write_text(path.read_text() + "  claims.total: why\n")
    done = kbtool("audit", root=base.root)
    assert done.code == 1
    stale = line_of(path, "claims.total")
    assert f":{stale}: stale: claims.total is consistent: remove the acknowledgement" in done.out


def test_grade_and_session_filters_limit_the_claims(base, path, kbtool):
    every = kbtool("audit", "--all", root=base.root).out
    assert all(word in every for word in ("consistent: total", "undetermined: saved"))
    assert "comes out nothing" in every and "nothing recorded determines it" in every
    only = kbtool("audit", "--grade", "undetermined", root=base.root)
    assert only.out.count("session.yaml:") == 1 and only.code == 1
    other = kbtool("audit", "--session", "2025-01-02-b", root=base.root)
    assert other.code == 0 and other.out == ""
    assert kbtool("audit", "--session", "N", root=base.root).code == 1
    both = kbtool("audit", "--all", "--grade", "decision", root=base.root)
    assert both.code == 2 and "give one" in both.err
    assert kbtool("audit", "--grade", "wrong", root=base.root).code == 2


def test_without_claims_the_audit_exits_0(base, kbtool):
    done = kbtool("audit", "--json", root=base.root)
    assert done.code == 0
    assert json.loads(done.out)["findings"] == []


def test_a_record_that_does_not_load_is_left_out_and_named(base, path, kbtool):
    broken = base.session("2025-01-03-c", "duration: soon\n")
    done = kbtool("audit", "--json", root=base.root)
    assert json.loads(done.out)["left_out"] == [broken.relative_to(base.root).as_posix()]
    assert "left out" in done.err


def test_an_audit_without_a_record_that_does_not_load_does_not_pass(base, kbtool):
    base.session(label="N")
    assert kbtool("audit", root=base.root).code == 0
    base.session("2025-01-03-c", "duration: soon\n")
    for options in ([], ["--session", "N"], ["--json"]):
        done = kbtool("audit", *options, root=base.root)
        assert done.code == 1
        assert "; without 1 file that does not load" in done.err


def test_a_claim_may_derive_from_a_run(base, kbtool):
    from knowledge import RUN, sealed

    run = base.write("sessions/2025-01-01-a/runs/20250101T090000Z-look.json", sealed(RUN))
    of = f"{RUN['id']}#steps.look.expected_seconds"
    base.session(
        more=f"claims:\n- {{id: t, says: t, stated: 9 s, how: same, of: ['{of}']}}\n"
        f"- {{id: u, says: u, stated: 1 s, how: same, of: ['{of}']}}\n"
    )
    done = kbtool("audit", "--json", root=base.root)
    first, second = json.loads(done.out)["findings"]
    assert (first["grade"], second["grade"]) == ("inconsistent", "consistent")
    assert first["operands"][0]["path"] == run.relative_to(base.root).as_posix()


@pytest.mark.slow
def test_the_records_of_this_repository(kbtool):
    done = kbtool("audit", "--session", "N+7A", "--json", root=REPOSITORY)
    found = {f["claim"]: f for f in json.loads(done.out)["findings"]}
    assert found["cumulative-sessions"]["stated"] == "7"
    assert found["cumulative-sessions"]["derived"] == "8"
    assert found["net-savings"]["grade"] == "decision"
