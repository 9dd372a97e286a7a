"""What programs read of a site: JSON twins and their index, the feed, llms.txt."""

from __future__ import annotations

import copy
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import site_trees as trees
from site_html import Site
from test_site_kernel import LARGE, NEW, make

from kbtool.model.json_schema import json_schema
from kbtool.model.twin import Answers
from kbtool.site import addresses as at
from kbtool.site.feeds import feed as feed_module
from kbtool.site.feeds.answers import answers
from kbtool.site.feeds.feed import Place, feed
from kbtool.site.feeds.llms import MOST_BYTES, llms, llms_full
from kbtool.site.feeds.twins import files
from kbtool.site.html.tree import source_files
from kbtool.site.index import Index
from kbtool.store.tree import KnowledgeBase

ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture(params=[trees.plain, trees.attack], ids=["plain", "hostile"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    return Index(KnowledgeBase(trees.make(tmp_path / "kb", request.param, sessions=3)))


def twins(index: Index) -> dict[str, Any]:
    return {path: json.loads(content) for path, content in files(index).items()}


def test_every_record_page_has_a_twin_and_the_index_has_all(index: Index) -> None:
    made = twins(index)
    listed = made.pop("index.json")["records"]
    assert {at.twin(page) for page in index.titles} == set(made)
    assert {line["kind"] for line in listed} == {
        "session", "pattern", "kernel", "bug", "recipe", "run",
    }  # fmt: skip
    for line in listed:
        assert {name: made[line["twin"]][name] for name in line} == line
        assert line["page"] == line["twin"].removesuffix(".json") + ".html"


def test_twins_are_as_their_schema_says(index: Index) -> None:
    validator = jsonschema.Draft202012Validator(json_schema("twin"))
    for path, twin in twins(index).items():
        assert [error.message for error in validator.iter_errors(twin)] == [], path


def test_a_twin_has_the_record_and_what_follows_from_it(tmp_path: Path) -> None:
    index = Index(KnowledgeBase(trees.make(tmp_path / "kb", sessions=3)))
    made = twins(index)
    first, second, last = (trees.session_id(number) for number in range(3))
    session = made[f"sessions/{first}.json"]
    assert session["record"] == json.loads(index.sessions[first].model_dump_json())
    assert session["title"] == "words about label 0: words about title"
    assert session["derived"]["totals"] == [
        {"currency": "USD", "minutes": "60", "gpu": "0.35", "ai": None, "engineer": None,
         "other": None, "total": "0.35", "unknown": ["ai", "engineer"], "gpu_estimated": False}
    ]  # fmt: skip
    graded = {one["where"]: one["grade"] for one in session["derived"]["claims"]}
    assert graded == {item.where: item.grade for item in index.audit.items if item.record == first}
    assert session["derived"]["followed_by"] == [second]
    assert {"page": f"sessions/{second}.html", "why": "next session"} in session["mentioned_by"]
    run = index.runs_of()[0]
    assert made[f"sessions/{last}.json"]["derived"]["runs"] == [run.id]
    twin = made[at.twin(at.run_page(last, run.id))]
    assert twin["record"] == json.loads(run.model_dump_json())
    assert twin["derived"]["attempts"] == 2 and twin["status"] == "passed"
    pattern = made["patterns/P01.json"]
    assert pattern["status"] == pattern["derived"]["standing"] == "superseded"
    assert pattern["derived"]["superseded_by"] == ["P02"]
    assert pattern["derived"]["verdicts"]["proved"] == 3
    bug = made[f"bugs/{first}/nan.json"]
    assert bug["derived"] == {
        "session": first, "status": "fixed", "open": False, "fixed_in": [first, second, last],
        "met_again": [f"{second}#bugs.nan", f"{last}#bugs.nan"],
    }  # fmt: skip


def test_answers_have_each_measured_case_and_its_best_peer(tmp_path: Path) -> None:
    loud = copy.deepcopy(LARGE) | {"id": "20251121T101016Z-copy"}
    loud["steps"][2]["result"] |= {"others_busy": 0.5}
    loud["steps"][2]["result"]["cases"][0]["case_set"] = "loud"
    make(tmp_path / "kb", NEW, LARGE, loud)
    index = Index(KnowledgeBase(tmp_path / "kb"))
    every = json.loads(answers(index))
    validator = jsonschema.Draft202012Validator(json_schema("twin"))
    assert [error.message for error in validator.iter_errors(every)] == []
    told = {one["case_set"]: one for one in every["results"]}
    assert told.keys() == {"small", "large"}  # a noisy run answers nothing
    small = told["small"]
    stated = ("name", "case", "us", "between_us", "best_peer", "ratio")
    assert [[case.get(name) for name in stated] for case in small["cases"]] == [
        ["s float32", {}, 5, None, "base", pytest.approx(2)],
        ["s float16", {}, 5, None, "base", pytest.approx(8)],
    ]
    first = small["cases"][0]["arms"]["base"]
    assert (first["own"], first["us"], first["ratio"]) == (False, 10, pytest.approx(2))
    assert first["ratio_low"] < first["ratio"] < first["ratio_high"]
    assert every["fields"]["copy"][0]["name"] == "S" and "distance" in every["rule"]
    assert (small["measure"], small["mean"], small["least"], small["lost"]) == (
        "chain", pytest.approx(4), pytest.approx(2), 0,
    )  # fmt: skip
    assert told["large"]["lost"] == 1 and told["large"]["against"] == "base, the only peer timed"
    assert told["large"]["commands"][-1] == "kbtool run-recipe copy --set seed=13"
    twin = json.loads(files(index)["kernels/copy.json"])["derived"]
    by_name = Answers.model_validate(every).model_dump(mode="json")["results"]  # null is put in
    assert twin["results"] == by_name
    assert "4.00 times the speed of the best peer in Small (2.00 to 8.00)" in twin["verdict"]
    short = llms(index, Place("x", None))
    assert re.findall(r"\]\(([^)]*)\)", short)[0] == at.ANSWERS
    assert "`kbtool fastest KERNEL --set FIELD=VALUE --json`" in short


def test_a_page_leads_to_its_twin(plain_site: Site, hostile_site: Site) -> None:
    for site in (plain_site, hostile_site):
        for line in json.loads((site.out / "index.json").read_text())["records"]:
            name = line["twin"].rpartition("/")[2]
            assert json.loads((site.out / line["twin"]).read_text())["id"] == line["id"]
            assert name in site.pages[line["page"]].links
            head = (site.out / line["page"]).read_text().partition("</head>")[0]
            assert f'<link rel="alternate " type="application/json" href="{name}">' in head
    assert 'type="application/atom+xml"' in (plain_site.out / "index.html").read_text()


def parsed(index: Index) -> ElementTree.Element:
    return ElementTree.fromstring(feed(index, Place("Notes", None)))


def test_the_feed_is_atom(index: Index) -> None:
    root = parsed(index)
    assert root.tag == f"{ATOM}feed"
    entries = root.findall(f"{ATOM}entry")
    assert len(entries) == 4
    for node in (root, *entries):
        for name in ("id", "title", "updated"):
            assert len(node.findall(f"{ATOM}{name}")) == 1
        assert (node.findtext(f"{ATOM}id") or "").startswith("urn:uuid:")
    assert root.find(f"{ATOM}author/{ATOM}name") is not None
    assert len({entry.findtext(f"{ATOM}id") for entry in entries}) == 4
    times = [datetime.fromisoformat(entry.findtext(f"{ATOM}updated") or "") for entry in entries]
    assert times == sorted(times, reverse=True)
    assert root.findtext(f"{ATOM}updated") == entries[0].findtext(f"{ATOM}updated")
    # The run's own end, not the time of the build.
    assert entries[0].findtext(f"{ATOM}updated") == "2025-11-21T10:11:10Z"
    pages = {at.published(page) for page in index.titles}
    links = [link for entry in entries for link in entry.findall(f"{ATOM}link")]
    assert {link.get("href") for link in links if link.get("rel") == "alternate"} <= pages


def test_the_feed_is_the_same_for_the_same_records(index: Index) -> None:
    again = Index(KnowledgeBase(index.base.root))
    assert feed(index, Place("x", None)) == feed(again, Place("x", None))


def test_the_feed_has_the_newest(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "ENTRIES", 1)
    (entry,) = parsed(index).findall(f"{ATOM}entry")
    category = entry.find(f"{ATOM}category")
    assert category is not None and category.get("term") == "run"


def test_a_published_site_has_whole_addresses(tmp_path: Path) -> None:
    root = trees.make(tmp_path / "kb")
    (root / "mkdocs.yml").write_text(
        "site_name: Our kernels\nsite_url: https://notes.example/kb\n"
        "extra: {x: !!python/name:material.x ''}\n"
    )
    made = source_files(KnowledgeBase(root))
    node = ElementTree.fromstring(made["feed.xml"])
    assert node.findtext(f"{ATOM}title") == "Our kernels"
    hrefs = {str(link.get("href")) for link in node.iter(f"{ATOM}link")}
    assert all(href.startswith("https://notes.example/kb/") for href in hrefs)
    assert made["llms.txt"].startswith(b"# Our kernels\n\n> ")
    assert b"](https://notes.example/kb/patterns/P01.json)" in made["llms.txt"]


def test_settings_that_do_not_load_are_left_to_mkdocs(tmp_path: Path) -> None:
    root = trees.make(tmp_path / "kb")
    (root / "mkdocs.yml").write_text("site_name: [")
    assert source_files(KnowledgeBase(root))["llms.txt"].startswith(b"# kbtool\n")


def test_a_session_without_a_date_is_not_in_the_feed(tmp_path: Path) -> None:
    root = trees.make(tmp_path / "kb", sessions=1)
    folder = root / "sessions" / trees.session_id(0)
    record = json.loads((folder / "session.yaml").read_text())
    for name in ("started", "ended"):
        del record[name]
    (folder / "session.yaml").write_text(json.dumps({**record, "id": "undated-x"}))
    folder.rename(root / "sessions" / "undated-x")
    made = parsed(Index(KnowledgeBase(root)))
    terms = [node.get("term") for node in made.iter(f"{ATOM}category")]
    assert "session" not in terms


def test_an_empty_feed_is_valid(tmp_path: Path) -> None:
    root = parsed(Index(KnowledgeBase(trees.empty(tmp_path / "kb"))))
    assert root.findtext(f"{ATOM}updated") == "1970-01-01T00:00:00Z"
    assert not root.findall(f"{ATOM}entry")


@pytest.mark.slow
def test_llms_links_lead_to_files(index: Index) -> None:
    made = source_files(index.base)
    lines = made["llms.txt"].decode().splitlines()
    items = [line for line in lines if line.startswith("- ")]
    targets = [line.rpartition("](")[2].partition(")")[0] for line in items if "](" in line]
    assert len(targets) == len(items) > 5
    assert [line for line in lines if line.startswith("## ")] == [
        "## Latest results", "## Running or paused", "## Open bugs", "## How to run",
        "## Kernels", "## Newest sessions", "## Newest runs",
        "## Patterns, the best proved first", "## Optional",
    ]  # fmt: skip


def test_llms_begins_with_what_is_current(real_site: Any) -> None:
    text = (real_site.out / "llms.txt").read_text()
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles[0] == "## Latest results"
    assert titles.index("## Open bugs") < titles.index("## Newest sessions")
    assert "best peer's time ÷ ours: between plain kernels " in text
    assert len(text.encode()) < MOST_BYTES
    assert (real_site.out / "llms-full.txt").stat().st_size > 3 * MOST_BYTES


def test_llms_has_the_newest_sessions_first_and_stays_short(tmp_path: Path) -> None:
    index = Index(KnowledgeBase(trees.make(tmp_path / "kb", trees.attack, sessions=40)))
    for place in (Place("x", None), Place("x", f"https://notes.example/{'long/' * 30}")):
        short, full = llms(index, place), llms_full(index, place)
        assert len(short.encode()) < MOST_BYTES
        sessions = [line for line in short.splitlines() if "sessions/" in line]
        assert sessions and trees.session_id(0) not in sessions[0]
        assert trees.session_id(0) not in short and trees.session_id(0) in full
        assert all(session.id in full for session in index.sessions.values())


def test_llms_says_what_the_records_say(tmp_path: Path) -> None:
    index = Index(KnowledgeBase(trees.make(tmp_path / "kb", sessions=1)))
    made = source_files(index.base)
    text = llms(index, Place("x", None))
    assert "- [P01 words about pattern](patterns/P01.json): words about summary\n" in text
    targets = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert targets and set(targets) <= set(made)
