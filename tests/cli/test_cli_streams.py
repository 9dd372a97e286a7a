"""A reader of the output that goes away, and streams that are closed or full, hide no verdict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kbtool.model.run import Run

REPOSITORY = Path(__file__).parents[2]
FAILING = "--set 'code=import sys; sys.exit(3)'"


def shell(root: Path, arguments: str, around: str) -> tuple[int, str, str]:
    """Exit status of kbtool, stdout and stderr; ``around`` is the command line, with K for it."""
    command = around.replace("K", f"{sys.executable} -m kbtool --root {root} {arguments}", 1)
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def statuses(root: Path) -> list[str]:
    records = root.glob("sessions/*/runs/*.json")
    return [Run.model_validate_json(path.read_bytes()).status for path in records]


@pytest.mark.parametrize("around", ["K | true", "K 2>&1 | true", "K >&-", "K 2>&-", "K >&- 2>&-"])
@pytest.mark.parametrize(
    ("settings", "code", "status"), [(FAILING, 1, "failed"), ("", 0, "passed")]
)
def test_a_run_that_nobody_reads_is_recorded_and_ends_as_it_ends(
    second_kernel_base, around, settings, code, status
):
    found = shell(second_kernel_base, f"run-recipe shell {settings}", around)
    assert (found[0], statuses(second_kernel_base)) == (code, [status]), found
    assert "bug" not in found[2] and "Traceback" not in found[2]


def test_progress_on_a_full_disk_does_not_end_a_run(second_kernel_base):
    code, out, _ = shell(second_kernel_base, "run-recipe shell", "K 2>/dev/full")
    assert (code, statuses(second_kernel_base)) == (0, ["passed"])
    assert "passed: 2 of 2 steps" in out


def test_output_on_a_full_disk_is_an_error_that_is_told(second_kernel_base):
    code, _, err = shell(second_kernel_base, "recipes", "K >/dev/full")
    assert code == 3
    assert err.startswith("kbtool: the disk is full") and "Traceback" not in err


@pytest.mark.parametrize("option", ["", " --json"])
@pytest.mark.parametrize("command", ["check", "audit", "patterns"])
def test_a_verdict_reaches_the_shell_whoever_reads_the_output(second_kernel_base, command, option):
    (second_kernel_base / "patterns" / "P01.yaml").write_text("id: P01\n")
    assert shell(second_kernel_base, command + option, "K | true")[0] == 1
