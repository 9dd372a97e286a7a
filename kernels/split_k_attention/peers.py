"""Other attention implementations (peers) on this harness's inputs, called as documented.

A peer is a function of the inputs that returns the call to time, or the reason why it cannot run.
Work that a serving system does once per step or model (masks, plans, page tables, compilation) is
done before the call and is not timed. A call returns the output as ``(B, H, Sq, D)``, or of packed
queries as ``(total_q, H, D)``.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

Inputs = Mapping[str, Any]
Call = Callable[[], Tensor]
Peer = Callable[[Inputs], Call | str]

_FLASHINFER_WORKSPACE_BYTES = 512 << 20  # one KV head over 64k keys needs 256 MiB
_FLASHINFER_DIMS = (64, 128, 256)
_PAGE = 16  # keys per page, as in serving systems, where the case has no pages
_XQA_PAGES = (16, 32, 64, 128)
_XQA_QUERIES = 32  # of an entry: the tokens of speculative decoding

# What a peer is not called with unless it says that it takes it.
_OPTIONS = ("block_table", "window", "softcap", "sinks", "cu_seqlens_q", "tree_mask")
_8_BITS = "keys and values of 8 bits"
_WRAPPED = ("block_table", "window", "softcap", "cu_seqlens_q", _8_BITS)  # by FlashInfer
_FA3_BUILD = "fa3_fwd_config"
_NO_PAGES = "takes contiguous keys: copying pages together first is another problem"


# ---- torch ----


def sdpa(inputs: Inputs) -> Call | str:
    """Torch's SDPA with its default backend; a mask only if the shape needs one."""
    if reason := _refused(inputs, pages=_NO_PAGES):
        return reason
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    B, H, Sq, _ = q.shape
    Skv = k.shape[2]
    mask: Tensor | None = None
    square = inputs["causal"] and Sq == Skv and inputs["kv_lengths"] is None
    if inputs["kv_lengths"] is not None:
        seen = _seen(inputs)
        mask = torch.arange(Skv, device=q.device) < seen.view(B, 1, Sq, 1)
    elif inputs["causal"] and not square and Sq > 1:  # one query sees every key
        mask = torch.ones(Sq, Skv, dtype=torch.bool, device=q.device).tril(Skv - Sq)
    scale = _scale(inputs)
    gqa = k.shape[1] != H
    return lambda: scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=square, scale=scale, enable_gqa=gqa
    )


def sdpa_repeated(inputs: Inputs) -> Call | str:
    """Torch's SDPA on keys and values whose heads are repeated before the call, untimed.

    On the CPU this is faster than ``enable_gqa``, although it reads more memory.
    """
    group = inputs["q"].shape[1] // inputs["k"].shape[1]
    if inputs["q"].device.type != "cpu" or group == 1:
        return "for grouped heads on the CPU"
    repeated = {name: inputs[name].repeat_interleave(group, dim=1) for name in ("k", "v")}
    return sdpa({**inputs, **repeated})


def _backend(backend: SDPBackend, inputs: Inputs) -> Call | str:
    """Torch's SDPA with one fixed backend."""
    if inputs["q"].device.type != "cuda":
        return "needs a card"
    body = sdpa(inputs)
    if isinstance(body, str):
        return body

    def run() -> Tensor:
        with sdpa_kernel(backend):
            return body()

    return run


# ---- FlashAttention-3 ----


