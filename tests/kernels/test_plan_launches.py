"""From a plan to launches: which instance, how rows are copied, and in how many parts."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plans import A100, H100, Make

KV_TYPES = {"same": 0, "e4m3": 1, "e5m2": 2}
"""The element types of k and v, as params.h numbers them: that of q, and those of 8 bits."""


def test_a_call_of_two_kernels_launches_early_by_default(plan: Make) -> None:
    two, one = (1, 32, 8, 16, 16384, 128), (64, 32, 8, 16, 1024, 128)
    assert plan(two, wgmma=True).early_launch and plan(two, wgmma=True).merge_lanes > 0
    assert not plan(one, wgmma=True).early_launch and not plan(one, wgmma=True).merge_lanes
    assert not plan(two).early_launch


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("kv", KV_TYPES)
@pytest.mark.parametrize(("D", "width"), [(64, 64), (72, 128), (100, 128), (128, 128), (160, 256)])
@pytest.mark.parametrize("offset", [0, 8, 1])
@pytest.mark.parametrize("beyond", [0, 8, 4, 1])
@pytest.mark.parametrize(("q_beyond", "q_offset"), [(0, 0), (4, 0), (0, 1)])
@pytest.mark.parametrize("packed", [False, True])
def test_each_call_has_its_instance(
    plan: Make,
    D: int,
    width: int,
    dtype: str,
    kv: str,
    lengths: bool,
    beyond: int,
    offset: int,
    q_beyond: int,
    q_offset: int,
    packed: bool,
) -> None:
    """By the layout of k and v alone: rows of q that are not aligned slow down nothing but q."""
    sizes = (4, 8, 2, 1, 1 << 17, D)  # long enough that unlike lengths are shared out
    name = plan.instance_of(  # type: ignore[attr-defined]
        (ctypes.c_int64 * 6)(*sizes), int(lengths), int(dtype == "bf16"), KV_TYPES[kv], int(packed),
        ctypes.c_int64(D + beyond), ctypes.c_int64(offset), ctypes.c_int64(D + q_beyond),
        ctypes.c_int64(q_offset), (ctypes.c_int * 13)(*H100),
    )  # fmt: skip
    kernel = "ragged" if lengths and kv == "same" else "fused"
    many = 8 if kv == "same" else 16  # elements in 16 bytes
    aligned = all(elements % many == 0 for elements in (D, D + beyond, offset))
    suffix = "_unaligned" if not aligned else "" if kv == "same" else f"_{kv}"
    if packed:  # 8 bits are widened as they are copied
        kernel, suffix = "fused", "_packed" if aligned and kv == "same" else "_unaligned_packed"
    assert name.decode() == f"{kernel}{suffix}_{dtype}_d{width}"


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int]]:
    """(B, H, Hkv, Sq, Skv, D), the strides of q, k and v, and where each begins."""
    B, Hkv, Sq = (draw(st.integers(1, 3)) for _ in range(3))
    sizes = (B, Hkv * draw(st.integers(1, 3)), Hkv, Sq, draw(st.integers(0, 9)),
             draw(st.integers(1, 256) | st.sampled_from([64, 80, 96, 128, 256])))  # fmt: skip
    beyond = st.sampled_from([0, 0, 0, 8, 16, 4, 2, 1])
    strides: list[int] = []
    for heads, rows in ((sizes[1], Sq), (Hkv, sizes[4]), (Hkv, sizes[4])):
        last = draw(st.sampled_from([1, 1, 1, 1, 2]))
        row = last * sizes[5] + draw(beyond)
        head = max(rows, 1) * row + draw(beyond)
        batch = heads * head + draw(beyond)
        expanded = draw(st.sampled_from([1, 1, 1, 0]))
        strides += [batch * expanded, head, row, last]
    return sizes, [*strides, *(draw(st.sampled_from([0, 0, 0, 8, 4, 2, 1])) for _ in range(3))]


@settings(max_examples=2000, deadline=None)
@given(layout=layouts(), kv=st.sampled_from(sorted(KV_TYPES)))
@example(layout=((1, 32, 8, 16, 16384, 128), [0, 132, 2112, 1, 0, 2097152, 128, 1, 0, 2097152, 128,
                                               1, 0, 0, 0]), kv="same")  # fmt: skip
@example(layout=((1, 2, 1, 1, 9, 64), [0, 64, 64, 1, 580, 576, 64, 1, 580, 576, 64, 1, 0, 0, 0]),
         kv="e4m3")  # fmt: skip
def test_copies_are_no_wider_than_the_alignment_of_every_row(
    plan: Make, layout: tuple[tuple[int, ...], list[int]], kv: str
) -> None:
    """Beside keys of 8 bits the bits depend on it, so an entry alone is copied as in a batch."""
    (B, H, Hkv, Sq, Skv, D), strides = layout
    out = (ctypes.c_int64 * 3)()
    plan.layout_of(  # type: ignore[attr-defined]
        (ctypes.c_int64 * 6)(B, H, Hkv, Sq, Skv, D),
        KV_TYPES[kv],
        (ctypes.c_int64 * 15)(*strides),
        out,
    )
    width, q_aligned, tma = out
    fp8 = kv != "same"

    def starts(which: int, heads: int, rows: int) -> list[int]:
        """Where each row begins, in bytes."""
        batch, head, row, _ = strides[4 * which : 4 * which + 4]
        of_8_bits = fp8 and which > 0
        entries, size = (max(B, 2), 1) if of_8_bits else (B, 2)
        return [size * (strides[12 + which] + b * batch + h * head + r * row)
                for b in range(entries) for h in range(heads)
                for r in (0, max(rows - 1, 0))]  # fmt: skip

    def widest(which: int, heads: int, rows: int) -> int:
        if strides[4 * which + 3] != 1 and D > 1:
            return 2
        at = [*starts(which, heads, rows), D if fp8 and which > 0 else 2 * D]
        sizes = (16,) if fp8 and which > 0 else (16, 8, 4)
        return next((size for size in sizes if all(start % size == 0 for start in at)), 2)

    assert bool(q_aligned) == (widest(0, H, min(Sq, 2)) == 16)
    assert width == min(widest(1, Hkv, min(Skv, 2)), widest(2, Hkv, min(Skv, 2)))
    aligned = [start % 16 == 0 for which in (1, 2) for start in starts(which, Hkv, Skv)]
    if tma:
        assert not fp8 and all(aligned) and strides[7] == strides[11] == 1
        assert Skv == 1 or strides[6] * strides[10] > 0  # TMA has no stride of 0 from key to key
    elif width == 16 and not fp8:
        assert Skv == 0 or any(strides[4 * which] % 8 for which in (1, 2))


@pytest.mark.parametrize(
    ("sizes", "splits", "parts"),
    [
        ((2, 32, 8, 1, 4096, 128), 0, 1),
        ((70_000, 32, 32, 1, 64, 8), 1024, 2),  # 2,293,760,000 blocks
        ((1 << 26, 64, 64, 1, 1, 4), 1, 3),
        ((0, 32, 8, 1, 4096, 128), 0, 0),
    ],
)
@pytest.mark.parametrize("kv", KV_TYPES)
def test_a_call_of_more_blocks_than_a_grid_holds_is_launched_in_parts(
    plan: Make, kv: str, sizes: tuple[int, ...], splits: int, parts: int
) -> None:
    out = (ctypes.c_int64 * 70)()
    count = plan.parts(  # type: ignore[attr-defined]
        (ctypes.c_int64 * 6)(*sizes), ctypes.c_int64(splits), KV_TYPES[kv],
        (ctypes.c_int * 4)(*A100[:4]), out,
    )  # fmt: skip
    assert count == parts
    B, H, Hkv, Sq, Skv, D = sizes
    first = 0
    for part in range(parts):
        entries, blocks, q, k, o, lse, lengths = out[part * 7 : part * 7 + 7]
        assert 0 < blocks < 2**31
        assert q == o == first * H * Sq * D * 2
        assert k == first * Hkv * Skv * D * (2 if kv == "same" else 1)
        assert (lse, lengths) == (first * H * Sq * 4, first * 3 * 8)
        first += entries
    assert first == B


def test_the_stride_of_a_single_key_is_passed_as_0(plan: Make) -> None:
    """Addresses of keys that are not there go by it, and copies of 16 bytes want them aligned."""

    def stride(Skv: int, row: int) -> int:
        return int(
            plan.key_stride(  # type: ignore[attr-defined]
                (ctypes.c_int64 * 6)(1, 2, 2, 3, Skv, 64), ctypes.c_int64(row),
                (ctypes.c_int * 13)(*H100),
            )
        )  # fmt: skip

    assert stride(2, 65) == 65
    assert stride(1, 65) == 0


def test_a_batch_entry_of_more_blocks_than_a_grid_has_is_refused(plan: Make) -> None:
    sizes = (ctypes.c_int64 * 6)(1, 64, 64, 1 << 22, 1, 4)
    out = (ctypes.c_int64 * 7)()
    cut = (sizes, ctypes.c_int64(1024), KV_TYPES["same"], (ctypes.c_int * 4)(*A100[:4]), out)
    assert plan.parts(*cut) == -1  # type: ignore[attr-defined]
