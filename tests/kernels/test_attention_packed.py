"""Queries of unlike lengths in one call: packed, with ``cu_seqlens_q``."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_rule import CPU, MANIFEST, PLACES, Place, check, check_case, everywhere, same_bits
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

Attention = Callable[..., Any]
OPS = torch.ops.kbtool
TAKES = [
    place
    for place in PLACES
    if place.values[0].takes({"q_lengths": [1], "dtype": str(place.values[0].dtype)[6:]})
]
takes_packed = pytest.mark.parametrize("place", TAKES)


def packed_call(place: Place | None = None, **change: Any) -> dict[str, Any]:
    """A call of three entries of 2, 0 and 3 queries, and 10, 3 and 12 keys."""
    given = {
        "q": torch.randn(5, 4, 16),
        "k": torch.randn(3, 2, 12, 16),
        "v": torch.randn(3, 2, 12, 16),
        "kv_lengths": torch.tensor([10, 3, 12]),
        "cu_seqlens_q": torch.tensor([0, 2, 2, 5], dtype=torch.int32),
        "max_seqlen_q": 3,
    }
    given |= change
    if place is not None:
        for name, value in given.items():
            if isinstance(value, Tensor):
                wide = value.to(place.dtype) if value.dtype == torch.float32 else value
                given[name] = wide.to(place.device)
    return given


def fake(call: dict[str, Any]) -> dict[str, Any]:
    with FakeTensorMode() as mode:
        return {k: mode.from_tensor(v) if isinstance(v, Tensor) else v for k, v in call.items()}


def drawn_case(draw: random.Random, place: Place) -> dict[str, Any]:
    """Batches of a server: decoding, a few speculative tokens and chunks of a prompt, or none."""
    B, Hkv, Skv = draw.randint(1, 7), draw.randint(1, 3), draw.randint(1, 400)
    most = draw.choice([1, 3, 20, 70, 150])
    queries = [draw.choice([0, 1, 1, most, draw.randint(0, most)]) for _ in range(B)]
    case = {
        "B": B,
        "H": Hkv * draw.randint(1, 5),
        "Hkv": Hkv,
        "Sq": draw.choice([max(queries), max(queries) + draw.randint(0, 40)]),
        "Skv": Skv,
        "D": draw.choice([64, 80, 128, 256, draw.randint(1, 130)]),
        "Dv": draw.choice([None, None, 64, 128, draw.randint(1, 256)]),
        "q_lengths": queries,
        "q_padding": draw.choice([0, 0, 1, draw.randint(0, 200)]),
        "dtype": str(draw.choice(place.dtypes)).removeprefix("torch."),
        "causal": draw.random() < 0.8,
        "layout": draw.choice(["bhsd", "bshd", "bhds", "sliced", "offset", "padded", "mixed"]),
        "kv_lengths": [draw.choice([0, 1, Skv, draw.randint(0, Skv)]) for _ in range(B)],
        "num_splits": draw.choice([None, draw.randint(1, 9), draw.randint(1, 40)]),
        "softcap": draw.choice([None, None, 3.0]),
        "sinks": draw.choice([None, None, "random", "large", "minus_inf", "nan"]),
        "fill": draw.choice(["random", "random", "inf_beyond", "v_one", "nan_value"]),
    }
    if draw.random() < 0.6:
        sizes = MANIFEST.case_fields["page_size"].choices
        case["page_size"] = int(draw.choice(sizes))
        case["page_layout"] = draw.choice(["nhd", "hnd"])
        case["shared_prefix"] = draw.choice([0, draw.randint(0, Skv)])
    if case["dtype"] != "float32" and draw.random() < 0.3:
        case["kv_dtype"] = draw.choice(["float8_e4m3fn", "float8_e5m2"])
        case["kv_scale"] = draw.choice([None, "tensor", "head"])
    if case["causal"] and draw.random() < 0.3:
        case["window"] = draw.choice([1, 2, draw.randint(1, Skv + 9)])
    return case


@takes_packed
@pytest.mark.parametrize("seed", range(6))
def test_drawn_batches_are_within_tolerance(harness: Any, place: Place, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(50):
        case = drawn_case(draw, place)
        check_case(harness, case, place, draw.getrandbits(31))


def one_by_one(call: dict[str, Any], attention: Attention, **given: Any) -> list[Any]:
    """Output and LSE of the entries of a packed call, each by a call of its own."""
    bounds = call["cu_seqlens_q"].tolist()
    made = []
    for b, (begin, end) in enumerate(itertools.pairwise(bounds)):
        q = call["q"][begin:end].transpose(0, 1)[None]
        of = {name: call[name][b : b + 1] for name in ("k", "v", "kv_lengths")}
        out, lse = attention(q, **of, return_lse=True, **given)
        made.append((out[0].transpose(0, 1), lse[0].T))
    return made


@pytest.mark.parametrize("num_splits", [1, 2, 7])
@pytest.mark.parametrize("lengths", [[1, 1, 1], [5, 0, 90], [64, 33, 1], [0, 0, 32]])
def test_each_entry_has_the_bits_of_its_own_call(
    attention: Attention, lengths: list[int], num_splits: int
) -> None:
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    keys = {name: torch.randn(3, 2, 300, 64) for name in ("k", "v")}
    for dtype in (torch.float32, torch.bfloat16):
        call = {
            "q": torch.randn(sum(lengths) + 3, 4, 64).to(dtype),
            **{name: t.to(dtype) for name, t in keys.items()},
            "kv_lengths": torch.tensor([300, 40, 128]),
        }
        given = {"causal": True, "num_splits": num_splits}
        packed = {"cu_seqlens_q": bounds, "max_seqlen_q": 100}
        out, lse = attention(**call, **packed, **given, return_lse=True)
        assert out.shape == call["q"].shape and out.is_contiguous() and out.dtype == dtype
        assert lse.shape == out.shape[:2] and lse.is_contiguous() and lse.dtype == torch.float32
        outs, lses = zip(*one_by_one(call | packed, attention, **given), strict=True)
        end = sum(lengths)
        assert same_bits(out[:end], torch.cat(outs)) and same_bits(lse[:end], torch.cat(lses))
        assert not out[end:].any() and (lse[end:] == -math.inf).all()


def some_entries(call: dict[str, Any], entries: list[int], attention: Attention) -> list[Any]:
    """Output and LSE of the rows of each of some entries of a packed call, in a call of them."""
    bounds = call["cu_seqlens_q"].tolist()
    rows = [range(bounds[b], bounds[b + 1]) for b in entries]
    ends = torch.tensor([0, *map(len, rows)]).cumsum(0).int().to(call["q"].device)
    of = {name: call[name][entries] for name in ("k", "v", "kv_lengths")}
    q = call["q"][list(itertools.chain(*rows))]
    made = attention(**{**call, **of, "q": q, "cu_seqlens_q": ends}, return_lse=True)
    return list(zip(*(t.split([len(of) for of in rows]) for t in made), strict=True))


@takes_packed
@pytest.mark.parametrize("num_splits", [1, 3, 16])
def test_an_entry_has_the_same_bits_beside_others(
    attention: Attention, place: Place, num_splits: int
) -> None:
    bounds = list(itertools.accumulate([0, 5, 0, 1, 40, 3]))
    for dtype in place.dtypes:
        k, v = torch.randn(2, 5, 2, 700, 64).to(dtype)
        call = {
            "q": torch.randn(bounds[-1] + 2, 4, 64).to(dtype),
            "k": k,
            "v": v,
            "kv_lengths": torch.tensor([700, 3, 129, 450, 64]),
            "cu_seqlens_q": torch.tensor(bounds, dtype=torch.int32),
        }
        call = {name: t.to(place.device) for name, t in call.items()}
        given: dict[str, Any] = {"causal": True, "num_splits": num_splits, "max_seqlen_q": 50}
        together = some_entries(call | given, [0, 1, 2, 3, 4], attention)
        for entries in ([3], [4, 2, 0], [2, 2, 1, 3]):
            alone = some_entries(call | given, entries, attention)
            for b, made in zip(entries, alone, strict=True):
                assert all(map(same_bits, made, together[b]))


@takes_packed
def test_a_row_of_no_entry_is_one_that_sees_no_key(attention: Attention, place: Place) -> None:
    sinks = torch.tensor([0.5, -math.inf, 3.0, math.nan])
    call = packed_call(place, q=torch.full((9, 4, 16), math.nan))
    call["cu_seqlens_q"][:] = 0
    out, lse = attention(**call, return_lse=True)
    assert not out.any() and (lse == -math.inf).all()
    out, lse = attention(**call, sinks=sinks.to(place.device), return_lse=True)
    assert torch.equal(lse.cpu()[:, :3], sinks[:3].expand(9, 3)) and lse[:, 3].isnan().all()
    assert not out[:, :3].any() and out[:, 3].isnan().all()


@takes_packed
@pytest.mark.parametrize("total", [0, 3])
def test_a_batch_without_entries_or_rows(attention: Attention, place: Place, total: int) -> None:
    for B in (0, 2):
        call = packed_call(
            place, q=torch.randn(total, 4, 16), k=torch.randn(B, 2, 12, 16),
            v=torch.randn(B, 2, 12, 16), kv_lengths=torch.zeros(B, dtype=torch.int32),
            cu_seqlens_q=torch.zeros(B + 1, dtype=torch.int32),
        )  # fmt: skip
        out, lse = attention(**call, return_lse=True)
        assert out.shape == (total, 4, 16) and not out.any() and (lse == -math.inf).all()


def test_a_larger_maximum_changes_no_bit_on_the_cpu(attention: Attention) -> None:
    call = packed_call()
    expected = attention(**call, num_splits=2, causal=True)
    for most in (4, 64, 2**31 - 1):
        given = {"num_splits": 2, "causal": True}
        assert same_bits(attention(**call | {"max_seqlen_q": most}, **given), expected)


def test_pages_of_an_entry_without_queries_are_not_read(attention: Attention) -> None:
    table = torch.tensor([[0, 1, 2], [-1, 2**31 - 1, 99], [3, 4, 5]], dtype=torch.int32)
    pages = {name: torch.randn(6, 2, 4, 16) for name in ("k", "v")}
    call = packed_call(**pages, block_table=table, kv_lengths=torch.tensor([10, 12, 12]))
    assert attention(**call).isfinite().all()
    call["cu_seqlens_q"] = torch.tensor([0, 1, 2, 5], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"block_table must lie .*, got -1 at \(1, 0\)"):
        attention(**call)


# ---- the inputs and the reference ----


def test_the_packed_inputs_are_the_last_queries_of_each_entry(harness: Any) -> None:
    case = {"B": 3, "H": 2, "Sq": 4, "Skv": 9, "D": 8, "q_lengths": [3, 0, 1], "q_padding": 2}
    inputs = harness.make_inputs(case, device=CPU, seed=0)
    q, packed = inputs["q"], inputs["q_packed"]
    assert packed.shape == (6, 2, 8) and packed.is_contiguous()
    assert inputs["cu_seqlens_q"].tolist() == [0, 3, 3, 4] and inputs["max_seqlen_q"] == 4
    assert torch.equal(packed[:3], q[0, :, 1:].transpose(0, 1))
    assert torch.equal(packed[3], q[2, :, 3]) and packed[4:].isnan().all()
    assert not q[0, :, 0].any() and not q[1].any() and not q[2, :, :3].any()
    assert not inputs["k"][1].isfinite().any()


def test_the_reference_of_packed_rows_is_that_of_each_entry(harness: Any) -> None:
    case = {"B": 3, "H": 4, "Hkv": 2, "Sq": 5, "Skv": 30, "D": 8, "dtype": "float32",
            "causal": True, "window": 7, "q_lengths": [2, 0, 5], "kv_lengths": [9, 30, 30],
            "q_padding": 1}  # fmt: skip
    inputs = harness.make_inputs(case, device=CPU, seed=0)
    for made in (harness.reference(inputs), harness.baseline(inputs)):
        for b, (begin, end) in enumerate([(0, 2), (2, 2), (2, 7)]):
            q, valid = inputs["q_packed"][begin:end], int(inputs["kv_lengths"][b])
            for i, row in enumerate(q):
                last = valid - len(q) + i
                seen = range(max(0, last - 6), last + 1)
                keys, values = (inputs[n][b, :, seen].double() for n in ("k", "v"))
                for h in range(4):
                    logits = keys[h // 2] @ row[h].double() / 8**0.5
                    out = logits.softmax(0) @ values[h // 2]
                    lse = logits.logsumexp(0)
                    torch.testing.assert_close(made["out"][begin + i, h].double(), out,
                                               atol=1e-5, rtol=1e-5)  # fmt: skip
                    torch.testing.assert_close(made["lse"][begin + i, h].double(), lse,
                                               atol=1e-5, rtol=1e-5)  # fmt: skip
        assert not made["out"][7].any() and (made["lse"][7] == -math.inf).all()
    scale = harness.error_scale(inputs)
    assert scale["out"].shape == (8, 4, 8) and scale["lse"].shape == (8, 4)
    assert (scale["lse"][:7] > 0).all() and not scale["lse"][7].any()


@pytest.mark.parametrize(
    ("case", "bytes_", "flops"),
    [
        # q and out 2 * 2 * 4 * 8, k and v 2 * 9 * 8, at 4 bytes; LSE 4 * 4; 8 + 9 pairs
        (
            {"q_lengths": [0, 4, 0], "kv_lengths": [9, 3, 5]},
            2 * 4 * 8 * 4 + 2 * 3 * 8 * 4 + 16,
            192,
        ),
        (
            {"q_lengths": [2, 0, 1], "kv_lengths": [9, 9, 5]},
            2 * 3 * 8 * 4 + 2 * 14 * 8 * 4 + 12,
            704,
        ),
        ({"q_lengths": [0, 0, 0], "q_padding": 3}, 0, 0),
    ],
)
def test_work_counts_the_queries_of_each_entry(
    harness: Any, case: dict[str, Any], bytes_: int, flops: int
) -> None:
    sizes = {"B": 3, "Sq": 4, "Skv": 9, "D": 8, "dtype": "float32", "causal": True}
    assert harness.work(sizes | case) == {"bytes": bytes_, "flops": flops}


def test_arms_say_why_they_take_no_packed_queries(harness: Any) -> None:
    case = {"B": 2, "Sq": 4, "Skv": 9, "D": 8, "dtype": "float32", "q_lengths": [1, 4]}
    inputs = harness.make_inputs(case, device=CPU, seed=0)
    arms = harness.arms(inputs, ["two_pass"], ["sdpa"])
    assert arms["sdpa"] == "is not called with cu_seqlens_q"
    assert arms["two_pass"]()[0].shape == (5, 1, 8)
    assert harness.parts(inputs, "two_pass") == {}
    with pytest.raises(ValueError, match="q_lengths are not tuned"):
        harness.settings({**inputs, "kv_lengths": None}, "two_pass")


@pytest.mark.parametrize("fields", [{}, {"page_size": 16}, {"kv_lengths": None, "window": 7}])
@pytest.mark.parametrize("queries", [[1, 1, 5, 0, 70, 70], [0, 3, 3, 3, 1, 0]])
def test_calls_apart_give_the_same(
    harness: Any, queries: list[int], fields: dict[str, Any]
) -> None:
    case = {"B": 6, "H": 4, "Hkv": 2, "Sq": 80, "Skv": 200, "D": 64, "dtype": "float32",
            "causal": True, "q_lengths": queries, "kv_lengths": [200, 3, 77, 40, 128, 90],
            "sinks": "random", "num_splits": 3, **fields}  # fmt: skip
    inputs = harness.make_inputs(case, device=CPU, seed=0)
    arms = harness.arms(inputs, [], ["apart"])
    assert same_bits(arms["apart"](), arms[harness.SUBJECT]()[0])


def test_calls_apart_are_for_packed_queries(harness: Any) -> None:
    case = {"B": 2, "Sq": 4, "Skv": 9, "D": 8, "causal": True}
    for fields, reason in (
        ({}, "is for packed queries"),
        ({"q_lengths": [1, 4], "tree_mask": 1}, "is not called with tree_mask"),
    ):
        inputs = harness.make_inputs(case | fields, device=CPU, seed=0)
        assert harness.arms(inputs, [], ["apart"])["apart"] == reason


def test_neighbours_of_packed_queries_can_be_made(harness: Any) -> None:
    case = {**MANIFEST.cases("quick")[0], "B": 3, "Sq": 4, "q_lengths": [1, 0, 4], "q_padding": 1}
    found = list(harness.neighbours(case))
    for of in found:
        harness.make_inputs(of, device=CPU, seed=0)
        assert len(of["q_lengths"]) == of["B"] and max(of["q_lengths"]) <= of["Sq"]
    assert [1, 1, 4] in [of["q_lengths"] for of in found]
    assert {0, 2} < {of["q_padding"] for of in found} | {1}


# ---- torch ----


@takes_packed
def test_a_packed_call_passes_opcheck(interface: Any, place: Place) -> None:
    call = packed_call(place, causal=True)
    operands = [call.pop(name) for name in ("q", "k", "v")]
    torch.library.opcheck(OPS.split_k_attention.default, operands, call)
    given = {name: call[name] for name in ("cu_seqlens_q", "max_seqlen_q")}
    _, numel = OPS.split_k_attention_plan(*operands[:2], num_splits=2, **given)
    buffers = {
        "out": torch.zeros_like(operands[0]),
        "lse": torch.zeros(5, 4, device=place.device),
        "workspace": torch.zeros(numel, device=place.device),
    }
    torch.library.opcheck(
        OPS.split_k_attention_out.default, operands, call | buffers | {"num_splits": 2}
    )


@takes_packed
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_packed_call_compiles_as_one_graph(
    attention: Attention, place: Place, backend: str, dynamic: bool
) -> None:
    torch.compiler.reset()

    def attend(**call: Any) -> tuple[Tensor, Tensor]:
        out, lse = attention(**call, causal=True, return_lse=True)
        return out * 2, lse

    compiled = torch.compile(attend, fullgraph=True, backend=backend, dynamic=dynamic)
    for total in (5, 8):
        call = packed_call(place, q=torch.randn(total, 4, 16))
        assert all(map(same_bits, compiled(**call), attend(**call)))


@takes_packed
def test_a_gradient_of_packed_queries_is_refused(attention: Attention, place: Place) -> None:
    call = packed_call(place)
    call["q"].requires_grad_()
    with pytest.raises(NotImplementedError, match="no gradient"):
        attention(**call)


# ---- errors ----


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_seqlen_q": None}, "max_seqlen_q must come with cu_seqlens_q, got None"),
        ({"cu_seqlens_q": None, "q": torch.zeros(3, 4, 2, 16)},
         "max_seqlen_q must come with cu_seqlens_q, got None"),
        ({"cu_seqlens_q": None, "max_seqlen_q": None},
         r"q must have 4 dimensions \(B, H, Sq, D\), got 3: \(5, 4, 16\)"),
        ({"q": torch.zeros(1, 4, 5, 16)},
         r"q must have 3 dimensions \(total_q, H, D\), got 4: \(1, 4, 5, 16\)"),
        ({"cu_seqlens_q": torch.tensor([0, 2, 2, 5])},
         r"cu_seqlens_q must be torch.int32, got (Long|torch.int64); call .int\(\) on it"),
        ({"cu_seqlens_q": torch.zeros(8).int()[::2]}, r"cu_seqlens_q .* contiguous.* \(2,?\)"),
        ({"cu_seqlens_q": torch.zeros(0).int()}, r"cu_seqlens_q must be .*\(B \+ 1,\), got shape"),
        ({"cu_seqlens_q": torch.zeros(1, 4).int()}, r"cu_seqlens_q must be .* got shape \(1, 4\)"),
        ({"cu_seqlens_q": torch.zeros(3).int()},
         r"(k must have B=2 \(entries of cu_seqlens_q\), got 3|k must have B=2 and D of q)"),
        ({"kv_lengths": torch.zeros(4).int()}, r"kv_lengths must have shape \(B,\) = \(3,\), got"),
        ({"block_table": torch.zeros(2, 3).int(), "k": torch.zeros(9, 2, 4, 16),
          "v": torch.zeros(9, 2, 4, 16)}, r"block_table must have shape .*B=3, got \(2, 3\)"),
        ({"max_seqlen_q": -1}, r"max_seqlen_q must lie in \[0, 2147483647\], got -1"),
        ({"max_seqlen_q": 2**31}, r"max_seqlen_q must lie in .*, got 2147483648"),
        ({"q": torch.zeros(5, 3, 16)}, "heads of q must be a multiple of .*"),
        ({"q": torch.zeros(5, 4, 8)}, "k must have (D=8|B=3 and D of q)"),
    ],
)  # fmt: skip
def test_wrong_packed_arguments_are_refused_when_run_and_when_traced(
    attention: Attention, change: dict[str, Any], message: str
) -> None:
    for call in (packed_call(**change), fake(packed_call(**change))):
        with pytest.raises(ValueError, match=message):
            attention(**call)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([1, 2, 2, 5], "cu_seqlens_q must begin with 0, got 1"),
        ([0, 2, 1, 4], "must rise by 0 to max_seqlen_q = 3, got 2 and then 1 at 2"),
        ([0, 0, 0, 4], "must rise by 0 to max_seqlen_q = 3, got 0 and then 4 at 3"),
        ([0, 3, 3, 6], "must end at total_q = 5 of q at most, got 6"),
        ([0, -(2**31), 2**31 - 1, 2], "must rise by 0 to max_seqlen_q = 3, got 0 and then -2147"),
    ],
)
def test_wrong_values_of_cu_seqlens_are_refused_on_the_cpu(
    attention: Attention, bounds: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        attention(**packed_call(cu_seqlens_q=torch.tensor(bounds, dtype=torch.int32)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cu_seqlens_q": [0, 2, 2, 5]}, "cu_seqlens_q must be a tensor, got list"),
        ({"max_seqlen_q": 3.0}, "max_seqlen_q must be an int, got float 3.0"),
        ({"max_seqlen_q": True}, "max_seqlen_q must be an int, got bool True"),
        ({"max_seqlen_q": torch.tensor(3)}, "max_seqlen_q must be an int, got Tensor"),
    ],
)
def test_packed_arguments_of_another_type_are_refused(
    attention: Attention, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        attention(**packed_call(**change))


def test_bounds_on_another_device_are_refused(attention: Attention) -> None:
    with pytest.raises(ValueError, match="cu_seqlens_q must be on the device of q"):
        attention(**packed_call(cu_seqlens_q=torch.zeros(4, dtype=torch.int32, device="meta")))


@everywhere
def test_what_takes_no_packed_queries_says_so(attention: Attention, place: Place) -> None:
    if any(place is of.values[0] for of in TAKES):
        pytest.skip(f"{place} takes them")
    with pytest.raises(ValueError, match="cu_seqlens_q must be left out"):
        attention(**packed_call(place))


def test_a_packed_call_on_cuda_is_traced(attention: Attention) -> None:
    with FakeTensorMode():
        call = {
            name: torch.empty(
                t.shape, dtype=torch.float16 if t.is_floating_point() else t.dtype, device="cuda"
            )
            if isinstance(t, Tensor)
            else t
            for name, t in packed_call().items()
        }
        out, lse = attention(**call, return_lse=True)
    assert out.shape == (5, 4, 16) and lse.shape == (5, 4) and out.device.type == "cuda"


# ---- cards ----


@pytest.mark.parametrize("place", [place for place in TAKES if place.values[0].target == "cuda"])
@pytest.mark.parametrize("fields", [{}, {"page_size": 16}, {"num_splits": 16}, {"num_splits": 4}])
def test_a_graph_replays_on_new_lengths(
    attention: Attention, harness: Any, place: Place, fields: dict[str, Any]
) -> None:
    """A graph is captured with the most rows, queries and keys."""
    total, B, Skv = 60, 5, 900
    sizes = {"B": B, "H": 8, "Hkv": 2, "Sq": 40, "Skv": Skv, "D": 128, "causal": True,
             "dtype": str(place.dtype).removeprefix("torch.")}  # fmt: skip
    replayed = [
        ([12, 12, 12, 12, 12], [Skv] * B),
        ([1, 1, 1, 1, 1], [1, 900, 33, 128, 5]),
        ([40, 0, 7, 1, 2], [600, 50, 7, 0, 899]),
        ([0, 0, 0, 0, 0], [Skv] * B),
        ([0, 0, 0, 20, 40], [3, 3, 3, 15, 700]),
    ]
    cases = [
        sizes
        | fields
        | {"q_lengths": queries, "kv_lengths": keys, "q_padding": total - sum(queries)}
        for queries, keys in replayed
    ]
    inputs = [
        harness.make_inputs(case, device=place.device, seed=i) for i, case in enumerate(cases)
    ]
    names = ("k_pages", "v_pages") if fields.get("page_size") else ("k", "v")
    pages = max(len(of[names[0]]) for of in inputs)
    q, bounds, valid = (inputs[0][n].clone() for n in ("q_packed", "cu_seqlens_q", "kv_lengths"))
    k, v = (inputs[0][name].new_zeros((pages, *inputs[0][name].shape[1:])) for name in names)
    table = None if "k" in names else torch.zeros_like(inputs[0]["block_table"]).contiguous()

    def call() -> tuple[Tensor, Tensor]:
        made: tuple[Tensor, Tensor] = attention(
            q, k, v, causal=True, kv_lengths=valid, block_table=table, cu_seqlens_q=bounds,
            max_seqlen_q=40, num_splits=fields.get("num_splits"), return_lse=True,
        )  # fmt: skip
        return made

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = call()
    for of in inputs:
        expected = check(harness, of, variant=place.variant)
        q.copy_(of["q_packed"])
        bounds.copy_(of["cu_seqlens_q"])
        valid.copy_(of["kv_lengths"])
        if table is not None:
            table.copy_(of["block_table"])
        for held, name in ((k, names[0]), (v, names[1])):
            held[: len(of[name])] = of[name]
        graph.replay()
        torch.cuda.synchronize()
        eager, eager_lse = call()
        assert same_bits(out, eager) and same_bits(lse, eager_lse)
        torch.testing.assert_close(lse, expected["lse"], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("place", [place for place in TAKES if place.values[0].target == "cuda"])
@pytest.mark.parametrize(
    "bounds", [[0, 9, 3, 5], [-7, 2, 2, 5], [0, 2, 2**31 - 1, -(2**31)], [5, 5, 5, 5]]
)
def test_wrong_values_of_cu_seqlens_on_cuda_hurt_no_later_call(
    attention: Attention, place: Place, bounds: list[int]
) -> None:
    call = packed_call(place, causal=True, num_splits=16)
    expected = attention(**call)
    wrong = torch.tensor(bounds, dtype=torch.int32, device=place.device)
    attention(**{**call, "cu_seqlens_q": wrong})
    torch.cuda.synchronize()
    assert same_bits(attention(**call), expected)
