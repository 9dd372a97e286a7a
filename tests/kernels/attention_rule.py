"""What the attention tests share: the manifest's cases and the rule of the verdict.

The rule is written out here once more, apart from the one that kbtool's validate step applies, so
that neither can hide a fault of the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from kbtool.model.kernel import Kernel

FOLDER = Path(__file__).parents[2] / "kernels" / "split_k_attention"
MANIFEST = Kernel.model_validate(
    yaml.load((FOLDER / "kernel.yaml").read_text(encoding="utf-8"), yaml.BaseLoader)
)
CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# The yardstick of a few rows can be exact by luck; nobody is asked to round better than this.
FLOOR_ULPS = 4.0


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Equal bit by bit, NaN included."""
    kind = torch.int16 if left.element_size() == 2 else torch.int32
    return torch.equal(left.contiguous().view(kind), right.contiguous().view(kind))


def violation(got: Tensor, reference: Tensor, yardstick: Tensor) -> str | None:
    """Why ``got`` fails the rule, or None."""
    wide = got.double()
    for name, of in (("NaN", torch.isnan), ("+inf", torch.isposinf), ("-inf", torch.isneginf)):
        if not torch.equal(of(wide), of(reference)):
            return f"{name} is not where the reference has it"
    finite = torch.isfinite(reference)
    if not finite.any():
        return None
    exact = reference[finite]
    rounded = exact.to(got.dtype)
    rounding = 2 * (rounded + 0.3 - 0.3 - rounded).abs().max().item()
    floor = FLOOR_ULPS * torch.finfo(torch.float32).eps * exact.abs().max().item()
    torch_error = (yardstick.double()[finite] - exact).abs().max().item()
    bound = 2 * torch_error + max(rounding, floor)
    error = (wide[finite] - exact).abs().max().item()
    if not (error <= bound):
        return f"error {error:.3g} is over {bound:.3g}; torch errs {torch_error:.3g}"
    return None


def check(harness: Any, inputs: dict[str, Any], *, poison: bool = True) -> dict[str, Tensor]:
    """Hold the operator against the rule on these inputs; returns what it gave."""
    got: dict[str, Tensor] = harness.call(inputs, poison=poison)
    reference, yardstick = harness.reference(inputs), harness.baseline(inputs)
    for key in ("out", "lse"):
        problem = violation(got[key], reference[key], yardstick[key])
        assert problem is None, f"{key}: {problem}"
    return got
