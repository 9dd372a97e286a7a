"""asv (airspeed velocity): ``results/MACHINE/COMMIT-ENVIRONMENT.json``.

Units and names of parameters are not in that file but in ``benchmarks.json`` one folder above.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from kbtool.model.kernel import Case
from kbtool.model.metric import Better
from kbtool.runner.results.base import (
    Count,
    Part,
    ResultFileError,
    Taken,
    known,
    opened,
    refuse_later,
)

TOOL = "asv"
_FORMAT = 2
_LAST_MS = 32_503_680_000_000
"""The year 3000, in milliseconds."""
_UNITS = {"seconds": "s", "bytes": "B"}
_BY_NAME = {"time": "s", "timeraw": "s", "mem": "B", "peakmem": "B"}
"""Beginning of a benchmark's name → its unit, as asv has it."""


class _Machine(Part):
    machine: str | None = None
    arch: str | None = None
    cpu: str | None = None
    num_cpu: str | None = None
    os: str | None = None
    ram: str | None = None


class _File(Part):
    commit_hash: str
    params: _Machine
    result_columns: list[str]
    results: dict[str, list[Any]]
    version: Count


class _Row(Part):
    result: list[Any] | None = None
    params: list[list[Any]] = []
    started_at: Annotated[float, Field(ge=0, le=_LAST_MS)] | None = None
    samples: list[list[Any] | None] = []
    stats_q_25: list[Any] = []
    stats_q_75: list[Any] = []
    stats_repeat: list[Any] = []


class _About(Part):
    unit: str | None = None
    param_names: list[str] = []


def is_mine(data: dict[str, Any]) -> bool:
    """Whether the file looks like one of this tool."""
    return "commit_hash" in data and "results" in data


def read(data: dict[str, Any], about: Mapping[str, Any], unit: str | None = None) -> Taken:
    """What the file holds.

    Args:
        data: the file.
        about: ``benchmarks.json`` of its results folder; empty without one.
        unit: of the benchmarks whose unit neither says.
    """
    version = data.get("version")
    refuse_later(TOOL, "results version", version if isinstance(version, int) else 0, _FORMAT)
    file = opened(_File, data)
    if file.version < _FORMAT:
        raise ResultFileError(
            f"it has results version {file.version} of asv; `asv update` makes it {_FORMAT}"
        )
    info = file.params
    machine = {
        "cpu": info.cpu, "cores": info.num_cpu, "os": info.os, "ram": info.ram,
        "host": info.machine, "arch": info.arch,
    }  # fmt: skip
    commit = file.commit_hash if re.fullmatch("[0-9a-f]{7,40}", file.commit_hash) else None
    taken = Taken(TOOL, f"results version {file.version}", None, commit, known(machine))
    started = []
    for name, cells in file.results.items():
        if len(cells) > len(file.result_columns):
            raise ResultFileError(f"results.{name} has more cells than result_columns names")
        given = zip(file.result_columns, cells, strict=False)
        row = opened(
            _Row,
            {column: cell for column, cell in given if cell is not None},
            f"results.{name}: ",
        )
        if row.started_at is not None:
            started.append(row.started_at)
        _add(taken, name, row, opened(_About, about.get(name) or {}), unit)
    if started:
        taken.measured_at = datetime.fromtimestamp(min(started) / 1000, UTC)
    return taken


def _add(taken: Taken, name: str, row: _Row, about: _About, unit: str | None) -> None:
    place = f"results.{name}"
    values = row.result
    if values is None:
        taken.left_out.append(f"{place}: it failed, and has no result")
        return
    kind = name.rpartition(".")[2].partition("_")[0]
    stated = _UNITS.get(about.unit or "", about.unit) or _BY_NAME.get(kind) or unit
    if stated is None:
        raise ResultFileError(
            f"{place}: no unit; keep benchmarks.json in the folder above the file, where asv writes"
            " it, or give --unit"
        )
    better: Better = "lower" if stated in _BY_NAME.values() else "neither"
    sets = math.prod(map(len, row.params))
    if sets != len(values):
        raise ResultFileError(
            f"{place}: {len(values)} results of {sets} parameter sets: the file is cut off or was"
            " edited"
        )
    cases = _cases(row.params, about.param_names)
    for number, (value, case) in enumerate(zip(values, cases, strict=True)):
        samples = _cell(row.samples, number)
        quartiles = (_cell(row.stats_q_25, number), _cell(row.stats_q_75, number))
        repeat = _cell(row.stats_repeat, number)
        taken.add(
            f"{place}[{number}]", _METRICS.get(stated, kind), stated, better,
            samples or [value],
            benchmark=name, case=case, quartiles=(None, None) if samples else quartiles,
            samples=repeat if isinstance(repeat, int) and repeat > 0 and not samples else None,
        )  # fmt: skip


_METRICS = {"s": "time", "B": "memory"}


def _cell(cells: list[Any], number: int) -> Any:
    return cells[number] if number < len(cells) else None


def _cases(params: list[list[Any]], names: list[str]) -> list[Case]:
    """The parameter sets, in the order of the results."""
    titles = [*names, *(f"param{n + 1}" for n in range(len(names), len(params)))]
    return [
        {title: _value(text) for title, text in zip(titles, chosen, strict=False)}
        for chosen in itertools.product(*params)
    ]


def _value(text: Any) -> Any:
    """A parameter as Python wrote it: ``'list'`` is text, ``10`` a number."""
    try:
        value = ast.literal_eval(str(text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return str(text)
    return value if isinstance(value, (bool, int, float, str)) else str(text)
