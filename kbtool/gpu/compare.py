"""The correctness rule: an output's error may be at most twice torch's own error, plus 2 ulps.
Of torch's error only so much counts that a wrong baseline cannot let a wrong output pass.

A fixed tolerance is not enough: one that fits large values lets a wrong kernel pass on small ones.
Errors are counted in ulps of each element. The baseline is torch's implementation on the same
inputs in the same dtype, compared with the same float64 reference, as in FlashAttention's tests.
ADR 0007 gives the alternatives.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from kbtool.gpu.harness import Harness, Inputs, error_scale_of
from kbtool.model.kinds.validate import OutputError

RULE = (
    "NaN and infinities where the float64 reference has them, and |out - ref| <= 2 max|torch - ref|"
    " + 2, both in ulps, in the output's type, of the terms that the element is a sum of, or of the"
    " largest element where the harness does not tell them;"
    " of torch's error at most 8 ulps count, or 1 % of the largest element;"
    " a second call gives the same bits; inputs are unchanged"
)

MOST_TORCH_ULPS = 8
"""How much of torch's error counts where the harness tells the error scale. In 50,681 recorded
comparisons no correct kernel had an error over 5 ulps, and torch had one of 198 and 255."""

MOST_TORCH_SHARE = 0.01
"""The same as a share of the largest element, where the harness does not tell the error scale."""


def rounding_unit(
    reference: Tensor, dtype: torch.dtype, error_scale: Tensor | None = None
) -> Tensor:
    """The ulp of ``dtype`` in which the error of each element is counted, in float64.

    It is the ulp of ``error_scale`` or of the element, whichever is larger, because terms that
    cancel are rounded at their own magnitude. Without an error scale it is the ulp of the largest
    element. If all elements are zero, it is the smallest positive number.

    Args:
        reference: the output in float64.
        dtype: dtype of the output.
        error_scale: magnitudes of the terms that each element sums; broadcasts to ``reference``.
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
    """Compare one output with the float64 reference.

    Args:
        out: the operator's output.
        reference: the float64 reference.
        torch_out: torch's own result on the same inputs.
        error_scale: as in :func:`rounding_unit`.

    Returns:
        The verdict, with error, bound and torch's largest error at the worst element.
    """

    def fail(message: str) -> OutputError:
        return OutputError(passed=False, error=None, bound=None, torch_error=None, message=message)

    if not is_plain(out):
        return fail(f"is a {type(out).__name__} on {out.device}, not a plain tensor")
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
                f" elements, first at {index}: got {float(out64[index])},"
                f" expected {float(reference[index])}"
            )
    finite = torch.isfinite(reference)
    if not bool(finite.any()):
        return OutputError(passed=True, error=None, bound=None, torch_error=None)
    unit = rounding_unit(reference, out.dtype, error_scale)
    units = torch.where(finite, (out64 - reference).abs() / unit, 0)
    # torch.unravel_index takes as long as all other operations of this function.
    index = tuple(map(int, np.unravel_index(int(units.argmax()), units.shape)))
    comparable = finite & torch.isfinite(yardstick)
    torch_units = float(torch.where(comparable, (yardstick - reference).abs() / unit, 0).max())
    most = float(MOST_TORCH_ULPS)
    if error_scale is None:
        most = max(most, MOST_TORCH_SHARE / torch.finfo(out.dtype).eps)
    allowed = 2 * min(torch_units, most) + 2
    passed = float(units[index]) <= allowed
    worst = float(unit[index])
    error, bound, torch_error = float(units[index]) * worst, allowed * worst, torch_units * worst
    message = None
    if not passed:
        message = (
            f"error {error:.3g} is over the bound {bound:.3g} at {index}:"
            f" got {float(out64[index]):.6g}, expected {float(reference[index]):.6g}"
            f" (torch's largest error, scaled to this element: {torch_error:.3g}"
            f"{f', of which {most * worst:.3g} counts' if torch_units > most else ''})"
        )
    return OutputError(
        passed=passed, error=error, bound=bound, torch_error=torch_error, message=message
    )


class Judge:
    """Holds outputs against the reference of the inputs that they were computed from.

    Args:
        harness: the kernel's harness; it tells the error scale.
        inputs: the inputs.
        reference: the outputs in float64. Default: the harness's.
        baseline: torch's outputs. Default: the harness's.
    """

    def __init__(
        self,
        harness: Harness,
        inputs: Inputs,
        reference: Mapping[str, Tensor] | None = None,
        baseline: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._reference = harness.reference(inputs) if reference is None else reference
        self._baseline = harness.baseline(inputs) if baseline is None else baseline
        self._error_scale = error_scale_of(harness, inputs)

    def all(self, out: Mapping[str, Tensor]) -> dict[str, OutputError]:
        """Compare every output."""
        return {name: self._compare(name, out[name]) for name in self._reference}

    def first(self, out: Tensor) -> OutputError:
        """Compare the first output, which is what arms return."""
        return self._compare(next(iter(self._reference)), out)

    def _compare(self, name: str, out: Tensor) -> OutputError:
        return compare(
            out, self._reference[name], self._baseline[name], self._error_scale.get(name)
        )


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor holds its values: a subclass may compute them when it is looked at."""
    return type(tensor) is Tensor and tensor.layout == torch.strided and not tensor.is_meta


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are bitwise equal, NaN included."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.is_floating_point:
        kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[left.element_size()]
        left, right = left.contiguous().view(kind), right.contiguous().view(kind)
    return bool(torch.equal(left, right))
