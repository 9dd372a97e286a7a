"""What the readers of result files share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kbtool.model.errors import UsageError, first_problem
from kbtool.model.kernel import Case
from kbtool.model.kinds.logged import Series
from kbtool.model.metric import LARGEST, Better

MOST_SAMPLES = 1_000
"""Of more samples only median, quartiles and number are kept."""


class ResultFileError(UsageError):
    """A result file that cannot be taken in: where, why, and what to do."""


class Part(BaseModel):
    """A part of a file of another tool, of which kbtool reads some keys."""

    model_config = ConfigDict(extra="ignore", frozen=True)


M = TypeVar("M", bound=Part)

Count = Annotated[int, Field(ge=0, lt=2**63)]
"""A whole number in a file. One beyond it counts nothing, and has no place in a float."""


@dataclass
class Taken:
    """What a result file holds."""

    tool: str
    version: str | None = None
    measured_at: datetime | None = None
    commit: str | None = None
    machine: dict[str, str] = field(default_factory=dict)
    dirty: bool | None = None
    left_out: list[str] = field(default_factory=list)
    """Entries without a value, each with its place and the reason."""
    _found: dict[tuple[str, str, str], tuple[Series, list[float]]] = field(default_factory=dict)
    """The first entry of each metric and case, and the values of all of them."""

    @property
    def series(self) -> list[Series]:
        """The metrics, in the order of the file."""
        return [of.model_copy(update={"values": values}) for of, values in self._found.values()]

    def add(
        self,
        place: str,
        name: str,
        unit: str,
        better: Better,
        values: Iterable[Any],
        *,
        benchmark: str | None = None,
        case: Case | None = None,
        quartiles: tuple[Any, Any] = (None, None),
        samples: int | None = None,
    ) -> None:
        """Add values of a metric; those that are not finite are left out, and told.

        Raises:
            ResultFileError: the metric is none, or it was added before and cannot be merged.
        """
        given = list(values)
        finite = [number for value in given if (number := finite_of(value)) is not None]
        if len(finite) < len(given):
            wrong = next(value for value in given if finite_of(value) is None)
            self.left_out.append(f"{place}: {name} is {wrong!s:.40}, which is no measurement")
        if not finite:
            return
        low, high = (finite_of(one) for one in quartiles)
        try:
            made = Series(
                name=name, unit=unit, better=better, benchmark=benchmark, case=case or {},
                values=finite, low=low, high=high, samples=samples,
            )  # fmt: skip
        except ValidationError as error:
            raise ResultFileError(f"{place}: {first_problem(error)}") from None
        key = (name, benchmark or "", json.dumps(made.case, sort_keys=True))
        before, values_before = self._found.setdefault(key, (made, []))
        if before.unit != unit:
            raise ResultFileError(f"{place}: {name} is in {before.unit} and in {unit}")
        if values_before and (_summarises(before) or _summarises(made)):
            raise ResultFileError(
                f"{place}: {name} of one case is there twice, once without its samples: they make"
                " no one figure; write the samples into the file, or give each a case of its own"
            )
        values_before += made.values

    def shortened(self) -> list[Series]:
        """The metrics, without more samples than a record keeps."""
        return [_shortened(series) for series in self.series]


def _summarises(series: Series) -> bool:
    """Whether the tool states what the samples say, and not the samples."""
    return any(one is not None for one in (series.samples, series.low, series.high))


def finite_of(value: Any) -> float | None:
    """A number that can be compared and drawn; ``None`` of everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) <= LARGEST else None


def _shortened(series: Series) -> Series:
    if len(series.values) <= MOST_SAMPLES:
        return series
    low, high = series.quartiles
    return series.model_copy(
        update={"values": [series.median], "low": low, "high": high, "samples": series.count}
    )


def opened(kind: type[M], data: Any, place: str = "") -> M:
    """The parts of a file that kbtool reads.

    Raises:
        ResultFileError: one is missing, or of another type.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise ResultFileError(
            f"{place}{first_problem(error)}: the file is cut off or of another version of the tool"
        ) from None


def refuse_later(tool: str, what: str, found: int, known: int) -> None:
    """Raise if a file is of a later version than this kbtool reads."""
    if found > known:
        raise ResultFileError(
            f"it has {what} {found!s:.20} of {tool}, and this kbtool reads up to {known}: update"
            f" kbtool, or write the file with an older {tool}"
        )


def known(machine: dict[str, Any]) -> dict[str, str]:
    """What a file names of its machine, as text."""
    return {name: str(value)[:200] for name, value in machine.items() if value not in (None, "")}
