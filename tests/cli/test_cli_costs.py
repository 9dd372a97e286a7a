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


@pytest.mark.slow
def test_a_table_with_a_total_and_what_it_leaves_out(three, kbtool):
    done = kbtool("costs", root=three.root)
    assert done.code == 0
    header, _, first, second, third, _, total = (line.split() for line in done.out.splitlines())
    assert header == ["session", "minutes", "gpu", "ai", "engineer", "total", "USD", "priced"]
    assert first == ["N", "10", "0.10", "1.00", "–", "1.10", "stated"]
    assert second == ["N+1", "20", "0.20", "2.00", "–", "2.20", "stated"]
    assert third == ["N+2", "–", "–", "–", "–", "–", "no"]
    assert total == ["total", "30", "0.30", "3.00", "–", "3.30", "2", "of", "3"]
    assert "minutes for 1 of 3 sessions, gpu for 1, ai for 1, engineer for 3" in done.err


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


def test_csv_has_a_row_for_each_session(three, kbtool):
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
def test_filters_select_sessions(three, kbtool, arguments, labels):
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
        (["--by", "year"], "'year' is no grouping; there is session, day, week"),
        (["--by", "day,day"], "names a grouping twice"),
        (["--by", "kind", "--running"], "begin with session, day, week, month"),
        (["--by", "month", "--compare", "N"], "leave --by out"),
        (["--compare", "N+9"], r"there is no session 'N\+9'"),
        (["--session", "N", "--compare", "N+1"], r"no session selected comes after N\+1"),
        (["--per", "line"], "line"),
        (["--currency", "EUR"], "nothing was paid in EUR"),
        (["--json", "--csv"], "give one"),
    ],
)
def test_invalid_arguments_exit_2(three, kbtool, arguments, said):
    done = kbtool("costs", *arguments, root=three.root)
    assert done.code == 2
    assert bool(done.out) == ("--json" in arguments)
    assert re.search(said, done.err), done.err


def test_groupings_combine(three, kbtool):
    rows = list(
        csv.DictReader(
            io.StringIO(kbtool("costs", "--by", "month,kind", "--csv", root=three.root).out)
        )
    )
    assert [(row["month"], row["kind"], row["total"]) for row in rows[:3]] == [
        ("2025-01", "gpu", "0.10"), ("2025-01", "ai", "1.00"), ("2025-01", "engineer", ""),
    ]  # fmt: skip
    done = kbtool("costs", "--by", "month,kind", root=three.root)
    apart = kbtool("costs", "--by", "month", "--by", "kind", root=three.root)
    assert apart.out == done.out  # given twice, neither is dropped
    assert done.out.splitlines()[0].split()[:3] == ["month", "kind", "minutes"]
    assert done.out.splitlines()[-1].split() == [
        "total", "–", "0.30", "3.00", "–", "3.30", "2", "of", "3",
    ]  # fmt: skip
    answer = json.loads(kbtool("costs", "--by", "month,kind", "--json", root=three.root).out)
    assert answer["by"] == ["month", "kind"]
    assert answer["rows"][0]["keys"] == {"month": "2025-01", "kind": "gpu"}


def test_the_grouping_by_engineer_is_no_second_column_of_money(three, kbtool):
    three.session("2025-03-01-d", "engineer: M. C.\n" + COSTS.format(minutes=1, gpu="0.40", ai="4"))
    done = kbtool("costs", "--by", "engineer", root=three.root)
    assert done.out.splitlines()[0].split()[:4] == ["by", "engineer", "minutes", "gpu"]
    assert [line.split("  ")[0] for line in done.out.splitlines()[2:4]] == ["M. C.", "unstated"]
    assert "attributed 4.40 USD, unattributed 3.30 USD" in done.err
    made = kbtool("costs", "--by", "engineer,month", "--csv", root=three.root).out
    first = next(csv.DictReader(io.StringIO(made)))
    assert (first["by_engineer"], first["month"]) == ("M. C.", "2025-03")
    assert (first["engineer"], first["total"]) == ("", "4.40")


def test_a_session_of_two_patterns_is_reported(three, kbtool):
    evidence = "evidence: [{pattern: P01, verdict: applied, note: n}, {pattern: P02, verdict:" \
               " applied, note: n}]\n"  # fmt: skip
    three.session("2025-03-01-d", evidence + COSTS.format(minutes=1, gpu="0.40", ai="4.00"))
    done = kbtool("costs", "--by", "pattern", root=three.root)
    assert [line.split()[0] for line in done.out.splitlines()[2:4]] == ["P01", "P02"]
    assert (
        "1 session stands in several rows, which together exceed the total by 4.40 USD" in done.err
    )
    assert "attributed 4.40 USD, unattributed 3.30 USD" in done.err
    assert done.out.splitlines()[-1].split()[-4] == "7.70"


def test_the_table_has_minutes_to_a_tenth_and_other_formats_have_all_digits(three, kbtool):
    three.session("2025-03-01-d", COSTS.format(minutes="10.733", gpu="0.40", ai="4"), label="N+3")
    options = ("costs", "--running", "--compare", "N+1")
    rows = [line.split() for line in kbtool(*options, root=three.root).out.splitlines()]
    (own,) = [row for row in rows if row[0] == "N+3"]
    assert own[1] == "10.7" and "40.7" in own and "9.3" in own
    assert rows[-1][:2] == ["total", "40.7"]
    assert [row[1] for row in rows if row[0] == "N"] == ["10"]
    exact = json.loads(kbtool(*options, "--json", root=three.root).out)
    assert exact["total"]["minutes"] == 40.733
    assert "10.733" in kbtool(*options, "--csv", root=three.root).out


