"""``--json``: of every command one object on stdout, of an error too."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from cli_tree import ARGUMENTS, leaves
from knowledge import LOOK, Knowledge

from kbtool.cli import main

NOT = {"site serve", "mcp"}
"""They end when they are told to, and have no result."""
COMMANDS = {name: one for name, one in leaves().items() if name not in NOT}


def words_of(name: str) -> list[str]:
    """A command with what it cannot do without, under --json: exports need a file besides."""
    to_file = ["--output", "x"] if name.startswith("export ") else []
    return [*name.split(), *ARGUMENTS.get(name, to_file)]


def test_every_command_takes_it():
    lacking = {
        name
        for name, command in leaves().items()
        if "--json" not in {opt for one in command.get_params(click.Context(command))
                            for opt in one.opts}
    }  # fmt: skip
    assert lacking == NOT


@pytest.fixture
def asked(base, monkeypatch, capsys):
    """Run a command in a small knowledge base; its exit status, and its one object on stdout."""
    base.session()
    base.pattern("P01", LOOK)
    base.kernel()
    monkeypatch.chdir(base.root)
    monkeypatch.delenv("KBTOOL_ROOT", raising=False)

    def ask(*arguments: str) -> tuple[int, dict]:
        capsys.readouterr()
        status = main.run([*arguments, "--json"])
        out = capsys.readouterr().out
        told = json.loads(out)
        assert isinstance(told, dict) and out.count("\n") == 1
        if "error" in told:
            error = told["error"]
            assert set(error) == {"code", "status", "message", "remedy"}
            assert error["status"] == status and error["code"] and error["message"]
            assert error["remedy"] not in {"", error["message"]}
        return status, told

    return ask


@pytest.mark.parametrize("name", COMMANDS)
def test_of_every_command_a_wrong_option_is_one_object(asked, name):
    words = [*name.split(), *ARGUMENTS.get(name, [])]
    status, told = asked(*words, "--no-such-option")
    assert (status, told["error"]["code"]) == (2, "usage")
    assert f"kbtool {name} --help" in told["error"]["remedy"]


def takes(command: click.Command, kind: type[Any], *, required: bool) -> bool:
    every = command.get_params(click.Context(command))
    return any(isinstance(one, kind) and one.required >= required for one in every)


REQUIRING = [name for name, one in COMMANDS.items() if takes(one, click.Parameter, required=True)]
NAMING = [name for name, one in COMMANDS.items() if takes(one, click.Argument, required=False)]


@pytest.mark.parametrize("name", REQUIRING)
def test_of_every_command_a_missing_argument_is_one_object(asked, name):
    status, told = asked(*name.split())
    assert (status, told["error"]["code"]) == (2, "usage")


@pytest.mark.parametrize("name", [*COMMANDS])
def test_of_every_command_a_wrong_value_is_one_object(asked, name):
    command = COMMANDS[name]
    for one in command.get_params(click.Context(command)):
        if isinstance(one.type, click.Choice | click.types.IntParamType | click.IntRange):
            given = [one.opts[0]] if isinstance(one, click.Option) else []
            words = [] if isinstance(one, click.Argument) else ARGUMENTS.get(name, [])
            status, told = asked(*name.split(), *words, *given, "no-such-value")
            assert (status, told["error"]["code"]) == (2, "usage"), (name, one.name)


@pytest.mark.parametrize("name", NAMING)
def test_of_every_command_an_unknown_name_is_one_object(asked, name):
    words = ARGUMENTS.get(name, ["x"])
    first = next((at for at, word in enumerate(words) if word[0] == "-"), len(words))
    asked(*name.split(), *["no-such-thing"] * first, *words[first:])


NO_BASE = {"init", "schema", "completion", "doctor"}
"""They need no knowledge base; doctor says that there is none."""


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in NO_BASE])
def test_of_every_command_no_knowledge_base_is_one_object(asked, name):
    _, told = asked("--root", "/no/such", *words_of(name))
    assert told["error"]["code"] in {"not_found", "usage"}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "completion"])
def test_of_every_command_a_base_of_a_newer_format_is_one_object(asked, base, name):
    base.write("kbtool.yaml", "format: 99\nkbtool: 9.1.0\n")
    status, told = asked(*words_of(name))
    assert (status, told["error"]["code"]) == (3, "machine")


BUILDING = {"run-recipe", "site build"}
"""They take seconds, and other tests run them."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in BUILDING])
def test_of_every_command_what_it_says_beside_broken_records_is_one_object(asked, base, name):
    base.write("sessions/2025-01-09-bad/session.yaml", "id: [\n")
    base.write("patterns/P02.yaml", "id: P02\nnumber: x\n")
    base.write("kernels/bad/kernel.yaml", "{")
    status, told = asked(*words_of(name))
    assert status in {0, 1} or "error" in told or name == "doctor"


def said(kbtool, base: Knowledge, *arguments: str, code: int = 0) -> dict:
    done = kbtool(*arguments, "--json", root=base.root)
    assert done.code == code, (done.out, done.err)
    return json.loads(done.out)


@pytest.fixture
def going(base: Knowledge) -> Knowledge:
    base.running()
    return base


def test_what_is_written_into_a_session(kbtool, going):
    note = said(kbtool, going, "session", "note", "it began")
    assert (going.root / note["path"]).read_text().rstrip().endswith("it began")
    bug = said(kbtool, going, "session", "bug", "It hangs")
    assert (bug["reference"], bug["bug"]["status"]) == ("2025-01-05-now#bugs.it-hangs", "open")
    fix = said(kbtool, going, "session", "fix", "it-hangs", "wait less", "--commit", "none")
    assert (fix["fix"]["bug"], fix["session"]) == ("#bugs.it-hangs", "2025-01-05-now")
    cost = said(kbtool, going, "session", "cost", "gpu", "0.40", "--basis", "claimed")
    assert cost["cost"]["amount"] == "0.40"


