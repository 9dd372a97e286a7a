"""Google Benchmark: ``--benchmark_out=FILE --benchmark_out_format=json``."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime

from kbtool.model.kernel import Case
from kbtool.runner.results.base import Count, Part, Taken, known, opened, refuse_later

TOOL = "Google Benchmark"
_SCHEMA = 1

_NO_COUNTERS = {
    "name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions",
    "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit", "label",
    "aggregate_name", "aggregate_unit", "error_occurred", "error_message", "skipped",
    "skip_message", "bytes_per_second", "items_per_second",
}  # fmt: skip
"""Keys of a benchmark that are no counters of its own."""


class _Context(Part):
    date: AwareDatetime | None = None
    host_name: str | None = None
    num_cpus: Count | None = None
    mhz_per_cpu: Count | None = None
    library_version: str | None = None
    json_schema_version: Count = _SCHEMA


class _Benchmark(Part):
    name: str
    run_name: str | None = None
    run_type: str = "iteration"
    aggregate_name: str | None = None
    repetitions: Count | None = None
    threads: Count | None = None
    label: str | None = None
    error_occurred: bool = False
    error_message: str | None = None
    skipped: bool = False
    skip_message: str | None = None
    real_time: float | None = None
    cpu_time: float | None = None
    time_unit: str = "ns"


class _File(Part):
    context: _Context
    benchmarks: list[_Benchmark]


def is_mine(data: dict[str, Any]) -> bool:
    """Whether the file looks like one of this tool."""
    return "context" in data and "benchmarks" in data


def read(data: dict[str, Any]) -> Taken:
    """What the file holds: times of each benchmark, rates, and its own counters."""
    file = opened(_File, data)
    context = file.context
    refuse_later(TOOL, "JSON schema version", context.json_schema_version, _SCHEMA)
    clock = f"{context.mhz_per_cpu} MHz" if context.mhz_per_cpu else None
    machine = {"host": context.host_name, "cores": context.num_cpus, "clock": clock}
    measured: datetime | None = context.date
    taken = Taken(TOOL, context.library_version, measured, machine=known(machine))
    timed = {one.run_name or one.name for one in file.benchmarks if one.run_type == "iteration"}
    for number, (one, raw) in enumerate(zip(file.benchmarks, data["benchmarks"], strict=True)):
        place = f"benchmarks.{number} ({one.name})"
        run_name = one.run_name or one.name
        if one.run_type != "iteration" and (run_name in timed or one.aggregate_name != "median"):
            continue  # the samples of it are there, or it is no value
        if one.error_occurred or one.skipped:
            why = one.error_message or one.skip_message or "no reason given"
            taken.left_out.append(
                f"{place}: {'failed' if one.error_occurred else 'skipped'}: {why}"
            )
            continue
        benchmark, case = _split(run_name)
        if one.threads and one.threads > 1:
            case["threads"] = one.threads
        if one.label:
            case["label"] = one.label
        samples = one.repetitions if one.run_type != "iteration" else None
        figures = [
            ("time", one.time_unit, "lower", one.real_time),
            ("cpu time", one.time_unit, "lower", one.cpu_time),
            ("bytes_per_second", "B/s", "higher", raw.get("bytes_per_second")),
            ("items_per_second", "items/s", "higher", raw.get("items_per_second")),
            *((name, "1", "neither", raw[name]) for name in raw.keys() - _NO_COUNTERS),
        ]
        for name, unit, better, value in sorted(figures, key=lambda figure: figure[0]):
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                taken.add(
                    place, name, unit, better, [value],  # type: ignore[arg-type]
                    benchmark=benchmark, case=case, samples=samples,
                )  # fmt: skip
    return taken


def _split(name: str) -> tuple[str, Case]:
    """``sum/n:8/real_time`` → ``sum/real_time`` and ``n=8``: arguments that have names.
    A second value of one name stays in the name of the benchmark."""
    case: Case = {}
    rest = []
    for part in name.split("/"):
        key, colon, value = part.partition(":")
        if colon and key.isidentifier() and key not in case and ":" not in value:
            case[key] = int(value) if re.fullmatch(r"-?\d{1,18}", value, re.ASCII) else value
        else:
            rest.append(part)
    return "/".join(rest), case
