"""The measured ceiling of arithmetic: what a large matrix product by torch reaches in one type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

_ALSO = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
_CANNOT = re.compile(
    "not[ _](?:implemented|supported)|out of memory|can't allocate memory|alloc_failed",
    re.IGNORECASE,
)
"""What torch and cuBLAS say where they have no product of a type, or no memory for it."""
_FIRST = 256
_CALLS = 3
"""Products of each size: one during which the thread loses its core says nothing."""


def arithmetic(
    dtype: torch.dtype,
    device: torch.device,
    seconds: Callable[[Callable[[], Any]], float],
    enough: float,
    largest: int,
) -> float | None:
    """The best rate of products of square matrices, in 10⁹ operations a second.

    The matrices grow until a product takes ``enough``, so that this is short on any machine.

    Args:
        dtype: the type of the matrices.
        device: where they are.
        seconds: times a call.
        enough: seconds of a product that is large enough.
        largest: the most rows.

    Returns:
        ``None`` where torch multiplies no matrices of this type here, or there is no memory for
        the smallest. If a larger one finds none, the best rate of those before it.

    Raises:
        RuntimeError: a product failed for another reason.
    """
    rows, best = _FIRST, 0.0
    try:
        while True:
            one, other = (torch.randn(rows, rows, device=device).to(dtype) for _ in range(2))
            out = one @ other

            def product(one: Any = one, other: Any = other, out: Any = out) -> Any:
                return torch.mm(one, other, out=out)

            took = min(seconds(product) for _ in range(_CALLS))
            best = max(best, 2 * rows**3 / took / 1e9)
            if took >= enough or rows >= largest:
                break
            rows *= 2
    except RuntimeError as error:
        if not _CANNOT.search(str(error)):
            raise
    return best or None


def computes_in(case: Mapping[str, Any], inputs: Mapping[str, Any]) -> str | None:
    """The floating type of a case: its field ``dtype``, else the only one among its inputs."""
    stated = str(case.get("dtype"))
    of_case = getattr(torch, _ALSO.get(stated, stated), None)
    if isinstance(of_case, torch.dtype):
        return _name(of_case) if of_case.is_floating_point else None
    found = {
        _name(tensor.dtype) for tensor in _tensors(inputs.values()) if tensor.is_floating_point()
    }
    return found.pop() if len(found) == 1 else None


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
