"""The step kind ``mutants``: put each known bug back and see whether validation finds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from kbtool.model.base import ExactDuration, HowMany, KernelId, Model, Quantity, Reference, Whole
from kbtool.model.kinds.base import Count, ResultBase, Seed, Sha256, StepBase
from kbtool.model.mutant import Mutant


class MutantsStep(StepBase):
    """Put each known bug back, one at a time, and see whether validation finds it."""

    does: ClassVar[str] = "validates mutants"
    judges: ClassVar[bool] = True

    kind: Literal["mutants"]
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    mutants: str = "all"
    """Ids of mutants, separated by commas; or all those of the target that was built."""
    bound: Annotated[float, Field(ge=0)] = 0.0
    """A fixed bound to compare the rule with: which bugs would it let through? 0 compares none."""
    limit: ExactDuration = Quantity("2 min")
    """How long one mutant may take; after that it hangs and counts as found, unless case after case
    had come to its end: then it is judged again, alone."""
    jobs: Count = 0
    """Compilers at once; 0 takes one a core."""
    at_once: Count = 0
    """Mutants validated at once; 0 takes one a core, and no more than 6 a card."""
    seed: Seed = 0
    """Seed of the inputs; 0 draws a fresh one, which the run records."""
    profile: str = ""
    """Case sets whose errors are recorded by index along `profile_axis`; none where empty."""
    profile_axis: Whole = 0
    """An axis of the first output, from 0."""


CaseNumber = HowMany


class MutantResult(Model):
    """One bug put back: whether validation found it, and by which cases."""

    bug: Reference
    """The record of the bug: SESSION#bugs.ID."""
    mutant: Mutant
    """The edit, as it was made."""
    sha256: Sha256 | None = None
    """The library with the bug; null if it does not build."""
    verdict: Literal["killed", "survived", "not-built", "not-judged"]
    """killed: a case failed, or the process died or hung; survived: every case passed; not-built:
    the edit cannot be made or does not compile; not-judged: the machine failed, not the kernel."""
    killed_by: list[CaseNumber] = []
    """The cases that failed, as numbers, from 0, in the list of cases."""
    over_bound: list[CaseNumber] = []
    """The cases that the fixed bound refuses."""
    cut_short: Literal["died", "hung"] | None = None
    """How the process ended, if before the last case: later cases are not judged."""
    cases_run: HowMany
    """Cases that ran to their end."""
    message: str | None = None
    """What the first case to fail says, or the compiler."""
    profiles: dict[CaseNumber, list[float | None]] = {}
    """Case → largest error of the first output at each index of an axis; null for NaN."""

    @model_validator(mode="after")
    def _verdict_follows(self) -> Self:
        if (self.verdict == "killed") != bool(self.killed_by or self.cut_short):
            raise ValueError(
                f"{self.mutant.id}: {self.verdict}, although {len(self.killed_by)} cases failed and"
                f" the process {self.cut_short or 'ended well'}"
            )
        return self

    @property
    def finding(self) -> str | None:
        """What is wrong with the validation or with the mutant, or ``None``."""
        if self.verdict == "survived" and self.mutant.equivalent is None:
            return "no case finds it"
        if self.verdict == "killed" and self.mutant.equivalent is not None:
            return "declared equivalent, but found"
        return {"not-built": "does not build", "not-judged": "not judged"}.get(self.verdict)


class MutantsResult(ResultBase):
    """What a mutants step found: which bugs, put back one at a time, validation finds."""

    type: Literal["mutants"] = "mutants"
    kernel: KernelId
    target: str
    sha256: Sha256
    """The library without any of the bugs; it passed every one of the cases in this step."""
    device: str
    seed: Seed
    rule: str
    """The rule of the verdict, in words."""
    bound: Annotated[float, Field(gt=0)] | None = None
    """The fixed bound that the rule is compared with: the first output's largest error must be
    below it, and nothing else counts. An output that is NaN is not below it."""
    cases: Annotated[list[str], Field(min_length=1)]
    """SET/NAME of each case, in the order in which they ran."""
    mutants: list[MutantResult]
    replaceable: list[CaseNumber]
    """The cases that find nothing but what another case finds too."""
    not_reached: HowMany = 0
    """Mutants that the step did not come to; more than 0 only where it did not end by itself."""

    @model_validator(mode="after")
    def _cases_are_there(self) -> Self:
        for result in self.mutants:
            for number in (*result.killed_by, *result.over_bound, *result.profiles):
                if number >= len(self.cases):
                    raise ValueError(f"{result.mutant.id}: there is no case {number}")
        wanted = replaceable_cases(len(self.cases), self.mutants)
        if self.replaceable != wanted:
            raise ValueError(f"replaceable is {self.replaceable}; the verdicts make it {wanted}")
        return self

    @property
    def passed(self) -> bool:
        """Whether every bug is found, but for those that cannot be."""
        return all(result.finding is None for result in self.mutants)

    @property
    def fault(self) -> str | None:
        """A bug that validation did not find, or a mutant that is none."""
        return None if self.passed else "a mutant is a finding"

    @property
    def case_sets(self) -> list[str]:
        """The case sets, in order."""
        return list(dict.fromkeys(name.partition("/")[0] for name in self.cases))

    def found(self, case_set: str | None = None) -> list[MutantResult]:
        """The bugs that the rule finds, over all cases or by those of one set."""
        of_set = self._numbers(case_set)
        return [
            result
            for result in self.mutants
            if (result.verdict == "killed" if case_set is None else of_set & set(result.killed_by))
        ]

    def let_through(self, case_set: str | None = None) -> list[MutantResult]:
        """Those of ``found`` that the fixed bound lets through on the same cases."""
        if self.bound is None:
            return []
        of_set = self._numbers(case_set)
        return [one for one in self.found(case_set) if not of_set & set(one.over_bound)]

    def _numbers(self, case_set: str | None) -> set[int]:
        return {
            number
            for number, name in enumerate(self.cases)
            if case_set is None or name.partition("/")[0] == case_set
        }


def replaceable_cases(count: int, mutants: Sequence[MutantResult]) -> list[int]:
    """The cases, out of ``count``, of which any one could go: what it finds another finds too."""
    needed = {result.killed_by[0] for result in mutants if len(result.killed_by) == 1}
    return [number for number in range(count) if number not in needed]
