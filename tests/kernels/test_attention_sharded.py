"""``kbtool.attention.split_k_attention_sharded``: keys that lie on several ranks."""

from __future__ import annotations

import inspect
import math
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from attention_rule import ARCHITECTURE, CPU, FOLDER, same_bits
from ranks import Answer, Ranks
from torch import Tensor
from torch.distributed import ProcessGroup

import kbtool.attention
from kbtool.attention import count_keys_after, split_k_attention_sharded
from kbtool.gpu.compare import Judge
from kbtool.gpu.harness import load_module

Case = dict[str, Any]
COUNTS = [2, 3, 4]
NAN_OF_8_BITS = 0x7F


def load(library: str) -> None:
    """In a rank: the library that this run of the tests built."""
    torch.ops.load_library(library)
    interface = load_module(FOLDER / "interface.py", "split_k_attention_interface")
    for name in ("merge", "split_k_attention"):
        kbtool.attention._loaded[name] = getattr(interface, name)


def started(interface: Any, folder: Path, backend: str = "gloo") -> Iterator[Ranks]:
    [library] = (name for name in torch.ops.loaded_libraries if "split_k_attention" in name)
    ranks = Ranks(folder, (__name__, "load", library), backend)
    yield ranks
    ranks.stop()


@pytest.fixture(scope="module")
def ranks(interface: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    yield from started(interface, tmp_path_factory.mktemp("ranks"))


# ---- a case: one of the harness, and how many keys of each entry each rank has ----


def case_of(cut: list[list[int]], **change: Any) -> Case:
    """``cut`` has the keys of each entry for each rank. ``keys_after`` is the form of the argument;
    ``spare`` is how many NaNs stand past the longest entry of a shard."""
    B, total = len(cut[0]), [sum(of_entry) for of_entry in zip(*cut, strict=True)]
    case = {
        "B": B,
        "H": 4,
        "Hkv": 2,
        "Sq": 1,
        "D": 64,
        "dtype": "float32",
        "Skv": max(total, default=0),
    }
    case |= {"kv_lengths": total, "cut": cut, "keys_after": "list", "pages": None, "spare": 3}
    return case | change


def inputs_of(harness: Any, case: Case) -> dict[str, Any]:
    own = {"cut", "keys_after", "pages", "spare"}
    given = {name: value for name, value in case.items() if name not in own}
    made: dict[str, Any] = harness.make_inputs(given, device=CPU, seed=len(str(case)))
    return made


def after_of(case: Case, rank: int) -> Any:
    after = [sum(of_entry) for of_entry in zip(*case["cut"][rank + 1 :], strict=True)]
    after = after or [0] * case["B"]
    if case["keys_after"] == "none":
        return None
    if case["keys_after"] == "tensor":
        return torch.tensor(after, dtype=torch.int32)
    if case["keys_after"] == "int":
        [only] = set(after)
        return only
    return after


def arguments_of(harness: Any, case: Case, rank: int) -> dict[str, Any]:
    """What the rank passes: its part of the keys, with NaN past each length and in unused pages."""
    inputs, lengths = inputs_of(harness, case), case["cut"][rank]
    starts = [sum(of_entry) for of_entry in zip(*case["cut"][:rank], strict=True)] or [0] * case[
        "B"
    ]
    size = case["pages"]
    capacity = max(lengths, default=0) + case["spare"]
    if size:
        capacity = -(-capacity // size) * size
    shards = []
    for name in ("k", "v"):
        t = inputs.get(f"{name}_fp8", inputs[name])
        bits = t.view(torch.uint8) if t.dtype.itemsize == 1 else t
        shape = (*t.shape[:2], capacity, t.shape[3])
        shard = bits.new_full(shape, NAN_OF_8_BITS if bits.dtype == torch.uint8 else math.nan)
        for b, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            shard[b, :, :length] = bits[b, :, start : start + length]
        if size:
            pages = shard.unflatten(2, (-1, size)).transpose(1, 2).flatten(0, 1)
            shard = pages.flip(0)  # entry 0 has the last ones
        shards.append(shard.view(t.dtype))
    names = (
        "q",
        "causal",
        "scale",
        "num_splits",
        "window",
        "softcap",
        "sinks",
        "k_scale",
        "v_scale",
    )
    made = {name: inputs[name] for name in names}
    made |= {"k_shard": shards[0], "v_shard": shards[1], "keys_after": after_of(case, rank)}
    if size:
        columns = capacity // size
        numbers = torch.arange(case["B"] * columns, dtype=torch.int32).flip(0)
        made["block_table"] = numbers.view(case["B"], columns)
    if size or {*lengths} != {capacity}:
        made["kv_lengths"] = torch.tensor(lengths)
    return made


def own_call(case: Case, group: ProcessGroup) -> dict[str, Any]:
    """On a rank: the arguments of its call, on its device."""
    harness = load_module(FOLDER / "harness.py", "split_k_attention_harness")
    call = arguments_of(harness, case, dist.get_rank(group)) | {"group": group}
    if dist.get_backend(group) == "nccl":
        call = {k: v.cuda() if isinstance(v, Tensor) else v for k, v in call.items()}
    return call


def attend(cases: list[Case], group: ProcessGroup) -> list[tuple[Tensor, Tensor]]:
    """On a rank: output and LSE of each case."""
    made = [split_k_attention_sharded(**own_call(case, group), return_lse=True) for case in cases]
    return [(out.cpu(), lse.cpu()) for out, lse in made]


def hold(ranks: Ranks, harness: Any, count: int, cases: list[Case]) -> None:
    """All ranks give the same bits, twice, and they are right by the rule of validation."""
    of_ranks, again = (values(ranks.run(count, attend, [cases] * count)) for _ in range(2))
    for number, case in enumerate(cases):
        first = of_ranks[0][number]
        for other in (*of_ranks, *again):
            assert all(map(same_bits, other[number], first)), f"other bits: {case}"
        judge = Judge(harness, inputs_of(harness, case))
        for name, verdict in judge.all(dict(zip(("out", "lse"), first, strict=True))).items():
            assert verdict.passed, f"{name} {verdict.message}: {case}"


def values(answers: list[Answer]) -> list[Any]:
    assert [answer.error for answer in answers if answer.error or answer.died] == []
    return [answer.value for answer in answers]


# ---- right results, the same bits everywhere ----


def cut_of(count: int, *first: list[int], last: list[int]) -> list[list[int]]:
    """A cut for ``count`` ranks: these first ones, then some of 40 and more keys, and the last."""
    between = [[40 + 7 * rank + b for b in range(len(last))] for rank in range(count)]
    return [*[*first, *between][: count - 1], last]


def listed(count: int) -> dict[str, Case]:
    long, causal = [300, 41], {"causal": True, "Sq": 5}
    some = cut_of(count, long, last=[200, 77])
    few = cut_of(count, long, last=[2, 3])  # the queries' own keys lie on two ranks
    ones = [[1, 1]] * count
    bf16, fp16 = {"dtype": "bfloat16"}, {"dtype": "float16"}
    return {
        "decode": case_of(some),
        "decode as causal": case_of(some, causal=True, keys_after="none"),
        "shards without lengths": case_of([[64, 64]] * count, spare=0, **bf16),
        "the first rank empty": case_of(cut_of(count, [0, 0], last=[200, 77]), spare=0),
        "the last rank empty": case_of(cut_of(count, long, last=[0, 0]), spare=0, **causal),
        "the middle empty": case_of(cut_of(count, long, [0, 0], last=[200, 77]), **causal),
        "entries empty on some ranks": case_of(cut_of(count, [0, 9], last=[30, 0]), **causal),
        "no key anywhere": case_of([[0, 0]] * count, **causal, sinks="random"),
        "one rank has every key": case_of([*[[0, 0]] * (count - 1), [90, 50]], **causal),
        "causal": case_of(some, **causal),
        "causal over the border": case_of(few, **causal),
        "causal over the border, a number": case_of(
            [[70, 70]] * (count - 1) + [[3, 3]], **causal, keys_after="int"
        ),
        "causal over the border, on the device": case_of(
            few, **causal, keys_after="tensor", **fp16
        ),
        "causal over all borders": case_of(ones, **causal),
        "causal over all borders, on the device": case_of(ones, **causal, keys_after="tensor"),
        "more queries than keys": case_of(ones, causal=True, Sq=9, H=2),
        "a window of one key": case_of(few, **causal, window=1),
        "a window over the border": case_of(few, **causal, window=6),
        "a window of one query over the border": case_of(few, causal=True, window=40),
        "a window that the last rank holds": case_of(some, causal=True, window=77),
        "a window of more than all keys": case_of(few, **causal, window=4000),
        "a window, softcap and sinks": case_of(
            few, **causal, window=50, softcap=3.0, sinks="large", **bf16
        ),
        "fewer columns of values": case_of(few, **causal, Dv=40, **bf16),
        "odd columns of values": case_of(some, Dv=71, **fp16),
        "sinks": case_of(some, sinks="large"),
        "sinks of NaN": case_of(some, **causal, sinks="nan"),
        "sinks that are none": case_of(few, **causal, sinks="minus_inf", **fp16),
        "pages": case_of(some, pages=16, **fp16),
        "pages, causal over the border": case_of(few, **causal, pages=4, **bf16),
        "pages, on the device": case_of(few, **causal, pages=4, keys_after="tensor"),
        "pages, a window over the border": case_of(few, **causal, pages=1, window=7),
        "pages of empty ranks": case_of([[0, 0]] * (count - 1) + [long], pages=8, spare=0),
        "8 bits": case_of(some, kv_dtype="float8_e4m3fn", kv_scale="head", **bf16),
        "8 bits in pages": case_of(
            few, **causal, pages=16, kv_dtype="float8_e5m2", kv_scale="tensor", **fp16
        ),
        "an odd head dimension in 16 bits": case_of(some, D=33, **bf16),
        "splits": case_of(some, num_splits=7, **causal, H=6),
        "one query head": case_of(some, H=2, Hkv=2, scale=-0.3, D=128),
        "a NaN key": case_of(some, fill="nan_key"),
        "an infinite logit": case_of(some, fill="inf_key"),
        "large logits": case_of(some, fill="large_logits", **causal),
        "values all 1": case_of(some, fill="v_one", **fp16),
        "no queries": case_of(some, Sq=0, causal=True),
        "no entries": case_of([[]] * count, causal=True, Sq=3),
    }


@pytest.mark.parametrize("count", COUNTS)
def test_listed_cases_are_right_and_repeat(ranks: Ranks, harness: Any, count: int) -> None:
    hold(ranks, harness, count, list(listed(count).values()))


def drawn_case(draw: random.Random, count: int) -> Case:
    B, Hkv, Sq = draw.randint(1, 3), draw.randint(1, 2), draw.choice([1, 1, 2, 5, 9])
    most = draw.choice([1, 6, 60, 200])
    cut = [[draw.choice([0, 1, most, draw.randint(0, most)]) for _ in range(B)]
           for _ in range(count)]  # fmt: skip
    if draw.random() < 0.2:
        cut[draw.randrange(count)] = [0] * B
    total = max(sum(of_entry) for of_entry in zip(*cut, strict=True))
    wide = draw.choice(["float32", "float16", "bfloat16"])
    case = {
        "H": Hkv * draw.randint(1, 4),
        "Hkv": Hkv,
        "Sq": Sq,
        "D": draw.choice([16, 64, 72, draw.randint(1, 90)]),
        "dtype": wide,
        "causal": draw.random() < 0.8,
        "num_splits": draw.choice([None, draw.randint(1, 9)]),
        "softcap": draw.choice([None, None, 3.0]),
        "sinks": draw.choice([None, "random", "large"]),
        "fill": draw.choice(["random", "random", "inf_beyond", "v_one"]),
        "pages": draw.choice([None, 1, 4, 16, 64]),
        "spare": draw.choice([0, 1, 30]),
        "keys_after": draw.choice(["list", "tensor"]),
    }
    if case["causal"] and draw.random() < 0.4:
        case["window"] = draw.choice([1, 2, Sq, draw.randint(1, total + 9)])
        case["keys_after"] = "list"
    if wide != "float32" and draw.random() < 0.3:
        case["kv_dtype"] = draw.choice(["float8_e4m3fn", "float8_e5m2"])
        case["kv_scale"] = draw.choice(["tensor", "one", "head"])
    return case_of(cut, **case)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", COUNTS)
def test_drawn_cases_are_right_and_repeat(
    ranks: Ranks, harness: Any, count: int, seed: int
) -> None:
    draw = random.Random(seed * 8 + count)
    hold(ranks, harness, count, [drawn_case(draw, count) for _ in range(40)])


def test_parts_merge_in_the_order_of_ranks(ranks: Ranks, harness: Any, interface: Any) -> None:
    # Of four parts a merge in pairs would give the same bits from the last to the first.
    cases = [case_of([[30, 8], [300, 9], [2, 200]], dtype=dtype, sinks="large")
             for dtype in ("float32", "bfloat16")]  # fmt: skip
    for case, made in zip(cases, values(ranks.run(3, attend, [cases] * 3))[0], strict=True):
        parts = []
        for rank in range(3):
            call = arguments_of(harness, case, rank)
            k, v, _ = (call.pop(name) for name in ("k_shard", "v_shard", "keys_after"))
            if rank:
                call["sinks"] = None
            parts.append(interface.split_k_attention(k=k, v=v, **call, return_lse=True))
        stacked = (torch.stack(which) for which in zip(*parts, strict=True))
        assert all(map(same_bits, made, interface.merge(*stacked, return_lse=True)))


def test_more_keys_after_than_matter_change_no_bit(ranks: Ranks) -> None:
    for case in (
        case_of([[9, 9], [4, 30]], causal=True, Sq=5),
        case_of([[9, 9], [44, 30]], causal=True, Sq=5, window=20),
    ):
        exact, more = values(ranks.run(2, attend_with_more_keys_after, [case] * 2))[0]
        assert all(map(same_bits, exact, more))


def attend_with_more_keys_after(case: Case, group: ProcessGroup) -> list[tuple[Tensor, Tensor]]:
    call = own_call(case, group) | {"check": True}
    most = case["Sq"] - 1 + (case.get("window") or 0)
    more = [10**9 if after >= most else after for after in call["keys_after"]]
    assert dist.get_rank(group) or more != call["keys_after"]
    of = ([("keys_after", call["keys_after"])], [("keys_after", more)])
    return [split_k_attention_sharded(**call | dict(change), return_lse=True) for change in of]


# ---- the exchange ----


def count_exchanges(case: Case, group: ProcessGroup) -> tuple[list[int], int]:
    """On a rank: the bytes of each collective that a call makes, and those that are said."""
    call, sent, plain = own_call(case, group), [], dist.all_gather_single

    def counted(gathered: Tensor, t: Tensor, **given: Any) -> Any:
        sent.append(t.nbytes)
        return plain(gathered, t, **given)

    dist.all_gather_single = counted
    try:
        split_k_attention_sharded(**call)
    finally:
        dist.all_gather_single = plain
    q = call["q"]
    return sent, q.shape[:3].numel() * (q.shape[3] * q.element_size() + 4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_call_is_one_exchange_of_the_bytes_that_are_said(ranks: Ranks, dtype: str) -> None:
    case = case_of([[300, 40]] * 3, Sq=2, causal=True, dtype=dtype, D=33, sinks="random")
    for sent, said in values(ranks.run(3, count_exchanges, [case] * 3)):
        assert sent == [said]


def count_after(lengths: list[int], group: ProcessGroup) -> Tensor:
    return count_keys_after(torch.tensor(lengths), group)


def test_keys_after_are_counted_by_one_exchange(ranks: Ranks) -> None:
    made = values(ranks.run(3, count_after, [[1, 20], [300, 0], [7, 4]]))
    assert [after.tolist() for after in made] == [[307, 4], [7, 4], [0, 0]]


def attend_in_pairs(case: Case, group: ProcessGroup) -> Any:
    """On one of four ranks: calls in its pair, and in the other one."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own, other = pairs if dist.get_rank(group) < 2 else reversed(pairs)
    made = split_k_attention_sharded(**own_call(case, own), return_lse=True)
    with pytest.raises(ValueError, match="this process is no rank of group"):
        split_k_attention_sharded(**own_call(case, own) | {"group": other})
    return made


def test_a_group_may_be_a_part_of_all_ranks(ranks: Ranks) -> None:
    case = case_of([[30, 8], [5, 2]], causal=True, Sq=4)
    [(expected, _), _] = [answer[0] for answer in values(ranks.run(2, attend, [[case]] * 2))]
    for out, _ in values(ranks.run(4, attend_in_pairs, [case] * 4)):
        assert same_bits(out, expected)


@pytest.mark.parametrize(
    "case",
    [
        case_of([[30, 8], [3, 2]], causal=True, Sq=4, dtype="bfloat16", sinks="random"),
        case_of([[30, 8], [3, 2]], causal=True, Sq=4, keys_after="tensor", pages=4),
    ],
)
def test_a_call_compiles_as_one_graph(ranks: Ranks, case: Case) -> None:
    for plain, compiled in values(ranks.run(2, attend_compiled, [case] * 2)):
        assert all(map(same_bits, compiled, plain))


def attend_compiled(case: Case, group: ProcessGroup) -> list[tuple[Tensor, Tensor]]:
    call = own_call(case, group) | {"return_lse": True}
    compiled = torch.compile(split_k_attention_sharded, fullgraph=True, backend="aot_eager")
    return [function(**call) for function in (split_k_attention_sharded, compiled)]


# ---- ranks that do not come ----

DECODE = case_of([[300, 40], [200, 77], [8, 8], [9, 9]])


def attend_unless_killed(request: tuple[Case, bool], group: ProcessGroup) -> None:
    case, is_killed = request
    attend([case], group)
    if is_killed:
        os.kill(os.getpid(), signal.SIGKILL)
    attend([case] * 50, group)


def attend_late(request: tuple[Case, float], group: ProcessGroup) -> None:
    case, seconds = request
    time.sleep(seconds)
    attend([case], group)


def assert_told(answer: Answer, rank: int, count: int, limit: int) -> None:
    assert answer.error.startswith(
        f"DistBackendError: sharded attention: rank {rank} of {count} could not exchange with the"
        f" others (time limit of the group: {limit} s): "
    )
    assert "read the first error that each rank printed" in answer.error
    assert "check=True" in answer.error


@pytest.mark.parametrize(("count", "killed"), [(2, 0), (3, 1), (4, 3)])
def test_a_killed_rank_is_an_error_on_all_others(ranks: Ranks, count: int, killed: int) -> None:
    case = DECODE | {"cut": DECODE["cut"][:count], "kv_lengths": None}
    requests = [(case, rank == killed) for rank in range(count)]
    answers = ranks.run(count, attend_unless_killed, requests, limit=10)
    assert [answer.died for answer in answers] == [rank == killed for rank in range(count)]
    for rank, answer in enumerate(answers):
        if rank != killed:
            assert_told(answer, rank, count, 10)
            assert answer.seconds < 12


def test_a_rank_that_does_not_come_is_an_error_on_all_others(ranks: Ranks) -> None:
    requests = [(DECODE, 4.0 if rank == 2 else 0.0) for rank in range(4)]
    answers = ranks.run(4, attend_late, requests, limit=1)
    for rank, answer in enumerate(answers):
        assert_told(answer, rank, 4, 1)
        assert rank == 2 or 0.9 < answer.seconds < 3.5


# ---- wrong arguments ----

CAUSAL = case_of([[30, 8], [3, 2], [2, 2]], causal=True, Sq=4, dtype="bfloat16", sinks="random")


def attend_checked(request: tuple[Case, dict[str, Any]], group: ProcessGroup) -> Any:
    """On a rank: a call with ``check``; a change by a function is made to the argument."""
    case, changes = request
    call = own_call(case, group) | {"check": True}
    for name, change in changes.items():
        call[name] = change[0](call[name], *change[1:]) if isinstance(change, tuple) else change
    return split_k_attention_sharded(**call)


def test_checking_changes_no_bit(ranks: Ranks) -> None:
    for case in (CAUSAL, CAUSAL | {"keys_after": "tensor"}, CAUSAL | {"window": 3}):
        [(expected, _)] = values(ranks.run(3, attend, [[case]] * 3))[0]
        for out in values(ranks.run(3, attend_checked, [(case, {})] * 3)):
            assert same_bits(out, expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": (torch.Tensor.half,), "k_shard": (torch.Tensor.half,),
          "v_shard": (torch.Tensor.half,)},
         "q must be the same on all ranks, got rank 0: torch.bfloat16 .*; rank 1: torch.float16"),
        ({"q": (torch.Tensor.narrow, 2, 0, 3)}, r"q must be .* rank 1: .* \(2, 4, 3, 64\)"),
        ({"q": (torch.Tensor.neg,)}, "q must be the same on all ranks, got rank 0: .*CRC-32"),
        ({"k_shard": (torch.Tensor.narrow, 1, 0, 1), "v_shard": (torch.Tensor.narrow, 1, 0, 1)},
         "k_shard must be the same .* rank 1: torch.bfloat16 of 1 heads; rank 2"),
        ({"sinks": None}, "sinks must be the same .* rank 1: None"),
        ({"sinks": (torch.Tensor.neg,)}, "sinks must be the same .*CRC-32"),
        ({"causal": False}, "causal must be .* rank 0: True; rank 1: False; rank 2: True"),
        ({"window": 7}, "window must be .* rank 0: None; rank 1: 7"),
        ({"scale": 0.5}, "scale must be .* rank 0: None; rank 1: 0.5"),
        ({"softcap": 3.0}, "softcap must be .* rank 1: 3.0"),
        ({"keys_after": [2, 1]}, "keys_after of rank 1 must be 2 for entry 1, .* got 1"),
        ({"keys_after": 0}, "keys_after of rank 1 must be 2 for entry 0, .* got 0"),
        ({"kv_lengths": torch.tensor([0, 0])},
         "keys_after of rank 0 must be 2 for entry 0, .* got 5"),
        ({"kv_lengths": torch.tensor([3, 99])},
         r"(rank 1 raised ValueError: split_k_attention: )?kv_lengths must lie in \[0, Skv\]"),
        ({"scale": "x"}, "rank 1 raised TypeError: split_k_attention: scale must be|scale must be"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_an_error_on_all_ranks(
    ranks: Ranks, changes: dict[str, Any], message: str
) -> None:
    case = CAUSAL | {"cut": [[30, 8], [3, 2], [2, 2]]}
    answers = ranks.run(
        3, attend_checked, [(case, changes if rank == 1 else {}) for rank in range(3)]
    )
    for rank, answer in enumerate(answers):
        assert re.search(message, answer.error), (rank, answer.error)
        assert answer.error.startswith(("ValueError", "TypeError")), (rank, answer.error)


def refuse(changes: list[dict[str, Any]], group: ProcessGroup) -> list[str]:
    """On a rank: what it says to each change of a right call."""
    said = []
    for change in changes:
        try:
            split_k_attention_sharded(**own_call(CAUSAL, group) | change)
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
        else:
            said.append("nothing")
    return said


REFUSED = [
    ({"keys_after": None}, "ValueError: sharded attention: keys_after must be given with causal"),
    (
        {"keys_after": [1]},
        r"ValueError: .* keys_after must be B = 2 numbers of at least 0.* got \[1\]",
    ),
    ({"keys_after": -1}, "ValueError: .* keys_after must be B = 2 numbers .* got -1"),
    ({"keys_after": 1.5}, "TypeError: .* keys_after must be an int, B ints or a tensor.*got 1.5"),
    ({"keys_after": torch.tensor([1, 2, 3])}, r"ValueError: .* shape \(B,\) = \(2,\), .*\(3,\)"),
    ({"keys_after": torch.zeros(2)}, "ValueError: .* torch.int32 or torch.int64 .* torch.float32"),
    ({"keys_after": torch.tensor([1, 2], device="meta")}, "ValueError: .* device of q .* got meta"),
    (
        {"keys_after": torch.tensor([1, 2]), "window": 3},
        r"ValueError: .* window.* call \.tolist\(\)",
    ),
    ({"window": 0}, "ValueError: .* window must be .*at least 1, got 0"),
    ({"window": 2.5}, ".* window must be an int.* got .*2.5"),
    ({"window": 3, "causal": False}, "ValueError: .* window must come with causal=True"),
    ({"causal": 1}, "TypeError: split_k_attention: causal must be a bool"),
    ({"q": [1.0]}, "TypeError: split_k_attention: q must be a tensor"),
    ({"q": torch.zeros(4, 3, 64)}, "ValueError: split_k_attention: q must have 4 dimensions"),
    ({"k_shard": None}, "TypeError: split_k_attention: k must be a tensor"),
    ({"sinks": torch.zeros(3)}, r"ValueError: split_k_attention: sinks must have shape \(H,\)"),
    (
        {"block_table": torch.zeros(2, dtype=torch.int32)},
        "ValueError: split_k_attention: k must have a page_size",
    ),
    ({"kv_lengths": 7}, "TypeError: split_k_attention: kv_lengths must be a tensor"),
    ({"variant": "none"}, "ValueError: split_k_attention: variant must be one of two_pass"),
    ({"group": "all"}, "(TypeError|ValueError|AttributeError): "),
]


def test_wrong_arguments_are_refused(ranks: Ranks) -> None:
    [said] = values(ranks.run(1, refuse, [[change for change, _ in REFUSED]]))
    for (change, message), got in zip(REFUSED, said, strict=True):
        assert re.match(message, got), (change, got)


def refuse_gradients(case: Case, group: ProcessGroup) -> list[str]:
    said = []
    for name in ("q", "k_shard", "v_shard", "sinks"):
        call = own_call(case, group)
        call[name] = call[name].detach().requires_grad_()
        try:
            split_k_attention_sharded(**call)
        except NotImplementedError as error:
            said.append(str(error))
        call[name] = call[name].detach()
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(call[name], torch.ones_like(call[name]))
            try:
                split_k_attention_sharded(**call | {name: dual})
            except NotImplementedError as error:
                said.append(str(error))
    return said


def test_every_rank_refuses_a_gradient(ranks: Ranks) -> None:
    # Rank 0 has no key that a query sees.
    case = case_of([[30, 8], [30, 20]], causal=True, Sq=4, window=3, sinks="random", spare=0)
    for said in values(ranks.run(2, refuse_gradients, [case] * 2)):
        assert len(said) == 8 and all("has no gradient" in message for message in said)


def test_without_a_process_group_the_call_says_so(interface: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(kbtool.attention, "_loaded", {"merge": interface.merge})
    q = torch.randn(1, 2, 1, 8)
    with pytest.raises(ValueError, match="init_process_group"):
        split_k_attention_sharded(q, q, q)


@pytest.mark.parametrize("lengths", [[1, 2], torch.zeros(2), torch.zeros(2, 2, dtype=torch.int32)])
def test_lengths_to_count_have_to_be_a_vector_of_ints(lengths: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="kv_lengths must be"):
        count_keys_after(lengths)


def test_the_arguments_are_those_of_the_plain_function() -> None:
    plain, sharded = (
        inspect.signature(f, eval_str=False).parameters
        for f in (kbtool.attention.split_k_attention, split_k_attention_sharded)
    )
    positional = ["q", "k_shard", "v_shard", "group"]
    of_plain_calls = {"cu_seqlens_q", "max_seqlen_q", "tree_mask"}
    named = [name for name in list(plain)[3:] if name not in of_plain_calls]
    assert list(sharded) == [*positional, "keys_after", *named, "check"]
    for name in named:
        assert sharded[name] == plain[name]


# ---- cards ----


@pytest.fixture(scope="module")
def cards(interface: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    yield from started(interface, tmp_path_factory.mktemp("cards"), "nccl")


def replay(case: Case, group: ProcessGroup) -> list[Tensor]:
    """On a card: a call, and the replay of a graph that was captured with other lengths."""
    call = own_call(case, group)
    expected = split_k_attention_sharded(**call)
    inputs = {name: call[name].clone() for name in ("kv_lengths", "keys_after")}
    for t in inputs.values():
        t.zero_()
    for _ in range(2):
        split_k_attention_sharded(**call | inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = split_k_attention_sharded(**call | inputs)
    for name, t in inputs.items():
        t.copy_(call[name])
    graph.replay()
    return [expected.cpu(), made.cpu()]


TOO_FEW = "fewer than two CUDA cards that the kernel is for: attention over cards is not tested"


@pytest.mark.gpu
@pytest.mark.skipif(ARCHITECTURE is None or torch.cuda.device_count() < 2, reason=TOO_FEW)
def test_cards_give_right_results_and_replay_graphs(cards: Ranks, harness: Any) -> None:
    count = torch.cuda.device_count()
    cases = [case | {"dtype": case["dtype"].replace("float32", "bfloat16")}
             for case in listed(count).values()]  # fmt: skip
    hold(cards, harness, count, cases)
    case = case_of([[300, 40]] * count, causal=True, Sq=4, keys_after="tensor", dtype="bfloat16")
    for expected, replayed in values(cards.run(count, replay, [case] * count)):
        assert same_bits(replayed, expected)
