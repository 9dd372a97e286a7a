"""``kbtool schema`` and ``kbtool init``; the schemas as an editor uses them."""

from __future__ import annotations

import ast
import datetime
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from commands import assert_passed_or_noisy
from knowledge import KERNEL, PATTERN, RECIPE, SESSION

from kbtool.gpu import harness
from kbtool.model.json_schema import MODELS, json_schema
from kbtool.model.run import Run
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


@pytest.mark.slow
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
    text = PATTERN.format(id="P01", number=1) + RECIPE + bench
    assert problems("pattern", as_an_editor_reads(text)) == []
    assert problems("pattern", as_an_editor_reads(text.replace("samples", "sample")))
    assert problems("kernel", as_an_editor_reads(KERNEL)) == []


def test_the_schemas_in_the_repository_are_fresh(kbtool):
    done = kbtool("schema", "--check", root=REPOSITORY)
    assert (done.code, done.out) == (0, "")


@pytest.mark.slow
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


@pytest.mark.slow
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


# ---- the guide's page on attaching a kernel ----

PAGE = (REPOSITORY / "docs" / "guide" / "attach.md").read_text(encoding="utf-8")
SHOWN = dict(re.findall(r"`([\w/.-]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
FIXTURE = REPOSITORY / "tests" / "fixtures" / "kernels" / "scaled_add"


@pytest.mark.parametrize("made_by", ["init", "this repository"])
def test_git_ignores_what_is_no_record(kbtool, tmp_path, made_by):
    if made_by == "init":
        kbtool("init", str(tmp_path))
    else:
        shutil.copy(REPOSITORY / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    ignored = [
        ".kbtool/build/a.so", "site/index.html", "patterns/.P01.yaml.abcdefgh.tmp",
        "sessions/.2025-01-01-a.abcdefgh.tmp/session.yaml", "sessions/a/runs/.a.journal",
        *([] if made_by == "init" else [".coverage.host.1.abc"]),
    ]  # fmt: skip
    asked = [*ignored, "sessions/a/session.yaml", "sessions/a/runs/a.json"]
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", *asked],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ignored


def test_the_guide_shows_the_kernel_that_the_tests_attach():
    def parts(harness: str) -> list[str]:
        """All but its docstring, and what it moves, of which the tests take a twelfth."""
        nodes = ast.parse(harness).body[1:]
        return [ast.dump(node) for node in nodes if getattr(node, "name", "") != "work"]

    kernel = {path.name: path.read_text(encoding="utf-8") for path in FIXTURE.iterdir()}
    shown = {name: SHOWN[f"kernels/scaled_add/{name}"] for name in kernel}
    assert parts(shown.pop("harness.py")) == parts(kernel.pop("harness.py"))
    assert shown == kernel
    assert '"bytes": 12 * case["n"]' in PAGE


def test_the_guide_names_all_that_a_harness_may_define():
    names = set(harness.FUNCTIONS)
    for protocol in vars(harness).values():
        if isinstance(protocol, type) and getattr(protocol, "_is_protocol", False):
            names |= {name for name in (*vars(protocol), *protocol.__annotations__)
                      if not name.startswith("_")}  # fmt: skip
    assert {"work", "PEERS", "error_scale", "parts", "settings", "SETTING"} < names
    told = {name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
            for name in re.findall(r"`(\w+)`", row)}  # fmt: skip
    assert told == names


@pytest.fixture
def attached(kbtool, tmp_path, build_cache) -> Path:
    """What a reader has who started with ``init`` and did as the page says."""
    root = tmp_path / "new"
    assert kbtool("init", str(root)).code == 0
    shutil.copytree(FIXTURE, root / "kernels" / "scaled_add")
    pattern = "patterns/P02-scaled-add.yaml"
    (root / pattern).write_text(SHOWN[pattern])
    (root / ".kbtool").mkdir(exist_ok=True)
    (root / ".kbtool" / "build").symlink_to(build_cache)
    return root


def test_what_the_guide_attaches_is_built_validated_and_timed(attached, kbtool):
    assert kbtool("check", root=attached).code == 0
    done = kbtool("run-recipe", "scaled-add", root=attached)
    (path,) = attached.glob("sessions/*/runs/*.json")
    run = Run.model_validate_json(path.read_bytes())
    assert_passed_or_noisy(run, done)
    assert run.status == "noisy" or "passed: 3 of 3 steps" in done.out
    assert "3 of 3 cases right" in done.err
    assert kbtool("check", root=attached).code == 0


@pytest.mark.parametrize(
    ("command", "file", "put", "instead_of", "told"),
    [
        (
            "check",
            "kernel.yaml",
            "header:",
            "headers:",
            "targets.cpu.header: is not a key of this record; remove it or correct its spelling",
        ),
        (
            "check",
            "kernel.yaml",
            "m: 1000",
            "n: 1000",
            "case set small: 'm' is no case field; the fields are n, a",
        ),
        (
            "check",
            "kernel.yaml",
            "bindings.cpp",
            "binding.cpp",
            "there is no file 'bindings.cpp' in the kernel's folder",
        ),
        (
            "check",
            "kernel.yaml",
            "",
            "    headers: [scaled_add.h]\n",
            "binding.cpp includes scaled_add.h, which target cpu does not list; add it to the"
            " target's headers",
        ),
        (
            "run-recipe",
            "binding.cpp",
            "x.numel()",
            "x.numel());",
            "binding.cpp:12:83: error: expected ')' before '}' token",
        ),
        (
            "run-recipe",
            "kernel.yaml",
            "[binding.cpp]",
            "[binding.cpp, scaled_add.cpp]",
            "undefined reference to `scaled_add(",
        ),
        (
            "run-recipe",
            "harness.py",
            "def works(",
            "def work(",
            "harness.py of scaled_add lacks work",
        ),
        (
            "run-recipe",
            "harness.py",
            "import nothing_here",
            "import torch",
            "harness.py of scaled_add does not import: ModuleNotFoundError: No module named"
            " 'nothing_here'",
        ),
        (
            "run-recipe",
            "harness.py",
            'BASELINE_ARM = "numpy"',
            'BASELINE_ARM = "torch"',
            "BASELINE_ARM is 'numpy', which is none of its PEERS: torch",
        ),
        (
            "run-recipe",
            "harness.py",
            'return {"y": inputs["a"] * inputs["x"] + ',
            'return {"out": inputs["a"] * inputs["x"] + ',
            "reference, baseline and call of 'one' return different outputs: ['out'], ['y'],"
            " ['out']",
        ),
        (
            "run-recipe",
            "harness.py",
            'raise KeyError("oops")',
            'return {"out": inputs["a"] * inputs["x"].double() + inputs["y"].double()}',
            ", reference, raised KeyError: 'oops', in small/one",
        ),
        (
            "run-recipe",
            "harness.py",
            "import os; os.abort()",
            'return {"out": inputs["a"] * inputs["x"].double() + inputs["y"].double()}',
            "the process was killed by SIGABRT while validating, in small/one",
        ),
        (
            "run-recipe",
            "harness.py",
            "kbtool_test.scaled_add(",
            "kbtool_test.scaled_add_out(",
            "the call raised AttributeError: '_OpNamespace' 'kbtool_test' object has no attribute"
            " 'scaled_add'",
        ),
        (
            "run-recipe",
            "harness.py",
            '    inputs["x"].zero_()\n    return {"out": out}',
            '    return {"out": out}',
            "small/one: the call changed its input x",
        ),
        ("run-recipe", "scaled_add.cpp", "a * x[i]", "a * x[i] + y[i]", "2 of 3 cases wrong"),
        (
            "run-recipe",
            "harness.py",
            "out)\n",
            "out)\n        return out\n",
            "arm 'scaled_add' must return its first output, or a tuple that begins with"
            " it; it returned NoneType",
        ),
        (
            "run-recipe",
            "harness.py",
            'return {"flops"',
            'return {"bytes": case["n"], "flops"',
            "work must return bytes and flops, two whole numbers; it returned {'flops': 2000000}",
        ),
        (
            "run-recipe",
            "harness.py",
            '"bytes": 12000 * case["n"]',
            '"bytes": case["n"]',
            "is over the measured read ceiling of",
        ),
    ],
)
def test_errors_are_worded_as_in_the_guide(attached, kbtool, command, file, put, instead_of, told):
    path = attached / "kernels" / "scaled_add" / file
    path.write_text(path.read_text().replace(instead_of, put, 1))
    done = kbtool(command, *(["scaled-add"] if command == "run-recipe" else []), root=attached)
    # Such a figure on a busy machine says nothing of the harness: noisy.
    assert done.code == 1 or (done.code == 75 and "ceiling" in told)
    assert told in done.out + done.err
    assert told in PAGE


def test_init_names_the_guide_to_kernels(kbtool, tmp_path):
    kbtool("init", str(tmp_path / "new"))
    told = (tmp_path / "new" / "kernels" / "README.md").read_text()
    title = PAGE.splitlines()[0].removeprefix("# ")
    assert f'under "{title}"' in told
    assert f"[{title}](attach.md)" in (REPOSITORY / "docs" / "guide" / "index.md").read_text()
    assert "- guide/attach.md\n" in (tmp_path / "new" / "mkdocs.yml").read_text()


# ---- what init makes ----


@pytest.mark.slow
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
    assert answer["inputs"]["people"]["low"] == "50"


@pytest.mark.slow
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


def test_init_names_the_recipes_that_come_with_kbtool(kbtool, tmp_path):
    done = kbtool("init", str(tmp_path / "new"), "--with", "nothing")
    assert done.code == 2 and "there is ablate, cheats, decoder, minimise" in done.err
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_init_brings_a_kernel_with_its_recipes(kbtool, tmp_path):
    root = tmp_path / "new"
    assert kbtool("init", str(root), "--with", "split-k").code == 0
    checked = kbtool("check", root=root)
    assert (checked.code, checked.out) == (0, "")
    assert len(list((root / "patterns").glob("*.yaml"))) == len(
        list((REPOSITORY / "patterns").glob("*.yaml"))
    )
    patterns = "".join(path.read_text() for path in (root / "patterns").glob("*.yaml"))
    recipes = {
        one["name"] for one in json.loads(kbtool("recipes", "--json", root=root).out)["recipes"]
    }
    assert {"split-k", "peers", "ablate", "minimise", "mutants", "sanitise"} <= recipes
    # What only this repository has is in none of them.
    assert "bug-4" not in recipes and "sessions/20" not in patterns and "\nclaims:" not in patterns
    for recipe in sorted(recipes):
        done = kbtool("run-recipe", recipe, "--dry-run", root=root)
        assert done.code in {0, 3}, done.err
