"""Call the operator under a profiler or sanitizer. Outputs are not checked here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kbtool.gpu.benchmark import tried
from kbtool.gpu.harness import Harness, HarnessError, inputs_of
from kbtool.gpu.validate import case_seed

_WARM_CALLS = 3
_LAUNCHES = 2000


@torch.inference_mode()
def run_cases(
    harness: Harness,
    cases: list[tuple[tuple[str, Mapping[str, Any]], str | None]],
    *,
    device: torch.device,
    seed: int,
    on_case: Callable[[int, str], None],
) -> int:
    """Call the operator once on each case. Outputs are not filled with NaN first, so that initcheck
    sees memory which the operator failed to write.

    Args:
        harness: the kernel's harness.
        cases: ((case set, case), variant) pairs; ``None`` is the default choice.
        device: the device to run on.
        seed: seed of the inputs.
        on_case: called after each case with the number of cases done and its name.

    Returns:
        The number of cases.
    """
    for number, ((case_set, case), variant) in enumerate(cases, 1):
        seeded = case_seed(seed, case_set, str(case["name"]))
        inputs = inputs_of(harness, case, device=device, seed=seeded)
        harness.call(inputs, variant=variant, poison=False)
        if device.type == "cuda":
            torch.cuda.synchronize()
        on_case(number, str(case["name"]))
    return len(cases)


@torch.inference_mode()
def profiled_call(harness: Harness, case: Mapping[str, Any], arm: str | None, seed: int) -> str:
    """Warm up one arm on the current card, then call it once with the profiler on.

    Args:
        harness: the kernel's harness.
        case: the case.
        arm: name of the arm. Default: the harness's ``SUBJECT``.
        seed: seed of the inputs.

        Returns:
            The name of the arm.

    Raises:
        HarnessError: there is no such arm, or the peer does not take the case.
    """
    device = torch.device("cuda", torch.cuda.current_device())
    inputs = inputs_of(harness, case, device=device, seed=seed)
    name = arm or harness.SUBJECT
    if name in harness.PEERS:
        call = tried(harness, inputs, name, device)
    else:
        no_such_arm = f"the harness has no such arm; its peers are {', '.join(harness.PEERS)}"
        call = harness.arms(inputs, [arm] if arm else []).get(name, no_such_arm)
    if isinstance(call, str):
        raise HarnessError(f"{case['name']}: arm {name!r}: {call}")
    for _ in range(_WARM_CALLS):
        call()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
    return name


def launch_interval_us() -> float:
    """Microseconds between eager launches of an empty kernel; the best of five rounds."""
    intervals = []
    for _ in range(5):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(_LAUNCHES):
            torch.cuda._sleep(0)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        intervals.append((time.perf_counter() - started) / _LAUNCHES)
    return round(min(intervals) * 1e6, 3)
