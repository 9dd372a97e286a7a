"""One test for each class of bug that split-KV kernels have shipped; each says its class.

They run at every place: the CPU, and on a card every variant. What no variant of a card can promise
to the bit, because the shape of its tiles depends on the number of rows, is tested on the others.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_rule import FOLDER, MANIFEST, PLACES, Place, check, everywhere, same_bits
from torch import Tensor

Attention = Callable[..., Any]
NO_PACKING = [place for place in PLACES if not place.values[0].packs_rows]


def random_inputs(
    place: Place,
    B: int = 1,
    H: int = 4,
    Hkv: int = 2,
    Sq: int = 3,
    Skv: int = 100,
    D: int = 64,
    dtype: torch.dtype | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator(device=place.device).manual_seed(seed)
    shapes = ((B, H, Sq, D), (B, Hkv, Skv, D), (B, Hkv, Skv, D))
    q, k, v = (
        torch.randn(shape, generator=generator, device=place.device).to(dtype or place.dtype)
        for shape in shapes
    )
    return q, k, v


def as_inputs(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> dict[str, Any]:
    unset = {"causal": False, "scale": None, "num_splits": None, "kv_lengths": None}
    return {"q": q, "k": k, "v": v, "out_layout": "bhsd"} | unset | options


def poisoned(place: Place, q: Tensor, k: Tensor, num_splits: int) -> dict[str, Any]:
    """Outputs and a workspace full of NaN, as the operator that writes into them takes them."""
    _, numel = torch.ops.kbtool.split_k_attention_plan(
        q, k, num_splits=num_splits, variant=place.variant
    )
    return {
        "out": torch.full_like(q, math.nan),
        "lse": q.new_full(q.shape[:3], math.nan, dtype=torch.float32),
        "workspace": q.new_full((numel,), math.nan, dtype=torch.float32),
        "num_splits": num_splits,
        "variant": place.variant,
    }


@everywhere
def test_early_exit_lse_goes_to_the_slot_of_its_row(harness: Any, place: Place) -> None:
    """Early-exit LSE to the wrong slot."""
    # Empty entries between full ones: an early exit that stores to a wrong slot shows.
    q, k, v = random_inputs(place, B=5, H=4, Sq=2, Skv=64)
    lengths = torch.tensor([0, 64, 0, 7, 0], device=place.device)
    for num_splits in (1, 4, 12):
        inputs = as_inputs(q, k, v, kv_lengths=lengths, num_splits=num_splits)
        got = check(harness, inputs, variant=place.variant)
        assert got["lse"][lengths == 0].eq(-math.inf).all()
        assert got["lse"][lengths > 0].isfinite().all()


@everywhere
@pytest.mark.parametrize("num_splits", [1, 3, 18])
@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_an_lse_of_any_strides_is_written_correctly(
    attention: Attention, place: Place, num_splits: int, order: tuple[int, int, int]
) -> None:
    """LSE layout or strides."""
    q, k, v = random_inputs(place, B=3, H=4, Sq=5)
    expected, expected_lse = attention(q, k, v, num_splits=num_splits, return_lse=True)
    buffers = poisoned(place, q, k, num_splits)
    shape = [q.shape[i] for i in order]
    back = [order.index(i) for i in range(3)]
    held = q.new_full((*shape, 2), math.nan, dtype=torch.float32)
    buffers["lse"] = held[..., 1].permute(back)
    torch.ops.kbtool.split_k_attention_out(q, k, v, **buffers)
    assert same_bits(buffers["lse"], expected_lse)
    assert same_bits(buffers["out"], expected)
    assert held[..., 0].isnan().all(), "wrote between the elements of the LSE"


@everywhere
def test_lse_is_stored_when_splitting(attention: Attention, place: Place) -> None:
    """LSE not stored when splitting."""
    q, k, v = random_inputs(place, Skv=257)
    _, whole = attention(q, k, v, num_splits=1, return_lse=True)
    for num_splits in (2, 5, 257, 1024):
        _, split = attention(q, k, v, num_splits=num_splits, return_lse=True)
        torch.testing.assert_close(split, whole, rtol=1e-6, atol=1e-6)


@everywhere
def test_merging_two_empty_states_gives_no_nan(harness: Any, place: Place) -> None:
    """NaN merging two empties."""
    q, k, v = random_inputs(place, B=3, Skv=40)
    lengths = torch.tensor([0, 1, 40], dtype=torch.int32, device=place.device)
    for num_splits in (2, 8, 64):
        inputs = as_inputs(q, k, v, kv_lengths=lengths, num_splits=num_splits)
        check(harness, inputs, variant=place.variant)


@everywhere
@pytest.mark.parametrize("num_splits", [1, 2, 7, 16])
def test_fully_masked_rows_have_no_finite_lse(harness: Any, place: Place, num_splits: int) -> None:
    """Finite LSE on fully masked rows, q longer than kv."""
    q, k, v = random_inputs(place, Sq=90, Skv=7)
    inputs = as_inputs(q, k, v, causal=True, num_splits=num_splits)
    got = check(harness, inputs, variant=place.variant)
    assert got["lse"][:, :, :83].eq(-math.inf).all()
    assert got["out"][:, :, :83].eq(0).all()
    assert got["lse"][:, :, 83:].isfinite().all()


@everywhere
@pytest.mark.parametrize("num_splits", [1, 4, 16])
def test_output_is_written_at_length_zero(harness: Any, place: Place, num_splits: int) -> None:
    """Output unwritten at length 0."""
    q, k, v = random_inputs(place, B=2, Skv=0)
    got = check(harness, as_inputs(q, k, v, num_splits=num_splits), variant=place.variant)
    assert got["out"].eq(0).all()
    assert got["lse"].eq(-math.inf).all()
    q, k, v = random_inputs(place, B=2, Skv=9)
    zero = torch.zeros(2, dtype=torch.int64, device=place.device)
    inputs = as_inputs(q, k, v, kv_lengths=zero, num_splits=num_splits)
    got = check(harness, inputs, variant=place.variant)
    assert got["out"].eq(0).all()


@everywhere
@pytest.mark.parametrize("num_splits", [None, 24, 64])
def test_the_last_block_reads_the_states_of_all_others(
    harness: Any, place: Place, num_splits: int | None
) -> None:
    """Last-block race: release ordering; other blocks also write the output."""
    rounds = 200 if place.target == "cuda" else 3
    case = {"B": 3, "H": 8, "Hkv": 1, "Sq": 2, "Skv": 6000, "D": 64, "num_splits": num_splits,
            "dtype": str(place.dtype).removeprefix("torch.")}  # fmt: skip
    inputs = harness.make_inputs(case, device=place.device, seed=6)
    first = check(harness, inputs, variant=place.variant)
    for _ in range(rounds):
        again = harness.call(inputs, variant=place.variant)
        assert same_bits(again["out"], first["out"]) and same_bits(again["lse"], first["lse"])


@everywhere
@pytest.mark.parametrize("num_splits", [1, 3, 18])
@pytest.mark.parametrize("B", [1, 3])
def test_an_output_of_any_strides_is_written_correctly(
    attention: Attention, place: Place, B: int, num_splits: int
) -> None:
    """Output stride 0: right at batch 1, wrong above."""
    q, k, v = random_inputs(place, B=B, dtype=torch.float16)
    expected = attention(q, k, v, num_splits=num_splits)
    H, Sq, D = q.shape[1:]
    held = q.new_full((Sq, B, 2 * D, H), math.nan)
    buffers = poisoned(place, q, k, num_splits)
    buffers["out"] = held.permute(1, 3, 0, 2)[..., ::2]
    torch.ops.kbtool.split_k_attention_out(q, k, v, **buffers)
    assert same_bits(buffers["out"], expected)
    assert held[:, :, 1::2].isnan().all(), "wrote between the elements of the output"


@everywhere
@pytest.mark.parametrize(
    ("name", "strides"),
    [
        ("out", (0, 192, 64, 1)),
        ("out", (64, 64, 64, 1)),
        ("out", (768, 192, 63, 1)),
        ("out", (768, 192, 1, 1)),
        ("lse", (0, 3, 1)),
        ("lse", (12, 2, 1)),
        ("lse", (11, 3, 1)),
        ("lse", (2, 11, 3)),  # no two share one, but they lie between each other
    ],
)
def test_an_output_whose_elements_overlap_is_refused(
    interface: Any, place: Place, name: str, strides: tuple[int, ...]
) -> None:
    """Output stride 0: right at batch 1, wrong above."""
    q, k, v = random_inputs(place, B=3)
    buffers = poisoned(place, q, k, 1)
    buffers[name] = buffers[name].repeat(2, *[1] * len(strides)).as_strided(
        buffers[name].shape, strides
    )  # fmt: skip
    with pytest.raises(ValueError, match=f"{name} must not overlap itself.*, where dimension "):
        torch.ops.kbtool.split_k_attention_out(q, k, v, **buffers)


@everywhere
@pytest.mark.parametrize("shape", [(1, 4, 3, 64), (3, 1, 1, 64), (0, 4, 3, 64)])
def test_strides_of_dimensions_of_size_one_do_not_matter(
    attention: Attention, place: Place, shape: tuple[int, ...]
) -> None:
    """Output stride 0: right at batch 1, wrong above."""
    B, H, Sq, D = shape
    q, k, v = random_inputs(place, B=B, H=H, Hkv=1, Sq=Sq, D=D)
    buffers = poisoned(place, q, k, 1)
    for name in ("out", "lse"):
        t = buffers[name]
        strides = [0 if n <= 1 else s for n, s in zip(t.shape, t.stride(), strict=True)]
        buffers[name] = t.as_strided(t.shape, strides)
    torch.ops.kbtool.split_k_attention_out(q, k, v, **buffers)
    assert same_bits(buffers["out"], attention(q, k, v, num_splits=1))


@everywhere
def test_the_planners_splits_are_right_and_match_given_ones(harness: Any, place: Place) -> None:
    """Sporadic NaN, auto splits."""
    for Skv in (1, 63, 64, 65, 300, 1025, 3000):
        q, k, v = random_inputs(place, B=2, Skv=Skv, Sq=1)
        chosen, _ = torch.ops.kbtool.split_k_attention_plan(q, k, variant=place.variant)
        got = check(harness, as_inputs(q, k, v), variant=place.variant)
        given = harness.call(as_inputs(q, k, v, num_splits=chosen), variant=place.variant)
        assert same_bits(got["out"], given["out"])
    assert (chosen > 1) == (place.variant != "fa1")


@everywhere
@pytest.mark.parametrize("num_splits", [1, 2, 9, 18])
def test_the_workspace_is_neither_too_large_nor_overrun(
    attention: Attention, place: Place, num_splits: int
) -> None:
    """Workspace oversized 16× or overflowing; combine overruns rows."""
    q, k, v = random_inputs(place, B=2, Sq=5, D=20)
    splits, numel = torch.ops.kbtool.split_k_attention_plan(
        q, k, num_splits=num_splits, variant=place.variant
    )
    rows = q.shape[0] * q.shape[1] * q.shape[2]
    assert splits == (1 if place.variant == "fa1" else num_splits)
    states = 0 if splits == 1 else splits * rows * (20 + 2)
    assert numel <= states
    guarded = q.new_full((numel + 64,), math.nan, dtype=torch.float32)
    buffers = poisoned(place, q, k, num_splits) | {"workspace": guarded[32 : 32 + numel]}
    torch.ops.kbtool.split_k_attention_out(q, k, v, **buffers)
    assert guarded[:32].isnan().all() and guarded[32 + numel :].isnan().all()
    assert same_bits(buffers["out"], attention(q, k, v, num_splits=num_splits))
    if not place.packs_rows:
        assert numel == states
        assert not guarded[32 : 32 + numel].isnan().any(), "part of the workspace is never used"


@everywhere
def test_a_short_workspace_is_refused(interface: Any, place: Place) -> None:
    """Workspace oversized 16× or overflowing."""
    q, k, v = random_inputs(place, Skv=1000)
    buffers = poisoned(place, q, k, 9)
    needed = buffers["workspace"].numel()
    if needed == 0:
        pytest.skip(f"{place} needs no workspace for 9 splits")
    buffers["workspace"] = buffers["workspace"][:-1]
    with pytest.raises(ValueError, match=f"workspace must be .* at least {needed} elements"):
        torch.ops.kbtool.split_k_attention_out(q, k, v, **buffers)


@everywhere
@pytest.mark.parametrize(
    "sizes",
    [
        {"B": 4, "H": 6, "Hkv": 2, "Sq": 5, "Skv": 700},
        {"B": 33, "H": 32, "Hkv": 8, "Sq": 1, "Skv": 1100, "D": 128},  # waves of blocks
        {"B": 6, "H": 16, "Hkv": 4, "Sq": 40, "Skv": 2100, "D": 128},  # tiles of many rows
    ],
)
def test_given_splits_make_rows_independent_of_their_batch(
    attention: Attention, place: Place, sizes: dict[str, int]
) -> None:
    """Batch-dependent splits change results; so do a merge and a variant that depend on it."""
    q, k, v = random_inputs(place, **sizes, dtype=torch.bfloat16)
    for num_splits in (1, 3, 8, 18):
        whole, lse = attention(q, k, v, num_splits=num_splits, return_lse=True)
        for b in (0, 1, sizes["B"] - 1):
            one, one_lse = attention(
                q[b : b + 1], k[b : b + 1], v[b : b + 1], num_splits=num_splits, return_lse=True
            )
            assert same_bits(one[0], whole[b]) and same_bits(one_lse[0], lse[b])


@pytest.mark.parametrize("place", NO_PACKING)
def test_a_row_does_not_depend_on_its_neighbours_in_a_tile(
    attention: Attention, place: Place
) -> None:
    """Batch-dependent splits change results."""
    q, k, v = random_inputs(place, H=7, Hkv=1, Sq=9, Skv=130)
    whole = attention(q, k, v, num_splits=2)
    for row in range(9):
        assert same_bits(
            attention(q[:, :, row : row + 1], k, v, num_splits=2)[:, :, 0], whole[:, :, row]
        )
    for head in range(7):
        assert same_bits(attention(q[:, head : head + 1], k, v, num_splits=2)[:, 0], whole[:, head])


@everywhere
@pytest.mark.parametrize("layout", ["far_batch", "far_keys", "far_batch_out", "far_queries_out"])
def test_offsets_beyond_2_to_the_31_are_right(harness: Any, place: Place, layout: str) -> None:
    """int32 offsets."""
    queries = 21 if layout == "far_queries_out" else 1
    case = {"B": 2, "H": 2, "Hkv": 2, "Sq": queries, "Skv": 41, "D": 16, "dtype": "bfloat16"}
    inputs = harness.make_inputs(case | {"layout": layout}, device=place.device, seed=1)
    got = check(harness, inputs, variant=place.variant)
    for far in got.values() if layout.endswith("out") else (inputs["k"], inputs["v"]):
        assert sum((n - 1) * s for n, s in zip(far.shape, far.stride(), strict=True)) > 2**31


@everywhere
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_partial_states_are_not_rounded_to_the_input_type(
    attention: Attention, place: Place, dtype: torch.dtype
) -> None:
    """bf16 partial round-trip."""
    # Partials kept in float32 are rounded once, at the end: many splits err no more than one.
    # Rounded each, they would err half as much again.
    q, k, v = random_inputs(place, H=32, Sq=1, Skv=4096, dtype=dtype)
    scores = (q.double() @ k.repeat_interleave(16, 1).double().mT) / 8
    exact = scores.softmax(-1) @ v.repeat_interleave(16, 1).double()

    def error(num_splits: int) -> float:
        out = attention(q, k, v, num_splits=num_splits).double()
        return float((out - exact).square().mean().sqrt())

    assert max(error(16), error(64)) < 1.15 * error(1)


@everywhere
def test_splits_are_cut_from_the_valid_length(
    attention: Attention, harness: Any, place: Place
) -> None:
    """Heuristic fed the wrong lengths."""
    q, k, v = random_inputs(place, B=2, Skv=900)
    lengths = torch.tensor([300, 300], device=place.device)
    check(harness, as_inputs(q, k, v, kv_lengths=lengths), variant=place.variant)
    if place.target == "cuda" and place.variant is None:
        return  # chooses a variant by the length of the buffer
    # Entries of one length give the same bits whatever the length of the buffer they lie in.
    padded = attention(q, k, v, kv_lengths=lengths, num_splits=4)
    exact = attention(q, k[:, :, :300], v[:, :, :300], num_splits=4)
    assert same_bits(padded, exact)


@everywhere
@pytest.mark.parametrize("Skv", [63, 64, 65, 127, 129, 191, 200])
def test_lengths_that_are_no_multiple_of_the_block_are_right(
    harness: Any, place: Place, Skv: int
) -> None:
    """Non-divisible length; silently wrong mask."""
    for dtype in place.dtypes:
        q, k, v = random_inputs(place, Sq=Skv // 2, Skv=Skv, dtype=dtype)
        for causal in (False, True):
            inputs = as_inputs(q, k, v, causal=causal, num_splits=3)
            check(harness, inputs, variant=place.variant)


@everywhere
@pytest.mark.parametrize("num_splits", [1, 2, 5])
def test_causal_is_aligned_bottom_right(
    attention: Attention, place: Place, num_splits: int
) -> None:
    """Non-divisible length; silently wrong mask."""
    # Value j is 1 at place j: the output shows which keys each row saw.
    q, k, _ = random_inputs(place, H=1, Hkv=1, Sq=4, Skv=6, D=6)
    ones = torch.eye(6, dtype=place.dtype, device=place.device)[None, None]
    out = attention(q, k, ones, causal=True, num_splits=num_splits)
    seen = torch.ones(4, 6, dtype=torch.bool).tril(diagonal=2)
    assert torch.equal(out[0, 0].cpu() > 0, seen)
    lengths = torch.tensor([3], device=place.device)
    out = attention(q, k, ones, causal=True, num_splits=num_splits, kv_lengths=lengths)
    seen = torch.ones(4, 6, dtype=torch.bool).tril(diagonal=-1)
    assert torch.equal(out[0, 0].cpu() > 0, seen & (torch.arange(6) < 3))


@everywhere
@pytest.mark.parametrize("num_splits", [1, 2, 13])
def test_values_of_one_give_exactly_one(
    attention: Attention, place: Place, num_splits: int
) -> None:
    for dtype in place.dtypes:
        q, k, v = random_inputs(place, H=6, Sq=50, Skv=333, D=100, dtype=dtype)
        for causal in (False, True):
            out = attention(3 * q, k, torch.ones_like(v), causal=causal, num_splits=num_splits)
            assert out.eq(1).all()


@everywhere
@pytest.mark.parametrize("num_splits", [1, 4])
@pytest.mark.parametrize("poisons", ["k", "v"])
def test_nan_beyond_the_length_never_leaks(
    attention: Attention, place: Place, poisons: str, num_splits: int
) -> None:
    q, k, v = random_inputs(place, B=2, H=6, Hkv=2, Sq=5, Skv=150)
    lengths = torch.tensor([90, 0], device=place.device)
    clean = attention(q, k, v, kv_lengths=lengths, num_splits=num_splits)
    poison = k if poisons == "k" else v
    poison[0, :, 90:] = math.nan
    poison[1] = math.nan
    assert same_bits(attention(q, k, v, kv_lengths=lengths, num_splits=num_splits), clean)


@everywhere
@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("poisons", ["k", "v"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_masked_keys_and_values_do_not_affect_a_row(
    attention: Attention, place: Place, poisons: str, num_splits: int, bad: float
) -> None:
    # Causal: key 77 is seen by rows 77 and later only, also where rows share a tile.
    q, k, v = random_inputs(place, H=2, Sq=100, Skv=100, D=32)
    clean = attention(q, k, v, causal=True, num_splits=num_splits)
    (k if poisons == "k" else v)[:, :, 77] = bad
    out = attention(q, k, v, causal=True, num_splits=num_splits)
    assert same_bits(out[:, :, :77], clean[:, :, :77])
    if math.isnan(bad) or poisons == "v":
        assert not out[:, :, 77:].isfinite().any()


@everywhere
def test_a_visible_nan_reaches_every_row_that_sees_it(attention: Attention, place: Place) -> None:
    q, k, v = random_inputs(place, B=2, H=4, Hkv=2, Skv=200)
    k[1, 0, 150] = math.nan
    hit = torch.zeros(2, 4, 3, dtype=torch.bool, device=place.device)
    hit[1, :2] = True
    for num_splits in (1, 2, 7, 18):
        out, lse = attention(q, k, v, num_splits=num_splits, return_lse=True)
        assert torch.equal(lse.isnan(), hit)
        assert torch.equal(out.isnan().all(-1), hit) and torch.equal(out.isnan().any(-1), hit)


@everywhere
def test_a_logit_of_infinity_is_nan_in_the_output_and_inf_in_the_lse(
    attention: Attention, place: Place
) -> None:
    q, k, v = random_inputs(place, H=1, Hkv=1, Sq=1, Skv=50, D=4)
    q[..., 0], k[0, 0, 20, 0] = 1, math.inf
    for num_splits in (1, 4, 18):
        out, lse = attention(q, k, v, num_splits=num_splits, return_lse=True)
        assert out.isnan().all()
        assert lse.eq(math.inf).all()
    assert (q @ k.mT).float().logsumexp(-1).eq(math.inf).all(), "as torch has it"
    k[0, 0, 3] = math.nan
    for num_splits in (1, 4, 18):
        out, lse = attention(q, k, v, num_splits=num_splits, return_lse=True)
        assert out.isnan().all() and lse.isnan().all(), "a NaN beside it wins"


@everywhere
@pytest.mark.parametrize("num_splits", [1, 5])
def test_large_logits_do_not_overflow(harness: Any, place: Place, num_splits: int) -> None:
    case = {"H": 4, "Hkv": 2, "Sq": 8, "Skv": 100, "D": 64,
            "dtype": str(place.dtype).removeprefix("torch.")}  # fmt: skip
    inputs = harness.make_inputs(case | {"fill": "large_logits"}, device=place.device, seed=0)
    inputs["num_splits"] = num_splits
    got = check(harness, inputs, variant=place.variant)
    assert got["lse"].max() > 5e3


@everywhere
@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("sign", [1, -1])
def test_logits_near_the_largest_float32_are_right(
    attention: Attention, place: Place, sign: int, num_splits: int
) -> None:
    """Times log2(e) they are not finite; and well below, half a unit of the last place of such a
    product is an exponent beyond float32."""
    D, scale = 64, 2.0**120
    q = torch.zeros(1, 1, 20, D, device=place.device, dtype=place.dtype)
    q[..., 0] = 1
    k, v = (torch.zeros(1, 1, 200, D, device=place.device, dtype=place.dtype) for _ in "kv")
    wholes = sign * (178 + torch.arange(200) % 70)  # each logit beyond 2.36e38
    k[..., 0] = wholes.to(place.device, place.dtype)
    largest = wholes == wholes.max()
    v[0, 0] = torch.where(largest, 3.0, -1.0).unsqueeze(-1).expand(-1, D)
    out, lse = attention(q, k, v, scale=scale, num_splits=num_splits, return_lse=True)
    assert torch.equal(out, torch.full_like(out, 3.0))
    expected = torch.full_like(lse, float(wholes.max()) * scale)
    torch.testing.assert_close(lse, expected, rtol=2e-7, atol=0)


@everywhere
@pytest.mark.parametrize(("B", "H", "Hkv"), [(70000, 1, 1), (1, 70000, 70000), (1, 70000, 1),
                                             (300, 300, 100)])  # fmt: skip
@pytest.mark.parametrize("num_splits", [None, 2])
def test_more_heads_than_a_grid_has_rows(
    attention: Attention, place: Place, B: int, H: int, Hkv: int, num_splits: int | None
) -> None:
    # 65535 blocks are the most in the second and third dimension of a grid.
    q, k, v = random_inputs(place, B=B, H=H, Hkv=Hkv, Sq=1, Skv=3, D=8, dtype=torch.float16)
    out, lse = attention(q, k, v, num_splits=num_splits, return_lse=True)
    wide = [t.double().repeat_interleave(H // Hkv, 1) for t in (k, v)]
    scores = (q.double() @ wide[0].mT) / 8**0.5
    torch.testing.assert_close(out.double(), scores.softmax(-1) @ wide[1], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_the_thread_count_changes_no_bit(
    attention: Attention, place: Place, threads: Callable[[int], None], count: int
) -> None:
    for dtype in place.dtypes:
        q, k, v = random_inputs(place, B=2, H=8, Hkv=2, Sq=9, Skv=3000, dtype=dtype)
        threads(1)
        expected, expected_lse = attention(q, k, v, causal=True, return_lse=True)
        chosen = torch.ops.kbtool.split_k_attention_plan(q, k)
        threads(count)
        out, lse = attention(q, k, v, causal=True, return_lse=True)
        assert chosen == torch.ops.kbtool.split_k_attention_plan(q, k)
        assert same_bits(out, expected) and same_bits(lse, expected_lse)


@everywhere
@pytest.mark.parametrize("layout", ["bshd", "bhds", "sliced", "offset", "padded", "padded_rows"])
def test_the_layout_of_the_inputs_changes_no_bit(harness: Any, place: Place, layout: str) -> None:
    for dtype in place.dtypes:
        case = {"B": 2, "H": 6, "Hkv": 2, "Sq": 5, "Skv": 150, "D": 64,
                "dtype": str(dtype).removeprefix("torch.")}  # fmt: skip
        plain = harness.make_inputs(case, device=place.device, seed=5)
        stored = harness.make_inputs(case | {"layout": layout}, device=place.device, seed=5)
        assert stored["k"].stride() != plain["k"].stride()
        assert same_bits(stored["k"], plain["k"])
        # What TMA cannot read runs fused instead of wgmma.
        by_fused = place.variant == "wgmma" and layout in {"bhds", "sliced", "offset", "padded"}
        given = harness.call(stored, variant=place.variant)["out"]
        kept = harness.call(plain, variant="fused" if by_fused else place.variant)["out"]
        assert same_bits(given, kept)


PORTABLE = """
import importlib.util, sys, torch
torch.ops.load_library(sys.argv[1])
spec = importlib.util.spec_from_file_location("harness", sys.argv[2] + "/harness.py")
harness = importlib.util.module_from_spec(spec)
spec.loader.exec_module(harness)
sys.path.insert(0, sys.argv[3])
from attention_rule import CPU, MANIFEST, check
for case in MANIFEST.cases("quick") + MANIFEST.cases("edges"):
    check(harness, harness.make_inputs(case, device=CPU, seed=11))
