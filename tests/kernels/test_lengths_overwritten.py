"""Lengths that another stream overwrites during a call: the call is wrong, and no later one is."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest
import torch
from attention_rule import ARCHITECTURE, same_bits
from test_attention_sharded import load

LIMIT_S = 120
CASES = {
    "default, unlike lengths": (None, 1),
    "fused, one query": ("fused", 1),
    "fused, 40 queries": ("fused", 40),
    "wgmma, one warpgroup": ("wgmma", 16),
    "wgmma, two warpgroups": ("wgmma", 128),
    "two_pass": ("two_pass", 1),
    "fa1": ("fa1", 1),
}
PACKED = {
    "packed queries, by clusters": ("fused", 4),
    "packed queries, by counters": ("fused", 16),
    "packed queries, by a merge kernel": ("wgmma", 4),
}


def repeated(library: str, name: str) -> None:
    """In a process that can be ended: calls beside a stream that writes, then one without it."""
    load(library)
    torch.manual_seed(0)
    k, v = torch.randn(2, 8, 8, 16384, 128, dtype=torch.bfloat16, device="cuda")
    given: dict[str, Any]
    if name in PACKED:
        variant, splits = PACKED[name]
        q = torch.randn(64, 32, 128, dtype=torch.bfloat16, device="cuda")
        many = torch.randint(0, 65, (64, 9), dtype=torch.int32, device="cuda").sort(1).values
        many[:, 0], many[::3, 4:] = 0, 64
        given = {"max_seqlen_q": 64, "num_splits": splits}
    else:
        variant, Sq = CASES[name]
        q = torch.randn(8, 32, Sq, 128, dtype=torch.bfloat16, device="cuda")
        many = torch.randint(0, 16385, (64, 8), dtype=torch.int32, device="cuda")
        many[::3] = 16384
        given = {}
    lengths = many[0].clone()
    given |= {"cu_seqlens_q" if name in PACKED else "kv_lengths": lengths, "variant": variant}

    def call() -> torch.Tensor:
        out, _ = torch.ops.kbtool.split_k_attention(q, k, v, **given, overlap=True)
        return out  # type: ignore[no-any-return]

    expected = call().clone()
    call()
    torch.cuda.synchronize()
    writing = torch.cuda.CUDAGraph()
    with torch.cuda.graph(writing):
        for row in many:
            lengths.copy_(row)
    beside = torch.cuda.Stream()
    for _ in range(40):
        with torch.cuda.stream(beside):
            for _ in range(4):
                writing.replay()
        for _ in range(8):
            call()
    torch.cuda.synchronize()
    lengths.copy_(many[0])
    for _ in range(3):
        assert same_bits(call(), expected), "a later call is wrong"


@pytest.mark.gpu
@pytest.mark.skipif(ARCHITECTURE is None, reason="no CUDA card that the kernel is for")
@pytest.mark.parametrize("name", [*CASES, *PACKED])
def test_overwritten_lengths_hurt_no_later_call(interface: Any, name: str) -> None:
    [library] = (path for path in torch.ops.loaded_libraries if "split_k_attention" in path)
    process = multiprocessing.get_context("spawn").Process(target=repeated, args=(library, name))
    process.start()
    process.join(LIMIT_S)
    if process.is_alive():
        process.kill()
        process.join()
        pytest.fail(f"{name}: no end within {LIMIT_S} s")
    assert process.exitcode == 0
