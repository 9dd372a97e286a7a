"""Keys and values of 8 bits: every code, scales, what is refused, tracing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attention_rule import ON_CUDA, PLACES, Place
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

OPS = torch.ops.kbtool
TYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
PLACES_OF_FP8 = [p for p in PLACES if p.values[0].variant not in ("fa1", "two_pass")]
everywhere = pytest.mark.parametrize("place", PLACES_OF_FP8)


def attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    out: Tensor = OPS.split_k_attention(q, k, v, **options)[0]
    return out


def operands(dtype: torch.dtype, *, heads: int = 2, keys: int = 300) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    q = drawn(2, 4, 3, 64).half()
    return q, drawn(2, heads, keys, 64).to(dtype), drawn(2, heads, keys, 64).to(dtype)


# Rows of whole pieces of 16 bytes, whose codes a card widens in registers, and others.
@everywhere
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", [64, 128, 256, 63])
def test_each_of_the_256_codes_is_the_number_that_torch_takes_it_for(
    interface: Any, place: Place, dtype: torch.dtype, columns: int
) -> None:
    count = math.ceil(256 / columns)
    codes = torch.arange(count * columns).remainder(256).to(torch.uint8)
    codes = codes.view(dtype).view(count, 1, 1, columns).to(place.device)
    q = torch.zeros(count, 1, 1, columns, device=place.device)
    k = q.to(dtype)
    options = {"scale": 1.0, "variant": place.variant}
    wide = codes.float()
    for of in (torch.bfloat16, torch.float16):
        # One key has all of the weight: the output is its value.
        out = attention(q.to(of), k, codes, **options).float()
        assert torch.equal(out.nan_to_num(-1.5), wide.nan_to_num(-1.5))
        # As keys: the logit of a query that picks one column is that column.
        finite = torch.where(wide.isfinite(), wide, 0)
        for column in range(0, columns, 7):
            picks = q.to(of).index_fill(3, torch.tensor([column], device=place.device), 1)
            lse = OPS.split_k_attention(picks, finite.to(dtype), k, **options)[1]
            # A card's logits pass through base 2.
            exact = 0 if place.target == "cpu" else 1e-6
            torch.testing.assert_close(lse.view(count), finite[:, 0, 0, column], rtol=exact, atol=0)


@everywhere
@pytest.mark.parametrize("size", [2.0**-120, 2.0**-30, 1.0, 2.0**30, 2.0**120])
def test_queries_of_any_size_are_taken_whole(interface: Any, place: Place, size: float) -> None:
    """On a card bf16 queries become fp16 beside keys of 8 bits."""
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(1, 2, 5, 128, generator=generator).bfloat16()
    q[:, 0] *= 2.0 ** torch.linspace(-14, 0, 128).round()  # small numbers beside large ones
    q[:, 1, 3] = 0
    k = torch.randn(1, 1, 90, 128, generator=generator).to(torch.float8_e4m3fn)
    wide = q.double() @ k.double().transpose(2, 3) / 11
    arguments = [t.to(place.device) for t in ((q.double() * size).bfloat16(), k, k)]
    lse = OPS.split_k_attention(*arguments, scale=1 / (11 * size), variant=place.variant)[1]
    assert torch.allclose(lse.cpu().double(), wide.logsumexp(-1), rtol=1e-5, atol=1e-5)


@everywhere
@pytest.mark.parametrize("columns", [128, 72])
def test_infinite_queries_beside_8_bits_give_what_16_bits_give(
    interface: Any, place: Place, columns: int
) -> None:
    q = torch.ones(1, 1, 3, columns, dtype=torch.bfloat16)
    q[0, 0, 0, 5], q[0, 0, 1, 7], q[0, 0, 2, 1] = math.inf, math.nan, 3e38
    k = torch.ones(1, 1, 20, columns).to(torch.float8_e4m3fn)
    options = {"scale": 1e-3, "variant": place.variant}
    operands_8 = [t.to(place.device) for t in (q, k, k)]
    operands_16 = [t.to(place.device) for t in (q, k.bfloat16(), k.bfloat16())]
    for got, wanted in zip(
        OPS.split_k_attention(*operands_8, **options),
        OPS.split_k_attention(*operands_16, **options),
        strict=True,
    ):
        assert torch.allclose(got.float(), wanted.float(), rtol=1e-5, equal_nan=True)


@everywhere
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("num_splits", [1, 3])
def test_scales_of_heads_are_those_of_separate_calls(
    interface: Any, place: Place, dtype: torch.dtype, num_splits: int
) -> None:
    q, k, v = (t.to(place.device) for t in operands(dtype))
    k_scale = torch.tensor([0.3, 1.7], device=place.device)
    v_scale = torch.tensor([0.9, 0.011], device=place.device)
    options = {"num_splits": num_splits, "variant": place.variant}
    out = attention(q, k, v, k_scale=k_scale, v_scale=v_scale, **options)
    for head in range(2):
        heads = slice(2 * head, 2 * head + 2)
        alone = attention(
            q[:, heads], k[:, head : head + 1], v[:, head : head + 1],
            k_scale=k_scale[head], v_scale=v_scale[head : head + 1], **options,
        )  # fmt: skip
        assert torch.equal(out[:, heads], alone)


@everywhere
def test_a_power_of_two_as_scale_is_the_same_as_scaled_numbers(
    interface: Any, place: Place
) -> None:
    q, k, v = (t.to(place.device) for t in operands(torch.float8_e5m2))
    half = torch.tensor(0.5, device=place.device)
    doubled = [(t.float() * 2).to(torch.float8_e5m2) for t in (k, v)]
    assert all(torch.equal(d.float(), t.float() * 2) for d, t in zip(doubled, (k, v), strict=True))
    options = {"variant": place.variant}
    scaled = OPS.split_k_attention(q, *doubled, k_scale=half, v_scale=half, **options)
    for found, wanted in zip(scaled, OPS.split_k_attention(q, k, v, **options), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("dtype", TYPES)
def test_states_of_a_partial_pass_hold_the_scales(interface: Any, dtype: torch.dtype) -> None:
    q, k, v = operands(dtype)
    scales = {"k_scale": torch.tensor([0.3, 1.7]), "v_scale": torch.tensor(0.05)}
    states = OPS.split_k_attention_partial(q, k, v, num_splits=3, **scales)
    out, lse = OPS.split_k_attention_merge(*states, dtype=q.dtype)
    whole = OPS.split_k_attention(q, k, v, num_splits=3, **scales)
    assert torch.equal(out, whole[0]) and torch.equal(lse, whole[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v": "bfloat16"}, "v must have the dtype of k .*e4m3fn"),
        ({"v": "float8_e5m2"}, "v must have the dtype of k .*e4m3fn"),
        ({"q": "float32"}, r"k must have the dtype of q \(.*[Ff]loat.*\), got .*e4m3fn"),
        ({"k": "float8_e4m3fnuz", "v": "float8_e4m3fnuz"}, "k must have the dtype of q .*fnuz"),
        ({"k_scale": [1.0, 1.0, 1.0]}, r"k_scale must have shape .*\(Hkv,\) = \(2,\).*got \(3,?\)"),
        ({"v_scale": [[1.0], [1.0]]}, r"v_scale must have shape .*, got \(2, 1\)"),
        ({"v_scale": []}, r"v_scale must have shape .*, got \(0,?\)"),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
def test_what_does_not_fit_is_refused(
    interface: Any, change: dict[str, Any], message: str, traced: bool
) -> None:
    given = dict(zip("qkv", operands(torch.float8_e4m3fn), strict=True))
    for name, value in change.items():
        if isinstance(value, str):
            given[name] = given[name].float().to(getattr(torch, value))
        else:
            given[name] = torch.tensor(value)
    if traced:
        given = {name: t.to("meta") for name, t in given.items()}
    with pytest.raises(ValueError, match=message):
        interface.split_k_attention(**given)


@pytest.mark.parametrize("traced", [False, True])
def test_a_scale_is_a_float_tensor_beside_8_bits(interface: Any, traced: bool) -> None:
    q, k, v = operands(torch.float8_e4m3fn)
    one = torch.ones(2)
    if traced:
        q, k, v, one = (t.to("meta") for t in (q, k, v, one))
    for scale in (one.half(), torch.stack([one, one])[:, 0]):
        with pytest.raises(ValueError, match=r"k_scale must be a contiguous .*[Ff]loat"):
            interface.split_k_attention(q, k, v, k_scale=scale)
    with pytest.raises(ValueError, match="v_scale must come with keys and values of 8 bits, got k"):
        interface.split_k_attention(q, q, q, v_scale=one[:1])
    with pytest.raises(TypeError, match="k_scale must be a tensor, got float"):
        interface.split_k_attention(q, k, v, k_scale=1.0)


@everywhere
@pytest.mark.parametrize("dtype", TYPES)
def test_it_is_an_operator_for_torchs_compiler(
    interface: Any, place: Place, dtype: torch.dtype
) -> None:
    q, k, v = (t.to(place.device) for t in operands(dtype))
    scales = {"k_scale": torch.tensor([0.3, 1.7]), "v_scale": torch.tensor(0.05)}
    scales = {name: scale.to(place.device) for name, scale in scales.items()}
    # Not test_schema, which multiplies the inputs: torch cannot multiply 8 bits on the CPU.
    tests = ("test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(OPS.split_k_attention.default, (q, k, v), scales, test_utils=tests)
    compiled = torch.compile(interface.split_k_attention, backend="eager", fullgraph=True)
    assert torch.equal(compiled(q, k, v, **scales), attention(q, k, v, **scales))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_call_is_traced_for_either_device(
    interface: Any, dtype: torch.dtype, device: str
) -> None:
    """For a card too where there is none: tracing runs nothing."""
    with FakeTensorMode():
        q = torch.empty(2, 4, 3, 64, dtype=torch.bfloat16, device=device)
        k = torch.empty(2, 2, 300, 64, dtype=dtype, device=device)
        scale = torch.empty(2, device=device)
        out, lse = OPS.split_k_attention(q, k, k, k_scale=scale, v_scale=scale)
        assert out.shape == q.shape and out.dtype == q.dtype and lse.shape == q.shape[:3]
        with pytest.raises(ValueError, match=r"k must have the dtype of q .*float8_e5m2, got"):
            OPS.split_k_attention(q, k.half(), k.half())
        if device == "cuda":
            message = "8-bit k and v must be left out of split_k_attention_partial on CUDA"
            with pytest.raises(ValueError, match=message):
                OPS.split_k_attention_partial(q, k, k, num_splits=2)


@pytest.mark.parametrize("place", [place for place in ON_CUDA if place not in PLACES_OF_FP8])
def test_the_baselines_on_cuda_refuse_8_bits(interface: Any, place: Place) -> None:
    q, k, v = (t.to(place.device) for t in operands(torch.float8_e4m3fn))
    message = f"8-bit k and v must be left out for variant {place.variant}; fused takes it"
    with pytest.raises(ValueError, match=message):
        attention(q, k, v, variant=place.variant)
    message = "8-bit k and v must be left out of split_k_attention_partial on CUDA"
    with pytest.raises(ValueError, match=message):
        OPS.split_k_attention_partial(q, k, v)


@pytest.mark.parametrize("place", [place for place in PLACES_OF_FP8 if place in ON_CUDA])
def test_a_graph_replays_on_new_scales(interface: Any, place: Place) -> None:
    q, k, v = (t.to(place.device) for t in operands(torch.float8_e4m3fn))
    k_scale, v_scale = torch.ones(2, device=place.device), torch.ones((), device=place.device)
    options = {"k_scale": k_scale, "v_scale": v_scale, "variant": place.variant}
    attention(q, k, v, **options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention(q, k, v, **options)
    before = attention(q, k, v, **options)
    k_scale.copy_(torch.tensor([0.3, 1.7]))
    v_scale.fill_(0.05)
    graph.replay()
    assert torch.equal(out, attention(q, k, v, **options))
    assert not torch.equal(out, before)


@everywhere
@pytest.mark.parametrize("columns", [128, 72])
def test_an_entry_has_the_same_bits_alone_as_in_a_batch(
    interface: Any, place: Place, columns: int
) -> None:
    """Also if entries do not begin at multiples of 16 bytes: CUDA then copies all by element."""
    generator = torch.Generator().manual_seed(4)
    q = torch.randn(3, 4, 2, columns, generator=generator).bfloat16().to(place.device)
    size = 2 * 200 * columns
    stored = torch.randn(3, size + 8, generator=generator).to(torch.float8_e4m3fn).to(place.device)
    k = stored[:, :size].view(3, 2, 200, columns)
    options = {"num_splits": 3, "variant": place.variant}
    whole = attention(q, k, k, **options)
    for entry in range(3):
        one = slice(entry, entry + 1)
        assert torch.equal(attention(q[one], k[one], k[one], **options), whole[one])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", ["bhsd", "mixed", "expanded", "padded"])
@pytest.mark.parametrize("page_size", [None, 16])
def test_inputs_of_8_bits_stand_for_the_numbers_of_the_reference(
    harness: Any, dtype: torch.dtype, layout: str, page_size: int | None
) -> None:
    if page_size and layout == "expanded":
        pytest.skip("pages are not expanded")
    case = {"B": 2, "H": 4, "Hkv": 2, "Sq": 2, "Skv": 40, "D": 8, "kv_lengths": [40, 17],
            "kv_dtype": str(dtype).removeprefix("torch."), "kv_scale": "head", "layout": layout,
            "page_size": page_size}  # fmt: skip
    inputs = harness.make_inputs(case, device=torch.device("cpu"), seed=0)
    stored = "pages" if page_size else "fp8"
    for name in ("k", "v"):
        held, numbers = inputs[f"{name}_{stored}"], inputs[name]
        assert held.dtype == dtype and numbers.dtype == torch.float32
        wide = held.float() * inputs[f"{name}_scale"].view(-1, 1, 1)
        if page_size:
            table = inputs["block_table"]
            rows = [
                wide[table[b, :count].long()].transpose(0, 1).flatten(1, 2)
                for b, count in ((0, 3), (1, 2))
            ]
        else:
            rows = list(wide)
        for b, length in ((0, 40), (1, 17)):
            assert torch.equal(rows[b][:, :length], numbers[b, :, :length])
            if layout != "expanded":
                assert bool(rows[b][:, length:].isnan().all())
        # Not a type of 8 bits in name alone, nor only a few of its numbers.
        assert len(held.reshape(-1).view(torch.uint8).unique()) > 40
    assert math.isclose(float(inputs["k_scale"].log2().abs().max()), 3, abs_tol=3)


@pytest.mark.parametrize("dtype", TYPES)
def test_subnormal_numbers_count_where_denormals_are_flushed(
    interface: Any, dtype: torch.dtype
) -> None:
    codes = torch.arange(16, dtype=torch.uint8).view(dtype).view(1, 1, 1, 16)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the flag is of this thread
    try:
        assert torch.set_flush_denormal(True)
        out = attention(torch.zeros(1, 1, 1, 16).half(), torch.zeros(1, 1, 1, 16).to(dtype), codes)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
    assert torch.equal(out.float(), codes.float())


@pytest.mark.parametrize("name", ["k_scale", "v_scale"])
def test_a_gradient_of_a_scale_is_refused(interface: Any, name: str) -> None:
    scale = torch.ones((), requires_grad=True)
    with pytest.raises(NotImplementedError, match="has no gradient"):
        interface.split_k_attention(*operands(torch.float8_e5m2), **{name: scale})


@everywhere
@pytest.mark.parametrize("num_splits", [1, 8])
def test_an_infinite_scale_makes_no_nan_of_splits_without_keys(
    interface: Any, place: Place, num_splits: int
) -> None:
    q, k, _ = (t.to(place.device) for t in operands(torch.float8_e5m2, keys=3))
    v = torch.ones(2, 2, 3, 64, device=place.device).to(torch.float8_e5m2)
    scale = torch.tensor(math.inf, device=place.device)
    out = attention(q, k, v, v_scale=scale, num_splits=num_splits, variant=place.variant)
    assert bool((out == math.inf).all())
