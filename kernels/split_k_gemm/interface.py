"""The Python interface of split-K GEMM: import it after the library or the Triton module."""

import torch
from torch import Tensor

__all__ = ["split_k_gemm"]


def split_k_gemm(x: Tensor, w: Tensor, *, num_splits: int | None = None) -> Tensor:
    """``x @ w.T`` for few rows of ``x``, with sums in float32; the time is that of reading ``w``.

    A row of the result has the same bits whatever the other rows of ``x`` are.

    Args:
        x: (M, K), float16 or bfloat16, with contiguous rows. Made for M up to 16; beyond that,
            ``w`` is read again for each 16 rows.
        w: (N, K), the weight as ``torch.nn.Linear`` holds it: of x's type and device, with
            contiguous rows.
        num_splits: ranges of K that are summed apart. Default: chosen from the shape.

    Returns:
        (M, N), of x's type.

    Raises:
        ValueError, RuntimeError: shapes, types, strides or ``num_splits`` do not fit.
    """
    out: Tensor = torch.ops.split_k_gemm.split_k_gemm(x, w, num_splits=num_splits)
    return out


@torch.library.register_fake("split_k_gemm::split_k_gemm")  # type: ignore[untyped-decorator]
def _fake(x: Tensor, w: Tensor, *, num_splits: int | None = None) -> Tensor:
    return x.new_empty(x.shape[0], w.shape[0])
