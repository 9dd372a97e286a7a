"""The Python interface of the Split-K attention operators.

Import it after the built library was loaded with ``torch.ops.load_library``: it tells torch what
the operators return without running them (for ``torch.compile`` and fake tensors) and offers
:func:`split_k_attention` and :func:`merge`, the functions that users call.
"""

import reprlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from numbers import Integral, Real
from typing import Any, NoReturn

import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch.autograd import forward_ad

__all__ = ["merge", "split_k_attention"]


# ---- the library's argument checks, for tracing, where the library does not run ----

MAX_NUM_SPLITS = 1024
_MAX_SCALE = 2.3e38
_MIN_SOFTCAP = 1e-37
_PAGE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_16_BITS = (torch.float16, torch.bfloat16)
_DTYPES = (torch.float32, *_16_BITS)
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
"""Of keys and values beside queries of 16 bits."""
_MAX_HEAD_DIM_ON_CUDA = 256
_PARTS_OF_ONE_KERNEL = 8
"""Of a merge on CUDA, at most."""
_MAX_QUERIES = 2**31 - 1
"""Of an entry of packed queries."""


def _fail(message: str) -> NoReturn:
    raise ValueError(f"split_k_attention: {message}")


def _check_numbers(
    scale: Any, num_splits: Any, window: Any, softcap: Any, max_seqlen_q: Any
) -> None:
    if scale is not None and not -_MAX_SCALE <= scale <= _MAX_SCALE:
        _fail(f"scale must lie in [-2.3e38, 2.3e38], got {_shown(scale)}")
    if num_splits is not None and not 1 <= num_splits <= MAX_NUM_SPLITS:
        _fail(f"num_splits must lie in [1, {MAX_NUM_SPLITS}], got {_shown(num_splits)}")
    if window is not None and not 1 <= window < 2**63:
        _fail(f"window must be at least 1 and fit 64 bits, got {_shown(window)}")
    if softcap is not None and not _MIN_SOFTCAP <= softcap <= _MAX_SCALE:
        _fail(f"softcap must lie in [1e-37, 2.3e38], got {_shown(softcap)}; None is no softcap")
    if max_seqlen_q is not None and not 0 <= max_seqlen_q <= _MAX_QUERIES:
        _fail(f"max_seqlen_q must lie in [0, {_MAX_QUERIES}], got {_shown(max_seqlen_q)}")


def _shown(number: Any) -> str:
    # Python refuses to print an int with too many digits.
    if isinstance(number, int) and number.bit_length() > 64:
        return f"an int of {number.bit_length()} bits"
    return str(number)


# A call that mixes ``meta`` and real tensors comes here too.
def _check_devices(first: str, of: Tensor, **others: Tensor | None) -> None:
    for name, t in others.items():
        if t is not None and t.device != of.device:
            _fail(f"{name} must be on the device of {first} ({of.device}), got {t.device}")


def _check_dtype(name: str, dtype: torch.dtype, device: torch.device) -> None:
    allowed = _16_BITS if device.type == "cuda" else _DTYPES
    if dtype not in allowed:
        _fail(f"{name} must be one of {', '.join(map(str, allowed))} on {device}, got {dtype}")


def _check_shape(name: str, t: Tensor, dtype: torch.dtype, shape: Sequence[int | SymInt]) -> None:
    if t.dtype != dtype:
        _fail(f"{name} must be {dtype}, got {t.dtype}")
    if t.shape != tuple(shape):
        _fail(f"{name} must have shape {tuple(shape)}, got {tuple(t.shape)}")


