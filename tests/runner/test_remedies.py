"""The right remedy for real messages, and none for other texts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kbtool.runner import remedies
from kbtool.runner.resemble import Words, stem_of
from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import explained  # noqa: E402


@pytest.fixture(scope="module")
def base() -> KnowledgeBase:
    return KnowledgeBase(ROOT)


def test_messages_that_the_catalogue_was_developed_on_lead_to_the_right_remedy(base):
    found = list(explained.answers(base, "develop"))
    assert len(found) >= 50
    wrong = [answer.message.source for answer in found if not answer.is_right]
    assert len(wrong) <= len(found) / 10, wrong
    assert not [answer for answer in found if answer.is_for_another_card]


def test_the_right_answers_are_symptoms_that_exist(base):
    names = {f"{tool.id}/{one.id}" for tool in base.catalogue.values() for one in tool.symptoms}
    for entry in base.patterns.values():
        names |= {f"{entry.record.id}/{one.id}" for one in entry.record.symptoms}
    for half in ("develop", "measure"):
        right = {name for message in explained.messages(half) for name in message.right}
        assert right <= names | {explained.NONE}


def test_the_halves_share_no_message():
    halves = [explained.messages(half) for half in ("develop", "measure")]
    sources = [{message.source for message in half} for half in halves]
    texts = [{message.text for message in half} for half in halves]
    assert not sources[0] & sources[1]
    assert not texts[0] & texts[1]


@pytest.mark.parametrize("text", explained.unrelated(), ids=lambda text: text[:20])
def test_a_text_about_something_else_gets_nothing(base, text):
    assert [fit.name for fit in explained.explain(base, [text.encode()]).fits] == []


def test_the_words_of_a_knowledge_base_are_read_once(monkeypatch):
    made = []
    monkeypatch.setattr(remedies, "Words", lambda records: made.append(1) or Words(records))
    one, other = KnowledgeBase(ROOT), KnowledgeBase(ROOT)
    first = remedies.search(one, "slow build").hits
    assert remedies.search(one, "slow build").hits == first
    assert len(made) == 1
    assert remedies.search(other, "slow build").hits == first
    assert len(made) == 2


def test_a_word_counts_as_often_as_it_stands_there():
    found = Words([("a", [("tile tile", 1)]), ("b", [("tile other", 1)])]).find("tiles")
    assert [one.item for one in found] == ["a", "b"]


def test_words_are_found_by_stem_and_synonym_and_rare_ones_count_more():
    records = Words(
        [
            ("build", [("the build takes long", 1)]),
            ("race", [("a race in shared memory", 1)]),
            ("memory", [("memory of the card", 1), ("memory", 1)]),
        ]
    )
    assert [hit.item for hit in records.find("compiling slowly")] == ["build"]
    assert [hit.item for hit in records.find("race memory")] == ["race", "memory"]
    assert records.find("xylophone") == []
    assert stem_of("compiles") == stem_of("compiling") == stem_of("compiled")