def fa3(inputs: Inputs) -> Call | str:
    """FlashAttention-3 (package fa3-fwd) with its default number of splits.

    With lengths, pages or packed queries its schedule (``scheduler_metadata``) is computed before:
    a model does that once a step, for all of its layers.
    """
    packed, table = (inputs.get(name) for name in ("cu_seqlens_q", "block_table"))
    window, softcap = (inputs.get(name) for name in ("window", "softcap"))
    q, (k, v) = inputs["q"], _stored(inputs)
    if not _on_hopper(q):
        return "needs a card of compute capability 9.0"
    if k.dtype != q.dtype:
        return "takes keys and values of 8 bits beside queries of 8 bits only"
    if reason := _refused(inputs, "block_table", "window", "softcap", "cu_seqlens_q"):
        return reason
    if q.dtype != torch.bfloat16:
        return f"its wheel takes bfloat16, not {_name(q.dtype)}"
    if q.shape[3] % 8:
        return f"takes head dimensions that are multiples of 8, not {q.shape[3]}"
    interface, built = (_installed(name, "fa3-fwd") for name in ("fa3_fwd_interface", _FA3_BUILD))
    if isinstance(interface, str):
        return interface
    for part, given in (("PAGEDKV", table), ("LOCAL", window)):
        if given is not None and built.CONFIG["build_flags"][f"FLASHATTENTION_DISABLE_{part}"]:
            what = "pages" if given is table else "windows"
            return f"its wheel is built without {what} (FLASHATTENTION_DISABLE_{part})"
    B, H, Sq, D = q.shape
    options: dict[str, Any] = {"causal": inputs["causal"], "num_splits": 0}
    if window is not None:
        options["window_size"] = (window - 1, 0)
    called: dict[str, Any] = {"softmax_scale": _scale(inputs), "softcap": softcap or 0.0}
    if table is not None:
        called["page_table"] = _table(inputs)
    if packed is not None:
        called |= {"cu_seqlens_q": packed, "max_seqlen_q": Sq}
    if any(given is not None for given in (inputs["kv_lengths"], table, packed)):
        lengths = _lengths(inputs).int()
        schedule = interface.get_scheduler_metadata(
            B, Sq, inputs["k"].shape[2], H, k.shape[1], D, lengths,
            qkv_dtype=q.dtype, headdim_v=v.shape[3], cu_seqlens_q=packed,
            page_size=None if table is None else k.shape[2], has_softcap=softcap is not None,
            **options,
        )  # fmt: skip
        called |= {"cache_seqlens": lengths, "scheduler_metadata": schedule}
    rows = q.transpose(1, 2) if packed is None else inputs["q_packed"]  # (B, S, H, D), (S, H, D)
    keys = (k.transpose(1, 2), v.transpose(1, 2))  # (B or pages, S, Hkv, D)

    def run() -> Tensor:
        out: Tensor = interface.flash_attn_with_kvcache(rows, *keys, **called, **options)
        return out if packed is not None else out.transpose(1, 2)

    return run


# ---- FlashInfer ----


