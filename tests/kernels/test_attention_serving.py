"""What serving engines ask of attention: pages, sliding windows, softcap, attention sinks."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_rule import CPU, MANIFEST, Place, check, check_case, on_cuda, same_bits
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

Attention = Callable[..., Any]
OPS = torch.ops.kbtool
PAGE_SIZES = [int(size) for size in MANIFEST.case_fields["page_size"].choices]
TABLE = [[2, 0, 7], [1, -1, 2**31 - 1]]


def paged_call(**change: Any) -> dict[str, Any]:
    """A call of two entries of 10 and 3 keys in pages of 4."""
    given = {
        "q": torch.randn(2, 4, 3, 16),
        "k": torch.randn(3, 2, 4, 16),
        "v": torch.randn(3, 2, 4, 16),
        "kv_lengths": torch.tensor([8, 3]),
        "block_table": torch.tensor(TABLE, dtype=torch.int32),
    }
    return {**given, **change}


def fake(call: dict[str, Any]) -> dict[str, Any]:
    with FakeTensorMode() as mode:
        return {k: mode.from_tensor(v) if isinstance(v, Tensor) else v for k, v in call.items()}


@pytest.mark.parametrize("num_splits", [1, 3])
def test_pages_change_no_bit(harness: Any, place: Place, num_splits: int) -> None:
    sizes = {"B": 3, "H": 4, "Hkv": 2, "Sq": 3, "Skv": 512, "D": 64, "causal": True}
    case = sizes | {"kv_lengths": [512, 0, 257], "num_splits": num_splits, "shared_prefix": 256}
    for dtype in place.dtypes:
        of = case | {"dtype": str(dtype).removeprefix("torch.")}
        for size in PAGE_SIZES:
            inputs = harness.make_inputs(of | {"page_size": size}, device=CPU, seed=1)
            paged = harness.call(inputs)
            plain = harness.call(inputs | {"block_table": None})
            assert same_bits(paged["out"], plain["out"]) and same_bits(paged["lse"], plain["lse"])


@pytest.mark.parametrize("fill", ["random", "inf_beyond"])
@pytest.mark.parametrize("page_layout", ["nhd", "hnd"])
def test_unused_pages_and_slots_of_the_inputs_are_poisoned(
    harness: Any, fill: str, page_layout: str
) -> None:
    case = {"B": 3, "H": 2, "Hkv": 2, "Skv": 70, "D": 8, "kv_lengths": [70, 0, 33], "page_size": 16,
            "shared_prefix": 40, "page_layout": page_layout, "fill": fill}  # fmt: skip
    inputs = harness.make_inputs(case, device=CPU, seed=0)
    table, pages, keys = inputs["block_table"], inputs["k_pages"], inputs["k"]
    assert pages.transpose(1, 2).is_contiguous() == (page_layout == "nhd")
    assert table[0, :2].tolist() == table[2, :2].tolist()
    used = {*table[0].tolist(), *table[2, :3].tolist()}
    assert len(used) == 6 < len(pages) and used != set(range(6))
    assert not any(page in used for page in [*table[1].tolist(), *table[2, 3:].tolist()])
    for b, length in ((0, 70), (2, 33)):
        row = pages[table[b, : -(-length // 16)].long()].transpose(0, 1).flatten(1, 2)
        assert torch.equal(row[:, :length], keys[b, :, :length])
        assert not row[:, length:].isfinite().any()
    assert not pages[[page for page in range(len(pages)) if page not in used]].isfinite().any()


def test_a_shared_page_holds_what_any_entry_sees(harness: Any) -> None:
    case = {"B": 2, "Sq": 2, "Skv": 80, "dtype": "float32", "causal": True, "window": 76,
            "kv_lengths": [75, 80], "page_size": 8, "shared_prefix": 65}  # fmt: skip
    inputs = harness.make_inputs(case, device=CPU, seed=0)
    assert inputs["block_table"][0, 0] == inputs["block_table"][1, 0]
    assert inputs["k_pages"][inputs["block_table"][0, 0]].isfinite().all()
    check(harness, inputs)


def drawn_case(draw: random.Random, place: Place) -> dict[str, Any]:
    B, Hkv, Skv = draw.randint(1, 4), draw.randint(1, 3), draw.randint(1, 400)
    case = {
        "B": B,
        "H": Hkv * draw.randint(1, 5),
        "Hkv": Hkv,
        "Sq": draw.choice([1, 1, 2, 7, 40]),
        "Skv": Skv,
        "D": draw.choice([64, 80, 96, 128, 256, draw.randint(1, 130)]),
        "dtype": str(draw.choice(place.dtypes)).removeprefix("torch."),
        "causal": draw.random() < 0.7,
        "layout": draw.choice(["bhsd", "bhsd", "bhds", "sliced", "offset", "mixed"]),
        "kv_lengths": [draw.choice([0, 1, Skv, draw.randint(0, Skv)]) for _ in range(B)],
        "kv_lengths_dtype": draw.choice(["int32", "int64"]),
        "num_splits": draw.choice([None, draw.randint(1, 9)]),
        "softcap": draw.choice([None, 0.3, 3.0, 50.0]),
        "sinks": draw.choice([None, "random", "large", "minus_inf", "nan"]),
        "fill": draw.choice(["random", "random", "inf_beyond", "v_one"]),
    }
    if draw.random() < 0.6:
        case["page_size"] = draw.choice(PAGE_SIZES)
        case["page_layout"] = draw.choice(["nhd", "hnd"])
        case["shared_prefix"] = draw.choice([0, draw.randint(0, Skv)])
    if case["causal"] and draw.random() < 0.6:
        case["window"] = draw.choice([1, 2, Skv, draw.randint(1, Skv + 9), draw.randint(1, 30)])
    return case


@pytest.mark.parametrize("seed", range(6))
def test_drawn_calls_are_within_tolerance(harness: Any, place: Place, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(50):
        case = drawn_case(draw, place)
        check_case(harness, case, place, draw.getrandbits(31))


# ---- identities: the options written another way ----


@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("window", [1, 63, 64, 130])
def test_a_window_of_one_query_is_its_last_keys(
    attention: Attention, place: Place, window: int, num_splits: int
) -> None:
    given = {"causal": True, "num_splits": num_splits, "return_lse": True}
    for dtype in place.dtypes:
        q, k, v = (torch.randn(2, h, s, 64).to(dtype) for h, s in ((4, 1), (2, 300), (2, 300)))
        made = attention(q, k, v, **given, window=window)
        last = attention(q, k[:, :, -window:], v[:, :, -window:], **given)
        assert all(map(same_bits, made, last))


def test_a_window_masks_all_but_the_keys_of_each_query(attention: Attention) -> None:
    q, k, v = torch.randn(1, 1, 5, 8), torch.randn(1, 1, 9, 8), torch.eye(9, 9)[None, None, :, :8]
    out, lse = attention(q, k, v, causal=True, window=3, return_lse=True)
    for i in range(5):
        seen = range(i + 9 - 5 - 2, i + 9 - 5 + 1)  # j > i + valid - Sq - window
        logits = (k[0, 0, seen].double() @ q[0, 0, i].double()) / 8**0.5
        weights = torch.zeros(9, dtype=torch.float64)
        weights[seen] = logits.softmax(0)
        torch.testing.assert_close(out[0, 0, i].double(), weights[:8], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(lse[0, 0, i].double(), logits.logsumexp(0), atol=1e-6, rtol=1e-5)


def test_what_hides_nothing_and_caps_nothing_changes_no_bit(
    attention: Attention, place: Place
) -> None:
    for dtype in place.dtypes:
        q, k, v = (torch.randn(2, h, s, 64).to(dtype) for h, s in ((4, 7), (2, 300), (2, 300)))
        plain = attention(q, k, v, causal=True, return_lse=True, num_splits=3)
        for window in (300, 2**62, 2**63 - 1):
            given = {"window": window, "sinks": torch.full((4,), -math.inf), "num_splits": 3}
            made = attention(q, k, v, causal=True, return_lse=True, **given)
            assert all(map(same_bits, made, plain))


@pytest.mark.parametrize("num_splits", [1, 5])
def test_a_sink_adds_to_the_sum_and_once(attention: Attention, num_splits: int) -> None:
    q, k, v = torch.randn(2, 4, 3, 64), torch.randn(2, 2, 90, 64), torch.randn(2, 2, 90, 64)
    sinks = torch.tensor([-2.0, 0.0, 3.0, 60.0])
    given = {"kv_lengths": torch.tensor([90, 0]), "num_splits": num_splits, "return_lse": True}
    plain, plain_lse = attention(q, k, v, **given)
    out, lse = attention(q, k, v, **given, sinks=sinks)
    expected_lse = torch.logaddexp(plain_lse.double(), sinks[:, None].double())
    torch.testing.assert_close(lse.double(), expected_lse, atol=2e-6, rtol=2e-6)
    factor = (plain_lse.double() - expected_lse).exp()[..., None]
    torch.testing.assert_close(out.double(), plain.double() * factor, atol=1e-7, rtol=1e-5)
    assert (out[1] == 0).all() and torch.equal(lse[1], sinks[:, None].expand(4, 3))


@pytest.mark.parametrize("softcap", [1e-37, 0.01, 1.0, 50.0, 2.3e38])
def test_softcap_caps_the_logit_after_the_scale(attention: Attention, softcap: float) -> None:
    q, k, v = torch.randn(2, 2, 3, 16), torch.randn(2, 2, 70, 16), torch.randn(2, 2, 70, 16)
    logits = q.double() @ k.double().mT * 0.7
    capped = (logits / softcap).tanh() * softcap
    out, lse = attention(q, k, v, scale=0.7, softcap=softcap, return_lse=True)
    torch.testing.assert_close(lse.double(), capped.logsumexp(-1), atol=2e-6, rtol=2e-6)
    expected = capped.softmax(-1) @ v.double()
    torch.testing.assert_close(out.double(), expected, atol=2e-6, rtol=2e-5)


def test_the_tanh_of_softcap_is_within_a_few_units_in_the_last_place(attention: Attention) -> None:
    # One key, so the LSE is its logit. Both sides of where the polynomial ends, small and large.
    logits = torch.cat(
        [torch.logspace(-6, 2, 3000), torch.linspace(0.6, 0.65, 500), torch.tensor([0.625, 88.0])]
    )
    logits = torch.cat([logits, -logits])
    q = logits.view(1, 1, -1, 1)
    _, lse = attention(q, torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1), scale=1.0, softcap=1.0,
                       return_lse=True)  # fmt: skip
    exact = logits.double().tanh()
    ulps = (lse[0, 0].double() - exact).abs() / exact.abs() / 2**-23
    assert ulps.max() < 3


def test_a_window_is_planned_as_its_keys(interface: Any) -> None:
    q, k = torch.empty(1, 8, 1, 64), torch.empty(1, 1, 1, 64).expand(1, 1, 131072, 64)
    window = OPS.split_k_attention_plan(q, k, window=1024)
    assert window == OPS.split_k_attention_plan(q, k[:, :, :1024])
    assert window[0] < OPS.split_k_attention_plan(q, k)[0]
    assert OPS.split_k_attention_plan(q, k, window=2**63 - 1) == OPS.split_k_attention_plan(q, k)


def test_pages_before_a_window_are_not_read(attention: Attention) -> None:
    k = torch.full((8, 2, 4, 16), math.nan)
    k[3:5] = 1.0
    table = torch.tensor([[-1, 2**31 - 1, -7, 4], [2**31 - 1, -1, 3, -5]], dtype=torch.int32)
    given = {"kv_lengths": torch.tensor([15, 11]), "block_table": table, "causal": True}
    out = attention(torch.ones(2, 4, 2, 16), k, k, window=2, **given)
    assert out.isfinite().all()
    with pytest.raises(ValueError, match=r"block_table must lie .*, got 2147483647 at \(0, 1\)"):
        attention(torch.ones(2, 4, 2, 16), k, k, window=7, **given)


# ---- torch ----


OPTIONS: list[dict[str, Any]] = [
    {},
    {"causal": True, "window": 3},
    {"softcap": 20.0},
    {"sinks": torch.randn(4)},
    {"causal": True, "window": 3, "softcap": 20.0, "sinks": torch.randn(4)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "pages")
def test_a_paged_call_passes_opcheck(interface: Any, options: dict[str, Any]) -> None:
    call = paged_call(**options)
    operands = [call.pop(name) for name in ("q", "k", "v")]
    torch.library.opcheck(OPS.split_k_attention.default, operands, call)
    buffers = {
        "out": torch.zeros(2, 4, 3, 16),
        "lse": torch.zeros(2, 4, 3),
        "workspace": torch.zeros(0),
    }
    torch.library.opcheck(
        OPS.split_k_attention_out.default, operands, call | buffers | {"num_splits": 1}
    )
    call.pop("sinks", None)
    torch.library.opcheck(OPS.split_k_attention_partial.default, operands, call | {"num_splits": 2})


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_paged_call_compiles_as_one_graph(attention: Attention, backend: str) -> None:
    torch.compiler.reset()

    def attend(**call: Any) -> Tensor:
        out: Tensor = attention(**call, causal=True, window=5, softcap=20.0)
        return out * 2

    call = paged_call(sinks=torch.randn(4))
    compiled = torch.compile(attend, fullgraph=True, backend=backend)
    assert same_bits(compiled(**call), attend(**call))


def test_the_states_of_pages_are_those_of_the_keys(harness: Any, place: Place) -> None:
    case = {"B": 2, "H": 4, "Hkv": 2, "Sq": 2, "Skv": 64, "dtype": "float32", "page_size": 8,
            "kv_lengths": [64, 9]}  # fmt: skip
    inputs = harness.make_inputs(case, device=CPU, seed=0)
    given = {"kv_lengths": inputs["kv_lengths"], "num_splits": 3}
    paged = OPS.split_k_attention_partial(
        inputs["q"],
        inputs["k_pages"],
        inputs["v_pages"],
        block_table=inputs["block_table"],
        **given,
    )
    plain = OPS.split_k_attention_partial(inputs["q"], inputs["k"], inputs["v"], **given)
    assert all(map(same_bits, paged, plain))


def test_a_paged_plan_counts_the_keys_of_the_table(interface: Any) -> None:
    q, keys = torch.empty(1, 1, 1, 64), torch.empty(1, 1, 4096, 64)
    pages, table = torch.empty(1, 1, 16, 64), torch.zeros(1, 256, dtype=torch.int32)
    plain = OPS.split_k_attention_plan(q, keys)
    assert OPS.split_k_attention_plan(q, pages, block_table=table) == plain
    assert plain[0] > 1


@on_cuda
def test_a_paged_plan_is_that_of_a_call_with_lengths(attention: Attention, place: Place) -> None:
    if place.variant is not None:
        pytest.skip("the planner chooses the variant")
    q, pages = (
        torch.randn(s, device="cuda").to(place.dtype) for s in ((1, 32, 1, 256), (4, 8, 256, 256))
    )
    table = torch.arange(256, device="cuda", dtype=torch.int32)[None] % 4
    given = {"kv_lengths": torch.tensor([65536], device="cuda"), "block_table": table}
    splits, _ = OPS.split_k_attention_plan(q, pages, block_table=table)
    made = attention(q, pages, pages, **given)
    assert same_bits(made, attention(q, pages, pages, num_splits=splits, **given))


def test_a_gradient_of_sinks_is_refused(attention: Attention) -> None:
    sinks = torch.randn(4, requires_grad=True)
    for call in (attention, OPS.split_k_attention):
        with pytest.raises(NotImplementedError, match="no gradient"):
            call(**paged_call(sinks=sinks))


# ---- errors ----

LAYOUT = (
    r"with a block_table, k and v are \(pages, Hkv, page_size, D\): call .transpose\(1, 2\) on"
    r" pages stored as \(pages, page_size, Hkv, D\)"
)
BAD_TABLES: list[tuple[dict[str, Any], str]] = [
    ({"kv_lengths": None}, "kv_lengths must come with block_table, got None"),
    (
        {"block_table": torch.tensor(TABLE)},
        r"block_table must be torch.int32, got (Long|torch.int64); call .int\(\) on it",
    ),
    ({"block_table": torch.zeros(3, 3).int()}, r"block_table must have shape .*B=2, got \(3, 3\)"),
    ({"block_table": torch.zeros(2).int()}, r"block_table must have shape .*, got \(2"),
    (
        {"block_table": torch.zeros(3, 2).int().T},
        r"block_table must have a last stride of 1, got strides \(1, 2\); call .contiguous\(\)",
    ),
    *(
        (
            {"k": torch.zeros(3, 2, size, 16), "v": torch.zeros(3, 2, size, 16)},
            f"k must have a page_size that is a power of two, 1 to 256, got {size}; {LAYOUT}",
        )
        for size in (0, 3, 48, 512)
    ),
    (
        {"k": torch.zeros(3, 8, 4, 16), "v": torch.zeros(3, 8, 4, 16)},
        f"heads of q must be a multiple of .*; {LAYOUT}",
    ),
    ({"k": torch.zeros(4, 2, 4, 16)}, "v must have pages=4|v the shape of k"),
    ({"v": torch.zeros(3, 2, 8, 16)}, "v must have page_size=4|v the shape of k"),
]


@pytest.mark.parametrize(("change", "message"), BAD_TABLES)
def test_wrong_pages_are_refused_when_run_and_when_traced(
    attention: Attention, change: dict[str, Any], message: str
) -> None:
    for call in (paged_call(**change), fake(paged_call(**change))):
        with pytest.raises(ValueError, match=message):
            attention(**call)


NOT_PARTIAL = {"block_table": torch.zeros(2, 3).int(), "window": 4, "softcap": 1.0}


def partial_call(name: str, dtype: torch.dtype, variant: str | None = None) -> dict[str, Any]:
    q, k = torch.zeros(2, 4, 3, 16, dtype=dtype), torch.zeros(2, 2, 4, 16, dtype=dtype)
    given = {"q": q, "k": k, "v": k, "causal": True, "num_splits": 2, "variant": variant}
    return paged_call(**given, **{"block_table": None, name: NOT_PARTIAL[name]})


@on_cuda
@pytest.mark.parametrize("name", NOT_PARTIAL)
def test_a_partial_pass_on_cuda_takes_plain_calls_alone(
    interface: Any, place: Place, name: str
) -> None:
    call = partial_call(name, place.dtype, place.variant)
    call = {k: v.to("cuda") if isinstance(v, Tensor) else v for k, v in call.items()}
    with pytest.raises(ValueError, match=f"{name} must be left out of split_k_attention_partial"):
        OPS.split_k_attention_partial(**call)


@pytest.mark.parametrize("name", NOT_PARTIAL)
def test_a_partial_pass_on_cuda_is_refused_where_it_is_traced(interface: Any, name: str) -> None:
    call = partial_call(name, torch.float16)
    with FakeTensorMode():
        call = {
            k: torch.empty(v.shape, dtype=v.dtype, device="cuda") if isinstance(v, Tensor) else v
            for k, v in call.items()
        }
    with pytest.raises(ValueError, match=f"{name} must be left out of split_k_attention_partial"):
        OPS.split_k_attention_partial(**call)


@pytest.mark.parametrize("page", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_page_that_does_not_exist_is_refused_on_the_cpu(attention: Attention, page: int) -> None:
    table = torch.tensor(TABLE, dtype=torch.int32)
    table[0, 1] = page
    message = rf"block_table must lie in \[0, pages of k\) = \[0, 3\), got {page} at \(0, 1\)"
    with pytest.raises(ValueError, match=message):
        attention(**paged_call(block_table=table))
    attention(**paged_call(block_table=table, kv_lengths=torch.tensor([4, 3])))


def test_lengths_beyond_the_table_are_refused_on_the_cpu(attention: Attention) -> None:
    with pytest.raises(ValueError, match=rf".* \[0, Skv\] = \[0, 12\], got 13 at 1; {LAYOUT}"):
        attention(**paged_call(kv_lengths=torch.tensor([8, 13])))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"block_table": [[1]]}, TypeError, "block_table must be a tensor, got list"),
        ({"sinks": 1.0}, TypeError, "sinks must be a tensor, got float"),
        ({"window": True}, TypeError, "window must be an int, got bool True"),
        ({"window": 2.0}, TypeError, "window must be an int, got float 2.0"),
        ({"window": 0}, ValueError, "window must be at least 1 .*, got 0"),
        ({"window": 2**70}, ValueError, "window must .* fit 64 bits, got an int of 71 bits"),
        ({"window": 4, "causal": False}, ValueError, "window must come with causal=True"),
        ({"softcap": "1"}, TypeError, "softcap must be a float, got str '1'"),
        ({"softcap": 0.0}, ValueError, "softcap .*2.3e38.*, got 0.0.*; None is no softcap"),
        ({"softcap": -1.0}, ValueError, "softcap must lie in .*, got -1.0"),
        ({"softcap": math.nan}, ValueError, "softcap must lie in .*, got nan"),
        ({"softcap": math.inf}, ValueError, "softcap must lie in .*, got inf"),
        ({"sinks": torch.zeros(4).half()}, ValueError, "sinks must be .*, got .*(Half|float16)"),
        ({"sinks": torch.zeros(3)}, ValueError, r"sinks must have shape \(.*4,\), got \(3"),
        ({"sinks": torch.zeros(1, 4)}, ValueError, r"sinks must have shape .*, got \(1, 4\)"),
        ({"sinks": torch.zeros(8)[::2]}, ValueError, r"sinks must .*contiguous.* strides \(2"),
        ({"sinks": torch.zeros(4, device="meta")}, ValueError, "sinks must be on the device of q"),
    ],
)
def test_wrong_options_of_servers_are_refused(
    attention: Attention, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    call = paged_call(**{"causal": True, **given})
    with pytest.raises(error, match=message):
        attention(**call)
    if error is ValueError and "meta" not in str(given):
        with pytest.raises(error, match=message):
            attention(**fake(call))
