"""Values that no step of kbtool validated: a script or a command logged them, or another tool wrote
them into a file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from kbtool.model.base import AtLeastOne, Commit, Name
from kbtool.model.kernel import Case
from kbtool.model.kinds.base import ResultBase, Sha256
from kbtool.model.metric import FiniteValue, Metric, MetricValue
from kbtool.model.words import counted


class LoggedValue(MetricValue):
    """One value that a script or a command logs."""

    case: Case = {}
    """What it was measured on: the shape and settings."""


class Series(Metric):
    """A metric on one case: every value of it, in their order."""

    benchmark: Name | None = None
    """What another tool calls the thing measured; null of what was logged."""
    case: Case = {}
    """What it was measured on: the shape and settings."""
    values: Annotated[list[FiniteValue], Field(min_length=1)]
    """Every value; where the tool kept no samples the one that it states, a mean or a median."""
    low: FiniteValue | None = None
    """The 25th percentile, where the tool states it and kept no samples."""
    high: FiniteValue | None = None
    """The 75th percentile, likewise."""
    samples: AtLeastOne | None = None
    """How many samples the stated value comes from; null where `values` holds them all."""

    @model_validator(mode="after")
    def _quartiles_in_order(self) -> Self:
        if self.low is not None and self.high is not None and self.high < self.low:
            raise ValueError(f"low is {self.low}, above high, {self.high}")
        return self

    @property
    def median(self) -> float:
        """The median of the values; of a single one, that one."""
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float | None, float | None]:
        """The 25th and the 75th percentile, as stated or of the values; null of a single value."""
        if len(self.values) < 2:
            return self.low, self.high
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return low, high

    @property
    def count(self) -> int:
        """How many samples it rests on."""
        return self.samples or len(self.values)

    @property
    def shown_unit(self) -> str:
        """The unit as it is shown: ``µs`` for ``us``."""
        return "µs" if self.unit == "us" else self.unit

    @property
    def label(self) -> str:
        """The benchmark and the case, in a line."""
        fields = (f"{name}={value}" for name, value in self.case.items() if value is not None)
        return " ".join(filter(None, (self.benchmark, *fields)))


class Collector:
    """Gathers logged values by metric and case."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[LoggedValue, list[float]]] = {}
        self._units: dict[str, LoggedValue] = {}

    def add(self, value: LoggedValue) -> None:
        """Add a value.

        Raises:
            ValueError: the metric had another unit before.
        """
        first = self._units.setdefault(value.name, value)
        if (first.unit, first.better) != (value.unit, value.better):
            raise ValueError(
                f"metric {value.name!r} was in {first.unit} ({first.better} is better) before, and"
                f" is in {value.unit} ({value.better} is better) now: a metric has one unit;"
                " give the other one another name"
            )
        key = (value.name, json.dumps(value.case, sort_keys=True) if value.case else "")
        self._found.setdefault(key, (value, []))[1].append(value.value)

    @property
    def series(self) -> list[Series]:
        """What was gathered, in the order in which each began."""
        return [
            Series(name=of.name, unit=of.unit, better=of.better, case=of.case, values=values)
            for of, values in self._found.values()
        ]

    def __len__(self) -> int:
        return sum(len(values) for _, values in self._found.values())


def series_of(values: Iterable[LoggedValue]) -> list[Series]:
    """Values by metric and case; see ``Collector``."""
    collector = Collector()
    for value in values:
        collector.add(value)
    return collector.series


class MetricsResult(ResultBase):
    """A result that holds values which nobody validated."""

    unvalidated: ClassVar[str] = "logged, not validated"
    """What stands beside such a value wherever it is shown."""
    metrics: list[Series] = []
    """The values that were logged, by metric and case. Nothing validated them."""


class LogResult(MetricsResult):
    """What a script logged."""

    type: Literal["log"] = "log"
    sha256: Sha256 | None = None
    """SHA-256 of the script when it began; null where Python read it from no file."""


class ImportResult(MetricsResult):
    """What a result file of another tool holds. It was taken in, and not validated here."""

    unvalidated: ClassVar[str] = "taken in, not validated here"

    type: Literal["import"] = "import"
    tool: Name
    """The tool that wrote the file: pytest-benchmark, nvbench."""
    tool_version: Name | None = None
    """The version of the tool, or of its file format; null where the file does not say."""
    file: Name
    """The name of the file, without its folder."""
    sha256: Sha256
    """SHA-256 of the file."""
    measured_at: AwareDatetime | None = None
    """When it was measured; null where the file does not say, or names no zone."""
    commit: Commit | None = None
    """The commit that was measured; null where the file does not say."""
    dirty: bool | None = None
    """Whether files differed from the commit; null where the file does not say."""
    machine: dict[str, str] = {}
    """The machine that the file names, by its own names: cpu, cores, os, card."""

    @property
    def place(self) -> str | None:
        """The card or the processor that the file names."""
        return self.machine.get("card") or self.machine.get("cpu") or self.machine.get("host")


def described(series: Series) -> str:
    """A metric and its value in a few words: ``tokens/s 1,830 1/s (batch=8)``."""
    unit = "" if series.unit == "1" else f" {series.shown_unit}"
    stated = f"of {series.samples} samples" if series.samples else ""
    many = f"median of {series.count}" if len(series.values) > 1 else stated
    about = ", ".join(filter(None, (series.label, many)))
    return f"{series.name} {counted(series.median)}{unit}" + (f" ({about})" if about else "")


def in_a_line(result: MetricsResult, most: int = 3) -> str:
    """The first metrics of a result, how many more there are, and that nobody validated them."""
    if not result.metrics:
        return ""
    shown = "; ".join(described(series) for series in result.metrics[:most])
    left = len(result.metrics) - most
    more = f"; {left} more" if left > 0 else ""
    return f"{shown}{more} [{result.unvalidated}]"


def plain(value: Any) -> Any:
    """A value of numpy or torch as a number of Python; others as they are."""
    if isinstance(value, (bool, int, float, str, list, type(None))) or not hasattr(value, "item"):
        return value
    return value.item()
