"""Split-K attention as a problem: inputs, reference, yardstick, operator under test, peers, work.

The generic validation and measurement know nothing of attention; they read a case from
``kernel.yaml`` and call the functions here. A case is a mapping of the manifest's ``case_fields``;
a field without a default may be absent.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kbtool.gpu.harness import load_module

_PEERS = load_module(Path(__file__).with_name("peers.py"), "kbtool_split_k_attention_peers")

SUBJECT = "split_k"
# Of PEERS, a literal: the same call, of keys and values that do not lie in pages, and of ones that
# have the type of the queries.
CONTIGUOUS = "contiguous"
UNQUANTISED = "unquantised"
BASELINE_ARM = "sdpa"
PEERS = (
    "sdpa",
    "sdpa_repeated",
    "flash",
    "cudnn",
    "efficient",
    "math",
    "fa3",
    "flashinfer",
    "flashinfer_fa2",
    "flashinfer_batch",
    "flashinfer_xqa",
    "flex",
    "contiguous",
    "unquantised",
)

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_FP8 = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
_FP8_NAN = 0x7F  # in both types
# Layout of the case → layout of the output, and of the LSE too if it is a far one.
_OUT_LAYOUTS = {
    name: name for name in ("bshd", "bhds", "sliced", "offset", "padded", "padded_rows")
} | {
    "mixed": "bshd",
    "far_batch_out": "far_batch",
    "far_queries_out": "far_keys",
}
_GUARD = 1024  # floats past the workspace that must stay as they are
# Torch's attention as the yardstick. Not cuDNN's: it builds a plan for each new shape.
_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_NUMBERS_AT_A_TIME = 1 << 23  # of scores, or of keys and values, in a tensor of the reference
# Of keys or values that are converted at a time: on the CPU they stay in the L2 cache, on a card
# more of them need fewer launches.
_BLOCK = {"cpu": 1 << 17, "cuda": _NUMBERS_AT_A_TIME}

# ---- inputs ----


def make_inputs(case: Mapping[str, Any], *, device: torch.device, seed: int) -> dict[str, Any]:
    """Fresh inputs of a case; keys and values past the valid length, or before every window, are
    NaN, or infinite where the case says so.

    A case with a ``page_size`` also has ``k_pages``, ``v_pages`` and a ``block_table``, and one
    with a ``kv_dtype`` has ``k_fp8``, ``v_fp8``, ``k_scale`` and ``v_scale``: those the operator
    gets. Its ``k`` and ``v`` are the same keys and values in their order, in float32 if they are of
    8 bits, for the reference and all else.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype = _DTYPES[case.get("dtype", "float16")]
    layout = case.get("layout", "bhsd")
    fill = case.get("fill", "random")
    B, H, Hkv, Sq, Skv, D = _sizes(case)
    page_size = case.get("page_size")
    lengths = case.get("kv_lengths") if page_size is None else _lengths(case)

    def values(*shape: int) -> Tensor:
        if fill == "large_logits":
            # Integers: every q.k is exact in float32, whatever the order of its sum.
            integers = torch.randint(-32, 33, shape, generator=generator, device=device)
            return integers.to(dtype)
        normal = torch.empty(shape, dtype=dtype, device=device)
        for part in normal.view(-1).split(_BLOCK[device.type]):
            # Drawn in float32, which takes the CPU half as long as a 16-bit type does.
            drawn = torch.randn(part.shape, generator=generator, device=device)
            part.copy_(drawn.mul_(case.get("deviation", 1.0)))
        return normal

    q = values(B, H, Sq, D)
    k = values(B, Hkv, Skv, D)
    v = values(B, Hkv, Skv, D)
    if fill == "large_logits":
        q *= 16
    if fill == "largest_logits":
        whole = torch.randint(-255, 256, (B, Hkv, Skv), generator=generator, device=device)
        q[...], k[...] = 0, 0
        q[..., 0], k[..., 0] = 1, whole.to(dtype)
    if fill == "v_one":
        v.fill_(1)
    if fill == "cancelling":
        # The sums of the two halves are large, and what is left of them is not.
        v[:, :, : Skv // 2] += 100
        v[:, :, Skv // 2 :] -= 100
    if fill == "minus_inf_keys":
        q[..., 0], k[:, :, : Skv // 2, 0] = 1, -math.inf
    if fill in {"inf_key", "nan_and_inf_key"}:
        # q.k is 1 times infinity plus finite terms: +inf with every query.
        q[..., 0], k[0, 0, -1, 0] = 1, math.inf
    if fill in {"nan_key", "nan_value", "nan_and_inf_key"}:
        (v if fill == "nan_value" else k)[0, 0, Skv // 2] = math.nan
    if fill == "inf_value":
        v[0, 0, Skv // 2], v[0, 0, Skv // 2, ::3] = math.inf, -math.inf
        v[0, 0, Skv // 3, ::2] = math.inf
    beyond = math.inf if fill == "inf_beyond" else math.nan
    k, v = _hide_unseen(case, k, v, beyond)
    kv_type, scales = _FP8.get(case.get("kv_dtype", "")), _kv_scales(case, generator)
    stored_k, stored_v = k, v
    if kv_type is not None:
        stored_k, k = _quantised(k, scales["k_scale"], kv_type)
        stored_v, v = _quantised(v, scales["v_scale"], kv_type)
        beyond = _FP8_NAN
    given: dict[str, Tensor] = {}
    if page_size is not None:
        given = _pages(case, stored_k, stored_v, beyond)
        q = _stored_as("bhds" if layout == "mixed" else layout, q)
    else:
        if layout == "mixed":
            q, stored_v = _stored_as("bhds", q), _stored_as("bshd", stored_v)
        elif layout not in {"expanded", "far_batch_out", "far_queries_out"}:
            q, stored_k, stored_v = (_stored_as(layout, t) for t in (q, stored_k, stored_v))
        if kv_type is None:
            k, v = stored_k, stored_v
        else:
            given = {"k_fp8": stored_k, "v_fp8": stored_v}
    if kv_type is not None:
        given = {
            name: t.view(kv_type) if t.dtype == torch.uint8 else t for name, t in given.items()
        }
    return {
        "q": q,
        "k": k,
        "v": v,
        "out_layout": _OUT_LAYOUTS.get(layout, "bhsd"),
        "causal": bool(case.get("causal", False)),
        "scale": case.get("scale"),
        "num_splits": case.get("num_splits"),
        "kv_lengths": None
        if lengths is None
        else torch.tensor(
            lengths, dtype=getattr(torch, case.get("kv_lengths_dtype", "int32")), device=device
        ),
        "block_table": None,
        "window": case.get("window"),
        "softcap": case.get("softcap"),
        "sinks": _sinks(case, generator),
        **scales,
        **given,
    }


def _kv_scales(case: Mapping[str, Any], generator: torch.Generator) -> dict[str, Tensor | None]:
    """The scales of keys and values of 8 bits, from 1/64 to 4; none where the case has none."""
    kind = case.get("kv_scale") if case.get("kv_dtype") else None
    shapes = {"tensor": (), "one": (1,), "head": (_sizes(case)[2],)}
    scales: dict[str, Tensor | None] = {"k_scale": None, "v_scale": None}
    if kind is not None:
        for name in scales:
            drawn = torch.rand(shapes[kind], generator=generator, device=generator.device)
            scales[name] = torch.exp2(drawn * 8 - 6)
    return scales


def _quantised(t: Tensor, scale: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``t``, (B, Hkv, keys, D), as bytes of an 8-bit type, and the numbers that these stand for, in
    float32. What is expanded stays so."""
    numbers = t[tuple(slice(1) if stride == 0 else slice(None) for stride in t.stride())].float()
    if scale is not None:
        numbers = numbers / scale.view(-1, 1, 1)[: numbers.shape[1]]
    if dtype == torch.float8_e4m3fn:  # which has no infinities
        numbers[numbers.isinf()] = math.nan
    stored = numbers.to(dtype).expand(t.shape)
    return stored.view(torch.uint8), _widened(stored, scale)


def _widened(t: Tensor, scale: Tensor | None) -> Tensor:
    """The numbers that ``t``, (B or pages, Hkv, keys, D), of 8 bits stands for, in float32."""
    return t.float() if scale is None else t.float() * scale.view(-1, 1, 1)


def _sinks(case: Mapping[str, Any], generator: torch.Generator) -> Tensor | None:
    kind = case.get("sinks")
    if kind is None:
        return None
    sinks = torch.randn(_sizes(case)[1], generator=generator, device=generator.device)
    if kind == "large":  # beside logits of 1 or so: most of the sum, and nothing of it
        sinks = torch.where(sinks > 0, 6.0, -30.0)  # more, and float16 would not hold the output
    if kind in {"nan", "minus_inf"}:
        sinks[::2] = math.nan if kind == "nan" else -math.inf
    return sinks


def _sizes(case: Mapping[str, Any]) -> tuple[int, int, int, int, int, int]:
    B, H, Hkv, Sq, Skv = (int(case.get(name, 1)) for name in ("B", "H", "Hkv", "Sq", "Skv"))
    return B, H, Hkv, Sq, Skv, int(case.get("D", 64))


def _lengths(case: Mapping[str, Any]) -> list[int]:
    """The number of valid keys of each batch entry."""
    given = case.get("kv_lengths")
    B, _, _, _, Skv, _ = _sizes(case)
    return [Skv] * B if given is None else [int(length) for length in given]


def _first_keys(case: Mapping[str, Any]) -> list[int]:
    """The first key of each batch entry that a query sees; 0 without a window."""
    lengths, window = _lengths(case), case.get("window")
    Sq = _sizes(case)[3]
    return [0 if window is None else max(0, length - Sq + 1 - window) for length in lengths]


def _hide_unseen(
    case: Mapping[str, Any], k: Tensor, v: Tensor, beyond: float
) -> tuple[Tensor, Tensor]:
    """Keys and values with ``beyond`` where no query of an entry sees them, expanded and with a
    shared prefix if the case asks for it."""
    firsts, lengths = _first_keys(case), _lengths(case)
    if case.get("layout") == "expanded":
        k, v = (t[:1, :1].contiguous().expand(t.shape) for t in (k, v))
        for t in (k, v):  # one storage for all: only what no entry sees
            t[0, 0, : min(firsts, default=0)] = beyond
            t[0, 0, max(lengths, default=k.shape[2]) :] = beyond
        return k, v
    if case.get("page_size") is not None:
        shared = _shared_pages(case)
        for b, pages in enumerate(shared):
            for t in (k, v):
                t[b, :, : pages * case["page_size"]] = t[0, :, : pages * case["page_size"]]
        # What one entry does not see of a shared page, another may.
        of_all = min(
            (first for first, pages in zip(firsts, shared, strict=True) if pages), default=0
        )
        firsts = [of_all if pages else first for first, pages in zip(firsts, shared, strict=True)]
    for b, (first, length) in enumerate(zip(firsts, lengths, strict=True)):
        for t in (k, v):
            t[b, :, :first] = t[b, :, length:] = beyond
    return k, v


# How pages, (pages, Hkv, page_size, D), are stored.
_PAGE_LAYOUTS = {"nhd": "bshd", "hnd": "bhsd"}
_NO_PAGE = (-1, 2**31 - 1, -(2**31))


def _shared_pages(case: Mapping[str, Any]) -> list[int]:
    """How many pages, from its start, each batch entry shares with the others."""
    shared, size = case.get("shared_prefix", 0), case["page_size"]
    return [min(shared, length) // size for length in _lengths(case)]


def _pages(case: Mapping[str, Any], k: Tensor, v: Tensor, beyond: float) -> dict[str, Tensor]:
    """The same keys and values in pages, which lie in a drawn order among pages that nobody uses.
    The order is the same for each seed, so that other values can be written to the same pages.

    Those are full of ``beyond``, as are ``k`` and ``v`` past a length. Past a length and before a
    window the table, part of a wider one, names them or pages that do not exist.
    """
    _, Hkv, Skv, D = k.shape
    size, shared = int(case["page_size"]), _shared_pages(case)
    columns = -(-Skv // size)
    skipped = [first // size for first in _first_keys(case)]
    used = [-(-length // size) for length in _lengths(case)]
    of_all = max(shared, default=0)
    count = of_all + sum(used) - sum(shared)
    order = torch.Generator().manual_seed(count)
    drawn = torch.randperm(count + count // 4 + 2, generator=order).int().to(k.device)
    common, own = drawn[:of_all], drawn[of_all:count]
    wrong = torch.cat([drawn.new_tensor(_NO_PAGE), drawn[count:]])
    wide = wrong[torch.arange(k.shape[0] * (columns + 3), device=k.device) % len(wrong)]
    table = wide.view(-1, columns + 3)[:, 1 : columns + 1]
    for row, first, shared_pages, end in zip(table, skipped, shared, used, strict=True):
        taken, own = own.tensor_split([end - shared_pages])
        row[first:end] = torch.cat([common[:shared_pages], taken])[first:]
    layout, page_layout = case.get("layout", "bhsd"), case.get("page_layout", "nhd")
    layouts = [_PAGE_LAYOUTS[page_layout]] * 2
    if layout == "mixed":
        layouts = [_PAGE_LAYOUTS[name] for name in ("nhd", "hnd")]
    elif layout not in {"bhsd", "bshd"}:
        layouts = [layout] * 2
    made = {"block_table": table}
    for name, t, stored in zip(("k_pages", "v_pages"), (k, v), layouts, strict=True):
        pool = t.new_full((len(drawn), Hkv, size, D), beyond)
        padded = torch.nn.functional.pad(t, (0, 0, 0, columns * size - Skv), value=beyond)
        for keys, row, first, end in zip(padded, table, skipped, used, strict=True):
            pages = keys.view(Hkv, columns, size, D).transpose(0, 1)
            pool[row[first:end].long()] = pages[first:end]
        made[name] = _stored_as(stored, pool)
    return made


def _stored_as(layout: str, t: Tensor) -> Tensor:
    """The same values in another storage; what lies between them is NaN where it is cheap."""
    B, H, S, D = t.shape
    between = _FP8_NAN if t.dtype == torch.uint8 else math.nan
    if layout == "bhsd":
        return t
    if layout == "bshd":
        return t.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "bhds":
        return t.transpose(2, 3).contiguous().transpose(2, 3)
    if layout == "sliced":
        stored = t.new_full((B, H, S, 2 * D), between)[..., ::2]
    elif layout == "offset":
        stored = t.new_full((B, H, S, D + 3), between)[..., 1 : D + 1]
    elif layout == "padded":
        held = t.new_full((B, H, S * D + 4), between)
        stored = held[..., : S * D].unflatten(-1, (S, D))
    elif layout == "padded_rows":  # to a multiple of 16 bytes at 16 bits, whatever D
        stored = t.new_full((B, H, S, D + 15 - (D - 1) % 8), between)[..., :D]
    elif layout == "far_batch":
        # On the CPU pages that nobody writes are never backed by memory; on a card each of q, k, v
        # and the output takes 4 to 6 GB at 16 bits, and the LSE twice as much.
        stride = 2**31 + 64
        stored = t.new_empty((B - 1) * stride + H * S * D).as_strided(
            t.shape, (stride, S * D, D, 1)
        )
    elif layout == "far_keys":
        # The last fifth of the keys, or of the queries, lies beyond 2^31.
        stride = 5 * 2**29 // max(S - 1, 1) + D
        stored = t.new_empty((S - 1) * stride + B * H * D).as_strided(
            t.shape, (H * D, D, stride, 1)
        )
    else:
        raise ValueError(f"unknown layout {layout!r}")
    return stored.copy_(t)


# ---- reference and yardstick ----


def reference(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Attention in float64 with an exact softmax; shares nothing with the implementation."""
    Hkv = inputs["k"].shape[1]
    out, lse = _without_keys(inputs, torch.float64, torch.float64)
    for part, scores, _, values in _scores(inputs, torch.float64):
        logits, n = _with_sinks(inputs, part, scores), scores.shape[-1]
        _rows(lse, Hkv, part).copy_(logits.logsumexp(dim=-1))
        some = ~(logits == -math.inf).all(dim=-1, keepdim=True)
        finite = _finite(values)
        made = torch.where(some, _weighted(logits.softmax(dim=-1)[..., :n], finite), 0)
        if finite is not values:
            # Apart from the sums: a matrix product would multiply hidden ones by 0, giving NaN.
            seen = (scores > -math.inf).double()
            for infinity in (math.inf, -math.inf):
                there = seen @ (values == infinity).double() > 0
                made += torch.where(there, infinity, 0)
            made.masked_fill_((seen @ values.isnan().double() > 0) & some, math.nan)
        _rows(out, Hkv, part).copy_(made)
    return {"out": out, "lse": lse}


def error_scale(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The size of the terms that each element is a sum of, before anything cancels.

    LSE, ``(B, H, Sq)``: logits are float32. By Cauchy-Schwarz no partial sum of a logit's products
    exceeds ``|scale| |q| |k|``, so the logit may be off by one unit of that. A softcap lets less of
    it through, and rounds the logit four times. The LSE may be off by as much as it moves when
    every logit does. For a row that sees one key that is the one logit.

    Output, ``(B, H, Sq, D)``: a sum of weights times values. Each product is rounded relative to
    its own size, and these errors add up as squares do, to ``sqrt(sum w² v²)``. For a row that sees
    one key that is the value; over many keys of equal weight it shrinks as the output does.

    Other errors of the output are in float32, so they count by the ratio of its eps to that of the
    output's type. A sum of n terms is rounded n times. Similar terms all round the same way. A
    weight moves as far as its logit may, and pulls the output towards its value. A weight below
    float32's normal numbers may be lost.
    """
    q, Hkv, scale = inputs["q"], inputs["k"].shape[1], abs(_scale(inputs))
    float32 = torch.finfo(torch.float32)
    digits = float32.eps / torch.finfo(q.dtype).eps
    of_lse = torch.zeros(q.shape[:3], dtype=torch.float64, device=q.device)
    of_out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    lengths = _finite(q.double().norm(dim=-1))
    for part, scores, keys, values in _scores(inputs, torch.float64):
        norms = [keys[:, block].double().norm(dim=-1) for block in _blocks(keys)]
        of_keys = _finite(torch.cat(norms, dim=-1))
        delta = float32.eps * scale * _rows(lengths, Hkv, part)[..., None] * of_keys[..., None, :]
        if inputs.get("softcap") is not None:
            capped = _finite(scores)
            delta *= 1 - (capped / inputs.get("softcap")).square()
            delta += 4 * float32.eps * capped.abs()
        # Rows that see no key are NaN, of which 0 is stored.
        with_sinks = _with_sinks(inputs, part, scores).log_softmax(dim=-1)
        log_weights = with_sinks[..., : scores.shape[-1]]
        moved_logits = log_weights + delta
        moved_sinks = with_sinks[..., scores.shape[-1] :]
        moved_lse = torch.cat([moved_logits, moved_sinks], dim=-1).logsumexp(dim=-1)
        _rows(of_lse, Hkv, part).copy_(_finite(moved_lse / float32.eps))

        weights, finite, n = log_weights.exp(), _finite(values), values.shape[-2]
        moves = (moved_logits.clamp(max=0).exp() * -torch.expm1(-delta)).square()
        firsts = torch.cat([weights, moves], dim=-2)
        seconds = torch.cat([weights.square(), moves], dim=-2)
        of_firsts, of_seconds, sums = 0, 0, 0
        for block in _blocks(finite):
            converted = finite[:, block].double()
            of_firsts += firsts[..., block] @ converted
            sums += converted.abs().sum(dim=-2, keepdim=True)
            of_seconds += seconds[..., block] @ converted.square()
        out, moved = of_firsts.chunk(2, dim=-2)
        products, moved_squares = of_seconds.chunk(2, dim=-2)
        products = products.sqrt()
        moved = moved_squares - 2 * out * moved
        moved += out.square() * moves.sum(dim=-1, keepdim=True)
        in_float32 = products * n**0.5 + out.abs() * min(n, 64) / 4
        in_float32 += moved.clamp(min=0).sqrt() / float32.eps
        in_float32 += sums * float32.smallest_normal / float32.eps
        _rows(of_out, Hkv, part).copy_(_finite(products + digits * in_float32))
    return {"out": of_out, "lse": of_lse}


def _finite(x: Tensor) -> Tensor:
    """``x`` with 0 in the place of NaN and infinities; ``x`` itself if there are none."""
    return x if _is_finite(x) else torch.where(x.isfinite(), x, 0)


def _is_finite(x: Tensor) -> bool:
    """Whether a sum of the elements is finite, as it then is of each. Unlike ``isfinite`` it stores
    no tensor."""
    return math.isfinite(x.sum(dtype=torch.promote_types(x.dtype, torch.float32)))


@dataclass(frozen=True)
class _Part:
    """Some of the rows: queries of batch entries that have the same number of keys. The query heads
    that share a KV head follow each other, as rows of that head."""

    entries: slice
    heads: slice  # of entries x Hkv
    rows: slice  # of (H / Hkv) x Sq


def _rows(t: Tensor, Hkv: int, part: _Part) -> Tensor:
    """A part of ``t``, ``(B, H, Sq, ...)``, as ``(heads, rows, ...)``: a view if ``t`` is
    contiguous."""
    B, H, Sq, *rest = t[part.entries].shape
    return t[part.entries].reshape(B * Hkv, H // Hkv * Sq, *rest)[part.heads, part.rows]


def _scores(
    inputs: Mapping[str, Any], dtype: torch.dtype
) -> Iterator[tuple[_Part, Tensor, Tensor, Tensor]]:
    """Every row that has keys, some at a time: which; their logits ``(heads, rows, keys)``, -inf
    where a key is hidden, in ``dtype``; and the keys and values of the heads, ``(heads, keys, D)``,
    in their own type."""
    q, k, v, scale = inputs["q"], inputs["k"], inputs["v"], _scale(inputs)
    _, H, Sq, D = q.shape
    Hkv = k.shape[1]
    rows = H // Hkv * Sq if Hkv else 0
    for entries, length in _equal_lengths(inputs):
        if length * rows == 0:
            continue
        rows_at_a_time = max(1, min(rows, _NUMBERS_AT_A_TIME // length))
        numbers = length * max(rows_at_a_time, 2 * D)
        heads_at_a_time = max(1, _NUMBERS_AT_A_TIME // numbers)
        heads = (entries.stop - entries.start) * Hkv
        keys, values = (t[entries, :, :length].reshape(heads, length, D) for t in (k, v))
        for head, row in product(range(0, heads, heads_at_a_time), range(0, rows, rows_at_a_time)):
            some = slice(head, min(head + heads_at_a_time, heads))
            part = _Part(entries, some, slice(row, min(row + rows_at_a_time, rows)))
            queries = _rows(q, Hkv, part).to(dtype)
            scores = queries.new_empty((*queries.shape[:2], length))
            for block in _blocks(keys[some]):
                scores[..., block] = queries @ keys[some, block].to(dtype).mT
            scores *= scale
            if (softcap := inputs.get("softcap")) is not None:
                scores.div_(softcap).tanh_().mul_(softcap)
            if inputs["causal"]:
                scores.masked_fill_(~_visible(inputs, length, part.rows), -math.inf)
            yield part, scores, keys[some], values[some]


def _with_sinks(inputs: Mapping[str, Any], part: _Part, scores: Tensor) -> Tensor:
    """The logits of some rows and then that of the sink, if there is one."""
    q, sinks = inputs["q"], inputs.get("sinks")
    if sinks is None:
        return scores
    of_rows = sinks.to(scores.dtype)[:, None].expand(q.shape[:3])
    return torch.cat([scores, _rows(of_rows, inputs["k"].shape[1], part)[..., None]], dim=-1)


def _without_keys(
    inputs: Mapping[str, Any], dtype: torch.dtype, lse_dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Output and LSE of rows that see no key."""
    q, sinks = inputs["q"], inputs.get("sinks")
    out = torch.zeros(q.shape, dtype=dtype, device=q.device)
    lse = torch.full(q.shape[:3], -math.inf, dtype=lse_dtype, device=q.device)
    if sinks is not None:
        lse[...] = sinks[:, None]
        out[lse.isnan()] = math.nan
    return out, lse


def _blocks(t: Tensor) -> Iterator[slice]:
    """Ranges of the keys of ``t``, ``(heads, keys, D)``."""
    heads, keys, D = t.shape
    at_a_time = max(1, _BLOCK[t.device.type] // max(heads * D, 1))
    for first in range(0, keys, at_a_time):
        yield slice(first, first + at_a_time)


def _weighted(weights: Tensor, values: Tensor) -> Tensor:
    """The product of weights ``(heads, rows, keys)`` and values ``(heads, keys, D)``, in the type
    of the weights."""
    total = weights.new_zeros((*weights.shape[:2], values.shape[2]))
    for block in _blocks(values):
        total += weights[..., block] @ values[:, block].to(weights.dtype)
    return total


def baseline(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """What torch makes of the same inputs: its attention in their dtype, its LSE in float32. Keys
    and values of 8 bits it takes in float32, and queries beside them too.

    The error of this against :func:`reference` is the yardstick of the error of ours. Torch's
    attention takes neither softcap nor sinks. With either it is what models compute without a
    kernel: softmax in float32, weights rounded to the type of the values.
    """
    q, k, v = (_contiguous(inputs[name]) for name in ("q", "k", "v"))
    q = q.to(k.dtype)
    if not _is_finite(v):
        v = torch.where(v.isnan(), 0, v)
    scale = _scale(inputs)
    Hkv, Sq = k.shape[1], q.shape[2]
    group = q.shape[1] // Hkv if Hkv else 1
    out, lse = _without_keys(inputs, q.dtype, torch.float32)
    eager = inputs.get("softcap") is not None or inputs.get("sinks") is not None

    def attend(entries: slice, keys: Tensor, visible: Tensor) -> Tensor:
        values = v[entries, :, : keys.shape[2]]
        masked = inputs["causal"] and (keys.shape[2] != Sq or inputs.get("window") is not None)
        if masked and group > 1:
            # With a mask and grouped heads torch would hold all logits.
            keys, values = (t.repeat_interleave(group, dim=1) for t in (keys, values))
        with sdpa_kernel(_BACKENDS):
            made = scaled_dot_product_attention(
                q[entries],
                keys,
                values,
                attn_mask=visible if masked else None,
                is_causal=inputs["causal"] and not masked,
                scale=scale,
                enable_gqa=keys.shape[1] != q.shape[1],
            )
        return made.masked_fill(~visible.any(dim=-1, keepdim=True), 0)

    for entries, length in _equal_lengths(inputs):
        if length == 0 or q.numel() == 0 or eager:
            continue
        keys, visible = k[entries, :, :length], _visible(inputs, length)
        out[entries] = attend(entries, keys, visible)
        if not _is_finite(keys):
            finite = keys.isfinite()
            # Torch's mask does not hide a non-finite key: rows that do not see it could be NaN, and
            # their error would say nothing. They are computed again with a finite key.
            bad = (~finite).any(dim=-1).float()  # (entries, Hkv, keys)
            seen = (bad @ visible.float().T > 0).repeat_interleave(group, dim=1)
            again = attend(entries, torch.where(finite, keys, 0), visible)
            out[entries] = torch.where(seen[..., None], out[entries], again)
    for part, scores, keys, values in _scores(inputs, torch.float32):
        logits, made = _with_sinks(inputs, part, scores), _rows(out, Hkv, part)
        of_lse = logits.logsumexp(dim=-1)
        _rows(lse, Hkv, part).copy_(of_lse)
        if eager:
            weights = logits.softmax(dim=-1)[..., : scores.shape[-1]].to(q.dtype)
            made.copy_(_weighted(weights.float(), torch.where(values.isnan(), 0, values)))
        if not _is_finite(values):
            # Apart from the sums: in a matrix product hidden NaNs count too, as 0 times NaN.
            visible = _visible(inputs, keys.shape[1], part.rows).float()
            made.masked_fill_(visible @ values.isnan().float() > 0, math.nan)
        made.masked_fill_((of_lse == -math.inf)[..., None], 0)
    return {"out": out.to(inputs["q"].dtype), "lse": lse}


def _contiguous(t: Tensor) -> Tensor:
    """``t``, or a copy: how torch handles strides is not the question.

    A single row that starts in the middle of a storage says that it is contiguous, and torch's
    kernels read it as if it were aligned.
    """
    strides = torch.empty(t.shape, device="meta").stride()
    if t.stride() == strides and t.data_ptr() % 64 == 0:
        return t
    return t.clone(memory_format=torch.contiguous_format)


def _scale(inputs: Mapping[str, Any]) -> float:
    scale = inputs["scale"]
    return 1 / math.sqrt(inputs["q"].shape[3]) if scale is None else float(scale)


def _equal_lengths(inputs: Mapping[str, Any]) -> Iterator[tuple[slice, int]]:
    """Runs of batch entries that have the same number of valid keys, and that number."""
    B, Skv, lengths = inputs["q"].shape[0], inputs["k"].shape[2], inputs["kv_lengths"]
    first = 0
    for length, run in groupby([Skv] * B if lengths is None else lengths.tolist()):
        end = first + len(list(run))
        yield slice(first, end), length
        first = end


def _visible(inputs: Mapping[str, Any], length: int, rows: slice | None = None) -> Tensor:
    """Which of ``length`` valid keys each query, or each of some rows, sees: ``(rows, keys)``."""
    q = inputs["q"]
    Sq = q.shape[2]
    of = slice(0, Sq) if rows is None else rows
    queries = torch.arange(of.start, of.stop, device=q.device)[:, None] % Sq
    keys = torch.arange(length, device=q.device)
    if not inputs["causal"]:
        return keys < queries + length
    last = queries + length - Sq
    window = length if inputs.get("window") is None else inputs.get("window")
    return (keys <= last) & (keys > last - window)


# ---- cases beside a listed one ----

_MOST_COLUMNS = 256
_MOST_SPLITS = 1024
_PAGE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_STRIDES = ("bhsd", "bshd", "bhds", "sliced", "offset", "padded", "padded_rows", "mixed")


def neighbours(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The case with one of its numbers changed by 1, or with other strides. Its fill stays, and so
    does whether lengths are given."""
    B, H, Hkv, Sq, Skv, D = _sizes(case)
    lengths, splits, layout = case["kv_lengths"], case["num_splits"], case["layout"]
    if layout.startswith("far") or min(B, H, Sq, Skv) == 0:
        return  # gigabytes, or no element that could be wrong
    least_keys = 1 if case["fill"] in {"random", "large_logits", "v_one"} else 8
    for step in (-1, 1):
        if Sq + step > 0:
            yield {**case, "Sq": Sq + step}
        if Skv + step >= least_keys:
            clipped = lengths and [min(length, Skv + step) for length in lengths]
            yield {**case, "Skv": Skv + step, "kv_lengths": clipped}
        if 0 < D + step <= _MOST_COLUMNS:
            yield {**case, "D": D + step}
        if B + step > 0:
            more = lengths and (lengths[:step] if step < 0 else [*lengths, max(lengths) // 2])
            yield {**case, "B": B + step, "kv_lengths": more}
        if Hkv + step > 0:
            yield {**case, "H": H // Hkv * (Hkv + step), "Hkv": Hkv + step}
        if H // Hkv + step > 0:
            yield {**case, "H": H + step * Hkv}
        if case["window"] is not None and case["window"] + step > 0:
            yield {**case, "window": case["window"] + step}
        if splits is not None and 0 < splits + step <= _MOST_SPLITS:
            yield {**case, "num_splits": splits + step}
        if lengths:
            longest = lengths.index(max(lengths))
            if 0 <= lengths[longest] + step <= Skv:
                moved = [n + step * (b == longest) for b, n in enumerate(lengths)]
                yield {**case, "kv_lengths": moved}
    if layout != "expanded":
        for other in _STRIDES:
            if other != layout:
                yield {**case, "layout": other}
    if page_size := case["page_size"]:
        for other_size in {page_size // 2, page_size * 2} & set(_PAGE_SIZES):
            yield {**case, "page_size": other_size}
        yield {**case, "page_layout": "hnd" if case["page_layout"] == "nhd" else "nhd"}


# ---- the operator under test ----


def call(
    inputs: Mapping[str, Any], *, variant: str | None = None, poison: bool = True
) -> dict[str, Tensor]:
    """Runs the operator; with ``poison``, on outputs and a workspace that were filled with NaN."""
    q, k, v = _operands(inputs)
    options = _options(inputs) | {"variant": variant}
    if not poison:
        out, lse = torch.ops.kbtool.split_k_attention(q, k, v, **options)
        return {"out": out, "lse": lse}
    numel = workspace_bytes(inputs, variant) // torch.float32.itemsize
    B, H, Sq, _ = q.shape
    out = _stored_as(inputs["out_layout"], q.new_full(q.shape, math.nan))
    lse = q.new_full((B, H, Sq), math.nan, dtype=torch.float32)
    if inputs["out_layout"].startswith("far"):
        lse = _stored_as(inputs["out_layout"], lse[..., None])[..., 0]
    elif inputs["out_layout"] != "bhsd":
        lse = lse.new_full((B, Sq, H), math.nan).transpose(1, 2)
    workspace = q.new_full((numel + _GUARD,), math.nan, dtype=torch.float32)
    torch.ops.kbtool.split_k_attention_out(
        q, k, v, **options, out=out, lse=lse, workspace=workspace[:numel]
    )
    if not bool(workspace[numel:].isnan().all()):
        raise RuntimeError(f"the operator wrote past the {numel} floats of its workspace")
    return {"out": out, "lse": lse}


def workspace_bytes(inputs: Mapping[str, Any], variant: str | None = None) -> int:
    """Memory for partial states, in float32."""
    return _plan(inputs, variant)[1] * torch.float32.itemsize


def _plan(inputs: Mapping[str, Any], variant: str | None) -> tuple[int, int]:
    """The number of splits, and the floats of workspace."""
    q, k, _ = _operands(inputs)
    given = {name: inputs.get(name) for name in ("num_splits", "block_table", "window")}
    splits, numel = torch.ops.kbtool.split_k_attention_plan(q, k, **given, variant=variant)
    return splits, numel


def variants(device: torch.device) -> list[str]:
    """The names of the variants that ``device`` has, simplest first."""
    names: str = torch.ops.kbtool.split_k_attention_variants(torch.empty(0, device=device))
    return names.split(",")


def _operands(inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as the operator takes them."""
    if inputs.get("block_table") is not None:
        return inputs["q"], inputs["k_pages"], inputs["v_pages"]
    if "k_fp8" in inputs:
        return inputs["q"], inputs["k_fp8"], inputs["v_fp8"]
    return inputs["q"], inputs["k"], inputs["v"]


_OPTIONS = (
    "causal", "scale", "num_splits", "kv_lengths", "block_table", "window", "softcap", "sinks",
    "k_scale", "v_scale",
)  # fmt: skip


def _options(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: inputs.get(name) for name in _OPTIONS}


# ---- the operator's parts, each alone ----

_Results = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]


def parts(inputs: Mapping[str, Any], variant: str | None) -> dict[str, Callable[[], _Results]]:
    """The partial pass and the reduction, if the variant has them as separate operators.

    The states that the partial pass returns are merged in float64. The reduction gets states that
    were computed in float64, for as many splits as the operator would take. Sinks are no part of
    either: a call applies them when its splits are merged.
    """
    inputs = {**inputs, "sinks": None}
    options = _options(inputs)
    del options["sinks"]
    q, k, v = _operands(inputs)
    if q.device.type != "cpu" and variant != "two_pass":
        return {}

    def partial_pass() -> _Results:
        states = torch.ops.kbtool.split_k_attention_partial(q, k, v, **options, variant=variant)
        merged = _merged(*(state.double() for state in states))
        out = {"out": merged["out"].to(q.dtype), "lse": merged["lse"].float()}
        return out, reference(inputs), baseline(inputs)

    def reduction() -> _Results:
        states = _states(inputs, max(_plan(inputs, variant)[0], 1))
        out, lse = torch.ops.kbtool.split_k_attention_merge(*states, dtype=q.dtype)
        torchs = _merged(*states)
        torchs["out"] = torchs["out"].to(q.dtype)
        return {"out": out, "lse": lse}, _merged(*(state.double() for state in states)), torchs

    return {"partial pass": partial_pass, "reduction": reduction}


def _merged(values: Tensor, maxima: Tensor, sums: Tensor) -> dict[str, Tensor]:
    """Attention from the states of splits, in their own precision.

    Args:
        values: (S, B, H, Sq, D), weighted and not divided.
        maxima: (S, B, H, Sq), the largest logits.
        sums: (S, B, H, Sq), of the weights.
    """
    top = maxima.amax(dim=0)
    weights = torch.exp(maxima - torch.where(top == -math.inf, 0, top))
    total = (weights * sums).sum(dim=0)
    out = (weights.unsqueeze(-1) * values).sum(dim=0) / total.unsqueeze(-1)
    return {
        "out": torch.where(total.unsqueeze(-1) == 0, 0, out),
        "lse": torch.where(top == math.inf, top, top + total.log()),
    }


def _states(inputs: Mapping[str, Any], count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The states of ``count`` splits of the valid keys, as ``_merged`` takes them, in float32."""
    q, Hkv = inputs["q"], inputs["k"].shape[1]
    values = q.new_zeros((count, *q.shape), dtype=torch.float32)
    maxima = q.new_full((count, *q.shape[:3]), -math.inf, dtype=torch.float32)
    sums = torch.zeros_like(maxima)
    for part, scores, _, kv_values in _scores(inputs, torch.float64):
        length = scores.shape[-1]
        for split in range(count):
            cut = slice(length * split // count, length * (split + 1) // count)
            if cut.start == cut.stop:
                continue
            top = scores[..., cut].amax(dim=-1).float()
            base = torch.where(top == -math.inf, 0, top).double()
            weights = torch.exp(scores[..., cut] - base.unsqueeze(-1))
            for of_split, made in (
                (maxima[split], top),
                (sums[split], weights.sum(dim=-1)),
                (values[split], _weighted(weights, kv_values[:, cut])),
            ):
                _rows(of_split, Hkv, part).copy_(made)
    return values, maxima, sums


# ---- arms to time ----


def arms(
    inputs: Mapping[str, Any], variants: Sequence[str] = (), peers: Sequence[str] = ()
) -> dict[str, Callable[[], Any] | str]:
    """An arm for the library's own choice and for each of ``variants`` and ``peers``: the call to
    time, or why it does not take these inputs here."""
    q, k, v = _operands(inputs)
    options = _options(inputs)
    ours = torch.ops.kbtool.split_k_attention.default
    timed: dict[str, Callable[[], Any] | str] = {SUBJECT: lambda: ours(q, k, v, **options)}
    for variant in variants:
        timed[variant] = _tried(functools.partial(ours, q, k, v, **options, variant=variant))
    if peers:
        _clear_past_lengths(inputs)
    ours_alone = [name for name in ("window", "softcap", "sinks") if inputs.get(name) is not None]
    is_fp8 = k.dtype != q.dtype
    for peer in peers:
        if q.numel() == 0 or k.numel() == 0:
            timed[peer] = "there is nothing to attend to"
        elif peer == UNQUANTISED and not is_fp8:
            timed[peer] = "is for keys and values of 8 bits"
        elif peer == UNQUANTISED:
            wide = (_widened(k, inputs["k_scale"]), _widened(v, inputs["v_scale"]))
            rows = (q, *(t.to(q.dtype) for t in wide))
            timed[peer] = functools.partial(
                ours, *rows, **{**options, "k_scale": None, "v_scale": None}
            )
        elif peer == CONTIGUOUS and inputs.get("block_table") is None:
            timed[peer] = "is for pages"
        elif is_fp8:
            timed[peer] = "is not called with keys and values of 8 bits"
        elif peer == CONTIGUOUS:
            rows = (q, inputs["k"], inputs["v"])
            timed[peer] = functools.partial(ours, *rows, **{**options, "block_table": None})
        elif ours_alone:
            timed[peer] = f"is not called with {' and '.join(ours_alone)}"
        else:
            timed[peer] = _PEERS.PEERS[peer](inputs)
    return timed


def _clear_past_lengths(inputs: Mapping[str, Any]) -> None:
    """Zero keys and values past the lengths: torch multiplies them by 0, and 0 · NaN is NaN."""
    for entries, length in _equal_lengths(inputs):
        for name in ("k", "v"):
            inputs[name][entries, :, length:] = 0


def _tried(call: Callable[[], Any]) -> Callable[[], Any] | str:
    """The call of a variant, or what the operator says when it is tried."""
    try:
        call()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever it raises, it does not take these inputs
        return str(error).splitlines()[0]
    return call


# ---- the number of splits, measured ----

SETTING = "num_splits"
_COUNTS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    12,
    14,
    *(8 * n for n in (2, 3, 4, 6, 8, 10, 12, 16, 24, 32)),
)
_LEAST_KEYS = 32  # of a split


def settings(inputs: Mapping[str, Any], variant: str) -> tuple[str, dict[str, Mapping[str, Any]]]:
    """The number of splits that the variant takes by itself, and the same inputs with each number
    that is worth timing.

    Its own number is timed as ``None``: a given number may change the tile too. All batch entries
    are passed as heads of one entry. Otherwise a given number would be planned for one entry alone,
    and the variant's own for the whole batch.

    Raises:
        ValueError: ``kv_lengths`` are given: without a number, the kernel may divide the keys of
            all entries together.
    """
    q, k = inputs["q"], inputs["k"]
    if inputs["kv_lengths"] is not None:
        raise ValueError("calls with kv_lengths are not tuned: leave their case sets out")
    own, _ = torch.ops.kbtool.split_k_attention_plan(q, k, num_splits=None, variant=variant)
    most = max(1, k.shape[2] // _LEAST_KEYS)
    counts = sorted({own, *(count for count in _COUNTS if count <= most)})
    one = {**inputs, **{name: inputs[name].flatten(0, 1).unsqueeze(0) for name in ("q", "k", "v")}}
    with_count = {str(count): {**one, "num_splits": count} for count in counts}
    return str(own), {**with_count, str(own): {**one, "num_splits": None}}


# ---- the least work a case takes ----


def work(case: Mapping[str, Any]) -> dict[str, int]:
    """Least bytes to move and operations to do: visible keys only, each key and value read once."""
    B, H, Hkv, Sq, _, D = _sizes(case)
    size = _DTYPES[case.get("dtype", "float16")].itemsize
    kv_size = 1 if case.get("kv_dtype") else size
    lengths, window = _lengths(case), case.get("window")

    def pairs(length: int) -> int:
        if not case.get("causal", False):
            return Sq * length
        # The last rows of a bottom-right mask see length, length - 1, … keys, or a window of them.
        seen = range(length, max(length - Sq, 0), -1)
        return sum(seen) if window is None else sum(min(keys, window) for keys in seen)

    seen = [range(*ends) for ends in zip(_first_keys(case), lengths, strict=True)] if Sq else []
    keys = sum(map(len, seen))
    if case.get("layout") == "expanded":
        stored_kv = max(map(len, seen), default=0) if Hkv else 0
    else:
        stored_kv = Hkv * keys
        if case.get("page_size") is not None and Sq:
            ends = [pages * case["page_size"] for pages in _shared_pages(case)]
            shared = [of[: max(0, end - of.start)] for of, end in zip(seen, ends, strict=True)]
            stored_kv -= Hkv * (sum(map(len, shared)) - len(set().union(*shared)))
    rows = B * H * Sq
    return {
        "bytes": 2 * D * (size * rows + kv_size * stored_kv) + 4 * rows,
        "flops": 4 * D * H * sum(pairs(length) for length in lengths),
    }
