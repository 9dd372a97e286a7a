"""The Python face of the Split-K attention operators.

Import it after the built library was loaded with ``torch.ops.load_library``: it tells torch what
the operators return without running them (for ``torch.compile`` and fake tensors) and offers
:func:`split_k_attention`, the function that users call.
"""

from collections.abc import Callable
from contextlib import nullcontext
from numbers import Real
from typing import Any, Literal, NoReturn, overload

import torch
from torch import SymFloat, SymInt, Tensor

__all__ = ["split_k_attention"]


# ---- what the operators return, without running them ----


def _fail(message: str) -> NoReturn:
    raise ValueError(f"split_k_attention: {message}")


# A call with any tensor on ``meta`` comes here too, real ones beside it.
def _check_devices(first: str, of: Tensor, **others: Tensor | None) -> None:
    for name, t in others.items():
        if t is not None and t.device != of.device:
            _fail(f"{name} must be on the device of {first} ({of.device}), got {t.device}")


def _check_traced(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None, kv_lengths: Tensor | None
) -> None:
    """What tracing can tell of the arguments."""
    _check_devices("q", q, k=k, v=v, kv_lengths=kv_lengths)
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.dim() != 4:
            _fail(f"{name} must have 4 dimensions, got {t.dim()}: {tuple(t.shape)}")
        if t.dtype != q.dtype:
            _fail(f"{name} must have the dtype of q ({q.dtype}), got {t.dtype}")
    shapes = f"got {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
    if k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        _fail(f"k and v must have one shape, and B and D of q, {shapes}")
    if q.shape[1] % k.shape[1] if k.shape[1] else q.shape[1]:
        _fail(f"the heads of q must be a multiple of the heads of k and v, {shapes}")
    if kv_lengths is not None and kv_lengths.shape != q.shape[:1]:
        _fail(f"kv_lengths must have shape (B,) = ({q.shape[0]},), got {tuple(kv_lengths.shape)}")
    if scale is not None and not -2.3e38 <= scale <= 2.3e38:
        _fail(f"scale must lie in [-2.3e38, 2.3e38], got {scale}")


def _fake_split_k_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    num_splits: int | None = None,
    kv_lengths: Tensor | None = None,
    variant: str | None = None,
) -> tuple[Tensor, Tensor]:
    _check_traced(q, k, v, scale, kv_lengths)
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake_split_k_attention_out(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    num_splits: int | None = None,
    kv_lengths: Tensor | None = None,
    variant: str | None = None,
    out: Tensor,
    lse: Tensor,
    workspace: Tensor,
) -> None:
    _check_traced(q, k, v, scale, kv_lengths)
    _check_devices("q", q, out=out, lse=lse, workspace=workspace)


