"""The step kind ``validate``: compare the built library with the float64 reference."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from kbtool.model.base import HowMany, Model, Name
from kbtool.model.kernel import Case
from kbtool.model.kinds.base import Count, ResultBase, Seed, Sha256, StepBase


class ValidateStep(StepBase):
    """Compare the built artifact with the float64 reference over case sets."""

    does: ClassVar[str] = "validates"
    judges: ClassVar[bool] = True

    kind: Literal["validate"]
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    variants: str = "default"
    """Variants of the target to hold against it, separated by commas: default for the kernel's own
    choice, or names; all for both that and every variant that the build has."""
    seed: Seed = 0
    """Seed of the inputs and of the neighbours; 0 draws a fresh one, which the run records."""
    neighbours: Count = 8
    """Cases to draw beside each case set and to hold against the reference too, so that a kernel
    that is right only on the listed ones is found: one off each size, other strides. The function
    `neighbours` of the harness makes them."""


class OutputError(Model):
    """One output of one case, compared with the reference."""

    passed: bool
    error: float | None
    """max |out − ref| over finite positions; null if there are none or they do not compare."""
    bound: float | None
    """2 · max |torch − ref| + atol: what the error may be."""
    torch_error: float | None
    """max |torch − ref|: the error of torch's own implementation at this precision."""
    message: str | None = None
    """What is wrong, if anything."""

    @model_validator(mode="after")
    def _verdict_follows(self) -> Self:
        if self.error is None or self.bound is None:
            return self
        if self.passed != (self.error <= self.bound):
            outcome, is_ = ("passed", "over") if self.passed else ("did not pass", "within")
            raise ValueError(f"{outcome}, although error {self.error} is {is_} bound {self.bound}")
        return self

    @property
    def share(self) -> float | None:
        """The error as a share of its bound; ``None`` where there are not both."""
        if self.error is None or self.bound is None:
            return None
        if self.bound == 0:
            return 0.0 if self.error == 0 else math.inf
        return self.error / self.bound


class CaseResult(Model):
    """One case of a validation."""

    case_set: Name
    name: Name
    variant: str | None = None
    """The variant that was asked for; null leaves the choice to the kernel."""
    case: Case
    beside: Name | None = None
    """Of a case that no set lists: the listed one of `case_set` that it was drawn beside."""
    passed: bool
    outputs: dict[str, OutputError] = {}
    repeatable: bool | None = None
    """Whether a second call gave the same bits."""
    message: str | None = None
    """What is wrong, if anything."""

    @model_validator(mode="after")
    def _verdict_follows(self) -> Self:
        if not self.passed:
            return self
        wrong = [name for name, output in self.outputs.items() if not output.passed]
        if wrong:
            raise ValueError(f"passed, although output {wrong[0]!r} did not")
        if self.repeatable is False:
            raise ValueError("passed, although a second call gave other bits")
        return self

    @property
    def place(self) -> str:
        """Where it stands, in words."""
        return f"{self.case_set}/{self.name}" + (f" as {self.variant}" if self.variant else "")


class ValidationResult(ResultBase):
    """What a validate step found."""

    type: Literal["validation"] = "validation"
    sha256: Sha256
    """The library that was validated."""
    device: str
    seed: Seed
    rule: str
    """The rule of the verdict, in words."""
    cases: list[CaseResult]
    not_reached: HowMany = 0
    """Cases that the step did not come to; more than 0 only where it did not end by itself."""
    no_neighbours: str | None = None
    """Why no case was drawn beside the listed ones; null where some were, and in older records."""
    first_seconds: Annotated[float, Field(ge=0)] | None = None
    """From the step's start to the first verdict, in seconds; null where that was not kept."""

    @property
    def passed(self) -> bool:
        """Whether every case was run and passed."""
        return bool(self.cases) and not self.not_reached and all(c.passed for c in self.cases)

    @property
    def fault(self) -> str | None:
        """A case that failed, or was not run."""
        return None if self.passed else "cases failed"

    @property
    def cases_passed(self) -> int:
        """How many cases passed."""
        return sum(case.passed for case in self.cases)

    @property
    def neighbours(self) -> list[CaseResult]:
        """The cases that no set lists."""
        return [case for case in self.cases if case.beside is not None]

    @property
    def variants(self) -> set[str | None]:
        """The variants that ran the cases; ``None`` is the kernel's own choice."""
        return {case.variant for case in self.cases}


def unvalidated(
    sha256: str, variants: Iterable[str | None], passed: Iterable[ValidationResult]
) -> str | None:
    """What passed none of the validations, in words, or ``None``.

    Args:
        sha256: of the library.
        variants: of it; ``None`` is its own choice.
        passed: validations that passed.
    """
    known: set[str | None] = set()
    for result in passed:
        if result.sha256 == sha256:
            known |= result.variants
    missing = [variant for variant in variants if variant not in known]
    if not missing:
        return None
    library = f"library {sha256[:12]}"
    return f"variant {missing[0] or 'default'} of {library}" if known else library
