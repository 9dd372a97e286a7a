"""Stand-ins for FlashInfer and FlashAttention-3, which compute from exactly what they are given.

Each reads its arguments as its authors document them, pages by the numbers that were planned. Like
a kernel, a stand-in reads whole pages and gives hidden keys weight 0: NaN there reaches the output.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, *, causal: bool = False,
    length: int | None = None, window_left: int = -1, softcap: float | None = None,
    hidden: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """One request: q ``(Sq, H, D)``, k and v ``(S, Hkv, D)`` of which ``length`` are valid, from
    the first on. A causal mask is bottom-right; ``hidden`` hides the last keys, (Sq, Sq)."""
    length = len(k) if length is None else length
    group = q.shape[1] // k.shape[1]
    keys, values = (t.float().repeat_interleave(group, dim=1) for t in (k, v))
    logits = torch.einsum("qhd,khd->hqk", q.float(), keys) * scale
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    key, own = torch.arange(len(k)), length - len(q) + torch.arange(len(q))[:, None]
    sees = (key < length).expand(len(q), -1)
    if causal:
        sees = sees & (key <= own)
    if window_left >= 0:
        sees = sees & (key >= own - window_left)
    if hidden is not None:
        sees = sees.clone()
        sees[:, length - len(q) : length] &= ~hidden
    weights = logits.masked_fill(~sees, -math.inf).softmax(dim=-1).nan_to_num(nan=0.0)
    return torch.einsum("hqk,khd->qhd", weights, values).to(q.dtype)


def keys_of(pages: Tensor, numbers: Tensor, layout: str) -> Tensor:
    """The keys of these pages one after the other, (keys, Hkv, D)."""
    assert pages.is_contiguous()
    bits = pages.view(torch.uint8) if pages.dtype in FP8 else pages  # torch indexes no FP8
    own = bits[numbers.long()].view(pages.dtype)
    return (own if layout == "NHD" else own.transpose(1, 2)).flatten(0, 1)


class _Planned:
    """What FlashInfer's wrappers of paged caches share."""

    made: list[Any] = []

    def __init__(self, workspace: Tensor, *, kv_layout: str, **options: Any) -> None:
        assert kv_layout in {"NHD", "HND"}
        self.layout, self.options = kv_layout, options
        self.made.append(self)

    def keep(
        self, counts: list[int], indptr: Tensor, indices: Tensor, last_page_len: Tensor,
        heads: tuple[int, int, int], page_size: int, q_data_type: torch.dtype,
        kv_data_type: torch.dtype, sm_scale: float, window_left: int,
        logits_soft_cap: float | None, causal: bool,
    ) -> None:  # fmt: skip
        assert indptr.dtype == indices.dtype == last_page_len.dtype == torch.int32
        assert len(indptr) == len(last_page_len) + 1 == len(counts) + 1
        assert int(indptr[0]) == 0 and int(indptr[-1]) == len(indices)
        assert last_page_len.min() >= 1 and last_page_len.max() <= page_size
        self.entries = [
            (count, indices[first:end], int((end - first - 1) * page_size + last))
            for count, first, end, last in zip(
                counts, indptr[:-1], indptr[1:], last_page_len, strict=True
            )
        ]
        self.heads, self.size, self.scale = heads, page_size, sm_scale
        self.types = (q_data_type, kv_data_type)
        self.mask = {"causal": causal, "window_left": window_left, "softcap": logits_soft_cap}

    def run(
        self, q: Tensor, pages: tuple[Tensor, Tensor], *, out: Tensor,
        k_scale: float = 1.0, v_scale: float = 1.0,
    ) -> Tensor:  # fmt: skip
        H, Hkv, D = self.heads
        sizes = (self.size, Hkv, D) if self.layout == "NHD" else (Hkv, self.size, D)
        assert all(t.shape[1:] == sizes and t.dtype == self.types[1] for t in pages)
        assert q.dtype == self.types[0] and q.is_contiguous() and q.shape[1:] == (H, D)
        assert out.shape == q.shape and isinstance(k_scale, float) and isinstance(v_scale, float)
        row = 0
        for count, own, length in self.entries:
            k, v = (keys_of(t, own, self.layout) for t in pages)
            rows = q[row : row + count]
            found = attend(rows, k, v, self.scale * k_scale, length=length, **self.mask)
            out[row : row + count] = found * v_scale
            row += count
        assert row == len(q)
        return out


