"""The skill for coding agents: each command, option and tool in it exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from kbtool.cli.main import cli
from kbtool.cli.mcp import reading, sums, writing

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


def test_each_tool_exists_and_none_is_left_out():
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from kbtool.cli.mcp.running import run_recipe

    listed = BODY.partition("use them:")[2].partition("Otherwise")[0]
    modules = (reading, sums, writing)
    tools = {
        name
        for module in modules
        for name, one in vars(module).items()
        if callable(one) and getattr(one, "__module__", "") == module.__name__
        and name.islower() and not name.startswith("_")
    }  # fmt: skip
    assert set(re.findall(r"`(\w+)`", listed)) == tools | {run_recipe.__name__}
