"""The planner on the host: plans are pure functions of sizes and card, and need no card."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from attention_rule import FOLDER
from hypothesis import strategies as st

from kbtool.gpu.toolchain import cuda_home, find_nvcc
from kbtool.model.errors import MachineError

SOURCE = Path(__file__).with_name("plans.cpp")

# Clusters of 0, 1, 2 … blocks that an H100 or H200 of 132 multiprocessors runs at a time, as its
# driver says, where each block takes a whole one.
CLUSTERS = (0, 132, 66, 39, 30, 22, 17, 15, 15)


H100 = (90, 132, 3352, 8, *CLUSTERS)


H200 = (90, 132, 4814, 8, *CLUSTERS)


A100 = (80, 108, 1555, 1, *[0] * 9)


B200 = (100, 148, 8000, 8, *[0] * 9)


PART = (90, 16, 600, 8, 0, 16, 8, 5, 4, 3, 2, 2, 2)  # of a card


SILENT = (90, 132, 0, 8, *CLUSTERS)  # does not tell how fast its memory is


CARDS = st.sampled_from((H100, H200, PART, SILENT, B200, A100))


class Plan(NamedTuple):
    num_splits: int
    cluster_size: int
    tiles_per_head: int
    output_tiles: int
    row_units: int
    merge_lanes: int
    num_counters: int
    workspace_numel: int
    ragged_blocks: int
    early_launch: int
    small_ring: int
    paired: int
    wgmma_is_faster: int
    heads_at_a_time: int
    persistent_blocks: int


Make = Callable[..., Plan]


def planner(file: Path) -> Make:
    """``plan_fused`` and ``plan_wgmma``, from a file, which is built unless it is there."""
    try:
        home = cuda_home(find_nvcc()[0])
    except MachineError as error:
        pytest.skip(f"CUDA's headers are needed: {error}")
    if not file.exists():
        subprocess.run(
            ["c++", "-std=c++17", "-O1", "-fPIC", "-shared", f"-I{FOLDER}",
             f"-isystem{home / 'include'}", str(SOURCE), "-o", str(file)],
            check=True, timeout=300,
        )  # fmt: skip
    library = ctypes.CDLL(str(file))

    def make(
        sizes: tuple[int, ...],
        splits: int = 0,
        card: tuple[int, ...] = H100,
        wgmma: bool = False,
        lengths: bool = False,
        tma: bool = True,
        by_element: bool = False,
        fp8: bool = False,
        total_q: int = -1,
    ) -> Plan:
        out = (ctypes.c_int64 * len(Plan._fields))()
        library.plan(
            int(wgmma), int(lengths), int(tma), int(by_element), int(fp8), ctypes.c_int64(total_q),
            (ctypes.c_int64 * 6)(*sizes), ctypes.c_int64(splits), (ctypes.c_int * 13)(*card), out,
        )  # fmt: skip
        return Plan(*out)

    make.parts = library.parts  # type: ignore[attr-defined]
    library.parts.restype = ctypes.c_int64
    make.key_stride = library.key_stride  # type: ignore[attr-defined]
    library.key_stride.restype = ctypes.c_int64
    make.instance_of = library.instance_of  # type: ignore[attr-defined]
    library.instance_of.restype = ctypes.c_char_p
    make.layout_of = library.layout_of  # type: ignore[attr-defined]
    return make


def plans_of(make: Make, case: dict[str, Any]) -> tuple[Plan, Plan]:
    """Of fused and of wgmma, for a case of the manifest on an H100."""
    sizes = tuple(int(case[name]) for name in ("B", "H", "Hkv", "Sq", "Skv", "D"))
    splits, lengths = case.get("num_splits") or 0, case.get("kv_lengths") is not None
    fp8, queries = case.get("kv_dtype") is not None, case.get("q_lengths")
    total_q = -1 if queries is None else sum(queries) + case["q_padding"]
    fused, wgmma = (
        make(sizes, splits, wgmma=wgmma, lengths=lengths, fp8=fp8, total_q=total_q)
        for wgmma in (False, True)
    )
    return fused, wgmma


@st.composite
def calls(draw: st.DrawFn) -> tuple[int, ...]:
    """(B, H, Hkv, Sq, Skv, D)."""
    heads = draw(st.integers(1, 16))
    group = draw(st.integers(1, 16))
    few = st.integers(0, 4)
    keys = few | st.integers(0, 600) | st.integers(0, 1 << 20)
    return (
        draw(few | st.integers(0, 200)), heads * group, heads, draw(few | st.integers(0, 5000)),
        draw(keys), draw(st.integers(1, 64)) * 4,
    )  # fmt: skip