def flashinfer(inputs: Inputs, backend: str = "auto") -> Call | str:
    """FlashInfer's single-request kernels; with several queries, its default or ``backend``."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    if reason := _refused(inputs, "softcap", pages="is flashinfer_batch or flashinfer_prefill"):
        return reason
    package = _flashinfer_for(inputs)
    if isinstance(package, str):
        return package
    if q.shape[0] != 1 or inputs["kv_lengths"] is not None:
        return "takes one request of full length"
    if not all(t.is_contiguous() for t in (q, k, v)):
        return "takes contiguous tensors"
    keys, values, options = k[0], v[0], _logits(inputs)  # (Hkv, S, D): its layout HND
    if q.shape[2] == 1:
        one = q[0, :, 0]
        options |= {"kv_layout": "HND", "use_tensor_cores": _on_tensor_cores(inputs)}
        return lambda: package.single_decode_with_kv_cache(one, keys, values, **options).view(
            q.shape
        )
    # FlashInfer's Hopper kernels for one request always read sizes as layout NHD: in HND the head
    # count is wrong. So pass NHD views. The kernels take strides, so only the queries are copied.
    keys, values = keys.transpose(0, 1), values.transpose(0, 1)
    rows = q[0].transpose(0, 1).contiguous()  # (Sq, H, D)
    options |= {"causal": inputs["causal"], "backend": backend}

    def run() -> Tensor:
        out: Tensor = package.single_prefill_with_kv_cache(rows, keys, values, **options)
        return out.transpose(0, 1).unsqueeze(0)

    return run


def flashinfer_fa2(inputs: Inputs) -> Call | str:
    """FlashInfer's FA2 kernels on Hopper. They split the keys when there are few queries; the FA3
    kernels, its default on Hopper, do not."""
    if inputs["q"].shape[2] == 1 or not _on_hopper(inputs["q"]):
        return "is the default of flashinfer here"
    return flashinfer(inputs, backend="fa2")


def flashinfer_batch(inputs: Inputs) -> Call | str:
    """FlashInfer's batch decoding over pages, the case's own or pages of 16; plan and pages are
    made before the call."""
    if reason := _refused(inputs, *_WRAPPED):
        return reason
    package = _flashinfer_for(inputs)
    if isinstance(package, str):
        return package
    if set(_queries(inputs)) != {1}:
        return "decodes one query an entry"
    pages = _pages(inputs)
    if isinstance(pages, str):
        return pages
    decode = _decode(package, inputs, pages, _rows(inputs))
    return lambda: _returned(inputs, decode())


def flashinfer_prefill(inputs: Inputs, backend: str = "auto") -> Call | str:
    """FlashInfer's batch prefill, its default kernels or those of ``backend``: over the case's
    pages, or over keys that are packed before the call (ragged)."""
    paged = inputs.get("block_table") is not None
    if reason := _refused(inputs, *(_WRAPPED if paged else ("softcap", "cu_seqlens_q"))):
        return reason
    package = _flashinfer_for(inputs)
    if isinstance(package, str):
        return package
    queries = _queries(inputs)
    if set(queries) == {1}:
        return "is for several queries an entry: decoding is flashinfer_batch"
    if len(queries) == 1 and not paged:
        return "is for batches and pages: one request is flashinfer"
    rows = _rows(inputs)
    if paged:
        pages = _pages(inputs)
        if isinstance(pages, str):
            return pages
        prefill = _prefill(package, inputs, pages, queries, rows, backend)
    else:
        prefill = _ragged(package, inputs, queries, rows, backend)
    return lambda: _returned(inputs, prefill())


def flashinfer_prefill_fa2(inputs: Inputs) -> Call | str:
    """FlashInfer's batch prefill with its FA2 kernels on Hopper, which split the keys."""
    if not _on_hopper(inputs["q"]) or _stored(inputs)[0].dtype != inputs["q"].dtype:
        return "is the default of flashinfer_prefill here"
    return flashinfer_prefill(inputs, backend="fa2")


def flashinfer_mixed(inputs: Inputs) -> Call | str:
    """FlashInfer for a batch that decodes beside prompts, as vLLM calls it: batch decoding for the
    first entries, of one query each, then batch prefill for the others."""
    if reason := _refused(inputs, *_WRAPPED):
        return reason
    package = _flashinfer_for(inputs)
    if isinstance(package, str):
        return package
    queries = _queries(inputs)
    first = len(list(takewhile(lambda count: count == 1, queries)))
    if not 0 < first < len(queries) or inputs.get("block_table") is None:
        return "is for entries of one query that come before others, over pages"
    pages = _pages(inputs)
    if isinstance(pages, str):
        return pages
    rows = _rows(inputs)
    out = torch.empty_like(rows)
    decode = _decode(package, inputs, pages.of(slice(first)), rows[:first], out[:first])
    prefill = _prefill(
        package, inputs, pages.of(slice(first, None)), queries[first:], rows[first:], "auto",
        out[first:],
    )  # fmt: skip

    def run() -> Tensor:
        decode()
        prefill()
        return out

    return run


