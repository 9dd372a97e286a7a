"""``kbtool patterns`` from outside."""

from __future__ import annotations

import csv
import io
import json

import pytest
from knowledge import LOOK, RUN, line_of, sealed, validated


@pytest.fixture
def known(base):
    base.pattern("P01", LOOK)
    base.pattern("P02", "supersedes:\n  - {pattern: P03, since: 2025-01-01-a}\n")
    base.pattern("P03")
    base.session(
        more="""\
duration: 30 min
costs: [{kind: gpu, amount: 3.00, basis: billed}]
steps:
  - {id: build, title: Build, target: 10 min, actual: 4 min, status: done, pattern: P02}
  - {id: test, title: Test, target: 1 min, status: done, pattern: P02}
evidence:
  - {pattern: P02, verdict: proved, note: It paid., saved: 5..10 min, money: 2 USD}
  - {pattern: P03, verdict: contradicted, note: It did not., lost: 9 min}
"""
    )
    base.write("sessions/2025-01-01-a/runs/20250101T090000Z-look.json", sealed(RUN))
    return base


def test_the_table_lists_the_best_standing_first(known, kbtool):
    done = kbtool("patterns", root=known.root)
    assert done.code == 0
    assert done.err == ""
    lines = [line.split() for line in done.out.splitlines()]
    assert [line[1] for line in lines[2:]] == ["P02", "P01", "P03"]
    assert lines[2][2:] == [
        "proved", "1", "–", "–", "–", "5–10", "–", "2", "USD", "–", "6", "–", "–", "A", "lesson"
    ]  # fmt: skip
    assert lines[4][2:5] == ["superseded", "–", "–"]


def test_one_pattern_is_shown_with_the_lines_of_its_evidence(known, kbtool):
    done = kbtool("patterns", "p02", root=known.root)
    path = known.root / "sessions/2025-01-01-a/session.yaml"
    shown = "sessions/2025-01-01-a/session.yaml"
    assert done.code == 0
    assert "supersedes P03 since 2025-01-01-a" in done.out
    assert f"{shown}:{line_of(path, 'It paid.')}: A proved" in done.out
    line = line_of(path, "id: build")
    assert f"{shown}:{line}: step build: planned 10 min, took 4 min: 6 min saved" in done.out
    line = line_of(path, "id: test")
    assert f"{shown}:{line}: step test: planned 1 min, took –: not counted" in done.out
    assert (
        "by step times: 6 min saved (1 of 2 steps counted), money 0.60 USD without ai and engineer"
        in done.out
    )
    done = kbtool("patterns", "P01", root=known.root)
    assert "sessions/2025-01-01-a/runs/20250101T090000Z-look.json:1: step look" in done.out


def test_json_is_one_object(known, kbtool):
    answer = json.loads(kbtool("patterns", "--json", root=known.root).out)
    best = answer["patterns"][0]
    assert (best["rank"], best["id"], best["standing"]) == (1, "P02", "proved")
    assert best["verdicts"]["proved"] == 1
    assert best["claimed"]["saved_minutes"] == {"low": "5", "high": "10", "about": False}
    assert best["claimed"]["lost_minutes"] is None
    assert best["claimed"]["money"]["USD"]["low"] == "2"
    assert best["step_times"] == {
        "saved_minutes": 6, "of_sessions": 6, "of_runs": None, "money": {"USD": "0.60"},
        "money_lacks": ["ai", "engineer"], "counted": 1, "left_out": 1,
    }  # fmt: skip
    one = json.loads(kbtool("patterns", "P03", "--json", root=known.root).out)["patterns"]
    assert [pattern["rank"] for pattern in one] == [3]
    assert one[0]["superseded_by"] == ["P02"]
    assert one[0]["evidence"][0]["lost"] == "9 min"
    assert one[0]["evidence"][0]["line"] == line_of(
        known.root / "sessions/2025-01-01-a/session.yaml", "It did not."
    )


def test_a_record_that_does_not_load_is_reported(known, kbtool):
    known.session("2025-03-01-d", "nonsense: 1\n")
    done = kbtool("patterns", "--json", root=known.root)
    assert done.code == 1
    assert json.loads(done.out)["left_out"] == ["sessions/2025-03-01-d/session.yaml"]


