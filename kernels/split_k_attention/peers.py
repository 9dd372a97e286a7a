"""Other attention implementations (peers) on this harness's inputs, called as documented.

A peer is a function of the inputs that returns the call to time, or the reason why it cannot run.
Work that a serving system does once per step or model (masks, plans, page tables, compilation) is
done before the call and is not timed. A call returns the output as ``(B, H, Sq, D)``.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping
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
_PAGE = 16  # keys per page, as in serving systems


# ---- torch ----


def sdpa(inputs: Inputs) -> Call:
    """Torch's SDPA with its default backend; a mask only if the shape needs one."""
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

    def run() -> Tensor:
        with sdpa_kernel(backend):
            return body()

    return run


# ---- FlashAttention-3 ----


def fa3(inputs: Inputs) -> Call | str:
    """FlashAttention-3 (package fa3-fwd) with its default number of splits.

    With lengths its schedule (``scheduler_metadata``) is computed before: a model does that once a
    step, for all of its layers.
    """
    q, k, v = (inputs[name].transpose(1, 2) for name in ("q", "k", "v"))  # (B, S, H, D)
    if not _on_hopper(q):
        return "needs a card of compute capability 9.0"
    if q.dtype != torch.bfloat16:
        return f"its wheel takes bfloat16, not {_name(q.dtype)}"
    if q.shape[3] % 8:
        return f"takes head dimensions that are multiples of 8, not {q.shape[3]}"
    interface = _installed("fa3_fwd_interface", "fa3-fwd")
    if isinstance(interface, str):
        return interface
    options: dict[str, Any] = {"causal": inputs["causal"], "num_splits": 0}
    if inputs["kv_lengths"] is not None:
        (B, Sq, H, D), (_, Skv, Hkv, _) = q.shape, k.shape
        lengths = inputs["kv_lengths"].int()
        schedule = interface.get_scheduler_metadata(
            B, Sq, Skv, H, Hkv, D, lengths, qkv_dtype=q.dtype, **options
        )
        options |= {"cache_seqlens": lengths, "scheduler_metadata": schedule}
    options["softmax_scale"] = _scale(inputs)
    return lambda: interface.flash_attn_with_kvcache(q, k, v, **options).transpose(1, 2)


# ---- FlashInfer ----


def flashinfer(inputs: Inputs, backend: str = "auto") -> Call | str:
    """FlashInfer's single-request kernels; with several queries, its default or ``backend``."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    package = _flashinfer_for(inputs)
    if isinstance(package, str):
        return package
    if q.shape[0] != 1 or inputs["kv_lengths"] is not None:
        return "takes one request of full length"
    keys, values, scale = k[0], v[0], _scale(inputs)  # (Hkv, S, D): its layout HND
    if q.shape[2] == 1:
        one = q[0, :, 0]
        options = {"kv_layout": "HND", "sm_scale": scale, "use_tensor_cores": _grouped(inputs)}
        return lambda: package.single_decode_with_kv_cache(one, keys, values, **options).view(
            q.shape
        )
    # FlashInfer's Hopper kernels always read sizes as layout NHD: in HND the head count is wrong.
    # So pass NHD views. The kernels take strides, so only the queries are copied.
    keys, values = keys.transpose(0, 1), values.transpose(0, 1)
    rows = q[0].transpose(0, 1).contiguous()  # (Sq, H, D)
    options = {"sm_scale": scale, "causal": inputs["causal"], "backend": backend}

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
    """FlashInfer's batch decoding over a paged cache; plan and pages are made before the call."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    package = _flashinfer_for(inputs)
    if isinstance(package, str):
        return package
    lengths = _lengths(inputs).tolist()
    if reason := _not_decoded(q, lengths):
        return reason
    _, H, _, D = q.shape
    pages = (_paged(k, lengths), _paged(v, lengths))
    counts = torch.tensor([0, *map(_page_count, lengths)])
    last = torch.tensor([(length - 1) % _PAGE + 1 for length in lengths])
    wrapper = package.BatchDecodeWithPagedKVCacheWrapper(
        _flashinfer_workspace(q.device, "batch"), kv_layout="HND", use_tensor_cores=_grouped(inputs)
    )
    wrapper.plan(
        counts.cumsum(0).int().to(q.device),
        torch.arange(len(pages[0]), dtype=torch.int32, device=q.device),
        last.int().to(q.device),
        H, k.shape[1], D, _PAGE,
        q_data_type=q.dtype, kv_data_type=k.dtype, sm_scale=_scale(inputs),
    )  # fmt: skip
    rows = q[:, :, 0]
    return lambda: wrapper.run(rows, pages).view(q.shape)


