"""The step kind ``tune``: time the library's own choice of a setting beside every other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from kbtool.model.base import HowMany, Model, Name
from kbtool.model.kernel import Case
from kbtool.model.kinds.base import ResultBase, Sha256, StepBase
from kbtool.model.kinds.timing import Timing, noise_reason


class TuneStep(StepBase):
    """Time the validated artifact's own choice of a setting beside every other."""

    does: ClassVar[str] = "tunes"
    measures: ClassVar[bool] = True

    kind: Literal["tune"]
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    case: str = ""
    """One case instead of all: `FIELD=VALUE …`, or the name of a case of the sets."""
    variants: str
    """Variants of the target to tune, by name, separated by commas; validate must have passed
    them."""
    samples: Annotated[int, Field(ge=5, le=100_000)] = 20
    """Timed samples a setting."""


class TuneCase(Model):
    """One case of a tune: every setting in turn, over the same inputs."""

    name: Name
    case_set: Name
    case: Case
    variant: str
    """The variant of the library that was tuned."""
    own: str
    """The setting that the library takes by itself."""
    settings: dict[str, Timing]
    """Setting → its time."""
    absent: dict[str, str] = {}
    """Setting → why it could not be timed."""
    best: str
    """The fastest setting whose quartiles lie apart from those of the library's own choice, in
    `settings` and again in `retimed`; the own choice where there is none."""
    retimed: dict[str, Timing] = {}
    """The own choice and the fastest setting apart from it, timed again alone: of many settings one
    looks faster by luck. Empty where there is none, and in older records."""
    wrong: str | None = None
    """What the best setting's output is off by, if it is wrong: such a case proves nothing."""

    @model_validator(mode="after")
    def _best_follows_from_times(self) -> Self:
        wanted = fastest_apart(self.own, self.settings)
        if self.retimed:
            if wanted == self.own or self.retimed.keys() != {self.own, wanted}:
                raise ValueError(f"retimed {', '.join(self.retimed)}; the times call for {wanted}")
            wanted = fastest_apart(self.own, self.retimed)
        if self.best != wanted:
            raise ValueError(f"best is {self.best}; the times make it {wanted}")
        return self

    @property
    def times(self) -> Mapping[str, Timing]:
        """The times that own and best are compared by: the later ones, which did not choose."""
        return self.retimed or self.settings

    @property
    def gain(self) -> float:
        """The own choice's time ÷ the best setting's: 1 where that is the own choice."""
        return self.times[self.own].median_us / self.times[self.best].median_us


def fastest_apart(own: str, settings: Mapping[str, Timing]) -> str:
    """The fastest setting whose upper quartile is below the lower one of ``own``, or ``own``."""
    if own not in settings:
        raise ValueError(f"{own}, the library's own choice, was not timed")
    faster = [name for name, timing in settings.items() if timing.high_us < settings[own].low_us]
    return min(faster, key=lambda name: settings[name].median_us, default=own)


class TuneResult(ResultBase):
    """What a tune step measured: the library's own choice beside every other."""

    type: Literal["tune"] = "tune"
    sha256: Sha256
    """The library that was timed."""
    device: str
    threads: HowMany
    setting: str
    """What was set: num_splits."""
    protocol: str
    """How it was timed, in words."""
    others_busy: Annotated[float, Field(ge=0)] | None = None
    """Share of the cores that other processes used meanwhile; null where it cannot be told."""
    others_on_card: HowMany | None = None
    """As for a benchmark."""
    cases: list[TuneCase]
    not_reached: HowMany = 0
    """Cases that the step did not come to; more than 0 only where it did not end by itself."""
    table: str | None = None
    """The file that the settings were written to, in older records: a kernel had a table then."""

    @property
    def noise(self) -> str | None:
        """Whether others were busy on the same machine meanwhile."""
        return noise_reason(self.others_busy, self.others_on_card)

    @property
    def step_status(self) -> Literal["passed", "noisy", "failed"]:
        """How a step with this result ends that reached all cases."""
        if any(case.wrong for case in self.cases):
            return "failed"
        return "noisy" if self.noise else "passed"

    @property
    def measured(self) -> tuple[str, list[str | None]]:
        """The library and every variant of it that was run."""
        return self.sha256, list(dict.fromkeys(case.variant for case in self.cases))
