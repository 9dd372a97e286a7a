"""What a session decided, and what it plans for a later one."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from kbtool.model.base import (
    Amount,
    Cited,
    Duration,
    Model,
    Quantity,
    Slug,
    Text,
    Title,
)


class Option(Cited):
    """A way that could have been taken."""

    id: Slug
    """A name for references."""
    title: Title
    """The option."""
    detail: str | None = None
    """Its grounds, its price, what it was expected to bring."""
    figures: dict[Slug, Quantity] = Field(default_factory=dict)
    """Stated figures: cost, time, confidence, expected speedup."""


class Decision(Cited):
    """A choice, the options it was made between, and why."""

    id: Slug
    """A name for references."""
    question: Text
    """What had to be decided."""
    options: list[Option] = Field(default_factory=list)
    """The options considered."""
    chosen: Slug | None = None
    """The id of the option taken; null, with the reason under `unknown`, while it is open."""
    reason: str | None = None
    """Why."""

    @model_validator(mode="after")
    def _chosen_is_an_option(self) -> Self:
        if self.chosen is not None and self.chosen not in {option.id for option in self.options}:
            raise ValueError(f"chosen: {self.chosen!r} is none of the options")
        return self


class PlannedStep(Model):
    """A step of a plan."""

    id: Slug
    """A name for references."""
    title: Title
    """What is to be done."""
    target: Duration | None = None
    """The time planned."""
    detail: str | None = None
    """How."""


class Plan(Cited):
    """What a later session was to do."""

    id: Slug
    """A name for references."""
    title: Title
    """The aim."""
    for_session: str | None = None
    """The label of the session that it is for: N+7B."""
    target: Duration | None = None
    """The time planned in all."""
    budget: Amount | None = None
    """The money planned in all."""
    steps: list[PlannedStep] = Field(default_factory=list)
    """The steps planned."""
    expected: list[str] = Field(default_factory=list)
    """What it was expected to bring."""
    figures: dict[Slug, Quantity] = Field(default_factory=dict)
    """Figures stated of the plan: target speedup, bound of the error."""
