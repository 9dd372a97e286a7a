"""The table of measured numbers of splits: what writes it and what reads it agree."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attention_rule import CPU, FOLDER, same_bits

KEY = (90, 132, 3352, 128, 8, 4)  # capability, multiprocessors, GB/s, D, heads, rows
TABLE = FOLDER / "cuda" / "plan" / "tuned_splits.inc"


def test_rows_are_put_in_replaced_and_sorted(harness: Any) -> None:
    comment = "// about the table\n"
    first = harness.tabled(comment, {("wgmma", (*KEY, 4096)): "8", ("fused", (*KEY, 16384)): "16"})
    assert first == (
        comment
        + "    {Tuned::fused, 90, 132, 3352, 128, 8, 4, 16384, 16},\n"
        + "    {Tuned::wgmma, 90, 132, 3352, 128, 8, 4, 4096, 8},\n"
    )
    assert harness.tabled(first, {}) == first
    second = harness.tabled(first, {("fused", (*KEY, 16384)): "24"})
    assert second == first.replace("16384, 16", "16384, 24")


def test_the_table_is_as_the_tuner_would_write_it(harness: Any) -> None:
    text = TABLE.read_text(encoding="utf-8")
    assert harness.tabled(text, {}) == text


def test_what_is_written_is_found_again_by_the_kernel(harness: Any, tmp_path: Path) -> None:
    """The static assertions of the header hold too, or it would not compile."""
    header = tmp_path / "tuned_splits.h"
    header.write_text((FOLDER / "cuda" / "plan" / "tuned_splits.h").read_text(encoding="utf-8"))
    text = harness.tabled(
        TABLE.read_text(encoding="utf-8"),
        {("fused", (*KEY, 1 << 20)): "16", ("wgmma", (*KEY, 1 << 20)): "8"},
    )
    (tmp_path / "tuned_splits.inc").write_text(text)
    source = tmp_path / "use.cpp"
    source.write_text(
        """
        #include "tuned_splits.h"
        using namespace kbtool::cuda;
        constexpr int64_t of(Tuned variant, int64_t Skv) {
          return tuned_splits({variant, 90, 132, 3352, 128, 8, 4, Skv, 0});
        }
        static_assert(of(Tuned::fused, 1 << 20) == 16, "the row");
        static_assert(of(Tuned::wgmma, 1 << 20) == 8, "the other variant's");
        static_assert(of(Tuned::fused, 3 << 20) == 0, "no row is near");
        """
    )
    subprocess.run(["c++", "-std=c++17", "-fsyntax-only", str(source)], check=True, timeout=120)


@pytest.mark.parametrize(("keys", "most"), [(0, 1), (31, 1), (100, 3), (65536, 256)])
def test_the_numbers_worth_timing_hold_the_own_choice(harness: Any, keys: int, most: int) -> None:
    inputs = harness.make_inputs({"B": 3, "H": 4, "Hkv": 2, "Skv": keys}, device=CPU, seed=0)
    own, settings = harness.settings(inputs, "two_pass")
    assert own in settings
    assert max(int(name) for name in settings if name != own) <= most if len(settings) > 1 else True
    for name, asked in settings.items():
        assert torch.ops.kbtool.split_k_attention_plan(
            asked["q"], asked["k"], num_splits=asked["num_splits"], variant="two_pass"
        )[0] == int(name)


def test_entries_are_tuned_as_the_heads_of_one(harness: Any) -> None:
    inputs = harness.make_inputs({"B": 3, "H": 4, "Hkv": 2, "Skv": 100}, device=CPU, seed=0)
    _, settings = harness.settings(inputs, "two_pass")
    folded = harness.call(settings["2"], variant="two_pass")["out"]
    whole = harness.call({**inputs, "num_splits": 2}, variant="two_pass")["out"]
    assert folded.shape[:2] == (1, 12)
    assert same_bits(folded.view(whole.shape), whole)


def test_a_row_is_the_card_and_the_shape_but_not_the_type(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = {"B": 2, "H": 32, "Hkv": 8, "Sq": 3, "Skv": 4096, "D": 128}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert harness.row(case, "fused") is None  # on a CPU no table is read
    card = SimpleNamespace(
        major=9, minor=0, multi_processor_count=132, memory_clock_rate=3_201_000,
        memory_bus_width=6016,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    for dtype in ("float16", "bfloat16"):
        assert harness.row({**case, "dtype": dtype}, "wgmma") == (
            "wgmma", (90, 132, 4814, 128, 16, 12, 4096)
        )  # fmt: skip
    assert harness.row(case, "two_pass") is None


def test_calls_with_lengths_are_not_tuned(harness: Any) -> None:
    inputs = harness.make_inputs({"B": 2, "kv_lengths": [3, 5]}, device=CPU, seed=0)
    with pytest.raises(ValueError, match="not tuned: leave their case sets out"):
        harness.settings(inputs, "two_pass")
