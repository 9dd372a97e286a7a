"""pytest-benchmark: ``pytest --benchmark-json=FILE``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from kbtool.model.kernel import Case
from kbtool.runner.results.base import Count, Part, Taken, known, opened, refuse_later

TOOL = "pytest-benchmark"
_MAJOR = 5


class _Cpu(Part):
    brand_raw: str | None = None
    count: Count | None = None


class _Machine(Part):
    node: str | None = None
    system: str | None = None
    release: str | None = None
    machine: str | None = None
    python_version: str | None = None
    cpu: _Cpu = _Cpu()


class _Commit(Part):
    id: str | None = None
    dirty: bool | None = None


class _Stats(Part):
    median: float
    q1: float | None = None
    q3: float | None = None
    rounds: Count
    data: list[float] = []


class _Benchmark(Part):
    name: str
    fullname: str
    params: dict[str, Any] | None = None
    extra_info: dict[str, Any] = {}
    stats: _Stats


class _File(Part):
    machine_info: _Machine
    commit_info: _Commit = _Commit()
    benchmarks: list[_Benchmark]
    datetime: str
    version: str


def is_mine(data: dict[str, Any]) -> bool:
    """Whether the file looks like one of this tool."""
    return "machine_info" in data and "benchmarks" in data


def read(data: dict[str, Any]) -> Taken:
    """What the file holds: the time of each benchmark."""
    major = re.match(r"[0-9]{1,18}", str(data.get("version", "")))
    refuse_later(TOOL, "version", int(major[0]) if major else 0, _MAJOR)
    file = opened(_File, data)
    info = file.machine_info
    machine = {
        "cpu": info.cpu.brand_raw, "cores": info.cpu.count, "host": info.node,
        "os": " ".join(filter(None, (info.system, info.release, info.machine))),
        "python": info.python_version,
    }  # fmt: skip
    commit = file.commit_info.id or ""
    taken = Taken(
        TOOL, file.version, _moment(file.datetime),
        commit if re.fullmatch("[0-9a-f]{7,40}", commit) else None, known(machine),
        dirty=file.commit_info.dirty,
    )  # fmt: skip
    for number, one in enumerate(file.benchmarks):
        fields = {**(one.params or {}), **one.extra_info}
        case: Case = {
            name: value if isinstance(value, (bool, int, float, str)) else str(value)
            for name, value in fields.items()
        }
        stats = one.stats
        taken.add(
            f"benchmarks.{number} ({one.name})", "time", "s", "lower", stats.data or [stats.median],
            benchmark=one.fullname.partition("[")[0], case=case,
            quartiles=(None, None) if stats.data else (stats.q1, stats.q3),
            samples=None if stats.data else stats.rounds,
        )  # fmt: skip
    return taken


def _moment(text: str) -> datetime | None:
    """The time at which the file was written; without a zone, UTC, as the tool's source has it."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
