"""Validation: compare every case of the case sets with the float64 reference."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kbtool.gpu.compare import RULE, Judge, same_bits
from kbtool.gpu.context import context_lost, finish
from kbtool.gpu.harness import Harness, HarnessError, Inputs, inputs_of
from kbtool.gpu.unseen import tensors
from kbtool.model.kernel import GIVEN, without_name
from kbtool.model.kinds.validate import CaseResult, ValidationResult

Case = Mapping[str, Any]

_KEPT_BYTES = 1 << 30  # cached card memory allowed to stay between cases


class Wanted(NamedTuple):
    """A case to validate."""

    case_set: str
    case: Case
    variants: Sequence[str | None] = (None,)
    """The variants of the operator to call; ``None``: the library chooses."""
    beside: str | None = None
    """Of a case that no set lists: the listed one that it was drawn beside."""


@torch.inference_mode()
def validate(
    harness: Harness,
    cases: Sequence[Wanted],
    *,
    sha256: str,
    device: torch.device,
    seed: int,
    no_neighbours: str | None = None,
    on_case: Callable[[int, ValidationResult], None],
    on_begin: Callable[[str], None] = lambda place: None,
) -> ValidationResult:
    """Validate the loaded library.

    Args:
        harness: the kernel's harness.
        cases: the cases, each with its variants.
        sha256: hash of the library, for the record.
        device: the device to run on.
        seed: seed of the run; each case derives its own.
        no_neighbours: why no case beside the listed ones is among them, for the record.
        on_case: called after each verdict with the number of verdicts so far and the latest.
        on_begin: called with case set and case name before each case, and with the variant before
            that is called.
    """

    def of(results: list[CaseResult]) -> ValidationResult:
        return ValidationResult(
            sha256=sha256, device=str(device), seed=seed, rule=RULE, cases=results,
            no_neighbours=no_neighbours,
        )  # fmt: skip

    results: list[CaseResult] = []
    for wanted in cases:
        for result in validate_variants(
            harness, wanted, device=device, seed=seed, on_begin=on_begin
        ):
            results.append(result)
            on_case(len(results), of([result]))
        if device.type == "cuda" and torch.cuda.memory_reserved(device) > _KEPT_BYTES:
            torch.cuda.empty_cache()  # other processes may validate on the same card
    return of(results)


def validate_case(
    harness: Harness,
    case_set: str,
    case: Case,
    *,
    device: torch.device,
    seed: int,
    variant: str | None = None,
) -> CaseResult:
    """``validate_variants`` for one variant."""
    wanted = Wanted(case_set, case, [variant])
    return validate_variants(harness, wanted, device=device, seed=seed)[0]


def validate_variants(
    harness: Harness,
    wanted: Wanted,
    *,
    device: torch.device,
    seed: int,
    on_begin: Callable[[str], None] = lambda place: None,
) -> list[CaseResult]:
    """Validate the variants on one case: compare a call into NaN-filled buffers, a repeat and a
    plain call of each with one reference.

    Raises:
        RuntimeError: the call ended the CUDA context, so no later case can run here.
    """
    case_set, case, variants, beside = wanted
    name = str(case["name"])

    def make() -> tuple[dict[str, Any], dict[str, Tensor]]:
        inputs = inputs_of(harness, case, device=device, seed=case_seed(seed, case_set, name))
        return inputs, {key: value.clone() for key, value in tensors(inputs)}

    on_begin(place := f"{case_set}/{name}")
    inputs, before = make()
    called: dict[str | None, _Called] = {}
    for variant in variants:
        if variant:
            on_begin(f"{place} as {variant}")
        called[variant] = one = _call(harness, inputs, before, variant, device)
        if one.changed:
            inputs, before = make()
    if any(variants):
        on_begin(place)
    # Made after all calls: what a frame of its callers holds, a kernel can read.
    judge: Judge | None = None
    if made := [one for one in called.values() if one.raised is None]:
        reference = _outputs("reference", harness.reference(inputs))
        yardstick = _outputs("baseline", harness.baseline(inputs))
        for one in made:
            _check_harness(name, reference, yardstick, one)
        judge = Judge(harness, inputs, reference, yardstick)
    return [
        CaseResult(
            case_set=case_set,
            name=name,
            variant=variant,
            case=without_name(case),
            beside=beside,
            **_verdict(one, judge),
        )
        for variant, one in called.items()
    ]


class _Called(NamedTuple):
    """What the calls of one variant did."""

    outputs: dict[str, Tensor] = {}
    """Copies of the first call's; empty if a call raised."""
    plain: frozenset[str] = frozenset()
    """Names of what a call without NaN-filled buffers returned."""
    repeatable: bool | None = None
    changed: str | None = None
    """The first input that is not as it was."""
    raised: str | None = None


