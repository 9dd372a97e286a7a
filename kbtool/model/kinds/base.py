"""What all kinds of step have in common: a step of a recipe, and the result of a step of a run."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kbtool.model.base import ExactDuration, Model, Slug, Title

Need = Literal["compiler", "ninja", "torch", "gpu", "several_gpus", "nvcc", "profiler", "sanitiser"]

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

Count = Annotated[int, Field(ge=0, le=1_000_000)]
"""How many things a step does or takes at most; more is a typing error."""

Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""What torch takes."""

Bytes = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""What a file or a card can hold; of more no rate can be computed."""

Microseconds = Annotated[float, Field(gt=0)]


def names_in(listed: str) -> list[str]:
    """The names in a comma-separated list."""
    return [name.strip() for name in listed.split(",") if name.strip()]


class StepBase(Model):
    """What every step has, whatever its kind."""

    does: ClassVar[str] = ""
    """What one says of the step where it works on a built library: validates, benchmarks. Such a
    step needs a build step before it; empty for a kind that needs none."""
    measures: ClassVar[bool] = False
    """Whether its figures count only for a library that passed validation before."""
    judges: ClassVar[bool] = False
    """Whether a failure is the kernel's: mending that changes sources, so no run can be resumed."""
    prepares: ClassVar[bool] = False
    """Whether its success is no finding: a run's headline leaves it out."""

    kind: str
    """The kind of step."""
    id: Slug
    """A name: used by --resume, in run records and in progress lines."""
    title: Title
    """What it does."""
    expected: ExactDuration
    """How long it should take, until there are past runs to tell."""
    timeout: ExactDuration
    """When it is stopped."""
    needs: list[Need] = []
    """What the machine must have."""


class ResultBase(Model):
    """What a step found, whatever its kind."""

    type: str

    @property
    def fault(self) -> str | None:
        """Why a step with this result cannot have passed, or ``None``."""
        return None

    @property
    def measured(self) -> tuple[str, list[str | None]] | None:
        """The hash of the library that was measured, and its variants (``None`` is its own choice):
        they must have passed validation in the same run. ``None`` where nothing was measured."""
        return None

    @property
    def noise(self) -> str | None:
        """Why the times prove little, or ``None``: others were busy on the same machine."""
        return None

    @property
    def empty(self) -> bool:
        """Whether the run's page needs no section for it, since the table of steps says it all."""
        return False
