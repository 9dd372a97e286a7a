"""A table of measurements that a session states."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from kbtool.model.base import (
    Cited,
    Figure,
    Model,
    Quantity,
    Slug,
    Title,
)


def _is_a_unit(unit: str) -> str:
    try:
        stands = not unit or Quantity(f"1 {unit}").unit == unit
        stands = stands and unit.lower() not in {"nan", "inf", "infinity", "true", "false"}
    except ValueError:
        stands = False
    if not stands:
        raise ValueError(f"{unit!r} is no unit: write what stands behind a figure, as in 12.5 us")
    return unit


class Column(Model):
    """One column of figures in a measurement."""

    title: Title
    """What is measured, for which implementation: 'PyTorch SDPA latency'."""
    unit: Annotated[str, AfterValidator(_is_a_unit)]
    """The unit of every figure in the column; '' for a pure number."""


class Row(Model):
    """One case of a measurement."""

    id: Slug
    """A name for references."""
    case: dict[str, str] = Field(default_factory=dict)
    """The shape and settings: {B: 1, H: 1, S: 128, D: 64}."""
    values: dict[Slug, Figure | None] = Field(default_factory=dict)
    """Column → figure; null, with the reason under `unknown`, where none was taken."""
    verdict: Literal["pass", "fail"] | None = None
    """The verdict that the log gives this case."""
    note: str | None = None
    """The log's remark on this case."""


class Measurement(Cited):
    """A table of figures that the session measured."""

    id: Slug
    """A name for references."""
    title: Title
    """What the table shows."""
    kind: Literal["benchmark", "correctness", "memory", "build", "other"]
    """What was measured."""
    about: str | None = None
    """Conditions: element type, statistic, baseline, bound of the verdict."""
    artifact: str | None = None
    """What was measured: a binary, a commit, a kernel."""
    validated: bool | None = None
    """Whether the thing measured had passed validation before; null if the log does not say."""
    subject: Slug | None = None
    """The column with the times of what was worked on; a speedup is computed from it."""
    columns: Annotated[dict[Slug, Column], Field(min_length=1)]
    """The columns of figures, by name."""
    rows: Annotated[list[Row], Field(min_length=1)]
    """One entry a case."""

    @model_validator(mode="after")
    def _values_have_columns(self) -> Self:
        if self.subject is not None:
            column = self.columns.get(self.subject)
            if column is None or column.unit not in Quantity.MINUTES:
                raise ValueError(f"subject: {self.subject!r} is no column of times")
        for row in self.rows:
            extra = sorted(set(row.values) - set(self.columns))
            if extra:
                raise ValueError(
                    f"row {row.id!r} has figures for {', '.join(extra)}, which is no column;"
                    f" the columns are {', '.join(self.columns)}"
                )
        return self