def flashinfer_xqa(inputs: Inputs) -> Call | str:
    """FlashInfer's XQA kernels, from TensorRT-LLM, which ``trtllm_batch_decode_with_kv_cache``
    chooses on Hopper. They read a paged cache; the pages are filled before the call."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    package = _flashinfer_for(inputs)
    if isinstance(package, str):
        return package
    lengths = _lengths(inputs).tolist()
    if reason := _not_decoded(q, lengths):
        return reason
    counts = [_page_count(length) for length in lengths]
    table = torch.zeros(len(counts), max(counts), dtype=torch.int32)
    first = 0
    for row, count in zip(table, counts, strict=True):
        row[:count] = torch.arange(first, first + count)
        first += count
    decode = functools.partial(
        package.decode.trtllm_batch_decode_with_kv_cache,
        q[:, :, 0].contiguous(),
        (_paged(k, lengths), _paged(v, lengths)),
        _flashinfer_workspace(q.device, "xqa"),
        table.to(q.device),
        _lengths(inputs).to(torch.uint32),
        max(lengths),
        bmm1_scale=_scale(inputs),
        kv_layout="HND",
        backend="xqa",
    )
    return lambda: decode().view(q.shape)


def _not_decoded(q: Tensor, lengths: list[int]) -> str | None:
    """Why decoding over a paged cache cannot run these inputs, or ``None``."""
    if q.shape[2] != 1:
        return "decodes one query an entry"
    return "an entry without keys has no page" if min(lengths) == 0 else None


def _page_count(length: int) -> int:
    return -(-length // _PAGE)


def _paged(t: Tensor, lengths: list[int]) -> Tensor:
    """Keys or values ``(B, Hkv, Skv, D)`` as pages ``(pages, Hkv, 16, D)``. Pages of an entry are
    consecutive; the last one is padded with 0."""
    heads, _, D = t.shape[1:]
    entries = []
    for entry, length in zip(t, lengths, strict=True):
        filled = pad(entry[:, :length], (0, 0, 0, -length % _PAGE))
        entries.append(filled.reshape(heads, -1, _PAGE, D).transpose(0, 1))
    return torch.cat(entries)


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
    if not all(t.is_contiguous() for t in (q, k, v)):
        return "takes contiguous tensors"
    return _installed("flashinfer", "flashinfer-python")


@functools.cache
def _flashinfer_workspace(device: torch.device, kernels: str) -> Tensor:
    """A workspace for each kind of kernel: XQA keeps semaphores in its own, 0 between calls."""
    return torch.zeros(_FLASHINFER_WORKSPACE_BYTES, dtype=torch.uint8, device=device)


def _grouped(inputs: Inputs) -> bool:
    """Whether to use tensor cores: from 4 query heads per KV head on, as serving systems do. Its
    authors recommend it for more than 4."""
    return bool(inputs["q"].shape[1] // inputs["k"].shape[1] >= 4)


# ---- FlexAttention ----


def flex(inputs: Inputs) -> Call | str:
    """Torch's FlexAttention, compiled for the shape. The block mask is made before the call."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    if q.device.type != "cuda":
        return "compiles for a card"
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
    "flashinfer_xqa": flashinfer_xqa,
    "flex": flex,
}
"""Arm → peer."""


# ---- shared helpers ----


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
