"""Tables and charts put no runs of different problems side by side, and say what they leave out."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import site_trees as trees
from test_site_home import put_run, results_of, slower, template
from test_site_kernel import make, plain, run, topics

SMALL = {"s float32": {"ours": 10, "base": 40}, "s float16": {"ours": 10, "base": 40}}
OTHERS = {"t float32": {"ours": 10, "base": 20}}
LEFT_OUT = "1 run of another problem"


def identity(problem: str) -> dict[str, Any]:
    return {"problem": {"kernels/copy/harness.py": problem * 64}}


def solving(problem: str, record: dict[str, Any]) -> dict[str, Any]:
    return {**copy.deepcopy(record), "identity": identity(problem)}


def test_the_history_on_the_home_page_is_of_one_problem(tmp_path: Path) -> None:
    root = trees.make(tmp_path / "kb")
    for number, problem in enumerate("abb", 1):
        steps = slower(template(root), number + 1)
        put_run(root, number, steps=steps, identity=identity(problem))
    header, row = results_of(root)
    told = dict(zip(header, row, strict=True))["History"]
    # The template's own run has a third problem.
    assert "2 threads: 3.00, 4.00<" in told and "without 2 runs of another problem" in told


def test_the_charts_of_a_kernel_are_of_one_problem(tmp_path: Path) -> None:
    first = solving("a", run(11, SMALL, "H1"))
    middle = solving("b", run(12, SMALL, "H1"))
    newest = solving("b", run(13, SMALL, "H1"))
    page = topics(make(tmp_path / "kb", first, middle, newest))
    assert first["repository"]["commit"][:7] in page["history"], "the table has every run"
    assert "another problem" not in page["results"]


def test_case_sets_of_another_problem_are_shown_separately(tmp_path: Path) -> None:
    small = solving("a", run(11, SMALL, "H1", case_set="small"))
    others = solving("b", run(12, OTHERS, "H1", case_set="others"))
    page = topics(make(tmp_path / "kb", small, others))
    results = page["results"]
    rows = [plain(line) for line in results.splitlines() if "another problem" in line]
    assert any(row.startswith("| Small") for row in rows)
    assert f"Not in the charts: {LEFT_OUT}." in results
    alike = {**small, "identity": others["identity"]}
    page = topics(make(tmp_path / "kb2", alike, others))
    assert "another problem" not in page["results"]
