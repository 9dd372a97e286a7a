from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import commands
import pytest
from commands import Result
from knowledge import Knowledge

from kbtool.model.sweep import Sweep
from kbtool.store.sweeps import open_sweep

CHEAP = """\
recipes:
  - name: cheap
    title: Something cheap
    parameters:
      n: {type: int, default: "1", help: a number}
      ends: {type: choice, default: well, choices: [well, badly], help: how it ends}
      seconds: {type: float, default: "0", help: how long it takes}
    steps:
      - id: work
        kind: command
        title: Work on it
        expected: 1 s
        timeout: 60 s
        run: [python3, work.py, "${n}", "${ends}", "${seconds}"]
"""
WORK = """\
import sys, time
time.sleep(float(sys.argv[3]))
sys.exit(sys.argv[2] == "badly")
"""
GIT = ("git", "-c", "user.name=Marie", "-c", "user.email=marie@example.org")


class Swept:
    """A knowledge base with a cheap recipe, in git."""

    def __init__(self, folder: Path) -> None:
        self.knowledge = Knowledge(folder / "base")
        self.root = self.knowledge.root
        self.node = folder / "node"
        self.node.mkdir()
        self.env = {"TMPDIR": str(self.node)}
        self.knowledge.pattern("P01", CHEAP)
        (self.root / "work.py").write_text(WORK)
        self.git("init", "--quiet", "--initial-branch=main")
        (self.root / ".gitignore").write_text(".kbtool/\n")
        self.first = self.commit("first")

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            [*GIT, *arguments], cwd=self.root, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, title: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", title)
        return self.git("rev-parse", "HEAD")

    def __call__(self, *arguments: str, **env: str) -> Result:
        return commands.run(["sweep", *arguments], self.root, {**self.env, **env})

    def swept(self, *arguments: str, code: int = 0, **env: str) -> dict[str, Any]:
        """What ``kbtool sweep … --json`` says."""
        done = self(*arguments, "--json", **env)
        assert done.code == code, done.out + done.err
        said: dict[str, Any] = json.loads(done.out)
        return said

    @property
    def records(self) -> list[Path]:
        return sorted(self.root.glob("sessions/*/sweeps/*.json"))

    @property
    def last(self) -> Sweep:
        return open_sweep(self.records[-1].read_bytes())

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        return {path.stem: json.loads(path.read_text()) for path in
                self.root.glob("sessions/*/runs/*.json")}  # fmt: skip

    def sound(self) -> None:
        """Nothing is wrong with the records, and each run of a sweep counts once."""
        done = commands.run(["check"], self.root, {})
        assert done.code == 0, done.out
        own = [
            one.run for path in self.records for one in open_sweep(path.read_bytes()).attempts
            if one.run
        ]  # fmt: skip
        assert sorted(own) == sorted(set(own)) == sorted(self.runs)


@pytest.fixture
def swept(tmp_path: Path) -> Swept:
    return Swept(tmp_path)
