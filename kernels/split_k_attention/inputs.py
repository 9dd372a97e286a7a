"""The inputs of a case of Split-K attention: values, strides, pages, element types, and what lies
where no query looks."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
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
# Of numbers that are drawn at a time: on the CPU they stay in the L2 cache.
_DRAWN_AT_A_TIME = {"cpu": 1 << 17, "cuda": 1 << 23}


def make_inputs(case: Mapping[str, Any], *, device: torch.device, seed: int) -> dict[str, Any]:
    """Fresh inputs of a case; keys and values past the valid length, or before every window, are
    NaN, or infinite where the case says so.

    A case with a ``page_size`` also has ``k_pages``, ``v_pages`` and a ``block_table``, and one
    with a ``kv_dtype`` has ``k_fp8``, ``v_fp8``, ``k_scale`` and ``v_scale``: those the operator
    gets. Its ``k`` and ``v`` are the same keys and values in their order, in float32 if they are of
    8 bits, for the reference and all else.

    A case with ``q_lengths`` also has ``q_packed``, which the operator gets with ``cu_seqlens_q``
    and ``max_seqlen_q``. Its ``q`` has the queries of an entry last, after zeros: as the masks are
    aligned bottom-right, each sees there what it sees in packed ones.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype = DTYPES[case.get("dtype", "float16")]
    layout = case.get("layout", "bhsd")
    fill = case.get("fill", "random")
    B, H, Hkv, Sq, Skv, D = sizes_of(case)
    Dv = case.get("Dv") or D
    page_size = case.get("page_size")
    lengths = case.get("kv_lengths") if page_size is None else lengths_of(case)

    def values(*shape: int) -> Tensor:
        if fill == "large_logits":
            # Integers: every q.k is exact in float32, whatever the order of its sum.
            integers = torch.randint(-32, 33, shape, generator=generator, device=device)
            return integers.to(dtype)
        normal = torch.empty(shape, dtype=dtype, device=device)
        for part in normal.view(-1).split(_DRAWN_AT_A_TIME[device.type]):
            # Drawn in float32, which takes the CPU half as long as a 16-bit type does.
            drawn = torch.randn(part.shape, generator=generator, device=device)
            part.copy_(drawn.mul_(case.get("deviation", 1.0)))
        return normal

    q = values(B, H, Sq, D)
    k = values(B, Hkv, Skv, D)
    v = values(B, Hkv, Skv, Dv)
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
    tree_mask = _tree_mask(case, generator)
    packed = {} if case.get("q_lengths") is None else _packed(case, q, tree_mask)
    kv_type, scales = _FP8.get(case.get("kv_dtype", "")), _kv_scales(case, generator)
    stored_k, stored_v = k, v
    if kv_type is not None:
        stored_k, k = _quantised(k, scales["k_scale"], kv_type)
        stored_v, v = _quantised(v, scales["v_scale"], kv_type)
        beyond = _FP8_NAN
    given: dict[str, Tensor] = {}
    if page_size is not None:
        given = _pages(case, stored_k, stored_v, beyond)
        q = stored_as("bhds" if layout == "mixed" else layout, q)
    else:
        if layout == "mixed":
            q, stored_v = stored_as("bhds", q), stored_as("bshd", stored_v)
        elif layout not in {"expanded", "far_batch_out", "far_queries_out"}:
            q, stored_k, stored_v = (stored_as(layout, t) for t in (q, stored_k, stored_v))
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
        "tree_mask": tree_mask,
        **scales,
        **given,
        **packed,
    }


def _tree_mask(case: Mapping[str, Any], generator: torch.Generator) -> Tensor | None:
    """Words of 64 bits, (B, Sq, words), drawn, in which each query sees its own key."""
    words = case.get("tree_mask")
    if words is None:
        return None
    B, _, _, Sq, _, _ = sizes_of(case)
    bits = torch.randint(0, 2, (B, Sq, words * 64), generator=generator, device=generator.device)
    own = words * 64 - Sq + torch.arange(Sq, device=bits.device)
    there = own >= 0
    bits[:, there, own[there]] = 1
    powers = 1 << torch.arange(64, device=bits.device)  # the last is negative
    return (bits.unflatten(-1, (words, 64)) * powers).sum(dim=-1)


def _packed(case: Mapping[str, Any], q: Tensor, tree_mask: Tensor | None) -> dict[str, Any]:
    """The queries of all entries one after the other, and NaN after those of the last. Sets the
    others of ``q``, (B, H, Sq, D), to 0."""
    _, _, _, Sq, _, _ = sizes_of(case)
    lengths = torch.tensor(queries_of(case), dtype=torch.int32)
    bounds = torch.cat([lengths.new_zeros(1), lengths.cumsum(0, dtype=torch.int32)])
    used = (torch.arange(Sq) >= Sq - lengths[:, None]).to(q.device)  # (B, Sq)
    q.transpose(1, 2)[~used] = 0
    rows = used.flatten().nonzero().flatten()
    packed = q.transpose(1, 2).flatten(0, 1)[rows]
    beyond = packed.new_full((case.get("q_padding", 0), *packed.shape[1:]), math.nan)
    layout = case.get("layout", "bhsd")
    if layout in {"bhsd", "expanded", "far_batch_out", "far_queries_out"}:
        layout = "bshd"
    stored = as_packed(torch.cat([packed, beyond]), "bhds" if layout == "mixed" else layout)
    return {
        "q_packed": stored,
        "cu_seqlens_q": bounds.to(q.device),
        "max_seqlen_q": Sq,
        "rows": rows,
        "packed_tree_mask": None
        if tree_mask is None
        else torch.nn.functional.pad(tree_mask.flatten(0, 1)[rows], (0, 0, 0, len(beyond))),
    }