def _fake_split_k_attention_partial(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    num_splits: int | None = None,
    kv_lengths: Tensor | None = None,
    variant: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    _check_traced(q, k, v, scale, kv_lengths)
    if num_splits is None:
        raise NotImplementedError(
            "split_k_attention_partial chooses the number of splits for a real device: give "
            "num_splits where it is traced"
        )
    rows = (num_splits, *q.shape[:3])
    o = q.new_empty((*rows, q.shape[3]), dtype=torch.float32)
    return o, q.new_empty(rows, dtype=torch.float32), q.new_empty(rows, dtype=torch.float32)


def _fake_split_k_attention_merge(
    o: Tensor,
    m: Tensor,
    l: Tensor,  # noqa: E741 (the schema's name)
    *,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    _check_devices("o", o, m=m, l=l)
    return o.new_empty(o.shape[1:], dtype=dtype), o.new_empty(o.shape[1:4])


def _fake_split_k_attention_plan(
    q: Tensor, k: Tensor, *, num_splits: int | None = None, variant: str | None = None
) -> tuple[int | SymInt, int | SymInt]:
    raise NotImplementedError(
        "split_k_attention_plan answers with the numbers of a real device and cannot be traced; "
        "call it outside torch.compile"
    )


def _fake_split_k_attention_variants(q: Tensor) -> str:
    raise NotImplementedError(
        "split_k_attention_variants answers for a real device and cannot be traced; call it "
        "outside torch.compile"
    )


for _fake in (
    _fake_split_k_attention,
    _fake_split_k_attention_out,
    _fake_split_k_attention_partial,
    _fake_split_k_attention_merge,
    _fake_split_k_attention_plan,
    _fake_split_k_attention_variants,
):
    _name = _fake.__name__.removeprefix("_fake_")
    torch.library.register_fake(f"kbtool::{_name}", _fake, allow_override=True)


# ---- gradients: refused, not silently dropped ----


def _refuse_gradient(*arguments: object) -> None:
    if torch.is_grad_enabled() and any(
        isinstance(argument, Tensor) and argument.requires_grad for argument in arguments
    ):
        raise NotImplementedError(
            "split_k_attention is for inference and has no gradient: call it under "
            "torch.no_grad() or torch.inference_mode(), or detach its tensors"
        )


def _without_gradient(operator: Any) -> Callable[..., Any]:
    """What autograd does for an operator that has no gradient."""

    def refuse_or_run(keys: Any, *arguments: Any, **options: Any) -> Any:
        _refuse_gradient(*arguments, *options.values())
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(
                keys & torch._C._after_autograd_keyset, *arguments, **options
            )

    return refuse_or_run


# Alive as long as its registrations are to hold.
_library = torch.library.Library("kbtool", "IMPL")
for _name in (
    "split_k_attention",
    "split_k_attention_out",
    "split_k_attention_partial",
    "split_k_attention_merge",
):
    _library.impl(
        _name,
        _without_gradient(getattr(torch.ops.kbtool, _name).default),
        "Autograd",
        with_keyset=True,
        allow_override=True,
    )


# ---- the function ----


def _check_types(
    q: object,
    k: object,
    v: object,
    scale: object,
    num_splits: object,
    kv_lengths: object,
    variant: object,
) -> None:
    for name, value in (("q", q), ("k", k), ("v", v), ("kv_lengths", kv_lengths)):
        if isinstance(value, Tensor):
            if value.layout != torch.strided:
                raise ValueError(
                    f"split_k_attention: {name} must be a dense tensor, got {value.layout}"
                )
        elif value is not None or name != "kv_lengths":
            raise TypeError(
                f"split_k_attention: {name} must be a tensor, got {type(value).__name__}"
            )
    if scale is not None and not isinstance(scale, (Real, SymFloat, SymInt)):
        raise TypeError(f"split_k_attention: scale must be a float, got {type(scale).__name__}")
    if num_splits is not None and not isinstance(num_splits, (int, SymInt)):
        raise TypeError(
            f"split_k_attention: num_splits must be an int, got {type(num_splits).__name__}"
        )
    if variant is not None and not isinstance(variant, str):
        raise TypeError(f"split_k_attention: variant must be a str, got {type(variant).__name__}")


@overload
def split_k_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    num_splits: int | None = ...,
    kv_lengths: Tensor | None = ...,
    variant: str | None = ...,
    return_lse: Literal[False] = ...,
) -> Tensor: ...


@overload
def split_k_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    num_splits: int | None = ...,
    kv_lengths: Tensor | None = ...,
    variant: str | None = ...,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def split_k_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    num_splits: int | None = None,
    kv_lengths: Tensor | None = None,
    variant: str | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Scaled dot-product attention whose key range is cut into splits that run in parallel.

    Each split yields the state of its keys (maximum logit, sum of exponentials, weighted values);
    the states are then merged in a fixed order, so results repeat to the last bit.

    Args:
        q: Queries, ``(B, H, Sq, D)``; float32, float16 or bfloat16. Any strides.
        k: Keys, ``(B, Hkv, Skv, D)``, dtype and device of ``q``. Any strides, expanded included.
            ``H`` is a multiple of ``Hkv``; query head ``h`` reads key head ``h // (H // Hkv)``.
        v: Values, the shape of ``k``. Any strides.
        causal: Align the causal mask bottom-right: query ``i`` sees keys
            ``j <= i + valid - Sq``, where ``valid`` is the number of valid keys of its batch entry
            (``Skv`` without ``kv_lengths``). With ``Sq == 1`` that is every valid key.
        scale: Factor on ``q . k``, in ``[-2.3e38, 2.3e38]``; ``1 / sqrt(D)`` by default.
        num_splits: Number of splits, 1 to 1024. By default a function of the shapes, on CUDA also
            of the card and of whether ``kv_lengths`` is given: there long entries of unlike
            lengths are cut by what all of the batch have. Give it where rows must not change with
            the batch they are in.
        kv_lengths: Valid keys of each batch entry, ``(B,)``, int32 or int64, each in ``[0, Skv]``:
            others are refused on the CPU and held to it on CUDA, where nobody waits for their
            values. What lies beyond is never read into a result and may hold anything, NaN
            included. On CUDA the number of splits is chosen for ``Skv``; long entries of unlike
            lengths are cut evenly, on the device.
        variant: The implementation to run, by its name in the ladder of versions: ``two_pass`` on
            the CPU; ``fa1``, ``two_pass``, ``fused`` on CUDA, and ``wgmma`` on a card of sm_90. By
            default the fastest for the shapes and the device.
        return_lse: Also return the log-sum-exp of the logits.

    Returns:
        The output, ``(B, H, Sq, D)``, contiguous, dtype of ``q``, accumulated in float32. With
        ``return_lse``, also the natural-log LSE, ``(B, H, Sq)``, float32. A row that sees no key
        (``Skv == 0``, length 0, or queries before the first key under ``causal``) has output 0 and
        LSE -inf. A NaN that a row sees makes both NaN; a logit of +inf makes its output NaN and
        its LSE +inf.

    Raises:
        NotImplementedError: If a gradient is asked for: the operator is for inference.
        TypeError: If an argument is not a tensor, ``scale`` no float, or ``num_splits`` no int.
        ValueError: If an argument has a wrong shape, dtype, device or value; the message names
            the argument, what it takes and what it got.
    """
    _check_types(q, k, v, scale, num_splits, kv_lengths, variant)
    _refuse_gradient(q, k, v)
    # Autograd's kernel would do no more than that, and takes as long as half a launch; a compiler
    # finds its own way past it.
    eager = not torch.compiler.is_compiling()
    below = torch._C._AutoDispatchBelowAutograd() if eager else nullcontext()
    with below:
        out, lse = torch.ops.kbtool.split_k_attention.default(
            q, k, v, causal=causal, scale=scale, num_splits=num_splits, kv_lengths=kv_lengths,
            variant=variant,
        )  # fmt: skip
    return (out, lse) if return_lse else out
