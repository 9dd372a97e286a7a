"""Help: every command has examples, and help imports nothing heavy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kbtool.cli.main import cli, run
from kbtool.cli.session import session
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]
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


@pytest.mark.slow
@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_says_what_it_does(path, kbtool):
    done = kbtool(*path, "--help")
    assert done.code == 0
    assert done.err == ""
    said = done.out.split("\n\n", 2)
    assert said[0].startswith(f"Usage: kbtool {path[0]}")
    assert len(said[1].strip()) > 10


OWN = [("init",), ("check",), ("migrate",), ("session",),
       *(("session", name) for name in session.commands),
       ("recipes",), ("run-recipe",), ("recover",), ("costs",), ("status",), ("keep-or-stop",),
       ("schema",),
       ("export",), ("export", "focus"), ("export", "beancount"), ("export", "jsonl"),
       ("export", "parquet"), ("export", "corpus"), ("export", "mlflow")]  # fmt: skip


@pytest.mark.parametrize("path", OWN, ids=" ".join)
def test_help_has_examples(path, kbtool):
    assert f"kbtool {path[0]}" in kbtool(*path, "--help").out.split("Example", 1)[1]


def test_the_recipes_that_help_names_are_recipes_of_this_repository():
    guide = (REPOSITORY / "docs" / "guide" / "cli.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|&& )kbtool run-recipe ([a-z][\w-]*)", guide, re.MULTILINE))
    made = set(re.findall(r"(?:^|&& )kbtool kernel new ([a-z][\w-]*)", guide, re.MULTILINE))
    assert named and named - made <= KnowledgeBase(REPOSITORY).recipes().keys()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["session", "--help"]])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys\nfrom kbtool.cli.main import run\n"
        f"assert run({arguments!r}) == 0\n"
        f"heavy = {HEAVY!r} & set(sys.modules)\nassert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.slow
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


def test_make_help_has_every_target_that_is_no_part_of_another():
    said = subprocess.run(
        ["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    listed = re.findall(r"^make (\S+)", said, re.MULTILINE)
    text = (REPOSITORY / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)[1].split()
    parts = {"lint", "unit", "cuda", "clean"}
    assert sorted(listed) == sorted(set(targets) - parts)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["recipe"], "No such command 'recipe'. Did you mean recipes or run-recipe?"),
        (["sesion", "show"], "Did you mean session?"),
        (["xyzzy"], "No such command 'xyzzy'."),
    ],
)
def test_an_unknown_command_is_told_with_the_nearest(capsys, argv, said):
    assert run(argv) == 2
    assert said in capsys.readouterr().err
