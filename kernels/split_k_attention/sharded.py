"""Decoding over keys that several cards hold: first whether it is right, then how fast it is.

Each rank is a process with a card of its own, or on the CPU with gloo. Rank 0 draws all keys of a
case and sends every rank its part. The output has to pass the rule of validation and to be the same
bits on every rank and in a second call, as a graph on cards. Only then it is timed, in turn with

- one card: the operator over all keys on rank 0, while the others wait;
- gathered keys: an all-gather of keys and values, and the operator over all of them on every rank;
- exchange: the all-gather of the states and their merge, without attention.

A time is that of the slowest rank. Each line of the output is a value for the record. Run it by
``kbtool run-recipe sharded``.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor

from kbtool.attention import merge, split_k_attention, split_k_attention_sharded
from kbtool.gpu.compare import Judge, same_bits
from kbtool.gpu.harness import load_harness

H, HKV, D = 32, 8, 128
SAMPLES = 20
SAMPLE_SECONDS, MOST_CALLS = 0.01, 200
LIMIT = timedelta(minutes=2)
OURS, ONE_CARD, GATHERED, EXCHANGE = "sharded", "one card", "gathered keys", "exchange"
Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Rank:
    """This process among the ranks."""

    number: int
    count: int
    device: torch.device

    def largest(self, value: float) -> float:
        """The largest value of all ranks."""
        held = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(held, dist.ReduceOp.MAX)
        return held.item()

    def synchronise(self) -> None:
        """Wait for this rank's work and for all ranks."""
        self.largest(0)

    def say(self, text: str) -> None:
        if self.number == 0:
            print(text, file=sys.stderr, flush=True)


@dataclass
class Case:
    """The queries, this rank's keys and values, and on rank 0 all inputs."""

    batch: int
    keys: int
    q: Tensor
    k: Tensor
    v: Tensor
    inputs: dict[str, Any] | None

    @classmethod
    def shared(cls, rank: Rank, batch: int, keys: int) -> "Case":
        """Rank 0 draws and sends. As ``tensor_split`` does, the first ranks get one key more."""
        own = keys // rank.count + (rank.number < keys % rank.count)
        q, k, v = (
            torch.empty(batch, heads, length, D, dtype=torch.bfloat16, device=rank.device)
            for heads, length in ((H, 1), (HKV, own), (HKV, own))
        )
        inputs = None
        if rank.number == 0:
            case = {"B": batch, "H": H, "Hkv": HKV, "Sq": 1, "Skv": keys, "D": D}
            inputs = _HARNESS.make_inputs(
                case | {"dtype": "bfloat16"}, device=rank.device, seed=batch * keys
            )
            q.copy_(inputs["q"])
        dist.broadcast(q, 0)
        for name, part in (("k", k), ("v", v)):
            if inputs is None:
                dist.recv(part, 0)
                continue
            first, *others = inputs[name].tensor_split(rank.count, dim=2)
            part.copy_(first)
            for number, other in enumerate(others, start=1):
                dist.send(other.contiguous(), number)
        return cls(batch, keys, q, k, v, inputs)


_HARNESS = load_harness(Path(__file__).parent / "harness.py")


# ---- what is timed ----


def calls(rank: Rank, case: Case) -> dict[str, Call | None]:
    """By name; None on the ranks that wait meanwhile."""
    q, k, v = case.q, case.k, case.v
    made: dict[str, Call | None] = {
        OURS: partial(split_k_attention_sharded, q, k, v),
        EXCHANGE: _exchange(rank, case),
        ONE_CARD: None,
    }
    if case.inputs is not None:
        made[ONE_CARD] = partial(split_k_attention, q, case.inputs["k"], case.inputs["v"])
    if reason := _too_much(rank, case):
        rank.say(f"{case.batch} x {case.keys}: without {GATHERED}, {reason}")
    else:
        made[GATHERED] = _gathered(case, rank)
    return made


def _exchange(rank: Rank, case: Case) -> Call:
    # As split_k_attention_sharded packs it: the last two elements are the bits of the LSE.
    state = case.q.new_zeros(*case.q.shape[:3], D + 2)
    states = state.new_empty(rank.count, *state.shape)

    def exchange() -> Tensor:
        _all_gather(states, state)
        merged: Tensor = merge(states[..., :D], states.view(torch.float32)[..., -1])
        return merged

    return exchange


def _gathered(case: Case, rank: Rank) -> Call:
    # Keys outermost, so that what is gathered is one tensor of all keys without a copy.
    own = [t.permute(2, 0, 1, 3).contiguous() for t in (case.k, case.v)]
    whole = [t.new_empty(case.keys, *t.shape[1:]) for t in own]

    def gather() -> Tensor:
        for there, here in zip(whole, own, strict=True):
            _all_gather(there, here)
        return split_k_attention(case.q, *(t.permute(1, 2, 0, 3) for t in whole))

    return gather


def _too_much(rank: Rank, case: Case) -> str | None:
    """Why keys are not gathered."""
    if case.keys % rank.count:
        return f"as {rank.count} ranks do not divide the keys equally"
    if rank.device.type == "cpu":
        return None
    # Copies of all keys: rank 0's, what is gathered, and two of each rank's part.
    needed = (2 + 2 / rank.count) * 2 * case.keys * case.batch * HKV * D * 2
    there = torch.cuda.get_device_properties(rank.device).total_memory
    if rank.largest(needed > 0.9 * there):
        return f"as it needs {needed / 2**30:.0f} GiB a card"
    return None


