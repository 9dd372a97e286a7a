"""The home page and the page of a kernel show the same headline, from ``ledger.headline``."""

from __future__ import annotations

import copy
import json
import re
from html import unescape
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest
from test_site_kernel import make, plain, run

from kbtool.ledger.headline import COLUMNS, headlines, verdict
from kbtool.ledger.measured import groups
from kbtool.model.words import significant
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import home
from kbtool.site.pages import kernel as kernel_page
from kbtool.store.tree import KnowledgeBase

HEADLINE_RUNS = ("20261123T233642Z-peers-ed1d", "20261123T233242Z-peers-a67c")
REPOSITORY = Path(__file__).parents[2]


def standings(page: str) -> list[list[str]]:
    """The cells of every row of the tables of headlines, as text."""
    found: list[list[str]] = []
    inside = False
    for line in unescape(page).splitlines():
        cells = [plain(cell).strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            inside = False
        elif COLUMNS[-1] in cells:
            inside, first = True, cells.index(COLUMNS[0])
        elif inside and not line.startswith("| -"):
            found.append(cells[first : first + len(COLUMNS)])
    return found


def of_commit(number: int, commit: str, **arms: dict[str, float]) -> dict[str, Any]:
    """A run of a commit; dtype → arm → µs."""
    names = {f"s {dtype}": times for dtype, times in arms.items()}
    made = copy.deepcopy(run(number, names, "H1", case_set="small"))
    made["repository"] |= {"commit": commit * 40, "dirty": False}
    for case in made["steps"][2]["result"]["cases"]:
        case["case"] = {"dtype": case["name"].removeprefix("s ")}
    return made


def test_home_and_kernel_page_show_the_best_peer_of_the_commit_by_dtype(tmp_path: Path) -> None:
    """As they were: 2.98 by the newest run, which left the fastest peer out, fp16 mixed in."""
    before = of_commit(11, "a", float32={"ours": 10, "base": 40, "fa3": 11.1},
                       float16={"ours": 10, "base": 80})  # fmt: skip
    newest = of_commit(13, "a", float32={"ours": 10, "base": 40, "flex": 29.8},
                       float16={"ours": 10, "base": 80})  # fmt: skip
    pages = make(tmp_path / "kb", before, newest)
    told = [
        ["not measured", "1.11 least 1.11; 0 of 1 lost", "best of base, flex and fa3"],
        ["not measured", "8.00 least 8.00; 0 of 1 lost",
         "base, the only peer timed; float16: no flex and fa3"],
    ]  # fmt: skip
    assert standings(pages[at.HOME]) == told
    assert standings(pages[at.topic_page("copy", "results")]) == told
    later = make(tmp_path / "later", before, of_commit(15, "b", float32={"ours": 10, "base": 10.2}))
    for page in (at.HOME, at.topic_page("copy", "results")):
        assert ["not measured", "1.02 least 1.02; 0 of 1 lost",
                "only base; fa3 not timed on this build"] in standings(later[page])  # fmt: skip


def test_the_verdict_lacks_no_peer_and_names_the_losses_of_other_builds(tmp_path: Path) -> None:
    """As it was: 3.51 times the best peer, in float16 without fa3; 1.08 beside it in bfloat16."""
    more = of_commit(11, "a", float32={"ours": 10, "base": 40, "fa3": 11.1},
                     float16={"ours": 10, "base": 40, "flex": 70, "cudnn": 60})  # fmt: skip
    lost = of_commit(13, "b", float32={"ours": 10, "base": 7})
    lost["steps"][2]["result"]["cases"][0]["case_set"] = "large"
    shown = plain(unescape(make(tmp_path / "kb", more, lost)[at.HOME]))
    assert (
        "Copy, H1, float32, in a chain of its own calls: 1.11 times the speed of the best peer in"
        " Small (1.11 to 1.11)."
    ) in shown
    assert (
        "Peers: base and fa3; float32: no flex and cudnn. Measured on 2025-11-21 at commit"
        " aaaaaaaa. 1 other case set, of other builds or on other machines: 0.700 in Large."
    ) in shown


@pytest.mark.slow
def test_home_and_kernel_page_show_the_repositorys_runs_by_the_same_rule() -> None:
    index = Index(KnowledgeBase(REPOSITORY))
    expected = []
    for kernel in index.kernels.values():
        ruled = [
            [
                *(
                    " ".join(filter(None, one.mean_and_spread(between=between)))
                    for between in (True, False)
                ),
                one.against,
            ]
            for every in groups(index.runs_of(kernel=kernel.id), kernel).values()
            for one in headlines(every)
            if not one.newest.noise_reason
        ]  # fmt: skip
        (topic,) = (topic for topic in kernel_page.TOPICS if topic.name == "results")
        shown = kernel_page.topic_page(index, kernel, topic)
        assert standings(shown) == ruled
        expected += ruled
    shown = standings(home.page(index, None))
    assert len(shown) == home.RESULTS < len(expected)
    assert all(cells in expected for cells in shown)


@pytest.mark.slow
def test_two_runs_of_one_commit_give_one_headline_by_dtype() -> None:
    """The page said 2.98 × the best peer: from one of two runs, and from both dtypes."""
    index = Index(KnowledgeBase(REPOSITORY))
    kernel = index.kernels["split_k_attention"]
    runs = [run for run in index.runs_of(kernel=kernel.id) if run.id in HEADLINE_RUNS]
    (every,) = groups(runs, kernel).values()
    told = {(one.newest.case_set, one.newest.dtype): one for one in headlines(every)}
    bf16, fp16 = (told["few_queries", dtype] for dtype in ("bfloat16", "float16"))
    assert [bf16.mean_and_spread(between=between) for between in (True, False)] == [
        ("1.06", "least 0.995; 1 of 7 lost"), ("1.11", "least 1.03; 0 of 7 lost"),
    ]  # fmt: skip
    assert bf16.against == "best of sdpa, flex, cudnn, fa3 and flashinfer"
    assert fp16.against == "best of sdpa, flex, cudnn and flashinfer; float16: no fa3"


def files_of(run: dict[str, Any]) -> dict[str, str]:
    """What a run compiled and what it read beside it, but for the manifest: file → SHA-256."""
    found = {}
    for step in run["steps"]:
        found |= (step.get("result") or {}).get("sources") or {}
    identity = run.get("identity") or {}
    for part in ("problem", "solution"):
        found |= identity.get(part) or {}
    return {file: of for file, of in found.items() if not file.endswith("kernel.yaml")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["split_k_attention", "split_k_gemm"])
def test_the_verdict_is_what_its_runs_say(name: str) -> None:
    """Computed again from the files of the runs: without the rule's own code."""
    index = Index(KnowledgeBase(REPOSITORY))
    assert set(index.verdicts) == {"split_k_attention", "split_k_gemm"}
    kernel = index.kernels[name]
    found = verdict(groups(index.runs_of(kernel=kernel.id), kernel))
    assert found is not None and found.between
    newest = max((one.newest.run for one in found.headlines), key=lambda of: of.started)
    commit = newest.repository.commit
    assert commit
    sources = files_of(json.loads(newest.model_dump_json()))
    ratios: dict[str, dict[str, dict[str, list[float]]]] = {}
    last: dict[str, tuple[str, bool]] = {}
    """Case set → when a quiet run of the machine timed it last, and whether of these sources."""
    for path in (REPOSITORY / "sessions").glob("*/runs/*.json"):
        run = json.loads(path.read_text())
        state = run["repository"]
        if run["kernel"] != kernel.id or run["machine"]["card"] != found.machine.name:
            continue
        for step in run["steps"]:
            result = step.get("result") or {}
            if result.get("type") != "benchmark" or step["status"] == "noisy":
                continue
            ours = {result["subject"], *result.get("variants", ()), *kernel.own_calls}
            read = files_of(run)
            shared = read.keys() & sources.keys()
            same = not state["dirty"] and all(read[file] == sources[file] for file in shared)
            for case in result["cases"]:
                if "case_set" not in case or case["case"].get("dtype") != found.dtype:
                    continue
                last[case["case_set"]] = max(
                    last.get(case["case_set"], ("", False)), (run["started"], same)
                )
                if not same:
                    continue
                right = {arm for arm, out in (case.get("peers") or {}).items() if out["passed"]} | (
                    case["arms"].keys() - (case.get("peers") or {}).keys()
                )
                mine = case["arms"].get(result["subject"], {}).get("between_us")
                for arm in right - ours:
                    theirs = case["arms"][arm].get("between_us")
                    if mine and theirs:
                        cases = ratios.setdefault(case["case_set"], {})
                        cases.setdefault(case["name"], {}).setdefault(arm, []).append(theirs / mine)
    best = {
        case_set: [
            min(geometric_mean(times) for times in peers.values()) for peers in cases.values()
        ]
        for case_set, cases in ratios.items()
        if last[case_set][1]
    }
    told = {
        one.newest.case_set: (one.leading.mean, one.leading.least, one.leading.most)
        for one in found.headlines
        if one.leading
    }
    assert told.keys() == best.keys()
    for case_set, values in best.items():
        expected = (geometric_mean(values), min(values), max(values))
        assert told[case_set] == pytest.approx(expected), case_set
    assert not any(one.not_taken for one in found.headlines)
    text = found.stands(kernel.title)
    commits = [
        one.newest.run.repository.commit[:8]
        for one in sorted(found.headlines, key=lambda one: one.newest.run.started, reverse=True)
    ]
    assert commits[0] == commit[:8]
    named = re.search(r" at commits? ([0-9a-f, and]+?)(, of the same build)?\.", found.scope)
    assert named is not None
    assert re.findall(r"[0-9a-f]{8}", named[1]) == list(dict.fromkeys(commits))
    assert bool(named[2]) == (len(set(commits)) > 1)
    for part in (text, found.scope):
        assert part in unescape(kernel_page.page(index, kernel))
        assert part in unescape(home.page(index, None))
    for mean, least, most in told.values():
        assert f"{significant(mean)} " in text
        assert f"({significant(least)} to {significant(most)})" in text