def _check_traced(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    num_splits: int | None = None,
    kv_lengths: Tensor | None = None,
    block_table: Tensor | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    max_seqlen_q: int | None = None,
    tree_mask: Tensor | None = None,
    **others: str | bool | None,
) -> None:
    """Check everything that is known about the arguments while tracing.

    ``variant`` is checked when the call runs: which there are depends on the card. ``overlap``
    takes every value that the schema lets through.
    """
    _check_devices(
        "q", q, k=k, v=v, kv_lengths=kv_lengths, block_table=block_table, sinks=sinks,
        cu_seqlens_q=cu_seqlens_q, tree_mask=tree_mask,
    )  # fmt: skip
    B = _entries_of(q, cu_seqlens_q, max_seqlen_q)
    _check_operands(q, k, v, B, paged=block_table is not None)
    _check_kv_scale("k_scale", k_scale, k)
    _check_kv_scale("v_scale", v_scale, k)
    if kv_lengths is not None:
        if kv_lengths.dtype not in (torch.int32, torch.int64):
            _fail(f"kv_lengths must be torch.int32 or torch.int64, got {kv_lengths.dtype}")
        if kv_lengths.shape != (B,):
            got = tuple(kv_lengths.shape)
            _fail(f"kv_lengths must have shape (B,) = ({B},), got {got}")
    if block_table is not None:
        _check_block_table(block_table, B)
        if kv_lengths is None:
            _fail("kv_lengths must come with block_table, got None")
    if sinks is not None:
        _check_shape("sinks", sinks, torch.float32, q.shape[1:2])
        if not sinks.is_contiguous():
            _fail(f"sinks must be contiguous, got strides {sinks.stride()}")
    _check_numbers(scale, num_splits, window, softcap, max_seqlen_q)
    if window is not None and not causal:
        _fail("window must come with causal=True, got causal=False")
    if tree_mask is not None:
        _check_tree_mask(tree_mask, q, causal)


_LAYOUT_HINT = (
    "; with a block_table, k and v are (pages, Hkv, page_size, D): call .transpose(1, 2) on pages"
    " stored as (pages, page_size, Hkv, D)"
)
"""For errors that a forgotten transpose of the pages may be behind."""


def _entries_of(q: Tensor, cu_seqlens_q: Tensor | None, max_seqlen_q: int | None) -> int | SymInt:
    """The number of batch entries, of queries as they have to lie."""
    dimensions, layout = (4, "(B, H, Sq, D)") if cu_seqlens_q is None else (3, "(total_q, H, D)")
    if q.dim() != dimensions:
        _fail(f"q must have {dimensions} dimensions {layout}, got {q.dim()}: {tuple(q.shape)}")
    if cu_seqlens_q is None:
        if max_seqlen_q is not None:
            _fail("max_seqlen_q must come with cu_seqlens_q, got None")
        return q.shape[0]
    if cu_seqlens_q.dtype != torch.int32:
        _fail(f"cu_seqlens_q must be torch.int32, got {cu_seqlens_q.dtype}; call .int() on it")
    if cu_seqlens_q.dim() != 1 or cu_seqlens_q.shape[0] < 1 or not cu_seqlens_q.is_contiguous():
        got = f"shape {tuple(cu_seqlens_q.shape)} with strides {cu_seqlens_q.stride()}"
        _fail(f"cu_seqlens_q must be contiguous, of shape (B + 1,), got {got}")
    if max_seqlen_q is None:
        _fail("max_seqlen_q must come with cu_seqlens_q, got None")
    return cu_seqlens_q.shape[0] - 1


