"""The time during a run, which no change of the system clock moves."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

# It also counts the time that the machine is asleep; not every system has it.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock:
    """The system clock as it was at the start, and the seconds since then.

    The system clock may be set while a run goes on: times read from it would make a run end before
    it began, or last for years.
    """

    def __init__(self) -> None:
        self.started = datetime.now(UTC)
        self._start = time.clock_gettime(_STEADY)

    def now(self) -> datetime:
        """The time, in UTC; never before an earlier answer."""
        return self.started + timedelta(seconds=time.clock_gettime(_STEADY) - self._start)

    def set_by(self) -> timedelta:
        """By how much the system clock was set since the start; negative if it was set back."""
        return datetime.now(UTC) - self.now()
