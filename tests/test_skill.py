"""The skill for coding agents: each command, option and tool in it exists."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
import yaml
from knowledge import LOOK, Knowledge, sealed, validated

from kbtool.cli.main import cli
from kbtool.cli.mcp import reading, sums, writing
from kbtool.store.tree import KnowledgeBase

SKILL = Path(__file__).parents[1] / "skills" / "kbtool" / "SKILL.md"
TEXT = SKILL.read_text(encoding="utf-8")
_, FRONT, BODY = TEXT.split("---\n", 2)
COMMANDS = [
    line.partition("kbtool ")[2].partition("   #")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", BODY, re.S)
    for line in block.splitlines()
    if "kbtool " in line
]


def test_the_front_matter_is_what_agents_read():
    front = yaml.safe_load(FRONT)
    assert set(front) == {"name", "description"}
    assert front["name"] == SKILL.parent.name
    assert 100 < len(front["description"]) <= 1024


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_and_each_option_exists(line):
    words = shlex.split(line)
    command: click.Command = cli
    ctx = click.Context(cli)
    while isinstance(command, click.Group):
        found = command.get_command(ctx, words[0])
        assert found is not None, words[0]
        command, words = found, words[1:]
    known = {opt for param in command.get_params(click.Context(command)) for opt in param.opts}
    assert {word for word in words if word.startswith("--")} <= known
    assert "--json" in words
    # The arguments fit too: the command would start.
    command.make_context("kbtool", words, resilient_parsing=False).close()


NOTHING = {
    "fastest KERNEL --set FIELD=VALUE --json": 2,
    "compare best last --json": 2, "bisect SET/CASE v1..HEAD --dry-run --json": 2,
    "explain --json": 1, "explain --run RUN --json": 1,
}  # fmt: skip
"""Exit status where the small knowledge base has no benchmark, no git, no pipe and no failing step.
"""


@pytest.mark.slow
def test_the_commands_do_what_it_says_one_after_the_other(tmp_path, kbtool):
    """As an agent does that has only the skill: in the order of the file, in a session."""
    base = Knowledge(tmp_path / "base")
    base.pattern(more=LOOK)
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    text = base.running().read_text().replace("2025-01-05T09:00:00+00:00", began.isoformat())
    base.write("sessions/2025-01-05-now/session.yaml", text)
    run = json.loads(validated(9, step={"id": "validate", "title": "Validate"}))
    times = {"started": began.isoformat(), "ended": (began + timedelta(seconds=2)).isoformat()}
    of_session = {"id": f"{began:%Y%m%dT%H%M%SZ}-look", "session": "2025-01-05-now", **times}
    run["steps"][0]["started"] = times["started"]
    id_ = base.run(sealed({**{k: v for k, v in run.items() if k != "digest"}, **of_session}))
    filled = {
        "RUN": id_, "NAME": "look", "SESSION": "now", "PATTERN": "P01",
        "last#steps.validate": f"{id_}#steps.validate",  # the last run here validates nothing
    }  # fmt: skip
    too_much = "Entry function 'k' uses too much shared data (0x1c000 bytes, 0xc000 max)"
    (tmp_path / "build.log").write_text(f"ptxas error   : {too_much}\n")
    for line in COMMANDS:
        words = [filled.get(word, word) for word in shlex.split(line)]
        if words[:2] == ["session", "new"]:
            continue  # one goes on already
        if words[-2:] == ["-", "--json"]:
            words[-2:-1] = ["note seen", "lesson Look first."]  # there is no pipe here
        done = kbtool(*words, root=base.root)
        assert isinstance(json.loads(done.out), dict), line
        assert done.code == NOTHING.get(line, 0), (line, done.err)
    record = KnowledgeBase(base.root).session("now").record
    assert (record.status, len(record.bugs), len(record.fixes)) == ("complete", 1, 1)
    assert record.fixes[0].confirmed and record.lessons == ["Look first."]


def test_each_tool_exists_and_none_is_left_out():
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from kbtool.cli.mcp.running import run_recipe

    listed = BODY.partition("use them:")[2].partition("A user")[0]
    modules = (reading, sums, writing)
    tools = {
        name
        for module in modules
        for name, one in vars(module).items()
        if callable(one) and getattr(one, "__module__", "") == module.__name__
        and name.islower() and not name.startswith("_")
    }  # fmt: skip
    assert set(re.findall(r"`(\w+)`", listed)) == tools | {run_recipe.__name__}
