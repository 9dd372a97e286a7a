"""The audit over the records of this repository: what the logs got wrong is found, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbtool.ledger.claims.audit import audit
from kbtool.ledger.claims.report import answer_of
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_records_here_hold_or_say_why_not() -> None:
    found = audit(KnowledgeBase(REPOSITORY))
    assert answer_of(found).passed, [
        (item.record, item.where) for item in found.items
        if item.grade in {"inconsistent", "decision"} and item.acknowledged is None
    ] + [stale.message for stale in found.stale]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("record", "name", "derived"),
    [
        ("2025-10-12-n7a", "cumulative-sessions", "8"),
        ("2025-10-12-n7a", "net-savings", "-1.6..-1.2 USD"),
        ("2025-10-13-n4", "elapsed", "11 min"),
        ("2025-10-13-n4", "kernel-throughput", "1370.8 iter/s"),
        ("2025-10-13-n4", "sessions-succeeded", "3"),
        ("2025-10-12-n7d", "cumulative-duration", "779 min"),
        ("2025-10-12-n7g", "cumulative-gpu-before", "2.80 USD"),
        ("2025-10-12-n7g", "environment.architecture", "the L4, sm_89, is Ada Lovelace"),
        ("2025-10-12-n2", "target-total", "11 min"),
        ("2025-10-12-n2", "reproduces-n", "0.09 ×"),
        ("2025-10-12-n2", "restart-time", "5..10 min"),
        ("2025-10-12-n2", "no-improvement", "-10 min"),
        ("2025-10-12-n7d", "cumulative-rows", "13.40 USD"),
        ("2025-10-12-n7g", "slower-than-pytorch", "34.83 ×"),
        ("2025-10-12-n7g", "split-k-sessions", "7"),
    ],
)
def test_known_errors_of_the_logs_are_inconsistent(record: str, name: str, derived: str) -> None:
    found = audit(KnowledgeBase(REPOSITORY))
    item = next(i for i in found.items if (i.record, i.claim) == (record, name))
    assert item.grade in {"inconsistent", "decision"}
    assert found.computation(item).derived == derived


@pytest.mark.slow
@pytest.mark.parametrize(
    ("record", "name"),
    [
        ("2025-10-13-n4", "cheaper-than-n"),  # 88.6 % of rounded amounts, 88.4 % of those before
        ("2025-10-12-n7d", "target-over-best"),
        ("2025-10-12-n7d", "likelihoods"),
        ("2025-10-12-n7g", "bugs-fixed"),
        ("2025-10-12-n7g", "bugs-left"),
        ("2025-10-13-n4", "success"),
        ("2025-10-13-n4", "baseline-measured"),
        ("2025-10-12-n7g", "cumulative-engineer"),
        ("2025-10-12-n7d", "speedup-s128"),
        ("2025-10-12-n2", "average-speedup"),
        ("2025-10-12-n2", "plan-total"),
        ("2025-10-13-n4", "ten-steps"),
        ("2025-10-13-n4", "environment.card_memory"),
    ],
)
def test_correct_claims_of_the_logs_are_consistent(record: str, name: str) -> None:
    found = audit(KnowledgeBase(REPOSITORY))
    item = next(i for i in found.items if (i.record, i.claim) == (record, name))
    assert item.grade == "consistent"


def test_the_claim_that_the_partial_kernel_is_at_fault_is_inconsistent() -> None:
    found = audit(KnowledgeBase(REPOSITORY))
    item = next(i for i in found.items if i.claim == "partial-at-fault")
    assert item.grade == "inconsistent" and not item.turns
    assert "undated-n7e#bugs.bug-1" in str(item.finding)
    assert "and yet undated-n7f#bugs.bug-2" in str(item.finding)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("record", "name"),
    [
        ("2025-10-12-n7a", "fa1-s128"),
        ("2025-10-12-n7a", "fa1-s512"),
        ("2025-10-12-n7d", "cumulative-sessions"),
        ("2025-10-12-n7g", "cumulative-sessions"),
        ("2025-10-12-n7g", "h100-cost"),
        ("2025-10-12-n7g", "more-sessions-cost"),
    ],
)
def test_a_claim_that_no_log_determines_is_undetermined(record: str, name: str) -> None:
    found = audit(KnowledgeBase(REPOSITORY))
    item = next(i for i in found.items if (i.record, i.claim) == (record, name))
    assert item.grade == "undetermined"
