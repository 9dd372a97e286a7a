"""``kbtool session`` from outside: a sitting from its plan to its end."""

from __future__ import annotations

import json

import pytest
from knowledge import LOOK, RUN, sealed


def test_a_whole_sitting(base, kbtool):
    def session(*arguments):
        done = kbtool("session", *arguments, root=base.root)
        assert done.code == 0, done.err
        return done

    made = json.loads(session("new", "Fix the NaN", "--label", "N+8", "--json").out)
    id_ = made["id"]
    assert made["record"]["status"] == "running"
    assert session("note", "the tail").out.endswith(" the tail\n")
    session("cost", "gpu", "0.40", "--basis", "billed", "--duration", "2 h")
    session("cost", "engineer", "20.00", "--basis", "estimated", "--currency", "eur")
    session("pause")
    session("resume")
    assert f"{id_} is complete" in session("close", "--outcome", "fixed").out
    assert kbtool("check", root=base.root).code == 0
    shown = json.loads(session("show", "N+8", "--json").out)
    assert shown["session"]["outcome"] == "fixed"
    assert [line["amount"] for line in shown["session"]["costs"]] == ["0.40", "20.00"]
    assert len(shown["session"]["stretches"]) == 2
    text = session("show", id_[:12]).out
    for part in ("N+8: Fix the NaN", "complete", "gpu 0.40 USD (billed)", "20.00 EUR"):
        assert part in text


def test_a_plan_is_started_later(base, kbtool):
    kbtool("session", "new", "Later", "--planned", root=base.root)
    assert kbtool("session", "close", "later", root=base.root).code == 2
    assert kbtool("session", "start", "later", root=base.root).code == 0
    listed = json.loads(kbtool("session", "list", "--json", root=base.root).out)
    assert [s["status"] for s in listed["sessions"]] == ["running"]
    assert kbtool("check", root=base.root).code == 0


def test_new_prints_the_path_alone_on_stdout(base, kbtool):
    done = kbtool("session", "new", "A title", "--budget-time", "2 h", root=base.root)
    assert (base.root / done.out.strip()).is_file()


@pytest.mark.parametrize(
    "arguments",
    [
        ["new"],
        ["new", " "],
        ["new", "T", "--budget-time", "soon"],
        ["new", "T at 10.0.0.1"],
        ["show", "none"],
        ["show"],
        ["pause"],
        ["resume"],
        ["close"],
        ["note", "text"],
        ["note", "text", "--session", "none"],
        ["note", "ssh 10.0.0.1", "--session", "A"],
        ["note", "", "--session", "A"],
        ["cost", "gpu", "0.4", "--session", "A"],
        ["cost", "gpu", "much", "--basis", "billed", "--session", "A"],
        ["cost", "gpu", "nan", "--basis", "billed", "--session", "A"],
        ["cost", "rent", "1", "--basis", "billed", "--session", "A"],
        ["cost", "gpu", "1", "--basis", "billed", "--currency", "dollars", "--session", "A"],
        ["cost", "gpu", "1", "--basis", "billed", "--rate", "cheap", "--session", "A"],
        ["close", "A"],
        ["list", "--status", "asleep"],
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(base, kbtool, arguments):
    path = base.session()
    before = path.read_bytes()
    done = kbtool("session", *arguments, root=base.root)
    assert (done.code, done.out) == (2, ""), done
    assert done.err
    assert path.read_bytes() == before
    assert [entry.name for entry in (base.root / "sessions").iterdir()] == ["2025-01-01-a"]
    assert not path.with_name("notes.md").exists()


def test_two_running_sessions_need_a_name(base, kbtool):
    for title in ("One", "Two"):
        kbtool("session", "new", title, root=base.root)
    done = kbtool("session", "note", "x", root=base.root)
    assert done.code == 2
    assert "more than one session is running" in done.err
    assert kbtool("session", "note", "x", "--session", "one", root=base.root).code == 0


def test_an_unsound_record_is_refused_with_its_findings(base, kbtool):
    path = base.session(more="nonsense: 1\n")
    before = path.read_bytes()
    done = kbtool("session", "close", "2025-01-01-a", root=base.root)
    assert (done.code, done.out) == (1, "")
    assert "session.yaml:7: schema: nonsense" in done.err
    assert path.read_bytes() == before


def test_runs_are_shown_with_their_figures(base, kbtool):
    base.pattern(more=LOOK)
    base.session()
    failed = {**RUN["steps"][0], "status": "failed", "message": "no card"}
    run = {**RUN, "status": "failed", "steps": [failed]}
    base.write(f"sessions/2025-01-01-a/runs/{RUN['id']}.json", sealed(run))
    text = kbtool("session", "show", "A", root=base.root).out
    assert "2025-01-01 09:00  look  failed  look: no card" in text
    answer = json.loads(kbtool("session", "show", "A", "--json", root=base.root).out)
    assert answer["runs"][0]["recipe"] == "look"


def test_the_list(base, kbtool):
    assert "no sessions yet" in kbtool("session", "list", root=base.root).err
    base.session("2025-01-02-b", "follows: 2025-01-03-c\n", label="second")
    base.session("2025-01-03-c", label="first")
    rows = kbtool("session", "list", root=base.root).out.splitlines()[2:]
    assert [row.split()[1] for row in rows] == ["first", "second"]
    none = kbtool("session", "list", "--status", "running", root=base.root)
    assert (none.code, none.out) == (0, "")