def _check_operands(q: Tensor, k: Tensor, v: Tensor, B: int | SymInt, *, paged: bool) -> None:
    for name, t in (("k", k), ("v", v)):
        if t.dim() != 4:
            _fail(f"{name} must have 4 dimensions, got {t.dim()}: {tuple(t.shape)}")
    _check_dtype("q", q.dtype, q.device)
    may_be_fp8 = q.dtype in _16_BITS
    if k.dtype != q.dtype and not (may_be_fp8 and k.dtype in _FP8):
        others = ", torch.float8_e4m3fn or torch.float8_e5m2" if may_be_fp8 else ""
        _fail(f"k must have the dtype of q ({q.dtype}){others}, got {k.dtype}")
    if v.dtype != k.dtype:
        _fail(f"v must have the dtype of k ({k.dtype}), got {v.dtype}")
    D = q.shape[-1]
    if D < 1:
        _fail(f"q must have D of at least 1, got shape {tuple(q.shape)}")
    if v.shape[3] < 1:
        _fail(f"v must have Dv of at least 1, got shape {tuple(v.shape)}")
    for name, dimension, t in (("q", "D", q), ("v", "Dv", v)):
        if q.device.type == "cuda" and t.shape[-1] > _MAX_HEAD_DIM_ON_CUDA:
            most = f"{dimension} in [1, {_MAX_HEAD_DIM_ON_CUDA}] on CUDA"
            _fail(f"{name} must have {most}, got {tuple(t.shape)}")
    hint = _LAYOUT_HINT if paged else ""
    shapes = f"got {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
    if k.shape[:3] != v.shape[:3] or k.shape[3] != D or not (paged or k.shape[0] == B):
        of = "D of q" if paged else "B and D of q" if q.dim() == 4 else f"B={B} and D of q"
        _fail(f"k must have {of}, and v the shape of k but for its last dimension, {shapes}")
    if q.shape[1] % k.shape[1] if k.shape[1] else q.shape[1]:
        _fail(f"the heads of q must be a multiple of the heads of k and v, {shapes}{hint}")
    if paged and k.shape[2] not in _PAGE_SIZES:
        _fail(f"k must have a page_size that is a power of two, 1 to 256, got {k.shape[2]}{hint}")


def _check_kv_scale(name: str, scale: Tensor | None, k: Tensor) -> None:
    if scale is None:
        return
    if k.dtype not in _FP8:
        _fail(f"{name} must come with keys and values of 8 bits, got k of {k.dtype}")
    _check_devices("k", k, **{name: scale})
    if scale.dtype != torch.float32 or not scale.is_contiguous():
        got = f"{scale.dtype} with strides {scale.stride()}; call .float().contiguous() on it"
        _fail(f"{name} must be a contiguous torch.float32 tensor, got {got}")
    if scale.shape not in ((), (1,), k.shape[1:2]):
        shapes = f"(), (1,) or (Hkv,) = ({k.shape[1]},)"
        _fail(f"{name} must have shape {shapes}, got {tuple(scale.shape)}")


def _check_tree_mask(tree_mask: Tensor, q: Tensor, causal: bool) -> None:
    if tree_mask.dtype != torch.int64 or not tree_mask.is_contiguous():
        got = f"{tree_mask.dtype} with strides {tree_mask.stride()}"
        _fail(f"tree_mask must be a contiguous torch.int64 tensor, got {got}")
    rows, layout = (q.shape[:1], "total_q") if q.dim() == 3 else ((q.shape[0], q.shape[2]), "B, Sq")
    if tree_mask.shape[:-1] != rows or tree_mask.dim() != len(rows) + 1 or tree_mask.shape[-1] < 1:
        got = tuple(tree_mask.shape)
        _fail(f"tree_mask must have shape ({layout}, words) with at least one word, got {got}")
    if not causal:
        _fail("tree_mask must come with causal=True, got causal=False")


def _check_block_table(block_table: Tensor, B: int | SymInt) -> None:
    if block_table.dtype != torch.int32:
        _fail(f"block_table must be torch.int32, got {block_table.dtype}; call .int() on it")
    if block_table.dim() != 2 or block_table.shape[0] != B:
        got = tuple(block_table.shape)
        _fail(f"block_table must have shape (B, pages of an entry), B={B}, got {got}")
    if block_table.shape[1] > 1 and block_table.stride(1) != 1:
        got = f"{block_table.stride()}; call .contiguous() on it"
        _fail(f"block_table must have a last stride of 1, got strides {got}")


# ---- what the operators return, without running them ----

# The names and defaults of the options are those of the schemas in binding.cpp.


