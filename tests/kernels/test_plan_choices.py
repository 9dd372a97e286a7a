"""How near the ways that a plan chooses are to the best that was measured.

The times come from the records, so a planner that is worse for a user fails here, whichever rule or
constant made it so. A bound is what the planner reaches today, rounded up.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from attention_rule import FOLDER
from plans import H100, H200, Make

SESSIONS = FOLDER.parents[1] / "sessions"
TILES = SESSIONS / "2026-11-23-the-last-sources-on-a-card/files/tiles.jsonl"
"""An H200. A (B, H, Hkv, Sq, Skv, D) a line: each cut → us in a chain, us between plain kernels."""
FILES = SESSIONS / "2026-11-24-planner-mechanisms-timed-one-by-one-on-an-h100/files"
FEW_ROWS = FILES / "few-rows.jsonl"
"""An H100, up to 16 query rows of a KV head. A shape a line: kernel and splits → us in a chain, us
between plain kernels, splits, cluster size, merge lanes."""
SWITCHES = FILES / "switches.jsonl"
"""An H100. A case a line, timed with each mechanism of the planner switched off."""


class Behind(NamedTuple):
    """Times of plans, each over that of the best way measured for the same shape."""

    mean: float
    most: float
    shapes: int


def behind(ratios: Iterator[float]) -> Behind:
    found = list(ratios)
    return Behind(statistics.geometric_mean(found), max(found), len(found))


def lines(file: Any) -> Iterator[dict[str, Any]]:
    return map(json.loads, file.read_text().splitlines())


def results(run: str, kind: str) -> Iterator[dict[str, Any]]:
    """The cases of a kind of step in a run."""
    [file] = SESSIONS.glob(f"*/runs/{run}.json")
    for step in json.loads(file.read_text())["steps"]:
        if step["result"] and step["result"]["type"] == kind:
            yield from step["result"]["cases"]


def sizes_of(case: dict[str, Any]) -> tuple[int, ...]:
    return tuple(case[name] for name in ("B", "H", "Hkv", "Sq", "Skv", "D"))


# ---- up to 16 query rows of a KV head ----


def few_rows_behind(plan: Make, D: int, kernels: tuple[str, ...]) -> Iterator[float]:
    """Of each shape of few rows: the time of the planned way over that of the fastest."""
    for shape in lines(FEW_ROWS):
        if shape["D"] != D:
            continue
        # Without the times of wgmma merging in a cluster: it has a merge kernel for that now.
        us = {
            (way.partition("/")[0], splits, cluster): chain + between
            for way, (chain, between, splits, cluster, _) in shape["us"].items()
            if way.startswith("fused") or cluster == 1
        }
        us = {way: time for way, time in us.items() if way[0] in kernels}
        heads = shape["kv_heads"]
        sizes = (1, shape["rows"] * heads, heads, 1, shape["Skv"], D)
        kernel = kernels[plan(sizes).wgmma_is_faster] if len(kernels) == 2 else kernels[0]
        made = plan(sizes, wgmma=kernel == "wgmma")
        way = (kernel, made.num_splits, made.cluster_size)
        if way in us:
            yield us[way] / min(us.values())


@pytest.mark.parametrize(
    ("kernels", "D", "shapes", "mean", "most"),
    [
        (("fused", "wgmma"), 64, 142, 1.0046, 1.049),
        (("fused", "wgmma"), 128, 129, 1.0048, 1.049),
        (("fused", "wgmma"), 256, 127, 1.0496, 1.388),
        (("fused",), 64, 142, 1.0045, 1.049),
        (("fused",), 128, 129, 1.0021, 1.027),
        (("fused",), 256, 135, 1.0166, 1.313),
        (("wgmma",), 64, 74, 1.0012, 1.086),
        (("wgmma",), 128, 71, 1.0023, 1.080),
        (("wgmma",), 256, 95, 1.0501, 1.388),
    ],
)
def test_plans_of_few_rows_are_near_the_best_measured_plan(
    plan: Make, kernels: tuple[str, ...], D: int, shapes: int, mean: float, most: float
) -> None:
    found = behind(few_rows_behind(plan, D, kernels))
    assert found.shapes >= shapes  # another cluster size was not timed
    assert found.mean <= mean
    assert found.most <= most


@pytest.mark.parametrize(
    ("run", "card", "wgmma", "shapes", "mean", "most"),
    [
        ("20261122T092316Z-split-tuner-1124", H100, False, 10, 1.0010, 1.010),
        ("20261123T143914Z-split-tuner-1040", H200, False, 11, 1.0019, 1.019),
        ("20261123T144002Z-split-tuner-0e23", H200, True, 15, 1.0021, 1.015),
    ],
)
def test_splits_are_near_the_best_that_the_tuner_measured(
    plan: Make,
    run: str,
    card: tuple[int, ...],
    wgmma: bool,
    shapes: int,
    mean: float,
    most: float,
) -> None:
    """Up to 64 query rows of a KV head, up to 524,288 keys."""

    def ratios() -> Iterator[float]:
        for case in results(run, "tune"):
            us = {int(splits): times["median_us"] for splits, times in case["settings"].items()}
            splits = plan(sizes_of(case["case"]), card=card, wgmma=wgmma).num_splits
            if splits in us:
                yield us[splits] / min(us.values())

    found = behind(ratios())
    assert found.shapes >= shapes
    assert found.mean <= mean
    assert found.most <= most


# ---- more rows ----


def tiles_behind(plan: Make, keep: Callable[..., bool] = lambda *_: True) -> Behind:
    """Of the measured shapes that are kept; the plan's cut was measured of nearly all."""
    kept = [case for case in lines(TILES) if keep(*case["shape"])]

    def ratios() -> Iterator[float]:
        for case in kept:
            times = {way: chain + between for way, (chain, between) in case["us"].items()}
            made = plan(tuple(case["shape"]), card=H200)
            way = f"{16 * made.row_units} rows, {made.num_splits} splits"
            taken = "wgmma" if made.wgmma_is_faster else way
            if taken in times:
                yield times[taken] / min(times.values())

    found = behind(ratios())
    assert found.shapes > 0.9 * len(kept)
    return found


