"""The commands of kbtool, with arguments that each takes."""

from __future__ import annotations

import click

from kbtool.cli.main import cli

ARGUMENTS = {
    "run-recipe": ["look"], "session new": ["T"], "session start": ["a"], "session note": ["x"],
    "session cost": ["gpu", "0.40", "--basis", "billed"], "session bug": ["B"],
    "session evidence": ["P01", "applied", "x"], "session decision": ["q"],
    "session hypothesis": ["b", "x"], "session plan": ["x"], "session step": ["x"],
    "session lesson": ["x"], "session measurement": ["x", "a=1"], "session add": ["note x"],
    "session fix": ["b", "--commit", "none"], "session import": ["."], "compare": ["a", "b"],
    "fastest": ["add"],
    "keep-or-stop": ["--idle", "1 h"], "session show": ["a"], "search": ["x"],
    "import": ["kbtool.yaml"], "import-results": ["kbtool.yaml"], "init": ["."],
    "export parquet": ["--output", "x"], "export mlflow": ["--tracking-uri", "file:x"],
    "kernel new": ["x", "--like", "cpu"], "forget": ["look", "--reason", "x"],
    "sweep run": ["look"], "bisect": ["a", "b..c"],
}  # fmt: skip
"""Command → its arguments, where it cannot do without."""


def leaves(command: click.Command = cli, name: str = "") -> dict[str, click.Command]:
    """Every command that is no group, by its words."""
    if not isinstance(command, click.Group):
        return {name: command}
    context = click.Context(command)
    found: dict[str, click.Command] = {}
    for one in command.list_commands(context):
        below = command.get_command(context, one)
        assert below is not None
        found |= leaves(below, f"{name} {one}".strip())
    return found
