"""What is right for Split-K attention: the float64 reference, the size of rounding errors, and
torch's attention as the yardstick. Nothing here knows the operator."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

# Torch's attention as the yardstick. Not cuDNN's: it builds a plan for each new shape.
_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_NUMBERS_AT_A_TIME = 1 << 23  # of scores, or of keys and values, in a tensor of the reference
# Of keys or values that are converted at a time: on the CPU they stay in the L2 cache, on a card
# more of them need fewer launches.
_BLOCK = {"cpu": 1 << 17, "cuda": _NUMBERS_AT_A_TIME}


def reference(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Attention in float64 with an exact softmax; shares nothing with the implementation."""
    Hkv = inputs["k"].shape[1]
    out, lse = _without_keys(inputs, torch.float64, torch.float64)
    for part, scores, _, values in scores_of(inputs, torch.float64):
        logits, n = _with_sinks(inputs, part, scores), scores.shape[-1]
        rows_of(lse, Hkv, part).copy_(logits.logsumexp(dim=-1))
        some = ~(logits == -math.inf).all(dim=-1, keepdim=True)
        finite = _finite(values)
        made = torch.where(some, weighted(logits.softmax(dim=-1)[..., :n], finite), 0)
        if finite is not values:
            # Apart from the sums: a matrix product would multiply hidden ones by 0, giving NaN.
            seen = (scores > -math.inf).double()
            for infinity in (math.inf, -math.inf):
                there = seen @ (values == infinity).double() > 0
                made += torch.where(there, infinity, 0)
            made.masked_fill_((seen @ values.isnan().double() > 0) & some, math.nan)
        rows_of(out, Hkv, part).copy_(made)
    return {"out": out, "lse": lse}