def test_plans_are_near_the_best_measured_plan(plan: Make) -> None:
    found = tiles_behind(plan)
    assert found.mean <= 1.0092
    assert found.most <= 1.215


def test_plans_of_one_kv_head_over_long_keys_are_near_the_best_measured_plan(plan: Make) -> None:
    """Where few output tiles need many splits to fill the card."""
    found = tiles_behind(plan, lambda B, H, Hkv, Sq, Skv, D: B * Hkv == 1 and Skv >= 4096)
    assert found.shapes >= 10
    assert found.mean <= 1.0062
    assert found.most <= 1.131


# ---- which kernel, and in which order ----


@pytest.mark.parametrize(
    ("run", "card", "shapes", "mean", "most"),
    [
        ("20261122T102150Z-peers-5ec7", H100, 64, 1.0009, 1.015),
        ("20261123T151640Z-split-k-496e", H200, 4, 1.0, 1.0),
    ],
)
def test_the_planner_picks_the_variant_that_was_measured_faster(
    plan: Make, run: str, card: tuple[int, ...], shapes: int, mean: float, most: float
) -> None:
    def ratios() -> Iterator[float]:
        for case in results(run, "benchmark"):
            us = {arm: times["median_us"] for arm, times in case["arms"].items()}
            lengths = case["case"]["kv_lengths"] is not None
            made = plan(sizes_of(case["case"]), card=card, lengths=lengths)
            if "wgmma" in us:
                taken = us["wgmma" if made.wgmma_is_faster else "fused"]
                yield taken / min(us["fused"], us["wgmma"])

    found = behind(ratios())
    assert found.shapes == shapes
    assert found.mean <= mean
    assert found.most <= most


