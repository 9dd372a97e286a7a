"""Whether this process can still use its card.

An illegal memory access or a failed assertion on the card ends the CUDA context of the process that
launched the kernel. Every later call raises, whoever makes it, so such an error is the finding of
the call after which it was first seen, not of the code that it is raised in.
"""

from __future__ import annotations

import torch


def finish(device: torch.device) -> None:
    """Wait for everything launched.

    Raises:
        RuntimeError: something launched failed; a card says so only now.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def context_lost(device: torch.device) -> bool:
    """Whether the device takes no more work from this process."""
    try:
        finish(device)
    except RuntimeError:
        return True
    return False
