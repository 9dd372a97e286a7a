"""The step kind ``cheats``: try to earn a figure by every known cheat, and by honest variants."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from kbtool.model.base import ExactDuration, HowMany, KernelId, Model, Quantity
from kbtool.model.cheat import Cheat
from kbtool.model.kinds.base import Count, ResultBase, Seed, Sha256, StepBase


class CheatsStep(StepBase):
    """Edit the kernel as a cheat would, and see whether a run of it is stopped."""

    does: ClassVar[str] = "runs cheats"
    judges: ClassVar[bool] = True

    kind: Literal["cheats"]
    catalogue: str = "cheats.yaml"
    """The file in the kernel's folder that holds the edits."""
    cheats: str = "all"
    """Ids of edits, separated by commas, or all."""
    case_sets: str
    """Case sets to validate: the cases that have the dtype of the one that is timed."""
    benchmark: str
    """The case set of which the first case is timed."""
    peers: str
    """Peers to time beside the kernel."""
    samples: Annotated[int, Field(ge=5, le=100_000)] = 20
    """Timed samples of each implementation."""
    at_once: Count = 0
    """Edits tried at once, each on one core; 0 takes all cores. One is timed at a time."""
    limit: ExactDuration = Quantity("2 min")
    """How long one edit may take."""


class CheatResult(Model):
    """One edit: how the run of it ended."""

    cheat: Cheat
    """The edit, as it was made."""
    verdict: Literal["caught", "passed", "not-judged"]
    """caught: a gate stopped it; passed: it got a figure; not-judged: the machine ended it."""
    step: str | None = None
    """The kind of the step that stopped it."""
    message: str | None = None
    """What that step says."""

    @model_validator(mode="after")
    def _verdict_follows(self) -> Self:
        if (self.verdict == "caught") != (self.step is not None):
            raise ValueError(f"{self.cheat.id}: {self.verdict}, and stopped by {self.step}")
        return self

    @property
    def finding(self) -> str | None:
        """What is wrong with the gates or with the catalogue, or ``None``."""
        if self.verdict == "not-judged":
            return "not judged"
        caught = self.verdict == "caught"
        if self.cheat.honest:
            return "honest, but accused" if caught else None
        if caught:
            return "declared to survive, but caught" if self.cheat.survives else None
        return None if self.cheat.survives else "no gate stops it"


class CheatsResult(ResultBase):
    """What a cheats step found: which attacks the gates stop, and whom they accuse."""

    type: Literal["cheats"] = "cheats"
    kernel: KernelId
    target: str
    sha256: Sha256
    """The library without any edit; a run of it passed in this step."""
    seed: Seed
    case_sets: str
    """The case sets that were validated."""
    benchmark: str
    """The case that was timed: SET/NAME."""
    cheats: list[CheatResult]
    skipped: dict[str, str] = {}
    """Edit → why it was not tried here."""
    not_reached: HowMany = 0
    """Edits that the step did not come to; more than 0 only where it did not end by itself."""

    @property
    def attacks(self) -> list[CheatResult]:
        """The edits that are not honest."""
        return [one for one in self.cheats if not one.cheat.honest]

    @property
    def caught(self) -> list[CheatResult]:
        """The attacks that a gate stopped."""
        return [one for one in self.attacks if one.verdict == "caught"]

    @property
    def survivors(self) -> list[CheatResult]:
        """The attacks that got a figure."""
        return [one for one in self.attacks if one.verdict == "passed"]

    @property
    def accused(self) -> list[CheatResult]:
        """The honest variants that a gate stopped."""
        return [one for one in self.cheats if one.cheat.honest and one.verdict == "caught"]

    @property
    def fault(self) -> str | None:
        """An edit whose verdict is not the one that the catalogue expects."""
        wrong = [one for one in self.cheats if one.finding]
        return f"{wrong[0].cheat.id}: {wrong[0].finding}" if wrong else None
