"""Many records at once: the same as one by one, cached or not, on one core or on many."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from knowledge import Knowledge

from kbtool.model.finding import Finding
from kbtool.model.session_costs import session_costs_of
from kbtool.store import derived, parsed
from kbtool.store.parsed import parse_all
from kbtool.store.pool import _shared_out
from kbtool.store.scan import File
from kbtool.store.tree import KnowledgeBase

SESSIONS = 12
BROKEN = {3: "a: [1\n", 5: "a: 1\na: 2\n", 7: "grade: [a]\n"}
"""Number of the session → what its record has too much."""

PAID = """\
follows: 2025-01-02-s
started: 2025-01-01T10:00
engineer: A
kernels: [k]
environment: {card: NVIDIA L4}
evidence: [{pattern: P02, verdict: applied, note: a}, {pattern: P01, verdict: applied, note: a}]
costs:
  - {kind: gpu, amount: 1.50, basis: billed, card: H100, duration: 90 min}
  - {kind: ai, basis: estimated, rate: 3 USD/h}
"""


@pytest.fixture
def many(base: Knowledge, monkeypatch: pytest.MonkeyPatch) -> Knowledge:
    """A knowledge base that is worth a cache and a second process; its files have settled."""
    monkeypatch.setattr(parsed, "WORTH_A_CACHE", 2)
    monkeypatch.setattr("kbtool.store.pool.WORTH_A_POOL", 2)
    for number in range(SESSIONS):
        base.session(f"2025-01-{number + 1:02}-s", BROKEN.get(number, ""))
    (base.root / "sessions" / "2025-02-01-empty").mkdir()
    monkeypatch.setattr("kbtool.store.cache.SETTLED_NS", -10_000_000_000)
    return base


def seen(root: Path) -> tuple[list[str], list[Finding]]:
    base = KnowledgeBase(root)
    return list(base.sessions), base.findings


def test_parsing_in_processes_and_from_the_cache_gives_the_same_records(many, monkeypatch):
    cold, warm = seen(many.root), seen(many.root)
    assert (many.root / ".kbtool" / "cache" / "session-records.json").is_file()
    monkeypatch.setattr(parsed, "WORTH_A_CACHE", 1000)
    assert cold == warm == seen(many.root)
    ids, findings = cold
    assert len(ids) == SESSIONS - len(BROKEN)
    assert {(one.path.split("/")[1], one.rule) for one in findings} == {
        ("2025-01-04-s", "yaml"), ("2025-01-06-s", "duplicate-key"), ("2025-01-08-s", "schema"),
        ("2025-02-01-empty", "file"),
    }  # fmt: skip


def test_session_costs_in_processes_and_from_the_cache_are_those_of_the_records(many):
    many.session("2025-01-01-s", PAID)
    base = KnowledgeBase(many.root)
    wanted = [session_costs_of(entry.record) for entry in base.sessions.values()]
    for _ in range(2):
        again = KnowledgeBase(many.root)
        assert list(again.session_costs.values()) == wanted
        assert again.findings == base.findings
    assert (many.root / ".kbtool" / "cache" / "session_costs.json").is_file()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The days of the files that are read, in this process."""
    days: list[str] = []
    real = derived.read_stamped

    def reading(root: str, path: str, limit: int):
        days.append(path[9:19])
        return real(root, path, limit)

    monkeypatch.setattr(derived, "read_stamped", reading)
    monkeypatch.setattr("kbtool.store.pool.WORTH_A_POOL", 1000)
    return days


def test_parsed_files_are_not_read_again(many, read):
    first = seen(many.root)
    assert len(read) == SESSIONS + 1
    read.clear()
    assert seen(many.root) == first
    assert read == ["2025-02-01"]


def test_a_change_is_seen_and_the_rest_is_not_read_again(many, read):
    seen(many.root)
    read.clear()
    many.session("2025-01-02-s", "outcome: another\n")
    assert KnowledgeBase(many.root).sessions["2025-01-02-s"].record.outcome == "another"
    assert read == ["2025-01-02", "2025-02-01"]


def test_a_corrected_record_has_no_finding(many):
    before = seen(many.root)[1]
    many.session("2025-01-04-s")
    assert len(seen(many.root)[1]) == len(before) - 1


def test_a_file_that_has_just_been_written_is_not_taken_up(many, monkeypatch):
    monkeypatch.setattr("kbtool.store.cache.SETTLED_NS", 2_000_000_000)
    old = time.time() - 60
    for path in many.root.glob("sessions/*/session.yaml"):
        os.utime(path, (old, old))  # the change time is new all the same
    seen(many.root)
    assert not (many.root / ".kbtool").exists()


def test_a_finding_in_a_cached_record_has_its_line(many):
    for _ in range(2):
        finding = next(one for one in seen(many.root)[1] if one.rule == "schema")
        text = (many.root / finding.path).read_text().splitlines()
        assert text[finding.line - 1] == "grade: [a]"


def test_few_files_write_no_cache(base, monkeypatch):
    monkeypatch.setattr("kbtool.store.cache.SETTLED_NS", -10_000_000_000)
    base.session()
    assert seen(base.root)[0] == ["2025-01-01-a"]
    assert not (base.root / ".kbtool").exists()


def test_documents_come_in_the_order_asked_for(many):
    paths = [f"sessions/2025-01-{number:02}-s/session.yaml" for number in (9, 1, 3, 2)]
    assert [document.path for document in parse_all(many.root, paths, "session")] == paths


def test_the_parts_of_a_pool_hold_each_file_once_and_are_about_equal():
    sizes = [900, 400, 300, 200, 100, 1, 0, 0]
    files = [File(str(n), "text", (0, 0, size, 0)) for n, size in enumerate(sizes)]
    parts = _shared_out(files, 2)
    assert sorted(file for part in parts for file in part) == files
    assert sorted(sum(file.stamp[2] for file in part) for part in parts) == [901, 1000]
    assert _shared_out(files[:1], 4) == [files[:1]]
