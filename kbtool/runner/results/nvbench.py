"""nvbench: ``--json FILE``, of file version 1."""

from __future__ import annotations

from math import inf
from typing import Any

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

TOOL = "nvbench"
_MAJOR = 1

_HINTS: dict[str | None, tuple[str, Better]] = {
    "duration": ("s", "lower"), "item_rate": ("items/s", "higher"), "byte_rate": ("B/s", "higher"),
    "bytes": ("B", "neither"), "percentage": ("1", "neither"), "frequency": ("Hz", "neither"),
    None: ("1", "neither"),
}  # fmt: skip
"""What a summary is, by its hint → unit and which is better. A percentage is written as a share."""


class _Datum(Part):
    name: str
    type: str
    value: Any = None


class _Summary(Part):
    tag: str
    hint: str | None = None
    hide: str | None = None
    data: list[_Datum] = []


class _Axis(Part):
    name: str
    type: str
    value: str


class _State(Part):
    name: str
    device: Count | None = None
    axis_values: list[_Axis] | None = None
    summaries: list[_Summary] | None = None
    is_skipped: bool = False
    skip_reason: str | None = None


class _Benchmark(Part):
    name: str
    states: list[_State] | None = None


class _Device(Part):
    id: Count
    name: str
    sm_version: Count | None = None
    global_memory_size: Count | None = None


class _Version(Part):
    string: str
    major: Count


class _Versions(Part):
    file: _Version = Field(alias="json")
    nvbench: _Version


class _Meta(Part):
    version: _Versions


class _File(Part):
    meta: _Meta
    devices: list[_Device] | None = None
    benchmarks: list[_Benchmark] | None = None


def is_mine(data: dict[str, Any]) -> bool:
    """Whether the file looks like one of this tool."""
    return "devices" in data and "benchmarks" in data


def read(data: dict[str, Any]) -> Taken:
    """What the file holds: every summary of a state that nvbench prints."""
    if "meta" not in data:
        raise ResultFileError(
            "it is of an nvbench without file versions: write it with a newer one"
        )
    file = opened(_File, data)
    version = file.meta.version
    refuse_later(TOOL, "file version", version.file.major, _MAJOR)
    used = {state.device for one in file.benchmarks or () for state in one.states or ()}
    cards = {one.id: one for one in file.devices or () if one.id in used}
    first = next(iter(cards.values()), None)
    machine: dict[str, Any] = {"card": " and ".join(dict.fromkeys(c.name for c in cards.values()))}
    if first is not None and len(cards) == 1:
        sm = first.sm_version
        machine["compute_capability"] = f"sm_{sm // 10}" if sm else None
        memory = first.global_memory_size
        machine["card_memory"] = f"{memory / 2**30:.1f} GiB" if memory else None
    taken = Taken(TOOL, version.nvbench.string, machine=known(machine))
    for one in file.benchmarks or ():
        for state in one.states or ():
            place = f"{one.name} ({state.name})"
            if state.is_skipped:
                taken.left_out.append(f"{place}: skipped: {state.skip_reason or 'no reason given'}")
                continue
            case: Case = {axis.name: _value(axis) for axis in state.axis_values or ()}
            if len(cards) > 1 and state.device in cards:
                case |= {"card": cards[state.device].name, "device": state.device}
            _add(taken, place, one.name, case, state.summaries or [])
    return taken


def _add(taken: Taken, place: str, benchmark: str, case: Case, summaries: list[_Summary]) -> None:
    values = {summary.tag: _number(summary, place) for summary in summaries}
    for summary in summaries:
        value = values[summary.tag]
        if summary.hide or summary.hint == "sample_size" or value is None:
            continue
        if summary.hint not in _HINTS:
            taken.left_out.append(
                f"{place}: {summary.tag} has the hint {summary.hint!r:.40}, whose unit is unknown"
            )
            continue
        unit, better = _HINTS[summary.hint]
        group = "/".join(summary.tag.split("/")[:2])
        count = values.get(f"{group}/sample_size")
        samples = int(count) if count is not None and 1 <= count < inf else None
        name = summary.tag.removeprefix("nv/")
        taken.add(place, name, unit, better, [value], benchmark=benchmark, case=case,
                  samples=samples)  # fmt: skip


def _number(summary: _Summary, place: str) -> float | None:
    """The value of a summary; ``None`` of one that has no number: the name of a file, say."""
    for datum in summary.data:
        if datum.name == "value" and datum.type in {"int64", "float64"}:
            try:
                return float(datum.value)
            except (TypeError, ValueError, OverflowError):
                raise ResultFileError(
                    f"{place}, {summary.tag}: {str(datum.value)[:40]!r} is no number"
                ) from None
    return None


def _value(axis: _Axis) -> Any:
    """The value of an axis, by its type; nvbench writes numbers as text."""
    try:
        return {"int64": int, "float64": float}.get(axis.type, str)(axis.value)
    except ValueError:
        return axis.value
