"""What the worker does for ``profile``."""

from __future__ import annotations

from typing import Any

from kbtool.gpu.harness import Harness
from kbtool.gpu.task import Send, Task


class Launch(Task):
    """Time eager launches of an idle kernel."""

    def run(self, harness: Harness, send: Send) -> Any:
        """Microseconds from one launch to the next."""
        from kbtool.gpu.calls import launch_interval_us

        return launch_interval_us()


class Profile(Task):
    """Call one arm once on the first case, with the profiler on."""

    arm: str | None = None
    """The arm; ``None``: the library."""

    def run(self, harness: Harness, send: Send) -> Any:
        """The arm."""
        from kbtool.gpu.calls import profiled_call

        return profiled_call(harness, self.cases[0][1], self.arm, self.seed)
