"""Finding a session by its id, its label, or the beginning of its id."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from knowledge import SESSION_LINE, line_of

from kbtool.model.errors import NotFoundError, RecordError
from kbtool.model.run import digest_of_record
from kbtool.store import tree
from kbtool.store.tree import KnowledgeBase

SOUND = Path(__file__).parents[2] / "soak" / "base"


@pytest.mark.parametrize("name", ["2025-01-02-b", "2025-01-02", "N+2"])
@pytest.mark.parametrize("label", ["label: N+2", 'label: "N+2"  '])
def test_a_session_that_does_not_load_is_reported_with_its_first_error(base, name, label):
    base.session("2025-01-01-a", label="N+1")
    path = base.session("2025-01-02-b", "nonsense: 1\n")
    path.write_text(path.read_text().replace("label: B", label))
    with pytest.raises(RecordError) as told:
        KnowledgeBase(base.root).session(name)
    at = f"sessions/2025-01-02-b/session.yaml:{line_of(path, 'nonsense')}: schema: nonsense: is no"
    assert f"session {name!r} does not load; correct it first:\n  {at}" in str(told.value)
    # A sound one of that name comes first, and what nobody is called is not there.
    assert KnowledgeBase(base.root).session("2025").record.label == "N+1"
    with pytest.raises(NotFoundError, match="there is no session 'N'; see"):
        KnowledgeBase(base.root).session("N")


def test_a_session_that_cannot_be_parsed_has_its_label_all_the_same(base):
    base.write("sessions/2025-01-02-b/session.yaml", "id: 2025-01-02-b\nlabel: N+2\nlist: [1\n")
    base.pattern(more="nonsense: 1\n")  # a fault of another record
    known = KnowledgeBase(base.root)
    assert not known.patterns
    with pytest.raises(RecordError, match=r"session.yaml:4: yaml: "):
        known.session("N+2")


def test_a_last_session_that_does_not_load_is_not_the_one_before_it(base):
    base.session("2025-01-02-b")
    base.write("sessions/2025-01-01-a/session.yaml", SESSION_LINE + "id: [")
    assert KnowledgeBase(base.root).session("last").record.id == "2025-01-02-b"
    base.write("sessions/2025-01-03-c/session.yaml", SESSION_LINE + "id: [")
    with pytest.raises(
        RecordError, match=r"session 'last' does not load; correct it first:\n .*-c/"
    ):
        KnowledgeBase(base.root).session("last")


def test_the_last_of_two_runs_of_one_second_is_the_one_that_began_later(base):
    base.session("2025-01-02-b")
    text = (SOUND / "sessions/2025-01-02-b/runs/20250102T090008Z-look-0008.json").read_text("utf-8")
    record = {**json.loads(text), "taken_in": None}
    for name, microseconds in (("aaaa", 900), ("bbbb", 100)):
        record["id"] = f"20250102T090008Z-look-{name}"
        record["started"] = f"2025-01-02T09:00:08.{microseconds:06}Z"
        record["digest"] = digest_of_record(record)
        base.run(json.dumps(record))
    found = KnowledgeBase(base.root).run_named("last").record
    assert found.id.endswith("-aaaa")


def test_runs_with_a_result_are_found_without_parsing_the_others(monkeypatch):
    base = KnowledgeBase(SOUND)
    runs = [entry.record for entry in base.runs]
    kinds = {run.id: {step.result.type for step in run.steps if step.result} for run in runs}
    wanted = [run.id for run in runs if run.kernel == "add" and "benchmark" in kinds[run.id]]
    parsed = []
    load = tree.load_run
    monkeypatch.setattr(tree, "load_run", lambda *at: parsed.append(at) or load(*at))
    found = KnowledgeBase(SOUND).runs_with("add", "benchmark")
    assert [entry.record.id for entry in found] == wanted
    assert len(parsed) == len(wanted) < len(runs)
    assert KnowledgeBase(SOUND).runs_with("subtract", "benchmark") == []
