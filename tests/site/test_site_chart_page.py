"""The page of a kernel's charts, as it is without scripts: a drawing, its figures, and the map."""

from __future__ import annotations

import copy
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from test_site_kernel import make, plain, run

from kbtool.markdown.plot import SERIES, mark_of
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.store.tree import KnowledgeBase

PAGE = at.topic_page("copy", "charts")
TIMES = {64: (4.0, 8.0, 3.9), 128: (6.0, 6.01, 5.0), 256: (10.0, 30.0, 6.0)}
"""Size → µs of ours, of two peers."""


def sized(number: int = 13, **more: Any) -> dict[str, Any]:
    times = {
        f"S={size}": {"ours": ours, "base": base, "flash": flash}
        for size, (ours, base, flash) in TIMES.items()
    }
    made = copy.deepcopy(run(number, times, "H1", case_set="large", **more))
    for case in made["steps"][2]["result"]["cases"]:
        case["case"] = {"S": int(case["name"].removeprefix("S=")), "dtype": "float32"}
    return made


@pytest.fixture
def page(tmp_path: Path) -> str:
    return unescape(make(tmp_path / "kb", sized())[PAGE])


def test_the_drawing_has_a_line_for_each_arm_and_the_floor(page: str) -> None:
    (drawing,) = re.findall(r'<div class="kb-chart kb-plot".*?</div>', page)
    assert "Time of a call over S, in a chain of its own calls, on H1" in drawing
    for arm in ("ours", "base", "flash"):
        assert drawing.count(f", {arm}: ") == len(TIMES)
    assert drawing.count("<polyline") == 4 and "kb-ceiling" in drawing
    assert "S=256, base: 30.0 µs (28.5–31.5)" in drawing


def test_the_figures_stand_below_it(page: str) -> None:
    rows = [
        [" ".join(plain(cell).split()) for cell in line.strip("| ").split(" | ")]
        for line in page.splitlines()
        if re.match(r"\| (S|64|128|256) \|", line)
    ]
    assert rows[0] == ["S", "ours (µs)", "base (µs)", "flash (µs)", "At the measured ceilings (µs)"]
    assert [[cell.split()[0] for cell in row] for row in rows[1:]] == [
        ["64", "4.00", "8.00", "3.90", "3.00"],
        ["128", "6.00", "6.01", "5.00", "6.00"],
        ["256", "10.0", "30.0", "6.00", "9.00"],
    ]


def test_the_map_tells_losses_and_noise_by_a_sign_too(page: str) -> None:
    cells = re.findall(r'kb-heat--(\w+)" data-sort="[\d.]+">(.) ([\d.]+)<', page)
    # The quartiles of 3.9 and 4 overlap; 1.002 is less than 2 % from 1.
    assert cells == [
        ("won", "▲", "2.00"), ("same", "≈", "0.975"),
        ("same", "≈", "1.00"), ("lost", "▼", "0.833"),
        ("won", "▲", "3.00"), ("lost", "▼", "0.600"),
    ]  # fmt: skip


def test_a_case_that_no_peer_was_timed_in_is_not_in_the_map(tmp_path: Path) -> None:
    record = sized()
    del record["steps"][2]["result"]["cases"][0]["arms"]["base"]
    del record["steps"][2]["result"]["cases"][0]["arms"]["flash"]
    made = unescape(make(tmp_path / "kb", record)[PAGE])
    assert "H1, cuda, float32: 2 cases" in plain(made)
    assert not re.search(r"^\| S=64 +\|", made.partition("{#map}")[2], re.MULTILINE)


def test_a_kernel_timed_at_too_few_sizes_says_so(tmp_path: Path) -> None:
    few = sized()
    del few["steps"][2]["result"]["cases"][2]
    assert "No data because no field was timed at three sizes" in make(tmp_path / "kb", few)[PAGE]
    assert "No data because" in make(tmp_path / "none")[PAGE]


def test_an_arm_has_one_mark_on_every_chart_of_a_kernel(tmp_path: Path) -> None:
    """A newer run of other peers changes no colour: the order is that in which runs came."""
    later = sized(15)
    for case in later["steps"][2]["result"]["cases"]:
        case["arms"] = {"ours": case["arms"]["ours"], "new": case["arms"]["base"],
                        "flash": case["arms"]["flash"]}  # fmt: skip
    later["steps"][2]["result"]["baseline"] = "new"
    made = make(tmp_path / "kb", sized(), later)
    index = Index(KnowledgeBase(tmp_path / "kb"))
    assert index.arms["copy"] == ["ours", "base", "flash", "new"]
    own = [path for path in made if path.startswith("runs/") and path != at.RUNS]
    assert len(own) == 2
    charts = [
        chart
        for path in (PAGE, at.kernel_page("copy"), at.topic_page("copy", "results"), at.HOME, *own)
        for chart in re.findall(r'<ul class="kb-keys".*?</ul>', made[path])
    ]
    found: dict[str, set[str]] = {}
    for chart in charts:
        for tone, name in re.findall(
            r'<g class="kb-series-(\d+)">(?:<path [^>]*>)</g></svg> ([^<]*)</li>',
            unescape(chart),
        ):
            found.setdefault(name, set()).add(tone)
    assert found.items() >= {"ours": {"1"}, "flash": {"3"}, "new": {"4"}}.items()
    assert len(charts) > 6 and all(len(tones) == 1 for tones in found.values())


def test_no_two_marks_are_the_same_and_only_ours_has_the_first_colour() -> None:
    marks = [mark_of(number) for number in range(3 * SERIES)]
    assert len(set(marks)) == len(marks)
    assert [tone for tone, _, _ in marks].count(1) == 1
    assert {tone for tone, _, _ in marks} == set(range(1, SERIES + 1))
