"""Time commands on a machine that others may use: the least of many runs, and processor time."""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple


class Timed(NamedTuple):
    """Seconds of several runs of a command."""

    least: float
    """The least: nearest to what a quiet machine takes."""
    median: float
    processor: float
    """User and system time of the run that took least of it."""

    def __str__(self) -> str:
        return (f"{self.least:.2f} s at least, {self.median:.2f} s in the median,"
                f" {self.processor:.2f} s of processor time")  # fmt: skip


def timed(command: Sequence[str], repeat: int) -> Timed:
    """Run a command so often, after a first run that fills the caches."""
    seconds, processor = [], []
    for turn in range(repeat + 1):
        before, start = _processor(), time.perf_counter()
        subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL)
        if turn:
            seconds.append(time.perf_counter() - start)
            processor.append(_processor() - before)
    return Timed(min(seconds), statistics.median(seconds), min(processor))


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
