"""The operator as torch sees it: schema, fake tensors, torch.compile, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_rule import same_bits
from torch import Tensor

Attention = Callable[..., Any]


def operands(
    q: tuple[int, ...] = (2, 4, 3, 16),
    k: tuple[int, ...] = (2, 2, 9, 16),
    v: tuple[int, ...] | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(q, dtype=dtype),
        torch.randn(k, dtype=dtype),
        torch.randn(k if v is None else v, dtype=dtype),
    )


OPTIONS: list[dict[str, Any]] = [
    {},
    {"causal": True, "scale": 0.3},
    {"num_splits": 3, "kv_lengths": torch.tensor([4, 9])},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck(attention: Attention, dtype: torch.dtype, options: dict[str, Any]) -> None:
    torch.library.opcheck(
        torch.ops.kbtool.split_k_attention.default, operands(dtype=dtype), options
    )


def test_opcheck_of_the_out_variant(attention: Attention) -> None:
    q, k, v = operands()
    _, numel = torch.ops.kbtool.split_k_attention_plan(q, k, num_splits=2)
    buffers = {
        "out": torch.zeros_like(q),
        "lse": torch.zeros(q.shape[:3]),
        "workspace": torch.zeros(numel),
    }
    torch.library.opcheck(
        torch.ops.kbtool.split_k_attention_out.default, (q, k, v), {"num_splits": 2} | buffers
    )


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_as_one_graph(attention: Attention, backend: str, dynamic: bool) -> None:
    torch.compiler.reset()
    frames = 0

    def attend(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal frames
        frames += torch.compiler.is_compiling()
        out, lse = attention(q, k, v, causal=True, kv_lengths=lengths, return_lse=True)
        return out * 2, lse

    compiled = torch.compile(attend, fullgraph=True, backend=backend, dynamic=dynamic)
    for B, Sq, Skv in ((2, 3, 9), (3, 5, 17)):
        q, k, v = operands((B, 4, Sq, 16), (B, 2, Skv, 16))
        lengths = torch.randint(0, Skv + 1, (B,))
        for got, expected in zip(compiled(q, k, v, lengths), attend(q, k, v, lengths), strict=True):
            assert same_bits(got, expected)


def test_returns_the_output_alone_or_with_the_lse(attention: Attention) -> None:
    q, k, v = operands(dtype=torch.float16)
    out = attention(q, k, v)
    again, lse = attention(q, k, v, return_lse=True)
    assert same_bits(out, again)
    assert out.shape == q.shape and out.dtype == torch.float16 and out.is_contiguous()
    assert lse.shape == q.shape[:3] and lse.dtype == torch.float32 and lse.is_contiguous()
    strided = attention(q.transpose(1, 2).contiguous().transpose(1, 2), k, v)
    assert strided.is_contiguous() and same_bits(strided, out)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_gradient_is_refused(attention: Attention, which: int) -> None:
    arguments = operands()
    arguments[which].requires_grad_()
    with pytest.raises(NotImplementedError, match=r"no gradient.*torch\.no_grad"):
        attention(*arguments)
    with torch.no_grad():
        assert not attention(*arguments).requires_grad
    with torch.inference_mode():
        attention(*arguments)


def test_a_gradient_is_refused_when_compiled(attention: Attention) -> None:
    torch.compiler.reset()
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    q, k, v = operands()
    with pytest.raises(Exception, match="no gradient"):
        compiled(q.requires_grad_(), k, v)


def test_importing_the_interface_again_changes_nothing(
    attention: Attention, interface: Any
) -> None:
    q, k, v = operands()
    before = attention(q, k, v)
    interface.__spec__.loader.exec_module(interface)
    assert same_bits(interface.split_k_attention(q, k, v), before)
    torch.library.opcheck(torch.ops.kbtool.split_k_attention.default, (q, k, v))


BAD_ARGUMENTS: list[tuple[tuple[Tensor, ...], dict[str, Any], str]] = [
    (operands(q=(4, 3, 16)), {}, r"q must have 4 dimensions \(B, H, Sq, D\), got 3: \(4, 3, 16\)"),
    (operands(k=(2, 9, 16)), {}, r"k must have 4 dimensions \(B, Hkv, Skv, D\), got 3"),
    (operands(v=(2, 2, 9, 16, 1)), {}, r"v must have 4 dimensions .*, got 5"),
    (operands(dtype=torch.float64), {}, "q must be Float, Half or BFloat16, got Double"),
    (operands(q=(2, 4, 3, 0), k=(2, 2, 9, 0)), {}, r"q must have D of at least 1, got .*3, 0\)"),
    (operands(k=(3, 2, 9, 16)), {}, r"k must have B=2 \(as q\), got 3"),
    (operands(k=(2, 2, 9, 8)), {}, r"k must have D=16 \(as q\), got 8"),
    (operands(v=(3, 2, 9, 16)), {}, r"v must have B=2 \(as q\), got 3"),
    (operands(v=(2, 1, 9, 16)), {}, r"v must have Hkv=2 \(as k\), got 1"),
    (operands(v=(2, 2, 8, 16)), {}, r"v must have Skv=9 \(as k\), got 8"),
    (operands(v=(2, 2, 9, 8)), {}, r"v must have D=16 \(as q\), got 8"),
    (operands(k=(2, 3, 9, 16)), {}, "must be a multiple .* got H=4 and Hkv=3"),
    (operands(k=(2, 0, 9, 16)), {}, "must be a multiple .* got H=4 and Hkv=0"),
    (operands(), {"num_splits": 0}, r"num_splits must lie in \[1, 1024\], got 0"),
    (operands(), {"num_splits": 1025}, r"num_splits must lie in \[1, 1024\], got 1025"),
    (
        operands(),
        {"kv_lengths": torch.tensor([1, 10])},
        r"kv_lengths must lie in \[0, Skv\] = \[0, 9\], got 10 at 1",
    ),
    (operands(), {"kv_lengths": torch.tensor([-1, 9])}, r"kv_lengths must .* got -1 at 0"),
    (
        operands(),
        {"kv_lengths": torch.tensor([1])},
        r"kv_lengths must have shape \(B,\) = \(2,\), got \(1\)",
    ),
    (operands(), {"kv_lengths": torch.tensor([[1, 2]])}, r"kv_lengths must have shape .*\(1, 2\)"),
    (
        operands(),
        {"kv_lengths": torch.tensor([1.0, 2.0])},
        "kv_lengths must be Int or Long, got Float",
    ),
]


@pytest.mark.parametrize(("arguments", "options", "message"), BAD_ARGUMENTS)
def test_an_error_names_the_argument_what_it_takes_and_what_it_got(
    attention: Attention, arguments: tuple[Tensor, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        attention(*arguments, **options)


def test_mixed_dtypes_are_refused(attention: Attention) -> None:
    q, k, v = operands()
    with pytest.raises(ValueError, match=r"k must have the dtype of q \(Float\), got Half"):
        attention(q, k.half(), v)
    with pytest.raises(ValueError, match=r"v must have the dtype of q \(Float\), got BFloat16"):
        attention(q, k, v.bfloat16())


@pytest.mark.parametrize(
    ("name", "buffer", "message"),
    [
        (
            "out",
            torch.zeros(2, 4, 3, 8),
            r"out must have shape \(2, 4, 3, 16\), got \(2, 4, 3, 8\)",
        ),
        ("out", torch.zeros(2, 4, 3, 16).half(), "out must be Float, got Half"),
        ("lse", torch.zeros(2, 4), r"lse must have shape \(2, 4, 3\), got \(2, 4\)"),
        ("lse", torch.zeros(2, 4, 3).double(), "lse must be Float, got Double"),
        ("workspace", torch.zeros(10), r"workspace must be .* at least 864 elements.*\(10\)"),
        ("workspace", torch.zeros(2000)[::2], "workspace must be a contiguous"),
    ],
)
def test_a_wrong_buffer_is_refused(
    attention: Attention, name: str, buffer: Tensor, message: str
) -> None:
    q, k, v = operands()
    buffers = {
        "out": torch.zeros_like(q),
        "lse": torch.zeros(q.shape[:3]),
        "workspace": torch.zeros(864),
    }
    with pytest.raises(ValueError, match=message):
        torch.ops.kbtool.split_k_attention_out(q, k, v, num_splits=2, **buffers | {name: buffer})
