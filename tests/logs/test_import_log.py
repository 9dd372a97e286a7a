"""``kbtool import``: a report becomes a draft that passes check, or is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from knowledge import Knowledge

from kbtool.checks.check import check_tree
from kbtool.logs import take_in as take_in_module
from kbtool.logs.figures import figures, habits
from kbtool.logs.take_in import take_in
from kbtool.model.errors import RecordError, UsageError
from kbtool.model.session import Session
from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "tests" / "fixtures" / "logs"


def drafted(base: Knowledge, log: Path, **options) -> Session:
    taken = take_in(KnowledgeBase(base.root), log, **options)
    assert [str(finding) for finding in check_tree(base.root, cached=False).findings] == []
    return KnowledgeBase(base.root).session(taken.id).record


def a_log(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "report.md"
    path.write_text(text, encoding="utf-8")
    return path


def stated(session: Session) -> dict[str, str]:
    """What is claimed → the last figure of it."""
    return {f"{claim.says} [{claim.source.partition(':')[2]}]": str(claim.stated)
            for claim in session.claims}  # fmt: skip


def test_bullets_with_decimal_commas_and_a_night(base):
    session = drafted(base, LOGS / "bullets.md")
    assert (session.id, session.label, session.status) == ("2026-03-14-ln-3", "LN-3", "complete")
    assert str(session.started) == "2026-03-14T22:40+01:00"
    # 22:40 to 00:15 is the next day, as the duration of 1h35m says.
    assert str(session.ended) == "2026-03-15T00:15+01:00"
    assert str(session.duration) == "95 min"
    assert str(session.budget_time) == "2 h"
    assert [(c.kind, str(c.amount), c.currency, c.source) for c in session.costs] == [
        ("gpu", "1.90", "EUR", "bullets-log:9"), ("ai", "3.25", "EUR", "bullets-log:9"),
    ]  # fmt: skip
    assert session.environment.card == "H100 SXM"
    assert session.environment.driver == "570.86"
    [table] = session.measurements
    assert {name: column.unit for name, column in table.columns.items()} == {
        "before": "us", "after": "us", "gb-s": "GB/s",
    }  # fmt: skip
    assert table.rows[0].case == {"rows": "1.024", "dtype": "bf16"}
    assert {name: str(value) for name, value in table.rows[0].values.items()} == {
        "before": "12.5", "after": "9.75", "gb-s": "1430.5",
    }  # fmt: skip
    assert {name: str(value) for name, value in table.rows[2].values.items()} == {"after": "118.4"}
    [bug] = session.bugs
    assert (bug.title, bug.status, str(bug.minutes_lost)) == ("last row is NaN", "fixed", "25 min")
    [fix] = session.fixes
    assert (fix.change, fix.commit, fix.bug) == ("predicate the load", "4be19c7", f"#bugs.{bug.id}")
    [plan] = session.plans
    assert [(step.title, str(step.target)) for step in plan.steps] == [
        ("Vectorise the stores", "30 min"), ("Try 4 rows per warp", "1..2 h"),
    ]  # fmt: skip
    assert session.lessons == ["An odd number of rows belongs into the test set."]


def test_front_matter_and_prose_that_was_wrapped(base):
    session = drafted(base, LOGS / "front_matter.md")
    assert session.id == "2026-05-02-gemm-07"
    assert session.title == "Persistent GEMM, first light"
    assert str(session.started) == "2026-05-02T09:05+02:00"
    assert session.engineer == "R. Okafor"
    assert str(session.budget_money) == "15 GBP"
    assert [(c.kind, str(c.amount), c.currency) for c in session.costs] == [
        ("gpu", "7.15", "GBP"), ("ai", "2.40", "GBP"),
    ]  # fmt: skip
    assert (session.environment.cuda, session.environment.torch) == ("12.8", "2.7.1")
    claims = stated(session)
    # Each figure is cited at the line that it stands on, though the sentence runs over two.
    assert claims["One wave took roughly 1.85 ms; the tail is under 40 us. [20]"] == "~1.85 ms"
    assert claims["One wave took roughly 1.85 ms; the tail is under 40 us. [21]"] == "<40 us"
    [decision] = session.decisions
    assert decision.chosen == "b"
    assert {option.id: {k: str(v) for k, v in option.figures.items()}
            for option in decision.options} == {
        "a": {"time": "2 h"}, "b": {"time": "45..60 min", "money": "3 GBP"},
    }  # fmt: skip


def test_a_transcript_of_a_shell(base):
    taken = take_in(KnowledgeBase(base.root), LOGS / "transcript.txt")
    session = KnowledgeBase(base.root).session(taken.id).record
    assert [(c.sha, c.title, c.role) for c in session.commits] == [
        ("9f3c2ab", "Radix sort: 8 bits a pass", "mentioned"),
        ("77d01ee", "Add the harness", "mentioned"),
        ("1c0ffee", "Use 11 bits a pass", "made"),
    ]
    last = session.commits[-1]
    assert (last.branch, last.files, last.insertions, last.deletions) == ("radix", 2, 61, 12)
    assert "12.437 s" in {str(claim.stated) for claim in session.claims}
    # IST is the time of India, Israel or Ireland, and no unit is called Gkeys.
    assert session.started is None
    why = {(left.line, left.why) for left in taken.left}
    assert (16, "a time that is not placed: the name of its zone means several") in why
    assert (8, "2.54: a number without a unit") in why
    assert check_tree(base.root, cached=False).findings == []


def test_what_contradicts_itself_is_null_and_stated_twice(base):
    session = drafted(base, LOGS / "contradictions.md")
    assert session.id == "undated-4"
    assert session.duration is None
    assert session.unknown["duration"] == "the log states 50 min (line 3), 65 min (line 4)"
    gpu, engineer = session.costs
    assert gpu.amount is None
    assert session.unknown["costs.gpu.amount"] == (
        "the log states 1.20 USD (line 7), 1.00 USD (line 14)"
    )
    assert engineer.amount is None
    assert session.unknown["costs.engineer.amount"] == "the log says 'N/A'"
    claims = stated(session)
    assert claims["Duration: 50 minutes [3]"] == "50 min"
    assert claims["Total time: 65 minutes [4]"] == "65 min"
    assert claims["GPU cost: $1.20 [7]"] == "1.20 USD"
    assert claims["GPU: Cost: $1.00 [14]"] == "1.00 USD"
    assert [(step.title, str(step.target), str(step.actual), step.status)
            for step in session.steps] == [
        ("Build", "5 min", "12 min", "failed"), ("Test", "5..10 min", "~8 min", "done"),
    ]  # fmt: skip


def test_the_log_is_kept_and_cited_within_its_lines(base):
    log = LOGS / "bullets.md"
    session = drafted(base, log)
    folder = base.root / "sessions" / session.id
    assert (folder / "files/bullets.md").read_bytes() == log.read_bytes()
    assert session.sources["bullets-log"].lines == len(log.read_text().splitlines())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("took 1 hour 47 minutes", ["107 min"]),
        ("real 2m3.5s", ["123.5 s"]),
        ("5-10 min, then 3–4 hours", ["5..10 min", "3..4 h"]),
        ("67 min → 3 min", ["67 min", "3 min"]),
        ("67 → 3 min", ["67 min", "3 min"]),
        ("$0.80-1.20 a day, $0.20/hr", ["0.80..1.20 USD/day", "0.20 USD/h"]),
        ("US$ 3,200.50 or CHF 12", ["3200.50 USD", "12 CHF"]),
        ("~0.19× and 10x faster, 0.50×+", ["~0.19 ×", "10 ×", "0.50+ ×"]),
        ("less than 40 us, at least 3 GB", ["<40 us", ">=3 GB"]),
        ("max_diff < 0.1, mean error: 2e-3", ["<0.1", "2e-3"]),
        ("4/5 tests, 3 of 7 cases", ["4 tests", "5 tests", "3 cases", "7 cases"]),
        ("a 10-minute stall", ["10 min"]),
        ("About 40 min, fewer than 8 blocks", ["~40 min", "<8 blocks"]),
        ("1'215.8 GB/s and 10’000 launches", ["1215.8 GB/s", "10000 launches"]),
        ("max error 4.1 × 10⁻¹³ in 4.1 × 10^-3 s", ["4.1e-13", "4.1e-3 s"]),
        ("2.31 ± 0.02 ms", ["2.31 ms"]),
        ("1h05, then 2 h 20", ["65 min", "140 min"]),
        ("from 412 to 651 GB/s", ["412 GB/s", "651 GB/s"]),
        ("it ranges from 3 to 5 ms, or between 4 and 6 s", ["3..5 ms", "4..6 s"]),
        ("p50 / p99 = 15.1 / 19.8 ms", ["15.1 ms", "19.8 ms"]),
        ("latency_us: 12.5, time_s=3, bandwidth_gbs: 310", ["12.5 us", "3 s", "310 GB/s"]),
        ("72 passed, 1 failed", ["72 passed", "1 failed"]),
        ("two days, then half an hour: 3.1-fold", ["2 days", "30 min", "3.1 ×"]),
        ("wall=00:12:41 seconds=48.2 power_w=243", ["761 s", "48.2 s", "243 W"]),
        ("时长：2小时30分钟，从620 GB/s提高到930 GB/s", ["150 min", "620 GB/s", "930 GB/s"]),
        ("took over 3 hours", [">3 h"]),
        ("¥ 620, that is 620 JPY, at ¥80/h", ["620 JPY", "620 JPY", "80 JPY/h"]),
        ("environ 1 204,5 Go/s, 12,5 ms", ["~1204.5 GB/s", "12.5 ms"]),
        ("höchstens 2,5 Stunden, 40 s", ["<=2.5 h", "40 s"]),
        ("ビルドは42秒、約3分、500円以内", ["42 s", "~3 min", "<=500 JPY"]),
        ("El error fue de 2,1e-3; el límite, 5e-3; 3,5 ms", ["2.1e-3", "5e-3", "3.5 ms"]),
        ("rate_usd_per_hour: 1.006, price_eur_per_h=0.9", ["1.006 USD/h", "0.9 EUR/h"]),
        ("one to two hours, a day or two", ["1..2 h", "1..2 days"]),
        ("an hour and a half, two and a half days", ["1.5 h", "2.5 days"]),
        ("it ran for 7¾ h, then ½ h", ["7.75 h", "0.5 h"]),
        ("16 or 32 threads", ["16 threads", "32 threads"]),
        ("5 min 30, and 5 min of 30", ["330 s", "5 min"]),
        ("Elapsed: 3:10 h, net time: 3:05 h", ["190 min", "185 min"]),
        ("nearly 3 h, just under 2 ms, a minimum of 4 GB", ["~3 h", "<2 ms", ">=4 GB"]),
        ("fino a 0,8 %, oltre 3,5 ore a 0,60 €/ora", ["<=0.8 %", ">3.5 h", "0.60 EUR/h"]),
        ("约3分钟，至少2小时", ["~3 min", ">=2 h"]),
        ("テストは約3分かかった", ["~3 min"]),
        ("₹1,20,000 in 1,234.5 ms", ["120000 INR", "1234.5 ms"]),
        ("its spread is ±1.5 %, 2.31 ± 0.02 ms", ["1.5 %", "2.31 ms"]),
        ("residual: 4.1 × 10^-13, 3.0·10⁻²", ["4.1e-13", "3.0e-2"]),
        ("residual: (6.4 ± 0.3)e-13", ["6.4e-13"]),
        ("a factor of 1.73, overall factor .... 1.85", ["1.73 ×", "1.85 ×"]),
        ('"speedup": 2.31, "latency_p99_us": 159.3', ["2.31", "159.3 us"]),
        ("cases=180 q_tiles=2, gpus=4; Tests: 96", ["180 cases", "2 tiles", "4 GPUs", "96 tests"]),
        ("2 cases of 96 were wrong, 3 tests of 4 ms", ["2 cases", "96 cases", "3 tests", "4 ms"]),
        ("1.2e9 parameters, 48 Tests, 256 hilos", ["1.2e9 parameters", "48 tests", "256 threads"]),
        ("geomean over 60 shapes, 11.5 h over 3 days", ["60 shapes", "11.5 h", "3 days"]),
        ("Test 7 configs, run ALL 96 tests", ["7 configs", "96 tests"]),
        ("Build time 67 → 3 min", ["67 min", "3 min"]),
        ("Minder dan 3 %, ongeveer 8,2 %, tot 0,5 %", ["<3 %", "~8.2 %", "<=0.5 %"]),
        ("van 40,2 GB/s tot 631 GB/s", ["40.2 GB/s", "631 GB/s"]),
        ("2 uur 45 min, daarna 1 à 2 uur, 2 ч 40 мин", ["165 min", "1..2 h", "160 min"]),
        (
            "около 35 с, 1,5 мин, 510 ГБ/с, 120 руб./ч",
            ["~35 s", "1.5 min", "510 GB/s", "120 RUB/h"],
        ),
        ("longer than 65,536 tokens, faster than 4 ms", [">65536 tokens", "<4 ms"]),
        ("3.59 dollars an hour, 5 euros, nine percent", ["3.59 USD/h", "5 EUR", "9 %"]),
        ("1,670 tokens per second, 310 GB per second", ["1670 tokens/s", "310 GB/s"]),
        ("11.8 ms a token, 2 days a week", ["11.8 ms", "2 days"]),
        ("about 3.5 GPU-hours, 8 GPU hours", ["~3.5 h", "8 h"]),
        ("4 van de 60 tests, 3 tests 45 min", ["4 tests", "60 tests", "3 tests", "45 min"]),
        ("max. afwijking 3e-6, допуск 1e-5", ["3e-6", "1e-5"]),
        ("318.1k tok/s, 9.2 M requests per day", ["318.1e3 tok/s", "9.2e6 requests/day"]),
        ("3 million rows, 2.5M rows/s, 120k req/s", ["3e6 rows", "2.5e6 rows/s", "120e3 req/s"]),
        ("from 1 h up to 2 h, or 3 min. 20 s", ["1 h", "2 h", "200 s"]),
        ("7.16 $/h, total 16.01 $, 18.20 Swiss francs", ["7.16 USD/h", "16.01 USD", "18.20 CHF"]),
        ("finished after 2:14:09, 1.2071 +- 0.0042 s", ["8049 s", "1.2071 s"]),
        ("410 against 371 us, 3 instead of 2 ms", ["410 us", "371 us", "3 ms", "2 ms"]),
        ("1 tests failed out of 48, 4.5 person-days", ["1 tests", "48 tests", "4.5 days"]),
        ("it is not here, and over by more than 5 %", [">5 %"]),
        (
            "12, 15 and 18 ms, for 64 and 128 threads",
            ["12 ms", "15 ms", "18 ms", "64 threads", "128 threads"],
        ),
        ("p50/p95/p99: 3.2/4.1/5.0 ms", ["3.2 ms", "4.1 ms", "5.0 ms"]),
        ("steps 2 and 3 took 5 ms, kernels 1 and 2 ms", ["5 ms", "2 ms"]),
        ("2d 3h, then 1 day and 4 hours; total 0:05:30", ["51 h", "28 h", "330 s"]),
        ("~= 3 ms, some 50 blocks, exceeds 250 W", ["~3 ms", "~50 blocks", ">250 W"]),
        ("17.4 ms (was 17.6), 38.2 -> 24.9 us", ["17.4 ms", "17.6 ms", "38.2 us", "24.9 us"]),
        ("soit 1,75 fois plus vite, inférieure à 2,5 ms", ["1.75 ×", "<2.5 ms"]),
        # No figures: names, products, settings, shapes, versions, ratios.
        ("FA-2 on SM89, S=128, 64×64 tiles, Pattern 8 tests, N+4 report", []),
        ("CUDA 12.1 and 12 × $3", ["3 USD"]),
        ("10-5 min is no range", []),
        ("1 048 576 bytes: the middle of a number is none", []),
        ("16 x 16 tiles, 2 x 4 GB, 1 in 5 runs, 100s of files", []),
        ("a mean over 64 cases and over 3 hours", ["64 cases"]),
        ("Odd head dims: 80 → 31 µs, 96 → 30 µs", ["31 us", "30 us"]),
        ("batch 64 → 31 µs", ["31 us"]),
        ("the 128 case, RTX 4090 cards, kernel 2 runs", []),
        ("a node of 8x H100, or 2x GPUs", []),
        ("$3 million, $5/run, 4k tokens, 2 M rows", []),
        ("an unroll factor of 4, 64 is a factor of 128", []),
        ("tiles=64x64, runs=3/4, Tests: 412 or so", []),
        ("≪ 3 ms, 1/2 h", []),
        ("(3 rows)", []),
        ("p50 must not rise by more than 5 %, it never took over 3 h", []),
        ("One in 512 rows, a 50/50 split, minus 3 %", []),
        ("one of every 10,000 batches, 1 × NVIDIA GeForce", []),
        ("256 spills 48 bytes, exp. 3 runs", ["48 B"]),
        ("de 14h00 à 17h30", []),
        ("in a language that is not known: 2 tuntia 45 min", []),
        ("[3 rows x 5 columns]", []),
        ("n_h: 8, hidden_w: 64 and gbps: 12", []),
        ("every two hours, averaged over two days, one day", []),
        ("¥ 620: of Japan or of China", []),
        ("from 3.2 to 0.1 is a fall, à 9h30 a time of day", []),
        ("a refund of -$0.50", []),
        ("[ 42%] Building", []),
        ("10分割、3時間半", []),
        ("it is 3 faster, and 5m long", []),
        ("tag 4e-12 of the tree", []),
    ],
)
def test_figures_of_a_line(text, found):
    assert [one.quantity for one in figures(text, habits(text))] == found


ORG = """\
#+TITLE: S 5
#+DATE: 2026-09-30

