"""The examples in ``--help`` work in a new knowledge base; words in capitals are to be replaced."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from kbtool.cli.init import init
from kbtool.cli.main import cli

SHELL = re.compile(r" (?:\||&&|\|\||>|2>&1|<<) ?.*|   +.*|  # .*")
"""What a shell does with the output, and the remark behind an example."""
MADE = {"nan-in-the-last-tile", "which-tile", "split-k"}
"""What an example before it makes: a bug, a decision; `init --with split-k` brings a recipe."""
NAMING = {"RECIPE", "RUN", "BUG", "PATTERN", "ID|LABEL", "[ID|LABEL]", "[PATTERN]", "[KERNEL]...",
          "ID|LABEL|A..B|A..|..B"}  # fmt: skip


def leaves(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from leaves(below, (*path, name))


def examples() -> list[str]:
    found = []
    for _, command in leaves():
        text = f"{command.help or ''}\n{command.epilog or ''}".replace("\\\n", " ")
        found += re.findall(r"^ {2,}(kbtool [a-z].*)", text.partition("Example")[2], re.M)
    return sorted({SHELL.sub("", line).strip() for line in found if "`" not in line})


def names_in(line: str) -> Iterator[str]:
    """The names of records in a command line: the values of the parameters that take one."""
    words = shlex.split(line)[1:]
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        below = command.get_command(click.Context(command), words[0])
        if below is None:
            return
        command, words = below, words[1:]
    context = click.Context(command, resilient_parsing=True)
    values, _, _ = command.make_parser(context).parse_args(args=list(words))
    for param in command.get_params(context):
        value = values.get(param.name or "")
        metavar = str(param.metavar or "")
        if metavar not in NAMING or param.name == "for_session":
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, str):  # else it was not given
                yield from (part for part in one.partition("#")[0].split("..") if part)


def is_placeholder(name: str) -> bool:
    return re.fullmatch("[A-Z_]{3,}", name) is not None


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a new knowledge base, and those that mean something in any."""
    from click.testing import CliRunner

    from kbtool.store.names import patterns, recipes

    root = tmp_path_factory.mktemp("new")
    assert CliRunner().invoke(init, [str(root)]).exit_code == 0
    return {name for find in (patterns, recipes) for name, _ in find(root)} | {"last", "new"} | MADE


def test_there_are_examples_that_name_records():
    named = [name for line in examples() for name in names_in(line)]
    assert {"last", "look", "P01", "SESSION", "RECIPE", "PATTERN"} <= set(named)


@pytest.mark.parametrize("line", examples())
def test_an_example_names_what_a_new_knowledge_base_has(there, line):
    missing = [name for name in names_in(line) if name not in there and not is_placeholder(name)]
    assert missing == []