class BatchDecode(_Planned):
    """``BatchDecodeWithPagedKVCacheWrapper``."""

    def plan(
        self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, num_qo_heads: int,
        num_kv_heads: int, head_dim: int, page_size: int, *, q_data_type: torch.dtype,
        kv_data_type: torch.dtype, sm_scale: float, window_left: int = -1,
        logits_soft_cap: float | None = None,
    ) -> None:  # fmt: skip
        self.keep(
            [1] * len(last_page_len), indptr, indices, last_page_len,
            (num_qo_heads, num_kv_heads, head_dim), page_size, q_data_type, kv_data_type,
            sm_scale, window_left, logits_soft_cap, causal=False,
        )  # fmt: skip


class PagedPrefill(_Planned):
    """``BatchPrefillWithPagedKVCacheWrapper``."""

    def plan(
        self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int,
        page_size: int, *, causal: bool, q_data_type: torch.dtype, kv_data_type: torch.dtype,
        sm_scale: float, window_left: int = -1, logits_soft_cap: float | None = None,
    ) -> None:  # fmt: skip
        assert qo_indptr.dtype == torch.int32 and int(qo_indptr[0]) == 0
        self.keep(
            qo_indptr.diff().tolist(), paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len,
            (num_qo_heads, num_kv_heads, head_dim_qk), page_size, q_data_type, kv_data_type,
            sm_scale, window_left, logits_soft_cap, causal,
        )  # fmt: skip


class RaggedPrefill:
    """``BatchPrefillWithRaggedKVCacheWrapper``."""

    def __init__(self, workspace: Tensor, *, kv_layout: str, backend: str) -> None:
        assert kv_layout == "NHD"

    def plan(
        self, qo_indptr: Tensor, kv_indptr: Tensor, num_qo_heads: int, num_kv_heads: int,
        head_dim_qk: int, *, causal: bool, q_data_type: torch.dtype, kv_data_type: torch.dtype,
        sm_scale: float, logits_soft_cap: float | None = None,
    ) -> None:  # fmt: skip
        assert qo_indptr.dtype == kv_indptr.dtype == torch.int32
        self.queries, self.lengths = qo_indptr.diff().tolist(), kv_indptr.diff().tolist()
        self.heads, self.scale = (num_qo_heads, num_kv_heads, head_dim_qk), sm_scale
        self.mask: dict[str, Any] = {"causal": causal, "softcap": logits_soft_cap}

    def run(self, q: Tensor, k: Tensor, v: Tensor, *, out: Tensor) -> Tensor:
        H, Hkv, D = self.heads
        assert (q.shape[1:], k.shape[1:], v.shape[1:]) == ((H, D), (Hkv, D), (Hkv, D))
        entries = zip(
            q.split(self.queries), k.split(self.lengths), v.split(self.lengths), strict=True
        )
        out.copy_(torch.cat([attend(*entry, self.scale, **self.mask) for entry in entries]))
        return out


def single_prefill(
    q: Tensor, k: Tensor, v: Tensor, *, sm_scale: float, causal: bool, backend: str
) -> Tensor:
    """In layout NHD, the default."""
    assert q.is_contiguous()
    return attend(q, k, v, sm_scale, causal=causal).contiguous()


