"""A case over time, and where Apache Otava finds that it changed."""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from test_timings import every, run, times

from kbtool.ledger.timings.conditions import Timed
from kbtool.ledger.timings.series import LEAST_RUNS, Series, change_points, series
from kbtool.model.errors import MachineError

REPOSITORY = Path(__file__).parents[2]
OWN = str(REPOSITORY / ".venv-otava" / "bin" / "otava")
COMMAND = shutil.which(OWN) or shutil.which("otava")


def daily(*us: float) -> list[Timed]:
    """A quiet run a day, newest first."""
    first = datetime(2026, 1, 1, tzinfo=UTC)
    return every(
        *(
            run(f"r{day:02}", f"c{day:02}", times(each)).model_copy(
                update={"started": first + timedelta(days=day)}
            )
            for day, each in reversed([*enumerate(us)])
        )
    )


def test_a_series_is_what_quiet_runs_of_a_commit_took_oldest_first() -> None:
    found = series(
        every(
            run("r6", "c6", times(6.0)),
            run("r5", "c5", times(5.0), others_busy=0.9),
            run("r4", "c4", times(4.0), dirty=True),
            run("r3", "c3", times(3.0), torch="3"),
            run("r2", "c2", times(2.0), card="Card X2"),
            run("r1", "c1", times(1.0), {**times(9.0, "b"), "refused": "too fast"}),
        )
    )
    assert [(one.machine, one.case, one.us) for one in found] == [
        ("Card X1", "small/a", [pytest.approx(1), pytest.approx(6)]),
        ("Card X2", "small/a", [pytest.approx(2)]),
    ]
    assert [one.run.id for one in found[0].runs] == ["r1", "r6"]
    assert {one.metric for one in found} == {"chain"}
    assert all(one.is_short for one in found)


def test_a_series_needs_20_runs() -> None:
    assert LEAST_RUNS == 20
    (short,), (long,) = series(daily(*[1.0] * 19)), series(daily(*[1.0] * 20))
    assert (short.is_short, long.is_short) == (True, False)


def script(folder: Path, text: str) -> str:
    path = folder / "otava"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def of(us: list[float]) -> Series:
    (found,) = series(daily(*us))
    return found


def test_a_change_point_of_otava_is_assigned_to_its_run(tmp_path: Path) -> None:
    said = (
        '{"s0": [{"time": 1, "changes": [{"index": 2, "mean_before": "4.0", "mean_after": "5.0",'
        ' "pvalue": "0.001"}]}]}'
    )
    quoted = script(
        tmp_path, f"echo noise; cat s0.csv s1.csv >&2; echo '{said}'; echo '{{\"s1\": []}}'"
    )
    (change,) = change_points(quoted, [of([4.0, 4.0, 5.0]), of([1.0])])
    assert (change.run.run.id, change.ratio, change.p) == ("r02", 1.25, 0.001)


@pytest.mark.parametrize("text", ["echo 'ERROR: no file' >&2", "echo '{\"s0\": []}'; exit 0"])
def test_an_otava_that_leaves_a_series_out_is_no_answer(tmp_path: Path, text: str) -> None:
    two = [of([1.0]), of([2.0])]
    with pytest.raises(MachineError, match=r"gives no change points; it says: (ERROR: no file|\{)"):
        change_points(script(tmp_path, text), two)
    assert change_points("not there", []) == []


@pytest.mark.skipif(COMMAND is None, reason="no otava; `make otava` installs it")
def test_a_step_of_three_percent_is_found_at_its_run_and_no_other() -> None:
    assert COMMAND is not None
    chosen = random.Random(3)
    step = of([(10 if day < 24 else 10.3) * chosen.gauss(1, 0.005) for day in range(44)])
    flat = of([10 * chosen.gauss(1, 0.005) for _ in range(44)])
    (change,) = change_points(COMMAND, [step, flat])
    assert (change.series is step, change.run.run.id) == (True, "r24")
    assert change.ratio == pytest.approx(1.03, abs=0.005)
