"""Validation: compare every case of the case sets with the float64 reference."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kbtool.gpu.compare import RULE, compare_all, same_bits
from kbtool.gpu.context import context_lost, finish
from kbtool.gpu.harness import Harness, HarnessError, inputs_of
from kbtool.gpu.neighbours import Neighbour
from kbtool.gpu.unseen import tensors
from kbtool.model.kernel import GIVEN, without_name
from kbtool.model.kinds.validate import CaseResult, OutputError, ValidationResult

Case = Mapping[str, Any]

_KEPT_BYTES = 1 << 30  # cached card memory allowed to stay between cases


@torch.inference_mode()
def validate(
    harness: Harness,
    cases: Sequence[tuple[str, Case]],
    *,
    sha256: str,
    device: torch.device,
    seed: int,
    variant: str | None = None,
    neighbours: Sequence[Neighbour] = (),
    no_neighbours: str | None = None,
    on_case: Callable[[int, ValidationResult], None],
    on_begin: Callable[[str], None] = lambda place: None,
) -> ValidationResult:
    """Validate the loaded library.

    Args:
        harness: the kernel's harness.
        cases: (case set, case) pairs.
        sha256: hash of the library, for the record.
        device: the device to run on.
        seed: seed of the run; each case derives its own.
        variant: variant of the operator. Default: the library chooses.
        neighbours: cases beside the listed ones.
        no_neighbours: why there are none, for the record.
        on_case: called after each case with the number of cases done and the latest result.
        on_begin: called with case set and case name before each case.
    """

    def of(results: list[CaseResult]) -> ValidationResult:
        return ValidationResult(
            sha256=sha256, device=str(device), seed=seed, rule=RULE, cases=results,
            no_neighbours=no_neighbours,
        )  # fmt: skip

    results = []
    every = [(case_set, case, None) for case_set, case in cases]
    for case_set, case, beside in [*every, *neighbours]:
        on_begin(f"{case_set}/{case['name']}")
        result = validate_case(harness, case_set, case, device=device, seed=seed, variant=variant)
        results.append(result.model_copy(update={"beside": beside}))
        on_case(len(results), of(results[-1:]))
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
    """Validate one case: compare a call into NaN-filled buffers, a repeat and a plain call.

    Raises:
        RuntimeError: the call ended the CUDA context, so no later case can run here.
    """
    name = str(case["name"])

    def result(
        passed: bool,
        outputs: dict[str, OutputError] | None = None,
        repeatable: bool | None = None,
        message: str | None = None,
    ) -> CaseResult:
        return CaseResult(
            case_set=case_set,
            name=name,
            variant=variant,
            case=without_name(case),
            passed=passed,
            outputs=outputs or {},
            repeatable=repeatable,
            message=message,
        )

    def called(poison: bool) -> dict[str, Tensor]:
        outputs = harness.call(inputs, variant=variant, poison=poison)
        # A copy, since the next call may reuse the buffer; of the elements only, since with large
        # strides the storage may be gigabytes.
        return {
            key: value.clone(memory_format=torch.contiguous_format)
            for key, value in outputs.items()
        }

    inputs = inputs_of(harness, case, device=device, seed=case_seed(seed, case_set, name))
    before = {key: value.clone() for key, value in tensors(inputs)}
    try:
        first, second, plain = called(poison=True), called(poison=True), called(poison=False)
        finish(device)
    except torch.OutOfMemoryError:
        raise  # not the kernel's fault
    except Exception as error:
        if context_lost(device):
            raise
        return result(False, message=f"the call raised {type(error).__name__}: {error}")
    changed = [key for key, value in tensors(inputs) if not same_bits(value, before[key])]
    # Made after the calls: what a frame of its callers holds, a kernel can read.
    given = {**inputs, **before} if changed else inputs
    reference = _outputs("reference", harness.reference(given))
    yardstick = _outputs("baseline", harness.baseline(given))
    _check_harness(name, reference, yardstick, first, plain)
    outputs = compare_all(harness, given, first, reference, yardstick)
    if changed:
        return result(False, outputs, message=f"the call changed its input {changed[0]}")
    repeatable = all(
        same_bits(first[key], second[key]) and same_bits(first[key], plain[key]) for key in first
    )
    wrong = [f"{key}: {value.message}" for key, value in outputs.items() if not value.passed]
    if not wrong and not repeatable:
        wrong = ["a second call gave different bits"]
    return result(not wrong, outputs, repeatable, "; ".join(wrong) or None)


def _check_harness(
    name: str,
    reference: dict[str, Tensor],
    yardstick: dict[str, Tensor],
    first: dict[str, Tensor],
    plain: dict[str, Tensor],
) -> None:
    """Raise if what the harness returned for a case cannot be compared."""
    if not reference.keys() == yardstick.keys() == first.keys() == plain.keys():
        raise HarnessError(
            f"reference, baseline and call of {name!r} return different outputs:"
            f" {sorted(reference)}, {sorted(yardstick)}, {sorted(first)}"
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
