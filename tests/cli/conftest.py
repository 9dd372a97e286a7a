from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from knowledge import Knowledge


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as they are, whatever terminal the tests run in."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def base(tmp_path: Path) -> Knowledge:
    return Knowledge(tmp_path / "base")


@pytest.fixture
def git(base: Knowledge) -> Callable[..., str]:
    """Git in the knowledge base, which is a repository of Marie's with one commit."""

    def run(*arguments: str, **env: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=base.root, env={**os.environ, **env}, check=True,
            capture_output=True, text=True,
        ).stdout  # fmt: skip

    run("init", "--quiet", "--initial-branch=main")
    run("config", "user.name", "Marie")
    run("config", "user.email", "marie@example.org")
    run("commit", "--quiet", "--allow-empty", "--message", "before")
    return run
