"""The kernels of fa1 and two_pass, run on the host thread by thread in an order that is drawn.

A barrier that is missing changes results here, shared memory that nobody wrote is NaN, and one
thread that misses a barrier is a deadlock: what needs luck to be seen on a card.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_rule import CPU, MANIFEST, same_bits, violation
from on_host import HOST_CUDA, kernel_on_host
from torch import Tensor

VARIANTS = {"fa1": 0, "two_pass": 1}
Run = Callable[..., dict[str, Tensor]]


@pytest.fixture(scope="session")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a variant on a harness's inputs."""
    library = kernel_on_host(tmp_path_factory.mktemp("host"), HOST_CUDA / "run.cpp", "-O2")

    def run(inputs: dict[str, Any], variant: str, order: int = 1) -> dict[str, Tensor]:
        q, k, v = inputs["q"], inputs["k"], inputs["v"]
        B, H, Sq, D = q.shape
        splits = 1 if variant == "fa1" else inputs["num_splits"] or 3
        out = torch.full(q.shape, math.nan, dtype=q.dtype)
        lse = torch.full((B, H, Sq), math.nan)
        workspace = torch.full((splits * B * H * Sq * (D + 2),), math.nan) if splits > 1 else None
        sizes = (B, H, k.shape[1], Sq, k.shape[2], D, splits)
        strides = [stride for t in (q, k, v, out, lse) for stride in t.stride()]
        lengths, scale = inputs["kv_lengths"], inputs["scale"]
        if lse.numel() > 0:
            status = library.run_on_host(
                VARIANTS[variant],
                int(q.dtype == torch.bfloat16),
                *(_address(t) for t in (q, k, v, out, lse, workspace)),
                (ctypes.c_int64 * len(sizes))(*sizes),
                (ctypes.c_int64 * len(strides))(*strides),
                _address(lengths),
                int(lengths is not None and lengths.dtype == torch.int64),
                ctypes.c_float(1 / math.sqrt(D) if scale is None else scale),
                int(inputs["causal"]),
                ctypes.c_uint64(order),
            )
            assert status == 0
        return {"out": out, "lse": lse}

    library.lengths_read.restype = ctypes.c_int64
    run.lengths_read = library.lengths_read  # type: ignore[attr-defined]
    return run


def _address(t: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if t is None else t.data_ptr())


def blocks_of_keys(case: dict[str, Any]) -> int:
    """Tiles of 64 queries by 64 keys: what a case takes of the host's time."""
    return case["B"] * case["H"] * math.ceil(case["Sq"] / 64) * math.ceil(case["Skv"] / 64)


CASES = [
    pytest.param(case, id=f"{name}: {case['name']}")
    for name, dtype in (("quick", "float16"), ("edges", "bfloat16"))
    for case in MANIFEST.cases(name)
    if case["dtype"] == dtype and blocks_of_keys(case) <= 60
]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", CASES)
def test_each_case_is_within_tolerance_on_the_host(
    harness: Any, on_host: Run, case: dict[str, Any], variant: str
) -> None:
    inputs = harness.make_inputs(case, device=CPU, seed=11)
    reference, yardstick = harness.reference(inputs), harness.baseline(inputs)
    got = on_host(inputs, variant)
    for key in ("out", "lse"):
        problem = violation(got[key], reference[key], yardstick[key])
        assert problem is None, f"{key}: {problem}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_order_of_the_threads_changes_no_bit(harness: Any, on_host: Run, variant: str) -> None:
    fields = {"H": 2, "Sq": 70, "Skv": 200, "D": 100, "causal": True, "num_splits": 2}
    inputs = harness.make_inputs(fields, device=CPU, seed=3)
    first = on_host(inputs, variant, order=1)
    for order in range(2, 6):
        again = on_host(inputs, variant, order=order)
        assert same_bits(again["out"], first["out"]) and same_bits(again["lse"], first["lse"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_block_reads_its_length_once(harness: Any, on_host: Run, variant: str) -> None:
    """Another stream may overwrite it meanwhile."""
    fields = {"B": 3, "H": 2, "Sq": 70, "Skv": 200, "D": 64, "num_splits": 2}
    on_host(harness.make_inputs(fields | {"kv_lengths": [200, 0, 77]}, device=CPU, seed=3), variant)
    work_units = 3 * 2 * 2 * (2 if variant == "two_pass" else 1)
    assert on_host.lengths_read() == work_units  # type: ignore[attr-defined]


@pytest.mark.parametrize("variant", VARIANTS)
def test_values_of_one_give_exactly_one(harness: Any, on_host: Run, variant: str) -> None:
    for D in (40, 128, 256):
        fields = {"H": 2, "Sq": 9, "Skv": 333, "D": D, "fill": "v_one", "num_splits": 5}
        got = on_host(harness.make_inputs(fields, device=CPU, seed=3), variant)
        assert got["out"].eq(1).all()
