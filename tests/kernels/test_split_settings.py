"""The numbers of splits that a tune step times."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_rule import CPU, same_bits


@pytest.mark.parametrize(("keys", "most"), [(0, 1), (31, 1), (100, 3), (65536, 256)])
def test_the_settings_to_time_include_the_planners_choice(
    harness: Any, keys: int, most: int
) -> None:
    inputs = harness.make_inputs({"B": 3, "H": 4, "Hkv": 2, "Skv": keys}, device=CPU, seed=0)
    own, settings = harness.settings(inputs, "two_pass")
    assert own in settings
    assert max(int(name) for name in settings if name != own) <= most if len(settings) > 1 else True
    for name, asked in settings.items():
        assert torch.ops.kbtool.split_k_attention_plan(
            asked["q"], asked["k"], num_splits=asked["num_splits"], variant="two_pass"
        )[0] == int(name)


def test_batch_entries_are_tuned_as_heads_of_one_entry(harness: Any) -> None:
    inputs = harness.make_inputs({"B": 3, "H": 4, "Hkv": 2, "Skv": 100}, device=CPU, seed=0)
    _, settings = harness.settings(inputs, "two_pass")
    folded = harness.call(settings["2"], variant="two_pass")["out"]
    whole = harness.call({**inputs, "num_splits": 2}, variant="two_pass")["out"]
    assert folded.shape[:2] == (1, 12)
    assert same_bits(folded.view(whole.shape), whole)


def test_calls_with_lengths_are_not_tuned(harness: Any) -> None:
    inputs = harness.make_inputs({"B": 2, "kv_lengths": [3, 5]}, device=CPU, seed=0)
    with pytest.raises(ValueError, match="not tuned: leave their case sets out"):
        harness.settings(inputs, "two_pass")