def test_csv_has_a_row_for_each_pattern(known, kbtool):
    rows = list(csv.DictReader(io.StringIO(kbtool("patterns", "--csv", root=known.root).out)))
    assert [row["id"] for row in rows] == ["P02", "P01", "P03"]
    assert rows[0]["claimed_saved_minutes"] == "5–10"
    assert rows[0]["claimed_money"] == "2 USD"
    assert rows[0]["step_times_saved_minutes"] == "6"
    assert rows[0]["step_times_money"] == "0.60 USD"
    assert rows[1]["claimed_saved_minutes"] == rows[1]["step_times_saved_minutes"] == ""
    assert rows[2]["claimed_lost_minutes"] == "9"


def test_a_title_is_no_formula_in_a_spreadsheet(known, kbtool):
    path = next((known.root / "patterns").glob("P01*"))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join('title: "=1+1"\n' if one[:7] == "title: " else one for one in lines))
    rows = list(csv.DictReader(io.StringIO(kbtool("patterns", "--csv", root=known.root).out)))
    assert {row["id"]: row["title"] for row in rows}["P01"] == "'=1+1"


def test_an_unknown_pattern_and_two_formats_exit_2(known, kbtool):
    done = kbtool("patterns", "P77", root=known.root)
    assert done.code == 2
    assert "there is no pattern 'P77'; there is P01, P02, P03" in done.err
    assert kbtool("patterns", "--json", "--csv", root=known.root).code == 2


def test_without_patterns_the_output_is_empty(base, kbtool):
    done = kbtool("patterns", root=base.root)
    assert (done.code, done.out) == (0, "")
    assert "no patterns yet" in done.err
    assert json.loads(kbtool("patterns", "--json", root=base.root).out)["patterns"] == []


def test_a_proof_that_its_step_does_not_bear_out_counts_as_applied(base, kbtool):
    base.pattern("P01", LOOK)
    run = base.run(validated(0, passed=False))
    proof = f"pattern: P01, verdict: proved, note: N, shown_by: ['{run}#steps.check']"
    for where, verdict in (("", "applied"), (", where: {status: failed}", "proved")):
        base.session(more=f"evidence: [{{{proof}{where}}}]\n")
        told = json.loads(kbtool("patterns", "P01", "--json", root=base.root).out)
        (pattern,) = told["patterns"]
        (edge,) = pattern["evidence"]
        assert pattern["standing"] == edge["verdict"] == verdict
        assert (edge["unproved"] is None) == (verdict == "proved")
        text = kbtool("patterns", "P01", root=base.root).out
        assert f": A {verdict}: N" in text
        said = f"  stated as proved, but the audit finds it inconsistent: {run}#steps.check"
        assert (said in text) == (verdict == "applied")


def test_one_pattern_is_shown_with_its_text_its_places_and_its_lessons(base, kbtool):
    base.session(more="lessons: [Look first., Wait less.]\n")
    base.kernel()
    base.write("kernels/add/add.cpp", "int a;\nint b;\n")
    base.write("bench.py", "a\nb\n")
    base.pattern(
        more="""\
signs: [The card idles.]
code: |-
  look();
  wait();
lessons: [{session: 2025-01-01-a, text: Wait}]
places:
  - {kernel: add, file: add.cpp, text: int b;}
  - {file: bench.py, text: b}
"""
    )
    base.pattern("P02", "no_places: It was taken out.\n")
    line = line_of(base.root / "sessions/2025-01-01-a/session.yaml", "Wait less.")
    told = kbtool("patterns", "P01", root=base.root).out
    for expected in (
        "record: patterns/P01.yaml\nproblem: Something goes wrong.\nsolution: Do otherwise.\n",
        "when to use: always\nwhen not: never\nsign: The card idles.\n",
        "\ncode:\n  look();\n  wait();\n",
        "kernels/add/add.cpp:2: stands here\nbench.py:2: stands here\n",
        f"sessions/2025-01-01-a/session.yaml:{line}: taught by the lesson: Wait less.\n",
    ):
        assert expected in told
    (one,) = json.loads(kbtool("patterns", "P01", "--json", root=base.root).out)["patterns"]
    assert (one["path"], one["record"]["solution"]) == ("patterns/P01.yaml", "Do otherwise.")
    assert one["places"][1] == {"path": "bench.py", "commit": None, "line": 2, "text": "b"}
    assert [(lesson["lesson"], lesson["line"]) for lesson in one["lessons"]] == [
        ("Wait less.", line)
    ]
    assert "in no source: It was taken out.\n" in kbtool("patterns", "P02", root=base.root).out
