"""A case over time: one time a quiet run, and the runs at which it changed, by Apache Otava."""

from __future__ import annotations

import csv
import json
import math
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from kbtool.ledger.timings.conditions import PROBLEM, Timed, unlike
from kbtool.ledger.timings.spread import LEAST, METRICS, Metric, time_of
from kbtool.model.errors import MachineError

LEAST_RUNS = 20
"""A shorter series has no change points."""


class Series(NamedTuple):
    """The library's times of a case on one machine, under the conditions of its newest run."""

    kernel: str
    machine: str
    case: str
    metric: Metric
    runs: list[Timed]
    """Oldest first, quiet, each of a commit."""
    us: list[float]
    left_out: int = 0
    """Runs that are left out because they solve another problem than the newest."""

    @property
    def is_short(self) -> bool:
        """Whether it has too few runs for change points."""
        return len(self.us) < LEAST_RUNS


class Change(NamedTuple):
    """A run from which on a case took another time."""

    series: Series
    run: Timed
    """The first that took it."""
    before: float
    """µs, mean since the change point before."""
    after: float
    p: float

    @property
    def ratio(self) -> float:
        """After ÷ before: above 1 it became slower."""
        return self.after / self.before


def series(every: Sequence[Timed], metric: Metric | None = None) -> list[Series]:
    """A series for every case of every kernel and machine.

    Args:
        every: newest first.
        metric: what to show. Default: between plain kernels, where the newest run has it.
    """
    found: dict[tuple[str, str, str], list[tuple[Timed, Metric, float]]] = {}
    left_out: dict[tuple[str, str, str], int] = {}
    for one in every:
        if one.noise is not None or one.commit is None:
            continue
        for case, chosen, us in _times(one, METRICS if metric is None else (metric,)):
            key = (one.run.kernel or "", one.machine, case)
            points = found.setdefault(key, [])
            differ = unlike(points[0][0], one) if points else []
            if not points or (points[0][1] == chosen and not differ):
                points.append((one, chosen, us))
            elif differ == [PROBLEM]:
                left_out[key] = left_out.get(key, 0) + 1
    return [_series(key, points[::-1], left_out.get(key, 0)) for key, points in found.items()]


def _series(
    key: tuple[str, str, str], points: Sequence[tuple[Timed, Metric, float]], left_out: int
) -> Series:
    runs, metrics, us = zip(*points, strict=True)
    return Series(*key, metrics[-1], list(runs), list(us), left_out)


def _times(one: Timed, metrics: Iterable[Metric]) -> Iterable[tuple[str, Metric, float]]:
    """Each case of a run once, with the first metric that it has and its time in µs."""
    times: dict[str, tuple[Metric, list[float]]] = {}
    for result in one.results:
        for case in result.cases:
            for metric in metrics:
                time = time_of(case, result.subject, metric)
                if time is not None:
                    name = f"{case.case_set}/{case.name}" if case.case_set else case.name
                    known = times.setdefault(name, (metric, []))
                    if known[0] == metric:
                        known[1].append(time)
                    break
    return [(name, metric, math.exp(fmean(values))) for name, (metric, values) in times.items()]


def change_points(command: str, every: Sequence[Series]) -> list[Change]:
    """Where the series changed by 2 % or more; Otava runs in a process and packages of its own.

    Args:
        command: the program ``otava``.
        every: series that are long enough.

    Raises:
        MachineError: Otava does not say of each series where it changed.
    """
    if not every:
        return []
    with TemporaryDirectory(prefix="kbtool-otava-") as folder:
        tests = {
            f"s{number}": _write(Path(folder), number, one) for number, one in enumerate(every)
        }
        config = Path(folder, "otava.yaml")
        config.write_text(json.dumps({"tests": tests}), encoding="utf-8")
        done = subprocess.run(
            [command, "analyze", *tests, "--config-file", str(config), "--output", "json",
             "--since", "2000-01-01", "--magnitude", str(math.expm1(LEAST))],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    said: dict[str, list[dict[str, Any]]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            said |= json.loads(line)
    if said.keys() != tests.keys():
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
        raise MachineError(f"{command} gives no change points; it says: {last[0]}")
    return [
        _change(every[int(name[1:])], change)
        for name, points in said.items()
        for point in points
        for change in point["changes"]
    ]


def _write(folder: Path, number: int, one: Series) -> dict[str, Any]:
    """The file of a series, and what Otava has to know of it."""
    path = folder / f"s{number}.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["time", "run", "us"])
        rows.writerows(
            [run.run.started.isoformat(), run.run.id, us]
            for run, us in zip(one.runs, one.us, strict=True)
        )
    return {
        "type": "csv", "file": str(path), "time_column": "time", "attributes": ["run"],
        "metrics": ["us"], "csv_options": {"delimiter": ",", "quotechar": '"'},
    }  # fmt: skip


def _change(one: Series, said: dict[str, Any]) -> Change:
    before, after, p = (float(said[name]) for name in ("mean_before", "mean_after", "pvalue"))
    return Change(one, one.runs[said["index"]], before, after, p)