def _call(
    harness: Harness,
    inputs: Inputs,
    before: Mapping[str, Tensor],
    variant: str | None,
    device: torch.device,
) -> _Called:
    """Call a variant twice into NaN-filled buffers and once without."""

    def copies(poison: bool) -> dict[str, Tensor]:
        outputs = harness.call(inputs, variant=variant, poison=poison)
        # A copy, since the next call may reuse the buffer; of the elements only, since with large
        # strides the storage may be gigabytes.
        return {
            key: value.clone(memory_format=torch.contiguous_format)
            for key, value in outputs.items()
        }

    try:
        first, second, plain = copies(poison=True), copies(poison=True), copies(poison=False)
        finish(device)
    except torch.OutOfMemoryError:
        raise  # not the kernel's fault
    except Exception as error:
        if context_lost(device):
            raise
        return _Called(raised=f"the call raised {type(error).__name__}: {error}")
    changed = (key for key, value in tensors(inputs) if not same_bits(value, before[key]))
    repeatable = first.keys() == plain.keys() == second.keys() and all(
        same_bits(first[key], second[key]) and same_bits(first[key], plain[key]) for key in first
    )
    return _Called(first, frozenset(plain), repeatable, next(changed, None))


def _verdict(called: _Called, judge: Judge | None) -> dict[str, Any]:
    """The fields of a result that tell the verdict."""
    if called.raised or judge is None:
        return {"passed": False, "message": called.raised}
    outputs = judge.all(called.outputs)
    if called.changed:
        message = f"the call changed its input {called.changed}"
        return {"passed": False, "outputs": outputs, "message": message}
    wrong = [f"{key}: {value.message}" for key, value in outputs.items() if not value.passed]
    if not wrong and not called.repeatable:
        wrong = ["a second call gave different bits"]
    return {
        "passed": not wrong,
        "outputs": outputs,
        "repeatable": called.repeatable,
        "message": "; ".join(wrong) or None,
    }


def _check_harness(
    name: str,
    reference: dict[str, Tensor],
    yardstick: dict[str, Tensor],
    called: _Called,
) -> None:
    """Raise if what the harness returned for a case cannot be compared."""
    if not reference.keys() == yardstick.keys() == called.outputs.keys() == called.plain:
        raise HarnessError(
            f"reference, baseline and call of {name!r} return different outputs:"
            f" {sorted(reference)}, {sorted(yardstick)}, {sorted(called.outputs)}"
        )
    if not reference:
        raise HarnessError(f"reference, baseline and call of {name!r} return no output")
    for key, exact in reference.items():
        if exact.shape != yardstick[key].shape:
            raise HarnessError(
                f"reference and baseline of {name!r} return {key} with different shapes:"
                f" {tuple(exact.shape)}, {tuple(yardstick[key].shape)}"
            )


def _outputs(function: str, made: Any) -> dict[str, Tensor]:
    """Check that a harness function returned tensors by output name."""
    if isinstance(made, dict) and all(isinstance(value, Tensor) for value in made.values()):
        return made
    raise HarnessError(f"{function} must return a tensor per output; it returned {made!r:.80}")


@torch.inference_mode()
def error_profile(
    harness: Harness,
    case_set: str,
    case: Case,
    *,
    axis: int,
    device: torch.device,
    seed: int,
    variant: str | None = None,
) -> list[float | None]:
    """The largest error of the first output at each index of ``axis``; NaN becomes ``None``."""
    inputs = inputs_of(harness, case, device=device, seed=case_seed(seed, case_set, case["name"]))
    name, reference = next(iter(harness.reference(inputs).items()))
    error = (harness.call(inputs, variant=variant)[name].double() - reference).abs()
    if error.numel() == 0:
        return []
    largest = error.movedim(axis, 0).reshape(error.shape[axis], -1).amax(1)
    return [None if math.isnan(value) else value for value in largest.tolist()]


def case_seed(seed: int, case_set: str, name: str) -> int:
    """The seed of one case. It depends on the case only, so cases can run alone and in any order.
    Cases given as text share one seed, so that neighbours in a search get similar inputs."""
    of = GIVEN if case_set == GIVEN else f"{case_set}/{name}"
    digest = hashlib.sha256(f"{seed}/{of}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
