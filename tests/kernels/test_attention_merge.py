"""Merging what calls over parts of the keys returned."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_rule import Place, everywhere, same_bits, violation
from torch import Tensor

import kbtool.attention

Merge = Callable[..., Any]


@pytest.fixture
def merge(interface: Any, place: Place) -> Merge:
    if place.target == "cuda" and place.variant != "two_pass":
        pytest.skip(f"{place} has no merge of its own")
    call: Merge = interface.merge
    return call


def in_float64(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    k, v = (t.double().repeat_interleave(group, dim=1) for t in (k, v))
    logits = q.double() @ k.mT / q.shape[3] ** 0.5
    return logits.softmax(-1) @ v, logits.logsumexp(-1)


@everywhere
def test_parts_of_the_keys_merge_to_attention_over_all(
    merge: Merge, interface: Any, place: Place
) -> None:
    for dtype in place.dtypes:
        q, k, v = (
            torch.randn(2, h, s, 64, device=place.device).to(dtype)
            for h, s in ((8, 3), (2, 700), (2, 700))
        )
        ends = (0, 1, 300, 300, 641, 700)  # one part is empty
        parts = [
            interface.split_k_attention(q, k[:, :, a:b], v[:, :, a:b], return_lse=True)
            for a, b in itertools.pairwise(ends)
        ]
        outs, lses = (torch.stack(which) for which in zip(*parts, strict=True))
        out, lse = merge(outs, lses, return_lse=True)
        assert out.dtype == dtype and out.is_contiguous() and lse.dtype == torch.float32
        exact, exact_lse = in_float64(q, k, v)
        assert violation(out, exact, exact.to(dtype), exact.abs().max().item()) is None
        assert violation(lse, exact_lse, exact_lse.float()) is None
        again, again_lse = merge(outs, lses, return_lse=True)
        assert same_bits(again, out) and same_bits(again_lse, lse)
        assert same_bits(merge(outs, lses), out)


@everywhere
def test_a_prefix_that_entries_share_is_attended_to_in_one_call(
    merge: Merge, interface: Any, place: Place
) -> None:
    B, H, D = 5, 4, 64
    q = torch.randn(B, H, 1, D, device=place.device).to(place.dtype)
    prefix_k, prefix_v, own_k, own_v = (
        torch.randn(b, 2, s, D, device=place.device).to(place.dtype)
        for b, s in ((1, 400), (1, 400), (B, 70), (B, 70))
    )
    attend = interface.split_k_attention
    out, lse = attend(q.transpose(0, 2), prefix_k, prefix_v, return_lse=True)
    of_prefix = (out.transpose(0, 2), lse.permute(2, 1, 0))
    of_own = attend(q, own_k, own_v, return_lse=True)
    out = merge(*(torch.stack(which) for which in zip(of_prefix, of_own, strict=True)))
    whole = [torch.cat([shared.expand(B, -1, -1, -1), own], dim=2)
             for shared, own in ((prefix_k, own_k), (prefix_v, own_v))]  # fmt: skip
    exact = in_float64(q, *whole)[0]
    by_torch = torch.nn.functional.scaled_dot_product_attention(q, *whole, enable_gqa=True)
    assert violation(out, exact, by_torch, exact.abs().max().item()) is None


@everywhere
def test_a_single_part_keeps_its_bits(merge: Merge, place: Place) -> None:
    for dtype in place.dtypes:
        outs = torch.randn(1, 2, 4, 3, 80, device=place.device).to(dtype)
        lses = torch.randn(1, 2, 4, 3, device=place.device) * 30
        out, lse = merge(outs, lses, return_lse=True)
        assert same_bits(out, outs[0]) and same_bits(lse, lses[0])


@everywhere
def test_a_part_without_keys_counts_for_nothing_whatever_it_holds(
    merge: Merge, place: Place
) -> None:
    outs = torch.randn(3, 2, 4, 3, 64, device=place.device).to(place.dtype)
    lses = torch.randn(3, 2, 4, 3, device=place.device)
    lses[1], outs[1] = -math.inf, math.nan
    made, of_others = (
        merge(outs, lses, return_lse=True),
        merge(outs[[0, 2]], lses[[0, 2]], return_lse=True),
    )
    for got, expected in zip(made, of_others, strict=True):
        torch.testing.assert_close(got, expected)
    out, lse = merge(outs, torch.full_like(lses, -math.inf), return_lse=True)
    assert (out == 0).all() and (lse == -math.inf).all()


@everywhere
def test_what_is_not_finite_reaches_its_rows_alone(merge: Merge, place: Place) -> None:
    outs = torch.ones(2, 1, 1, 4, 64, device=place.device).to(place.dtype)
    lses = torch.zeros(2, 1, 1, 4, device=place.device)
    lses[0, 0, 0, 0], lses[0, 0, 0, 1], outs[0, 0, 0, 2, 5] = math.nan, math.inf, math.nan
    out, lse = merge(outs, lses, return_lse=True)
    assert out[0, 0, :2].isnan().all() and lse[0, 0, 0].isnan() and lse[0, 0, 1] == math.inf
    assert out[0, 0, 2].isnan().nonzero().tolist() == [[5]]
    assert (out[0, 0, 3] == 1).all()


def test_the_type_of_the_result_can_be_given(merge: Merge) -> None:
    outs, lses = torch.randn(2, 1, 2, 1, 8), torch.randn(2, 1, 2, 1)
    out = merge(outs, lses, dtype=torch.bfloat16)
    assert same_bits(out, merge(outs, lses).to(torch.bfloat16))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_merging_compiles_as_one_graph(merge: Merge, backend: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(merge, fullgraph=True, backend=backend)
    outs, lses = torch.randn(2, 3, 2, 1, 8), torch.randn(2, 3, 2, 1)
    lses[0, 0] = -math.inf
    given = {"dtype": torch.bfloat16, "return_lse": True}
    made, expected = (call(outs, lses, **given) for call in (compiled, merge))
    assert all(map(same_bits, made, expected))


def test_the_public_function_is_the_same(merge: Merge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kbtool.attention, "_loaded", {"merge": merge})  # as after the first call
    public, own = (inspect.signature(f, eval_str=True) for f in (kbtool.attention.merge, merge))
    assert list(public.parameters.values()) == list(own.parameters.values())
    outs, lses = torch.randn(2, 3, 2, 1, 8), torch.randn(2, 3, 2, 1)
    made = kbtool.attention.merge(outs, lses, return_lse=True)
    assert all(map(same_bits, made, merge(outs, lses, return_lse=True)))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"out": [1.0]}, TypeError, "merge: out must be a tensor, got list"),
        ({"lse": None}, TypeError, "merge: lse must be a tensor, got NoneType"),
        ({"out": torch.zeros(2, 4, 3, 16)}, ValueError, r"out must be \(S, .*, got \(2, 4, 3, 16"),
        ({"out": torch.zeros(2, 1, 4, 3, 16).double()}, ValueError, "out must be .* torch.float64"),
        ({"lse": torch.zeros(2, 1, 4)}, ValueError, r"lse must be .* \(2, 1, 4, 3\), got .*\(2, 1"),
        ({"lse": torch.zeros(2, 1, 4, 3).half()}, ValueError, "lse must be .*, got torch.float16"),
        ({"lse": torch.zeros(2, 1, 4, 3, device="meta")}, ValueError, "must be on the device of"),
        (
            {"out": torch.zeros(2, 1, 4, 3, 16).to_sparse()},
            ValueError,
            "merge: out must be a dense",
        ),
        ({"lse": torch.zeros(2, 1, 4, 3).to_sparse()}, ValueError, "merge: lse must be a dense"),
        *(
            (
                {"out": torch.zeros(S, 1, 4, 3, D), "lse": torch.zeros(S, 1, 4, 3)},
                ValueError,
                rf"merge: out must have S in \[1, 1024\] and D of at .* got .*\({S}, .* {D}\)",
            )
            for S, D in ((0, 16), (1025, 16), (2, 0))
        ),
        (
            {"dtype": "float16"},
            TypeError,
            "merge: dtype must be a torch.dtype.*, got str 'float16'",
        ),
        ({"return_lse": "yes"}, TypeError, "merge: return_lse must be a bool, got str 'yes'"),
        ({"return_lse": None}, TypeError, "merge: return_lse must be a bool, got NoneType None"),
        ({"dtype": torch.float64}, ValueError, "dtype must be .*, got (Double|torch.float64)"),
    ],
)
def test_wrong_parts_are_refused(
    merge: Merge, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    call = {"out": torch.zeros(2, 1, 4, 3, 16), "lse": torch.zeros(2, 1, 4, 3)}
    with pytest.raises(error, match=message):
        merge(**(call | change))
