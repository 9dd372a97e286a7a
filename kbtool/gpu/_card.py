"""Print the first usable card as JSON. ``kbtool.gpu.probe`` runs this file as a program.

It asks the CUDA driver library, which honours CUDA_VISIBLE_DEVICES as torch does. That library may
hang or crash, so this is a separate process. Clocks and power come from NVML, for the same card.
"""

from __future__ import annotations

import ctypes
import json
import uuid

_MULTIPROCESSORS = 16
_L2_BYTES = 38
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76
_SM_CLOCK, _MEMORY_CLOCK = 1, 2


class Management:
    """What NVML reports for one card: ``None`` for each missing value, or if NVML is missing."""

    def __init__(self, card: str) -> None:
        """Open NVML for one card.

        Args:
            card: its UUID, as 8-4-4-4-12 hexadecimal digits.
        """
        self._nvml: ctypes.CDLL | None = None
        self._handle = ctypes.c_void_p()
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if nvml.nvmlInit_v2() != 0:
            return
        name = f"GPU-{card}".encode()
        if nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(self._handle)) == 0:
            self._nvml = nvml

    def sm_clock_mhz(self) -> int | None:
        """The current SM clock."""
        return self._figure("nvmlDeviceGetClockInfo", _SM_CLOCK)

    def energy_mj(self) -> int | None:
        """Millijoules that the card has taken since the driver was loaded."""
        if self._nvml is None:
            return None
        value = ctypes.c_ulonglong()
        try:
            ask = self._nvml.nvmlDeviceGetTotalEnergyConsumption
        except AttributeError:  # an older driver
            return None
        return None if ask(self._handle, ctypes.byref(value)) else value.value

    def limits(self) -> dict[str, int | None]:
        """The maximum clocks and the power limit."""
        power = self._figure("nvmlDeviceGetPowerManagementLimit")
        return {
            "sm_clock_mhz": self._figure("nvmlDeviceGetMaxClockInfo", _SM_CLOCK),
            "memory_clock_mhz": self._figure("nvmlDeviceGetMaxClockInfo", _MEMORY_CLOCK),
            "power_limit_w": None if power is None else round(power / 1000),
        }

    def _figure(self, function: str, *arguments: int) -> int | None:
        if self._nvml is None:
            return None
        value = ctypes.c_uint()
        failed = getattr(self._nvml, function)(self._handle, *arguments, ctypes.byref(value))
        return None if failed else value.value


def card() -> dict[str, object] | None:
    """The properties of the card, or ``None`` if there is no driver or no card."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return None

    def attribute(number: int) -> int | None:
        value = ctypes.c_int()
        failed = cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return None if failed else value.value

    name = ctypes.create_string_buffer(256)
    memory = ctypes.c_size_t()
    named = cuda.cuDeviceGetName(name, len(name), device) == 0
    sized = cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device) == 0
    count = ctypes.c_int()
    counted = cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    digits = (ctypes.c_ubyte * 16)()
    known = cuda.cuDeviceGetUuid_v2(digits, device) == 0
    identity = str(uuid.UUID(bytes=bytes(digits))) if known else None
    limits = Management(identity).limits() if identity else {}
    major, minor = attribute(_CAPABILITY_MAJOR), attribute(_CAPABILITY_MINOR)
    return {
        "uuid": identity,
        "name": name.value.decode("utf-8", "replace") if named else "unnamed card",
        "cards": count.value if counted else None,
        "compute_capability": f"sm_{major}{minor}" if None not in (major, minor) else None,
        "memory_bytes": memory.value if sized else None,
        "multiprocessors": attribute(_MULTIPROCESSORS),
        "l2_bytes": attribute(_L2_BYTES),
        **limits,
    }


if __name__ == "__main__":
    print(json.dumps(card()))