def error_scale(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The size of the terms that each element is a sum of, before anything cancels.

    LSE, ``(B, H, Sq)``: logits are float32. By Cauchy-Schwarz no partial sum of a logit's products
    exceeds ``|scale| |q| |k|``, so the logit may be off by one unit of that. A softcap lets less of
    it through, and rounds the logit four times. The LSE may be off by as much as it moves when
    every logit does. For a row that sees one key that is the one logit.

    Output, ``(B, H, Sq, Dv)``: a sum of weights times values. Each product is rounded relative to
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
    of_out = of_lse.new_zeros((*q.shape[:3], inputs["v"].shape[3]))
    lengths = _finite(q.double().norm(dim=-1))
    for part, scores, keys, values in scores_of(inputs, torch.float64):
        norms = [keys[:, block].double().norm(dim=-1) for block in _blocks(keys)]
        of_keys = _finite(torch.cat(norms, dim=-1))
        delta = float32.eps * scale * rows_of(lengths, Hkv, part)[..., None] * of_keys[..., None, :]
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
        rows_of(of_lse, Hkv, part).copy_(_finite(moved_lse / float32.eps))

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
        rows_of(of_out, Hkv, part).copy_(_finite(products + digits * in_float32))
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


def rows_of(t: Tensor, Hkv: int, part: _Part) -> Tensor:
    """A part of ``t``, ``(B, H, Sq, ...)``, as ``(heads, rows, ...)``: a view if ``t`` is
    contiguous."""
    B, H, Sq, *rest = t[part.entries].shape
    return t[part.entries].reshape(B * Hkv, H // Hkv * Sq, *rest)[part.heads, part.rows]


def scores_of(
    inputs: Mapping[str, Any], dtype: torch.dtype
) -> Iterator[tuple[_Part, Tensor, Tensor, Tensor]]:
    """Every row that has keys, some at a time: which; their logits ``(heads, rows, keys)``, -inf
    where a key is hidden, in ``dtype``; and the keys and values of the heads, ``(heads, keys, D)``
    and ``(heads, keys, Dv)``, in their own type."""
    q, k, v, scale = inputs["q"], inputs["k"], inputs["v"], _scale(inputs)
    _, H, Sq, D = q.shape
    Hkv, Dv = k.shape[1], v.shape[3]
    rows = H // Hkv * Sq if Hkv else 0
    for entries, length in equal_lengths(inputs):
        if length * rows == 0:
            continue
        rows_at_a_time = max(1, min(rows, _NUMBERS_AT_A_TIME // length))
        numbers = length * max(rows_at_a_time, D + Dv)
        heads_at_a_time = max(1, _NUMBERS_AT_A_TIME // numbers)
        heads = (entries.stop - entries.start) * Hkv
        keys, values = (t[entries, :, :length].flatten(0, 1) for t in (k, v))
        for head, row in product(range(0, heads, heads_at_a_time), range(0, rows, rows_at_a_time)):
            some = slice(head, min(head + heads_at_a_time, heads))
            part = _Part(entries, some, slice(row, min(row + rows_at_a_time, rows)))
            queries = rows_of(q, Hkv, part).to(dtype)
            scores = queries.new_empty((*queries.shape[:2], length))
            for block in _blocks(keys[some]):
                scores[..., block] = queries @ keys[some, block].to(dtype).mT
            scores *= scale
            if (softcap := inputs.get("softcap")) is not None:
                scores.div_(softcap).tanh_().mul_(softcap)
            if inputs["causal"]:
                scores.masked_fill_(~_visible(inputs, length, entries, part.rows), -math.inf)
            yield part, scores, keys[some], values[some]


def _with_sinks(inputs: Mapping[str, Any], part: _Part, scores: Tensor) -> Tensor:
    """The logits of some rows and then that of the sink, if there is one."""
    q, sinks = inputs["q"], inputs.get("sinks")
    if sinks is None:
        return scores
    of_rows = sinks.to(scores.dtype)[:, None].expand(q.shape[:3])
    return torch.cat([scores, rows_of(of_rows, inputs["k"].shape[1], part)[..., None]], dim=-1)


def _without_keys(
    inputs: Mapping[str, Any], dtype: torch.dtype, lse_dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Output and LSE of rows that see no key."""
    q, sinks = inputs["q"], inputs.get("sinks")
    out = q.new_zeros((*q.shape[:3], inputs["v"].shape[3]), dtype=dtype)
    lse = torch.full(q.shape[:3], -math.inf, dtype=lse_dtype, device=q.device)
    if sinks is not None:
        lse[...] = sinks[:, None]
        out[lse.isnan()] = math.nan
    return out, lse


def _blocks(t: Tensor) -> Iterator[slice]:
    """Ranges of the keys of ``t``, ``(heads, keys, columns)``."""
    heads, keys, columns = t.shape
    at_a_time = max(1, _BLOCK[t.device.type] // max(heads * columns, 1))
    for first in range(0, keys, at_a_time):
        yield slice(first, first + at_a_time)


def weighted(weights: Tensor, values: Tensor) -> Tensor:
    """The product of weights ``(heads, rows, keys)`` and values ``(heads, keys, Dv)``, in the type
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
        plain = inputs.get("window") is None and inputs.get("tree_mask") is None
        masked = inputs["causal"] and (keys.shape[2] != Sq or not plain)
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

    for entries, length in equal_lengths(inputs):
        if length == 0 or q.numel() == 0 or eager:
            continue
        keys, visible = k[entries, :, :length], _visible(inputs, length, entries)
        out[entries] = attend(entries, keys, visible)
        if not _is_finite(keys):
            finite = keys.isfinite()
            # Torch's mask does not hide a non-finite key: rows that do not see it could be NaN, and
            # their error would say nothing. They are computed again with a finite key.
            bad = (~finite).any(dim=-1).float()  # (entries, Hkv, keys)
            seen = (bad @ visible.float().T > 0).repeat_interleave(group, dim=1)
            again = attend(entries, torch.where(finite, keys, 0), visible)
            out[entries] = torch.where(seen[..., None], out[entries], again)
    for part, scores, keys, values in scores_of(inputs, torch.float32):
        logits, made = _with_sinks(inputs, part, scores), rows_of(out, Hkv, part)
        of_lse = logits.logsumexp(dim=-1)
        rows_of(lse, Hkv, part).copy_(of_lse)
        if eager:
            weights = logits.softmax(dim=-1)[..., : scores.shape[-1]].to(q.dtype)
            made.copy_(weighted(weights.float(), torch.where(values.isnan(), 0, values)))
        if not _is_finite(values):
            # Apart from the sums: in a matrix product hidden NaNs count too, as 0 times NaN.
            visible = _visible(inputs, keys.shape[1], part.entries, part.rows).float()
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


def equal_lengths(inputs: Mapping[str, Any]) -> Iterator[tuple[slice, int]]:
    """Runs of batch entries that have the same number of valid keys, and that number; entries with
    a tree mask each alone."""
    B, Skv, lengths = inputs["q"].shape[0], inputs["k"].shape[2], inputs["kv_lengths"]
    first, of_entries = 0, [Skv] * B if lengths is None else lengths.tolist()
    for (_, length), run in groupby(
        ((b if inputs.get("tree_mask") is not None else 0, n) for b, n in enumerate(of_entries))
    ):
        end = first + len(list(run))
        yield slice(first, end), length
        first = end


def _visible(
    inputs: Mapping[str, Any], length: int, entries: slice, rows: slice | None = None
) -> Tensor:
    """Which of ``length`` valid keys each query, or each of some rows, of the entries sees:
    ``(rows, keys)``."""
    q = inputs["q"]
    Sq = q.shape[2]
    of = slice(0, Sq) if rows is None else rows
    queries = torch.arange(of.start, of.stop, device=q.device)[:, None] % Sq
    keys = torch.arange(length, device=q.device)
    if not inputs["causal"]:
        return keys < queries + length
    last = queries + length - Sq
    window = length if inputs.get("window") is None else inputs.get("window")
    visible = (keys <= last) & (keys > last - window)
    if inputs.get("tree_mask") is None:
        return visible
    words = inputs["tree_mask"][entries.start][queries[:, 0]]  # (rows, words)
    bit = keys - length + 64 * words.shape[1]
    word = words[:, (bit // 64).clamp(min=0)]
    return visible & ((bit < 0) | ((word >> bit % 64) % 2 != 0))
