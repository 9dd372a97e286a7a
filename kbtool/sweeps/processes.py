"""Processes of this machine that outlive the one that started them, by a name that stays theirs."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def name_of(pid: int) -> str:
    """``PID.START``: a number that the system gives away again, and the tick that tells it apart.

    One that has ended already gets a name that no process has.
    """
    return f"{pid}.{_start(pid) or 'gone'}"


def lives(name: str) -> bool:
    """Whether the process still runs; one that only waits to be reaped does not."""
    pid, _, start = name.partition(".")
    return _start(int(pid)) == start


def end(name: str) -> None:
    """Ask the process to end, if it still runs."""
    if lives(name):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(name.partition(".")[0]), signal.SIGTERM)


def _start(pid: int) -> str | None:
    """When it began, in ticks since the machine did; ``None`` if it does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]
