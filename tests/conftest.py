"""Fixtures shared by the tests: a small knowledge base with a second kernel, and the command."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

# No test is timed: a machine that others use too is slow at times.
settings.register_profile("kbtool", deadline=None)
settings.load_profile("kbtool")

# A shell starts what runs in its background deaf to Ctrl-C, and every program that a test starts
# would be so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FIXTURES = Path(__file__).parent / "fixtures"
REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries built by the tests, shared between knowledge bases: a hash names each."""
    return tmp_path_factory.mktemp("build-cache")


@pytest.fixture
def second_kernel_base(tmp_path: Path, build_cache: Path) -> Path:
    """A knowledge base of its own with the kernel ``scaled_add`` and pattern P01's recipes."""
    root = tmp_path / "base"
    for name in ("sessions", "patterns", "kernels"):
        (root / name).mkdir(parents=True)
    shutil.copytree(FIXTURES / "kernels" / "scaled_add", root / "kernels" / "scaled_add")
    shutil.copy(FIXTURES / "patterns" / "P01.yaml", root / "patterns" / "P01.yaml")
    (root / ".kbtool").mkdir()
    (root / ".kbtool" / "build").symlink_to(build_cache)
    return root


@dataclass
class Result:
    """A finished command."""

    code: int
    out: str
    err: str


@pytest.fixture
def kbtool(tmp_path: Path) -> Callable[..., Result]:
    """Run the command as a user does, in a process of its own."""

    def run(*arguments: str, root: Path | None = None, env: dict[str, str] | None = None) -> Result:
        argv = [sys.executable, "-m", "kbtool", *(["--root", str(root)] if root else [])]
        done = subprocess.run(
            [*argv, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Result(done.returncode, done.stdout, done.stderr)

    return run
