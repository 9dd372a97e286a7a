"""``kbtool compare`` from outside, on copies of this repository's runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbtool.model.run import digest_of_record

SESSIONS = Path(__file__).parents[2] / "sessions"
OLD, NEW = "20261123T231955Z-split-k-ec5a", "20261125T000000Z-split-k-0000"
CASES = 16


@pytest.fixture
def put(base):
    """Put a run there: a recorded one, with the library's own times changed as given."""

    def make(id_: str = OLD, factor: float = 1.0, cases: int = CASES, **state: Any) -> None:
        (recorded,) = SESSIONS.glob(f"*/runs/{OLD}.json")
        run = json.loads(recorded.read_text())
        del run["digest"]
        run["id"] = id_
        run["repository"] |= state
        (result,) = (s["result"] for s in run["steps"] if s["kind"] == "benchmark")
        assert len(result["cases"]) == CASES
        for case in result["cases"][:cases]:
            arm = case["arms"]["split_k"]
            for name, value in arm.items():
                if name == "samples_us":
                    arm[name] = [us * factor for us in value]
                elif name.endswith("_us") and value is not None:
                    arm[name] = value * factor
        run["digest"] = digest_of_record(run)
        base.write(f"sessions/{run['session']}/runs/{id_}.json", json.dumps(run))

    return make


def test_the_answer_first_then_the_cases_that_changed(base, kbtool, put):
    put()
    put(NEW, factor=1.2, cases=2, commit="f" * 40)
    done = kbtool("compare", "4575ab50", "ffff", root=base.root, env={"COLUMNS": "200"})
    lines = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert lines[0] == "B is slower in 2 of 16 cases, by 20 %"
    assert lines[1] == f"A: split_k at 4575ab50, NVIDIA H200 ({OLD})"
    assert lines[4].split()[:2] == ["Case", "A"]
    assert [line.split()[-1] for line in lines[6:]] == ["slower"] * 2 + ["same"] * 14


def test_a_run_of_no_commit_is_said_to_have_none(base, kbtool, put):
    put()
    put(NEW, commit=None)
    done = kbtool("compare", OLD, NEW, root=base.root, env={"COLUMNS": "200"})
    assert f"B: split_k at no commit, NVIDIA H200 ({NEW})" in done.out, done.err


@pytest.mark.slow
def test_a_slowdown_over_the_limit_exits_1(base, kbtool, put):
    put()
    put(NEW, factor=1.2, cases=2, commit="f" * 40)
    names = ("compare", OLD, NEW, "--fail-over")
    assert kbtool(*names, "21%", root=base.root).code == 0
    assert kbtool(*names, "19", root=base.root).code == 1
    # B against A the other way round is faster, which is no failure.
    assert kbtool("compare", NEW, OLD, "--fail-over", "3 %", root=base.root).code == 0


@pytest.mark.slow
def test_no_verdict_at_all_fails_every_limit(base, kbtool, put):
    put()
    put(NEW, commit="f" * 40)
    run = base.root / next(base.root.glob(f"sessions/*/runs/{NEW}.json"))
    record = json.loads(run.read_text())
    record["machine"]["driver"] = "1"
    del record["digest"]
    run.write_text(json.dumps(record | {"digest": digest_of_record(record)}))
    done = kbtool("compare", OLD, NEW, "--fail-over", "3%", root=base.root)
    assert (done.code, done.out.splitlines()[0]) == (1, "no verdict; 16 not comparable")
    assert "nothing is ranked, different driver: A 580.159.04; B 1" in done.out


def test_json_is_one_object_with_every_case(base, kbtool, put):
    put()
    put(NEW, factor=0.5, commit="f" * 40, dirty=True)
    done = kbtool("compare", OLD, NEW, "--json", root=base.root)
    found = json.loads(done.out)
    assert found["answer"] == "B is faster in 16 of 16 cases, by 50 %"
    assert found["notes"] == [
        "B was timed with changes that no commit has, or its commit is unknown"
    ]
    assert found["b"]["runs"] == [NEW]
    first = found["cases"][0]
    assert {name: first[name] for name in ("arm", "metric", "verdict")} == {
        "arm": "split_k", "metric": "between", "verdict": "faster"
    }  # fmt: skip
    assert first["ratio"] == pytest.approx(0.5) == first["b"] / first["a"]


def test_arms_of_one_run_and_the_table_as_markdown(base, kbtool, put):
    put()
    done = kbtool("compare", "fused", "wgmma", "--markdown", "--metric", "chain", root=base.root)
    lines = done.out.splitlines()
    said = "B (wgmma) is slower than A (fused) in 16 of 16 cases, by 63 to 179 %"
    assert lines[0] == f"**{said}**"
    assert lines[2] == f"- A: fused at 4575ab50, NVIDIA H200 ({OLD})"
    assert lines[5] == "| Case | A (µs) | B (µs) | B ÷ A | ± | B is |  |"
    assert lines[7].endswith(" | slower |  |")


@pytest.mark.slow
def test_a_commit_may_be_named_as_git_names_it(base, kbtool, put, git):
    put()
    put(NEW, commit=git("rev-parse", "HEAD").strip())
    done = kbtool("compare", "last", "HEAD", root=base.root)
    assert done.code == 2
    done = kbtool("compare", "4575ab50", "HEAD", root=base.root)
    assert (done.code, done.out.splitlines()[0]) == (0, "no change in 16 cases")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("last", "last"), "last and last are the same: split_k at 4575ab50"),
        (("last", "nowhere"), "'nowhere': there is no benchmark"),
        (("last", "fused", "--fail-over", "1%"), "a difference below 2 % counts as none"),
        (("last", "fused", "--fail-over", "much"), "'much' is no percentage; write 3%"),
        (("last", "fused", "--json", "--markdown"), "take one"),
    ],
)
def test_arguments_that_cannot_be_compared_exit_2(base, kbtool, put, arguments, said):
    put()
    done = kbtool("compare", *arguments, root=base.root)
    assert done.code == 2
    assert bool(done.out) == ("--json" in arguments)
    assert said in done.err


def test_without_runs_compare_exits_2_and_says_so(base, kbtool):
    done = kbtool("compare", "best", "last", root=base.root)
    assert (done.code, "no run has a benchmark yet" in done.err) == (2, True)