def _shape_of_out(q: Tensor, v: Tensor) -> tuple[int | SymInt, ...]:
    return (*q.shape[:-1], v.shape[-1])


def _fake_split_k_attention(
    q: Tensor, k: Tensor, v: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    _check_traced(q, k, v, **options)
    return q.new_empty(_shape_of_out(q, v)), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _fake_split_k_attention_out(
    q: Tensor, k: Tensor, v: Tensor, *, out: Tensor, lse: Tensor, workspace: Tensor, **options: Any
) -> None:
    _check_traced(q, k, v, **options)
    _check_devices("q", q, out=out, lse=lse, workspace=workspace)
    _check_shape("out", out, q.dtype, _shape_of_out(q, v))
    _check_shape("lse", lse, torch.float32, q.shape[:-1])
    # Its required size depends on the real device.
    if workspace.dtype != torch.float32 or workspace.dim() != 1 or not workspace.is_contiguous():
        _fail(
            "workspace must be a contiguous torch.float32 tensor of 1 dimension, got"
            f" {workspace.dtype} {tuple(workspace.shape)}"
        )


def _fake_split_k_attention_partial(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    num_splits: int | None = None,
    variant: str | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    _check_traced(q, k, v, num_splits=num_splits, variant=variant, **options)
    if q.device.type == "cuda":
        names = ("block_table", "window", "softcap")
        given = [name for name in names if options.get(name) is not None]
        if k.dtype != q.dtype:
            given.append("8-bit k and v")
        if v.shape[3] != k.shape[3]:
            given.append("v with another head dimension than k")
        for name in given:
            _fail(
                f"{name} must be left out of split_k_attention_partial on CUDA, which takes no"
                " pages, window or softcap"
            )
    if variant not in (None, "two_pass"):
        _fail(
            "variant must be two_pass, the only one with a partial pass of its own, got"
            f" '{variant}'"
        )
    if num_splits is None:
        raise NotImplementedError(
            "split_k_attention_partial chooses the number of splits for a real device: give "
            "num_splits where it is traced"
        )
    rows = (num_splits, *q.shape[:3])
    o = q.new_empty((*rows, v.shape[3]), dtype=torch.float32)
    return o, q.new_empty(rows, dtype=torch.float32), q.new_empty(rows, dtype=torch.float32)


def _fake_split_k_attention_merge(
    o: Tensor,
    m: Tensor,
    l: Tensor,  # noqa: E741 (the schema's name)
    *,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    _check_devices("o", o, m=m, l=l)
    if o.dim() != 5:
        _fail(f"o must have 5 dimensions (S, B, H, Sq, D), got {o.dim()}: {tuple(o.shape)}")
    for name, t in (("o", o), ("m", m), ("l", l)):
        _check_shape(name, t, torch.float32, o.shape if t is o else o.shape[:4])
        if not t.is_contiguous():
            _fail(f"{name} must be contiguous, got strides {t.stride()}; call .contiguous() on it")
    if not 1 <= o.shape[0] <= MAX_NUM_SPLITS:
        _fail(f"o must have S in [1, {MAX_NUM_SPLITS}], got shape {tuple(o.shape)}")
    if o.shape[4] < 1:
        _fail(f"o must have D of at least 1, got shape {tuple(o.shape)}")
    _check_dtype("dtype", dtype, o.device)
    return o.new_empty(o.shape[1:], dtype=dtype), o.new_empty(o.shape[1:4])


def _fake_split_k_attention_merge_outputs(
    out: Tensor, lse: Tensor, *, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    return out.new_empty(out.shape[1:], dtype=dtype), lse.new_empty(lse.shape[1:])


def _fake_split_k_attention_plan(
    q: Tensor, k: Tensor, **options: Any
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
    _fake_split_k_attention_merge_outputs,
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
    if forward_ad._current_level >= 0 and any(
        isinstance(argument, Tensor) and forward_ad.unpack_dual(argument).tangent is not None
        for argument in arguments
    ):
        raise NotImplementedError(
            "split_k_attention is for inference and has no gradient, in forward mode neither:"
            " detach its tensors"
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


# Keep it alive: its registrations end with it.
_library = torch.library.Library("kbtool", "IMPL")
for _name in (
    "split_k_attention",
    "split_k_attention_out",
    "split_k_attention_partial",
    "split_k_attention_merge",
    "split_k_attention_merge_outputs",
):
    _library.impl(
        _name,
        _without_gradient(getattr(torch.ops.kbtool, _name).default),
        "Autograd",
        with_keyset=True,
        allow_override=True,
    )


# ---- the function ----

# Its signature stands in full here and in kbtool/attention.py, since editors complete from either;
# a test holds both to the schema.
_operator = torch.ops.kbtool.split_k_attention.default


def _check_type(
    name: str,
    value: object,
    wanted: str,
    plain: type,
    *others: type,
    function: str = "split_k_attention",
) -> None:
    # A bool is an int in Python.
    if type(value) is plain or (isinstance(value, others) and not isinstance(value, bool)):
        return
    got = f"{type(value).__name__} {reprlib.repr(value)}"
    raise TypeError(f"{function}: {name} must be {wanted}, got {got}")


def _check_types(
    q: object,
    k: object,
    v: object,
    causal: object,
    scale: object,
    num_splits: object,
    kv_lengths: object,
    block_table: object,
    window: object,
    softcap: object,
    sinks: object,
    k_scale: object,
    v_scale: object,
    cu_seqlens_q: object,
    max_seqlen_q: object,
    tree_mask: object,
    variant: object,
    overlap: object,
    return_lse: object,
) -> None:
    for name, value in (
        ("q", q), ("k", k), ("v", v),
        ("kv_lengths", kv_lengths), ("block_table", block_table), ("sinks", sinks),
        ("k_scale", k_scale), ("v_scale", v_scale), ("cu_seqlens_q", cu_seqlens_q),
        ("tree_mask", tree_mask),
    ):  # fmt: skip
        if value is None and name not in {"q", "k", "v"}:
            continue
        if isinstance(value, Tensor):
            if value.layout is not torch.strided:
                raise ValueError(
                    f"split_k_attention: {name} must be a dense tensor, got {value.layout}"
                )
        else:
            raise TypeError(
                f"split_k_attention: {name} must be a tensor, got {type(value).__name__}"
            )
    # Test common values inline: two more calls would take 1 % of a short launch.
    if causal is not True and causal is not False:
        _check_type("causal", causal, "a bool", bool, SymBool)
    if overlap is not None and overlap is not True and overlap is not False:
        _check_type("overlap", overlap, "a bool or None", bool, SymBool)
    if return_lse is not True and return_lse is not False:
        _check_type("return_lse", return_lse, "a bool", bool, SymBool)
    if scale is not None:
        _check_type("scale", scale, "a float", float, Real, SymFloat, SymInt)
    if num_splits is not None:
        _check_type("num_splits", num_splits, "an int", int, Integral, SymInt)
    if window is not None:
        _check_type("window", window, "an int", int, Integral, SymInt)
    if softcap is not None:
        _check_type("softcap", softcap, "a float", float, Real, SymFloat, SymInt)
    if max_seqlen_q is not None:
        _check_type("max_seqlen_q", max_seqlen_q, "an int", int, Integral, SymInt)
    # The dispatcher accepts numbers of at most 64 bits.
    _check_numbers(scale, num_splits, window, softcap, max_seqlen_q)
    if variant is not None:
        _check_type("variant", variant, "a str", str, str)


def split_k_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    num_splits: int | None = None,
    kv_lengths: Tensor | None = None,
    block_table: Tensor | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    max_seqlen_q: int | None = None,
    tree_mask: Tensor | None = None,
    variant: str | None = None,
    overlap: bool | None = None,
    return_lse: bool = False,
) -> Any:
    """Split-K attention by the library that is loaded.

    Arguments, results and errors are those of ``kbtool.attention.split_k_attention``, which builds
    and loads the library first.
    """
    _check_types(
        q, k, v, causal, scale, num_splits, kv_lengths, block_table, window, softcap, sinks,
        k_scale, v_scale, cu_seqlens_q, max_seqlen_q, tree_mask, variant, overlap, return_lse,
    )  # fmt: skip
    # Autograd's kernel takes half as long as a launch and only checks for gradients, so skip it.
    # Not under a compiler, which skips it by itself, and not under torch.func's transforms, where
    # only Autograd's kernel sees tangents.
    eager = not torch.compiler.is_compiling() and forward_ad._current_level < 0
    if eager:
        _refuse_gradient(q, k, v, sinks, k_scale, v_scale)
    below = torch._C._AutoDispatchBelowAutograd() if eager else nullcontext()
    with below:
        out, lse = _operator(
            q, k, v, causal=causal, scale=scale, num_splits=num_splits, kv_lengths=kv_lengths,
            block_table=block_table, window=window, softcap=softcap, sinks=sinks, k_scale=k_scale,
            v_scale=v_scale, cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q,
            tree_mask=tree_mask, variant=variant, overlap=overlap,
        )  # fmt: skip
    return (out, lse) if return_lse else out


def merge(
    out: Tensor, lse: Tensor, *, dtype: torch.dtype | None = None, return_lse: bool = False
) -> Any:
    """Merge outputs over parts of the keys, by the library that is loaded.

    Arguments, results and errors are those of ``kbtool.attention.merge``.
    """
    for name, t in (("out", out), ("lse", lse)):
        if not isinstance(t, Tensor):
            raise TypeError(f"merge: {name} must be a tensor, got {type(t).__name__}")
        if t.layout is not torch.strided:
            raise ValueError(f"merge: {name} must be a dense tensor, got {t.layout}")
    if dtype is not None:
        _check_type("dtype", dtype, "a torch.dtype or None", torch.dtype, function="merge")
    _check_type("return_lse", return_lse, "a bool", bool, SymBool, function="merge")
    if out.dim() != 5 or out.dtype not in _DTYPES:
        raise ValueError(
            "merge: out must be (S, B, H, Sq, D) of float32, float16 or bfloat16, got"
            f" {tuple(out.shape)} of {out.dtype}"
        )
    if not 1 <= out.shape[0] <= MAX_NUM_SPLITS or out.shape[4] < 1:
        raise ValueError(
            f"merge: out must have S in [1, {MAX_NUM_SPLITS}] and D of at least 1, got shape"
            f" {tuple(out.shape)}"
        )
    if lse.shape != out.shape[:4] or lse.dtype != torch.float32:
        raise ValueError(
            f"merge: lse must be torch.float32 of shape {tuple(out.shape[:4])}, got {lse.dtype} of"
            f" shape {tuple(lse.shape)}"
        )
    if lse.device != out.device:
        raise ValueError(
            f"merge: lse must be on the device of out ({out.device}), got {lse.device}"
        )
    made_of = dtype or out.dtype
    # One kernel, which waits for the parts of a row in turn: on an H200 8 outputs of 32 rows take
    # 6.2 us instead of 11.2, and 64 of them 31 instead of 14.
    if out.device.type == "cuda" and out.shape[0] <= _PARTS_OF_ONE_KERNEL:
        merged, merged_lse = torch.ops.kbtool.split_k_attention_merge_outputs.default(
            out, lse, dtype=made_of
        )
    else:
        # A normalised output is a state with a sum of 1, relative to the LSE.
        some = lse != -torch.inf
        states = torch.where(some[..., None], out.float(), 0)
        merged, merged_lse = torch.ops.kbtool.split_k_attention_merge.default(
            states.contiguous(), lse.contiguous(), some.float().contiguous(), dtype=made_of
        )
    return (merged, merged_lse) if return_lse else merged
