"""The clock that times calls on a device."""

from __future__ import annotations

from typing import Any


def clock_for(device: str, samples: int, energy: bool = False) -> Any:
    """A clock for ``cuda`` or ``cpu`` that takes ``samples`` samples of each arm,
    and with ``energy`` also measures joules where the device tells them."""
    if device == "cuda":
        from kbtool.gpu.cuda_clock import CudaClock

        return CudaClock(samples, energy)
    from kbtool.gpu.cpu_clock import CpuClock

    return CpuClock(samples)
