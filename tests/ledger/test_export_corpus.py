"""The corpus: every line keeps its schema, the same records give the same bytes, nothing leaks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
from costed import session
from hypothesis import given
from hypothesis import strategies as st
from knowledge import LOOK, RUN, Knowledge, sealed

from kbtool.ledger.export.corpus import corpus, without_paths
from kbtool.model.errors import RecordError
from kbtool.model.json_schema import json_schema
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]
ROOT = "/home/joe/kb"


def export(root: Path) -> bytes:
    base = KnowledgeBase(root)
    return corpus(base, [entry.record for entry in base.sessions.values()]).data


def lines(data: bytes) -> list[dict]:
    return [json.loads(text) for text in data.decode().split("\n")[:-1]]


@pytest.fixture(scope="module")
def real() -> bytes:
    return export(REPOSITORY)


@pytest.mark.slow
def test_every_line_of_this_repository_keeps_the_schema(real):
    schema = json_schema("corpus")
    stored = json.loads((REPOSITORY / "schemas" / "corpus.json").read_text())
    assert stored == schema
    validator = jsonschema.Draft202012Validator(schema)
    for line in lines(real):
        problems = [error.message[:200] for error in validator.iter_errors(line)]
        assert problems == [], (line["type"], line.get("id"))
    assert list(validator.iter_errors({**lines(real)[1], "more": 1}))
    assert list(validator.iter_errors({"type": "attempt", "id": "x"}))


def test_the_head_says_what_follows(real):
    head, *rest = lines(real)
    kinds = [line["type"] for line in rest]
    assert (head["type"], head["version"]) == ("corpus", 1)
    assert head["counts"] == {kind: kinds.count(kind) for kind in head["counts"]}
    assert min(head["counts"].values()) > 0
    places = [(list(head["counts"]).index(line["type"]), line["id"]) for line in rest]
    order = ["session", "pattern", "bug", "fix", "run", "attempt"]
    assert kinds == sorted(kinds, key=order.index)
    assert len(set(places)) == len(places)
    for kind in order:
        ids = [line["id"] for line in rest if line["type"] == kind]
        assert ids == sorted(ids)


@pytest.mark.slow
def test_the_same_records_in_another_folder_give_the_same_bytes(real, tmp_path):
    for name in ("sessions", "patterns"):
        shutil.copytree(REPOSITORY / name, tmp_path / "elsewhere" / name)
    assert export(tmp_path / "elsewhere") == real


def test_the_failed_ways_of_building_are_in_it(real):
    tried = {
        line["tried"]: line for line in lines(real)
        if line["type"] == "attempt" and line["session"] == "2025-10-12-n2"
    }  # fmt: skip
    separate = tried["Kernel and bindings can be compiled separately and linked"]
    assert separate["about"] == "2025-10-12-n2#bugs.template-instantiation"
    assert "the link failed" in separate["why"]
    builds = [
        step["build"]
        for line in lines(real) if line["type"] == "run"
        for step in line["steps"] if step["build"]
    ]  # fmt: skip
    assert any(build["flags"] and build["sources"] for build in builds)


FULL = """\
environment: {card: L4, instance: secret-host}
bugs:
  - id: nan
    title: NaN
    status: open
    error_text: "/home/joe/kb/kernels/add/add.cu:3: error, see /home/joe/.cache/x/log.txt"
    hypotheses:
      - {id: one, statement: It is the tail, verdict: rejected, note: it is not}
      - {id: two, statement: It is the head, verdict: confirmed}
fixes:
  - {bug: "#bugs.nan", change: Guess, confirmed: false, note: no change}
  - {id: real, bug: "#bugs.nan", change: Bound it, confirmed: true}
steps:
  - {id: build, title: Build it, status: failed, note: no compiler}
  - {id: look, title: Look, status: done}
evidence:
  - {pattern: P01, verdict: contradicted, note: it cost more}
