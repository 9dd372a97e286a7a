"""The page that compares: which runs it offers, and the data that its script loads."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import site_trees as trees
from site_html import Site

from kbtool.ledger.timings.spread import FALSE, LEAST
from kbtool.markdown.figures import benchmark
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import compare
from kbtool.site.parts import compare_link
from kbtool.steps.benchmark.page import timed_beside
from kbtool.store.tree import KnowledgeBase

RUN = "20251121T101010Z-copy"


def base(root: Path, words: trees.Words = trees.plain) -> Index:
    return Index(KnowledgeBase(trees.make(root / "kb", words)))


def called(script: bytes) -> tuple[str, Any]:
    """The function that a script calls, and what with."""
    found = re.fullmatch(r"(\w+)\((.*)\);\n", script.decode("ascii"))
    assert found is not None
    return found[1], json.loads(found[2])


def test_the_list_names_every_benchmark_and_its_data(tmp_path: Path) -> None:
    scripts = compare.scripts(base(tmp_path))
    name, data = called(scripts.pop(at.COMPARABLE))
    assert name == "kbtoolRuns"
    assert data["rule"] == {"least": LEAST, "false": FALSE}
    (run,) = data["runs"]
    assert run["id"] == RUN
    assert run["arms"] == ["words about ours", "words about theirs"]
    assert run["baseline"] == "words about theirs"
    label = "7e12345+, 2025-11-21 10:10 UTC, words about cpu, Cases of copy (1 case)"
    assert run["label"] == label
    assert set(scripts) == {run["script"]} == {at.timings(trees.session_id(1), RUN)}


def test_the_data_of_a_run_are_its_records(tmp_path: Path) -> None:
    scripts = compare.scripts(base(tmp_path))
    name, run = called(scripts[at.timings(trees.session_id(1), RUN)])
    assert name == "kbtoolRun"
    timed, refused = run["cases"]
    # One run on a processor tells no spread.
    chain = {"us": [2.5, 2.25, 2.75], "spread": None}
    assert timed["arms"]["words about ours"] == {"wrong": None, "chain": chain}
    assert refused["arms"]["words about ours"]["wrong"] == "words about refused"
    assert run["again"] == (
        "# No known commit holds what was measured.\n"
        "kbtool run-recipe copy --set 'seed=words about seed'"
    )
    told = {one["name"]: one["value"] for one in run["conditions"]}
    assert told["Commit"] == "7e12345, work tree changed"
    assert told["Measurement settings"] == "words about protocol"
    # Without a card the processor weighs, and a card is no condition.
    assert "Card" not in told
    assert {one["name"] for one in run["conditions"] if one["weighs"]} >= {"Processor", "Device"}
    assert run["page"] == f"runs/{trees.session_id(1)}/{RUN}.html"


@pytest.mark.parametrize(
    ("device", "clocks", "words", "figure"),
    [("cuda", [1980], "1,980 MHz", 1980), ("cuda", [1980, 1410, 1965], "1,410–1,980 MHz", 1965),
     ("cuda", None, "unknown", None), ("cpu", None, None, None)],
)  # fmt: skip
def test_the_clock_of_a_card_is_a_condition(
    tmp_path: Path, device: str, clocks: list[int] | None, words: str | None, figure: int | None
) -> None:
    root = trees.make(tmp_path / "kb")
    runs = root / "sessions" / trees.session_id(1) / "runs"
    record = json.loads((runs / "two.json").read_text())
    del record["digest"]
    record["steps"][3]["result"].update(device=device, sm_clocks_mhz=clocks)
    trees.put(runs / "two.json", trees.sealed(record))
    index = Index(KnowledgeBase(root))
    _, run = called(compare.scripts(index)[at.timings(trees.session_id(1), RUN)])
    told = [one for one in run["conditions"] if one["name"] == "SM clock"]
    wanted = {"name": "SM clock", "value": words, "weighs": True, "figure": figure}
    assert told == ([wanted] if words else [])
    result = benchmark(index.runs[trees.session_id(1), RUN][-1])
    assert result is not None
    shown = html.unescape(timed_beside(result))
    assert (f"<small>SM clock </small><br>{words}" in shown) == bool(words)
    assert ("SM clock" in shown) == bool(words)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_host_conditions_count_only_in_cpu_benchmarks(tmp_path: Path, device: str) -> None:
    root = trees.make(tmp_path / "kb")
    path = root / "sessions" / trees.session_id(1) / "runs" / "two.json"
    record = json.loads(path.read_text())
    del record["digest"]
    record["machine"]["card"] = "a card"
    record["steps"][3]["result"].update(device=device)
    trees.put(path, trees.sealed(record))
    scripts = compare.scripts(Index(KnowledgeBase(root)))
    _, run = called(scripts[at.timings(trees.session_id(1), RUN)])
    weighs = {one["name"]: one["weighs"] for one in run["conditions"]}
    assert weighs["Threads"] == weighs["Processor"] == (device == "cpu")


def test_every_benchmark_of_a_run_counts(tmp_path: Path) -> None:
    root = trees.make(tmp_path / "kb")
    path = root / "sessions" / trees.session_id(1) / "runs" / "two.json"
    run = json.loads(path.read_text())
    again = json.loads(json.dumps(run["steps"][3]))
    again["id"] = "again"
    again["result"]["cases"][0]["case_set"] = "second"
    again["result"]["variants"] = ["words about third"]
    again["result"]["cases"][0]["arms"]["words about third"] = again["result"]["cases"][0]["arms"][
        "words about ours"
    ]
    run["steps"].insert(4, again)
    run["steps"][2]["result"]["cases"].append(
        {**run["steps"][2]["result"]["cases"][0], "variant": "words about third"}
    )
    trees.put(path, trees.sealed({k: v for k, v in run.items() if k != "digest"}))
    index = Index(KnowledgeBase(root))
    assert not index.base.findings
    scripts = compare.scripts(index)
    _, listed = called(scripts[at.COMPARABLE])
    runs = listed["runs"]
    assert runs[0]["arms"] == ["words about ours", "words about third", "words about theirs"]
    _, data = called(scripts[runs[0]["script"]])
    assert [case["set"] for case in data["cases"]] == [None, None, "second", None]


def test_html_in_the_compare_data_is_escaped(tmp_path: Path) -> None:
    for script in compare.scripts(base(tmp_path, trees.attack)).values():
        assert b"<" not in script
        _, value = called(script)
        assert "<script>alert(1)</script>" in json.dumps(value)


def test_the_page_leads_to_every_arm(plain_site: Site) -> None:
    page = plain_site.pages["compare.html"]
    assert "needs JavaScript" in page.text and "too noisy to tell" in page.text
    chosen = [unquote(link) for link in page.links if "#b=" in link]
    assert chosen == [f"#b={RUN}/words about {arm}" for arm in ("ours", "theirs")]
    assert (plain_site.out / "compare-runs.js").is_file()
    assert 'src="assets/compare.js"' in (plain_site.out / "compare.html").read_text()


def test_the_page_lists_the_newest_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = base(tmp_path)
    monkeypatch.setattr(compare, "_LISTED", 0)
    assert "1 older ones; see [all runs](runs/index.md)" in compare.page(index)


def test_without_a_benchmark_the_page_says_so(empty_site: Site) -> None:
    page = empty_site.pages["compare.html"]
    assert "No data because no run in this knowledge base has a benchmark" in page.text
    assert "kb-compare" not in page.ids


@pytest.mark.parametrize("arm", ["x", "a&b=c/d#e", '"><script>', "ä ×"])
def test_a_link_keeps_the_arm(arm: str) -> None:
    link = compare_link("Compare", [RUN], arm, "runs/s/r.md")
    target = re.fullmatch(r'<a href="([^"<>]*)">Compare</a>', link)
    assert target is not None
    address = html.unescape(target[1])
    assert address.startswith("../../compare.html#b=")
    assert "&" not in address and unquote(address.partition("#b=")[2]) == f"{RUN}/{arm}"
