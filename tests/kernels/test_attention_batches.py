"""A sequence in pages has the same bits in every batch, and one graph serves every length."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
import torch
from attention_rule import ARCHITECTURE, same_bits
from torch import Tensor

Attention = Callable[..., Any]
PAGE = 16
COMPOSITIONS = int(os.environ.get("KBTOOL_COMPOSITIONS", "40"))
"""Batches to draw; the long run on a card had 10,000."""
LONGEST = 2500  # keys of a sequence


@dataclass(frozen=True)
class Sequences:
    """Sequences in one pool of pages, each with its queries."""

    q: Tensor  # (sequences, H, Sq, D)
    k: Tensor  # (pages, Hkv, PAGE, D)
    v: Tensor
    lengths: list[int]
    pages: list[Tensor]

    @classmethod
    def drawn(
        cls, count: int, queries: int, device: torch.device, random: Random, kv: torch.dtype
    ) -> Sequences:
        H, Hkv, D = 8, 2, 128
        lengths = [random.choice([1, 16, 17, random.randint(1, LONGEST)]) for _ in range(count)]
        used = [-(-length // PAGE) for length in lengths]
        pool = torch.randperm(sum(used) + 5, generator=torch.Generator().manual_seed(1)).int()
        make = torch.Generator(device=device).manual_seed(2)
        size: dict[str, Any] = {"device": device, "dtype": torch.bfloat16, "generator": make}
        k, v = (torch.randn(len(pool), Hkv, PAGE, D, **size).to(kv) for _ in range(2))
        q = torch.randn(count, H, queries, D, **size)
        return cls(q, k, v, lengths, list(pool[: sum(used)].split(used)))

    def attend(self, attention: Attention, batch: list[int], columns: int, **options: Any) -> Any:
        """Output and LSE of a batch; its table has at least ``columns`` columns."""
        wide = max(columns, *(len(self.pages[i]) for i in batch))
        table = torch.full((len(batch), wide), -(2**31), dtype=torch.int32)
        for row, i in zip(table, batch, strict=True):
            row[: len(self.pages[i])] = self.pages[i]
        lengths = torch.tensor([self.lengths[i] for i in batch], dtype=torch.int32)
        device = self.q.device
        return attention(
            self.q[batch], self.k, self.v, causal=True, return_lse=True,
            kv_lengths=lengths.to(device), block_table=table.to(device), **options,
        )  # fmt: skip


ON_A_CARD = pytest.mark.skipif(ARCHITECTURE is None, reason="no CUDA card that the kernel is for")
PLACES = [
    pytest.param("cpu", None, id="cpu"),
    *(
        pytest.param("cuda", variant, id=variant, marks=[pytest.mark.gpu, ON_A_CARD])
        for variant in ("fused", "wgmma")
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("kv", [torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize(("device", "variant"), PLACES)
def test_a_sequence_has_the_same_bits_in_every_batch(
    interface: Any, device: str, variant: str | None, queries: int, kv: torch.dtype
) -> None:
    random = Random(f"{variant} {queries}")
    sequences = Sequences.drawn(24, queries, torch.device(device), random, kv)
    options: dict[str, Any] = {"num_splits": 3, "variant": variant}
    if kv != torch.bfloat16:
        scale = torch.tensor([0.3, 1.7], device=device)
        options |= {"k_scale": scale, "v_scale": scale.flip(0)}
    attention = interface.split_k_attention
    alone = [sequences.attend(attention, [i], 1, **options) for i in range(len(sequences.q))]
    for _ in range(COMPOSITIONS):
        batch = [random.randrange(len(alone)) for _ in range(random.randint(1, 40))]
        out, lse = sequences.attend(attention, batch, random.randint(1, 400), **options)
        assert same_bits(out, torch.cat([alone[i][0] for i in batch]))
        assert same_bits(lse, torch.cat([alone[i][1] for i in batch]))


@pytest.mark.gpu
@ON_A_CARD
@pytest.mark.parametrize("entries", [1, 6])
def test_one_graph_serves_every_length(interface: Any, entries: int) -> None:
    random = Random(entries)
    longest, H, Hkv, D = 131_072, 32, 8, 128
    make = torch.Generator(device="cuda").manual_seed(0)
    size: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16, "generator": make}
    columns = longest // PAGE
    k, v = (torch.randn(columns + 9, Hkv, PAGE, D, **size) for _ in range(2))
    tables = [torch.randperm(columns + 9)[:columns] for _ in range(entries)]
    table = torch.stack(tables).int().cuda()
    q = torch.randn(entries, H, 1, D, **size)
    lengths = torch.full((entries,), longest, dtype=torch.int32, device="cuda")

    def attend(table: Tensor, lengths: Tensor) -> Any:
        return interface.split_k_attention(
            q, k, v, kv_lengths=lengths, block_table=table, return_lse=True
        )

    attend(table, lengths)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = attend(table, lengths)
    for most in (1, 15, 16, 17, 333, 4096, 50_000, longest):
        drawn = [random.randint(1, most) for _ in range(entries - 1)]
        lengths.copy_(torch.tensor([most, *drawn], dtype=torch.int32))
        graph.replay()
        # The same by a plan for this length: other splits, so other rounding.
        fresh, fresh_lse = attend(table[:, : -(-most // PAGE)].contiguous(), lengths)
        torch.testing.assert_close(out, fresh, rtol=2e-2, atol=2e-3)
        torch.testing.assert_close(lse, fresh_lse, rtol=1e-5, atol=1e-5)