* Results
| vocab | bwd ms |
|-------+--------|
| 10k   |  0.94  |
* TODO Next session
** Cache the sort, 45 min
"""
RST = """\
===
S 5
===

:Date: 2026-09-30
:Start: 9h30
:End: 11h50
:Duration: 2 h 20

Results
=======

======  =========  ======
vocab   before us  gain %
======  =========  ======
10k     940.5      -0.7
======  =========  ======
"""


def test_org(base, tmp_path):
    session = drafted(base, a_log(tmp_path, ORG))
    assert (session.title, session.id) == ("S 5", "2026-09-30-s-5")
    [table] = session.measurements
    assert (table.columns["bwd-ms"].unit, str(table.rows[0].values["bwd-ms"])) == ("ms", "0.94")
    [plan] = session.plans
    assert [(step.title, str(step.target)) for step in plan.steps] == [
        ("Cache the sort, 45 min", "45 min")
    ]


def test_restructured_text(base, tmp_path):
    session = drafted(base, a_log(tmp_path, RST))
    assert (session.title, str(session.duration)) == ("S 5", "140 min")
    assert (str(session.started), str(session.ended)) == ("2026-09-30T09:30", "2026-09-30T11:50")
    # A time of day is no duration too.
    assert session.claims == []
    [table] = session.measurements
    assert {name: column.unit for name, column in table.columns.items()} == {
        "before-us": "us", "gain": "%",
    }  # fmt: skip
    assert [str(number) for number in table.rows[0].values.values()] == ["940.5", "-0.7"]


def test_from_when_until_when_in_a_sentence(base, tmp_path):
    session = drafted(
        base,
        a_log(tmp_path, "# S 6\n\nWorked on 9 avril 2026 from 13:15 CEST to 17:45 CEST, alone.\n"),
    )
    assert str(session.started) == "2026-04-09T13:15+02:00"
    assert str(session.ended) == "2026-04-09T17:45+02:00"


@pytest.mark.slow
def test_reports_in_other_habits(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import bench_import

    scores = [bench_import.score(*one) for one in bench_import.reports("developed").items()]
    missed = sum(len(score.missed) for score in scores)
    wrong = [figure for score in scores for figure in score.wrong]
    assert wrong == []
    assert missed <= 0.05 * sum(score.stated for score in scores)


NESTED = """\
# S 6, 3 Feb 2026