def test_tiles_are_in_the_order_that_was_measured_to_be_faster(plan: Make) -> None:
    def ratios() -> Iterator[float]:
        for case in lines(SWITCHES):
            us = {arm: times and sum(times) for arm, times in case.get("us", {}).items()}
            other = next((arm for arm in ("heads_inner", "tiles_inner") if us.get(arm)), None)
            if other is None:
                continue
            own = {"heads_inner": "tiles_inner", "tiles_inner": "heads_inner"}[other]
            orders = {other: us[other], own: us["default"]}
            made = plan(
                sizes_of(case["case"]),
                wgmma="wgmma=1" in case["plans"]["default"],
                lengths=bool(case["case"].get("kv_lengths")),
            )
            heads = case["case"]["B"] * case["case"]["Hkv"]
            if made.heads_at_a_time not in {1, heads}:  # a group of heads was not measured
                continue
            order = "tiles_inner" if made.heads_at_a_time == 1 else "heads_inner"
            yield orders[order] / min(orders.values())

    found = behind(ratios())
    assert found.shapes >= 120
    assert found.mean <= 1.0017  # 1.0016 with the two shapes that are left out, at 1
    assert found.most <= 1.078


# ---- timed by hand: no record has the other choice ----


@pytest.mark.parametrize(
    ("sizes", "card", "wgmma"),
    [
        ((1, 32, 8, 1, 65536, 128), H200, True),
        ((1, 32, 8, 1, 262144, 128), H200, True),
        ((1, 8, 2, 1, 262144, 128), H200, False),
        ((2, 32, 8, 1, 131072, 128), H200, True),
        ((4, 32, 8, 1, 16384, 128), H200, True),
        ((1, 32, 1, 1, 65536, 128), H200, False),
        ((1, 32, 1, 1, 131072, 128), H200, True),
        ((1, 32, 1, 1, 16384, 256), H200, True),
        ((64, 32, 8, 1, 512, 128), H100, False),
        ((12, 32, 8, 1, 8192, 128), H100, False),  # 96 blocks: uneven
    ],
)
def test_the_variant_for_one_query_is_the_expected_one(
    plan: Make, sizes: tuple[int, ...], card: tuple[int, ...], wgmma: bool
) -> None:
    assert bool(plan(sizes, card=card).wgmma_is_faster) == wgmma


@pytest.mark.parametrize(
    ("sizes", "card", "wgmma", "splits"),
    [
        ((4, 32, 8, 1, 16384, 128), H200, False, 4),  # clusters of three are fed unevenly
        ((4, 16, 8, 1, 16384, 256), H100, False, 4),  # 184 us with three, 243 with two
        ((4, 16, 8, 1, 16384, 256), H100, True, 4),  # 183 us, and 187 with two
        ((1, 32, 8, 1, 262144, 128), H200, True, 33),  # two blocks on a multiprocessor
        ((1, 24, 6, 16, 8192, 128), H200, True, 11),  # 22 would be many and short
    ],
)
def test_the_planner_picks_the_splits_that_were_fastest_by_hand(
    plan: Make, sizes: tuple[int, ...], card: tuple[int, ...], wgmma: bool, splits: int
) -> None:
    assert plan(sizes, card=card, wgmma=wgmma).num_splits == splits


PACKED = SESSIONS / "2026-11-28-packed-queries-on-a-card/files/packed.jsonl"
"""An H200, bf16, pages of 16 keys. A batch a line: kernel and splits → us in a chain."""


def test_packed_queries_take_about_the_fastest_kernel_and_splits(plan: Make) -> None:
    behind = {}
    for line in PACKED.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        sizes, total_q = tuple(case["sizes"]), sum(case["q_lengths"])
        made = plan(sizes, card=H200, lengths=True, total_q=total_q)
        wgmma = bool(made.wgmma_is_faster)
        if wgmma:
            made = plan(sizes, card=H200, wgmma=True, lengths=True, total_q=total_q)
        taken = case["us"][f"{'wgmma' if wgmma else 'fused'} {made.num_splits}"]
        behind[sizes] = taken / min(case["us"].values())
    assert len(behind) == 10
    assert statistics.geometric_mean(behind.values()) <= 1.02
    assert max(behind.values()) <= 1.05, behind
