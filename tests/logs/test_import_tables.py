"""``kbtool import``: the tables of a report become measurements."""

from __future__ import annotations

import pytest
from test_import_log import a_log, drafted, stated

PSQL = """\
 hidden |  old us | gain
--------+---------+------
   1024 |     6.8 | 25 %
        |    15.9 | 30 %
(2 rows)
"""
MYSQL = """\
+--------+--------+------+
| hidden | old us | gain |
+--------+--------+------+
|   1024 |    6.8 | 25 % |
+--------+--------+------+
|        |   15.9 | 30 % |
+--------+--------+------+
"""
FENCED = """\
```
| hidden | old us | gain |
|--------|-------:|------|
|   1024 |    6.8 | 25 % |
|        |   15.9 | 30 % |
```
"""


@pytest.mark.parametrize("text", [PSQL, MYSQL, FENCED])
def test_a_table_as_a_client_draws_it(base, tmp_path, text):
    session = drafted(base, a_log(tmp_path, f"# S 6\n\n## Results\n\n{text}\nThen 3 ms.\n"))
    [table] = session.measurements
    assert [column.unit for column in table.columns.values()] == ["us", "%"]
    assert [{**row.case, **{k: str(v) for k, v in row.values.items()}} for row in table.rows] == [
        {"hidden": "1024", "old-us": "6.8", "gain": "25"}, {"old-us": "15.9", "gain": "30"},
    ]  # fmt: skip
    assert list(stated(session).values()) == ["3 ms"]


def test_a_row_whose_label_has_the_unit(base, tmp_path):
    log = a_log(
        tmp_path,
        "# S 6\n\n## Results\n\n| | old | new |\n|---|---|---|\n| Latency (ms) | 3.2 | 2.9 |\n"
        "| Total tests | 12 | 1.5 |\n| Grade | 4 | 5 |\n",
    )
    assert stated(drafted(base, log)) == {
        "Latency (ms): old: 3.2 [7]": "3.2 ms",
        "Latency (ms): new: 2.9 [7]": "2.9 ms",
        "Total tests: old: 12 [8]": "12 tests",  # and not 1.5 tests
    }


def test_columns_whose_titles_are_words(base, tmp_path):
    log = a_log(
        tmp_path,
        "# S 6\n\n## Ergebnisse\n\n| n | Faktor | residual | Iterations | Runs |\n"
        "|---|---|---|---|---|\n"
        "| 16 | 4.2 | 1.2e-6 | 380112 | 0.5 |\n",
    )
    [table] = drafted(base, log).measurements
    assert {name: column.unit for name, column in table.columns.items()} == {
        "faktor": "×", "residual": "", "iterations": "iterations",
    }  # fmt: skip


def test_a_table_of_pytest_benchmark(base, tmp_path):
    rule = "-" * 50
    log = a_log(
        tmp_path,
        "# S 6\n\n---- benchmark: 2 tests ----\n"
        f"Name (time in us)      Min      Mean   Rounds\n{rule}\n"
        f"test_pack[1024]    12.40    12.90     4821\ntest_pack[4096]    88.01    89.44      902\n"
        f"{rule}\n\nIt took 3 min.\n",
    )
    session = drafted(base, log)
    [table] = session.measurements
    assert {name: column.unit for name, column in table.columns.items()} == {
        "min": "us", "mean": "us", "rounds": "rounds",
    }  # fmt: skip
    assert [[str(number) for number in row.values.values()] for row in table.rows] == [
        ["12.40", "12.90", "4821"], ["88.01", "89.44", "902"],
    ]  # fmt: skip
    assert list(stated(session).values()) == ["2 tests", "3 min"]


def test_a_table_with_a_column_of_units(base, tmp_path):
    log = a_log(
        tmp_path,
        "# S 6\n\n  ----------- ----------- ------------\n  Metric Name Metric Unit Metric Value\n"
        "  ----------- ----------- ------------\n  Duration             us        26.30\n"
        "  Throughput            %        78.40\n  Frequency           Ghz         1.59\n"
        "  Size              furlong         3\n",
    )
    assert list(stated(drafted(base, log)).values()) == ["26.30 us", "78.40 %", "1.59 GHz"]


def test_samples_with_a_sign_are_no_factor(base, tmp_path):
    log = a_log(
        tmp_path,
        "# S 6\n\n## Results\n\n| Samples | GPU time |\n|---|---|\n| 4096x | 30.0 us |\n"
        "\n| n | Samples |\n|---|---|\n| 1 | 912x |\n",
    )
    session = drafted(base, log)
    assert [column.unit for table in session.measurements for column in table.columns.values()] == [
        "us", "samples",
    ]  # fmt: skip