"""


@pytest.mark.slow
def test_the_build_without_wide_vectors_is_right_too(tmp_path: Path) -> None:
    if "x86" not in subprocess.check_output(["uname", "-m"], text=True):
        pytest.skip("names an x86-64 baseline")
    flags = [
        "-std=c++17",
        "-O2",
        "-march=x86-64",
        "-fvisibility=hidden",
        "-fPIC",
        "-shared",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    library = tmp_path / "portable.so"
    installed = Path(torch.__file__).parent
    sources = [str(FOLDER / source) for source in MANIFEST.targets["cpu"].sources]
    subprocess.run(
        ["g++", *flags, "-DTORCH_TARGET_VERSION=0x020a000000000000",
         f"-isystem{installed / 'include'}", *sources,
         "-o", str(library), f"-L{installed / 'lib'}", "-ltorch_cpu"],
        check=True, timeout=300,
    )  # fmt: skip
    subprocess.run(
        [sys.executable, "-c", PORTABLE, str(library), str(FOLDER), str(Path(__file__).parent)],
        check=True, timeout=300, cwd=FOLDER.parents[1],
    )  # fmt: skip


@everywhere
@pytest.mark.parametrize("num_splits", [1, 2, 5, 16])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("steps", [(1419, 289), (5, 279)])
def test_states_with_rounded_and_exact_maxima_merge_correctly(
    attention: Attention,
    place: Place,
    num_splits: int,
    sign: int,
    first: int,
    steps: tuple[int, int],
) -> None:
    """A partial state is kept against a rounded maximum, the other against an exact one."""
    # Logits of ±726817 and ±726818, or ±2839 and ±2840: times log2(e) they lie on either side of
    # ±2^20 or ±2^12. All other keys are far below. Integers, so every logit is exact.
    if torch.float16 not in place.dtypes:
        pytest.skip(f"{place} takes no fp16")
    (coarse, fine), Sq, Skv, D = steps, 20, 1024, 64
    q, k, v = random_inputs(place, 1, 4, 2, Sq, Skv, D, dtype=torch.float16)
    q[...], k[...], v[...] = 0, 0, 0
    q[..., 0], q[..., 1] = 512, 1
    k[..., 0] = -2800
    for key, more in zip((3, 1001), ((0, 1), (1, 0))[first], strict=True):
        k[:, :, key, 0], k[:, :, key, 1] = sign * coarse, sign * (fine + more)
        v[:, :, key] = float(more)
    out, lse = attention(q, k, v, scale=1.0, num_splits=num_splits, return_lse=True)
    heavier = 1 / (1 + math.exp(-1))
    wanted = heavier if sign > 0 else 1 - heavier
    assert (out.double() - wanted).abs().max().item() < 5e-4  # two fp16 ulps; the fault made ten
    top = 512 * coarse + fine + 1 if sign > 0 else -(512 * coarse + fine)
    assert (lse.double() - (top + math.log1p(math.exp(-1)))).abs().max().item() < 0.1
