"""The history of a kernel without scripts: a case by commit, what changed, every run."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

from test_site_kernel import CPU, LARGE, NEW, OLD, make, plain, run, topics
from test_site_noisy import DASH, noisy
from test_site_problems import solving

BOTH = {"s float32": {"ours": 10, "base": 40}, "s float16": {"ours": 10, "base": 40}}
HALF = {"s float32": {"ours": 5, "base": 40}, "s float16": {"ours": 10, "base": 40}}
LINE = re.compile(r'<a href="([^"]+)" aria-label="([^"]+)">')


def history(path: Path, *runs: dict[str, Any]) -> str:
    return topics(make(path / "kb", *runs))["history"]


def rows(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [plain(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line)).split("|") for line in lines[2:]]
    return [[cell.strip() for cell in row[1:-1]] for row in cells]


def part(page: str, title: str) -> str:
    return page.partition(f"### {title}")[2].partition("\n### ")[0]


def test_the_case_that_two_commits_timed_is_charted_and_leads_to_runs_and_compare(tmp_path: Path):
    page = history(tmp_path, run(11, BOTH, "H1", case_set="small"),
                   run(16, HALF, "H1", case_set="small"), LARGE)  # fmt: skip
    chart = part(page, "Times by commit")
    assert "**H1, Small: s float32**, in a chain of its own calls" in chart
    points = LINE.findall(chart)
    assert [said for _, said in points if ", ours: " in said] == [
        "1111111, ours: 10.0 µs (9.50–10.5)", "1616161, ours: 5.00 µs (4.75–5.25)",
    ]  # fmt: skip
    assert points[0][0].endswith("20251121T101011Z-copy.html")
    first, second = rows(chart)
    assert [first[0], first[2]] == ["1111111", "–"]
    assert [second[0], second[2]] == ["1616161", "50.0 % less time"]
    assert re.search(r'compare\.html#a=2025\w+Z-copy/ours&b=2025\w+Z-copy/ours">50', chart)
    steps = part(page, "Commits that changed a case")
    assert "**1 of 1 step changed a case.**" in steps
    assert "it is faster in 1 of 2 cases, by 50 %" in steps


def test_uncommitted_changes_and_noise_are_left_out_of_the_chart_and_in_the_table(tmp_path: Path):
    page = history(tmp_path, OLD, NEW, CPU, noisy(run(15, BOTH, "H1")), run(16, HALF, "H1"))
    chart = part(page, "Times by commit")
    assert [row[0] for row in rows(chart)] == ["1111111", "1616161"]
    every = part(page, "H1")
    assert "The figures of 4 runs, by case set" in every
    told = {row[1]: row[3] for row in rows(every)}
    assert told.keys() == {"1111111", "1212121+", "1515151", "1616161"}
    assert told["1515151"] == DASH and told["1212121+"].startswith("4.00")
    assert "need 20 runs; the longest series has 2." in page


def test_across_another_problem_nothing_is_ranked(tmp_path: Path):
    first, second = (solving(name, run(number, cases, "H1"))
                     for name, number, cases in (("a", 11, BOTH), ("b", 13, HALF)))  # fmt: skip
    page = history(tmp_path, first, second)
    assert rows(part(page, "Times by commit"))[1][2] == "not ranked: another problem"
    assert "No data because no two commits were timed under the same conditions." in page


def test_without_two_commits_of_a_case_the_page_says_so(tmp_path: Path):
    again = copy.deepcopy(run(12, BOTH, "H1"))
    again["repository"] = run(11, BOTH, "H1")["repository"]
    page = history(tmp_path, run(11, BOTH, "H1"), again, LARGE)
    assert "No chart because no case was timed at two commits in quiet runs." in page