* When
  * from 13:05 GMT
  * until 15:50 GMT
"""


@pytest.mark.parametrize(
    "text",
    [
        NESTED,
        "# S 6\n\nRun from 2026-02-03 13:05 UTC to 2026-02-03 15:50 UTC.\n",
        "# S 6\n\nopened: 2026-02-03T13:05:00Z\nclosed: 2026-02-03T15:50:00Z\n",
        "# S 6, 3 febbraio 2026\n\n**Inizio:** 13:05 UTC\n**Fine:** 15:50 UTC\n",
        "# S 6, 3 februari 2026\n\nBegin: 13:05 UTC\nEinde: 15:50 UTC\n",
        "# S 6, 3 Feb 2026, 13:05-15:50 UTC\n\nWork of that day, 13:05-15:50 UTC\n",
        "# S 6, 3 Feb 2026\n\nIt took me from 1.05 pm UTC to 3:50pm UTC.\n",
        "# S 6\n\nSéance du 3 février 2026, de 13h05 à 15h50, sur une L4.\n",
        "date = 2026-02-03\nstart = 2026-02-03T13:05:00Z\nend = 2026-02-03T15:50:00Z\n",
        "# S 6, 3 Feb 2026\n\nStart ......... 13:05 UTC\nEnd ........... 15:50 UTC\n",
        "# S 6\n\nStarted 2026-02-03 13:05 UTC, stopped 2026-02-03 15:50 UTC.\n",
        "# S 6\n\n| Field | Value |\n|---|---|\n| Date | 3 Feb 2026 |\n| Start | 13:05 UTC |\n"
        "| End | 15:50 UTC |\n",
    ],
)
def test_from_when_until_when_in_other_shapes(base, tmp_path, text):
    session = drafted(base, a_log(tmp_path, text))
    assert [str(at.at)[:16] for at in (session.started, session.ended)] == [
        "2026-02-03 13:05", "2026-02-03 15:50",
    ]  # fmt: skip


def test_until_when_of_something_else_is_no_end(base, tmp_path):
    text = "# S 6, 3 Feb 2026\n\n- until 15:50 GMT the card was rented\n- A\n  - from 13:05 GMT\n"
    session = drafted(base, a_log(tmp_path, text))
    assert (session.started, session.ended) == (None, None)


def test_shared_memory_of_a_kernel_is_not_that_of_the_card(base, tmp_path):
    text = "# S 6\n\nGPU: L4\nShared memory: 96 KiB per block\n"
    session = drafted(base, a_log(tmp_path, text))
    assert session.environment.shared_memory is None
    assert list(stated(session).values()) == ["96 KiB"]


def test_a_rule_that_ends_in_a_letter_takes_no_time(base, tmp_path):
    log = a_log(tmp_path, f"# S 6\n\nname  value\n---- ----\n{'-' * 38}x\n")
    began = time.process_time()
    drafted(base, log)
    assert time.process_time() - began < 2


def test_entities_are_read(base, tmp_path):
    log = a_log(tmp_path, "# S 6\n\nIt took &lt; 3&nbsp;ms, 2&times; faster.\n")
    assert [str(claim.stated) for claim in drafted(base, log).claims] == ["<3 ms", "2 ×"]


def test_the_time_of_a_command_is_no_duration(base, tmp_path):
    session = drafted(base, a_log(tmp_path, "# S 6\n\nWall time: 44.1 s\n"))
    assert session.duration is None
    assert list(stated(session).values()) == ["44.1 s"]


def test_a_time_is_cited_at_its_own_line_of_a_paragraph(base, tmp_path):
    text = (
        "We tried many things that day, and all of the variants were measured\n"
        "from 13:05 UTC to 15:50 UTC.\n"
    )
    session = drafted(base, a_log(tmp_path, f"# S 6, 3 Feb 2026\n\n{text}"))
    assert session.cites["started"].endswith(":4")


def test_json_holds_figures(base, tmp_path):
    fence = "`" * 3
    text = f'# S 6\n\n{fence}json\n{{\n  "latency_us": 142.7,\n  "width": 8\n}}\n{fence}\n'
    assert list(stated(drafted(base, a_log(tmp_path, text))).values()) == ["142.7 us"]


def test_a_dollar_of_several_countries_is_not_placed(base, tmp_path):
    log = a_log(tmp_path, "# S 1\n\n**Cost**: $3.00 GPU\n\nThat is 2.20 USD, or CAD 3.00.\n")
    taken = take_in(KnowledgeBase(base.root), log)
    session = KnowledgeBase(base.root).session(taken.id).record
    assert session.costs == []
    assert {str(claim.stated) for claim in session.claims} == {"2.20 USD", "3.00 CAD"}
    assert any("dollars of several countries" in left.why for left in taken.left)


def test_a_block_within_a_block_does_not_turn_the_rest_inside_out(base, tmp_path):
    fence = "`" * 3
    log = a_log(
        tmp_path,
        f"# Session 5\n\n{fence}markdown\n{fence}bash\necho 3 s\n{fence}\n4 s\n{fence}\n\n"
        "| Step | Target | Actual |\n|---|---|---|\n| Build | 1 min | 2 min |\n",
    )
    session = drafted(base, log)
    assert [str(step.actual) for step in session.steps] == ["2 min"]
    assert stated(session) == {"4 s [7]": "4 s"}  # what the inner block holds is code


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("**Cost**: $1.35 (GPU $0.35 + AI $1.00)", {"gpu": "0.35", "ai": "1.00"}),
        ("**Cost**: $0.15 GPU + $0.75 AI = $0.90", {"gpu": "0.15", "ai": "0.75"}),
        ("**Cost**: $1.35 (GPU = $0.35 + AI = $1.00)", {"gpu": "0.35", "ai": "1.00"}),
        ("**GPU cost**: 0.40 EUR", {"gpu": "0.40"}),
        ("**Cost**: $1.35", {}),
        ("**Cost**: about $1 GPU", {}),
        ("**Cost**: $2 if the GPU is kept", {}),
    ],
)
def test_costs_of_one_line(base, tmp_path, line, found):
    session = drafted(base, a_log(tmp_path, f"# Session 5\n\n{line}\n"))
    assert {cost.kind: str(cost.amount) for cost in session.costs} == found


def test_bugs_as_lines_of_bold_text(base, tmp_path):
    log = a_log(
        tmp_path,
        "# Session 5\n\n## Bugs\n\n**Bug #1** (Session 4): of before\n- Fixed: there\n\n"
        "**Bug #2**: it overflows\n- Fixed: a wider type\n- Commit: 0bb3778\n\n"
        "**Bug #3** (unknown root cause):\n- **Symptom**: wrong rows\n",
    )
    session = drafted(base, log)
    assert [(bug.title, bug.status) for bug in session.bugs] == [
        ("it overflows", "fixed"), ("unknown root cause", "unknown"),
    ]  # fmt: skip
    assert [(fix.change, fix.commit) for fix in session.fixes] == [("a wider type", "0bb3778")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("The host is 10.1.2.3, it took 5 min", "address"),
        ("See /home/marie/build/log.txt", "path"),
        ("token: ghp_" + "a1B2" * 8, "GitHub token"),
        ("It printed \x1b[31m in red", "control character"),
    ],
)
def test_a_log_with_private_text_is_refused_with_its_line(base, tmp_path, text, problem):
    log = a_log(tmp_path, f"# Session 1\n\n{text}\n")
    with pytest.raises(RecordError, match=rf"(?s)report.md:3: .*{problem}"):
        take_in(KnowledgeBase(base.root), log)
    assert list((base.root / "sessions").iterdir()) == []


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "is empty"),
        (b" \n\n---\n", "is empty"),
        (b"\xff\xfe5 min", "is not UTF-8"),
        (b"# A\n" + b"5 min\n" * 200_000, "1,048,576 bytes"),
    ],
)
def test_no_report_at_all(base, tmp_path, raw, problem):
    log = tmp_path / "report.md"
    log.write_bytes(raw)
    with pytest.raises(UsageError, match=problem):
        take_in(KnowledgeBase(base.root), log)


def test_a_second_import_is_refused_by_its_label(base):
    take_in(KnowledgeBase(base.root), LOGS / "bullets.md")
    with pytest.raises(UsageError, match="2026-03-14-ln-3 has that label already"):
        take_in(KnowledgeBase(base.root), LOGS / "bullets.md")
    again = take_in(KnowledgeBase(base.root), LOGS / "bullets.md", label="again")
    assert again.id == "2026-03-14-again"


def test_a_write_that_fails_leaves_nothing(base, monkeypatch):
    def fails(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kbtool.store.write.write_atomic", fails)
    with pytest.raises(OSError, match="No space"):
        take_in(KnowledgeBase(base.root), LOGS / "bullets.md")
    assert list((base.root / "sessions").iterdir()) == []


def test_what_check_refuses_is_taken_out_and_listed(base, tmp_path):
    # A billion seconds and more is no time to check.
    log = a_log(tmp_path, "# Session 9\n\n**Duration**: 99999999999 minutes\n\nIt took 4 min.\n")
    taken = take_in(KnowledgeBase(base.root), log)
    assert any(left.line == 3 and "refuses it" in left.why for left in taken.left)
    assert check_tree(base.root, cached=False).findings == []
    session = KnowledgeBase(base.root).session(taken.id).record
    assert session.duration is None
    assert [str(claim.stated) for claim in session.claims] == ["4 min"]


def test_the_command_prints_the_path_and_what_is_left(base, kbtool):
    done = kbtool("import", str(LOGS / "contradictions.md"), root=base.root)
    assert done.code == 0, done.err
    assert done.out == "sessions/undated-4/session.yaml\n"
    assert "contradictions.md:26: 10/12/2026: a date or time" in done.err
    listed = (base.root / "sessions/undated-4/files/not-placed.md").read_text()
    assert "line 26" in listed


def test_text_that_no_entry_cites_is_listed_by_its_lines(base, tmp_path, kbtool):
    fence = "`" * 3
    log = a_log(
        tmp_path,
        f"# Session 5\n\nIt went well.\n\n{fence}cpp\nint x = 3;\n{fence}\n\nIt took 4 min.\n"
        "\n- nothing\n- else\n",
    )
    done = kbtool("import", str(log), root=base.root)
    assert done.code == 0, done.err
    assert "lines that no entry cites: 3, 11-12\n" in done.err
    listed = (base.root / "sessions/undated-5/files/not-placed.md").read_text()
    assert listed.endswith("Lines that no entry cites: 3, 11-12\n\nCode, not read: 6\n")


def test_a_dry_run_prints_the_record_and_writes_nothing(base, kbtool):
    done = kbtool("import", str(LOGS / "bullets.md"), "--dry-run", root=base.root)
    assert done.code == 0, done.err
    assert "label: LN-3" in done.out
    assert list((base.root / "sessions").iterdir()) == []
    as_json = kbtool("import", str(LOGS / "bullets.md"), "--dry-run", "--json", root=base.root)
    told = json.loads(as_json.out)
    assert told["id"] == "2026-03-14-ln-3"
    assert told["placed"]["costs"] == 2


def test_another_folder(base, kbtool, tmp_path):
    there = tmp_path / "drafts"
    done = kbtool("import", str(LOGS / "bullets.md"), "--into", str(there), root=base.root)
    assert done.code == 0, done.err
    assert (there / "2026-03-14-ln-3/session.yaml").is_file()
    assert list((base.root / "sessions").iterdir()) == []


PIECES = st.sampled_from(
    [
        "# Session N+1 - 2026-01-02",
        "## Bug 1: it fails",
        "## Cost",
        "## Next session (1-2 h)",
        "## Results",
        "**Duration**: 5 min",
        "**Cost**: $1.00 (GPU $0.40 + AI $0.60)",
        "- Symptom: 3 of 4 tests fail",
        "| a | b (ms) |\n|---|---|\n| 1 | 2 |\n| 1 | null |",
        "| Item | Cost |\n|-|-|\n| GPU | $1 |\n| GPU | $2 |",
        "Started: 2026-01-02 10:00 UTC",
        "End: 09:00",
        "1. do it (3 min)",
        "Option A: x 3 min\nOption B: y",
        "Decision: Option A",
        "Commit: 1234abc fix",
        "[x](figure:P01#number) 5 ms",
        "```\nkey: 3 ms\nother: 4 s\n```",
        "---\ntitle: null\ncosts:\n  gpu: 3 EUR\n---",
        "> 5 GB",
        "<b>7 s</b>",
        "~",
        "null",
        "- - - 3 h",
        "`3 us`",
        "| Step | Target | Actual |\n|--|--|--|\n| ~ | 1 s | 2 s |",
        "Fix: it\nStatus: fixed",
        "-0.0 ms",
        "1e400 s",
        "$ git log\n1234abc x\n 3 files changed, 1 insertions(+)",
        "Label: #/x",
        "GPU: L4, 23 GB",
        "CUDA: 12.1",
        "x" * 1200,
        "5..3 min",
        "99 % < 3 % > 1 %",
        "Status: paused",
        "0" * 150 + " ms",
    ]
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.one_of(PIECES, st.text(max_size=60)), max_size=12),
    st.sampled_from(["\n", "\n\n", "\r\n"]),
)
@example(["# Session 1", "Time (5 min): [x](figure:y"], "\n")
def test_any_text_gives_a_sound_draft_or_is_refused(tmp_path_factory, pieces, between):
    folder = tmp_path_factory.mktemp("any")
    base = Knowledge(folder / "base")
    log = folder / "report.md"
    log.write_bytes(between.join(pieces).encode("utf-8", "surrogatepass"))
    try:
        taken = take_in(KnowledgeBase(base.root), log)
    except (UsageError, RecordError):
        assert list((base.root / "sessions").iterdir()) == []
        return
    assert [str(finding) for finding in check_tree(base.root, cached=False).findings] == []
    assert take_in_module.draft_of(log.read_text("utf-8")).lines >= max(
        (left.line for left in taken.left), default=0
    )
