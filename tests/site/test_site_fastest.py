"""The page that says what is fastest for a shape: its tables, and what its form loads."""

from __future__ import annotations

import copy
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import site_trees as trees
from test_site_compare import called
from test_site_kernel import LARGE, NEW, make, plain

from kbtool.site import addresses as at
from kbtool.site.feeds.answers import answers, scripts
from kbtool.site.index import Index
from kbtool.store.tree import KnowledgeBase

PAGE = at.topic_page("copy", "fastest")


def sized(record: dict[str, Any]) -> dict[str, Any]:
    """The run with a size in each case."""
    made = copy.deepcopy(record)
    for number, case in enumerate(made["steps"][2]["result"]["cases"], 1):
        case["case"] = {"S": 64 * number, "dtype": "float32"}
    return made


def test_each_measured_case_is_in_the_table_of_its_machine(tmp_path: Path) -> None:
    """Of a shape timed twice the newest run answers; the range is that of the quartiles."""
    older = copy.deepcopy(sized(NEW)) | {"id": "20251121T101011Z-copy"}
    older["started"] = "2025-11-20T10:10:11Z"
    older["steps"][2]["result"]["cases"][0]["case_set"] = "large"
    made = make(tmp_path / "kb", sized(NEW), older)[PAGE]
    rows = [
        [" ".join(plain(cell).split()) for cell in unescape(line).strip("|").split(" | ")]
        for line in made.splitlines()
        if line.startswith("|") and "ours" in line.lower()
    ]
    assert rows[1:] == [
        ["s float32", "cuda", "ours", "5.00", "5.00", "2.00 1.81–2.21, base", "in a chain"],
        ["s float16", "cuda", "ours", "5.00", "5.00", "8.00 7.24–8.84, base", "in a chain"],
    ]
    assert f'data-measured="{at.relative(at.measured_script("copy"), PAGE)}"' in unescape(made)


def test_the_script_has_the_same_as_answers(tmp_path: Path) -> None:
    make(tmp_path / "kb", sized(NEW), sized(LARGE))
    index = Index(KnowledgeBase(tmp_path / "kb"))
    every = json.loads(answers(index))
    name, data = called(scripts(index)[at.measured_script("copy")])
    assert (name, data["kernel"], data["rule"]) == ("kbtoolMeasured", "copy", every["rule"])
    assert data["fields"] == every["fields"]
    assert data["results"] == every["results"]
    full = [case.model_dump(mode="json") for of in index.measured["copy"] for case in of.cases]
    known = {field["name"]: field["default"] for field in data["fields"]["copy"]}
    short = [case for of in data["results"] for case in of["cases"]]
    for one, other in zip(short, full, strict=True):
        assert {**known, **one.pop("case")} == {**known, **other.pop("case")}
        assert _without_null(other) == one
    assert all(
        (tmp_path / "kb").exists() and page.endswith(".html") for page in data["pages"].values()
    )
    assert set(data["pages"]) == {run for one in every["results"] for run in one["runs"]}


def test_names_of_implementations_are_explained_beside_their_times(tmp_path: Path) -> None:
    made = make(tmp_path / "kb", sized(NEW), sized(LARGE))
    topics = [at.topic_page("copy", name) for name in ("results", "charts")]
    run = next(page for page in made if NEW["id"] in page)
    for page in (PAGE, at.kernel_page("copy"), *topics, run):
        assert "<code>base</code>: what came <b>before</b>" in unescape(made[page]), page
        assert "was not timed" not in made[page]
    script = scripts(Index(KnowledgeBase(tmp_path / "kb")))[at.measured_script("copy")]
    data = called(script)[1]
    assert data["implementations"]["base"] == "what came <b>before</b>"


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_null(one) for name, one in value.items() if one is not None}
    return value


def test_a_field_that_differs_from_its_default_stays_even_if_it_is_null(tmp_path: Path) -> None:
    run = sized(NEW)
    run["steps"][2]["result"]["cases"][0]["case"] = {"S": None, "dtype": "float32"}
    make(tmp_path / "kb", run)
    _, data = called(scripts(Index(KnowledgeBase(tmp_path / "kb")))[at.measured_script("copy")])
    assert {"S": None} in [case["case"] for of in data["results"] for case in of["cases"]]


def test_a_kernel_that_nobody_timed_says_so(tmp_path: Path) -> None:
    assert "No data because no quiet run timed it." in make(tmp_path / "kb")[PAGE]


def test_an_attack_in_a_record_stays_text(tmp_path: Path) -> None:
    index = Index(KnowledgeBase(trees.make(tmp_path / "kb", trees.attack)))
    for script in scripts(index).values():
        assert b"<" not in script


def test_home_leads_to_it_and_so_does_the_kernel(tmp_path: Path) -> None:
    made = make(tmp_path / "kb", NEW)
    assert re.search(rf"\[Fastest for your shape\]\({PAGE}\)", made[at.HOME])
    assert "[Fastest for your shape](copy/fastest.md)" in made[at.kernel_page("copy")]
    bare = make(tmp_path / "bare")
    assert "Fastest for your shape" not in bare[at.HOME]
