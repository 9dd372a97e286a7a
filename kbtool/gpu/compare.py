"""The rule of the verdict: an output may err as much as torch's own does, twice over, and no more.

A fixed bound is no test: one that is loose enough for large inputs lets a wrong kernel pass on
small ones. Here the yardstick is torch's implementation on the same inputs at the same precision,
held against the same float64 reference, as in FlashAttention's own tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from kbtool.gpu.harness import Harness, Inputs, terms_of
from kbtool.model.results import OutputError

RULE = (
    "NaN and infinities where the float64 reference has them, and"
    " max|out - ref| <= 2 max|torch - ref| + 2 ulp(max|ref| + 0.3) in the output's type, or of the"
    " terms that the output is a sum of where those are larger;"
    " a second call gives the same bits; inputs are unchanged"
)


def rounding_term(reference: Tensor, dtype: torch.dtype, terms: float = 0.0) -> float:
    """The absolute term: 2 ulp of ``max|reference| + 0.3`` in ``dtype``, or of ``terms``.

    FlashAttention takes ``2 max|(ref + 0.3 - 0.3) - ref|``, which is at most this and, over the few
    elements of a small output, zero by luck; the verdict must not hang on the seed. Nor may it hang
    on whether terms happen to cancel: each is rounded as it is, however small their sum.

    Args:
        reference: the output in float64.
        dtype: of the output.
        terms: the largest magnitude of what the output is a sum of.
    """
    finite = reference[torch.isfinite(reference)]
    if finite.numel() == 0:
        return 0.0
    _, exponent = math.frexp(max(float(finite.abs().max()) + 0.3, terms))
    return 2 * torch.finfo(dtype).eps * math.ldexp(1.0, exponent - 1)


def compare(out: Tensor, reference: Tensor, torch_out: Tensor, terms: float = 0.0) -> OutputError:
    """Hold one output against the float64 reference.

    Args:
        out: the operator's output.
        reference: the same in float64.
        torch_out: torch's own result on the same inputs.
        terms: the largest magnitude of what the output is a sum of, where it may be less.
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
    atol = rounding_term(reference, out.dtype, terms)
    finite = torch.isfinite(reference)
    if not bool(finite.any()):
        return OutputError(passed=True, error=None, bound=atol, torch_error=None)
    errors = torch.where(finite, (out64 - reference).abs(), 0)
    error = float(errors.max())
    torch_errors = (yardstick - reference).abs()[finite & torch.isfinite(yardstick)]
    torch_error = float(torch_errors.max()) if torch_errors.numel() else 0.0
    bound = 2 * torch_error + atol
    passed = error <= bound  # a NaN fails
    message = None
    if not passed:
        index = tuple(int(i) for i in torch.unravel_index(errors.argmax(), errors.shape))
        message = (
            f"max error {error:.3g} is over the bound {bound:.3g} (torch errs {torch_error:.3g}),"
            f" worst at {index}: {float(out64[index]):.6g} for {float(reference[index]):.6g}"
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
    """Hold every output against its reference, with the terms that the harness knows of."""
    terms = terms_of(harness, inputs)
    return {
        key: compare(out[key], exact, torch_out[key], terms.get(key, 0.0))
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
