"""The page of the audit, and the grades on the pages of sessions."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest
from knowledge import Knowledge

from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import pages
from kbtool.store.tree import KnowledgeBase

CLAIMS = """\
costs:
  - {kind: gpu, amount: 0.35, basis: claimed}
outcome: It went well.
environment: {card: L4, architecture: Ampere}
rests_on: {outcome: ['#claims.cheap']}
acknowledged: {environment.architecture: "the log's <b>name</b> for it", claims.right: why}
claims:
  - {id: right, says: It cost so much, stated: 0.35 USD, how: same, of: ["#costs.gpu"]}
  - {id: cheap, says: It cost <i>nothing</i>, stated: <0.10 USD, how: same, of: ["#costs.gpu"]}
  - {id: wrong, says: It cost more, stated: 350 USD, how: same, of: ["#costs.gpu"]}
  - {id: unsaid, says: It saved time, stated: 8 h}
"""


@pytest.fixture
def base(tmp_path: Path) -> Knowledge:
    return Knowledge(tmp_path / "base")


@pytest.mark.slow
def test_findings_by_grade_with_links_to_their_places(base: Knowledge) -> None:
    base.session(more=CLAIMS, label="N")
    made = pages(Index(KnowledgeBase(base.root)))
    page = made[at.AUDIT]
    assert "<i>" not in page and "<b>" not in page
    decision, inconsistent, undetermined, rest = map(unescape, page.split("\n## ")[1:5])
    assert "sessions/2025-01-01-a.md#claims.cheap" in decision
    assert "sessions/2025-01-01-a.md#outcome" in decision and "| 0.35 USD |" in decision
    assert "claims.wrong" in inconsistent and "1,000 times as much" in inconsistent
    assert "Ada Lovelace" in inconsistent and "acknowledged: the log's" in inconsistent
    assert "claims.unsaid" in undetermined
    assert rest.startswith("By record") and "| 1 | 2 | 1 | 1 |" in rest
    assert "claims.right is consistent" in unescape(page)


def test_a_session_shows_the_grade_of_each_claim(base: Knowledge) -> None:
    base.session(more=CLAIMS, label="N")
    page = pages(Index(KnowledgeBase(base.root)))[at.session_page("2025-01-01-a")]
    rows = {
        name: next(line for line in page.splitlines() if f'id="claims.{name}"' in line)
        for name in ("right", "cheap", "wrong", "unsaid")
    }
    for name, grade in (
        ("right", "consistent"), ("cheap", "decision"), ("wrong", "inconsistent"),
        ("unsaid", "undetermined"),
    ):  # fmt: skip
        assert f">{grade}<" in rows[name]
    assert "kb-chip--good" in rows["right"] and "kb-chip--bad" in rows["wrong"]


def test_a_decision_says_that_it_rests_on_what_does_not_hold(base: Knowledge) -> None:
    base.session(
        more="""\
decisions:
  - id: keep
    question: Keep it?
    options: [{id: a, title: A, figures: {cost: 2 USD}}, {id: b, title: B, figures: {cost: 1 USD}}]
  - {id: other, question: Else?}
claims:
  - id: pays
    says: A pays
    stated: ">0 USD"
    how: difference
    of: ["#decisions.keep.b.cost", "#decisions.keep.a.cost"]
"""
    )
    page = pages(Index(KnowledgeBase(base.root)))[at.session_page("2025-01-01-a")]
    keep, other = page.split("### ")[1:3]
    assert "Rests on what does not hold: [A pays](#claims.pays)" in keep
    assert "Rests on" not in other


def test_without_claims_the_page_says_so(base: Knowledge) -> None:
    base.session()
    assert "No record makes a claim yet" in pages(Index(KnowledgeBase(base.root)))[at.AUDIT]
