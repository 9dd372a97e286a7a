"""A knowledge base that is read again keeps the records of files that no longer load."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kbtool.store import tree
from kbtool.store.tree import KnowledgeBase

SOUND = Path(__file__).parents[2] / "soak" / "base"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "base"
    shutil.copytree(SOUND, root, ignore=shutil.ignore_patterns(".kbtool"))
    return root


def loaded(root: Path, before: KnowledgeBase | None = None) -> KnowledgeBase:
    base = KnowledgeBase(root, before)
    _ = base.sessions, base.patterns, base.kernels, base.runs, base.session_costs
    return base


def test_what_no_longer_loads_is_kept_again_and_again(root):
    first = loaded(root)
    assert first.findings == first.stale == []
    name, entry = next(iter(first.sessions.items()))
    run = first.runs[0]
    (root / entry.path).write_text("id: [")
    (root / run.path).write_text("{")
    kept = loaded(root, loaded(root, first))
    assert kept.sessions[name].record == entry.record
    assert kept.runs[0].record == run.record
    assert kept.session_costs == first.session_costs
    assert {one.path for one in kept.stale} == {entry.path, run.path}
    assert kept.findings == []
    assert {one.path for one in loaded(root).findings} == {entry.path, run.path}
    (root / run.path).unlink()
    assert run.path not in {one.path for one in loaded(root, kept).runs}


def test_a_run_is_read_again_only_if_its_file_has_changed(root, monkeypatch):
    read: list[str] = []
    real = tree.load_run
    monkeypatch.setattr(
        tree, "load_run", lambda path, shown: (read.append(shown), real(path, shown))[1]
    )
    first = loaded(root)
    paths = sorted({*read})
    read.clear()
    loaded(root, first)
    assert sorted({*read}) == paths, (
        "a file that has just been written may change with no new stamp"
    )
    monkeypatch.setattr(tree, "SETTLED_NS", -1 << 62)
    settled = loaded(root, first)
    read.clear()
    again = loaded(root, settled)
    assert read == [] and again.runs == settled.runs
    os.utime(root / paths[0], ns=(1, 1))
    loaded(root, again)
    assert read == [paths[0]]
