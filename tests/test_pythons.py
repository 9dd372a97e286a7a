"""`.ci/pythons` tries every Python, and says at the end which failed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "pythons"
INTERPRETER = """\
#!/bin/sh
case "$1 $2" in
"-m venv") mkdir -p "$4/bin" && cp "$0" "$4/bin/python" && echo "$0" >"$4/bin/made-by" ;;
"-m pip" | "-m pytest") echo "$2 $(cat "$(dirname "$0")/made-by")"
    ! grep -qx "$2 $(basename "$(cat "$(dirname "$0")/made-by")")" broken ;;
esac
"""
"""An interpreter whose pip or pytest fails where the file `broken` says so."""


def pythons(folder: Path, broken: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script where three versions of Python are, and no others."""
    (folder / ".ci").mkdir()
    shutil.copy(SCRIPT, folder / ".ci" / "pythons")
    (folder / "broken").write_text(broken)
    for version in ("3.11", "3.12", "3.13", "3.14", "3.15"):
        found = version < "3.14"
        (folder / f"python{version}").write_text(INTERPRETER if found else "#!/bin/sh\nexit 1\n")
        (folder / f"python{version}").chmod(0o755)
    return subprocess.run(
        [folder / ".ci" / "pythons"],
        env={"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("broken", "failed"),
    [
        ("", ""),
        ("pytest python3.12\n", "failed: 3.12-newest\n"),
        ("pip python3.11\npytest python3.13\n", "failed: 3.11-oldest 3.11-newest 3.13-newest\n"),
    ],
)
def test_every_python_is_tried_and_those_that_failed_are_named(tmp_path, broken, failed):
    done = pythons(tmp_path, broken)
    assert (done.stderr, done.returncode) == (failed, 1 if failed else 0)
    assert "pytest " + str(tmp_path / "python3.13") in done.stdout
    assert "skipped: no Python 3.14 here" in done.stdout