def test_the_life_of_a_session(kbtool, base):
    made = said(kbtool, base, "session", "new", "Later", "--planned")
    assert said(kbtool, base, "session", "start", made["id"])["status"] == "running"
    assert said(kbtool, base, "session", "pause")["status"] == "paused"
    assert said(kbtool, base, "session", "resume")["status"] == "running"
    closed = said(kbtool, base, "session", "close", "--no-commits")
    assert (closed["status"], closed["commits"], closed["session"]) == ("complete", [], made["id"])
    assert isinstance(closed["minutes"], int | float)


NOTES = """\
# Fix the NaN

Prose for people: what was tried, what was seen, what was surprising. Figures belong in
session.yaml, measurements in runs/. `kbtool session note TEXT` adds a line with the time.
"""


def test_recover_mends_sessions_that_an_older_kbtool_left_half_made(kbtool, base):
    folder = base.root / "sessions"
    base.pattern()
    path = base.session(more="started: 2025-01-01T09:00:00Z\n")
    path.write_text(path.read_text().replace("origin: person", "origin: tool"))
    for name, notes in (("empty", None), ("blank", NOTES), ("own", f"{NOTES}\nIt is NaN.\n")):
        (folder / f"2025-01-0{len(name)}-{name}").mkdir()
        if notes:
            (folder / f"2025-01-0{len(name)}-{name}" / "notes.md").write_text(notes)
    assert "no end" in kbtool("check", root=base.root).out
    done = kbtool("recover", root=base.root)
    assert "ends with its last run" in done.err
    assert 'ended: "2025-01-01T09:00:00+00:00"' in path.read_text()
    # What somebody wrote stays, and check says what it lacks.
    left = sorted(folder.glob("2025*/"))
    assert [one.name for one in left] == [path.parent.name, "2025-01-03-own"]
    (finding,) = [
        line for line in kbtool("check", root=base.root).out.splitlines() if "own" in line
    ]
    assert "session.yaml" in finding
    assert kbtool("recover", root=base.root).err == "nothing to recover: no run was left behind\n"


@pytest.mark.slow
def test_what_other_commands_write(kbtool, base, tmp_path):
    assert said(kbtool, base, "recover") == {"written": [], "unsound": [], "removed": []}
    schemas = said(kbtool, base, "schema", "--out", str(tmp_path / "schemas"))
    assert "session.json" in schemas["written"]
    assert said(kbtool, base, "schema", "--check", code=1)["stale"]
    made = kbtool("init", str(tmp_path / "new"), "--json", root=tmp_path)
    assert "sessions/ledger.yaml" in json.loads(made.out)["written"]
    base.session()
    base.session("2025-01-02-b", more="costs: [{kind: gpu, amount: 0.40, basis: claimed}]\n")
    to = tmp_path / "costs.jsonl"
    told = said(kbtool, base, "export", "jsonl", "--output", str(to))
    assert (told["file"], told["written"]) == (str(to), len(to.read_text().splitlines()))
    error = said(kbtool, base, "export", "jsonl", code=2)["error"]
    assert "--output" in error["remedy"] or "--output" in error["message"]


def test_a_migration(kbtool, base):
    base.write("sessions/ledger.yaml", "# yaml-language-server: $schema=../schemas/ledger.json\n"
               "rates:\n  - {id: l4, kind: gpu, rate: 0.20 USD/h, on: 2026-01-31}\n")  # fmt: skip
    told = said(kbtool, base, "migrate", "--dry-run")
    assert (told["format"], told["dry_run"]) == (1, True)
    assert "+  - {id: l4, kind: gpu, rate: 0.20 USD/h, day: 2026-01-31}" in [
        line for one in told["changes"] for line in one["diff"].splitlines()
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "status", "remedy"),
    [
        (["session", "show", "nobody"], "not_found", 2, "session list"),
        (["session", "note", "x"], "usage", 2, "--session ID"),
        (["costs", "--csv"], "usage", 2, "give one"),
        (["costs", "--by", "colour"], "usage", 2, "costs --help"),
        (["sing"], "usage", 2, "--help"),
        (["explain", "no-such-file"], "machine", 3, "no-such-file"),
        (["session", "note", "x", "--session", "2025-01-09-bad"], "record", 1, "session.yaml"),
    ],
)
def test_an_error_is_one_object_with_code_and_remedy(kbtool, base, arguments, code, status, remedy):
    base.write("sessions/2025-01-09-bad/session.yaml", "id: 2025-01-09-bad\n")
    done = kbtool(*arguments, "--json", root=base.root)
    error = json.loads(done.out)["error"]
    assert (error["code"], error["status"], done.code) == (code, status, status)
    assert remedy in error["remedy"]
    assert error["message"] in done.err.replace("kbtool: ", "", 1) or code == "usage"


def test_a_text_that_looks_like_the_option_is_none(kbtool, base):
    done = kbtool("session", "note", "--", "--json", root=base.root)
    assert (done.code, done.out) == (2, "")


def test_a_fault_of_kbtool_is_one_object_too(monkeypatch, capsys, base):
    from kbtool.store.tree import KnowledgeBase

    def fails(self: KnowledgeBase) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(KnowledgeBase, "recipes", fails)
    assert main.run(["--root", str(base.root), "recipes", "--json"]) == 70
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["message"]) == ("bug", "a bug in kbtool: RuntimeError: no")
