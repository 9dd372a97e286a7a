"""``kbtool fastest`` from outside, on a recorded run of this repository."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
RUN = "20261123T231955Z-split-k-ec5a"
KERNEL = "split_k_attention"
SHAPE = ["B=1", "H=1", "Hkv=1", "Sq=256", "Skv=256", "D=64", "causal=true", "dtype=bfloat16"]


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    root = tmp_path_factory.mktemp("fastest")
    (root / "patterns").mkdir()
    (root / "kernels" / KERNEL).mkdir(parents=True)
    shutil.copy(REPOSITORY / "kernels" / KERNEL / "kernel.yaml", root / "kernels" / KERNEL)
    (recorded,) = REPOSITORY.glob(f"sessions/*/runs/{RUN}.json")
    folder = root / "sessions" / recorded.parent.parent.name / "runs"
    folder.mkdir(parents=True)
    shutil.copy(recorded, folder)
    return root


def given(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def recorded() -> dict:
    """Case → what the run recorded of it."""
    (path,) = REPOSITORY.glob(f"sessions/*/runs/{RUN}.json")
    steps = json.loads(path.read_text())["steps"]
    (result,) = (step["result"] for step in steps if step["kind"] == "benchmark")
    return {case["name"]: case for case in result["cases"]}


def test_a_measured_shape_is_answered_with_what_the_run_recorded(kbtool, timed):
    done = kbtool("fastest", KERNEL, *given(*SHAPE), "--json", root=timed)
    assert done.code == 0
    (machine,) = json.loads(done.out)["machines"]
    one = machine["nearest"][0]
    assert (machine["machine"], one["distance"], one["apart"]) == ("NVIDIA H200", 1.0, [])
    case = recorded()[one["name"]]
    told = {name: str(value).lower() for name, value in case["case"].items()}
    assert [f"{part.split('=')[0]}={told[part.split('=')[0]]}" for part in SHAPE] == SHAPE
    us = {arm: timing["between_us"] for arm, timing in case["arms"].items()}
    assert {arm: timing["between_us"] for arm, timing in one["arms"].items()} == us
    assert (one["best_peer"], one["ratio"]) == ("sdpa", pytest.approx(us["sdpa"] / us["split_k"]))
    assert one["fastest"] == min(us, key=us.__getitem__)
    assert one["own"] == min(us.keys() - {"sdpa"}, key=us.__getitem__)
    assert one["commands"][-1].startswith("kbtool run-recipe split-k --set ")


def test_a_shape_that_was_not_measured_gets_the_nearest_and_says_how_far(kbtool, timed):
    asked = [part.replace("Skv=256", "Skv=320") for part in SHAPE]
    done = kbtool("fastest", KERNEL, *given(*asked), "--on", "h200", root=timed)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "NVIDIA H200"
    assert lines[1].endswith(": 1.25 × away; Skv=256, not 320")
    assert done.out.count(" × away") == 3 and "kbtool run-recipe split-k" in done.out


def test_what_was_never_measured_is_said_and_ends_with_1(kbtool, timed):
    done = kbtool(
        "fastest", KERNEL, *given("causal=true", "dtype=float32", "layout=padded"), root=timed
    )
    assert done.code == 1
    assert "no case with dtype=float32, layout=padded was measured here" in done.out


def test_without_a_shape_it_lists_what_was_measured(kbtool, timed):
    done = kbtool("fastest", KERNEL, root=timed)
    assert done.code == 0 and "machines: NVIDIA H200" in done.out
    fields = json.loads(kbtool("fastest", KERNEL, "--json", root=timed).out)["fields"]
    known = {field["name"]: field["values"] for field in fields}
    cases = recorded().values()
    assert known["Skv"] == sorted({case["case"]["Skv"] for case in cases})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no_such"], "there is no kernel 'no_such'; there is split_k_attention"),
        ([KERNEL, "--on", "nothing"], "no quiet run timed split_k_attention on a machine called"),
        ([KERNEL, "--set", "X=1"], "--set: case set given: 'X' is no case field"),
        ([KERNEL, "--set", "B=one"], "B: 'one' is not an int"),
    ],
)
def test_what_is_wrong_is_said(kbtool, timed, words, message):
    done = kbtool("fastest", *words, root=timed)
    assert done.code == 2 and message in done.err
