"""``kbtool costs`` from outside."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from knowledge import Knowledge

REPOSITORY = Path(__file__).parents[2]

COSTS = """\
duration: {minutes} min
costs:
  - {{kind: gpu, amount: {gpu}, basis: billed}}
  - {{kind: ai, amount: {ai}, basis: claimed}}
"""


@pytest.fixture
def three(base):
    base.session("2025-01-01-a", COSTS.format(minutes=10, gpu="0.10", ai="1.00"), label="N")
    base.session(
        "2025-02-01-b",
        "follows: 2025-01-01-a\n" + COSTS.format(minutes=20, gpu="0.20", ai="2.00"),
        label="N+1",
    )
    base.session("undated-c", "follows: 2025-02-01-b\n", label="N+2")
    return base


def test_a_table_with_a_total_and_what_it_leaves_out(three, kbtool):
    done = kbtool("costs", root=three.root)
    assert done.code == 0
    header, _, first, second, third, _, total = (line.split() for line in done.out.splitlines())
    assert header == ["session", "minutes", "gpu", "ai", "engineer", "total", "USD"]
    assert first == ["N", "10", "0.10", "1.00", "–", "1.10"]
    assert second == ["N+1", "20", "0.20", "2.00", "–", "2.20"]
    assert third == ["N+2", "–", "–", "–", "–", "–"]
    assert total == ["total", "30", "0.30", "3.00", "–", "3.30"]
    assert "minutes in 1, gpu in 1, ai in 1, engineer in 3 of 3 sessions" in done.err


def test_json_is_one_object(three, kbtool):
    done = kbtool("costs", "--by", "month", "--json", root=three.root)
    answer = json.loads(done.out)
    assert answer["currency"] == "USD"
    assert [row["key"] for row in answer["rows"]] == ["2025-01", "2025-02", "undated"]
    assert {"key", "label", "minutes", "gpu", "ai", "engineer", "total"} <= set(answer["rows"][0])
    assert answer["rows"][0]["gpu"] == "0.10"
    assert answer["rows"][2]["gpu"] is None
    assert answer["total"]["total"] == "3.30"
    assert answer["total"]["minutes"] == 30


def test_csv(three, kbtool):
    rows = list(csv.DictReader(io.StringIO(kbtool("costs", "--csv", root=three.root).out)))
    assert [row["label"] for row in rows] == ["N", "N+1", "N+2"]
    assert (rows[0]["total"], rows[2]["total"], rows[0]["currency"]) == ("1.10", "", "USD")


@pytest.mark.parametrize(
    ("arguments", "labels"),
    [
        (["--session", "N..N+1"], ["N", "N+1"]),
        (["--session", "N+2", "--session", "2025-01-01-a"], ["N", "N+2"]),
        (["--session", "N+1..undated-c"], ["N+1", "N+2"]),
        (["--session", "N+1.."], ["N+1", "N+2"]),
        (["--session", "..N+1"], ["N", "N+1"]),
        (["--since", "2025-01-02"], ["N+1"]),
        (["--until", "2025-01-01"], ["N"]),
        (["--since", "2030-01-01"], []),
    ],
)
def test_a_part_of_the_work(three, kbtool, arguments, labels):
    done = kbtool("costs", "--json", *arguments, root=three.root)
    assert done.code == 0
    assert [row["label"] for row in json.loads(done.out)["rows"]] == labels
    assert ("without a date" in done.err) == (arguments[0] in {"--since", "--until"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--session", "N+9"], r"there is no session 'N\+9'"),
        (["--session", "N+1..N"], "swap them"),
        (["--session", ""], "names no session; write ID, LABEL, A..B"),
        (["--session", ".."], "names no session; write ID, LABEL, A..B"),
        (["--session", "N+9.."], r"there is no session 'N\+9'"),
        (["--since", "yesterday"], "write YYYY-MM-DD"),
        (["--until", "20250101"], "write YYYY-MM-DD"),
        (["--by", "week"], "week"),
        (["--currency", "EUR"], "nothing was paid in EUR"),
        (["--json", "--csv"], "take one"),
    ],
)
def test_what_is_wrong_is_said_and_the_status_is_2(three, kbtool, arguments, said):
    done = kbtool("costs", *arguments, root=three.root)
    assert (done.code, done.out) == (2, "")
    assert re.search(said, done.err), done.err


def test_an_empty_knowledge_base_says_so(base, kbtool):
    done = kbtool("costs", root=base.root)
    assert (done.code, done.out) == (0, "")
    assert "there are no sessions yet" in done.err
    answer = json.loads(kbtool("costs", "--json", root=base.root).out)
    assert (answer["rows"], answer["total"]["total"]) == ([], None)


def test_a_record_that_does_not_load_is_told(three, kbtool):
    three.session("2025-03-01-d", "nonsense: 1\n")
    done = kbtool("costs", "--json", root=three.root)
    assert done.code == 0
    assert json.loads(done.out)["left_out"] == ["sessions/2025-03-01-d/session.yaml"]
    assert "left out" in done.err


def test_a_label_that_two_sessions_have_is_refused(three, kbtool):
    three.session("2025-03-01-d", label="N")
    done = kbtool("costs", "--session", "N", root=three.root)
    assert done.code == 2
    assert "2025-01-01-a, 2025-03-01-d" in done.err


def test_the_figures_of_the_logs(kbtool):
    done = kbtool("costs", "--session", "N..N+7A", "--json", root=REPOSITORY)
    total = json.loads(done.out)["total"]
    assert (total["minutes"], total["gpu"], total["ai"], total["total"]) == (
        734, "2.44", "10.06", "12.50",
    )  # fmt: skip


def test_the_logs_come_before_what_is_done_later(kbtool, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(REPOSITORY / "sessions", root / "sessions")
    base = Knowledge(root)
    base.session("2026-01-05-later", label="later")
    done = kbtool("costs", "--session", "N..N+7A", "--json", root=root)
    assert json.loads(done.out)["total"]["minutes"] == 734
    labels = [row["label"] for row in json.loads(kbtool("costs", "--json", root=root).out)["rows"]]
    assert labels.index("N") < labels.index("N+7G") < labels.index("later")
