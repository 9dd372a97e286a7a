"""``kbtool history`` from outside, on copies of one recorded run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbtool.model.run import digest_of_record

SESSIONS = Path(__file__).parents[2] / "sessions"
RUN = "20261123T231955Z-split-k-ec5a"


@pytest.fixture
def put(base):
    """Put the recorded run there so many times, a day each."""

    def make(runs: int) -> None:
        (recorded,) = SESSIONS.glob(f"*/runs/{RUN}.json")
        run = json.loads(recorded.read_text())
        del run["digest"]
        for day in range(1, runs + 1):
            when = f"2026-12-{day:02}T23:19:55Z"
            run |= {"id": f"202612{day:02}T231955Z-split-k-ec5a", "started": when, "ended": when}
            run["repository"]["commit"] = f"{day:040x}"
            text = json.dumps({**run, "digest": digest_of_record(run)})
            base.write(f"sessions/{run['session']}/runs/{run['id']}.json", text)

    return make


@pytest.fixture
def otava(tmp_path):
    """A program that answers as Otava does: the first series changed at its third run."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "otava"
    path.write_text(
        """#!/bin/sh
shift
at='[{"changes": [{"index": 2, "mean_before": "5", "mean_after": "6", "pvalue": "0"}]}]'
for name; do
  case $name in s*) echo "{\\"$name\\": $at}"; at='[]' ;; *) exit 0 ;; esac
done
"""
    )
    path.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "COLUMNS": "200"}


def test_too_few_runs_are_said_and_need_no_otava(base, kbtool, put):
    put(2)
    done = kbtool("history", root=base.root, env={"PATH": "/nowhere"})
    assert (done.code, done.err) == (0, "")
    assert done.out == "too few runs: the longest series has 2 of 20\n"


@pytest.mark.slow
def test_a_change_point_names_its_run(base, kbtool, put, otava):
    put(20)
    done = kbtool("history", root=base.root, env=otava)
    lines = done.out.splitlines()
    assert (done.code, lines[0]) == (0, "1 change point in 16 series")
    assert lines[4].split()[-6:] == ["20261203T231955Z-split-k-ec5a", "00000000", "5.00", "6.00",
                                     "1.20", "slower"]  # fmt: skip
    found = json.loads(kbtool("history", "--json", root=base.root, env=otava).out)
    assert len(found["series"]) == 16
    first, *rest = found["series"]
    assert (len(first["runs"]), first["metric"], first["too_few_runs"]) == (20, "between", False)
    assert [change["ratio"] for change in first["changes"]] == [1.2]
    assert not any(one["changes"] for one in rest)


@pytest.mark.slow
def test_without_otava_it_says_how_to_get_it(base, kbtool, put):
    put(20)
    done = kbtool("history", root=base.root, env={"PATH": "/nowhere"})
    assert (done.code, done.out) == (3, "")
    assert "`make otava`" in done.err


def test_without_runs_the_series_are_too_short(base, kbtool):
    done = kbtool("history", root=base.root)
    assert (done.code, done.out) == (0, "too few runs: the longest series has 0 of 20\n")
