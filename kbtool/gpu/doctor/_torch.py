"""Import torch and print what it says of itself, one JSON object a line.

``kbtool.gpu.doctor.read`` runs this file as a program: importing torch takes seconds, and may hang
or crash. What was printed before that counts.
"""

from __future__ import annotations

import ctypes
import json
import re


def tell(**facts: object) -> None:
    """Print some facts."""
    print(json.dumps(facts), flush=True)


def libstdcxx() -> str | None:
    """The path of the libstdc++ that this process has loaded, or would load."""
    try:
        ctypes.CDLL("libstdc++.so.6")
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123
            match = re.search(r"/\S*libstdc\+\+\.so\.6\S*", maps.read())
    except OSError:
        return None
    return match[0] if match else None


def main() -> None:
    """Print what torch says."""
    try:
        import torch
    except BaseException as error:
        tell(imports=False, error=f"{type(error).__name__}: {error}", libstdcxx=libstdcxx())
        return
    tell(imports=True, libstdcxx=libstdcxx())
    tell(new_abi=getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", None))
    if torch.version.cuda is None:
        return
    flags = getattr(torch._C, "_cuda_getArchFlags", str)()
    tell(architectures=str(flags or "").split())
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        tell(card_error=None if torch.cuda.device_count() else "torch finds no card")
    except BaseException as error:
        tell(card_error=f"{error}")


if __name__ == "__main__":
    main()
