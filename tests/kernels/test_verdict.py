"""kbtool's tolerance on this kernel: lost keys and values, large logits and large values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_rule import CPU, MANIFEST

from kbtool.gpu.compare import Judge


def verdict(harness: Any, text: str, keys_lost: int) -> dict[str, Any]:
    """Of a call that takes the first keys' values for zeros; weights and LSE are right."""
    inputs = harness.make_inputs(MANIFEST.case_from(text), device=CPU, seed=5)
    values = inputs["v"].clone()
    values[:, :, :keys_lost] = 0
    made = harness.call({**inputs, "v": values})
    exact, yardstick = harness.reference(inputs), harness.baseline(inputs)
    return Judge(harness, inputs, exact, yardstick).all(made)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("lost", [0, 256])
def test_values_lost_among_many_keys_are_seen(harness, dtype, lost):
    """Outputs are near 0.002; a bound for those near 1 let an eighth of 524,288 values be lost."""
    found = verdict(harness, f"B=1 H=2 Hkv=1 Sq=1 Skv=131072 D=64 dtype={dtype}", lost)
    assert found["out"].passed is (lost == 0)
    assert found["lse"].passed


@pytest.mark.parametrize("lost", [0, 1])
def test_a_key_lost_to_late_rows_is_seen_beside_a_row_of_one_key(harness, lost):
    text = "B=1 H=1 Hkv=1 Sq=512 Skv=512 D=64 causal=true dtype=bfloat16"
    inputs = harness.make_inputs(MANIFEST.case_from(text), device=CPU, seed=5)
    exact, yardstick = harness.reference(inputs), harness.baseline(inputs)
    made = harness.call(inputs)
    late = inputs["v"][0, 0, 300:301].double() / 512 * lost  # what one key weighs there, no more
    made["out"][:, :, 500:] = (exact["out"][:, :, 500:] - late).to(torch.bfloat16)
    assert Judge(harness, inputs, exact, yardstick).all(made)["out"].passed is (lost == 0)


FAULTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda out: out,
    "zeros": torch.zeros_like,
    "negated": lambda out: -out,
    "halved": lambda out: out / 2,
    "by a twentieth": lambda out: out * 1.05,
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("scale", [1e7, 2.0**120])
@pytest.mark.parametrize("fault", FAULTS)
def test_large_logits_leave_no_room_for_a_wrong_output(harness, dtype, scale, fault):
    """One key weighs 1 and the others nothing, whatever its logit may be off by."""
    text = f"H=4 Hkv=2 Sq=6 Skv=300 D=64 fill=largest_logits scale={scale} dtype={dtype}"
    inputs = harness.make_inputs(MANIFEST.case_from(text), device=CPU, seed=3)
    exact, yardstick = harness.reference(inputs), harness.baseline(inputs)
    made = harness.call(inputs)
    made["out"] = FAULTS[fault](made["out"])
    found = Judge(harness, inputs, exact, yardstick).all(made)
    assert found["out"].passed is (fault == "none")
    assert found["lse"].passed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("lost", [False, True])
def test_columns_lost_beside_one_of_large_values_are_seen(harness, dtype, lost):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 64).to(dtype) for n in (4, 300, 300))
    v[..., 0] *= 3000
    assert passes(harness, q, k, v, "out", lambda out: out[..., 1:].zero_(), lost) is not lost


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("off", [False, True])
def test_an_lse_off_beside_a_long_key_without_weight_is_seen(harness, dtype, hidden, off):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, n, 64).to(dtype) for n in (40, 300, 300))
    q[..., 0], k[..., 0] = 1, 0
    k[0, 0, -1 if hidden else 7, 0] = -30000  # the last key is hidden from all queries but one
    assert passes(harness, q, k, v, "lse", lambda lse: lse.mul_(1.001), off, hidden) is not off


def passes(harness, q, k, v, output, fault, faulty, causal=False) -> bool:
    """Whether an output of the operator passes, with ``fault`` done to it where it is faulty."""
    inputs = {"q": q, "k": k, "v": v, "causal": causal, "scale": None, "num_splits": 3,
              "kv_lengths": None, "out_layout": "bhsd"}  # fmt: skip
    exact, yardstick = harness.reference(inputs), harness.baseline(inputs)
    made = harness.call(inputs)
    if faulty:
        fault(made[output])
    return bool(Judge(harness, inputs, exact, yardstick).all(made)[output].passed)


