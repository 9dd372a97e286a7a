"""The operators as torch sees them: schemas, fake tensors, torch.compile, gradients, errors."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest
import torch
from attention_rule import Place, everywhere, on_cuda, same_bits, violation
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import kbtool.attention

Attention = Callable[..., Any]
Shape = tuple[int, ...]
OPS = torch.ops.kbtool


def operands(
    place: Place,
    q: Shape = (2, 4, 3, 16),
    k: Shape = (2, 2, 9, 16),
    v: Shape | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (q, k, k if v is None else v)
    q_, k_, v_ = (
        torch.randn(shape, device=place.device).to(dtype or place.dtype) for shape in shapes
    )
    return q_, k_, v_


def lengths(place: Place, *values: int) -> Tensor:
    return torch.tensor(values, device=place.device)


def options(place: Place) -> list[dict[str, Any]]:
    return [
        {"variant": place.variant},
        {"causal": True, "scale": 0.3, "variant": place.variant, "overlap": False},
        {"num_splits": 3, "kv_lengths": lengths(place, 4, 9), "variant": place.variant},
    ]


def of_two_pass(place: Place) -> None:
    if place.target == "cuda" and place.variant != "two_pass":
        pytest.skip(f"{place} has no partial pass of its own")


@everywhere
@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_operator_passes_opcheck(interface: Any, place: Place, which: int) -> None:
    for dtype in place.dtypes:
        torch.library.opcheck(
            OPS.split_k_attention.default, operands(place, dtype=dtype), options(place)[which]
        )


@everywhere
def test_the_out_variant_passes_opcheck(interface: Any, place: Place) -> None:
    q, k, v = operands(place)
    chosen = {"num_splits": 2, "variant": place.variant}
    _, numel = OPS.split_k_attention_plan(q, k, **chosen)
    buffers = {
        "out": torch.zeros_like(q),
        "lse": torch.zeros(q.shape[:3], device=place.device),
        "workspace": torch.zeros(numel, device=place.device),
    }
    for given in (chosen, chosen | {"overlap": False}):
        torch.library.opcheck(OPS.split_k_attention_out.default, (q, k, v), given | buffers)


@everywhere
def test_the_passes_pass_opcheck(interface: Any, place: Place) -> None:
    of_two_pass(place)
    q, k, v = operands(place)
    torch.library.opcheck(
        OPS.split_k_attention_partial.default, (q, k, v), {"num_splits": 3, "causal": True}
    )
    states = OPS.split_k_attention_partial(q, k, v, num_splits=3)
    torch.library.opcheck(OPS.split_k_attention_merge.default, states, {"dtype": place.dtype})


@everywhere
@pytest.mark.parametrize("num_splits", [1, 2, 7, 40])
def test_the_passes_one_after_the_other_are_the_operator(
    attention: Attention, place: Place, num_splits: int
) -> None:
    of_two_pass(place)
    for dtype in place.dtypes:
        q, k, v = operands(place, (2, 6, 5, 20), (2, 2, 90, 20), dtype=dtype)
        given = {"causal": True, "num_splits": num_splits, "kv_lengths": lengths(place, 0, 71)}
        o, m, sums = OPS.split_k_attention_partial(q, k, v, **given)
        assert o.shape == (num_splits, *q.shape) and o.dtype == torch.float32
        assert m.shape == sums.shape == o.shape[:4] and m.dtype == sums.dtype == torch.float32
        out, lse = OPS.split_k_attention_merge(o, m, sums, dtype=dtype)
        whole, whole_lse = attention(q, k, v, **given, return_lse=True)
        assert same_bits(out, whole) and same_bits(lse, whole_lse)


@everywhere
def test_a_partial_state_has_the_documented_maximum_and_sums(interface: Any, place: Place) -> None:
    # One split: m the largest logit, l and o the sums that attention_state.h states.
    of_two_pass(place)
    q, k, v = operands(place, (1, 2, 3, 8), (1, 2, 70, 8))
    o, m, sums = OPS.split_k_attention_partial(q, k, v, num_splits=1, scale=0.5)
    scores = q.double() @ k.double().mT * 0.5
    torch.testing.assert_close(m[0].double(), scores.amax(-1), rtol=1e-6, atol=1e-6)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    torch.testing.assert_close(sums[0].double(), weights.sum(-1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(o[0].double(), weights @ v.double(), rtol=1e-5, atol=1e-5)


@everywhere
@pytest.mark.parametrize("S", [1, 3, 8, 1000])
def test_merge_of_given_states(interface: Any, place: Place, S: int) -> None:
    of_two_pass(place)
    shape = (S, 2, 3, 4)
    m = torch.randn(shape, device=place.device) * 3
    sums = torch.rand(shape, device=place.device) + 0.5
    o = torch.randn((*shape, 20), device=place.device)
    m[:, 0, 0, 0], sums[:, 0, 0, 0], o[:, 0, 0, 0] = -torch.inf, 0, 0  # empty throughout
    m[: S // 2, 1], sums[: S // 2, 1], o[: S // 2, 1] = -torch.inf, 0, 0  # empty at first
    top = m.double().amax(0)
    weights = (m.double() - top.nan_to_num(neginf=0)).exp()
    total = (weights * sums.double()).sum(0)
    exact = (weights[..., None] * o.double()).sum(0) / total[..., None]
    exact_lse = top + total.log()
    for dtype in place.dtypes:
        out, lse = OPS.split_k_attention_merge(o, m, sums, dtype=dtype)
        assert out.dtype == dtype and out.is_contiguous()
        assert violation(out, exact.nan_to_num(nan=0), exact.nan_to_num(nan=0).to(dtype)) is None
        assert violation(lse, exact_lse, exact_lse.float()) is None


@everywhere
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_as_one_graph(
    attention: Attention, place: Place, backend: str, dynamic: bool
) -> None:
    torch.compiler.reset()

    def attend(q: Tensor, k: Tensor, v: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = attention(q, k, v, causal=True, kv_lengths=valid, return_lse=True)
        return out * 2, lse

    compiled = torch.compile(attend, fullgraph=True, backend=backend, dynamic=dynamic)
    for B, Sq, Skv in ((2, 3, 9), (3, 5, 17)):
        q, k, v = operands(place, (B, 4, Sq, 16), (B, 2, Skv, 16))
        valid = torch.randint(0, Skv + 1, (B,), device=place.device)
        for got, expected in zip(compiled(q, k, v, valid), attend(q, k, v, valid), strict=True):
            assert same_bits(got, expected)


@everywhere
def test_the_passes_compile_as_one_graph(interface: Any, place: Place) -> None:
    of_two_pass(place)
    torch.compiler.reset()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        o, m, sums = OPS.split_k_attention_partial(q, k, v, num_splits=4)
        return OPS.split_k_attention_merge(o, m, sums, dtype=q.dtype)

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    arguments = operands(place)
    for got, expected in zip(compiled(*arguments), attend(*arguments), strict=True):
        assert same_bits(got, expected)


@everywhere
def test_returns_the_output_alone_or_with_the_lse(attention: Attention, place: Place) -> None:
    q, k, v = operands(place, dtype=torch.float16)
    out = attention(q, k, v)
    again, lse = attention(q, k, v, return_lse=True)
    assert same_bits(out, again)
    assert out.shape == q.shape and out.dtype == torch.float16 and out.is_contiguous()
    assert lse.shape == q.shape[:3] and lse.dtype == torch.float32 and lse.is_contiguous()
    strided = attention(q.transpose(1, 2).contiguous().transpose(1, 2), k, v)
    assert strided.is_contiguous() and same_bits(strided, out)


@everywhere
def test_overlap_changes_no_bit(attention: Attention, place: Place) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor, overlap: bool | None) -> tuple[Tensor, Tensor]:
        out, lse = attention(q, k, v, num_splits=3, overlap=overlap, return_lse=True)
        return out, lse

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    for dtype in place.dtypes:
        torch.compiler.reset()  # it compiles a function eight times at most
        q, k, v = operands(place, dtype=dtype)
        expected = attention(q, k, v, num_splits=3, return_lse=True)
        chosen = {"num_splits": 3, "variant": place.variant}
        _, numel = OPS.split_k_attention_plan(q, k, **chosen)
        for overlap in (True, False, None):
            out, lse = torch.zeros_like(q), torch.zeros(q.shape[:3], device=place.device)
            OPS.split_k_attention_out(
                q, k, v, **chosen, overlap=overlap, out=out, lse=lse,
                workspace=torch.zeros(numel, device=place.device),
            )  # fmt: skip
            for made in (attend(q, k, v, overlap), compiled(q, k, v, overlap), (out, lse)):
                assert all(map(same_bits, made, expected))


# ---- gradients ----


@everywhere
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_gradient_is_refused(attention: Attention, place: Place, which: int) -> None:
    arguments = operands(place)
    arguments[which].requires_grad_()
    for call in (attention, OPS.split_k_attention, OPS.split_k_attention_partial):
        with pytest.raises(NotImplementedError, match=r"no gradient.*torch\.no_grad"):
            call(*arguments)
    with torch.no_grad():
        assert not attention(*arguments).requires_grad
    with torch.inference_mode():
        attention(*arguments)
        OPS.split_k_attention(*arguments)


@everywhere
def test_a_gradient_through_given_buffers_or_states_is_refused(
    interface: Any, place: Place
) -> None:
    of_two_pass(place)
    q, k, v = operands(place)
    buffers = {
        "out": torch.zeros_like(q).requires_grad_(),
        "lse": torch.zeros(q.shape[:3], device=place.device),
        "workspace": torch.zeros(0, device=place.device),
    }
    with pytest.raises(NotImplementedError, match="no gradient"):
        OPS.split_k_attention_out(q, k, v, num_splits=1, **buffers)
    o, m, sums = OPS.split_k_attention_partial(q, k, v, num_splits=2)
    with pytest.raises(NotImplementedError, match="no gradient"):
        OPS.split_k_attention_merge(o, m, sums.requires_grad_(), dtype=place.dtype)


@everywhere
def test_a_gradient_is_refused_when_compiled(attention: Attention, place: Place) -> None:
    torch.compiler.reset()
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    q, k, v = operands(place)
    with pytest.raises(Exception, match="no gradient"):
        compiled(q.requires_grad_(), k, v)


def tangent(call: Callable[[Tensor], Any], x: Tensor) -> Tensor | None:
    """What comes out of a call on ``x`` with a tangent."""
    with forward_ad.dual_level():
        out = call(forward_ad.make_dual(x, torch.ones_like(x)))
        return forward_ad.unpack_dual(out[0] if isinstance(out, tuple) else out).tangent


@everywhere
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_derivative_in_forward_mode_is_refused(
    attention: Attention, place: Place, which: int
) -> None:
    arguments = operands(place)
    x = arguments[which]

    def of(call: Attention) -> Callable[[Tensor], Any]:
        return lambda x: call(*arguments[:which], x, *arguments[which + 1 :])

    def jvp(call: Attention) -> Tensor:
        derivative: Tensor = torch.func.jvp(of(call), (x,), (torch.ones_like(x),))[1]
        return derivative

    for call in (attention, OPS.split_k_attention, OPS.split_k_attention_partial):
        for mode in (torch.enable_grad, torch.no_grad):  # which is for the other mode
            for ask in (jvp, lambda call: tangent(of(call), x)):
                with mode(), pytest.raises(NotImplementedError, match=r"no gradient.*forward mode"):
                    ask(call)
    with pytest.raises(NotImplementedError, match="no gradient"):
        torch.func.jacfwd(of(attention))(x)

    def mapped(x: Tensor) -> Tensor:
        out: Tensor = torch.func.vmap(of(attention))(x)
        return out

    with pytest.raises(NotImplementedError, match="no gradient"):
        torch.func.jvp(mapped, (x[None],), (torch.ones_like(x[None]),))


@everywhere
def test_a_derivative_in_forward_mode_of_states_is_refused(interface: Any, place: Place) -> None:
    of_two_pass(place)
    o, m, sums = OPS.split_k_attention_partial(*operands(place), num_splits=2)

    def merge(sums: Tensor) -> Any:
        return OPS.split_k_attention_merge(o, m, sums, dtype=place.dtype)

    with pytest.raises(NotImplementedError, match="no gradient"):
        tangent(merge, sums)


@everywhere
def test_derivatives_of_other_operands_are_right(attention: Attention, place: Place) -> None:
    q, k, v = operands(place)
    given = {"kv_lengths": lengths(place, 4, 9), "variant": place.variant}
    out = attention(q, k, v, **given)
    for scaled in (
        lambda x: attention(q, k, v, **given) * x,
        lambda x: attention(x.detach(), k, v, **given) * x,
        lambda x: OPS.split_k_attention(q, k, v, **given)[0] * x,
    ):
        derivative = tangent(scaled, q)
        assert derivative is not None and same_bits(derivative, out)


@everywhere
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_derivative_in_forward_mode_is_refused_when_compiled(
    attention: Attention, place: Place, backend: str
) -> None:
    q, k, v = operands(place)
    for call in (attention, OPS.split_k_attention.default):
        torch.compiler.reset()
        compiled = torch.compile(
            lambda x, call=call: call(x, k, v), fullgraph=True, backend=backend
        )
        compiled(q)  # what was compiled without tangents is not run with one
        with pytest.raises(Exception, match="no gradient"):
            tangent(compiled, q)
        torch.compiler.reset()
        compiled = torch.compile(
            lambda x, call=call: tangent(lambda x: call(x, k, v), x),
            fullgraph=True,
            backend=backend,
        )
        with pytest.raises(Exception, match="no gradient"):
            compiled(q)


def test_importing_the_interface_again_changes_nothing(
    attention: Attention, place: Place, interface: Any
) -> None:
    q, k, v = operands(place)
    before = attention(q, k, v)
    interface.__spec__.loader.exec_module(interface)
    assert same_bits(interface.split_k_attention(q, k, v), before)
    torch.library.opcheck(OPS.split_k_attention.default, (q, k, v))
    with pytest.raises(NotImplementedError, match="no gradient"):
        OPS.split_k_attention(q.requires_grad_(), k, v)


# ---- errors: which argument, what it takes, what it got ----

FLOATS = {"cpu": "Float, Half or BFloat16", "cuda": "Half or BFloat16 on CUDA"}
BAD_SHAPES: list[tuple[dict[str, Shape], str]] = [
    ({"q": (4, 3, 16)}, r"q must have 4 dimensions \(B, H, Sq, D\), got 3: \(4, 3, 16\)"),
    ({"k": (2, 9, 16)}, r"k must have 4 dimensions \(B, Hkv, Skv, D\), got 3"),
    ({"v": (2, 2, 9, 16, 1)}, r"v must have 4 dimensions .*, got 5"),
    ({"q": (2, 4, 3, 0), "k": (2, 2, 9, 0)}, r"q must have D of at least 1, got .*3, 0\)"),
    ({"k": (3, 2, 9, 16)}, r"k must have B=2 \(as q\), got 3"),
    ({"k": (2, 2, 9, 8)}, r"k must have D=16 \(as q\), got 8"),
    ({"v": (3, 2, 9, 16)}, r"v must have B=2 \(as q\), got 3"),
    ({"v": (2, 1, 9, 16)}, r"v must have Hkv=2 \(as k\), got 1"),
    ({"v": (2, 2, 8, 16)}, r"v must have Skv=9 \(as k\), got 8"),
    ({"v": (2, 2, 9, 0)}, r"v must have Dv of at least 1, got shape \(2, 2, 9, 0\)"),
    ({"k": (2, 3, 9, 16)}, "must be a multiple .* got H=4 and Hkv=3"),
    ({"k": (2, 0, 9, 16)}, "must be a multiple .* got H=4 and Hkv=0"),
]
BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"num_splits": 0}, r"num_splits must lie in \[1, 1024\], got 0"),
    ({"num_splits": 1025}, r"num_splits must lie in \[1, 1024\], got 1025"),
    ({"kv_lengths": [1]}, r"kv_lengths must have shape \(B,\) = \(2,\), got \(1\)"),
    ({"kv_lengths": [[1, 2]]}, r"kv_lengths must have shape .*\(1, 2\)"),
    ({"kv_lengths": [1.0, 2.0]}, "kv_lengths must be Int or Long, got Float"),
]


# Where a call is traced, for torch.compile or on meta, it must not be taken if it is refused later.
def traced(arguments: Sequence[Tensor]) -> list[Tensor]:
    """The same on the same device, without memory."""
    with FakeTensorMode() as mode:
        return [mode.from_tensor(argument) for argument in arguments]


@everywhere
@pytest.mark.parametrize(("shapes", "message"), BAD_SHAPES)
def test_a_wrong_shape_is_refused(
    attention: Attention, place: Place, shapes: dict[str, Shape], message: str
) -> None:
    arguments = operands(place, **shapes)
    for call in (attention, OPS.split_k_attention_partial):
        with pytest.raises(ValueError, match=message):
            call(*arguments)
    with pytest.raises(ValueError, match=r"split_k_attention: .* must .*, got"):
        attention(*traced(arguments))


@everywhere
@pytest.mark.parametrize(("given", "message"), BAD_OPTIONS)
def test_a_wrong_option_is_refused(
    attention: Attention, place: Place, given: dict[str, Any], message: str
) -> None:
    if "kv_lengths" in given:
        given = {"kv_lengths": torch.tensor(given["kv_lengths"], device=place.device)}
    arguments = operands(place)
    for call in (attention, OPS.split_k_attention):
        with pytest.raises(ValueError, match=message):
            call(*arguments, **given)
    [name] = given
    if name == "kv_lengths":
        *arguments, given[name] = traced([*arguments, given[name]])
    else:
        arguments = traced(arguments)
    with pytest.raises(ValueError, match=f"split_k_attention: {name} must .*, got"):
        OPS.split_k_attention(*arguments, **given)


@everywhere
def test_a_wrong_dtype_is_refused(attention: Attention, place: Place) -> None:
    for dtype in {torch.float64, torch.float32, torch.int32} - set(place.dtypes):
        arguments = operands(place, dtype=dtype)
        with pytest.raises(ValueError, match=f"q must be {FLOATS[place.target]}, got"):
            attention(*arguments)
        with pytest.raises(ValueError, match=f"q must be one of .*, got {dtype}"):
            attention(*traced(arguments))
    with pytest.raises(ValueError, match=r"q must be one of .*, got torch.float64"):
        attention(*(t.to("meta") for t in operands(place, dtype=torch.float64)))
    q, k, v = operands(place, dtype=torch.float16)
    fp8 = ", Float8_e4m3fn or Float8_e5m2"
    with pytest.raises(ValueError, match=rf"k must have the dtype of q \(Half\){fp8}, got Float$"):
        attention(q, k.float(), v)
    with pytest.raises(ValueError, match=r"v must have the dtype of k \(Half\), got BFloat16"):
        attention(q, k, v.bfloat16())


@everywhere
def test_the_largest_number_of_splits_is_accepted(attention: Attention, place: Place) -> None:
    arguments = operands(place)
    for call in (attention, OPS.split_k_attention):
        for given in (arguments, traced(arguments)):
            call(*given, num_splits=1024)


def test_both_functions_have_the_signature_of_the_operator(interface: Any) -> None:
    public, own = (
        inspect.signature(module.split_k_attention, eval_str=True).parameters.values()
        for module in (kbtool.attention, interface)
    )
    assert list(public) == list(own)
    *operator, return_lse = public
    assert [(p.name, p.default, p.kind is p.KEYWORD_ONLY) for p in operator] == [
        (a.name, a.default_value if a.has_default_value() else p.empty, a.kwarg_only)
        for a, p in zip(OPS.split_k_attention.default._schema.arguments, operator, strict=True)
    ]
    assert (return_lse.name, return_lse.default) == ("return_lse", False)


@everywhere
@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"causal": "False"}, TypeError, "causal must be a bool, got str 'False'"),
        ({"causal": None}, TypeError, "causal must be a bool, got NoneType None"),
        ({"causal": 2}, TypeError, "causal must be a bool, got int 2"),
        ({"overlap": "no"}, TypeError, "overlap must be a bool or None, got str 'no'"),
        ({"overlap": 1}, TypeError, "overlap must be a bool or None, got int 1"),
        ({"return_lse": "no"}, TypeError, "return_lse must be a bool, got str 'no'"),
        ({"num_splits": True}, TypeError, "num_splits must be an int, got bool True"),
        ({"num_splits": 2.0}, TypeError, "num_splits must be an int, got float 2.0"),
        ({"num_splits": "2"}, TypeError, "num_splits must be an int, got str '2'"),
        ({"num_splits": 2**70}, ValueError, r"num_splits .* \[1, 1024\], got an int of 71 bits"),
        ({"num_splits": -(2**63)}, ValueError, r"num_splits .*, got -9223372036854775808"),
        ({"num_splits": 10**5000}, ValueError, "num_splits must .*, got an int of 16610 bits"),
        ({"scale": True}, TypeError, "scale must be a float, got bool True"),
        ({"scale": "1"}, TypeError, "scale must be a float, got str '1'"),
        ({"scale": 1j}, TypeError, "scale must be a float, got complex 1j"),
        ({"scale": 2**2000}, ValueError, "scale must lie in .*, got an int of 2001 bits"),
        ({"variant": 2}, TypeError, "variant must be a str, got int 2"),
    ],
)
def test_arguments_of_a_wrong_type_or_beyond_64_bits_are_refused_in_one_line(
    interface: Any, place: Place, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        interface.split_k_attention(*operands(place), **given)
    assert "\n" not in str(raised.value)


@everywhere
def test_numpy_numbers_and_fractions_are_accepted(attention: Attention, place: Place) -> None:
    np = pytest.importorskip("numpy")
    q, k, v = operands(place)
    expected = attention(q, k, v, num_splits=2, scale=0.5)
    for num_splits, scale in ((np.int64(2), np.float32(0.5)), (np.uint8(2), Fraction(1, 2))):
        assert same_bits(attention(q, k, v, num_splits=num_splits, scale=scale), expected)


@everywhere
def test_a_symbolic_number_of_splits_compiles(attention: Attention, place: Place) -> None:
    torch.compiler.reset()
    compiled = torch.compile(
        lambda q, k, v, n: attention(q, k, v, num_splits=n),
        fullgraph=True,
        dynamic=True,
        backend="aot_eager",
    )
    arguments = operands(place)
    for n in (2, 3, 5):
        assert same_bits(compiled(*arguments, n), attention(*arguments, num_splits=n))


@everywhere
def test_a_variant_that_the_device_does_not_have_is_refused(
    interface: Any, harness: Any, place: Place
) -> None:
    q, k, v = operands(place)
    offered = re.escape(",".join(harness.variants(place.device)))
    for name in ("", "fused2", "Two_pass", "cpu"):
        compiled = torch.compile(interface.split_k_attention, backend="aot_eager")
        for call in (interface.split_k_attention, OPS.split_k_attention, compiled):
            with pytest.raises(
                ValueError, match=rf"variant must be one of {offered} on .*'{name}'"
            ):
                call(q, k, v, variant=name)


@on_cuda
def test_only_two_pass_has_a_partial_pass(interface: Any, place: Place) -> None:
    if place.variant in {None, "two_pass"}:
        return
    with pytest.raises(ValueError, match=f"variant must be two_pass.*'{place.variant}'"):
        OPS.split_k_attention_partial(*operands(place), variant=place.variant)


def test_lengths_outside_the_buffer_are_refused_on_the_cpu(
    attention: Attention, place: Place
) -> None:
    q, k, v = operands(place)
    with pytest.raises(
        ValueError, match=r"kv_lengths must lie in \[0, Skv\] = \[0, 9\], got 10 at 1"
    ):
        attention(q, k, v, kv_lengths=lengths(place, 1, 10))
    with pytest.raises(ValueError, match=r"kv_lengths must .* got -1 at 0"):
        attention(q, k, v, kv_lengths=lengths(place, -1, 9))


@on_cuda
def test_lengths_outside_the_buffer_are_clamped_on_a_card(
    attention: Attention, place: Place
) -> None:
    # A kernel cannot raise an error, and must not read beyond the buffer.
    q, k, v = operands(place)
    held = attention(q, k, v, kv_lengths=lengths(place, 0, 9))
    assert same_bits(attention(q, k, v, kv_lengths=lengths(place, -5, 10**9)), held)


@on_cuda
def test_a_mix_of_devices_is_refused(attention: Attention, place: Place) -> None:
    q, k, v = operands(place)
    with pytest.raises(ValueError, match=r"k must be on the device of q \(cuda:0\), got cpu"):
        attention(q, k.cpu(), v)
    with pytest.raises(ValueError, match=r"k must be on the device of q \(cpu\), got cuda:0"):
        attention(q.cpu(), k, v)
    with pytest.raises(ValueError, match=r"kv_lengths must be on the device of q \(cuda:0\)"):
        attention(q, k, v, kv_lengths=torch.tensor([1, 2]))


@everywhere
def test_a_tensor_on_meta_beside_real_ones_is_refused(attention: Attention, place: Place) -> None:
    q, k, v = operands(place)
    lengths = torch.tensor([1, 2], device="meta")
    for name, call in {
        "k": lambda: attention(q, k.to("meta"), v),
        "v": lambda: attention(q, k, v.to("meta")),
        "kv_lengths": lambda: attention(q, k, v, kv_lengths=lengths),
    }.items():
        with pytest.raises(ValueError, match=f"{name} must be on the device of q .*, got meta"):
            call()
    with pytest.raises(ValueError, match=r"k must be on the device of q \(meta\), got"):
        attention(q.to("meta"), k, v)
    given = {"out": q.clone(), "lse": q.new_empty(q.shape[:3]), "workspace": q.new_empty(1)}
    for name, t in given.items():
        with pytest.raises(ValueError, match=f"{name} must be on the device of q .*, got meta"):
            OPS.split_k_attention_out(q, k, v, **{**given, name: t.to("meta")})
    states = {"o": q.new_empty(2, *q.shape), "m": q.new_empty(2, *q.shape[:3])}
    states["l"] = states["m"].clone()
    for name in ("m", "l"):
        with pytest.raises(ValueError, match=f"{name} must be on the device of o .*, got meta"):
            OPS.split_k_attention_merge(
                **{**states, name: states[name].to("meta")}, dtype=torch.float16
            )


def test_wrong_shapes_are_refused_where_they_are_traced(attention: Attention) -> None:
    q, k = torch.empty(2, 4, 3, 8, device="meta"), torch.empty(2, 2, 9, 8, device="meta")
    assert attention(q, k, k).shape == q.shape
    fit = "k must have B and D of q, and v the shape of k but for its last dimension"
    for keys, values in ((k, k[:, :1]), (k[..., :4], k[..., :4]), (k[:1], k[:1])):
        with pytest.raises(ValueError, match=fit):
            attention(q, keys, values)
    three = q[:, :3]
    with pytest.raises(ValueError, match="the heads of q must be a multiple of the heads of k"):
        attention(three, k, k)
    with pytest.raises(ValueError, match=r"k must have the dtype of q \(torch.float32\), got"):
        attention(q, k.half(), k)
    for lengths in (torch.empty(3, device="meta"), torch.empty(2, 1, device="meta")):
        with pytest.raises(ValueError, match=r"kv_lengths must have shape \(B,\) = \(2,\), got"):
            attention(q, k, k, kv_lengths=lengths.int())
    with pytest.raises(ValueError, match="v must have 4 dimensions, got 3"):
        attention(q, k, k[0])


@everywhere
def test_a_scale_that_float32_does_not_hold_is_refused(attention: Attention, place: Place) -> None:
    q, k, v = operands(place)
    mean = attention(q * 0, k, v)  # logits of 0, whatever they are multiplied by
    assert same_bits(attention(q * 0, k, v, scale=2.3e38), mean)
    for scale in (2.4e38, -2.4e38, 1e39, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"scale must lie in .*, got"):
            attention(*operands(place), scale=scale)
        with pytest.raises(ValueError, match=r"scale must lie in .*, got"):
            OPS.split_k_attention_partial(*operands(place), num_splits=1, scale=scale)
        with pytest.raises(ValueError, match=r"scale must lie in .*, got"):
            attention(q.to("meta"), k.to("meta"), v.to("meta"), scale=scale)


@on_cuda
def test_sizes_beyond_a_grid_are_refused(attention: Attention, place: Place) -> None:
    if place.variant not in {"fused", "wgmma"}:
        pytest.skip("the other variants count their blocks otherwise")
    one = torch.zeros(1, 1, 1, 1, dtype=torch.float16, device=place.device)
    keys, queries = 2**35, 2**31
    with pytest.raises(ValueError, match=rf"k must have Skv of at most {keys - 1} .*, got {keys}"):
        attention(one, *[one.expand(1, 1, keys, 1)] * 2, variant=place.variant)
    with pytest.raises(ValueError, match=rf"H / Hkv \* Sq of at most {queries - 1} .* {queries}"):
        attention(one.expand(1, 1, queries, 1), one, one, variant=place.variant)
    with pytest.raises(ValueError, match=f"q must have fewer heads .* got {queries} tiles"):
        attention(*[one.expand(1, queries, 1, 1)] * 3, variant=place.variant)


@on_cuda
def test_a_head_dimension_that_a_card_does_not_take_is_refused(
    attention: Attention, place: Place
) -> None:
    wide = operands(place, (2, 4, 3, 257), (2, 2, 9, 257))
    for arguments in (wide, traced(wide)):
        with pytest.raises(ValueError, match=r"q must have D in \[1, 256\] on CUDA, got .*257\)"):
            attention(*arguments)


@everywhere
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("out", lambda t: t[..., :8], r"out must have shape \(2, 4, 3, 16\), got \(2, 4, 3, 8\)"),
        ("out", lambda t: t.double(), r"out must be \w+, got Double"),
        ("lse", lambda t: t[..., 0], r"lse must have shape \(2, 4, 3\), got \(2, 4\)"),
        ("lse", lambda t: t.double(), "lse must be Float, got Double"),
        ("workspace", lambda t: t.repeat(2)[::2], "workspace must be a contiguous"),
        ("workspace", lambda t: t.double(), "workspace must be a contiguous Float.*got Double"),
    ],
)
def test_a_wrong_buffer_is_refused(
    interface: Any, place: Place, name: str, change: Callable[[Tensor], Tensor], message: str
) -> None:
    q, k, v = operands(place)
    buffers = {
        "out": torch.zeros_like(q),
        "lse": torch.zeros(q.shape[:3], device=place.device),
        "workspace": torch.zeros(4096, device=place.device),
    }
    buffers[name] = change(buffers[name])
    given = {"num_splits": 2, "variant": place.variant}
    with pytest.raises(ValueError, match=message):
        OPS.split_k_attention_out(q, k, v, **given, **buffers)
    tensors = traced([q, k, v, *buffers.values()])
    with pytest.raises(ValueError, match=f"split_k_attention: {name} must .*, got"):
        OPS.split_k_attention_out(
            *tensors[:3], **given, **dict(zip(buffers, tensors[3:], strict=True))
        )


@on_cuda
def test_an_unaligned_workspace_is_refused(interface: Any, place: Place) -> None:
    q, k, v = operands(place, k=(2, 2, 900, 16))
    given = {"num_splits": 18, "variant": place.variant}
    _, numel = OPS.split_k_attention_plan(q, k, **given)
    if numel == 0:
        pytest.skip(f"{place} needs no workspace")
    buffers = {
        "out": torch.zeros_like(q),
        "lse": torch.zeros(q.shape[:3], device=place.device),
        "workspace": torch.zeros(numel + 1, device=place.device)[1:],
    }
    with pytest.raises(ValueError, match="workspace must start at a multiple of 16 bytes"):
        OPS.split_k_attention_out(q, k, v, **given, **buffers)


STATES = {"o": (3, 2, 4, 5, 16), "m": (3, 2, 4, 5), "l": (3, 2, 4, 5)}


@everywhere
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"o": (3, 2, 4, 5)}, r"o must have 5 dimensions \(S, B, H, Sq, D\), got 4"),
        ({"m": (2, 2, 4, 5)}, r"m must have .*shape .*\(3, 2, 4, 5\), got \(2, 2, 4, 5\)"),
        ({"l": (3, 2, 4)}, r"l must have .*shape .*\(3, 2, 4, 5\), got \(3, 2, 4\)"),
        (
            {"o": (0, 2, 4, 5, 16), "m": (0, 2, 4, 5), "l": (0, 2, 4, 5)},
            r"o must have S in \[1, 1024",
        ),
        ({"o": (3, 2, 4, 5, 0)}, "o must have D of at least 1"),
    ],
)
def test_wrong_states_are_refused(
    interface: Any, place: Place, change: dict[str, Shape], message: str
) -> None:
    of_two_pass(place)
    states = [torch.zeros(shape, device=place.device) for shape in (STATES | change).values()]
    for arguments in (states, traced(states)):
        with pytest.raises(ValueError, match=message):
            OPS.split_k_attention_merge(*arguments, dtype=place.dtype)


@everywhere
def test_states_of_a_wrong_kind_are_refused(interface: Any, place: Place) -> None:
    of_two_pass(place)
    o, m, sums = (torch.zeros(shape, device=place.device) for shape in STATES.values())
    for states, dtype, message, in_words in (
        ((o.half(), m, sums), place.dtype, "o must be Float, got Half", "o must be torch.float32"),
        (
            (o, m.transpose(2, 3).contiguous().mT, sums),
            place.dtype,
            "m must be contiguous",
            "m must be contiguous",
        ),
        (
            (o, m, sums),
            torch.float64,
            f"dtype must be {FLOATS[place.target]}, got Double",
            "dtype must be one of .*, got torch.float64",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            OPS.split_k_attention_merge(*states, dtype=dtype)
        with pytest.raises(ValueError, match=in_words):
            OPS.split_k_attention_merge(*traced(states), dtype=dtype)