def test_a_row_of_units(base, tmp_path):
    log = a_log(
        tmp_path,
        "# S 6\n\n## Latency\n\n| Stage | p50 | Share |\n|---|---|---|\n| | ms | (%) |\n"
        "| decode | 34.7 | 44 |\n"
        "\n| Stage | p50 |\n|---|---|\n| | ms |\n| x | 3 m |\n",
    )
    [table] = drafted(base, log).measurements
    assert [column.unit for column in table.columns.values()] == ["ms", "%"]
    assert [list(map(str, row.values.values())) for row in table.rows] == [["34.7", "44"]]


def test_what_stands_beside_a_number_of_a_table(base, tmp_path):
    log = a_log(
        tmp_path,
        "# S 6\n\n## Results\n\n| n | ms (median) | old (us) | % |\n|---|---|---|---|\n"
        "| 16 | 12.5 ± 0.3 | 3.2 (1.2x) | 4.1* |\n| 32 | 12.5 (2 | 3.2 (4 | 5 † |\n",
    )
    session = drafted(base, log)
    [table] = session.measurements
    assert [column.unit for column in table.columns.values()] == ["%"]
    log = a_log(tmp_path, log.read_text().replace("12.5 (2 | 3.2 (4", "13 | 4.1").replace("6", "7"))
    [table] = drafted(base, log).measurements
    assert [column.unit for column in table.columns.values()] == ["ms", "us", "%"]
    assert [list(map(str, row.values.values())) for row in table.rows] == [
        ["12.5", "3.2", "4.1"], ["13", "4.1", "5"],
    ]  # fmt: skip


def test_a_table_that_is_set_with_spaces(base, tmp_path):
    fence = "`" * 3
    log = a_log(
        tmp_path,
        f"# Session 5\n\n## Test results\n\n{fence}\n"
        "Config        plain max_diff   split max_diff   Status\n"
        "──────────────────────────────────────────────────────\n"
        "B=1 S=4   D=8   0.000004       0.022202         ✅ PASS\n"
        f"B=1 S=64  D=8   0.000008       0.193604         ❌ FAIL\n{fence}\n",
    )
    [table] = drafted(base, log).measurements
    assert table.kind == "correctness"
    assert [(row.case["Config"], *map(str, row.values.values()), row.verdict)
            for row in table.rows] == [
        ("B=1 S=4 D=8", "0.000004", "0.022202", "pass"),
        ("B=1 S=64 D=8", "0.000008", "0.193604", "fail"),
    ]  # fmt: skip


@pytest.mark.parametrize("fence", ["", "```csv\n"])
@pytest.mark.parametrize(("sign", "point"), [(",", "."), (";", ","), ("\t", ".")])
def test_a_table_of_separated_values(base, tmp_path, fence, sign, point):
    rows = [["kernel", "rows", "before_us", "gain %", "speedup"],
            ["quant", "2048", f"55{point}1", f"25{point}6", f"1{point}34"],
            ["quant", "8192", f"209{point}7", f"24{point}3", f"1{point}32"]]  # fmt: skip
    text = "\n".join(sign.join(row) for row in rows)
    end = "\n```" if fence else ""
    log = a_log(
        tmp_path, f"# Session 5\n\nIt took 3{point}5 h.\n\n## Results\n\n{fence}{text}{end}\n"
    )
    [table] = drafted(base, log).measurements
    assert [column.unit for column in table.columns.values()] == ["us", "%", "×"]
    assert [(row.case["rows"], *map(str, row.values.values())) for row in table.rows] == [
        ("2048", "55.1", "25.6", "1.34"),
        ("8192", "209.7", "24.3", "1.32"),
    ]


def test_a_sentence_with_commas_is_no_table(base, tmp_path):
    text = "one, two, three\nfour, five, 6\nseven, eight, nine"
    assert drafted(base, a_log(tmp_path, f"# Session 5\n\n{text}\n")).measurements == []


def test_a_block_of_two_cases_is_no_row(base, tmp_path):
    fence = "`" * 3
    log = a_log(
        tmp_path,
        f"# S 1\n\n## Results\n\n{fence}\nS=1:\n  ours: 3 ms\n  theirs: 4 ms\n"
        f"S=2:\n  ours: 5 ms\n  theirs: 6 ms\n{fence}\n",
    )
    session = drafted(base, log)
    assert session.measurements == []
    assert sorted(stated(session).values()) == ["3 ms", "4 ms", "5 ms", "6 ms"]
