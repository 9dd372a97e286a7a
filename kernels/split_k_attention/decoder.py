"""Decoding steps of a model with the sizes of Llama 3.1 8B and random weights, by attention.

A step takes one token of each of ``batch`` sequences that have ``keys`` keys with it. Steps run as
a CUDA graph, those of the attentions in turn. Each line of the output is a value for the record:
tokens per second, and how far the logits are from those of torch's attention. Run it by ``kbtool
run-recipe decoder``.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from kbtool.attention import split_k_attention

LAYERS, HIDDEN, INNER, VOCABULARY = 32, 4096, 14336, 128256
H, HKV, D = 32, 8, 128
PAGE = 16
SAMPLES, STEPS = 12, 10
Attention = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q, new k, new v), of (B, H, 1, D) and (B, Hkv, 1, D), to the output (B, H, 1, D)."""


class Decoder:
    """Weights in bf16, about 16 GB."""

    def __init__(self) -> None:
        def weight(rows: int, columns: int) -> Tensor:
            return torch.empty(rows, columns, dtype=torch.bfloat16, device="cuda").normal_(0, 0.02)

        self.embedding = weight(VOCABULARY, HIDDEN)
        self.head = weight(VOCABULARY, HIDDEN)
        self.layers = [
            (
                weight((H + 2 * HKV) * D, HIDDEN),
                weight(HIDDEN, H * D),
                weight(2 * INNER, HIDDEN),
                weight(HIDDEN, INNER),
            )
            for _ in range(LAYERS)
        ]

    def step(self, tokens: Tensor, position: int, attention: Attention) -> Tensor:
        """Logits (B, vocabulary) after one token of each sequence."""
        x = self.embedding[tokens]
        for layer, (qkv, out, gate_up, down) in enumerate(self.layers):
            heads = linear(_normed(x), qkv).view(len(x), H + 2 * HKV, 1, D)
            q, k, v = heads.split([H, HKV, HKV], dim=1)
            made = attention(layer, _rotated(q, position), _rotated(k, position), v)
            x = x + linear(made.reshape(len(x), H * D), out)
            gate, up = linear(_normed(x), gate_up).chunk(2, dim=-1)
            x = x + linear(silu(gate) * up, down)
        return linear(_normed(x), self.head)


def _normed(x: Tensor) -> Tensor:
    return rms_norm(x, (HIDDEN,), eps=1e-5)


def _rotated(x: Tensor, position: int) -> Tensor:
    """Rotary embedding, halves of a head in pairs."""
    turns = torch.arange(D // 2, device=x.device, dtype=torch.float32)
    angles = position * 500_000.0 ** (-2 * turns / D)
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(x.dtype)


class Caches:
    """The same keys and values for each layer, contiguous (B, Hkv, S, D) and in pages."""

    def __init__(self, batch: int, keys: int) -> None:
        shape = (LAYERS, 2, batch, HKV, keys, D)
        self.rows = torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_()
        count = batch * keys // PAGE
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).cuda()
        self.table = order.int().view(batch, keys // PAGE)
        self.lengths = torch.full((batch,), keys, dtype=torch.int32, device="cuda")
        self.pages = self.rows.new_empty(LAYERS, 2, count, PAGE, HKV, D)
        for pages, rows in zip(self.pages.flatten(0, 1), self.rows.flatten(0, 1), strict=True):
            by_page = rows.view(batch, HKV, keys // PAGE, PAGE, D).permute(0, 2, 3, 1, 4)
            pages[order] = by_page.flatten(0, 1)
        self.last = self.table[:, -1].long()

    def contiguous(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, the new ones written at their end."""
        keys, values = self.rows[layer]
        keys[:, :, -1:], values[:, :, -1:] = k, v
        return keys, values

    def paged(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The same in pages (pages, Hkv, page_size, D)."""
        keys, values = self.pages[layer]
        keys[self.last, -1], values[self.last, -1] = k[:, :, 0], v[:, :, 0]
        return keys.transpose(1, 2), values.transpose(1, 2)


def attentions(caches: Caches) -> dict[str, Attention]:
    """The attentions by name, torch's first."""

    def sdpa(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, *caches.contiguous(layer, k, v), enable_gqa=True)

    def cudnn(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return sdpa(layer, q, k, v)

    def split_k(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return split_k_attention(q, *caches.contiguous(layer, k, v))

    def split_k_paged(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = caches.paged(layer, k, v)
        return split_k_attention(
            q, keys, values, kv_lengths=caches.lengths, block_table=caches.table
        )

    return {
        "sdpa": sdpa, "sdpa_cudnn": cudnn, "split_k": split_k, "split_k_paged": split_k_paged,
    }  # fmt: skip


def captured(step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """The step as a graph, and the tensor that its logits are written to."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = step()
    return graph, logits


def seconds(graph: torch.cuda.CUDAGraph) -> float:
    """Of one step, over STEPS replays."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(STEPS):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / STEPS


def log(name: str, value: float, unit: str, better: str, case: dict[str, object]) -> None:
    line = {"name": name, "value": value, "unit": unit, "better": better, "case": case}
    print(f"KBTOOL_RESULT {json.dumps(line)}", flush=True)


def run(model: Decoder, batch: int, keys: int) -> None:
    caches = Caches(batch, keys)
    tokens = torch.arange(batch, device="cuda") * 997 % VOCABULARY
    graphs = {}
    for name, attention in attentions(caches).items():
        try:
            graphs[name] = captured(partial(model.step, tokens, keys - 1, attention))
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            print(f"{name} does not run {batch} x {keys}: {reason}", file=sys.stderr)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for sample in range(SAMPLES + 1):
        for name, (graph, _) in graphs.items():
            took = seconds(graph)
            if sample > 0:
                times[name].append(took)
    baseline = graphs["sdpa"][1].float()
    for name, (_, logits) in graphs.items():
        case: dict[str, object] = {"attention": name, "batch": batch, "keys": keys}
        for took in times[name]:
            log("tokens per second", batch / took, "1/s", "higher", case)
        apart = (logits.float() - baseline).norm() / baseline.norm()
        log("distance of the logits from sdpa's", apart.item(), "1", "lower", case)
        median = statistics.median(times[name])
        print(
            f"{batch:3} x {keys:6} {name:14} {batch / median:9.1f} tokens/s, {median * 1e3:7.3f} ms"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cases", default="1x4096,8x4096,32x4096,1x16384,8x16384,1x65536,2x65536",
        help="BATCHxKEYS, separated by commas; keys are a multiple of 16",
    )  # fmt: skip
    cases = parser.parse_args(arguments).cases
    torch.manual_seed(0)
    with torch.inference_mode():
        model = Decoder()
        for case in cases.split(","):
            batch, keys = map(int, case.split("x"))
            run(model, batch, keys)


if __name__ == "__main__":
    main()
