"""The program of the recipe ``sharded``: what it says of ranks, here on the CPU."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from attention_rule import FOLDER
from ranks import Ranks
from test_attention_sharded import started, values
from torch.distributed import ProcessGroup

from kbtool.gpu.harness import load_module

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def ranks(interface: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    yield from started(interface, tmp_path_factory.mktemp("ranks"))


def program() -> Any:
    return load_module(FOLDER / "sharded.py", "split_k_attention_sharded_program")


def timed(keys: int, _: ProcessGroup) -> tuple[str, str]:
    """On a rank: what it prints for two entries of so many keys."""
    own = program()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        own.run(own.Rank(dist.get_rank(), dist.get_world_size(), CPU), 2, keys, 2)
    return out.getvalue(), err.getvalue()


def judged(fault: str, _: ProcessGroup) -> str | None:
    """On a rank: what is found wrong with an output that has this fault."""
    own = program()
    rank = own.Rank(dist.get_rank(), dist.get_world_size(), CPU)
    case = own.Case.shared(rank, 2, 301)
    first, second = (own.split_k_attention_sharded(case.q, case.k, case.v) for _ in range(2))
    if fault == "a rank's keys are left out":
        first = second = own.split_k_attention(case.q, case.k, case.v)
        for out in (first, second):
            dist.broadcast(out, 0)
    elif fault == "other bits on a rank" and rank.number == 1:
        first = second = second.clone()
        second[1, 3, 0, 7] = -second[1, 3, 0, 7]
    elif fault == "other bits at the second call":
        second = second.clone()
        second[0, 0, 0, 0] *= 1.01
    found: str | None = own.wrong(rank, case, [first, second])
    return found


@pytest.mark.parametrize("count", [2, 3])
def test_each_time_and_each_speed_up_is_a_value_of_its_case(ranks: Ranks, count: int) -> None:
    (out, _), *others = values(ranks.run(count, timed, [300] * count))
    assert others == [("", "")] * (count - 1)
    lines = [json.loads(line.partition(" ")[2]) for line in out.splitlines()[:-1]]
    assert all(line.startswith("KBTOOL_RESULT ") for line in out.splitlines()[:-1])
    case = {"batch": 2, "keys": 300, "ranks": count}
    times = [line for line in lines if line["name"] == "time of a call"]
    assert [line["case"] for line in times] == [
        {"of": name, **case}
        for name in ("sharded", "exchange", "one card", "gathered keys")
        for _ in range(2)
    ]
    of = {name: [t["value"] for t in times if t["case"]["of"] == name]
          for name in ("sharded", "one card")}  # fmt: skip
    expected = [one / ours for one, ours in zip(of["one card"], of["sharded"], strict=True)]
    ratios = [line for line in lines if line["name"] == "speed-up over one card"]
    assert [line["value"] for line in ratios] == pytest.approx(expected)
    assert [line["case"] for line in ratios] == [case, case]


def test_keys_that_are_not_divided_equally_are_not_gathered(ranks: Ranks) -> None:
    (out, err), _ = values(ranks.run(2, timed, [301, 301]))
    assert "gathered keys" not in out and '"sharded"' in out
    assert "without gathered keys, as 2 ranks do not divide the keys equally" in err


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("none", (None, None)),
        ("a rank's keys are left out", ("the output is wrong: error", None)),
        ("other bits on a rank", (None, "rank 1 has other bits than rank 0")),
        ("other bits at the second call", ("rank 0 has other bits", "rank 1 has other bits")),
    ],
)
def test_a_wrong_output_is_not_timed(ranks: Ranks, fault: str, told: tuple[Any, Any]) -> None:
    for found, expected in zip(values(ranks.run(2, judged, [fault] * 2)), told, strict=True):
        assert found is None if expected is None else expected in (found or "")