def _all_gather(whole: Tensor, own: Tensor) -> None:
    # Its name before torch 2.13 warns since.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(whole.view(-1), own.view(-1))


def captured(call: Call) -> tuple[Call, Tensor]:
    """A call that replays ``call`` as a CUDA graph, and the tensor that it writes."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Of this thread alone: NCCL's watchdog asks for events from a thread of its own.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        out = call()

    def replay() -> Tensor:
        graph.replay()
        return out

    return replay, out


def seconds(rank: Rank, call: Call | None, count: int) -> float:
    """Of one call, on the slowest rank, over ``count`` calls one after the other."""
    rank.synchronise()
    took = 0.0
    if call is not None and rank.device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        took = begin.elapsed_time(end) / 1e3
    elif call is not None:
        start = time.perf_counter()
        for _ in range(count):
            call()
        took = time.perf_counter() - start
    return rank.largest(took) / count


# ---- what is right ----


def wrong(rank: Rank, case: Case, outs: Sequence[Tensor]) -> str | None:
    """What is wrong with these outputs of this rank, or of rank 0; the first passes the rule of
    validation, and all are its bits."""
    expected = outs[0].clone()
    dist.broadcast(expected, 0)
    for out in outs:
        if not same_bits(out, expected):
            return f"rank {rank.number} has other bits than rank 0, or than at first"
    if case.inputs is None:
        return None
    verdict = Judge(_HARNESS, case.inputs).first(expected)
    return None if verdict.passed else f"the output is wrong: {verdict.message}"


def log(name: str, value: float, unit: str, better: str, case: dict[str, object]) -> None:
    line = {"name": name, "value": value, "unit": unit, "better": better, "case": case}
    print(f"KBTOOL_RESULT {json.dumps(line)}", flush=True)


def run(rank: Rank, batch: int, keys: int, samples: int) -> None:
    case = Case.shared(rank, batch, keys)
    outs = [split_k_attention_sharded(case.q, case.k, case.v).clone() for _ in range(2)]
    timed = calls(rank, case)
    if rank.device.type == "cuda":
        for name, call in timed.items():
            if call is not None:
                timed[name], out = captured(call)
                if name == OURS:
                    timed[name]()
                    outs.append(out.clone())
    message = wrong(rank, case, outs)
    if message is not None:
        print(f"{batch} x {keys}: {message}", file=sys.stderr, flush=True)
    if rank.largest(message is not None):
        sys.exit(1)
    counts = {
        name: max(1, min(MOST_CALLS, int(SAMPLE_SECONDS / seconds(rank, call, 3))))
        for name, call in timed.items()
    }
    times: dict[str, list[float]] = {name: [] for name in timed}
    for sample in range(samples + 1):
        for name, call in timed.items():
            took = seconds(rank, call, counts[name])
            if sample > 0:  # the first one warms up
                times[name].append(took)
    if rank.number == 0:
        report(times, {"batch": batch, "keys": keys, "ranks": rank.count})


def report(times: dict[str, list[float]], case: dict[str, object]) -> None:
    for name, taken in times.items():
        for took in taken:
            log("time of a call", took * 1e6, "us", "lower", {"of": name, **case})
    for ours, one in zip(times[OURS], times[ONE_CARD], strict=True):
        log("speed-up over one card", one / ours, "1", "higher", case)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    print(
        f"{case['batch']:3} x {case['keys']:8} on {case['ranks']}:"
        f" {medians[ONE_CARD] / medians[OURS]:5.2f} times as fast as one card;"
        f" {', '.join(f'{name} {median * 1e6:.1f} us' for name, median in medians.items())}",
        flush=True,
    )


def serve(
    number: int, count: int, device: str, meeting: str, cases: Sequence[str], samples: int
) -> None:
    """One rank, from its start to its end."""
    backend = "gloo"
    if device == "cuda":
        torch.cuda.set_device(number)
        backend = "nccl"
    torch.set_num_threads(1)
    dist.init_process_group(
        backend, init_method=meeting, rank=number, world_size=count, timeout=LIMIT
    )
    rank = Rank(number, count, torch.device(device, number if device == "cuda" else None))
    with torch.inference_mode():
        for case in cases:
            batch, keys = map(int, case.split("x"))
            run(rank, batch, keys, samples)
    dist.destroy_process_group()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="1x65536", help="BATCHxKEYS, separated by commas")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--ranks", type=int, help="default: one for each card; 2 on the CPU")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="timed samples of each")
    given = parser.parse_args(arguments)
    there = torch.cuda.device_count() if given.device == "cuda" else 2
    count = given.ranks or there
    if given.device == "cuda" and not 2 <= count <= there:
        sys.exit(f"{count} ranks need as many cards, and at least two: there are {there}")
    with tempfile.TemporaryDirectory() as folder:
        meeting = (Path(folder) / "meeting").as_uri()
        rest = (count, given.device, meeting, given.cases.split(","), given.samples)
        try:
            torch.multiprocessing.spawn(serve, rest, nprocs=count)
        except torch.multiprocessing.ProcessExitedException as ended:
            sys.exit(ended.exit_code or 1)


if __name__ == "__main__":
    main()
