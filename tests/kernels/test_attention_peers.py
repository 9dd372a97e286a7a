"""How others' attention is called, on stand-ins that read their arguments as their authors say."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attention_rule import FOLDER
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kbtool.gpu.harness import peers_named_in

D, HKV, H = 64, 2, 8


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool = False) -> Tensor:
    """One request: q ``(Sq, H, D)``, k and v ``(S, Hkv, D)``; a causal mask is bottom-right."""
    mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q)) if causal else None
    heads = (t.transpose(0, 1) for t in (q, k, v))
    out = scaled_dot_product_attention(*heads, attn_mask=mask, scale=scale, enable_gqa=True)
    return out.transpose(0, 1)


class Batch:
    """Decodes over pages in layout HND, by the page table that was planned."""

    def __init__(self, workspace: Tensor, *, kv_layout: str, use_tensor_cores: bool) -> None:
        assert kv_layout == "HND"
        self.use_tensor_cores = use_tensor_cores

    def plan(
        self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, heads: int, kv_heads: int,
        dim: int, page_size: int, *, q_data_type: torch.dtype, kv_data_type: torch.dtype,
        sm_scale: float,
    ) -> None:  # fmt: skip
        assert indptr.dtype == indices.dtype == last_page_len.dtype == torch.int32
        assert last_page_len.min() >= 1 and last_page_len.max() <= page_size
        assert (heads, kv_heads, dim, page_size) == (H, HKV, D, 16)
        self.table = [
            (indices[first:end], (end - first - 1) * page_size + last)
            for first, end, last in zip(indptr[:-1], indptr[1:], last_page_len, strict=True)
        ]
        self.scale = sm_scale

    def run(self, q: Tensor, pages: tuple[Tensor, Tensor]) -> Tensor:
        assert all(t.shape[1:] == (HKV, 16, D) and t.is_contiguous() for t in pages)
        rows = []
        for query, (own, length) in zip(q, self.table, strict=True):
            k, v = (t[own].transpose(1, 2).flatten(0, 1)[:length] for t in pages)
            rows.append(attend(query[None], k, v, self.scale))
        return torch.cat(rows)


def prefill(
    q: Tensor, k: Tensor, v: Tensor, *, sm_scale: float, causal: bool, backend: str
) -> Tensor:
    """In layout NHD, the default."""
    assert k.shape[1:] == (HKV, D)
    return attend(q, k, v, sm_scale, causal).to(memory_format=torch.contiguous_format)


def xqa(
    query: Tensor, kv_cache: tuple[Tensor, Tensor], workspace: Tensor, block_tables: Tensor,
    seq_lens: Tensor, max_seq_len: int, *, bmm1_scale: float, kv_layout: str, backend: str,
) -> Tensor:  # fmt: skip
    """Decodes over pages in layout HND, by a table with a row of page numbers for each request."""
    assert (kv_layout, backend) == ("HND", "xqa")
    assert query.is_contiguous() and query.shape[1:] == (H, D)
    assert (block_tables.dtype, seq_lens.dtype) == (torch.int32, torch.uint32)
    assert max_seq_len == max(seq_lens.tolist())
    rows = []
    for row, own, length in zip(query, block_tables, seq_lens.tolist(), strict=True):
        k, v = (t[own].transpose(1, 2).flatten(0, 1)[:length] for t in kv_cache)
        rows.append(attend(row[None], k, v, bmm1_scale))
    return torch.cat(rows)


class FlashAttention3:
    """Reads the schedule of a call with lengths; layout (B, S, H, D)."""

    def __init__(self) -> None:
        self.schedules = 0

    def get_scheduler_metadata(
        self, batch_size: int, max_seqlen_q: int, max_seqlen_k: int, num_heads_q: int,
        num_heads_kv: int, headdim: int, cache_seqlens: Tensor, qkv_dtype: torch.dtype, *,
        causal: bool, num_splits: int,
    ) -> tuple[Any, ...]:  # fmt: skip
        self.schedules += 1
        assert (num_heads_q, num_heads_kv, headdim) == (H, HKV, D)
        assert cache_seqlens.dtype == torch.int32 and len(cache_seqlens) == batch_size
        return batch_size, max_seqlen_q, max_seqlen_k, qkv_dtype, causal, num_splits

    def flash_attn_with_kvcache(
        self, q: Tensor, k: Tensor, v: Tensor, *, softmax_scale: float, causal: bool,
        num_splits: int, cache_seqlens: Tensor | None = None, scheduler_metadata: Any = None,
    ) -> Tensor:  # fmt: skip
        lengths = [k.shape[1]] * len(k)
        if cache_seqlens is not None:
            wanted = (*q.shape[:2], k.shape[1], q.dtype, causal, num_splits)
            assert scheduler_metadata == wanted
            lengths = cache_seqlens.tolist()
        rows = [
            attend(one, keys[:length], values[:length], softmax_scale, causal)
            for one, keys, values, length in zip(q, k, v, lengths, strict=True)
        ]
        return torch.stack(rows)


@pytest.fixture
def peers(harness: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The peers with a stand-in for FlashInfer that runs here."""
    module = harness._PEERS
    stand_in = SimpleNamespace(
        BatchDecodeWithPagedKVCacheWrapper=Batch,
        single_prefill_with_kv_cache=prefill,
        decode=SimpleNamespace(trtllm_batch_decode_with_kv_cache=xqa),
    )
    monkeypatch.setattr(module, "_flashinfer_for", lambda inputs: stand_in)
    monkeypatch.setattr(module, "_flashinfer_workspace", lambda device, kernels: torch.empty(0))
    return module


