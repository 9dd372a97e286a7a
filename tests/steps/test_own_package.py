"""A worker imports the package that started it, installed or not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kbtool

STARTS_A_WORKER = """
import os, subprocess, sys
import kbtool
from kbtool.steps.worker import own_package
said = [sys.executable, "-c", "import kbtool, shadow; print(kbtool.__file__)"]
print(kbtool.__file__)
sys.exit(subprocess.run(said, env=os.environ | own_package(), cwd=sys.argv[1]).returncode)
"""


@pytest.mark.slow
def test_a_worker_imports_the_package_that_starts_it_and_nothing_beside_it(tmp_path: Path) -> None:
    checkout, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
    elsewhere.mkdir()
    copy = shutil.copytree(Path(kbtool.__file__).parent, checkout / "kbtool")
    (checkout / "shadow.py").touch()

    def start(folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", STARTS_A_WORKER, str(folder)], cwd=checkout, timeout=60,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            capture_output=True, text=True,
        )  # fmt: skip

    done = start(elsewhere)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(copy / "__init__.py")] * 2
    # What lies where it is started is no module.
    (checkout / "shadow.py").rename(elsewhere / "shadow.py")
    done = start(elsewhere)
    assert done.returncode != 0 and "No module named 'shadow'" in done.stderr
