"""The clock that times calls on a device."""

from __future__ import annotations

from typing import Any


def clock_for(device: str, samples: int) -> Any:
    """A clock for ``cuda`` or ``cpu`` that takes ``samples`` samples of each arm."""
    if device == "cuda":
        from kbtool.gpu.cuda_clock import CudaClock

        return CudaClock(samples)
    from kbtool.gpu.cpu_clock import CpuClock

    return CpuClock(samples)
