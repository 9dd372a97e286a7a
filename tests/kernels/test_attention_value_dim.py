"""Values with another head dimension than keys."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_rule import CPU, MANIFEST, PLACES, Place, check_case, same_bits
from torch import Tensor

Attention = Callable[..., Any]
OPS = torch.ops.kbtool
takes_other = pytest.mark.parametrize(
    "place",
    [
        place
        for place in PLACES
        if place.values[0].takes({"Dv": 1, "dtype": str(place.values[0].dtype)[6:]})
    ],
)
REFUSED = "v with another head dimension than k must be left out"


def drawn(place: Place, *shape: int) -> Tensor:
    return torch.randn(*shape).to(place.device, place.dtype)


def drawn_case(draw: random.Random, place: Place) -> dict[str, Any]:
    B, Hkv, Skv = draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 700)
    case = {
        "B": B,
        "H": Hkv * draw.choice([1, 2, 4, 8, 16]),
        "Hkv": Hkv,
        "Sq": draw.choice([1, 1, 3, 20, 70, 130]),
        "Skv": Skv,
        "D": draw.choice([64, 128, 192, 256, draw.randint(1, 256)]),
        "Dv": draw.choice([64, 128, 256, draw.randint(1, 256)]),
        "dtype": str(draw.choice(place.dtypes)).removeprefix("torch."),
        "causal": draw.random() < 0.6,
        "layout": draw.choice(["bhsd", "bshd", "sliced", "offset", "padded_rows", "mixed"]),
        "kv_lengths": draw.choice([None, [draw.randint(0, Skv) for _ in range(B)]]),
        "num_splits": draw.choice([None, None, draw.randint(1, 9)]),
        "fill": draw.choice(["random", "random", "random", "inf_beyond", "nan_value"]),
    }
    if draw.random() < 0.4:
        case["kv_lengths"] = [draw.randint(0, Skv) for _ in range(B)]
        case["page_size"] = draw.choice([1, 8, 16, 64, 256])
        case["page_layout"] = draw.choice(["nhd", "hnd"])
    return case


@takes_other
@pytest.mark.parametrize("seed", range(4))
def test_drawn_calls_are_within_tolerance(harness: Any, place: Place, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(40):
        case = drawn_case(draw, place)
        check_case(harness, case, place, draw.getrandbits(31))


@takes_other
@pytest.mark.parametrize("Dv", [1, 24, 63, 64, 128, 200])
def test_a_column_is_that_of_a_call_with_its_values_alone(
    attention: Attention, place: Place, Dv: int
) -> None:
    """The weights hang on queries and keys alone; one split, so that the same keys are added."""
    q, k = drawn(place, 1, 4, 9, 64), drawn(place, 1, 2, 100, 64)
    v = drawn(place, 1, 2, 100, Dv)
    call = {"num_splits": 1, "variant": place.variant, "return_lse": True}
    out, lse = attention(q, k, v, **call)
    assert out.shape == (1, 4, 9, Dv) and out.is_contiguous()
    eps = torch.finfo(place.dtype).eps
    for column in range(0, Dv, 17):
        alone, lse_alone = attention(q, k, v[..., column, None].expand(-1, -1, -1, 64), **call)
        torch.testing.assert_close(out[..., column], alone[..., 0], atol=4 * eps, rtol=4 * eps)
        torch.testing.assert_close(lse, lse_alone, atol=1e-5, rtol=1e-5)


@takes_other
def test_outputs_of_two_calls_merge(attention: Attention, interface: Any, place: Place) -> None:
    q, k, v = drawn(place, 2, 4, 3, 48), drawn(place, 2, 2, 90, 48), drawn(place, 2, 2, 90, 80)
    whole = attention(q, k, v, variant=place.variant)
    halves = [
        attention(q, k[:, :, part], v[:, :, part], variant=place.variant, return_lse=True)
        for part in (slice(0, 33), slice(33, 90))
    ]
    made = interface.merge(*(torch.stack(of) for of in zip(*halves, strict=True)))
    eps = torch.finfo(place.dtype).eps
    torch.testing.assert_close(made, whole, atol=4 * eps, rtol=4 * eps)


@takes_other
def test_the_call_into_buffers_has_the_same_bits(
    attention: Attention, interface: Any, place: Place
) -> None:
    q, k, v = drawn(place, 2, 8, 1, 64), drawn(place, 2, 2, 3000, 64), drawn(place, 2, 2, 3000, 40)
    call = {"num_splits": 12, "variant": place.variant}
    out, lse = attention(q, k, v, **call, return_lse=True)
    splits, numel = OPS.split_k_attention_plan(q, k, head_dim_v=40, **call)
    assert splits == 12
    buffers = {
        "out": torch.zeros_like(out),
        "lse": torch.zeros_like(lse),
        "workspace": torch.zeros(numel, device=place.device),
    }
    OPS.split_k_attention_out(q, k, v, **call, **buffers)
    assert same_bits(buffers["out"], out) and same_bits(buffers["lse"], lse)


@takes_other
def test_a_call_passes_opcheck(interface: Any, place: Place) -> None:
    operands = [drawn(place, 2, 4, 3, 16), drawn(place, 2, 2, 50, 16), drawn(place, 2, 2, 50, 24)]
    torch.library.opcheck(OPS.split_k_attention.default, operands, {"causal": True})
    _, numel = OPS.split_k_attention_plan(*operands[:2], num_splits=2, head_dim_v=24)
    buffers = {
        "out": torch.zeros(2, 4, 3, 24, dtype=place.dtype, device=place.device),
        "lse": torch.zeros(2, 4, 3, device=place.device),
        "workspace": torch.zeros(numel, device=place.device),
    }
    torch.library.opcheck(OPS.split_k_attention_out.default, operands, buffers | {"num_splits": 2})


def test_the_parts_pass_opcheck(interface: Any) -> None:
    operands = [torch.randn(2, 4, 3, 16), torch.randn(2, 2, 50, 16), torch.randn(2, 2, 50, 24)]
    torch.library.opcheck(OPS.split_k_attention_partial.default, operands, {"num_splits": 2})
    o, _, _ = OPS.split_k_attention_partial(*operands, num_splits=2)
    assert o.shape == (2, 2, 4, 3, 24)


@takes_other
def test_wrong_shapes_are_refused_by_the_library_and_while_tracing(
    attention: Attention, place: Place
) -> None:
    q, k = drawn(place, 2, 4, 3, 16), drawn(place, 2, 2, 50, 16)
    bad = [((2, 2, 50, 0), "v must have Dv of at least 1"), ((2, 2, 49, 24), "v must have Skv=50")]
    if place.target == "cuda":
        bad.append(((2, 2, 50, 257), r"v must have Dv in \[1, 256\]"))
    for shape, message in bad:
        v = drawn(place, *shape)
        with pytest.raises(ValueError, match=message):
            attention(q, k, v, variant=place.variant)
        with pytest.raises(Exception, match=r"v must have|v the shape of k"):
            torch.compile(attention, backend="eager", fullgraph=True)(q, k, v)
    with pytest.raises(Exception, match="head_dim_v must be at least 1"):
        OPS.split_k_attention_plan(q, k, head_dim_v=0)
    with pytest.raises(Exception, match="out must"):
        out, lse = torch.zeros_like(q), q.new_zeros(2, 4, 3, dtype=torch.float32)
        v = drawn(place, 2, 2, 50, 24)
        workspace = q.new_zeros(9999, dtype=torch.float32)
        OPS.split_k_attention_out(q, k, v, out=out, lse=lse, workspace=workspace)


@pytest.mark.parametrize(
    "place", [place for place in PLACES if place.values[0].variant in ("fa1", "two_pass")]
)
def test_the_baselines_refuse_it(attention: Attention, place: Place) -> None:
    q, k, v = drawn(place, 1, 2, 3, 16), drawn(place, 1, 2, 9, 16), drawn(place, 1, 2, 9, 24)
    with pytest.raises(ValueError, match=REFUSED):
        attention(q, k, v, variant=place.variant)


def test_what_a_case_moves_counts_both_dimensions(harness: Any) -> None:
    case = {"Sq": 2, "Skv": 9, "D": 8, "Dv": 3, "dtype": "float32"}
    assert harness.work(case) == {"bytes": 11 * 4 * (2 + 9) + 4 * 2, "flops": 2 * 11 * 2 * 9}


def test_neighbours_change_either_dimension(harness: Any) -> None:
    case = {**MANIFEST.cases("quick")[0], "Dv": 32}
    found = {(of["D"], of["Dv"]) for of in harness.neighbours(case)}
    assert {(63, 32), (65, 32), (64, 31), (64, 33)} <= found
    harness.make_inputs({**case, "Dv": 33}, device=CPU, seed=0)
