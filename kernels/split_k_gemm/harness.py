"""Split-K GEMM as a problem: few rows of x times the transpose of a weight, as in decoding."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

SUBJECT = "split_k_gemm"
PEERS = ("torch", "compiled")
BASELINE_ARM = "torch"

_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
# Elements ahead of each row, and behind it.
_GAPS = {"contiguous": (0, 0), "padded": (0, 8), "odd_rows": (0, 3), "unaligned": (1, 2)}


def make_inputs(case: Mapping[str, Any], *, device: torch.device, seed: int) -> dict[str, Any]:
    """New inputs; what lies between padded rows is NaN."""
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype, fill, (ahead, behind) = _DTYPES[case["dtype"]], case["fill"], _GAPS[case["layout"]]
    M, N, K = case["M"], case["N"], case["K"]

    def matrix(rows: int) -> Tensor:
        stored = torch.full((rows, ahead + K + behind), math.nan, dtype=dtype, device=device)
        values = stored[:, ahead : ahead + K]
        for part in values.split(max(1, (1 << 24) // max(K, 1))):
            part.copy_(torch.randn(part.shape, generator=generator, device=device))
        return values

    x, w = matrix(M), matrix(N)
    if fill == "cancelling":  # the sums of the two halves are large, and what is left is not
        x[:, : K // 2], x[:, K // 2 : K // 2 * 2] = 30, -30
        w[:, K // 2 : K // 2 * 2] = w[:, : K // 2]
    if fill == "ones":
        x.fill_(1)
        w.fill_(1)
    if fill == "nan_row":
        w[N // 2] = math.nan
    if fill == "infinite":
        w[N // 2, K // 2] = math.inf
        x[-1] = x[-1].abs() + 1
    return {"x": x, "w": w, "num_splits": case["num_splits"]}


def reference(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The product in float64."""
    x = inputs["x"].double()
    return {"out": torch.cat([x @ w.double().T for w in _parts(inputs["w"])], dim=1)}


def error_scale(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The size of the terms that an element sums: the result's own rounding, and that of float32 on
    each product and each addition, whose errors add up as squares do."""
    x, K = inputs["x"].double().abs(), inputs["x"].shape[1]
    digits = torch.finfo(torch.float32).eps / torch.finfo(inputs["x"].dtype).eps
    scale = []
    for part in _parts(inputs["w"]):
        w = part.double().abs()
        rounded = (x @ w.T) * max(1.0, math.sqrt(K) / 8)
        scale.append((inputs["x"].double() @ part.double().T).abs() + digits * rounded)
    return {"out": torch.nan_to_num(torch.cat(scale, dim=1), posinf=0)}


def _parts(w: Tensor) -> Iterator[Tensor]:
    """Rows of ``w``, so many at a time that their float64 copy stays small."""
    return iter(w.split(max(1, (1 << 25) // max(w.shape[1], 1))))


def baseline(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Torch's own product: cuBLAS on a card."""
    return {"out": linear(inputs["x"], inputs["w"])}


def call(
    inputs: Mapping[str, Any], *, variant: str | None = None, poison: bool = True
) -> dict[str, Tensor]:
    """The operator. It makes its output itself, so there is none to fill before."""
    if poison:
        _leave_nans(inputs)
    return {"out": _call(inputs)()}


def _call(inputs: Mapping[str, Any]) -> Callable[[], Tensor]:
    return functools.partial(
        torch.ops.split_k_gemm.split_k_gemm,
        inputs["x"],
        inputs["w"],
        num_splits=inputs["num_splits"],
    )


def _leave_nans(inputs: Mapping[str, Any]) -> None:
    """Fill memory of the output's size with NaN and free it: the allocator hands it out next."""
    shape = (inputs["x"].shape[0], inputs["w"].shape[0])
    inputs["x"].new_full(shape, math.nan)


def arms(
    inputs: Mapping[str, Any], variants: Sequence[str] = (), peers: Sequence[str] = ()
) -> dict[str, Callable[[], Any] | str]:
    """The operator and its peers."""
    made: dict[str, Callable[[], Any] | str] = {SUBJECT: _call(inputs)}
    for name in peers:
        made[name] = {"torch": torch_linear, "compiled": compiled}[name](inputs)
    return made


def torch_linear(inputs: Mapping[str, Any]) -> Callable[[], Tensor]:
    """``torch.nn.functional.linear``: cuBLAS on a card."""
    return functools.partial(linear, inputs["x"], inputs["w"])


def compiled(inputs: Mapping[str, Any]) -> Callable[[], Tensor]:
    """``torch.compile`` of the same, which on a card tunes Triton's products against cuBLAS."""
    function = torch.compile(linear, mode="max-autotune-no-cudagraphs", dynamic=False)
    return functools.partial(function, inputs["x"], inputs["w"])


def work(case: Mapping[str, Any]) -> dict[str, int]:
    """Each matrix moves once, at 16 bits an element; a product and an addition for each term."""
    M, N, K = case["M"], case["N"], case["K"]
    return {"bytes": 2 * (M * K + N * K + M * N), "flops": 2 * M * N * K}


def neighbours(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One more and one less of each size, and other storage."""
    for field in ("M", "N", "K"):
        for step in (-1, 1):
            if case[field] + step >= 0:
                yield {**case, field: case[field] + step}
    for layout in _GAPS:
        if layout != case["layout"]:
            yield {**case, "layout": layout}
