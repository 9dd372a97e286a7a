"""Every case of the manifest, by the rule of the verdict."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attention_rule import CPU, MANIFEST, check, same_bits, violation

CASES = [
    pytest.param(case, id=f"{case_set}: {case['name']}")
    for case_set in MANIFEST.case_sets
    for case in MANIFEST.cases(case_set)
]


@pytest.mark.parametrize("case", CASES)
def test_case(harness: Any, case: dict[str, Any]) -> None:
    inputs = harness.make_inputs(case, device=CPU, seed=20251)
    before = {name: inputs[name].clone() for name in ("q", "k", "v")} if _small(case) else {}
    first = check(harness, inputs)
    second = harness.call(inputs, poison=False)
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
def test_the_rule_refuses(wrong: torch.Tensor, reason: str) -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert violation(exact.float(), exact, exact.float()) is None
    problem = violation(wrong, exact, exact.float())
    assert problem is not None and reason.strip("\\") in problem


@pytest.mark.parametrize("case", MANIFEST.cases("quick"), ids=lambda case: case["name"])
def test_poison_lies_where_nothing_may_be_read(harness: Any, case: dict[str, Any]) -> None:
    inputs = harness.make_inputs(case, device=CPU, seed=3)
    for b, length in enumerate(case["kv_lengths"] or []):
        assert inputs["k"][b, :, length:].isnan().all()
        assert inputs["v"][b, :, length:].isnan().all()
        assert not inputs["k"][b, :, :length].isnan().any()


def test_inputs_are_fresh(harness: Any) -> None:
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


def test_arms_offer_the_peer_that_takes_the_shape(harness: Any) -> None:
    for case in MANIFEST.cases("quick"):
        inputs = harness.make_inputs(case, device=CPU, seed=0)
        arms = harness.arms(inputs)
        assert harness.SUBJECT in arms
        assert (harness.BASELINE_ARM in arms) == (case["Skv"] > 0)
        for run in arms.values():
            run()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [None, [37, 20]])
@pytest.mark.parametrize("queries", [1, 12, 37])
def test_the_peer_computes_the_same_attention(
    harness: Any, causal: bool, lengths: list[int] | None, queries: int
) -> None:
    case = {"B": 2, "H": 4, "Hkv": 2, "Sq": queries, "Skv": 37, "D": 16, "dtype": "float32"}
    inputs = harness.make_inputs(case | {"causal": causal}, device=CPU, seed=0)
    inputs["kv_lengths"] = None if lengths is None else torch.tensor(lengths)
    arms = harness.arms(inputs)
    ours, peer = arms[harness.SUBJECT]()[0], arms[harness.BASELINE_ARM]()
    seen = harness.reference(inputs)["lse"].isfinite()
    torch.testing.assert_close(ours[seen], peer[seen], rtol=1e-5, atol=1e-5)
