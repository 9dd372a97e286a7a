"""One test for each class of bug that split-KV kernels have shipped and that a CPU can have."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_rule import CPU, DTYPES, FOLDER, MANIFEST, check, same_bits
from torch import Tensor

Attention = Callable[..., Any]


def random_inputs(
    B: int = 1,
    H: int = 4,
    Hkv: int = 2,
    Sq: int = 3,
    Skv: int = 100,
    D: int = 64,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((B, H, Sq, D), (B, Hkv, Skv, D), (B, Hkv, Skv, D))
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return q, k, v


def as_inputs(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> dict[str, Any]:
    unset = {"causal": False, "scale": None, "num_splits": None, "kv_lengths": None}
    return {"q": q, "k": k, "v": v} | unset | options


def poisoned(q: Tensor, k: Tensor, num_splits: int) -> dict[str, Tensor]:
    _, numel = torch.ops.kbtool.split_k_attention_plan(q, k, num_splits=num_splits)
    return {
        "out": torch.full(q.shape, math.nan, dtype=q.dtype),
        "lse": torch.full(q.shape[:3], math.nan),
        "workspace": torch.full((numel,), math.nan),
    }


def test_early_exit_writes_the_lse_of_its_own_row(harness: Any) -> None:
    # Empty entries between full ones: an early exit that stores to a wrong slot shows.
    q, k, v = random_inputs(B=5, H=4, Sq=2, Skv=64)
    lengths = torch.tensor([0, 64, 0, 7, 0])
    for num_splits in (1, 4):
        got = check(harness, as_inputs(q, k, v, kv_lengths=lengths, num_splits=num_splits))
        assert got["lse"][lengths == 0].eq(-math.inf).all()
        assert got["lse"][lengths > 0].isfinite().all()


@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_lse_of_any_strides(
    attention: Attention, num_splits: int, order: tuple[int, int, int]
) -> None:
    q, k, v = random_inputs(B=3, H=4, Sq=5)
    expected, expected_lse = attention(q, k, v, num_splits=num_splits, return_lse=True)
    buffers = poisoned(q, k, num_splits)
    shape = [q.shape[i] for i in order]
    back = [order.index(i) for i in range(3)]
    buffers["lse"] = torch.full((*shape, 2), math.nan)[..., 1].permute(back)
    torch.ops.kbtool.split_k_attention_out(q, k, v, num_splits=num_splits, **buffers)
    assert same_bits(buffers["lse"], expected_lse)
    assert same_bits(buffers["out"], expected)


def test_lse_is_stored_when_splitting(attention: Attention) -> None:
    q, k, v = random_inputs(Skv=257)
    _, whole = attention(q, k, v, num_splits=1, return_lse=True)
    for num_splits in (2, 5, 257, 1024):
        _, split = attention(q, k, v, num_splits=num_splits, return_lse=True)
        torch.testing.assert_close(split, whole, rtol=1e-6, atol=1e-6)


def test_merging_empty_splits_gives_no_nan(harness: Any) -> None:
    q, k, v = random_inputs(B=3, Skv=40)
    lengths = torch.tensor([0, 1, 40], dtype=torch.int32)
    for num_splits in (2, 8, 64):
        check(harness, as_inputs(q, k, v, kv_lengths=lengths, num_splits=num_splits))


@pytest.mark.parametrize("num_splits", [1, 2, 7])
def test_rows_before_the_first_key_have_lse_minus_infinity(harness: Any, num_splits: int) -> None:
    q, k, v = random_inputs(Sq=20, Skv=7)
    got = check(harness, as_inputs(q, k, v, causal=True, num_splits=num_splits))
    assert got["lse"][:, :, :13].eq(-math.inf).all()
    assert got["out"][:, :, :13].eq(0).all()
    assert got["lse"][:, :, 13:].isfinite().all()


@pytest.mark.parametrize("num_splits", [1, 4])
def test_output_is_written_at_length_zero(harness: Any, num_splits: int) -> None:
    q, k, v = random_inputs(B=2, Skv=0)
    got = check(harness, as_inputs(q, k, v, num_splits=num_splits))
    assert got["out"].eq(0).all()
    assert got["lse"].eq(-math.inf).all()
    q, k, v = random_inputs(B=2, Skv=9)
    zero = torch.zeros(2, dtype=torch.int64)
    got = check(harness, as_inputs(q, k, v, kv_lengths=zero, num_splits=num_splits))
    assert got["out"].eq(0).all()


@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("B", [1, 3])
def test_output_of_any_strides(attention: Attention, B: int, num_splits: int) -> None:
    q, k, v = random_inputs(B=B, dtype=torch.float16)
    expected = attention(q, k, v, num_splits=num_splits)
    H, Sq, D = q.shape[1:]
    held = torch.full((Sq, B, 2 * D, H), math.nan, dtype=q.dtype)
    buffers = poisoned(q, k, num_splits)
    buffers["out"] = held.permute(1, 3, 0, 2)[..., ::2]
    torch.ops.kbtool.split_k_attention_out(q, k, v, num_splits=num_splits, **buffers)
    assert same_bits(buffers["out"], expected)
    assert held[:, :, 1::2].isnan().all(), "wrote between the elements of the output"


def test_an_expanded_output_is_refused() -> None:
    q, k, v = random_inputs(B=3)
    for name, size in (("out", (3, 4, 3, 64)), ("lse", (3, 4, 3))):
        buffers = poisoned(q, k, 1)
        buffers[name] = torch.zeros(1, *size[1:]).expand(size)
        with pytest.raises(ValueError, match=f"{name} must not be expanded.*stride 0"):
            torch.ops.kbtool.split_k_attention_out(q, k, v, num_splits=1, **buffers)


def test_chosen_splits_are_as_right_as_given_ones(harness: Any) -> None:
    q, k, v = random_inputs(B=2, Skv=3000, Sq=1)
    chosen, _ = torch.ops.kbtool.split_k_attention_plan(q, k)
    assert chosen > 1
    got = check(harness, as_inputs(q, k, v))
    given = harness.call(as_inputs(q, k, v, num_splits=chosen))
    assert same_bits(got["out"], given["out"])


@pytest.mark.parametrize("num_splits", [1, 2, 9])
def test_the_workspace_is_neither_too_large_nor_overrun(
    attention: Attention, num_splits: int
) -> None:
    q, k, v = random_inputs(B=2, Sq=5, D=20)
    splits, numel = torch.ops.kbtool.split_k_attention_plan(q, k, num_splits=num_splits)
    rows = q.shape[0] * q.shape[1] * q.shape[2]
    assert splits == num_splits
    assert numel == (0 if num_splits == 1 else num_splits * rows * (20 + 2))
    guarded = torch.full((numel + 64,), math.nan)
    buffers = poisoned(q, k, num_splits) | {"workspace": guarded[32 : 32 + numel]}
    torch.ops.kbtool.split_k_attention_out(q, k, v, num_splits=num_splits, **buffers)
    assert guarded[:32].isnan().all() and guarded[32 + numel :].isnan().all()
    assert not guarded[32 : 32 + numel].isnan().any(), "part of the workspace is never used"
    assert same_bits(buffers["out"], attention(q, k, v, num_splits=num_splits))


def test_a_short_workspace_is_refused() -> None:
    q, k, v = random_inputs()
    buffers = poisoned(q, k, 2)
    buffers["workspace"] = buffers["workspace"][:-1]
    with pytest.raises(ValueError, match=r"workspace must be .* at least 1584 elements, got Float"):
        torch.ops.kbtool.split_k_attention_out(q, k, v, num_splits=2, **buffers)


def test_given_splits_make_rows_independent_of_their_batch(attention: Attention) -> None:
    q, k, v = random_inputs(B=4, H=6, Hkv=2, Sq=5, Skv=700, dtype=torch.bfloat16)
    for num_splits in (1, 3):
        whole, lse = attention(q, k, v, num_splits=num_splits, return_lse=True)
        for b in range(4):
            one, one_lse = attention(
                q[b : b + 1], k[b : b + 1], v[b : b + 1], num_splits=num_splits, return_lse=True
            )
            assert same_bits(one[0], whole[b]) and same_bits(one_lse[0], lse[b])


def test_a_row_does_not_depend_on_its_neighbours_in_a_tile(attention: Attention) -> None:
    q, k, v = random_inputs(H=7, Hkv=1, Sq=9, Skv=130)
    whole = attention(q, k, v, num_splits=2)
    for row in range(9):
        assert same_bits(
            attention(q[:, :, row : row + 1], k, v, num_splits=2)[:, :, 0], whole[:, :, row]
        )
    for head in range(7):
        assert same_bits(attention(q[:, head : head + 1], k, v, num_splits=2)[:, 0], whole[:, head])


@pytest.mark.parametrize("layout", ["far_batch", "far_keys"])
def test_offsets_beyond_two_to_the_31(harness: Any, layout: str) -> None:
    case = {"B": 2, "H": 2, "Hkv": 2, "Sq": 1, "Skv": 41, "D": 16, "dtype": "bfloat16"}
    inputs = harness.make_inputs(case | {"layout": layout}, device=CPU, seed=1)
    k = inputs["k"]
    assert sum((n - 1) * s for n, s in zip(k.shape, k.stride(), strict=True)) > 2**31
    check(harness, inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_partial_states_are_not_rounded_to_the_input_type(
    attention: Attention, dtype: torch.dtype
) -> None:
    # Partials kept in float32 round once, at the end: no split count is worse than one split.
    q, k, v = random_inputs(Sq=1, Skv=4096, dtype=dtype)
    scores = (q.double() @ k.repeat_interleave(2, 1).double().mT) / 8
    exact = scores.softmax(-1) @ v.repeat_interleave(2, 1).double()
    for num_splits in (1, 16, 64):
        out = attention(q, k, v, num_splits=num_splits)
        off_by = (out.view(torch.int16) - exact.to(dtype).view(torch.int16)).abs()
        assert off_by.max() <= 1, "more than a rounding from the exact result"
        assert off_by.float().mean() < 0.01


def test_splits_are_cut_from_the_valid_length(attention: Attention) -> None:
    # Entries of one length give the same bits whatever the length of the buffer they lie in.
    q, k, v = random_inputs(B=2, Skv=900)
    lengths = torch.tensor([300, 300])
    padded = attention(q, k, v, kv_lengths=lengths, num_splits=4)
    exact = attention(q, k[:, :, :300], v[:, :, :300], num_splits=4)
    assert same_bits(padded, exact)


@pytest.mark.parametrize("Skv", [63, 64, 65, 127, 129, 191, 200])
def test_lengths_that_no_block_divides(harness: Any, Skv: int) -> None:
    for dtype in DTYPES:
        q, k, v = random_inputs(Sq=Skv // 2, Skv=Skv, dtype=dtype)
        for causal in (False, True):
            check(harness, as_inputs(q, k, v, causal=causal, num_splits=3))


@pytest.mark.parametrize("num_splits", [1, 2, 5])
def test_causal_is_aligned_bottom_right(attention: Attention, num_splits: int) -> None:
    # Value j is 1 at place j: the output shows which keys each row saw.
    q, k, _ = random_inputs(H=1, Hkv=1, Sq=4, Skv=6, D=6)
    out = attention(q, k, torch.eye(6)[None, None], causal=True, num_splits=num_splits)
    seen = torch.ones(4, 6, dtype=torch.bool).tril(diagonal=2)
    assert torch.equal(out[0, 0] > 0, seen)
    lengths = torch.tensor([3])
    out = attention(
        q, k, torch.eye(6)[None, None], causal=True, num_splits=num_splits, kv_lengths=lengths
    )
    seen = torch.ones(4, 6, dtype=torch.bool).tril(diagonal=-1)
    assert torch.equal(out[0, 0] > 0, seen & (torch.arange(6) < 3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_splits", [1, 2, 13])
def test_values_of_one_give_exactly_one(
    attention: Attention, dtype: torch.dtype, num_splits: int
) -> None:
    q, k, v = random_inputs(H=6, Sq=50, Skv=333, D=100, dtype=dtype)
    for causal in (False, True):
        out = attention(3 * q, k, torch.ones_like(v), causal=causal, num_splits=num_splits)
        assert out.eq(1).all()


@pytest.mark.parametrize("num_splits", [1, 4])
@pytest.mark.parametrize("place", ["k", "v"])
def test_nan_beyond_the_length_never_leaks(
    attention: Attention, place: str, num_splits: int
) -> None:
    q, k, v = random_inputs(B=2, H=6, Hkv=2, Sq=5, Skv=150)
    lengths = torch.tensor([90, 0])
    clean = attention(q, k, v, kv_lengths=lengths, num_splits=num_splits)
    poison = k if place == "k" else v
    poison[0, :, 90:] = math.nan
    poison[1] = math.nan
    assert same_bits(attention(q, k, v, kv_lengths=lengths, num_splits=num_splits), clean)


@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("place", ["k", "v"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_a_row_does_not_see_cannot_reach_it(
    attention: Attention, place: str, num_splits: int, bad: float
) -> None:
    # Causal: key 77 is seen by rows 77 and later only, also where rows share a tile.
    q, k, v = random_inputs(H=2, Sq=100, Skv=100, D=32)
    clean = attention(q, k, v, causal=True, num_splits=num_splits)
    (k if place == "k" else v)[:, :, 77] = bad
    out = attention(q, k, v, causal=True, num_splits=num_splits)
    assert same_bits(out[:, :, :77], clean[:, :, :77])
    if math.isnan(bad) or place == "v":
        assert not out[:, :, 77:].isfinite().any()


def test_a_visible_nan_reaches_every_row_that_sees_it(attention: Attention) -> None:
    q, k, v = random_inputs(B=2, H=4, Hkv=2, Skv=200)
    k[1, 0, 150] = math.nan
    for num_splits in (1, 2, 7):
        out, lse = attention(q, k, v, num_splits=num_splits, return_lse=True)
        hit = torch.zeros(2, 4, 3, dtype=torch.bool)
        hit[1, :2] = True
        assert torch.equal(lse.isnan(), hit)
        assert torch.equal(out.isnan().all(-1), hit) and torch.equal(out.isnan().any(-1), hit)


def test_a_logit_of_infinity_is_nan_in_the_output_and_inf_in_the_lse(
    attention: Attention,
) -> None:
    q, k, v = random_inputs(H=1, Hkv=1, Sq=1, Skv=50, D=4)
    q[..., 0], k[0, 0, 20, 0] = 1, math.inf
    for num_splits in (1, 4):
        out, lse = attention(q, k, v, num_splits=num_splits, return_lse=True)
        assert out.isnan().all()
        assert lse.eq(math.inf).all()
    assert (q @ k.mT).logsumexp(-1).eq(math.inf).all(), "as torch has it"
    k[0, 0, 3] = math.nan
    for num_splits in (1, 4):
        out, lse = attention(q, k, v, num_splits=num_splits, return_lse=True)
        assert out.isnan().all() and lse.isnan().all(), "a NaN beside it wins"


@pytest.mark.parametrize("num_splits", [1, 5])
def test_large_logits_do_not_overflow(harness: Any, num_splits: int) -> None:
    case = {"H": 4, "Hkv": 2, "Sq": 8, "Skv": 100, "D": 64, "dtype": "float32"}
    inputs = harness.make_inputs(case | {"fill": "large_logits"}, device=CPU, seed=0)
    inputs["num_splits"] = num_splits
    got = check(harness, inputs)
    assert got["lse"].max() > 5e3


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_the_thread_count_changes_no_bit(
    attention: Attention, threads: Callable[[int], None], count: int
) -> None:
    for dtype in DTYPES:
        q, k, v = random_inputs(B=2, H=8, Hkv=2, Sq=9, Skv=3000, dtype=dtype)
        threads(1)
        expected, expected_lse = attention(q, k, v, causal=True, return_lse=True)
        chosen = torch.ops.kbtool.split_k_attention_plan(q, k)
        threads(count)
        out, lse = attention(q, k, v, causal=True, return_lse=True)
        assert chosen == torch.ops.kbtool.split_k_attention_plan(q, k)
        assert same_bits(out, expected) and same_bits(lse, expected_lse)


@pytest.mark.parametrize("layout", ["bshd", "bhds", "sliced", "offset"])
def test_storage_changes_no_bit(harness: Any, layout: str) -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        case = {"B": 2, "H": 6, "Hkv": 2, "Sq": 5, "Skv": 150, "D": 64, "dtype": dtype}
        plain = harness.make_inputs(case, device=CPU, seed=5)
        stored = harness.make_inputs(case | {"layout": layout}, device=CPU, seed=5)
        assert stored["k"].stride() != plain["k"].stride()
        assert same_bits(stored["k"], plain["k"])
        assert same_bits(harness.call(stored)["out"], harness.call(plain)["out"])


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


def test_the_build_without_wide_vectors_is_right_too(tmp_path: Path) -> None:
    if "x86" not in subprocess.check_output(["uname", "-m"], text=True):
        pytest.skip("names an x86-64 baseline")
    flags = [
        "-std=c++17",
        "-O2",
        "-march=x86-64",
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
