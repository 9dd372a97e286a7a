"""kbtool's rule on this kernel: the bound falls with the output, as the keys grow in number."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_rule import CPU, MANIFEST

from kbtool.gpu.compare import compare_all


def verdict(harness: Any, text: str, keys_lost: int) -> dict[str, Any]:
    """Of a call that takes the first keys' values for zeros; weights and LSE are right."""
    inputs = harness.make_inputs(MANIFEST.case_from(text), device=CPU, seed=5)
    values = inputs["v"].clone()
    values[:, :, :keys_lost] = 0
    made = harness.call({**inputs, "v": values})
    exact, yardstick = harness.reference(inputs), harness.baseline(inputs)
    return compare_all(harness, inputs, made, exact, yardstick)


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
    assert compare_all(harness, inputs, made, exact, yardstick)["out"].passed is (lost == 0)
