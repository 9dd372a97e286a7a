"""Print the first usable card as JSON; run as a program of its own by ``kbtool.gpu.probe``.

The driver's library is asked, because it honours CUDA_VISIBLE_DEVICES as torch does. It may hang
or crash, which is why this is another process.
"""

from __future__ import annotations

import ctypes
import json

_MULTIPROCESSORS = 16
_L2_BYTES = 38
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76


def card() -> dict[str, object] | None:
    """The card's figures, or ``None`` where there is no driver or no card."""
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
    major, minor = attribute(_CAPABILITY_MAJOR), attribute(_CAPABILITY_MINOR)
    return {
        "name": name.value.decode("utf-8", "replace") if named else "unnamed card",
        "compute_capability": f"sm_{major}{minor}" if None not in (major, minor) else None,
        "memory_bytes": memory.value if sized else None,
        "multiprocessors": attribute(_MULTIPROCESSORS),
        "l2_bytes": attribute(_L2_BYTES),
    }


if __name__ == "__main__":
    print(json.dumps(card()))
