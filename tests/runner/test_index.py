"""The index that ``kbtool search`` answers from: what is kept never answers for a changed file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from knowledge import Knowledge

from kbtool.runner.index import index_of
from kbtool.store import derived

ROOT = Path(__file__).parents[2]
TOOL = """\
id: {tool}
title: {title}
symptoms:
  - {{id: {id}, title: A {word}, match: 'the {word}', example: the {word}, source: s, advice: Wait}}
"""


@pytest.fixture
def base(tmp_path: Path) -> Knowledge:
    made = Knowledge(tmp_path / "base")
    made.pattern(more="tags: [walrus]\n")
    return made


@pytest.fixture(params=["settled", "just written"])
def age(request, monkeypatch) -> str:
    """Whether the cache takes files for long unchanged, or knows that they have just been written.

    The first is the harder: only the stamp of a file tells that it has changed.
    """
    if request.param == "settled":
        monkeypatch.setattr("kbtool.store.cache.SETTLED_NS", -10_000_000_000)
    return str(request.param)


def found(base: Knowledge, words: str) -> list[tuple[str, str]]:
    return [(hit["id"], hit["path"]) for hit in index_of(base.root).search(words)["hits"]]


@pytest.mark.slow
def test_a_change_of_the_same_size_and_time_is_found(base, age):
    path = base.root / "patterns" / "P01.yaml"
    before = path.stat()
    assert found(base, "walrus") == [("P01", "patterns/P01.yaml")]
    path.write_text(path.read_text().replace("walrus", "badger"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert found(base, "walrus") == []
    assert found(base, "badger") == [("P01", "patterns/P01.yaml")]


def test_what_is_added_removed_and_renamed_is_found_and_no_more(base, age):
    assert found(base, "capybara") == []
    base.pattern("P02", more="tags: [capybara]\n")
    path = base.session("2025-01-01-a", "outcome: a capybara\n")
    ids = {"P02": "patterns/P02.yaml", "2025-01-01-a": "sessions/2025-01-01-a/session.yaml"}
    assert dict(found(base, "capybara")) == ids
    (base.root / "patterns" / "P02.yaml").rename(base.root / "patterns" / "P03.yaml")
    path.parent.rename(path.parent.with_name("2025-01-01-b"))
    ids = {"P02": "patterns/P03.yaml", "2025-01-01-a": "sessions/2025-01-01-b/session.yaml"}
    assert dict(found(base, "capybara")) == ids
    (base.root / "patterns" / "P03.yaml").unlink()
    assert list(dict(found(base, "capybara"))) == ["2025-01-01-a"]


def test_files_that_change_places_are_found_in_their_new_ones(base, age):
    base.pattern("P02", more="tags: [badger]\n")
    first, second = (base.root / "patterns" / f"P0{number}.yaml" for number in (1, 2))
    assert found(base, "walrus") == [("P01", "patterns/P01.yaml")]
    other = base.root / "patterns" / "aside"
    first.rename(other)
    second.rename(first)
    other.rename(second)
    assert found(base, "walrus") == [("P01", "patterns/P02.yaml")]
    assert found(base, "badger") == [("P02", "patterns/P01.yaml")]


def test_a_tool_of_ones_own_joins_that_of_kbtool_and_wins(base, age):
    def titles(words: str) -> list[str]:
        return [hit["title"] for hit in index_of(base.root).search(words)["hits"]]

    assert "A walrus" not in titles("walrus")
    whole = titles("ninja")
    path = base.root / "symptoms" / "ninja.yaml"
    path.parent.mkdir()
    path.write_text(TOOL.format(tool="ninja", title="Ninja", id="walrus", word="walrus"))
    assert "A walrus" in titles("walrus")
    assert set(whole) < set(titles("ninja"))
    path.unlink()
    assert titles("ninja") == whole


def test_an_answer_from_the_cache_is_the_same_and_reads_no_file(base, monkeypatch):
    monkeypatch.setattr("kbtool.store.cache.SETTLED_NS", -10_000_000_000)
    base.pattern("P02", more="tags: [walrus, [\n")
    base.session("2025-01-01-a", "outcome: a walrus\n")
    cold = index_of(base.root)
    assert [finding.path for finding in cold.findings] == ["patterns/P02.yaml"]
    monkeypatch.setattr(derived, "_make_part", None)
    warm = index_of(base.root)
    assert warm.search("walrus compiles") == cold.search("walrus compiles")
    assert warm.findings == cold.findings
    assert {name: list(texts) for name, texts in cold.demanded.items()} == warm.demanded


def test_what_is_made_of_the_catalogue_of_kbtool_is_kept_by_the_knowledge_base(base):
    index_of(base.root)
    assert (base.root / ".kbtool" / "cache" / "words-packaged.json").is_file()


SEARCH = """\
import sys
import kbtool.store.cache
from kbtool.cli.main import run
kbtool.store.cache.SETTLED_NS = -10_000_000_000
status = run(["--root", sys.argv[1], "search", "--json", "walrus"])
print(status, sorted({"pydantic", "yaml", "git"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.slow
def test_a_search_from_the_cache_imports_no_model(base):
    command = [sys.executable, "-c", SEARCH, str(base.root)]
    cold, warm = (
        subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        for _ in range(2)
    )
    assert cold.stdout == warm.stdout
    assert cold.stderr == "0 ['pydantic', 'yaml']\n"
    assert warm.stderr == "0 []\n"
