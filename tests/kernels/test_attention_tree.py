"""Tree masks: which of its last keys each query sees, for trees of speculative tokens."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_rule import MANIFEST, ON_CUDA, PLACES, Place, check_case
from test_attention_packed import drawn_case, fake, packed_call
from torch import Tensor

Attention = Callable[..., Any]
OPS = torch.ops.kbtool
PARENTS = [-1, 0, 0, 1, 2, 2, 5]  # of a tree of seven tokens; -1: the last token before it
TAKES = [
    place
    for place in PLACES
    if place.values[0].takes({"tree_mask": 1, "dtype": str(place.values[0].dtype)[6:]})
]
takes_trees = pytest.mark.parametrize("place", TAKES)


def near(made: Tensor, expected: Tensor, place: Place) -> None:
    """Within the rounding of the place's element type."""
    eps = torch.finfo(place.dtype).eps
    torch.testing.assert_close(made.double(), expected.double(), atol=8 * eps, rtol=80 * eps)


def drawn(*shape: int, place: Place) -> Tensor:
    return torch.randn(*shape).to(place.device, place.dtype)


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


@takes_trees
@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize("keys", [7, 20, 64, 130, 1000])
def test_each_token_sees_its_ancestors_and_what_comes_before(
    attention: Attention, place: Place, keys: int, words: int
) -> None:
    n = len(PARENTS)
    q = drawn(1, 2, n, 16, place=place)
    k, v = drawn(1, 2, keys, 16, place=place), drawn(1, 2, keys, 16, place=place)
    mask = mask_of(PARENTS, words)[None].to(place.device)
    for splits in (1, 3):
        out, lse = attention(
            q, k, v, causal=True, tree_mask=mask, num_splits=splits, variant=place.variant,
            return_lse=True,
        )  # fmt: skip
        for token in range(n):
            seen, at = [*range(keys - n)], token
            while at >= 0:
                seen.append(keys - n + at)
                at = PARENTS[at]
            for h in range(2):
                logits = (k[0, h, seen].double() @ q[0, h, token].double()) / 4
                near(out[0, h, token], logits.softmax(0) @ v[0, h, seen].double(), place)
                one = lse[0, h, token].double()
                torch.testing.assert_close(one, logits.logsumexp(0), atol=2e-6, rtol=1e-5)


@takes_trees
def test_a_branch_of_a_tree_is_the_call_of_its_tokens_alone(
    attention: Attention, place: Place
) -> None:
    branch = [0, 2, 5, 6]
    q = drawn(1, 4, 7, 64, place=place)
    k, v = drawn(1, 2, 107, 64, place=place), drawn(1, 2, 107, 64, place=place)
    mask = mask_of(PARENTS)[None].to(place.device)
    out = attention(q, k, v, causal=True, tree_mask=mask, variant=place.variant)
    keys = [*range(100), *(100 + token for token in branch)]
    alone = attention(q[:, :, branch], k[:, :, keys], v[:, :, keys], causal=True)
    near(out[:, :, branch], alone, place)


@takes_trees
def test_a_mask_of_minus_one_hides_nothing(attention: Attention, place: Place) -> None:
    q = drawn(2, 4, 9, 64, place=place)
    k, v = drawn(2, 2, 200, 64, place=place), drawn(2, 2, 200, 64, place=place)
    lengths = torch.tensor([200, 7], device=place.device)
    given = {"causal": True, "kv_lengths": lengths, "return_lse": True, "variant": place.variant}
    expected = attention(q, k, v, **given)
    made = attention(q, k, v, **given, tree_mask=torch.full((2, 9, 1), -1, device=place.device))
    for one, other in zip(made, expected, strict=True):
        near(one, other, place)


@takes_trees
@pytest.mark.parametrize("Sq", [1, 5])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_the_mask_hides_never_reaches_a_row(
    attention: Attention, place: Place, bad: float, Sq: int
) -> None:
    q = drawn(1, 4, Sq, 64, place=place)
    k, v = drawn(1, 2, 90, 64, place=place), drawn(1, 2, 90, 64, place=place)
    mask = torch.full((1, Sq, 1), -1, device=place.device)
    hidden = 87 if Sq == 5 else 50  # the third key from the end is that of query 2
    mask[0, -4:, 0] &= ~(1 << (64 - 90 + hidden))
    given = {"causal": True, "variant": place.variant}
    expected = attention(q, k, v, **given, tree_mask=mask)
    k[:, :, hidden], v[:, :, hidden] = bad, bad
    for splits in (1, 2, 40):
        near(attention(q, k, v, **given, tree_mask=mask, num_splits=splits), expected, place)
    mask[...] = -1
    out = attention(q, k, v, **given, tree_mask=mask)
    sees = torch.arange(90 - Sq, 90, device=place.device) >= hidden
    assert out[:, :, ~sees].isfinite().all() and not out[:, :, sees].isfinite().any()


