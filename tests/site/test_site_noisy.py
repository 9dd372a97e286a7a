"""The site shows times of a noisy run, but neither ratio nor verdict."""

from __future__ import annotations

import copy
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import site_trees as trees
from test_site_compare import called
from test_site_home import AGAINST, home_page, part, put_run, results_of, slower, template
from test_site_kernel import NEW, OLD, make, plain, run, topics

from kbtool.markdown.figures import noise_reason, share_of_ceiling
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.kinds.tune import TuneResult
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import compare
from kbtool.site.pages.run import RunLinks
from kbtool.steps.benchmark.page import timed_beside
from kbtool.steps.tune.page import page as tuned
from kbtool.store.tree import KnowledgeBase

DASH = "– noisy"
WHY = "noisy: other processes used 35% of the cores meanwhile"
SMALL = {"s float32": {"ours": 10, "base": 415}, "s float16": {"ours": 10, "base": 415}}


def noisy(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a run during whose benchmark others were busy."""
    made = copy.deepcopy(record)
    for step in made["steps"]:
        if step["kind"] == "benchmark":
            step["result"]["others_busy"] = 0.35
    return made


def busy(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return noisy({"steps": steps})["steps"]  # type: ignore[no-any-return]


def bench(record: dict[str, Any]) -> BenchmarkResult:
    (found,) = (step["result"] for step in record["steps"] if step["kind"] == "benchmark")
    return BenchmarkResult.model_validate(found)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return trees.make(tmp_path / "kb")


def test_noise_reason_is_given_for_noisy_runs_only() -> None:
    quiet, loud = bench(NEW), bench(noisy(NEW))
    assert noise_reason(quiet) is None and noise_reason(loud) == WHY
    assert share_of_ceiling(quiet, quiet.cases[0]) == pytest.approx(0.6)
    assert share_of_ceiling(loud, loud.cases[0]) is None


def test_home_shows_the_newest_quiet_run_and_that_a_newer_one_was_noisy(root: Path) -> None:
    put_run(root, 1, steps=slower(template(root), 4))
    put_run(root, 2, steps=busy(slower(template(root), 41)))
    put_run(root, 3, steps=busy(slower(template(root), 43)))
    header, row = results_of(root)
    told = dict(zip(header, row, strict=True))
    assert told["In a chain"].startswith("4.00 <br>") and "noisy" not in told[AGAINST]
    assert "2025-11-23 10:10 UTC" in told["When"]
    (link,) = re.findall(r"\[a newer one was noisy\]\(([^)]*)\)", told["When"])
    assert link == f"runs/{trees.session_id(1)}/20251125T101010Z-copy.md"
    assert "words about cpu, 2 threads: 1.00, 4.00<" in told["History"]
    assert "41" not in told["History"] and "43" not in told["History"]


def test_home_shows_no_ratio_if_every_run_was_noisy(root: Path) -> None:
    (path,) = (root / "sessions").glob("*/runs/two.json")
    record = noisy(json.loads(path.read_text()))
    record.pop("digest")
    timed = next(step for step in record["steps"] if step["id"] == "time")["result"]["cases"][0]
    timed["arms"]["best"] = copy.deepcopy(timed["arms"]["words about theirs"])
    trees.put(path, trees.sealed(record))
    header, row = results_of(root)
    told = dict(zip(header, row, strict=True))
    assert plain(told["Between plain kernels"]) == plain(told["In a chain"]) == DASH
    assert told["Ours (µs)"] == "2.50" and plain(told[AGAINST]) == f"no ratio, {WHY}"
    assert "no quiet run so far" in told["History"]
    assert "a newer one" not in part(home_page(root), "results")


def test_a_single_quiet_run_has_no_history_of_noisy_ones(root: Path) -> None:
    put_run(root, 1, steps=busy(slower(template(root), 41)))
    header, row = results_of(root)
    told = dict(zip(header, row, strict=True))
    assert told["In a chain"].startswith("1.00 <br>")
    assert "one quiet run so far" in told["History"] and "<svg" not in told["History"]


def kernel(tmp_path: Path, *runs: dict[str, Any]) -> dict[str, str]:
    return topics(make(tmp_path / "kb", *runs))


def test_both_tables_of_a_kernel_show_the_newest_quiet_run(tmp_path: Path) -> None:
    later = noisy(run(15, SMALL, "H1", variants=["plain"]))
    page = kernel(tmp_path, OLD, NEW, later)
    rest = page["results"]
    (row,) = (
        line for line in page["validation"].splitlines() if line.startswith("| <code>cuda</code>")
    )
    assert "2 cases timed; [a newer one was noisy](" in row
    small = next(line for line in rest.splitlines() if line.startswith("| Small <br>"))
    assert "[a newer one was noisy](" in small and "20251121T101015Z-copy.md" in small
    assert "| 4.00 least 2.00; 0 of 2 lost |" in plain(small) and DASH not in plain(small)
    # The ladder too: what the noisy run timed of its variants is not what is told.
    assert "; <" not in page["ladder"] and "; [a newer one was noisy](" in page["ladder"]
    assert "| 2.83 2.00–4.00 |" in plain(page["ladder"])
    assert all("41.5" not in page[name] for name in ("results", "ladder", "history"))


def test_a_kernel_timed_by_noisy_runs_alone_has_no_ratio(tmp_path: Path) -> None:
    loud = run(15, SMALL | {"s float32": {"ours": 10, "base": 415, "plain": 100}}, "H1",
               variants=["plain"])  # fmt: skip
    page = kernel(tmp_path, noisy(loud))
    rest = page["results"]
    assert f": – {WHY}" in page["validation"]
    small = next(line for line in rest.splitlines() if line.startswith("| Small "))
    assert f"| {DASH} | {DASH} | no ratio, {WHY} | {DASH} |" in plain(small)
    assert f"Small: no ratio because the run is {WHY}" in rest
    assert "× our time" not in rest and "Time of each peer against ours" not in rest
    case = next(line for line in rest.splitlines() if line.startswith("| s float16 |"))
    assert plain(case).count(DASH) == 2 and "| 10.0 9.50–10.5 |" in plain(case)
    rung = next(x for x in page["ladder"].splitlines() if x.startswith("| <code>plain"))
    assert plain(rung).count(DASH) == 3 and f", {WHY}" in page["ladder"]
    shown = "".join(page[name] for name in ("results", "ladder", "history"))
    assert "41.5" not in shown and "4.15" not in shown


def test_the_page_of_a_noisy_run_has_times_and_dashes() -> None:
    shown = unescape(timed_beside(bench(noisy(NEW))))
    row = next(line for line in shown.splitlines() if line.startswith("| s float16 |"))
    assert plain(row).count(DASH) == 3 and "5.00 4.75–5.25" in plain(row)
    assert WHY in shown and "Best peer ÷ ours" not in shown
    assert DASH not in plain(unescape(timed_beside(bench(NEW))))


@pytest.mark.parametrize("count", [2, 13])
def test_the_table_stands_above_the_charts_which_are_folded_where_they_are_long(count: int) -> None:
    record = copy.deepcopy(NEW)
    (step,) = (step for step in record["steps"] if step["kind"] == "benchmark")
    first, *_ = step["result"]["cases"]
    step["result"]["cases"] = [{**first, "name": f"case {n}"} for n in range(count)]
    shown = timed_beside(bench(record))
    table, chart = shown.index("| case 0 |"), shown.index("kb-plot")
    assert table < chart
    assert (shown.rindex("<details", 0, chart) > table) == (count > 12)


def test_what_was_timed_between_plain_kernels_has_columns_of_its_own() -> None:
    record = copy.deepcopy(NEW)
    (step,) = (step for step in record["steps"] if step["kind"] == "benchmark")
    first, second = step["result"]["cases"]
    assert "plain kernels" not in unescape(timed_beside(bench(record)))
    first["plain_us"] = 1.25
    for arm, us in (("ours", 8.0), ("base", 6.0)):
        first["arms"][arm]["between_us"] = us
    shown = plain(unescape(timed_beside(bench(record))))
    assert "The plain kernel alone takes 1.25 µs" in shown
    assert "The same, between plain kernels" in shown
    rows = {name: next(line for line in shown.splitlines() if line.startswith(f"| {name} |"))
            for name in (first["name"], second["name"])}  # fmt: skip
    assert "0.750 base" in re.sub(r"<.*?>", "", rows[first["name"]])
    assert "0.750" not in rows[second["name"]]


@pytest.mark.parametrize("share", [0.0, 0.35])
def test_a_noisy_tune_names_no_better_setting(share: float) -> None:
    def time(us: float) -> dict[str, Any]:
        return {"samples_us": [us], "median_us": us, "low_us": us, "high_us": us,
                "calls_per_sample": 1}  # fmt: skip

    result = TuneResult.model_validate({
        "sha256": trees.SHA, "device": "cuda", "threads": 1, "setting": "num_splits",
        "protocol": "p", "others_busy": share,
        "cases": [{"name": "s", "case_set": "small", "case": {}, "variant": "v", "own": "1",
                   "settings": {"1": time(30), "8": time(4)}, "best": "8"}],
    })  # fmt: skip
    shown = unescape(tuned(result, RunLinks(None, None, "runs/s/r.md")))
    row = plain(next(line for line in shown.splitlines() if line.startswith("| s |")))
    assert ("7.50" in row) == ("in 1" in shown) == ("<code>8</code>" in shown) == (not share)
    assert row.count(DASH) == (3 if share else 0)
    assert "8: 4.00" in shown  # every time stays


def put_noisy(root: Path) -> Path:
    """A quiet run, and a newer noisy one."""
    put_run(root, 1, steps=busy(slower(template(root), 7.59)))
    return root


LOUD = "20251123T101010Z-copy"


def test_the_data_of_compare_say_which_case_was_noisy(root: Path) -> None:
    index = Index(KnowledgeBase(put_noisy(root)))
    scripts = compare.scripts(index)
    listed = called(scripts[at.COMPARABLE])[1]["runs"]
    assert [(one["noisy"], one["label"].endswith(", noisy")) for one in listed] == [
        (True, True), (False, False),
    ]  # fmt: skip
    loud, quiet = (called(scripts[one["script"]])[1] for one in listed)
    assert loud["noise"] == [WHY] and quiet["noise"] == []
    assert {case["noise"] for case in loud["cases"]} == {WHY}
    assert {case["noise"] for case in quiet["cases"]} == {None}
    page = unescape(compare.page(index))
    lines = [line for line in page.splitlines() if line.startswith("- <span")]
    assert [", noisy;" in line for line in lines] == [True, False]


def test_a_quiet_benchmark_counts_beside_a_noisy_one_of_the_same_run(root: Path) -> None:
    steps = copy.deepcopy(template(root)["steps"])
    (timed,) = (step for step in steps if step["id"] == "time")
    again = {**busy([timed])[0], "id": "again"}
    steps.insert(steps.index(timed) + 1, again)
    put_run(root, 1, steps=steps)
    scripts = compare.scripts(Index(KnowledgeBase(root)))
    first = called(scripts[at.COMPARABLE])[1]["runs"][0]
    _, data = called(scripts[first["script"]])
    assert first["noisy"] is False and data["noise"] == [WHY]
    assert [case["noise"] for case in data["cases"]] == [None, None, WHY, WHY]


def test_pages_judge_noise_by_noise_reason_alone() -> None:
    """A ratio made past ``figures.noise_reason`` is how a noisy one came to be told."""
    package = Path(compare.__file__).parents[2]
    pages = [path for part in ("site", "markdown") for path in (package / part).rglob("*.py")]
    pages += (package / "steps").rglob("page.py")
    asks = re.compile(r"\.noise\b|(?<!def )\bresult\.share_of_ceiling\(")
    found = [p.name for p in pages if asks.search(p.read_text())]
    assert found == ["figures.py"]


@pytest.mark.parametrize("status", ["passed", "noisy"])
def test_a_noisy_run_is_shown_as_noisy_even_if_its_older_record_says_passed(
    tmp_path: Path, status: str
) -> None:
    record = noisy(run(15, SMALL, "H1"))
    record["status"] = record["steps"][-1]["status"] = status
    pages = make(tmp_path / "kb", record)
    shown = {
        at.run_page(trees.session_id(0), record["id"]): "of the cores meanwhile",
        at.RUNS: record["id"],
        at.HOME: "10:10",
        at.session_page(trees.session_id(0)): record["id"],
        at.topic_page("copy", "correctness"): "10:10",
        at.RECIPES: record["id"],
    }
    for page, word in shown.items():
        rows = [x for x in pages[page].splitlines() if word in x and "kb-chip" in x]
        assert rows and all(">noisy<" in row and ">passed<" not in row for row in rows), page
