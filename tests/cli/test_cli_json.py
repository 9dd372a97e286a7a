"""``--json``: of every command one object on stdout, of an error too."""

from __future__ import annotations

import json

import click
import pytest
from knowledge import Knowledge

from kbtool.cli.main import cli

NOT = {("site", "serve"), ("mcp",)}
"""They end when they are told to, and have no result."""


def leaves(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], click.Command]]:
    """The commands that are no groups."""
    ctx = click.Context(command)
    if not isinstance(command, click.Group):
        return [(path, command)]
    below = [(name, command.get_command(ctx, name)) for name in command.list_commands(ctx)]
    return [leaf for name, one in below if one for leaf in leaves(one, (*path, name))]


def test_every_command_takes_it():
    lacking = {
        path
        for path, command in leaves()
        if "--json" not in {opt for one in command.get_params(click.Context(command))
                            for opt in one.opts}
    }  # fmt: skip
    assert lacking == NOT


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
    from kbtool.cli import main
    from kbtool.store.tree import KnowledgeBase

    def fails(self: KnowledgeBase) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(KnowledgeBase, "recipes", fails)
    assert main.run(["--root", str(base.root), "recipes", "--json"]) == 70
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["message"]) == ("bug", "a bug in kbtool: RuntimeError: no")