def as_packed(t: Tensor, layout: str) -> Tensor:
    """``t``, (total_q, H, D), stored as those of one batch entry."""
    return stored_as(layout, t.transpose(0, 1)[None])[0].transpose(0, 1)


def _kv_scales(case: Mapping[str, Any], generator: torch.Generator) -> dict[str, Tensor | None]:
    """The scales of keys and values of 8 bits, from 1/64 to 4; none where the case has none."""
    kind = case.get("kv_scale") if case.get("kv_dtype") else None
    shapes = {"tensor": (), "one": (1,), "head": (sizes_of(case)[2],)}
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
    return stored.view(torch.uint8), widened(stored, scale)


def widened(t: Tensor, scale: Tensor | None) -> Tensor:
    """The numbers that ``t``, (B or pages, Hkv, keys, D), of 8 bits stands for, in float32."""
    return t.float() if scale is None else t.float() * scale.view(-1, 1, 1)


def _sinks(case: Mapping[str, Any], generator: torch.Generator) -> Tensor | None:
    kind = case.get("sinks")
    if kind is None:
        return None
    sinks = torch.randn(sizes_of(case)[1], generator=generator, device=generator.device)
    if kind == "large":  # beside logits of 1 or so: most of the sum, and nothing of it
        sinks = torch.where(sinks > 0, 6.0, -30.0)  # more, and float16 would not hold the output
    if kind in {"nan", "minus_inf"}:
        sinks[::2] = math.nan if kind == "nan" else -math.inf
    return sinks


def sizes_of(case: Mapping[str, Any]) -> tuple[int, int, int, int, int, int]:
    B, H, Hkv, Sq, Skv = (int(case.get(name, 1)) for name in ("B", "H", "Hkv", "Sq", "Skv"))
    return B, H, Hkv, Sq, Skv, int(case.get("D", 64))


def lengths_of(case: Mapping[str, Any]) -> list[int]:
    """The number of valid keys of each batch entry."""
    given = case.get("kv_lengths")
    B, _, _, _, Skv, _ = sizes_of(case)
    return [Skv] * B if given is None else [int(length) for length in given]


def queries_of(case: Mapping[str, Any]) -> list[int]:
    """The number of queries of each batch entry."""
    B, _, _, Sq, _, _ = sizes_of(case)
    given = case.get("q_lengths")
    return [Sq] * B if given is None else [int(length) for length in given]


def first_keys_of(case: Mapping[str, Any]) -> list[int]:
    """The first key of each batch entry that a query sees; 0 without a window, and past the last
    page for an entry without queries among packed ones."""
    window, size = case.get("window"), case.get("page_size") or 1
    firsts = []
    for length, queries in zip(lengths_of(case), queries_of(case), strict=True):
        first = 0 if window is None else max(0, length - queries + 1 - window)
        if queries == 0 and case.get("q_lengths") is not None:
            first = -(-length // size) * size
        firsts.append(first)
    return firsts


def _hide_unseen(
    case: Mapping[str, Any], k: Tensor, v: Tensor, beyond: float
) -> tuple[Tensor, Tensor]:
    """Keys and values with ``beyond`` where no query of an entry sees them, expanded and with a
    shared prefix if the case asks for it."""
    firsts, lengths = first_keys_of(case), lengths_of(case)
    if case.get("layout") == "expanded":
        k, v = (t[:1, :1].contiguous().expand(t.shape) for t in (k, v))
        for t in (k, v):  # one storage for all: only what no entry sees
            t[0, 0, : min(firsts, default=0)] = beyond
            t[0, 0, max(lengths, default=k.shape[2]) :] = beyond
        return k, v
    if case.get("page_size") is not None:
        shared = shared_pages_of(case)
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


# How pages, (pages, Hkv, page_size, D or Dv), are stored.
_PAGE_LAYOUTS = {"nhd": "bshd", "hnd": "bhsd"}
_NO_PAGE = (-1, 2**31 - 1, -(2**31))


def shared_pages_of(case: Mapping[str, Any]) -> list[int]:
    """How many pages, from its start, each batch entry shares with the others."""
    shared, size = case.get("shared_prefix", 0), case["page_size"]
    return [min(shared, length) // size for length in lengths_of(case)]


def _pages(case: Mapping[str, Any], k: Tensor, v: Tensor, beyond: float) -> dict[str, Tensor]:
    """The same keys and values in pages, which lie in a drawn order among pages that nobody uses.
    The order is the same for each seed, so that other values can be written to the same pages.

    Those are full of ``beyond``, as are ``k`` and ``v`` past a length. Past a length and before a
    window the table, part of a wider one, names them or pages that do not exist.
    """
    _, Hkv, Skv, _ = k.shape
    size, shared = int(case["page_size"]), shared_pages_of(case)
    columns = -(-Skv // size)
    skipped = [first // size for first in first_keys_of(case)]
    used = [-(-length // size) for length in lengths_of(case)]
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
        pool = t.new_full((len(drawn), Hkv, size, t.shape[3]), beyond)
        padded = torch.nn.functional.pad(t, (0, 0, 0, columns * size - Skv), value=beyond)
        for keys, row, first, end in zip(padded, table, skipped, used, strict=True):
            pages = keys.view(Hkv, columns, size, t.shape[3]).transpose(0, 1)
            pool[row[first:end].long()] = pages[first:end]
        made[name] = stored_as(stored, pool)
    return made


def stored_as(layout: str, t: Tensor) -> Tensor:
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
