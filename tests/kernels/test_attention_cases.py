"""Every case of the manifest is within the tolerance."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attention_rule import (
    ARCHITECTURE,
    CPU,
    MANIFEST,
    PLACES,
    Place,
    check,
    everywhere,
    same_bits,
    violation,
)

SETS = (
    "quick",
    "seeds",
    "seeds_benchmark",
    "decode",
    "split_sweep",
    "edges",
    "paged",
    "serving",
    "fp8",
    "packed",
)
CASES = [
    pytest.param(place.values[0], case, id=f"{place.id}, {name}: {case['name']}", marks=place.marks)
    for place in PLACES
    for name in SETS
    for case in MANIFEST.cases(name)
    if place.values[0].takes(case)
]


@pytest.mark.parametrize(("place", "case"), CASES)
def test_each_case_is_within_tolerance_and_repeats_bit_for_bit(
    harness: Any, place: Place, case: dict[str, Any]
) -> None:
    inputs = harness.make_inputs(case, device=place.device, seed=20251)
    before = {name: inputs[name].clone() for name in ("q", "k", "v")} if _small(case) else {}
    first = check(harness, inputs, variant=place.variant)
    second = harness.call(inputs, variant=place.variant, poison=False)
    for key in ("out", "lse"):
        assert same_bits(first[key], second[key]), f"{key} depends on what memory held before"
    for name, value in before.items():
        assert same_bits(inputs[name], value), f"{name} was written to"


def _small(case: dict[str, Any]) -> bool:
    return not str(case["layout"]).startswith("far")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (torch.tensor([1.0, math.nan]), "NaN"),
        (torch.tensor([1.0, math.inf]), r"\+inf"),
        (torch.tensor([1.0, 2.001]), "over"),
    ],
)
def test_the_test_tolerance_refuses_nan_infinity_and_large_errors(
    wrong: torch.Tensor, reason: str
) -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert violation(exact.float(), exact, exact.float()) is None
    problem = violation(wrong, exact, exact.float())
    assert problem is not None and reason.strip("\\") in problem


@pytest.mark.parametrize("case", MANIFEST.cases("quick"), ids=lambda case: case["name"])
def test_keys_past_the_lengths_are_nan_in_the_inputs(harness: Any, case: dict[str, Any]) -> None:
    inputs = harness.make_inputs(case, device=CPU, seed=3)
    for b, length in enumerate(case["kv_lengths"] or []):
        assert inputs["k"][b, :, length:].isnan().all()
        assert inputs["v"][b, :, length:].isnan().all()
        assert not inputs["k"][b, :, :length].isnan().any()


def test_inputs_depend_on_the_seed(harness: Any) -> None:
    case = MANIFEST.cases("quick")[0]
    one, again, other = (harness.make_inputs(case, device=CPU, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one["q"], again["q"])
    assert not torch.equal(one["q"], other["q"])
    assert not torch.equal(one["k"], one["v"])


@pytest.mark.parametrize(
    ("case", "bytes_", "flops"),
    [
        # q and out 2 * 4 * 1 * 64, k and v 2 * 2 * 10 * 64 at 2 bytes, LSE 4 * 4
        ({"H": 4, "Hkv": 2, "Skv": 10, "D": 64, "dtype": "float16"}, 6160, 10240),
        # causal: 1 + 2 + 3 of 9 pairs
        ({"Sq": 3, "Skv": 3, "D": 8, "dtype": "float32", "causal": True}, 396, 192),
        # queries before the first key see nothing: 1 + 2 pairs
        ({"Sq": 5, "Skv": 2, "D": 8, "dtype": "float32", "causal": True}, 468, 96),
        ({"B": 2, "Skv": 9, "D": 8, "dtype": "float32", "kv_lengths": [0, 4]}, 392, 128),
        ({"Sq": 0, "Skv": 9, "D": 8, "dtype": "float32"}, 0, 0),
        (
            {"B": 3, "Hkv": 1, "Skv": 9, "D": 8, "dtype": "float32", "layout": "expanded"},
            780,
            864,
        ),
    ],
)
def test_work_counts_what_is_visible(
    harness: Any, case: dict[str, Any], bytes_: int, flops: int
) -> None:
    assert harness.work(case) == {"bytes": bytes_, "flops": flops}


def test_an_arm_is_a_call_or_says_why_it_is_none(harness: Any) -> None:
    for case in MANIFEST.cases("quick"):
        inputs = harness.make_inputs(case, device=CPU, seed=0)
        arms = harness.arms(inputs, ["two_pass", "of another device"], harness.PEERS)
        assert list(arms) == [harness.SUBJECT, "two_pass", "of another device", *harness.PEERS]
        assert "of another device" in arms["of another device"]
        assert isinstance(arms["two_pass"]()[0], torch.Tensor)
        if case["Skv"] == 0:
            assert {arms[name] for name in harness.PEERS} == {"there is nothing to attend to"}
            continue
        assert arms["flash"] == arms["flashinfer"] == "needs a card"
        assert arms["fa3"] == "needs a card of compute capability 9.0"
        assert arms["flex"] == "compiles for a card"


@everywhere
def test_the_manifest_names_the_variants_that_the_device_offers(harness: Any, place: Place) -> None:
    target = MANIFEST.targets[place.target]
    architecture = ARCHITECTURE if place.target == "cuda" and ARCHITECTURE else ""
    assert harness.variants(place.device) == target.variants_for(architecture)


def test_workspace_bytes_are_those_of_the_states(harness: Any) -> None:
    case = {"B": 2, "H": 4, "Sq": 3, "Skv": 50, "D": 8, "dtype": "float32", "num_splits": 5}
    inputs = harness.make_inputs(case, device=CPU, seed=0)
    assert harness.workspace_bytes(inputs) == 5 * 2 * 4 * 3 * (8 + 2) * 4
    assert harness.workspace_bytes(inputs | {"num_splits": 1}, "two_pass") == 0


def test_a_nan_value_reaches_only_the_rows_that_see_it(harness: Any) -> None:
    case = {"H": 1, "Sq": 4, "Skv": 4, "D": 2, "dtype": "float32", "causal": True}
    inputs = harness.make_inputs(case | {"fill": "nan_value"}, device=CPU, seed=0)
    for outputs in (harness.reference(inputs), harness.baseline(inputs)):
        assert outputs["out"][0, 0].isnan().all(-1).tolist() == [False, False, True, True]
        assert outputs["out"][0, 0, :2].isfinite().all()
        assert outputs["lse"].isfinite().all()


def test_the_yardstick_gets_an_aligned_copy_of_its_inputs(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single row in the middle of a storage calls itself contiguous; on a card torch's kernels
    fail on it with a misaligned address."""
    case = {"Sq": 1, "Skv": 1, "D": 64, "layout": "offset", "dtype": "float16"}
    inputs = harness.make_inputs(case, device=CPU, seed=0)
    assert inputs["q"].is_contiguous() and inputs["q"].data_ptr() % 16 != 0
    real = harness._right.scaled_dot_product_attention

    def attention(*tensors: torch.Tensor, **options: Any) -> torch.Tensor:
        assert all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
        return real(*tensors, **options)

    monkeypatch.setattr(harness._right, "scaled_dot_product_attention", attention)
    harness.baseline(inputs)


