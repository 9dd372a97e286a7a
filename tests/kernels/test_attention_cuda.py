"""What only a card has: graphs, streams, launches from several threads. Every variant."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_rule import MANIFEST, Place, check, on_cuda, same_bits
from torch import Tensor

from kbtool.gpu.validate import validate_case

Attention = Callable[..., Any]


def inputs_of(harness: Any, place: Place, seed: int = 1, **fields: Any) -> dict[str, Any]:
    """A decode step whose splits merge through the workspace where the variant has one."""
    case = {"B": 2, "H": 8, "Hkv": 2, "Sq": 1, "Skv": 3000, "D": 64, "num_splits": 24}
    made: dict[str, Any] = harness.make_inputs(case | fields, device=place.device, seed=seed)
    return made


def call_of(attention: Attention, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    names = ("causal", "scale", "num_splits", "kv_lengths")
    options = {name: inputs[name] for name in names}
    out, lse = attention(inputs["q"], inputs["k"], inputs["v"], **options, return_lse=True)
    return out, lse


@on_cuda
def test_kbtool_validates_the_quick_cases(harness: Any, place: Place) -> None:
    for case in filter(place.takes, MANIFEST.cases("quick")):
        with torch.inference_mode():
            result = validate_case(
                harness, "quick", case, device=place.device, seed=1, variant=place.variant
            )
        assert result.passed, f"{case['name']}: {result.message}"
        assert result.variant == place.variant


@on_cuda
def test_a_graph_replays_on_new_inputs(attention: Attention, harness: Any, place: Place) -> None:
    """CUDA graph: split count or metadata differ from capture."""
    # Lengths change between replays: what was captured must cut the keys by what they are then.
    inputs = inputs_of(harness, place)
    inputs["kv_lengths"] = torch.tensor([3000, 3000], device=place.device)
    call_of(attention, inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = call_of(attention, inputs)
    for seed, lengths in enumerate(([3000, 3000], [0, 1], [2999, 65], [64, 0], [1500, 3000])):
        fresh = inputs_of(harness, place, seed=seed)
        for name in ("q", "k", "v"):
            inputs[name].copy_(fresh[name])
        inputs["kv_lengths"].copy_(torch.tensor(lengths))
        for _ in range(3):
            out.fill_(torch.nan)
            lse.fill_(torch.nan)
            graph.replay()
            eager, eager_lse = call_of(attention, inputs)
            assert same_bits(out, eager) and same_bits(lse, eager_lse)
        check(harness, inputs, variant=place.variant)


@on_cuda
def test_graphs_replay_beside_each_other_and_beside_eager_calls(
    attention: Attention, harness: Any, place: Place
) -> None:
    inputs = [inputs_of(harness, place, seed=seed) for seed in range(4)]
    expected = [call_of(attention, one) for one in inputs]
    graphs, outputs = [], []
    for one in inputs:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            # Several calls in one graph, which may not share what they leave behind.
            outputs.append([call_of(attention, one) for _ in range(3)])
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(20):
        torch.cuda.synchronize()
        eager = []
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
            eager.append(call_of(attention, inputs[0]))
        torch.cuda.synchronize()
        for made, (out, lse) in zip(outputs, expected, strict=True):
            for got, got_lse in made:
                assert same_bits(got, out) and same_bits(got_lse, lse)
        for got, got_lse in eager:
            assert same_bits(got, expected[0][0]) and same_bits(got_lse, expected[0][1])


@on_cuda
def test_side_streams_do_not_disturb_each_other(
    attention: Attention, harness: Any, place: Place
) -> None:
    """Split buffers freed before launch."""
    inputs = [inputs_of(harness, place, seed=seed, H=8 * (1 + seed % 3)) for seed in range(6)]
    expected = [call_of(attention, one) for one in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    made: list[tuple[int, Tensor, Tensor]] = []
    for _ in range(30):
        for number, (one, stream) in enumerate(zip(inputs, streams, strict=True)):
            with torch.cuda.stream(stream):
                out, lse = call_of(attention, one)
                # What was free to be taken again is taken, and overwritten, at once.
                torch.full((1 << 16,), torch.nan, device=place.device)
                made.append((number, out, lse))
    torch.cuda.synchronize()
    for number, out, lse in made:
        assert same_bits(out, expected[number][0]) and same_bits(lse, expected[number][1])


@on_cuda
def test_a_call_waits_for_its_own_stream_alone(
    attention: Attention, harness: Any, place: Place
) -> None:
    # Inputs are written late on a side stream; the operator must read them after that.
    inputs = inputs_of(harness, place)
    expected, expected_lse = call_of(attention, inputs)
    late = inputs | {name: torch.zeros_like(inputs[name]) for name in ("q", "k", "v")}
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        for name in ("q", "k", "v"):
            late[name].copy_(inputs[name])
        out, lse = call_of(attention, late)
        # A kernel that may start early must not start before the one ahead of it has written.
        again, again_lse = call_of(attention, late | {"q": late["q"] * 1})
    torch.cuda.synchronize()
    assert same_bits(out, expected) and same_bits(lse, expected_lse)
    assert same_bits(again, expected) and same_bits(again_lse, expected_lse)


@on_cuda
def test_threads_share_the_operator(attention: Attention, harness: Any, place: Place) -> None:
    inputs = [inputs_of(harness, place, seed=seed) for seed in range(4)]
    expected = [call_of(attention, one) for one in inputs]
    torch.cuda.synchronize()
    wrong: list[str] = []

    def work(number: int) -> None:
        try:
            with torch.inference_mode(), torch.cuda.stream(torch.cuda.Stream()):
                for turn in range(50):
                    out, lse = call_of(attention, inputs[number])
                    torch.cuda.current_stream().synchronize()
                    right, right_lse = expected[number]
                    if not (same_bits(out, right) and same_bits(lse, right_lse)):
                        wrong.append(f"thread {number}, turn {turn}")
        except Exception as error:
            wrong.append(f"thread {number}: {error!r}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(len(inputs))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


@on_cuda
@pytest.mark.parametrize("causal", [False, True])
def test_results_repeat_to_the_bit(
    attention: Attention, harness: Any, place: Place, causal: bool
) -> None:
    for fields in ({"num_splits": None}, {"Sq": 200, "Skv": 700, "num_splits": 5}, {"D": 256}):
        for dtype in place.dtypes:
            named = {"dtype": str(dtype).removeprefix("torch."), "causal": causal}
            inputs = inputs_of(harness, place, **named, **fields)
            out, lse = call_of(attention, inputs)
            for _ in range(50):
                again, again_lse = call_of(attention, inputs)
                assert same_bits(again, out) and same_bits(again_lse, lse)


@on_cuda
def test_every_device_is_served(attention: Attention, harness: Any, place: Place) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one card: a second device needs two")
    second = torch.device("cuda", 1)
    inputs = inputs_of(harness, place)
    there = {
        name: value.to(second) if isinstance(value, Tensor) else value
        for name, value in inputs.items()
    }
    out, lse = call_of(attention, inputs)
    far, far_lse = call_of(attention, there)  # the first device is the current one
    assert far.device == second
    assert same_bits(far.to(out.device), out) and same_bits(far_lse.to(out.device), lse)
