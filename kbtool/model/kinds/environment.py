"""The step kind ``environment``: probe the machine and refuse what is missing or too old."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kbtool.model.kinds.base import ResultBase, StepBase


class EnvironmentStep(StepBase):
    """Probe the machine: card, driver, compilers, versions; refuse what is too old."""

    prepares: ClassVar[bool] = True

    kind: Literal["environment"]
    minimum: dict[str, Annotated[str, Field(pattern=r"^\d{1,6}(\.\d{1,6})*$")]] = {}
    """Least versions: {python: 3.11, torch: 2.10, nvcc: 12.0}."""


class EnvironmentResult(ResultBase):
    """What an environment step found missing or too old."""

    type: Literal["environment"] = "environment"
    missing: list[str] = []

    @property
    def empty(self) -> bool:
        """Nothing is missing."""
        return not self.missing