@pytest.mark.parametrize("n", [1, 7, 33, 64, 300, 4000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_equal_values_that_all_round_one_way_pass(harness, n, dtype):
    """Equal values, whose sums err all to one side."""
    q, k = torch.zeros(1, 1, 1, 1, dtype=dtype), torch.zeros(1, 1, n, 1, dtype=dtype)
    for value in torch.linspace(1, 8, 23):
        v = torch.full((1, 1, n, 1), float(value), dtype=dtype)
        assert passes(harness, q, k, v, "out", None, False)


def test_the_reference_of_values_that_are_not_finite(harness):
    q, k, v = torch.zeros(1, 1, 4, 2), torch.zeros(1, 1, 4, 2), torch.ones(1, 1, 4, 2)
    v[0, 0, 1, 0], v[0, 0, 2, 0], v[0, 0, 3, 1] = math.inf, -math.inf, math.nan
    k[0, 0, 0] = -math.inf
    q[...] = 1
    inputs = {"q": q, "k": k, "v": v, "causal": True, "scale": None, "num_splits": 1,
              "kv_lengths": None, "out_layout": "bhsd"}  # fmt: skip
    out = harness.reference(inputs)["out"][0, 0]
    nan, inf = math.nan, math.inf
    expected = torch.tensor([[0, 0], [inf, 1], [nan, 1], [nan, nan]], dtype=torch.float64)
    assert torch.equal(out.nan_to_num(nan=77), expected.nan_to_num(nan=77))
    assert not out[2:, 0].isfinite().any()


def test_a_row_of_logits_of_minus_infinity_is_0_whatever_its_values(harness):
    q, k, v = torch.ones(1, 1, 1, 8), torch.zeros(1, 1, 2, 8), torch.zeros(1, 1, 2, 8)
    k[...], v[0, 0, 0], v[0, 0, 1] = -math.inf, math.nan, math.inf
    assert passes(harness, q, k, v, "out", None, False)


@pytest.mark.parametrize(
    "case",
    [
        "B=2 H=4 Hkv=2 Sq=3 Skv=77 D=20 causal=true",
        "B=1 H=2 Hkv=1 Sq=2 Skv=50 D=8 fill=inf_value",
        "B=1 H=2 Hkv=1 Sq=1 Skv=50 D=8 fill=minus_inf_keys layout=bhds",
    ],
)
def test_the_size_of_blocks_changes_the_reference_by_rounding_only(harness, monkeypatch, case):
    """Keys that are lost or counted twice between blocks would change it more."""
    given = {**MANIFEST.case_from(f"{case} dtype=float32")}
    if given["B"] == 2:
        given["kv_lengths"] = [given["Skv"], 40]
    inputs = harness.make_inputs(given, device=CPU, seed=5)
    made = []
    for block in (1, 130, 1 << 17):  # of one key, of a few, of all
        monkeypatch.setattr(harness._right, "_BLOCK", {"cpu": block})
        outputs = (harness.reference, harness.error_scale, harness.baseline)
        made.append([of_inputs for make in outputs for of_inputs in make(inputs).values()])
    for some in made[:2]:
        for one, other in zip(some, made[2], strict=True):
            tolerance = 1e-9 if one.dtype == torch.float64 else 1e-5
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_the_size_of_blocks_is_not_that_of_the_inputs(harness, monkeypatch):
    """Each block of the inputs has numbers of its own."""
    monkeypatch.setattr(harness._inputs, "_DRAWN_AT_A_TIME", {"cpu": 1000})
    inputs = harness.make_inputs(
        MANIFEST.case_from("B=1 H=4 Hkv=4 Sq=1 Skv=500 D=50 dtype=float32"), device=CPU, seed=5
    )
    assert inputs["k"].unique().numel() > 0.99 * inputs["k"].numel()
    assert abs(float(inputs["k"].mean())) < 0.02
    assert abs(float(inputs["k"].std()) - 1) < 0.02


@pytest.mark.parametrize("layout", ["bhsd", "bshd", "offset", "padded", "sliced"])
def test_torchs_own_result_does_not_depend_on_strides(harness, layout):
    case = f"B=1 H=2 Hkv=1 Sq=1 Skv=90 D=24 dtype=float16 layout={layout}"
    plain = harness.make_inputs(
        MANIFEST.case_from(case.replace(layout, "bhsd")), device=CPU, seed=5
    )
    inputs = harness.make_inputs(MANIFEST.case_from(case), device=CPU, seed=5)
    assert torch.equal(harness.baseline(inputs)["out"], harness.baseline(plain)["out"])