"""


@pytest.fixture
def full(base: Knowledge) -> Knowledge:
    base.pattern("P01", LOOK)
    base.session("2025-01-01-a", FULL)
    base.session("2025-01-02-b", 'fixes: [{bug: "2025-01-01-a#bugs.nan", change: Later}]\n')
    return base


def of_type(data: bytes, kind: str) -> list[dict]:
    return [line for line in lines(data) if line["type"] == kind]


def test_what_was_tried_and_did_not_work(full):
    failed = {
        **RUN,
        "status": "failed",
        "steps": [{**RUN["steps"][0], "status": "failed", "error": "no card"}],
    }
    full.write("sessions/2025-01-01-a/runs/20250101T090000Z-look.json", sealed(failed))
    own = "2025-01-01-a#"
    attempts = {one["id"]: one for one in of_type(export(full.root), "attempt")}
    assert {id_: (one["kind"], one["about"], one["why"]) for id_, one in attempts.items()} == {
        f"{own}bugs.nan.hypotheses.one": ("hypothesis", f"{own}bugs.nan", "it is not"),
        f"{own}fixes.0": ("fix", f"{own}bugs.nan", "no change"),
        f"{own}steps.build": ("step", None, "no compiler"),
        f"{own}evidence.0": ("evidence", "P01", "it cost more"),
        "20250101T090000Z-look": ("run", "P01", "no card"),
    }
    assert attempts["20250101T090000Z-look"]["tried"] == "Recipe look, step look: Look"


def test_a_bug_is_exported_with_fixes_of_later_sessions(full):
    (bug,) = of_type(export(full.root), "bug")
    assert bug["fixes"] == [
        "2025-01-01-a#fixes.0", "2025-01-01-a#fixes.real", "2025-01-02-b#fixes.0",
    ]  # fmt: skip


def test_a_selection_has_its_sessions_and_what_is_in_them(full):
    full.write("sessions/2025-01-01-a/runs/20250101T090000Z-look.json", sealed(RUN))
    base = KnowledgeBase(full.root)
    data = corpus(base, [base.sessions["2025-01-02-b"].record]).data
    assert [line["id"] for line in lines(data)[1:]] == [
        "2025-01-02-b", "P01", "2025-01-02-b#fixes.0",
    ]  # fmt: skip
    data = corpus(base, [base.sessions["2025-01-01-a"].record]).data
    assert [run["id"] for run in of_type(data, "run")] == ["20250101T090000Z-look"]
    (bug,) = of_type(data, "bug")
    assert "2025-01-02-b#fixes.0" in bug["fixes"]


def test_neither_the_machine_nor_its_paths_are_in_it(full):
    full.write("sessions/2025-01-01-a/runs/20250101T090000Z-look.json", sealed(RUN))
    data = export(full.root)
    assert b"secret-host" not in data
    (bug,) = of_type(data, "bug")
    assert "joe" not in bug["error_text"]
    assert "add.cu:3: error, see log.txt" in bug["error_text"]


@pytest.mark.parametrize(
    ("text", "public"),
    [
        (f"{ROOT}/kernels/add.cu:3: error", "kernels/add.cu:3: error"),
        ("/home/ann/x/y.cu:12: no", "y.cu:12: no"),
        ("cd /home/ann", "cd ~"),
        ("cd /root/code; ls", "cd ~/code; ls"),
        ("-I/home/ann/include -L/data/lib/x", "-Iinclude -Lx"),
        ("-ffile-prefix-map=/scratch/ann/kb=.", "-ffile-prefix-map=kb=."),
        ("see file:///Users/ann/notes.md", "see file://~/notes.md"),
        (r"C:\Users\ann\x\y.cu(3)", "y.cu(3)"),
        ("~/secret/place/a.txt", "a.txt"),
        ("in '/mnt/ann/a b'", "in 'a b'"),
        ("/usr/include/c++/12/bits/stl.h:1", "/usr/include/c++/12/bits/stl.h:1"),
        ("/opt/cuda/bin/nvcc", "/opt/cuda/bin/nvcc"),
        ("kernels/a/b.cu", "kernels/a/b.cu"),
        ("https://example.org/a/b/c", "https://example.org/a/b/c"),
        ("FP16/BF16, 1/2, N/A, and/or, 10 GB/s", "FP16/BF16, 1/2, N/A, and/or, 10 GB/s"),
        ("a / b", "a / b"),
        ("PATH=/usr/bin:/mnt/ann/bin", "PATH=/usr/bin:bin"),
        (r"grep '\S+/\d+'", r"grep '\S+/\d+'"),
    ],
)
def test_paths_are_cut_down_to_the_name(text, public):
    assert without_paths(text, ROOT) == public


NAME = st.text("abcdefgh0123456789._-", min_size=3, max_size=8).filter(lambda s: s.strip("."))


@given(st.sampled_from(["/home", "/Users", "/mnt/disk", "/data", ""]), st.lists(NAME, min_size=2))
def test_no_folder_of_a_path_is_left(top, names):
    folders = [f"user-{name}" for name in names[:-1]]
    path = "/".join([top, *folders, names[-1]])
    public = without_paths(f"error in {path}: no", ROOT)
    assert not any(folder in public for folder in folders)


def test_a_secret_stops_the_export(base):
    base.session("2025-01-01-a", "outcome: the key is AKIAABCDEFGHIJKLMNOP\n")
    with pytest.raises(RecordError, match=r"session 2025-01-01-a .*AWS key.*nothing was exported"):
        export(base.root)


def test_a_later_attempt_of_a_run_is_a_record_of_its_own(base):
    base.pattern("P01", LOOK)
    base.session("2025-01-01-a")
    for attempt in (1, 2):
        run = {**RUN, "attempt": attempt}
        base.write(f"sessions/2025-01-01-a/runs/20250101T090000Z-look.{attempt}.json", sealed(run))
    ids = [run["id"] for run in of_type(export(base.root), "run")]
    assert ids == ["20250101T090000Z-look", "20250101T090000Z-look.2"]


def test_unknown_is_null(base):
    base.session()
    (one,) = of_type(export(base.root), "session")
    assert (one["minutes"], one["objective"], one["environment"]) == (None, None, None)
    assert session("2025-01-01-a").minutes is None
