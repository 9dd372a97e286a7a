"""The step kind ``ablate``: take techniques out of a kernel one at a time, and time the rest."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from kbtool.model.ablation import Ablation
from kbtool.model.base import ExactDuration, HowMany, KernelId, Model, PatternId, Quantity
from kbtool.model.kinds.base import Microseconds, ResultBase, Seed, Sha256, StepBase

LEAST_EFFECT = 0.01
"""A difference below this is called none."""


class AblateStep(StepBase):
    """Take techniques out of the validated kernel, and time it with and without each."""

    does: ClassVar[str] = "times ablations"
    measures: ClassVar[bool] = True

    kind: Literal["ablate"]
    case_sets: str
    """Case sets to validate each ablated kernel on, separated by commas."""
    patterns: str = "all"
    """Ids of patterns, separated by commas, whose ablations are tried; or all."""
    ablations: str = "all"
    """Ids of ablations of these patterns, separated by commas; or all."""
    rounds: Annotated[int, Field(ge=2, le=100)] = 3
    """How often the kernel is timed with and without each technique, in turn."""
    samples: Annotated[int, Field(ge=5, le=100_000)] = 10
    """Timed samples of each implementation, each time."""
    limit: ExactDuration = Quantity("3 min")
    """How long one ablation may take."""


class AblationCase(Model):
    """One case, timed with and without a technique: one median a round."""

    case: str
    """SET/NAME."""
    with_us: Annotated[list[Microseconds], Field(min_length=1)]
    """The kernel as it is, in microseconds a call."""
    without_us: Annotated[list[Microseconds], Field(min_length=1)]
    """The kernel without the technique, in the same rounds."""

    @model_validator(mode="after")
    def _in_pairs(self) -> Self:
        if len(self.with_us) != len(self.without_us):
            raise ValueError(f"{self.case}: each round has a time with and one without")
        return self

    @property
    def ratios(self) -> list[float]:
        """Time without ÷ time with, one a round."""
        return [b / a for a, b in zip(self.with_us, self.without_us, strict=True)]

    @property
    def gain(self) -> float:
        """The geometric mean of the ratios: 1.2 means that without the technique a call takes 1.2
        times as long."""
        return math.exp(math.fsum(map(math.log, self.ratios)) / len(self.ratios))

    @property
    def effect(self) -> Literal["gains", "costs", "none shown"]:
        """Whether every round shows a gain, or every round a loss, of at least the least effect."""
        if min(self.ratios) >= 1 + LEAST_EFFECT:
            return "gains"
        return "costs" if max(self.ratios) <= 1 / (1 + LEAST_EFFECT) else "none shown"


class AblationResult(Model):
    """One technique taken out: whether the rest is right, and how fast it is."""

    pattern: PatternId
    """The pattern of the technique."""
    ablation: Ablation
    """The edits, as they were made."""
    verdict: Literal["measured", "wrong", "not-built", "not-judged"]
    """measured: right without the technique, and timed; wrong: a case failed; not-built: the edits
    cannot be made or do not compile; not-judged: the machine ended it."""
    sha256: Sha256 | None = None
    """The library without the technique."""
    message: str | None = None
    """What went wrong."""
    noise: str | None = None
    """Why the times prove little, where others were busy meanwhile."""
    cases: list[AblationCase] = []
    """What was timed."""

    @model_validator(mode="after")
    def _verdict_follows(self) -> Self:
        if (self.verdict == "measured") != bool(self.cases):
            raise ValueError(f"{self.ablation.id}: {self.verdict}, with {len(self.cases)} cases")
        return self

    @property
    def gain(self) -> float | None:
        """The geometric mean of the gains of its cases."""
        if not self.cases:
            return None
        return math.exp(math.fsum(math.log(case.gain) for case in self.cases) / len(self.cases))


class AblateResult(ResultBase):
    """What an ablate step measured."""

    type: Literal["ablate"] = "ablate"
    kernel: KernelId
    target: str
    device: str
    seed: Seed
    sha256: Sha256
    """The library with every technique."""
    case_sets: str
    """The case sets that each ablated kernel was validated on."""
    between: bool
    """Whether the times are those of a call behind a plain kernel; else of the call repeated."""
    ablations: list[AblationResult]
    skipped: dict[str, str] = {}
    """Ablation → why it was not tried here."""
    not_reached: HowMany = 0
    """Ablations that the step did not come to; more than 0 only where it did not end by itself."""

    @property
    def measured(self) -> tuple[str, list[str | None]]:
        """The library with every technique was timed."""
        return self.sha256, [None]

    @property
    def noise(self) -> str | None:
        """Why some times prove little."""
        return next((one.noise for one in self.ablations if one.noise), None)

    @property
    def fault(self) -> str | None:
        """An ablation that is none: it does not build, or what is left is wrong."""
        wrong = [one for one in self.ablations if one.verdict != "measured"]
        return f"{wrong[0].ablation.id}: {wrong[0].verdict}" if wrong else None
