"""What only a card has: graphs, streams, launches from several threads. Every variant."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_rule import ARCHITECTURE, FOLDER, MANIFEST, ON_CUDA, Place, check, on_cuda, same_bits
from torch import Tensor

from kbtool.gpu.build import build
from kbtool.gpu.build_plan import plan_build
from kbtool.gpu.validate import validate_case

Attention = Callable[..., Any]


@dataclass(frozen=True)
class Call:
    """A call that takes a way of its own through the kernels.

    case: what the harness makes inputs of
    replayed: lengths per batch entry, a list for each replay of one graph
    many: fields that make a batch of it whose states lie in the workspace for long
    """

    case: dict[str, Any]
    replayed: list[list[int]]
    many: dict[str, Any]

    @property
    def whole(self) -> list[int]:
        return [self.case["Skv"]] * self.case["B"]


# A decode step whose splits merge through the workspace where the variant has one; a batch that the
# fused kernel shares out by its lengths; tiles of two warpgroups, which wgmma reads by TMA and
# merges by a second kernel; two such tiles that share each copy of their keys.
CALLS = {
    "splits": Call(
        {"B": 2, "H": 8, "Hkv": 2, "Sq": 1, "Skv": 3000, "D": 64, "num_splits": 24},
        replayed=[[3000, 3000], [0, 1], [2999, 65], [64, 0], [1500, 3000]],
        many={"B": 64},
    ),
    "ragged": Call(
        {"B": 6, "H": 8, "Hkv": 2, "Sq": 1, "Skv": 16400, "D": 64,
         "kv_lengths": [16400, 3, 0, 700, 1, 9000]},
        replayed=[[16400] * 6, [0] * 6, [0, 16400, 0, 1, 700, 9000], [1, 0, 0, 0, 0, 0],
                  [2047, 65, 64, 63, 16399, 8200]],
        many={"B": 40, "kv_lengths": [16400] * 40},
    ),
    "tma": Call(
        {"B": 2, "H": 8, "Hkv": 2, "Sq": 20, "Skv": 3000, "D": 128, "num_splits": 24,
         "kv_lengths": [3000, 1500]},
        replayed=[[3000, 3000], [0, 1], [2999, 65], [64, 0], [129, 2945]],
        many={"B": 32, "kv_lengths": [3000] * 32},
    ),
    "pairs": Call(
        {"B": 1, "H": 8, "Hkv": 2, "Sq": 50, "Skv": 5200, "D": 128, "num_splits": 5},
        replayed=[[5200], [0], [1], [5199], [1041], [64]],
        many={"B": 16},
    ),
}  # fmt: skip
each_call = pytest.mark.parametrize("kind", CALLS)
# Tiles of one warpgroup, which wgmma merges by a second kernel.
MERGED_APART: dict[str, Any] = {
    "B": 1, "H": 32, "Hkv": 8, "Sq": 16, "Skv": 16384, "D": 128, "num_splits": None,
    "causal": True, "dtype": "bfloat16",
}  # fmt: skip


def inputs_of(
    harness: Any, place: Place, seed: int = 1, kind: str = "splits", **fields: Any
) -> dict[str, Any]:
    case = CALLS[kind].case | fields
    made: dict[str, Any] = harness.make_inputs(case, device=place.device, seed=seed)
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
def test_an_error_that_another_library_left_is_not_reported(
    attention: Attention, harness: Any, place: Place
) -> None:
    inputs = inputs_of(harness, place, kind="splits")
    runtime = ctypes.CDLL(f"libcudart.so.{str(torch.version.cuda).partition('.')[0]}")
    try:
        assert runtime.cudaSetDevice(10_000) != 0
        assert runtime.cudaPeekAtLastError() != 0
        call_of(attention, inputs)
    finally:
        runtime.cudaGetLastError()
    torch.cuda.synchronize()


@on_cuda
@each_call
def test_a_graph_replays_on_new_inputs(
    attention: Attention, harness: Any, place: Place, kind: str
) -> None:
    """CUDA graph: split count or metadata differ from capture."""
    # Lengths change between replays: what was captured must cut the keys by what they are then, and
    # what lies behind them is NaN.
    whole = {"kv_lengths": CALLS[kind].whole, "kv_lengths_dtype": "int64"}
    inputs = inputs_of(harness, place, kind=kind, **whole)
    call_of(attention, inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = call_of(attention, inputs)
    for seed, lengths in enumerate(CALLS[kind].replayed):
        fresh = inputs_of(harness, place, seed=seed, kind=kind, **whole | {"kv_lengths": lengths})
        for name in ("q", "k", "v", "kv_lengths"):
            inputs[name].copy_(fresh[name])
        for _ in range(3):
            out.fill_(torch.nan)
            lse.fill_(torch.nan)
            graph.replay()
            eager, eager_lse = call_of(attention, inputs)
            assert same_bits(out, eager) and same_bits(lse, eager_lse)
        check(harness, inputs, variant=place.variant)


@on_cuda
@each_call
def test_graphs_replay_beside_each_other_and_beside_eager_calls(
    attention: Attention, harness: Any, place: Place, kind: str
) -> None:
    inputs = [inputs_of(harness, place, seed=seed, kind=kind) for seed in range(4)]
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
@each_call
def test_side_streams_do_not_disturb_each_other(
    attention: Attention, harness: Any, place: Place, kind: str
) -> None:
    inputs = [
        inputs_of(harness, place, seed=seed, kind=kind, H=8 * (1 + seed % 3)) for seed in range(6)
    ]
    expected = [call_of(attention, one) for one in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    made: list[tuple[int, Tensor, Tensor]] = []
    for _ in range(30):
        for number, (one, stream) in enumerate(zip(inputs, streams, strict=True)):
            with torch.cuda.stream(stream):
                made.append((number, *call_of(attention, one)))
    torch.cuda.synchronize()
    for number, out, lse in made:
        assert same_bits(out, expected[number][0]) and same_bits(lse, expected[number][1])


@on_cuda
@each_call
def test_memory_of_a_call_is_not_reused_before_its_kernels_end(
    attention: Attention, harness: Any, place: Place, kind: str
) -> None:
    """Split buffers freed before launch."""
    # What the operator allocates is free to be taken again as soon as it returns. On the call's own
    # stream that is written to after the call, so all of it must come from that stream's memory.
    # What other streams can take is overwritten here while the call's kernels wait and run: batches
    # whose states lie in the workspace for long.
    inputs = inputs_of(harness, place, kind=kind, **CALLS[kind].many)
    size = harness.workspace_bytes(inputs, place.variant) // 4
    if size == 0:
        pytest.skip(f"{place} takes no workspace")
    expected, expected_lse = call_of(attention, inputs)
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(10):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # so that what is free is what the calls leave
        done = torch.cuda.Event()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # some 10 ms in which memory may change hands
            made = [call_of(attention, inputs) for _ in range(4)]
            done.record()
        taken = []
        for where in (torch.cuda.current_stream(), other):
            with torch.cuda.stream(where):
                for _ in range(3):
                    taken.append((where, torch.empty(size, device=place.device)))
        while True:
            for where, held in taken:
                with torch.cuda.stream(where):
                    held.fill_(torch.nan)
            if done.query():
                break
        torch.cuda.synchronize()
        for out, lse in made:
            assert same_bits(out, expected) and same_bits(lse, expected_lse)
        del made, taken, held, out, lse


@on_cuda
@each_call
def test_a_call_waits_for_its_own_stream_alone(
    attention: Attention, harness: Any, place: Place, kind: str
) -> None:
    # Inputs are written late on a side stream; the operator must read them after that.
    inputs = inputs_of(harness, place, kind=kind)
    expected, expected_lse = call_of(attention, inputs)
    names = [name for name, value in inputs.items() if isinstance(value, Tensor)]
    late = inputs | {name: torch.zeros_like(inputs[name]) for name in names}
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        for name in names:
            late[name].copy_(inputs[name])
        out, lse = call_of(attention, late)
        # A kernel that may start early must not start before the one ahead of it has written.
        again, again_lse = call_of(attention, late | {"q": late["q"] * 1})
    torch.cuda.synchronize()
    assert same_bits(out, expected) and same_bits(lse, expected_lse)
    assert same_bits(again, expected) and same_bits(again_lse, expected_lse)


def in_threads(
    attention: Attention,
    inputs: list[dict[str, Any]],
    streams: list[torch.cuda.Stream],
    turns: int = 50,
) -> list[str]:
    """What was wrong where a thread made calls of each inputs, on its stream."""
    expected = [call_of(attention, one) for one in inputs]
    torch.cuda.synchronize()
    start = threading.Barrier(len(inputs))
    wrong: list[str] = []

    def work(number: int) -> None:
        try:
            with torch.inference_mode(), torch.cuda.stream(streams[number]):
                start.wait(60)
                for turn in range(turns):
                    # Two calls at a time, so that threads do not only wait for each other.
                    made = [call_of(attention, inputs[number]) for _ in range(2)]
                    streams[number].synchronize()
                    right, right_lse = expected[number]
                    for out, lse in made:
                        if not (same_bits(out, right) and same_bits(lse, right_lse)):
                            wrong.append(f"thread {number}, turn {turn}")
        except Exception as error:
            wrong.append(f"thread {number}: {error!r}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(len(inputs))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return wrong


@on_cuda
@each_call
def test_threads_share_the_operator(
    attention: Attention, harness: Any, place: Place, kind: str
) -> None:
    inputs = [inputs_of(harness, place, seed=seed, kind=kind) for seed in range(4)]
    assert in_threads(attention, inputs, [torch.cuda.Stream() for _ in inputs]) == []


@on_cuda
@each_call
def test_threads_share_a_stream(
    attention: Attention, harness: Any, place: Place, kind: str
) -> None:
    # And with it the counters of calls that merge through the workspace.
    inputs = [inputs_of(harness, place, seed=seed, kind=kind) for seed in range(3)]
    stream = torch.cuda.Stream()
    assert in_threads(attention, inputs, [stream] * len(inputs)) == []


@on_cuda
def test_threads_share_a_stream_whose_counters_grow(
    attention: Attention, harness: Any, place: Place
) -> None:
    # A stream has 16,384 counters at first; these calls need 17,600 and 75,200 in fused.
    # What the other threads' kernels still use must stay as it is when there is more.
    few = inputs_of(harness, place)
    for B in (1100, 4700):
        many = inputs_of(harness, place, B=B, H=2, Skv=40, D=16, num_splits=40)
        stream = torch.cuda.Stream()
        assert in_threads(attention, [few, many, few], [stream] * 3, turns=10) == []


@on_cuda
def test_graphs_that_are_gone_leave_their_counters_to_later_ones(
    attention: Attention, harness: Any, place: Place
) -> None:
    # fused needs 75,200 counters, 300 kB.
    inputs = inputs_of(harness, place, B=4700, H=2, Skv=40, D=16, num_splits=40)
    expected, expected_lse = call_of(attention, inputs)
    pool = torch.cuda.graph_pool_handle()

    def captured() -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            out, lse = call_of(attention, inputs)
        return graph, out, lse

    kept = [captured() for _ in range(2)]
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(150):
        graph, out, lse = captured()
        graph.replay()
        del graph, out, lse
        torch.cuda.synchronize()
    used = before - torch.cuda.mem_get_info()[0]
    assert used < 20 << 20, f"150 graphs took {used >> 20} MiB for good"
    for graph, out, lse in [*kept, captured()]:
        graph.replay()
        torch.cuda.synchronize()
        assert same_bits(out, expected) and same_bits(lse, expected_lse)


@on_cuda
@pytest.mark.parametrize("causal", [False, True])
def test_results_repeat_to_the_bit(
    attention: Attention, harness: Any, place: Place, causal: bool
) -> None:
    calls: tuple[dict[str, Any], ...] = (
        {"num_splits": None},
        {"Sq": 200, "Skv": 700, "num_splits": 5},
        {"D": 256},
        {"kind": "ragged"},
        {"kind": "ragged", "Sq": 4, "D": 100},
        {"kind": "tma"},
    )
    for fields in calls:
        for dtype in place.dtypes:
            named = {"dtype": str(dtype).removeprefix("torch."), "causal": causal}
            inputs = inputs_of(harness, place, **named, **fields)
            out, lse = call_of(attention, inputs)
            for _ in range(50):
                again, again_lse = call_of(attention, inputs)
                assert same_bits(again, out) and same_bits(again_lse, lse)


@on_cuda
@pytest.mark.parametrize("fields", [*({"kind": kind} for kind in CALLS), MERGED_APART],
                         ids=[*CALLS, "merged_apart"])  # fmt: skip
def test_early_launch_changes_no_bit(
    attention: Attention, harness: Any, place: Place, fields: dict[str, Any]
) -> None:
    calls = [inputs_of(harness, place, seed=seed, **fields) for seed in range(3)]
    expected = [call_of(attention, inputs) for inputs in calls]
    torch.cuda.synchronize()
    waiting = functools.partial(attention, overlap=False)
    early = functools.partial(attention, overlap=True)
    # Each behind one that overlaps and behind one that does not, with other inputs, in memory that
    # a call before has given back.
    turns = [(waiting, 0), (early, 1), (early, 2), (attention, 0), (attention, 1)]
    turns += [(waiting, 1), (waiting, 2), (early, 0), (attention, 2)]

    def chain() -> list[tuple[Tensor, Tensor]]:
        return [call_of(call, calls[which]) for call, which in turns * 3]

    graph = torch.cuda.CUDAGraph()
    eager = chain()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        captured = chain()
    for _ in range(3):
        for filled in (of for results in captured for of in results):
            filled.fill_(torch.nan)
        graph.replay()
        for made in (eager, captured):
            for (_, which), results in zip(turns * 3, made, strict=True):
                assert all(map(same_bits, results, expected[which]))


@on_cuda
@pytest.mark.parametrize("fields", [{}, MERGED_APART], ids=["splits", "merged_apart"])
def test_early_launch_follows_overlap_and_by_default_the_kernel_count(
    attention: Attention, harness: Any, place: Place, fields: dict[str, Any]
) -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime")
    inputs = inputs_of(harness, place, **fields)
    number = torch.zeros(1, device="cuda")

    def plain() -> None:
        number.add_(1)

    def of(overlap: bool | None) -> Callable[[], None]:
        def call() -> None:
            call_of(functools.partial(attention, overlap=overlap), inputs)

        return call

    def overlapping(*calls: Callable[[], None]) -> int:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        captured = runtime.cudaGraph_t(graph.raw_cuda_graph())
        error, *_, edges, count = runtime.cudaGraphGetEdges(captured, 64)
        assert error == runtime.cudaError_t.cudaSuccess and count > 0
        kind = runtime.cudaGraphDependencyType.cudaGraphDependencyTypeProgrammatic
        return sum(edge.type == kind for edge in edges[:count])

    of(None)()
    # Both calls take two kernels in wgmma, which is the default of the second.
    second = int(place.variant == "wgmma" or (place.variant is None and bool(fields)))
    first = int(place.variant not in ("fa1", "two_pass"))
    assert overlapping(plain, of(True)) == first + second
    assert overlapping(plain, of(False)) == second
    assert overlapping(plain, of(None)) == 2 * second
    assert overlapping(plain, of(None), of(None)) == 4 * second
    assert overlapping(of(None), of(None), of(None)) == 5 * second  # nothing is ahead of the first
    assert overlapping(plain, of(None), of(True)) == first + 3 * second


@on_cuda
def test_a_second_device_gives_the_same_result(
    attention: Attention, harness: Any, place: Place
) -> None:
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


@pytest.mark.parametrize("place", [p for p in ON_CUDA if p.values[0].variant is None])
@each_call
def test_torch_compile_captures_calls_into_cuda_graphs(
    attention: Attention, harness: Any, place: Place, kind: str
) -> None:
    """torch.compile with CUDA graphs: the first call warms up, the second is captured."""
    pytest.importorskip("triton")
    counters = pytest.importorskip("torch._dynamo.utils").counters
    torch.compiler.reset()
    counters.clear()
    splits = CALLS[kind].case.get("num_splits")

    def attend(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = attention(q, k, v, num_splits=splits, kv_lengths=lengths, return_lse=True)
        return out * 2, lse

    compiled = torch.compile(attend, mode="reduce-overhead", fullgraph=True)
    for seed, lengths in enumerate(CALLS[kind].replayed):
        inputs = inputs_of(harness, place, seed=seed, kind=kind, kv_lengths=lengths)
        arguments = [inputs[name] for name in ("q", "k", "v", "kv_lengths")]
        torch.compiler.cudagraph_mark_step_begin()
        for got, right in zip(compiled(*arguments), attend(*arguments), strict=True):
            assert same_bits(got, right)
    assert counters["inductor"]["cudagraph_skips"] == 0
    torch.compiler.reset()


IN_A_SPECIALISATION = """
import sys, torch
torch.ops.load_library(sys.argv[1])
for dtype, columns in ((torch.bfloat16, 128), (torch.float16, 128), (torch.bfloat16, 64)):
    for variant in (None, *sys.argv[2:]):
        q, k, v = (torch.ones(1, 2, 5, columns, dtype=dtype, device="cuda") for _ in "qkv")
        try:
            out, _ = torch.ops.kbtool.split_k_attention(q, k, v, variant=variant)
            print(variant, dtype, columns, float(out.float().mean()))
        except ValueError as error:
            print(variant, dtype, columns, error)
"""


@pytest.mark.gpu
@pytest.mark.skipif(ARCHITECTURE is None, reason="no CUDA card that the kernel is for")
def test_a_specialisation_refuses_other_types_and_head_dimensions(tmp_path: Path) -> None:
    assert ARCHITECTURE is not None
    kernel = MANIFEST.specialised("cuda", "bf16_d128")
    plan = plan_build(kernel, FOLDER, "cuda", tmp_path, ARCHITECTURE)
    build(plan, timeout=600)
    variants = kernel.targets["cuda"].variants_for(ARCHITECTURE)
    argv = [sys.executable, "-c", IN_A_SPECIALISATION, str(plan.library), *variants]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    count = 1 + len(variants)
    assert [line.split()[-1] for line in lines[:count]] == ["1.0"] * count
    refusal = "is not in this build"
    assert all(refusal in line for line in lines[count : 2 * count])
    # fa1 and two_pass have one kernel for all head dimensions.
    of_64 = {line.split()[0]: refusal in line for line in lines[2 * count :]}
    assert of_64 == {name: name not in {"fa1", "two_pass"} for name in ("None", *variants)}
