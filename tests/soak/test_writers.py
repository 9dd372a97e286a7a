"""Many processes that write to one knowledge base and read it at once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from soak.writers import READERS, WRITERS, Event, faults, kept, written

pytestmark = pytest.mark.slow


def test_nothing_is_lost_or_read_half(tmp_path: Path):
    root = tmp_path / "base"
    events = written(root, processes=8, seconds=8, seed=20261125)
    assert {event.what for event in events} <= {*WRITERS, *READERS}
    assert sum(event.status == 0 for event in events) > 20
    found = faults(root, events)
    assert not found, kept(root, events, found)


def event(what: str, name: str = "", **fields: object) -> Event:
    told = {"session": "first", "began": 1.0, "ended": 2.0, "status": 0, "told": None}
    return Event(**{"what": what, "name": name, "message": "", **told, **fields})  # type: ignore[arg-type]


def test_a_lost_fact_and_a_reader_that_tells_too_little_are_found(tmp_path: Path, monkeypatch):
    root = tmp_path / "base"
    events = [*written(root, processes=1, seconds=0, seed=1), event("note", "1x1y")]
    found = faults(root, events)
    assert found == ["note-1x1y was written and is there 0 times"]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    told, place = kept(root, events, found).splitlines()
    assert told == found[0]
    folder = Path(place.rpartition(" in ")[2])
    assert '"name": "1x1y"' in (folder / "events.jsonl").read_text()
    assert list((folder / "base" / "sessions").glob("*-first/session.yaml"))
    late = event("list", began=3.0, ended=4.0, told=5)
    events = [event("new", "1x2y", status=0), late]
    assert "list tells of 0 facts, when 1 to 1 were written" in faults(root, events)
    assert "note ends with 70: broken" in faults(root, [event("note", status=70, message="broken")])
