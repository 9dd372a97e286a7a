"""Split-K attention as a function: ``from kbtool.attention import split_k_attention``.

The library is built at the first call and found there afterwards. Building compiles every source:
seconds for the CPU, for a card a minute or, on few cores, several. This module is the public face
of one attached kernel; nothing else in kbtool knows that kernel.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["split_k_attention"]

_KERNEL = "split_k_attention"
_BUILD_SECONDS = 600.0
_LOADING = threading.Lock()


def split_k_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    num_splits: int | None = None,
    kv_lengths: Tensor | None = None,
    variant: str | None = None,
    return_lse: bool = False,
) -> Any:
    """Exact softmax attention whose key range is cut into splits that run in parallel.

    Args:
        q: queries, ``(B, H, Sq, D)``; float32, float16 or bfloat16; any strides.
        k: keys, ``(B, Hkv, Skv, D)``, of ``q``'s type; ``H`` is a multiple of ``Hkv``; any strides.
        v: values, of ``k``'s shape.
        causal: bottom-right: query ``i`` sees keys ``j <= i + valid - Sq``, where ``valid`` is the
            number of valid keys of its batch entry.
        scale: factor on ``q . k``; ``1 / sqrt(D)`` by default.
        num_splits: splits of the key range; by default a function of the shapes, on CUDA also of
            the card and of whether ``kv_lengths`` is given.
        kv_lengths: valid keys of each batch entry, ``(B,)``, int32 or int64; what lies beyond is
            never read into a result.
        variant: the implementation, by its name in the kernel's ladder of versions; by default the
            fastest for the shapes and the device.
        return_lse: return the natural-log LSE too, ``(B, H, Sq)``, float32.

    Returns:
        The output, ``(B, H, Sq, D)``, contiguous, in ``q``'s type, or (output, LSE). A row that
        sees no key has output 0 and LSE -inf.

    Raises:
        TypeError: an argument is not a tensor, or ``num_splits`` no int.
        ValueError: an argument has a wrong shape, type, device or value; the message names it.
        NotImplementedError: a gradient is asked for; the operator is for inference.
        kbtool.model.errors.MachineError: there is no compiler, ninja or room to build.
    """
    _load()
    return _loaded[0](
        q, k, v, causal=causal, scale=scale, num_splits=num_splits, kv_lengths=kv_lengths,
        variant=variant, return_lse=return_lse,
    )  # fmt: skip


_loaded: list[Callable[..., Any]] = []
"""The operator's Python face, once the library is loaded."""


# torch.compile runs this while it traces, instead of tracing into the build.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _load() -> bool:
    """Build the library if it is not there, load it, and fill ``_loaded``; once a process."""
    if _loaded:
        return True
    from kbtool.gpu.build import build, choose_architecture, choose_target, plan_build
    from kbtool.gpu.harness import load_module
    from kbtool.model.kernel import Kernel
    from kbtool.store.tree import Entry, load_record

    folder = _kernel_folder()
    entry = load_record(folder / "kernel.yaml", f"{folder.name}/kernel.yaml", Kernel)
    if not isinstance(entry, Entry):
        raise RuntimeError(f"the manifest of {_KERNEL} is broken: {entry[0]}")
    kernel, interface = entry.record, entry.record.interface
    if interface is None:
        raise RuntimeError(f"the manifest of {_KERNEL} names no interface")
    target = choose_target(kernel, "auto", cuda=_cuda_usable())
    capability = "sm_{}{}".format(*torch.cuda.get_device_capability()) if target == "cuda" else None
    architecture = choose_architecture(kernel, target, capability)
    plan = plan_build(kernel, folder, target, _cache_folder(folder), architecture)
    build(plan, timeout=_BUILD_SECONDS)
    with _LOADING:
        if not _loaded:
            torch.ops.load_library(str(plan.library))  # type: ignore[no-untyped-call]
            module = load_module(folder / interface, f"kbtool_interface_{_KERNEL}")
            _loaded.append(getattr(module, _KERNEL))
    return True


def _cuda_usable() -> bool:
    from kbtool.gpu.toolchain import find_nvcc
    from kbtool.model.errors import MachineError

    if not torch.cuda.is_available():
        return False
    try:
        find_nvcc()
    except MachineError:
        return False
    return True


def _kernel_folder() -> Path:
    """The sources: of the checkout that this package stands in, else of the installed wheel."""
    package = Path(__file__).parent
    checkout = package.parent / "kernels" / _KERNEL
    return checkout if checkout.is_dir() else package / "_kernels" / _KERNEL


def _cache_folder(kernel_folder: Path) -> Path:
    """Beside a checkout's records; for an installed package in the user's cache."""
    root = kernel_folder.parent.parent
    if (root / "sessions").is_dir() and os.access(root, os.W_OK):
        return root / ".kbtool" / "build"
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "kbtool" / "build"
