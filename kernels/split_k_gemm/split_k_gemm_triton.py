"""The product in Triton: a kernel for the partial sums of each split, and one that adds them.

It defines the same operator as the library, so callers need not know which it is.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 16  # of x in a tile: the least that tl.dot takes
_MOST_SPLITS = 32
_MOST_ROWS = 65535 * _ROWS  # blocks along z, in which the tiles of x are counted
_LIBRARY = torch.library.Library("split_k_gemm", "FRAGMENT")


@triton.jit
def _partial(
    x, w, out, M, N, K, x_stride, w_stride, k_of_split,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out[split, m, n] = sum of x[m, k] w[n, k] over the k of a split, in out's type."""
    m = tl.program_id(2) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    split = tl.program_id(1)
    begin = split * k_of_split
    end = min(begin + k_of_split, K)
    k = tl.arange(0, BK)
    x_rows = x + m[None, :].to(tl.int64) * x_stride
    w_rows = w + n[:, None].to(tl.int64) * w_stride
    sums = tl.zeros((BN, BM), tl.float32)
    for at in range(begin, end, BK):
        inside = at + k < end
        w_tile = tl.load(w_rows + (at + k)[None, :], (n < N)[:, None] & inside[None, :], 0.0)
        x_tile = tl.load(x_rows + (at + k)[:, None], (m < M)[None, :] & inside[:, None], 0.0)
        sums = tl.dot(w_tile, x_tile, sums)
    place = (split.to(tl.int64) * M + m[None, :]) * N + n[:, None]
    tl.store(out + place, sums.to(out.dtype.element_ty), (m < M)[None, :] & (n < N)[:, None])


@triton.jit
def _add(partial, out, elements, splits, BLOCK: tl.constexpr):
    """out[i] = sum of partial[split, i], in the order of the splits."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(splits):
        total += tl.load(partial + at, inside, 0.0)
        partial += elements
    tl.store(out + at, total.to(out.dtype.element_ty), inside)


def split_k_gemm(x: Tensor, w: Tensor, *, num_splits: int | None = None) -> Tensor:
    """``x @ w.T`` with sums in float32.

    Args:
        x: (M, K), float16 or bfloat16, contiguous rows.
        w: (N, K), of x's type and device, contiguous rows.
        num_splits: ranges of k that are summed apart. Default: as many as fill the card.

    Raises:
        ValueError: shapes, types, strides, devices or ``num_splits`` do not fit.
    """
    if x.dim() != 2 or w.dim() != 2 or x.shape[1] != w.shape[1]:
        raise ValueError(
            f"split_k_gemm: x must have shape (M, K) and w (N, K), got {tuple(x.shape)} and"
            f" {tuple(w.shape)}"
        )
    if x.dtype != w.dtype or x.dtype not in {torch.float16, torch.bfloat16}:
        raise ValueError(
            f"split_k_gemm: x and w must both be float16 or bfloat16, got {x.dtype} and {w.dtype}"
        )
    if any(t.shape[1] > 1 and t.stride(1) != 1 for t in (x, w)):
        raise ValueError("split_k_gemm: x and w must have contiguous rows")
    if x.device != w.device:
        raise ValueError("split_k_gemm: x and w must be on one device")
    if num_splits is not None and not 1 <= num_splits <= _MOST_SPLITS:
        raise ValueError(
            f"split_k_gemm: num_splits must lie in [1, {_MOST_SPLITS}], got {num_splits}"
        )
    (M, K), N = x.shape, w.shape[0]
    if M > _MOST_ROWS:
        raise ValueError(f"split_k_gemm: x must have at most {_MOST_ROWS} rows, got {M}")
    out = x.new_empty(M, N)
    if out.numel() == 0:
        return out
    BN, BK = 64, 128
    tiles = triton.cdiv(N, BN)
    splits = num_splits or _splits(tiles, K, x.device)
    k_of_split = triton.cdiv(triton.cdiv(K, splits), BK) * BK
    partial = out if splits == 1 else x.new_empty((splits, M, N), dtype=torch.float32)
    with torch.cuda.device_of(x):  # Triton runs on the current card
        _partial[(tiles, splits, triton.cdiv(M, _ROWS))](
            x, w, partial, M, N, K, x.stride(0), w.stride(0), k_of_split,
            BM=_ROWS, BN=BN, BK=BK, num_warps=4, num_stages=5,
        )  # fmt: skip
        if splits > 1:
            _add[(triton.cdiv(M * N, 256),)](partial, out, M * N, splits, BLOCK=256, num_warps=2)
    return out


def _splits(tiles: int, K: int, device: torch.device) -> int:
    """More than one only where tiles are fewer than half of the multiprocessors: a second kernel
    adds the partial sums. Fitted to times on an H100."""
    processors = 1
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
    splits = 1
    while 2 * tiles * splits < processors and 2 * splits <= min(_MOST_SPLITS, K // 512):
        splits *= 2
    return splits


_LIBRARY.define("split_k_gemm(Tensor x, Tensor w, *, int? num_splits=None) -> Tensor")
_LIBRARY.impl("split_k_gemm", split_k_gemm, "CUDA")
