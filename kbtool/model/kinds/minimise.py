"""The step kind ``minimise``: find the smallest case that still fails."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kbtool.model.base import ExactDuration, HowMany, Model, Name, Quantity
from kbtool.model.kernel import CaseValue, value_text
from kbtool.model.kinds.base import Count, ResultBase, Seed, Sha256, StepBase
from kbtool.model.kinds.validate import CaseResult, OutputError


class MinimiseStep(StepBase):
    """From a case that fails: the smallest that still fails, the boundary, the part at fault."""

    does: ClassVar[str] = "minimises"
    judges: ClassVar[bool] = True

    kind: Literal["minimise"]
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    case: str = ""
    """One case instead of all: `FIELD=VALUE …`, or the name of a case of the sets."""
    variant: str = "default"
    """The variant of the target to look at; default is the kernel's own choice."""
    seed: Seed = 0
    """Seed of the inputs; 0 draws a fresh one, which the run records."""
    draws: Annotated[Count, Field(ge=1)] = 100
    """The most inputs drawn for a case before it counts as passing; fewer for large cases."""
    probes: Annotated[Count, Field(ge=1)] = 600
    """The most cases tried."""
    limit: ExactDuration = Quantity("1 min")
    """How long one case may take; after that it hangs, and so fails."""


class AxisProbe(Model):
    """One value tried in one field of a case, all else fixed."""

    value: CaseValue
    state: Literal["fails", "passes", "refused"]
    """refused: the case cannot be posed, or the operator does not take it."""


class Axis(Model):
    """What becomes of the smallest failing case along one field, all else fixed."""

    field: str
    """The case field, or several that change together, joined by `=`."""
    value: CaseValue
    """Its value in the smallest failing case."""
    probes: list[AxisProbe]
    """Every value tried, numbers in order."""

    @property
    def boundary(self) -> tuple[int, int] | None:
        """The largest number that passes and the smallest that fails; ``None`` unless every number
        tried up to the one passes and every one from the other on fails."""
        passes, fails = self._numbers("passes"), self._numbers("fails")
        if not passes or not fails or passes[-1] > fails[0]:
            return None
        return passes[-1], fails[0]

    @property
    def sentence(self) -> str:
        """What was seen along the field, in words: no more than was tried."""
        parts = []
        if self.boundary is not None:
            passes, fails = self.boundary
            parts.append(f"fails from {fails} on, passes up to {passes}; tried:")
        for state in ("fails", "passes", "refused"):
            values = [probe.value for probe in self.probes if probe.state == state]
            if values:
                parts.append(f"{state}{'' if state == 'refused' else ' at'} {_listed(values)};")
        return f"{self.field} {' '.join(parts).removesuffix(';')}"

    def _numbers(self, state: str) -> list[int]:
        return sorted(
            probe.value
            for probe in self.probes
            if probe.state == state
            and isinstance(probe.value, int)
            and not isinstance(probe.value, bool)
        )


def _listed(values: list[CaseValue]) -> str:
    """Values in words, numbers that follow one another as a range: ``1–33, 64, absent``."""
    runs: list[list[CaseValue]] = []
    for value in values:
        last = runs[-1][-1] if runs else None
        if type(value) is int and type(last) is int and value == last + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ", ".join(
        "–".join(value_text(end) for end in (run if len(run) < 2 else (run[0], run[-1])))
        for run in runs
    )


class PartResult(Model):
    """One part of an operator, run alone on the smallest failing case."""

    name: Name
    passed: bool
    outputs: dict[str, OutputError] = {}
    message: str | None = None
    """What is wrong, if anything."""


class FailingCase(Model):
    """One case that fails."""

    case_set: Name
    name: Name
    message: str


class MinimiseResult(ResultBase):
    """What a minimise step found."""

    type: Literal["minimise"] = "minimise"
    sha256: Sha256
    """The library that was examined."""
    device: str
    variant: str | None = None
    """The version of the operator; its own choice where not given."""
    seed: Seed
    draws: HowMany
    """The most inputs drawn for a case before it counted as passing; fewer for large cases."""
    rule: str
    """The rule of the verdict, in words."""
    cases: HowMany
    """Cases that were tried first."""
    failing: list[FailingCase]
    """Those of them that fail."""
    refused: list[FailingCase] = []
    """Those of them that nobody can judge: making the inputs or the reference raised an error."""
    start: FailingCase | None = None
    """The one that was made smaller: of the failing ones, that with the least work."""
    smallest: CaseResult | None = None
    """The smallest case that still fails: no single step makes it smaller."""
    smallest_seed: Seed | None = None
    """Of the inputs with which it fails."""
    failed_draws: tuple[HowMany, HowMany] | None = None
    """In how many draws of inputs it fails, and of how many; null where it kills the process."""
    text: str | None = None
    """It as text, as the `case` of a step takes it."""
    axes: list[Axis] = []
    """What becomes of it when one field changes."""
    parts: list[PartResult] = []
    """The operator's parts on it, each alone; empty where the harness offers none."""
    parts_of: list[str] = []
    """Where it offers none of this variant: the variants of which it does."""
    probes: HowMany
    """Cases tried in all."""
    deaths: HowMany
    """How often a case took the process, or the card's context, with it."""
    unfinished: str | None = None
    """Why the search ended early, if it did."""

    @property
    def fault(self) -> str | None:
        """A case that was not judged."""
        return "cases were not judged" if self.refused else None

    @property
    def at_fault(self) -> list[str]:
        """The parts that are wrong alone."""
        return [part.name for part in self.parts if not part.passed]
