"""The step kind ``environment``: probe the machine and refuse what is missing or too old."""

from __future__ import annotations

from typing import ClassVar, Literal

from kbtool.model.kinds.base import ResultBase, StepBase


class EnvironmentStep(StepBase):
    """Probe the machine: card, driver, compilers, versions; refuse what is too old."""

    prepares: ClassVar[bool] = True

    kind: Literal["environment"]
    minimum: dict[str, str] = {}
    """Least versions: {python: 3.11, torch: 2.10, nvcc: 12.0}."""


class EnvironmentResult(ResultBase):
    """What an environment step found missing or too old."""

    type: Literal["environment"] = "environment"
    missing: list[str] = []

    @property
    def empty(self) -> bool:
        """Nothing is missing."""
        return not self.missing