def xqa(
    query: Tensor, kv_cache: tuple[Tensor, Tensor], workspace_buffer: Tensor,
    block_tables: Tensor, seq_lens: Tensor, max_seq_len: int, *, bmm1_scale: float,
    bmm2_scale: float = 1.0, window_left: int = -1, kv_layout: str, backend: str,
    q_len_per_req: int = 1, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """``trtllm_batch_decode_with_kv_cache``: reads all pages of a row of the table."""
    assert backend == "xqa" and query.is_contiguous()
    assert (block_tables.dtype, seq_lens.dtype) == (torch.int32, torch.uint32)
    assert max_seq_len == max(seq_lens.tolist())
    assert isinstance(bmm1_scale, float) and isinstance(bmm2_scale, float)
    count = q_len_per_req
    assert (mask is not None) == (count > 1)
    rows = []
    for b, (own, length) in enumerate(zip(block_tables, seq_lens.tolist(), strict=True)):
        hidden = None
        if mask is not None:
            assert mask.shape == (len(block_tables), count, 2) and mask.dtype == torch.uint16
            words = mask[b].contiguous().view(torch.int32)
            hidden = words >> torch.arange(count) & 1 == 0
        k, v = (keys_of(t, own, kv_layout) for t in kv_cache)
        out = attend(
            query[b * count : (b + 1) * count], k, v, bmm1_scale, length=length,
            window_left=window_left, hidden=hidden,
        )  # fmt: skip
        rows.append(out * bmm2_scale)
    return torch.cat(rows)


def flashinfer() -> SimpleNamespace:
    """The package, as far as it is called."""
    _Planned.made.clear()
    return SimpleNamespace(
        BatchDecodeWithPagedKVCacheWrapper=BatchDecode,
        BatchPrefillWithPagedKVCacheWrapper=PagedPrefill,
        BatchPrefillWithRaggedKVCacheWrapper=RaggedPrefill,
        single_prefill_with_kv_cache=single_prefill,
        decode=SimpleNamespace(trtllm_batch_decode_with_kv_cache=xqa),
        made=_Planned.made,
    )


class FlashAttention3:
    """``fa3_fwd_interface``, and ``fa3_fwd_config`` of a build without the parts named."""

    def __init__(self, *without: str) -> None:
        self.schedules = 0
        flags = {f"FLASHATTENTION_DISABLE_{part}": part in without for part in ("PAGEDKV", "LOCAL")}
        self.CONFIG = {"build_flags": flags}

    def get_scheduler_metadata(
        self, batch_size: int, max_seqlen_q: int, max_seqlen_k: int, num_heads_q: int,
        num_heads_kv: int, headdim: int, cache_seqlens: Tensor, *, qkv_dtype: torch.dtype,
        headdim_v: int, cu_seqlens_q: Tensor | None, page_size: int | None, causal: bool,
        num_splits: int, has_softcap: bool, window_size: tuple[int, int] = (-1, -1),
    ) -> dict[str, Any]:  # fmt: skip
        self.schedules += 1
        assert cache_seqlens.dtype == torch.int32 and len(cache_seqlens) == batch_size
        assert max_seqlen_k >= int(cache_seqlens.max())
        return {
            "queries": (batch_size, max_seqlen_q, num_heads_q, headdim, qkv_dtype),
            "keys": (num_heads_kv, headdim_v, page_size),
            "options": (causal, num_splits, window_size, has_softcap),
        }

    def flash_attn_with_kvcache(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, *, softmax_scale: float,
        causal: bool, num_splits: int, cache_seqlens: Tensor | None = None,
        page_table: Tensor | None = None, cu_seqlens_q: Tensor | None = None,
        max_seqlen_q: int | None = None, window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0, scheduler_metadata: Any = None,
    ) -> Tensor:  # fmt: skip
        """Layout (B, S, H, D), or (total_q, H, D)."""
        lengths = [k_cache.shape[1]] * len(k_cache)
        rows = list(q)
        if cu_seqlens_q is not None:
            assert cache_seqlens is not None and cu_seqlens_q.dtype == torch.int32
            rows = list(q.split(cu_seqlens_q.diff().tolist()))
        else:
            max_seqlen_q = q.shape[1]
        if cache_seqlens is not None:
            lengths = cache_seqlens.tolist()
            page_size = None if page_table is None else k_cache.shape[1]
            assert scheduler_metadata == {
                "queries": (len(lengths), max_seqlen_q, *q.shape[-2:], q.dtype),
                "keys": (k_cache.shape[2], v_cache.shape[3], page_size),
                "options": (causal, num_splits, window_size, softcap > 0),
            }
        made = []
        for b, (one, length) in enumerate(zip(rows, lengths, strict=True)):
            if page_table is None:
                k, v = k_cache[b], v_cache[b]
            else:
                pages = page_table[b, : -(-length // k_cache.shape[1])]
                k, v = (keys_of(t, pages, "NHD") for t in (k_cache, v_cache))
            made.append(
                attend(one, k, v, softmax_scale, causal=causal, length=length,
                       window_left=window_size[0], softcap=softcap)
            )  # fmt: skip
        return torch.stack(made) if cu_seqlens_q is None else torch.cat(made)
