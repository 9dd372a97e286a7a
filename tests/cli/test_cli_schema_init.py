"""``kbtool schema`` and ``kbtool init``; the schemas as an editor uses them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from knowledge import KERNEL, PATTERN, RECIPE, SESSION

from kbtool.model.json_schema import MODELS, json_schema
from kbtool.store.document import parse

REPOSITORY = Path(__file__).parents[2]
RECORDS = [
    (kind, path)
    for kind, pattern in (
        ("session", "sessions/*/session.yaml"),
        ("pattern", "patterns/*.yaml"),
        ("kernel", "kernels/*/kernel.yaml"),
        ("ledger", "sessions/ledger.yaml"),
        ("pattern", "tests/fixtures/patterns/*.yaml"),
        ("kernel", "tests/fixtures/kernels/*/kernel.yaml"),
    )
    for path in sorted(REPOSITORY.glob(pattern))
]


def as_an_editor_reads(text: str) -> Any:
    """YAML with its own types: numbers, booleans; times as text, as YAML 1.2 has them."""

    def plain(node: Any) -> Any:
        if isinstance(node, dict):
            return {str(key): plain(value) for key, value in node.items()}
        if isinstance(node, list):
            return [plain(item) for item in node]
        if isinstance(node, (datetime.date, datetime.datetime)):
            return node.isoformat()
        return node

    return plain(yaml.safe_load(text))


def problems(kind: str, data: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(json_schema(kind))
    return [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message[:120]}"
        for error in validator.iter_errors(data)
    ]


@pytest.mark.parametrize(("kind", "path"), RECORDS, ids=lambda item: str(item)[-40:])
def test_every_record_of_this_repository_passes_in_an_editor(kind, path):
    text = path.read_text(encoding="utf-8")
    assert problems(kind, as_an_editor_reads(text)) == []
    assert problems(kind, parse(text.encode(), "x").data) == []  # and with all values quoted


@pytest.mark.parametrize("kind", MODELS)
def test_they_are_schemas(kind):
    jsonschema.Draft202012Validator.check_schema(json_schema(kind))


@pytest.mark.parametrize(
    "more",
    [
        "environment: {torch: 2.4, nvcc: 12, python: 3.10}\n",
        "repository: {commit: 0012345, dirty: false}\n",
        "repository: {commit: 7e12345, dirty: 'true'}\n",
        "label: 7\n",
        "title: true\n",
        "costs: [{kind: gpu, amount: 0.40, basis: billed}, {kind: ai, amount: 1, basis: billed}]\n",
        "duration: 25 min\nended: null\nunknown: {ended: true}\n",
        "commits: [{id: 1, sha: 1234567, insertions: 5, deletions: '7'}]\n",
    ],
)
def test_what_yaml_takes_for_something_else_is_let_through(more):
    assert problems("session", as_an_editor_reads(_session(more))) == []


@pytest.mark.parametrize(
    "more",
    [
        "objectve: x\n",
        "status: done\n",
        "costs: [{kind: rent, amount: 1, basis: billed}]\n",
        "costs: [{kind: gpu, amount: 1}]\n",
        "follows: N+2\n",
        "duration: soon\n",
        "tags: a\n",
    ],
)
def test_what_kbtool_refuses_the_editor_marks_too(more):
    assert problems("session", as_an_editor_reads(_session(more)))


def _session(more: str) -> str:
    text = SESSION.format(id="2025-01-01-a", label="A")
    keys = {line.split(":")[0] for line in more.splitlines()}
    return (
        "".join(f"{line}\n" for line in text.splitlines() if line.split(":")[0] not in keys) + more
    )


def test_a_step_may_hold_a_parameter_in_any_place():
    bench = (
        "      - {id: b, kind: benchmark, title: B, expected: '${t}', timeout: '${t}',"
        " case_sets: small, samples: '${n}'}\n"
    )
    text = PATTERN.format(id="P01") + RECIPE + bench
    assert problems("pattern", as_an_editor_reads(text)) == []
    assert problems("pattern", as_an_editor_reads(text.replace("samples", "sample")))
    assert problems("kernel", as_an_editor_reads(KERNEL)) == []


def test_the_schemas_in_the_repository_are_fresh(kbtool):
    done = kbtool("schema", "--check", root=REPOSITORY)
    assert (done.code, done.out) == (0, "")


def test_schema_writes_prints_and_checks(base, kbtool, tmp_path):
    assert kbtool("schema", "--check", root=base.root).code == 1
    done = kbtool("schema", root=base.root)
    assert done.code == 0
    assert len(done.out.splitlines()) == len(MODELS)
    assert kbtool("schema", "--check", root=base.root).code == 0
    assert kbtool("schema", root=base.root).out == ""
    path = base.root / "schemas/session.json"
    path.write_text(path.read_text() + " ")
    stale = kbtool("schema", "--check", root=base.root)
    assert (stale.code, stale.out) == (1, f"{path} is stale\n")
    printed = json.loads(kbtool("schema", "session").out)  # needs no knowledge base
    assert printed == json_schema("session")
    assert kbtool("schema", "--out", str(tmp_path / "x/y")).code == 0
    assert {p.stem for p in (tmp_path / "x/y").iterdir()} == set(MODELS)
    assert kbtool("schema", "session", "--check", root=base.root).code == 2
    assert kbtool("schema", "none", root=base.root).code == 2


def test_init_makes_a_knowledge_base_that_passes(kbtool, tmp_path):
    root = tmp_path / "new one"
    assert kbtool("init", str(root)).code == 0
    for command in (["check"], ["schema", "--check"], ["costs"], ["recipes"], ["session", "list"]):
        assert kbtool(*command, root=root).code == 0, command
    assert kbtool("session", "new", "First", root=root).code == 0
    assert kbtool("run-recipe", "look", root=root).code == 0
    done = kbtool("check", root=root)
    assert (done.code, done.out) == (0, "")
    assert "1 run:" in done.err


def test_the_example_of_a_ledger_is_one(kbtool, tmp_path):
    """With the marks of its comments taken away it is sound, and its rates can be used."""
    root = tmp_path / "new"
    kbtool("init", str(root))
    path = root / "sessions" / "ledger.yaml"
    lines = path.read_text().replace("rates: []\n", "").splitlines()
    keys = ("# rates:", "# budgets:", "# keep_or_stop:", "#   ")
    shown = [line[2:] if line.startswith(keys) else line for line in lines]
    path.write_text("\n".join(shown) + "\n")
    checked = kbtool("check", root=root)
    assert checked.code == 0, checked.out
    assert problems("ledger", as_an_editor_reads(path.read_text())) == []
    answer = json.loads(kbtool("keep-or-stop", "--idle", "1 h", "--json", root=root).out)
    assert answer["inputs"]["people"]["low"] == "50.8"


def test_init_leaves_what_is_there(kbtool, tmp_path):
    root = tmp_path / "old"
    (root / "patterns").mkdir(parents=True)
    (root / "patterns/P07.yaml").write_text("mine")
    (root / "README.md").write_text("mine")
    assert kbtool("init", str(root)).code == 0
    assert (root / "README.md").read_text() == "mine"
    assert [p.name for p in (root / "patterns").iterdir()] == ["P07.yaml"]
    again = kbtool("init", str(root))
    assert (again.code, again.out) == (0, "")
    assert "nothing to do" in again.err
    (tmp_path / "file").write_text("")
    assert kbtool("init", str(tmp_path / "file")).code == 2


def test_the_example_passes_in_an_editor(kbtool, tmp_path):
    kbtool("init", str(tmp_path / "new"))
    (example,) = (tmp_path / "new/patterns").iterdir()
    assert problems("pattern", as_an_editor_reads(example.read_text())) == []