def made(harness: Any, **case: Any) -> dict[str, Any]:
    fields = {"H": H, "Hkv": HKV, "D": D, "dtype": "float32", **case}
    return harness.make_inputs(fields, device=torch.device("cpu"), seed=3)


def assert_right(harness: Any, inputs: dict[str, Any], call: Any) -> None:
    wanted = harness.reference(inputs)["out"]
    torch.testing.assert_close(call().double(), wanted, rtol=0.0, atol=1e-5)


PAGED = pytest.mark.parametrize("peer", ["flashinfer_batch", "flashinfer_xqa"])


@PAGED
@pytest.mark.parametrize("lengths", [None, [1, 16, 17, 200], [200, 31, 32, 33]])
def test_every_key_of_the_pages_is_read_and_no_other(harness, peers, peer, lengths):
    inputs = made(harness, B=4, Sq=1, Skv=200, kv_lengths=lengths)
    assert_right(harness, inputs, peers.PEERS[peer](inputs))


@PAGED
def test_decoding_peers_refuse_several_queries(harness, peers, peer):
    assert peers.PEERS[peer](made(harness, Sq=2, Skv=20)) == "decodes one query an entry"


@pytest.mark.parametrize("lengths", [None, [3, 200, 17]])
def test_flash_attention_3_computes_the_schedule_of_lengths_once_before_its_calls(
    harness, peers, monkeypatch, lengths
):
    interface = FlashAttention3()
    monkeypatch.setattr(peers, "_on_hopper", lambda t: True)
    monkeypatch.setattr(peers, "_installed", lambda module, package: interface)
    inputs = made(harness, B=3, Sq=2, Skv=200, kv_lengths=lengths, causal=True)
    assert peers.fa3(inputs) == "its wheel takes bfloat16, not float32"
    inputs = made(harness, B=3, Sq=2, Skv=200, kv_lengths=lengths, causal=True, dtype="bfloat16")
    call = peers.fa3(inputs)
    for _ in range(3):
        out = call().double()
    assert interface.schedules == (lengths is not None)
    torch.testing.assert_close(out, harness.reference(inputs)["out"], rtol=0.0, atol=0.02)


def test_a_planned_batch_copies_no_key_past_a_length(harness, peers):
    keys = made(harness, B=2, Skv=500, kv_lengths=[20, 500])["k"]
    assert peers._paged(keys, [20, 500]).shape[0] == 2 + 32


@PAGED
def test_an_entry_without_keys_has_no_page(harness, peers, peer):
    inputs = made(harness, B=2, Sq=1, Skv=20, kv_lengths=[0, 20])
    assert peers.PEERS[peer](inputs) == "an entry without keys has no page"


@pytest.mark.parametrize("queries", [8, 64])
def test_several_queries_of_one_request_are_given_by_the_default_layout(harness, peers, queries):
    inputs = made(harness, Sq=queries, Skv=300, causal=True)
    assert_right(harness, inputs, peers.flashinfer(inputs))


def test_flashinfer_fa2_is_an_arm_only_if_flashinfer_would_pick_newer_kernels(
    harness, peers, monkeypatch
):
    inputs = made(harness, Sq=8, Skv=300, causal=True)
    assert isinstance(peers.flashinfer_fa2(inputs), str)
    monkeypatch.setattr(peers, "_on_hopper", lambda t: True)
    assert_right(harness, inputs, peers.flashinfer_fa2(inputs))
    assert isinstance(peers.flashinfer_fa2(made(harness, Sq=1, Skv=300)), str)


def test_the_harness_names_every_peer_that_there_is(harness):
    """It does so once more, in a literal that a plan reads."""
    ours = [harness.CONTIGUOUS, harness.UNQUANTISED, harness.APART]
    assert list(harness.PEERS) == [*harness._PEERS.PEERS, *ours]
    assert peers_named_in(FOLDER / "harness.py") == list(harness.PEERS)


def test_flex_attention_is_compiled_for_every_shape(harness, monkeypatch):
    """Past torch's own limit of 8 it would run uncompiled, and slowly."""
    import torch._dynamo

    graphs: list[Any] = []

    def counting(graph: Any, example: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=counting))
    config = torch._dynamo.config
    limits = ("recompile_limit", "accumulated_recompile_limit")
    module = harness._PEERS
    module._compiled_flex.cache_clear()
    with config.patch({name: getattr(config, name) for name in limits}):
        compiled = module._compiled_flex()
        for keys in range(1, 11):
            q, k, v = (torch.randn(1, 2, 16 * keys, 16) for _ in range(3))
            compiled(q, k, v)
    module._compiled_flex.cache_clear()
    torch._dynamo.reset()
    assert len(graphs) == 10
