"""Help: every command has examples, and help imports nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from kbtool.cli.main import cli

HEAVY = {"torch", "git", "mkdocs", "pydantic", "yaml", "rich", "numpy", "asyncio"}


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_says_what_it_does(path, kbtool):
    done = kbtool(*path, "--help")
    assert done.code == 0
    assert done.err == ""
    said = done.out.split("\n\n", 2)
    assert said[0].startswith(f"Usage: kbtool {path[0]}")
    assert len(said[1].strip()) > 10


OWN = [("init",), ("check",), ("session",), ("session", "new"), ("session", "cost"),
       ("session", "note"), ("costs",), ("status",), ("keep-or-stop",), ("schema",),
       ("export",), ("export", "focus"), ("export", "beancount"), ("export", "jsonl"),
       ("export", "parquet"), ("export", "corpus")]  # fmt: skip


@pytest.mark.parametrize("path", OWN, ids=" ".join)
def test_help_has_examples(path, kbtool):
    assert f"kbtool {path[0]}" in kbtool(*path, "--help").out.split("Example", 1)[1]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["session", "--help"]])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys\nfrom kbtool.cli.main import run\n"
        f"assert run({arguments!r}) == 0\n"
        f"heavy = {HEAVY!r} & set(sys.modules)\nassert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_check_and_costs_run_without_the_extras(base):
    """Torch, mkdocs and click's friends are not needed to read records."""
    base.session()
    for command in ("check", "costs", "recipes"):
        code = (
            "import sys\n"
            "for name in ('torch', 'mkdocs', 'numpy', 'git'): sys.modules[name] = None\n"
            "from kbtool.cli.main import run\n"
            f"assert run(['--root', {str(base.root)!r}, {command!r}]) == 0"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
