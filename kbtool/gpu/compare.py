"""The rule of the verdict: an output may err as much as torch's own does, twice over, and no more.

A fixed bound is no test: one that is loose enough for large values lets a wrong kernel pass on
small ones. Here errors are told in units of what rounding does to each element, and the yardstick
is torch's implementation on the same inputs at the same precision, held against the same float64
reference, as in FlashAttention's own tests. ADR 0007 tells what else was tried.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from kbtool.gpu.harness import Harness, Inputs, error_scale_of
from kbtool.model.kinds.validate import OutputError

RULE = (
    "NaN and infinities where the float64 reference has them, and |out - ref| <= 2 max|torch - ref|"
    " + 2, both in ulps, in the output's type, of the terms that the element is a sum of, or of the"
    " largest element where the harness does not tell them;"
    " a second call gives the same bits; inputs are unchanged"
)


def rounding_unit(
    reference: Tensor, dtype: torch.dtype, error_scale: Tensor | None = None
) -> Tensor:
    """The ulp in ``dtype`` that each element's error is counted in, in float64.

    It is the ulp of ``error_scale`` or of the element, whichever is larger: terms that cancel are
    rounded by their own size. Without an error scale, the ulp of the largest element. Where all are
    zero, the smallest number.

    Args:
        reference: the output in float64.
        dtype: of the output.
        error_scale: magnitudes of what the elements are sums of; broadcasts to ``reference``.
    """
    size = torch.where(reference.isfinite(), reference.abs(), 0)
    if error_scale is not None:
        size = torch.maximum(size, error_scale.to(size))
    elif size.numel():
        size = size.max().expand_as(size)
    limits = torch.finfo(dtype)
    _, exponent = torch.frexp(size.clamp(min=limits.smallest_normal))
    return limits.eps * torch.ldexp(torch.ones_like(size), exponent - 1)


def compare(
    out: Tensor, reference: Tensor, torch_out: Tensor, error_scale: Tensor | None = None
) -> OutputError:
    """Hold one output against the float64 reference.

    Args:
        out: the operator's output.
        reference: the same in float64.
        torch_out: torch's own result on the same inputs.
        error_scale: as in :func:`rounding_unit`.

    Returns:
        The verdict; error, bound and torch's largest error are those of the worst element.
    """

    def fail(message: str) -> OutputError:
        return OutputError(passed=False, error=None, bound=None, torch_error=None, message=message)

    if out.shape != reference.shape:
        return fail(f"has shape {tuple(out.shape)}, not {tuple(reference.shape)}")
    if out.dtype != torch_out.dtype:
        return fail(f"has type {out.dtype}, not {torch_out.dtype}")
    out64, yardstick = out.double(), torch_out.double()
    for name, of in (("NaN", torch.isnan), ("+inf", torch.isposinf), ("-inf", torch.isneginf)):
        wrong = of(out64) != of(reference)
        if bool(wrong.any()):
            index = tuple(int(i) for i in wrong.nonzero()[0])
            return fail(
                f"{name} does not match the reference in {int(wrong.sum())} of {wrong.numel()}"
                f" places, first at {index}: {float(out64[index])} for {float(reference[index])}"
            )
    finite = torch.isfinite(reference)
    if not bool(finite.any()):
        return OutputError(passed=True, error=None, bound=None, torch_error=None)
    unit = rounding_unit(reference, out.dtype, error_scale)
    units = torch.where(finite, (out64 - reference).abs() / unit, 0)
    index = tuple(int(i) for i in torch.unravel_index(units.argmax(), units.shape))
    told = finite & torch.isfinite(yardstick)
    torch_units = float(torch.where(told, (yardstick - reference).abs() / unit, 0).max())
    allowed = 2 * torch_units + 2
    passed = float(units[index]) <= allowed
    worst = float(unit[index])
    error, bound, torch_error = float(units[index]) * worst, allowed * worst, torch_units * worst
    message = None
    if not passed:
        message = (
            f"error {error:.3g} is over the bound {bound:.3g} at {index}:"
            f" {float(out64[index]):.6g} for {float(reference[index]):.6g}"
            f" (torch errs {torch_error:.3g} at most, for like terms)"
        )
    return OutputError(
        passed=passed, error=error, bound=bound, torch_error=torch_error, message=message
    )


def compare_all(
    harness: Harness,
    inputs: Inputs,
    out: Mapping[str, Tensor],
    reference: Mapping[str, Tensor],
    torch_out: Mapping[str, Tensor],
) -> dict[str, OutputError]:
    """Hold every output against its reference, on the error scale that the harness knows of."""
    error_scale = error_scale_of(harness, inputs)
    return {
        key: compare(out[key], exact, torch_out[key], error_scale.get(key))
        for key, exact in reference.items()
    }


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are equal bit by bit, NaN included."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.is_floating_point:
        kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[left.element_size()]
        left, right = left.contiguous().view(kind), right.contiguous().view(kind)
    return bool(torch.equal(left, right))
