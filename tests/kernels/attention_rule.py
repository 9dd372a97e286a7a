"""What the attention tests share: the places to run, the manifest's cases, the tolerance.

The rule is written out here once more, apart from the one that kbtool's validate step applies, so
that neither can hide a fault of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from kbtool.gpu.build_plan import choose_architecture
from kbtool.model.errors import UsageError
from kbtool.model.kernel import Kernel

FOLDER = Path(__file__).parents[2] / "kernels" / "split_k_attention"
MANIFEST = Kernel.model_validate(
    yaml.load((FOLDER / "kernel.yaml").read_text(encoding="utf-8"), yaml.BaseLoader)
)
CPU = torch.device("cpu")


def _architecture() -> str | None:
    """What to compile for the card; ``None`` without one that the CUDA target is for."""
    if not torch.cuda.is_available():
        return None
    capability = "sm_{}{}".format(*torch.cuda.get_device_capability())
    try:
        return choose_architecture(MANIFEST, "cuda", capability)
    except UsageError:
        return None


ARCHITECTURE = _architecture()
# The yardstick of a few rows can be exact by luck; nobody is asked to round better than this many
# float32 ulps, or one of a shorter type.
FLOOR_ULPS = 4.0


@dataclass(frozen=True)
class Place:
    """A device, and the variant of the operator to run there; ``None`` is its own choice."""

    target: str
    variant: str | None = None

    def __str__(self) -> str:
        return self.target + (f"-{self.variant or 'default'}" if self.target == "cuda" else "")

    @property
    def packs_rows(self) -> bool:
        """Whether the rows of a call share tiles whose form hangs on how many there are."""
        return self.target == "cuda" and self.variant not in {"fa1", "two_pass"}

    @property
    def device(self) -> torch.device:
        return torch.device(self.target)

    @property
    def dtypes(self) -> list[torch.dtype]:
        refused = MANIFEST.targets[self.target].not_taken.get("dtype", [])
        names = [name for name in MANIFEST.case_fields["dtype"].choices if name not in refused]
        return [getattr(torch, name) for name in names]

    @property
    def dtype(self) -> torch.dtype:
        return self.dtypes[0]

    @property
    def max_dim(self) -> int:
        return 256 if self.target == "cuda" else 300

    def takes(self, case: dict[str, Any]) -> bool:
        return MANIFEST.targets[self.target].takes(case, self.variant)


def _places() -> Iterator[Any]:
    yield pytest.param(Place("cpu"), id="cpu")
    for variant in (None, *MANIFEST.targets["cuda"].variants):
        place, reason = Place("cuda", variant), None
        if ARCHITECTURE is None:
            reason = "no CUDA card that the kernel is for: GPU tests are skipped"
        elif variant and variant not in MANIFEST.targets["cuda"].variants_for(ARCHITECTURE):
            reason = f"a build for {ARCHITECTURE} has no variant {variant}"
        marks = [pytest.mark.gpu, pytest.mark.skipif(reason is not None, reason=reason or "")]
        yield pytest.param(place, id=str(place), marks=marks)


PLACES = list(_places())
ON_CUDA = [place for place in PLACES if place.values[0].target == "cuda"]
everywhere = pytest.mark.parametrize("place", PLACES)
on_cuda = pytest.mark.parametrize("place", ON_CUDA)


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Equal bit by bit, NaN included."""
    kind = torch.int16 if left.element_size() == 2 else torch.int32
    return torch.equal(left.contiguous().view(kind), right.contiguous().view(kind))


def logit_error_scale(inputs: dict[str, Any]) -> float:
    """What no partial sum of a logit exceeds: the longest query times the longest key, scaled."""
    norms = [inputs[name].double().norm(dim=-1) for name in ("q", "k")]
    longest = [norm[norm.isfinite()].amax().item() if norm.isfinite().any() else 0.0
               for norm in norms]  # fmt: skip
    scale = inputs["scale"]
    factor = inputs["q"].shape[-1] ** -0.5 if scale is None else abs(scale)
    return float(factor * longest[0] * longest[1])


def violation(
    got: Tensor,
    reference: Tensor,
    yardstick: Tensor,
    error_scale: float = 0.0,
    more: Sequence[Tensor] = (),
) -> str | None:
    """Why ``got`` fails the rule, or None; ``error_scale`` is the size of what it is a sum of, and
    ``more`` are further yardsticks."""
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
    ulps = max(FLOOR_ULPS * torch.finfo(torch.float32).eps, torch.finfo(got.dtype).eps)
    floor = max(ulps * exact.abs().max().item(), torch.finfo(got.dtype).eps * error_scale)
    off_by = torch.stack([(one.double()[finite] - exact).abs() for one in (yardstick, *more)])
    torch_error = off_by[off_by.isfinite()].amax().item() if off_by.isfinite().any() else 0.0
    bound = 2 * torch_error + max(rounding, floor)
    error = (wide[finite] - exact).abs().max().item()
    if not (error <= bound):
        return f"error {error:.3g} is over {bound:.3g}; torch errs {torch_error:.3g}"
    return None


def in_other_orders(harness: Any, inputs: dict[str, Any]) -> Iterator[dict[str, Tensor]]:
    """What torch makes of the columns of q and k in other orders: the logits but for rounding."""
    draw = torch.Generator().manual_seed(1)
    for _ in range(8):
        order = torch.randperm(inputs["q"].shape[-1], generator=draw).to(inputs["q"].device)
        shuffled = {name: inputs[name][..., order] for name in ("q", "k")}
        yield harness.baseline({**inputs, **shuffled})


def check(
    harness: Any, inputs: dict[str, Any], *, variant: str | None = None, poison: bool = True
) -> dict[str, Tensor]:
    """Hold the operator against the rule on these inputs; returns what it gave."""
    got: dict[str, Tensor] = harness.call(inputs, variant=variant, poison=poison)
    reference, yardstick = harness.reference(inputs), harness.baseline(inputs)
    for key in ("out", "lse"):
        error_scale = logit_error_scale(inputs) if key == "lse" else 0.0
        problem = violation(got[key], reference[key], yardstick[key], error_scale)
        if problem is not None:
            # torch's logits of a few rows can be exact by luck: it sums their columns again, in
            # other orders.
            more = [one[key] for one in in_other_orders(harness, inputs)]
            problem = violation(got[key], reference[key], yardstick[key], error_scale, more)
        assert problem is None, f"{key}: {problem}"
    return got


def check_case(harness: Any, case: dict[str, Any], place: Place, seed: int) -> None:
    """Hold the operator against the rule on inputs of a case, and name the case where it fails."""
    inputs = harness.make_inputs(case, device=place.device, seed=seed)
    try:
        check(harness, inputs, variant=place.variant)
    except AssertionError as error:
        raise AssertionError(f"{case}: {error}") from None
