"""Commands that are killed, or refused by the disk, at one of their file operations."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kbtool.cli.main import cli
from soak import crashes
from soak.crashes import CACHING, KILL, READING, WRITING, Point, Soak, points

pytestmark = pytest.mark.slow

QUICK = [
    name
    for name in WRITING
    if name.startswith("session") or name in {"import", "schema", "recover", "migrate"}
]


@pytest.fixture(scope="module")
def soak(tmp_path_factory: pytest.TempPathFactory) -> Soak:
    return Soak(tmp_path_factory.mktemp("soak"))


def leaves(command: click.Command, name: str = "") -> list[str]:
    if not isinstance(command, click.Group):
        return [name]
    context = click.Context(command)
    return [
        leaf
        for one in command.list_commands(context)
        if (found := command.get_command(context, one))
        for leaf in leaves(found, f"{name} {one}".strip())
    ]


def test_every_command_is_broken_or_says_why_not():
    assert sorted([*WRITING, *READING]) == sorted(leaves(cli))


def test_drawn_operations_leave_sound_records(soak):
    chosen = random.Random(20261125).sample(points(soak, QUICK), 24)
    faults = {point.name: soak.faults(point) for point in chosen}
    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.parametrize("error", [KILL, errno.ENOSPC])
def test_a_run_that_is_broken_leaves_sound_records(soak, error):
    middle = soak.start("run-recipe").operations // 2
    assert soak.faults(Point("run-recipe", middle, error)) == []


@pytest.mark.parametrize("command", sorted(CACHING))
def test_the_caches_of_a_command_are_broken_too(soak, command):
    assert soak.faults(Point(command, soak.start(command).operations, KILL)) == []


def test_a_command_that_hangs_is_a_fault(soak, monkeypatch):
    def hang(root: Path, command: crashes.Command, **environment: str):
        raise subprocess.TimeoutExpired("kbtool", crashes.HANGS)

    soak.start("schema")
    monkeypatch.setattr(crashes, "_kbtool", hang)
    assert soak.faults(Point("schema", 1, KILL)) == ["it has not ended after 300 s"]


TORN = """
from pathlib import Path
path = Path("sessions/2025-01-02-b/session.yaml")
text = path.read_text()
path.write_text(text.replace("The next day", "Another day"))
"""


def test_a_command_that_writes_in_place_is_found_out(tmp_path, monkeypatch):
    real = crashes._kbtool

    def kbtool(root: Path, command: crashes.Command, **environment: str):
        if command != ("schema",):
            return real(root, command, **environment)
        argv = [sys.executable, "-c", TORN]
        return subprocess.run(argv, cwd=root, env=environment, capture_output=True, text=True)

    monkeypatch.setattr(crashes, "_kbtool", kbtool)
    soak = Soak(tmp_path)
    every = points(soak, ["schema"])
    killed = [soak.faults(point) for point in every if point.error == KILL]
    assert any("is neither as before nor as after" in "".join(faults) for faults in killed)
    refused = [soak.faults(point) for point in every if point.error == errno.ENOSPC]
    assert all("it ends with 1" in "".join(faults) for faults in refused)