def flashinfer_xqa(inputs: Inputs) -> Call | str:
    """FlashInfer's XQA kernels, from TensorRT-LLM, which ``trtllm_batch_decode_with_kv_cache``
    chooses on Hopper, over the case's pages or pages of 16 that are filled before the call. Beside
    keys of 8 bits they compute in 8 bits."""
    if reason := _refused(inputs, "block_table", "window", "cu_seqlens_q", _8_BITS):
        return reason
    package = _flashinfer_for(inputs)
    if isinstance(package, str):
        return package
    count, *others = sorted(set(_queries(inputs)))
    if others or count > _XQA_QUERIES or (count > 1 and not inputs["causal"]):
        return f"takes as many queries of each entry, up to {_XQA_QUERIES} under a causal mask"
    pages = _pages(inputs)
    if isinstance(pages, str):
        return pages
    if pages.size not in _XQA_PAGES:
        return f"takes pages of {', '.join(map(str, _XQA_PAGES))} keys, not {pages.size}"
    if pages.keys[0].dtype == torch.float8_e5m2:
        return "takes float8_e4m3fn, not float8_e5m2"
    q, scales = inputs["q"], pages.scales
    options: dict[str, Any] = {"bmm1_scale": _scale(inputs) * scales.get("k_scale", 1.0)}
    if scales:
        options["bmm2_scale"] = scales["v_scale"]
    if inputs.get("window") is not None:
        options["window_left"] = inputs["window"] - 1
    if count > 1:
        # A word of 32 bits for each query: which of the entry's queries it sees.
        words = torch.tensor([(2 << i) - 1 for i in range(count)], device=q.device)
        mask = words.to(torch.uint32).view(torch.uint16).view(1, count, 2)
        options |= {"q_len_per_req": count, "mask": mask.expand(q.shape[0], -1, -1).contiguous()}
    decode = functools.partial(
        package.decode.trtllm_batch_decode_with_kv_cache,
        _rows(inputs),
        pages.keys,
        _flashinfer_workspace(q.device, "xqa"),
        pages.table,
        _lengths(inputs).to(torch.uint32),
        max(pages.lengths),
        kv_layout=pages.layout,
        backend="xqa",
        **options,
    )
    return lambda: _returned(inputs, decode())


def _decode(
    package: Any, inputs: Inputs, pages: _Pages, rows: Tensor, out: Tensor | None = None
) -> Call:
    """Planned batch decoding, of a row an entry."""
    wrapper = package.BatchDecodeWithPagedKVCacheWrapper(
        _flashinfer_workspace(rows.device, "batch"),
        kv_layout=pages.layout,
        use_tensor_cores=_on_tensor_cores(inputs),
    )
    wrapper.plan(
        *pages.plan(),
        *_heads(inputs),
        pages.size,
        q_data_type=rows.dtype,
        kv_data_type=pages.keys[0].dtype,
        **_logits(inputs),
    )
    if out is None:
        out = torch.empty_like(rows)
    return functools.partial(wrapper.run, rows, pages.keys, out=out, **pages.scales)


def _prefill(
    package: Any, inputs: Inputs, pages: _Pages, queries: list[int], rows: Tensor, backend: str,
    out: Tensor | None = None,
) -> Call:  # fmt: skip
    """Planned batch prefill over pages, of as many rows an entry as ``queries`` says."""
    wrapper = package.BatchPrefillWithPagedKVCacheWrapper(
        _flashinfer_workspace(rows.device, "batch"), kv_layout=pages.layout, backend=backend
    )
    wrapper.plan(
        _bounds(queries, rows.device),
        *pages.plan(),
        *_heads(inputs),
        pages.size,
        causal=inputs["causal"],
        q_data_type=rows.dtype,
        kv_data_type=pages.keys[0].dtype,
        **_logits(inputs),
    )
    if out is None:
        out = torch.empty_like(rows)
    return functools.partial(wrapper.run, rows, pages.keys, out=out, **pages.scales)


def _ragged(package: Any, inputs: Inputs, queries: list[int], rows: Tensor, backend: str) -> Call:
    """Planned batch prefill over keys of all entries one after the other."""
    lengths = _lengths(inputs).tolist()
    keys = [
        torch.cat([t[b, :, :length].transpose(0, 1) for b, length in enumerate(lengths)])
        for t in (inputs["k"], inputs["v"])
    ]  # (keys, Hkv, D)
    wrapper = package.BatchPrefillWithRaggedKVCacheWrapper(
        _flashinfer_workspace(rows.device, "batch"), kv_layout="NHD", backend=backend
    )
    wrapper.plan(
        _bounds(queries, rows.device),
        _bounds(lengths, rows.device),
        *_heads(inputs),
        causal=inputs["causal"],
        q_data_type=rows.dtype,
        kv_data_type=keys[0].dtype,
        **_logits(inputs),
    )
    return functools.partial(wrapper.run, rows, *keys, out=torch.empty_like(rows))


