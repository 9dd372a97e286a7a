"""Tree masks: which of its last keys each query sees, for trees of speculative tokens."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_rule import CPU, MANIFEST, PLACES, Place, check, everywhere
from test_attention_packed import drawn_case, fake, packed_call
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

Attention = Callable[..., Any]
OPS = torch.ops.kbtool
PARENTS = [-1, 0, 0, 1, 2, 2, 5]  # of a tree of seven tokens; -1: the last token before it


def mask_of(parents: list[int], words: int = 1) -> Tensor:
    """(tokens, words): each token sees itself, its ancestors and all keys before the tree."""
    n, bits = len(parents), 64 * words
    masks = []
    for token in range(n):
        seen, at = (1 << (bits - n)) - 1, token
        while at >= 0:
            seen |= 1 << (bits - n + at)
            at = parents[at]
        masks.append([(seen >> 64 * word) & (2**64 - 1) for word in range(words)])
    # As Python's integers, of 64 bits with a sign.
    return torch.tensor([[word - 2**64 * (word >> 63) for word in row] for row in masks])


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize("keys", [7, 20, 64, 130])
def test_each_token_sees_its_ancestors_and_what_comes_before(
    attention: Attention, keys: int, words: int
) -> None:
    n = len(PARENTS)
    q, k, v = torch.randn(1, 2, n, 16), torch.randn(1, 2, keys, 16), torch.randn(1, 2, keys, 16)
    mask = mask_of(PARENTS, words)[None]
    for splits in (1, 3):
        out, lse = attention(
            q, k, v, causal=True, tree_mask=mask, num_splits=splits, return_lse=True
        )
        for token in range(n):
            seen, at = [*range(keys - n)], token
            while at >= 0:
                seen.append(keys - n + at)
                at = PARENTS[at]
            for h in range(2):
                logits = (k[0, h, seen].double() @ q[0, h, token].double()) / 4
                expected = logits.softmax(0) @ v[0, h, seen].double()
                made = out[0, h, token].double()
                torch.testing.assert_close(made, expected, atol=1e-6, rtol=1e-5)
                one = lse[0, h, token].double()
                torch.testing.assert_close(one, logits.logsumexp(0), atol=1e-6, rtol=1e-5)


def test_a_branch_of_a_tree_is_the_call_of_its_tokens_alone(attention: Attention) -> None:
    branch = [0, 2, 5, 6]
    q, k, v = torch.randn(1, 4, 7, 64), torch.randn(1, 2, 107, 64), torch.randn(1, 2, 107, 64)
    out = attention(q, k, v, causal=True, tree_mask=mask_of(PARENTS)[None])
    keys = [*range(100), *(100 + token for token in branch)]
    alone = attention(q[:, :, branch], k[:, :, keys], v[:, :, keys], causal=True)
    torch.testing.assert_close(out[:, :, branch], alone, atol=1e-6, rtol=1e-5)


def test_a_mask_of_minus_one_hides_nothing(attention: Attention) -> None:
    q, k, v = torch.randn(2, 4, 9, 64), torch.randn(2, 2, 200, 64), torch.randn(2, 2, 200, 64)
    given = {"causal": True, "kv_lengths": torch.tensor([200, 7]), "return_lse": True}
    expected = attention(q, k, v, **given)
    made = attention(q, k, v, **given, tree_mask=torch.full((2, 9, 1), -1))
    for one, other in zip(made, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_the_mask_hides_never_reaches_a_row(attention: Attention, bad: float) -> None:
    q, k, v = torch.randn(1, 4, 5, 64), torch.randn(1, 2, 90, 64), torch.randn(1, 2, 90, 64)
    mask = torch.full((1, 5, 1), -1)
    mask[0, 1:, 0] &= ~(1 << 61)  # the third key from the end, that of query 2
    expected = attention(q, k, v, causal=True, tree_mask=mask)
    k[:, :, 87], v[:, :, 87] = bad, bad
    for splits in (1, 2, 40):
        out = attention(q, k, v, causal=True, tree_mask=mask, num_splits=splits)
        torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-5)
    mask[...] = -1
    out = attention(q, k, v, causal=True, tree_mask=mask)
    assert out[:, :, :2].isfinite().all() and not out[:, :, 2:].isfinite().any()


def test_a_row_whose_keys_are_all_hidden_sees_none(attention: Attention) -> None:
    q, k = torch.randn(1, 4, 5, 64), torch.randn(1, 2, 60, 64)
    mask = torch.zeros(1, 5, 1, dtype=torch.int64)
    for splits in (1, 3):
        out, lse = attention(
            q, k, k, causal=True, tree_mask=mask, num_splits=splits, return_lse=True
        )
        assert not out.any() and (lse == -math.inf).all()


@pytest.mark.parametrize("seed", range(4))
def test_drawn_trees_are_within_tolerance(harness: Any, place: Place, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(40):
        case = {**drawn_case(draw, place), "causal": True, "tree_mask": draw.choice([1, 1, 2, 5])}
        if draw.random() < 0.4:
            case["q_lengths"] = None
        inputs = harness.make_inputs(case, device=CPU, seed=draw.getrandbits(31))
        try:
            check(harness, inputs)
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}") from None


def test_the_drawn_masks_hide_half_of_the_last_keys_and_no_own_key(harness: Any) -> None:
    case = {"B": 2, "Sq": 9, "Skv": 200, "D": 8, "tree_mask": 2, "causal": True}
    mask = harness.make_inputs(case, device=CPU, seed=0)["tree_mask"]
    assert mask.shape == (2, 9, 2) and mask.dtype == torch.int64
    bits = torch.stack([mask >> bit & 1 for bit in range(64)], dim=-1).flatten(2)
    assert 0.4 < bits.double().mean() < 0.6
    for i in range(9):
        assert (bits[:, i, 128 - 9 + i] == 1).all()


def test_arms_and_parts_leave_tree_masks_out(harness: Any) -> None:
    case = {"Sq": 4, "Skv": 9, "D": 8, "dtype": "float32", "causal": True, "tree_mask": 1}
    inputs = harness.make_inputs(case, device=CPU, seed=0)
    assert harness.arms(inputs, [], ["sdpa"])["sdpa"] == "is not called with tree_mask"
    assert harness.parts(inputs, "two_pass") == {}


# ---- torch ----


def tree_call(**change: Any) -> dict[str, Any]:
    return packed_call(causal=True, tree_mask=torch.randint(-(2**62), 2**62, (5, 1)), **change)


def test_a_call_with_a_tree_passes_opcheck(interface: Any) -> None:
    call = tree_call()
    operands = [call.pop(name) for name in ("q", "k", "v")]
    torch.library.opcheck(OPS.split_k_attention.default, operands, call)
    buffers = {
        "out": torch.zeros(5, 4, 16),
        "lse": torch.zeros(5, 4),
        "workspace": torch.zeros(0),
    }
    torch.library.opcheck(
        OPS.split_k_attention_out.default, operands, call | buffers | {"num_splits": 1}
    )


def test_a_call_with_a_tree_compiles_as_one_graph(attention: Attention) -> None:
    torch.compiler.reset()
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    call = tree_call()
    assert torch.equal(compiled(**call), attention(**call))


# ---- errors ----


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"causal": False}, "tree_mask must come with causal=True, got causal=False"),
        ({"tree_mask": torch.zeros(5, 1).int()}, "tree_mask must be .*contiguous .*, got .*[Ii]nt"),
        ({"tree_mask": torch.zeros(5, 2).long()[:, ::2]}, r"tree_mask must be .* strides \(2, 2\)"),
        ({"tree_mask": torch.zeros(4, 1).long()}, r"tree_mask must have .*\(total_q, words\).*"),
        ({"tree_mask": torch.zeros(5, 0).long()}, "tree_mask must have .* at least one word, got"),
        ({"tree_mask": torch.zeros(5).long()}, r"tree_mask must have shape .*, got \(5"),
        ({"tree_mask": torch.zeros(1, 5, 1).long()}, r"tree_mask must .* got \(1, 5, 1\)"),
    ],
)
def test_wrong_tree_masks_are_refused_when_run_and_when_traced(
    attention: Attention, change: dict[str, Any], message: str
) -> None:
    for call in ({**tree_call(), **change}, fake({**tree_call(), **change})):
        with pytest.raises(ValueError, match=message):
            attention(**call)


def test_a_mask_of_plain_queries_has_a_row_for_each(attention: Attention) -> None:
    q = torch.randn(2, 4, 3, 16)
    for shape in ((2, 3), (2, 4, 1), (6, 1)):
        mask = torch.zeros(shape, dtype=torch.int64)
        with pytest.raises(ValueError, match=r"tree_mask must have shape \(B, Sq, words\)"):
            attention(q, q, q, causal=True, tree_mask=mask)
    with pytest.raises(TypeError, match="tree_mask must be a tensor, got int"):
        attention(q, q, q, causal=True, tree_mask=-1)
    with pytest.raises(ValueError, match="tree_mask must be on the device of q"):
        mask = torch.zeros(2, 3, 1, dtype=torch.int64, device="meta")
        attention(q, q, q, causal=True, tree_mask=mask)


@everywhere
def test_cuda_refuses_tree_masks(attention: Attention, place: Place) -> None:
    if place.target == "cpu":
        pytest.skip("the CPU takes them")
    q = torch.zeros(2, 4, 3, 16, dtype=place.dtype, device=place.device)
    mask = torch.zeros(2, 3, 1, dtype=torch.int64, device=place.device)
    with pytest.raises(ValueError, match="tree_mask must be left out on CUDA"):
        attention(q, q, q, causal=True, tree_mask=mask)


def test_a_tree_mask_on_cuda_is_refused_where_it_is_traced(attention: Attention) -> None:
    with FakeTensorMode():
        q = torch.empty(2, 4, 3, 16, dtype=torch.float16, device="cuda")
        mask = torch.empty(2, 3, 1, dtype=torch.int64, device="cuda")
    with pytest.raises(ValueError, match="tree_mask must be left out on CUDA"):
        attention(q, q, q, causal=True, tree_mask=mask)


def test_no_case_with_a_tree_mask_is_for_cuda() -> None:
    cases = [case for case in MANIFEST.cases("serving") if case["tree_mask"] is not None]
    assert len(cases) == 27
    assert not any(of.values[0].takes(c) for of in PLACES for c in cases if "cuda" in of.id)