def test_running_totals(three, kbtool):
    rows = json.loads(kbtool("costs", "--by", "month", "--running", "--json", root=three.root).out)[
        "rows"
    ]
    assert [row["running_total"] for row in rows] == ["1.10", "3.30", "3.30"]
    assert [row["running_minutes"] for row in rows] == [10, 30, 30]
    table = kbtool("costs", "--running", root=three.root).out.splitlines()
    assert table[3].split()[-2:] == ["30", "3.30"]


def test_a_session_against_an_earlier_one(three, kbtool):
    done = kbtool("costs", "--session", "N+1", "--compare", "N", "--json", root=three.root)
    compared = json.loads(done.out)["rows"][0]["compared"]
    assert (compared["with"], compared["kinds"]) == ("N", ["gpu", "ai"])
    assert (compared["saved"], compared["saved_percent"]) == ("-1.10", "-100.0")
    assert (compared["minutes_saved"], compared["not_compared"]) == (-10, {"engineer": "both"})
    # What comes before it is not held against it; what knows nothing says so.
    rows = json.loads(kbtool("costs", "--compare", "N", "--json", root=three.root).out)["rows"]
    assert [row["compared"] and row["compared"]["saved"] for row in rows] == [None, "-1.10", None]
    table = kbtool("costs", "--compare", "N", root=three.root).out.splitlines()
    assert table[2].split()[-1] == "–"
    assert table[3].endswith(
        "-1.10   -100.0            -10           -100.0  gpu, ai; unknown: engineer"
    )
    assert table[4].endswith("nothing; unknown: gpu, ai, engineer")
    flat = kbtool("costs", "--session", "N+1", "--compare", "N", "--csv", root=three.root).out
    (row,) = csv.DictReader(io.StringIO(flat))
    assert (row["compared_saved"], row["compared_kinds"]) == ("-1.10", "gpu ai")


def test_per_bug_shows_the_cost_of_each_fixed_bug(three, kbtool):
    bug = "bugs: [{id: x, title: t, status: fixed}]\n"
    fix = "fixes: [{bug: '#bugs.x', change: c}]\n"
    three.session("2025-03-01-d", bug + fix + COSTS.format(minutes=1, gpu="0.40", ai="4.00"))
    done = kbtool("costs", "--per", "bug", "--json", root=three.root)
    rows = json.loads(done.out)
    assert [row["bugs_fixed"] for row in rows["rows"]] == [0, 0, 0, 1]
    assert (rows["rows"][3]["per_bug"], rows["total"]["per_bug"]) == ("4.40", "7.70")
    table = kbtool("costs", "--per", "bug", "--per", "speedup", root=three.root).out.splitlines()
    assert re.search(r"1 \(1 claimed\) +≥ 7\.70 +– +–$", table[-1]), table[-1]


def test_an_empty_knowledge_base_says_so(base, kbtool):
    done = kbtool("costs", root=base.root)
    assert (done.code, done.out) == (0, "")
    assert "there are no sessions yet" in done.err
    answer = json.loads(kbtool("costs", "--json", root=base.root).out)
    assert (answer["rows"], answer["total"]["total"]) == ([], None)


def test_a_record_that_does_not_load_is_reported(three, kbtool):
    three.session("2025-03-01-d", "nonsense: 1\n")
    done = kbtool("costs", "--json", root=three.root)
    assert done.code == 1
    assert json.loads(done.out)["left_out"] == ["sessions/2025-03-01-d/session.yaml"]
    assert "left out" in done.err


def test_a_label_that_two_sessions_have_is_refused(three, kbtool):
    three.session("2025-03-01-d", label="N")
    done = kbtool("costs", "--session", "N", root=three.root)
    assert done.code == 2
    assert "2025-01-01-a, 2025-03-01-d" in done.err


def test_costs_of_n_to_n7a_are_those_of_the_logs(kbtool):
    done = kbtool("costs", "--session", "N..N+7A", "--json", root=REPOSITORY)
    total = json.loads(done.out)["total"]
    assert (total["minutes"], total["gpu"], total["ai"], total["total"]) == (
        734, "2.44", "10.06", "12.50",
    )  # fmt: skip


def test_a_later_session_does_not_change_the_range_n_to_n7a(kbtool, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(REPOSITORY / "sessions", root / "sessions")
    base = Knowledge(root)
    base.session("2026-01-05-later", label="later")
    done = kbtool("costs", "--session", "N..N+7A", "--json", root=root)
    assert json.loads(done.out)["total"]["minutes"] == 734
    labels = [row["label"] for row in json.loads(kbtool("costs", "--json", root=root).out)["rows"]]
    assert labels.index("N") < labels.index("N+7G") < labels.index("later")


def test_what_was_paid_in_another_currency_is_named_and_a_label_is_no_formula(base, kbtool):
    line = "costs: [{{kind: gpu, amount: 1, basis: billed, currency: {}}}{}]\n"
    base.session("2025-01-01-a", line.format("USD", ""), label="N")
    more = ", {kind: ai, amount: 2, basis: billed}"
    base.session(
        "2025-02-01-b", "follows: 2025-01-01-a\n" + line.format("EUR", more), label="'=1+1'"
    )
    done = kbtool("costs", "--compare", "N", "--currency", "usd", root=base.root)
    assert "nothing; unknown: ai, engineer; in another currency: gpu" in done.out
    assert (
        "gives it in USD: minutes for 2 of 2 sessions, gpu for 1, ai for 1, engineer for 2"
        in done.err
    )
    flat = kbtool("costs", "--currency", "USD", "--csv", root=base.root).out
    rows = list(csv.DictReader(io.StringIO(flat)))
    assert (rows[1]["label"], rows[1]["total"]) == ("'=1+1", "2.00")