@pytest.mark.parametrize("fill", ["nan_key", "inf_key", "nan_and_inf_key"])
def test_a_masked_nan_key_leaves_the_tolerance_finite(harness: Any, fill: str) -> None:
    """Torch's mask lets a NaN key through to all; such rows would ask for more than float32 has."""
    sizes = {"B": 2, "H": 4, "Hkv": 2, "Sq": 9, "Skv": 14, "D": 64, "dtype": "float32"}
    case = sizes | {"causal": True, "fill": fill}
    inputs = harness.make_inputs(case, device=CPU, seed=0)
    reference, yardstick = harness.reference(inputs)["out"], harness.baseline(inputs)["out"]
    assert not reference.isfinite().all()
    assert torch.equal(yardstick.isfinite(), reference.isfinite())


def test_steep_logits_beside_a_nan_key_are_within_tolerance(harness: Any) -> None:
    case = {"Sq": 73, "Skv": 14, "dtype": "float32", "causal": True, "scale": 2.0}
    check(harness, harness.make_inputs(case | {"fill": "nan_key"}, device=CPU, seed=0))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [None, [37, 20]])
@pytest.mark.parametrize("queries", [1, 12, 37])
def test_the_peer_computes_the_same_attention(
    harness: Any, causal: bool, lengths: list[int] | None, queries: int
) -> None:
    case = {"B": 2, "H": 4, "Hkv": 2, "Sq": queries, "Skv": 37, "D": 16, "dtype": "float32"}
    inputs = harness.make_inputs(case | {"causal": causal}, device=CPU, seed=0)
    inputs["kv_lengths"] = None if lengths is None else torch.tensor(lengths)
    if lengths is not None:  # what no query sees may be anything
        inputs["v"][0, :, lengths[0] :] = torch.nan
        inputs["v"][1, :, lengths[1] :] = torch.nan
    arms = harness.arms(inputs, (), ["sdpa", "sdpa_repeated"])
    ours = arms[harness.SUBJECT]()[0]
    seen = harness.reference(inputs)["lse"].isfinite()
    for name in ("sdpa", "sdpa_repeated"):
        torch.testing.assert_close(ours[seen], arms[name]()[seen], rtol=1e-5, atol=1e-5)
