"""Which sweeps go on, without reading a record: a prompt that asks must not wait for the models."""

from __future__ import annotations

import contextlib
from pathlib import Path

_RUNNING = b'\n "status": "running"'
"""How the record of a sweep says so, as ``write_sweep`` writes it; a cell says it further in."""


def running_sweep_files(root: Path) -> list[Path]:
    """The records of sweeps under ``root`` that have not ended, by their names."""
    found = []
    for path in root.glob("sessions/*/sweeps/[!.]*.json"):
        with contextlib.suppress(OSError):
            if _RUNNING in path.read_bytes():
                found.append(path)
    return sorted(found, key=lambda path: path.name)