@takes_trees
def test_a_row_whose_keys_are_all_hidden_sees_none(attention: Attention, place: Place) -> None:
    q, k = drawn(1, 4, 5, 64, place=place), drawn(1, 2, 60, 64, place=place)
    mask = torch.zeros(1, 5, 1, dtype=torch.int64, device=place.device)
    for splits in (1, 3):
        out, lse = attention(
            q, k, k, causal=True, tree_mask=mask, num_splits=splits, variant=place.variant,
            return_lse=True,
        )  # fmt: skip
        assert not out.any() and (lse == -math.inf).all()


@takes_trees
@pytest.mark.parametrize("seed", range(4))
def test_drawn_trees_are_within_tolerance(harness: Any, place: Place, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(40):
        case = {**drawn_case(draw, place), "causal": True, "tree_mask": draw.choice([1, 1, 2, 5])}
        if draw.random() < 0.4:
            case["q_lengths"] = None
        check_case(harness, case, place, draw.getrandbits(31))


def test_the_drawn_masks_hide_half_of_the_last_keys_and_no_own_key(harness: Any) -> None:
    case = {"B": 2, "Sq": 9, "Skv": 200, "D": 8, "tree_mask": 2, "causal": True}
    mask = harness.make_inputs(case, device=torch.device("cpu"), seed=0)["tree_mask"]
    assert mask.shape == (2, 9, 2) and mask.dtype == torch.int64
    bits = torch.stack([mask >> bit & 1 for bit in range(64)], dim=-1).flatten(2)
    assert 0.4 < bits.double().mean() < 0.6
    for i in range(9):
        assert (bits[:, i, 128 - 9 + i] == 1).all()


def test_arms_and_parts_leave_tree_masks_out(harness: Any) -> None:
    case = {"Sq": 4, "Skv": 9, "D": 8, "dtype": "float32", "causal": True, "tree_mask": 1}
    inputs = harness.make_inputs(case, device=torch.device("cpu"), seed=0)
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


@takes_trees
def test_a_planned_workspace_is_enough_for_a_tree(interface: Any, place: Place) -> None:
    """A plan is asked for without the mask that its call has."""
    draw = random.Random(0)
    for _ in range(40):
        B, Hkv, n = draw.randint(1, 4), draw.randint(1, 3), draw.choice([1, 7, 40, 300])
        q = drawn(B * n, Hkv * draw.choice([1, 4, 8]), draw.choice([64, 128, 200]), place=place)
        k = drawn(B, Hkv, draw.choice([40, 900, 5000]), q.shape[2], place=place)
        bounds = torch.arange(B + 1, device=place.device).int() * n
        given = {"cu_seqlens_q": bounds, "max_seqlen_q": n}
        splits, numel = OPS.split_k_attention_plan(q, k, variant=place.variant, **given)
        mask = torch.randint(-(2**62), 2**62, (B * n, 1), device=place.device)
        more = {"causal": True, "tree_mask": mask, "variant": place.variant, **given}
        buffers = {
            "out": torch.empty_like(q),
            "lse": q.new_empty(q.shape[:2], dtype=torch.float32),
            "workspace": q.new_empty(numel, dtype=torch.float32),
        }
        OPS.split_k_attention_out(q, k, k, **more, **buffers)
        expected, _ = OPS.split_k_attention(q, k, k, **more)
        assert torch.equal(buffers["out"].isnan(), expected.isnan()), (q.shape, k.shape, splits)
        near(buffers["out"], expected, place)


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


@pytest.mark.parametrize("place", ON_CUDA)
def test_the_baselines_refuse_tree_masks(attention: Attention, place: Place) -> None:
    q = torch.zeros(2, 4, 3, 16, dtype=place.dtype, device=place.device)
    mask = torch.zeros(2, 3, 1, dtype=torch.int64, device=place.device)
    for variant in ("fa1", "two_pass"):
        with pytest.raises(ValueError, match=f"tree_mask must be left out for variant {variant}"):
            attention(q, q, q, causal=True, tree_mask=mask, variant=variant)


@pytest.mark.gpu
@pytest.mark.parametrize("place", [one for one in TAKES if one in ON_CUDA])
def test_a_captured_call_reads_the_mask_at_replay(attention: Attention, place: Place) -> None:
    q, k = drawn(2, 4, 7, 64, place=place), drawn(2, 2, 300, 64, place=place)
    mask = torch.full((2, 7, 1), -1, device=place.device)

    def call() -> Tensor:
        made: Tensor = attention(q, k, k, causal=True, tree_mask=mask, variant=place.variant)
        return made

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    for parents in (PARENTS, [-1] * 7, [-1, 0, 1, 2, 3, 4, 5]):
        mask.copy_(mask_of(parents).expand(2, 7, 1))
        graph.replay()
        assert torch.equal(out, call())
    assert not torch.equal(out, attention(q, k, k, causal=True, tree_mask=torch.zeros_like(mask)))


def test_which_variants_take_the_cases_with_a_tree_mask() -> None:
    cases = [case for case in MANIFEST.cases("serving") if case["tree_mask"] is not None]
    assert len(cases) == 36
    half = [case for case in cases if case["dtype"] != "float32"]
    for place in (one.values[0] for one in PLACES):
        taken = [case for case in cases if place.takes(case)]
        baseline = place.variant in {"fa1", "two_pass"}
        assert taken == (cases if place.target == "cpu" else [] if baseline else half), place