@dataclass(frozen=True)
class _Pages:
    """Keys and values in pages, and where each entry's are."""

    keys: tuple[Tensor, Tensor]
    """Both (pages, size, Hkv, D) in layout NHD, (pages, Hkv, size, D) in HND."""
    layout: str
    size: int
    table: Tensor
    """The pages of each entry, (B, columns), int32; past its last and before its window any of
    them."""
    lengths: list[int]
    scales: dict[str, float]
    """``k_scale`` and ``v_scale``, where keys of 8 bits have any."""

    def of(self, entries: slice) -> _Pages:
        """Those of some entries."""
        return replace(self, table=self.table[entries], lengths=self.lengths[entries])

    def plan(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where the pages of each entry begin and end among those of all, all of them, and the
        keys in the last of each entry: FlashInfer's indptr, indices and last_page_len."""
        counts = [-(-length // self.size) for length in self.lengths]
        columns = torch.arange(self.table.shape[1], device=self.table.device)
        used = columns < torch.tensor(counts, device=columns.device)[:, None]
        last = [(length - 1) % self.size + 1 for length in self.lengths]
        return (
            _bounds(counts, columns.device),
            self.table[used],
            torch.tensor(last, dtype=torch.int32, device=columns.device),
        )


def _pages(inputs: Inputs) -> _Pages | str:
    """The case's own pages, or pages of 16 that are filled with its keys; or why it has none."""
    lengths, table = _lengths(inputs).tolist(), inputs.get("block_table")
    if min(lengths) == 0:
        return "an entry without keys has no page"
    if min(_queries(inputs)) == 0:
        return "an entry without queries has no page"
    given = {name: t for name in ("k_scale", "v_scale") if (t := inputs.get(name)) is not None}
    if any(t.numel() > 1 for t in given.values()):
        return "takes one scale for all heads"
    scales = {name: float(t) for name, t in given.items()}
    k, v = _stored(inputs)
    if table is None:
        if inputs.get("window") is not None:
            return "is called with a window over pages only"
        starts = [0, *accumulate(-(-length // _PAGE) for length in lengths)]
        columns = torch.arange(-(-max(lengths) // _PAGE))
        ends = torch.tensor(starts[1:])[:, None] - 1
        numbers = torch.minimum(torch.tensor(starts[:-1])[:, None] + columns, ends)
        keys = (_paged(k, lengths), _paged(v, lengths))
        return _Pages(keys, "HND", _PAGE, numbers.int().to(k.device), lengths, scales)
    size = k.shape[2]
    if all(t.transpose(1, 2).is_contiguous() for t in (k, v)):
        keys, layout = (k.transpose(1, 2), v.transpose(1, 2)), "NHD"
    elif all(t.is_contiguous() for t in (k, v)):
        keys, layout = (k, v), "HND"
    else:
        return "takes contiguous pages"
    return _Pages(keys, layout, size, _table(inputs), lengths, scales)


def _table(inputs: Inputs) -> Tensor:
    """The case's block table, which names pages of nobody where no query looks; here it names
    another page of the entry."""
    table: Tensor = inputs["block_table"]
    size = inputs["k_pages"].shape[2]
    first, end = (t[:, None] for t in seen_keys(inputs))
    first = (first // size).clamp_max(table.shape[1] - 1)
    columns = torch.arange(table.shape[1], device=table.device)
    named = (columns >= first) & (columns * size < end)
    return torch.where(named, table, table.gather(1, first))


def _paged(t: Tensor, lengths: list[int]) -> Tensor:
    """Keys or values ``(B, Hkv, Skv, D)`` as pages ``(pages, Hkv, 16, D)``. Pages of an entry are
    consecutive; the last one is padded with 0."""
    heads, _, D = t.shape[1:]
    bits = t.view(torch.uint8) if t.dtype.itemsize == 1 else t  # torch pads no 8-bit floats
    entries = []
    for entry, length in zip(bits, lengths, strict=True):
        filled = pad(entry[:, :length], (0, 0, 0, -length % _PAGE))
        entries.append(filled.reshape(heads, -1, _PAGE, D).transpose(0, 1))
    return torch.cat(entries).view(t.dtype)


def _flashinfer_for(inputs: Inputs) -> Any:
    """The package, or the reason why it does not take these inputs."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    if q.device.type != "cuda":
        return "needs a card"
    if q.dtype not in {torch.float16, torch.bfloat16}:
        return f"takes float16 and bfloat16, not {_name(q.dtype)}"
    if q.shape[3] not in _FLASHINFER_DIMS:
        return f"takes head dimensions {', '.join(map(str, _FLASHINFER_DIMS))}, not {q.shape[3]}"
    if v.shape != k.shape:
        return "is not called with v of another head dimension than k"
    return _installed("flashinfer", "flashinfer-python")


@functools.cache
def _flashinfer_workspace(device: torch.device, kernels: str) -> Tensor:
    """A workspace for each kind of kernel: XQA keeps semaphores in its own, 0 between calls."""
    return torch.zeros(_FLASHINFER_WORKSPACE_BYTES, dtype=torch.uint8, device=device)


def _on_tensor_cores(inputs: Inputs) -> bool:
    """Whether to use tensor cores for decoding: from 4 query heads per KV head on, and for keys of
    8 bits always, as serving systems do. Its authors recommend it for more than 4."""
    grouped = inputs["q"].shape[1] // inputs["k"].shape[1] >= 4
    return bool(grouped or _stored(inputs)[0].dtype.itemsize == 1)


def _logits(inputs: Inputs) -> dict[str, Any]:
    """Scale, window and softcap, where the case has them."""
    options: dict[str, Any] = {"sm_scale": _scale(inputs)}
    if inputs.get("window") is not None:
        options["window_left"] = inputs["window"] - 1  # beside the query's own key
    if inputs.get("softcap") is not None:
        options["logits_soft_cap"] = inputs["softcap"]
    return options


def _heads(inputs: Inputs) -> tuple[int, int, int]:
    """Query heads, KV heads, and their dimension."""
    _, H, _, D = inputs["q"].shape
    return H, inputs["k"].shape[1], D


def _bounds(counts: list[int], device: torch.device) -> Tensor:
    """Where each run of as many begins and the last one ends, from 0, in int32."""
    return torch.tensor([0, *accumulate(counts)], dtype=torch.int32, device=device)


def _rows(inputs: Inputs) -> Tensor:
    """The queries one after the other, ``(queries, H, D)``."""
    if inputs.get("cu_seqlens_q") is not None:
        packed: Tensor = inputs["q_packed"]
        return packed.contiguous()
    q: Tensor = inputs["q"]
    return q.transpose(1, 2).flatten(0, 1).contiguous()


def _returned(inputs: Inputs, rows: Tensor) -> Tensor:
    """The output of ``_rows`` in the shape that the harness expects."""
    if inputs.get("cu_seqlens_q") is not None:
        return rows
    B, _, Sq, _ = inputs["q"].shape
    return rows.unflatten(0, (B, Sq)).transpose(1, 2)


# ---- FlexAttention ----


def flex(inputs: Inputs) -> Call | str:
    """Torch's FlexAttention, compiled for the shape. The block mask is made before the call."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    if q.device.type != "cuda":
        return "compiles for a card"
    if reason := _refused(inputs, pages="takes pages as an experiment of torch's only"):
        return reason
    if q.shape[3] < 16:
        return f"takes head dimensions from 16 on, not {q.shape[3]}"
    from torch.nn.attention.flex_attention import create_block_mask

    B, H, Sq, _ = q.shape
    Skv = k.shape[2]
    mask = None
    # The kernel for fewer than 128 queries splits the keys by blocks of the mask. Without a mask
    # there is one block of 2^30 keys, so one split gets all keys.
    if inputs["kv_lengths"] is not None or inputs["causal"] or Sq < 128:
        seen = _seen(inputs)

        def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return j < seen[b, i]

        batch = None if inputs["kv_lengths"] is None else B
        mask = create_block_mask(sees, batch, None, Sq, Skv, device=str(q.device))
    options = {"block_mask": mask, "scale": _scale(inputs), "enable_gqa": k.shape[1] != H}
    compiled = _compiled_flex()
    return lambda: compiled(q, k, v, **options)


@functools.cache
def _compiled_flex() -> Callable[..., Tensor]:
    from torch._dynamo import config
    from torch.nn.attention.flex_attention import flex_attention

    # Each shape is compiled separately. From the ninth on, torch would run uncompiled with only a
    # warning; ``fullgraph`` makes that an error.
    config.recompile_limit = config.accumulated_recompile_limit = 4096
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


PEERS: dict[str, Peer] = {
    "sdpa": sdpa,
    "sdpa_repeated": sdpa_repeated,
    "flash": functools.partial(_backend, SDPBackend.FLASH_ATTENTION),
    "cudnn": functools.partial(_backend, SDPBackend.CUDNN_ATTENTION),
    "efficient": functools.partial(_backend, SDPBackend.EFFICIENT_ATTENTION),
    "math": functools.partial(_backend, SDPBackend.MATH),
    "fa3": fa3,
    "flashinfer": flashinfer,
    "flashinfer_fa2": flashinfer_fa2,
    "flashinfer_batch": flashinfer_batch,
    "flashinfer_prefill": flashinfer_prefill,
    "flashinfer_prefill_fa2": flashinfer_prefill_fa2,
    "flashinfer_mixed": flashinfer_mixed,
    "flashinfer_xqa": flashinfer_xqa,
    "flex": flex,
}
"""Arm → peer."""


# ---- shared helpers ----


def _refused(inputs: Inputs, *taken: str, pages: str | None = None) -> str | None:
    """Why a peer is not called with these inputs: they have what is not among ``taken``.

    Args:
        inputs: the inputs.
        taken: those of ``_OPTIONS``, and 8 bits, that the peer is called with.
        pages: the reason for pages. Default: as for the others.
    """
    given = [name for name in _OPTIONS if inputs.get(name) is not None and name not in taken]
    if _stored(inputs)[0].dtype.itemsize == 1 and _8_BITS not in taken:
        given.append(_8_BITS)
    bounds = inputs.get("cu_seqlens_q")
    if bounds is not None and len(inputs["q_packed"]) > int(bounds[-1]):
        given.append("rows after the last entry's")
    if "block_table" in given and pages is not None:
        return pages
    return f"is not called with {' and '.join(given)}" if given else None


def _stored(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Keys and values as the operator gets them: in pages, of 8 bits, or neither."""
    if inputs.get("block_table") is not None:
        return inputs["k_pages"], inputs["v_pages"]
    if "k_fp8" in inputs:
        return inputs["k_fp8"], inputs["v_fp8"]
    return inputs["k"], inputs["v"]


def _queries(inputs: Inputs) -> list[int]:
    """The queries of each batch entry."""
    if inputs.get("cu_seqlens_q") is not None:
        counts: list[int] = inputs["cu_seqlens_q"].diff().tolist()
        return counts
    B, _, Sq, _ = inputs["q"].shape
    return [Sq] * B


def seen_keys(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """The first key of each batch entry that a query sees, and the end of those, ``(B,)`` each."""
    ends = _lengths(inputs).long()
    queries = torch.tensor(_queries(inputs), device=ends.device)
    first = torch.zeros_like(ends)
    if inputs.get("window") is not None:
        first = (ends - queries + 1 - inputs["window"]).clamp_min(0)
    return torch.where(queries == 0, ends, first), ends


def _scale(inputs: Inputs) -> float:
    scale = inputs["scale"]
    return 1 / math.sqrt(inputs["q"].shape[3]) if scale is None else float(scale)


def _lengths(inputs: Inputs) -> Tensor:
    """Valid keys of each batch entry, ``(B,)``."""
    if inputs["kv_lengths"] is not None:
        lengths: Tensor = inputs["kv_lengths"]
        return lengths
    B, Skv = inputs["q"].shape[0], inputs["k"].shape[2]
    return torch.full((B,), Skv, dtype=torch.int32, device=inputs["q"].device)


def _seen(inputs: Inputs) -> Tensor:
    """How many keys each query sees, ``(B, Sq)``."""
    Sq = inputs["q"].shape[2]
    lengths = _lengths(inputs).unsqueeze(1)
    if not inputs["causal"]:
        return lengths.expand(-1, Sq)
    return (lengths - Sq + 1 + torch.arange(Sq, device=lengths.device)).clamp_min(0)


def _on_hopper(t: Tensor) -> bool:
    return t.device.type == "cuda" and torch.cuda.get_device_capability(t.device) == (9, 0)


def _installed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        not_found = isinstance(error, ModuleNotFoundError) and error.name == module
        return f"{package} is not installed" if not_found else f"{package} does not import: {error}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
