"""A run: what a recipe measured, written once by kbtool and never typed."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AwareDatetime, Field, model_validator

from kbtool.model.base import (
    AtLeastOne,
    HowMany,
    KernelId,
    Model,
    Name,
    PatternId,
    RunId,
    SessionId,
)
from kbtool.model.identity import Identity
from kbtool.model.kinds import StepResult
from kbtool.model.kinds.base import Sha256
from kbtool.model.kinds.logged import ImportResult, LogResult
from kbtool.model.kinds.validate import ValidationResult, unvalidated

T = TypeVar("T")

Seconds = Annotated[float, Field(ge=0)]

StepStatus = Literal[
    "passed", "noisy", "failed", "unavailable", "refused", "timeout", "interrupted", "crashed",
    "not-run",
]  # fmt: skip
"""passed; noisy: others were busy on the machine, so the times prove nothing, or none were taken;
failed: a finding; unavailable: the machine lacks something; refused: a gate was shut; timeout;
interrupted: Ctrl-C or a signal; crashed: a bug in kbtool or in the harness; not-run."""

RunStatus = Literal["passed", "noisy", "failed", "unavailable", "timeout", "interrupted", "crashed"]


class MachineInfo(Model):
    """The machine and the software that a run was made on; probed, never typed."""

    card: str | None = None
    """The accelerator's name; null on a machine without one."""
    cards: HowMany | None = None
    """Accelerators that the run could use; it is the first that is timed."""
    compute_capability: str | None = None
    """sm_90 and the like."""
    card_memory_bytes: HowMany | None = None
    """Device memory."""
    multiprocessors: HowMany | None = None
    """Streaming multiprocessors."""
    l2_bytes: HowMany | None = None
    """The card's L2 cache."""
    sm_clock_mhz: HowMany | None = None
    """The highest clock of its multiprocessors."""
    memory_clock_mhz: HowMany | None = None
    """The highest clock of its memory."""
    power_limit_w: HowMany | None = None
    """The power that it may draw."""
    driver: str | None = None
    """Version of the card's driver."""
    cuda: str | None = None
    """The CUDA version that torch was built for."""
    nvcc: str | None = None
    """Version of the CUDA compiler."""
    compiler: str | None = None
    """The C++ compiler and its version."""
    ninja: str | None = None
    """Version of ninja."""
    torch: str | None = None
    """Version of PyTorch."""
    numpy: str | None = None
    """Version of NumPy."""
    python: str
    """Version of Python."""
    kbtool: str
    """Version of kbtool."""
    os: str
    """Operating system and architecture."""
    cpu: str
    """The processor."""
    cores: AtLeastOne
    """Processors that this process may use."""


Origin = Literal["recipe", "script", "file"]
"""Where the figures of a run come from: steps of a recipe, a script that logged them, or a result
file of another tool."""

_ORIGINS: dict[str, Origin] = {"log": "script", "import": "file"}
"""The kind of the only step of a run without a recipe → its origin."""


class RepositoryState(Model):
    """The code measured: commit and dirty state, before and after the steps."""

    commit: str | None = None
    """The commit checked out; null outside a git repository."""
    branch: str | None = None
    """The branch; null if detached."""
    dirty: bool | None = None
    """Whether the work tree differed from the commit when the run began; a file of a kernel or a
    pattern that no commit has is a difference, and a record under sessions/ is none."""
    changed_during_run: bool | None = None
    """Whether commit or work tree changed before the run ended."""

    def changed_to(self, after: RepositoryState) -> bool | None:
        """Whether ``after`` is another commit or work tree; ``None`` where that is unknown."""
        if self.commit is None or after.commit is None:
            return None
        return (self.commit, self.dirty) != (after.commit, after.dirty)


class StepRecord(Model):
    """One step as it went."""

    id: Name
    kind: Name
    title: Name
    status: StepStatus
    attempt: AtLeastOne = 1
    """The attempt of the run in which it ran."""
    started: datetime | None = None
    seconds: Seconds | None = None
    expected_seconds: Seconds
    expected_from: Literal["declared", "history"]
    """Where the expectation comes from: the recipe, or the median of past runs on this card."""
    message: str | None = None
    """The outcome in a line."""
    error: str | None = None
    """The first real error, as printed."""
    patterns: list[PatternId] = []
    """Patterns whose symptoms match the error."""
    result: StepResult | None = None

    @property
    def outcome(self) -> StepStatus:
        """The status, by today's rule: older records say passed of noisy times too."""
        is_noisy = self.result is not None and self.result.noise is not None
        return "noisy" if self.status == "passed" and is_noisy else self.status


class TakenIn(Model):
    """Where a run was before it was taken into the session that it is in now."""

    session: SessionId
    """The session that it was made in."""
    digest: Sha256
    """The digest that it was sealed with there; it still follows from the record."""


class Run(Model):
    """One execution of a recipe. Written whole, renamed into place, never changed."""

    id: RunId
    attempt: AtLeastOne = 1
    """1, or higher for a resumed run: same id, one file an attempt."""
    session: SessionId
    recipe: Name | None
    """The recipe; null of what a script logged, or a file of another tool held."""
    pattern: PatternId | None
    """The pattern of the recipe; null without one."""
    kernel: KernelId | None = None
    parameters: dict[str, str]
    status: RunStatus
    started: AwareDatetime
    ended: AwareDatetime
    machine: MachineInfo
    repository: RepositoryState
    steps: Annotated[list[StepRecord], Field(min_length=1)]
    identity: Identity | None = None
    """What took part besides the built library, by content; null where no kernel was run, and in
    older records."""
    recovered: bool = False
    """Written after kbtool was killed, from the journal of the run."""
    taken_in: TakenIn | None = None
    """Where it was made, if that was in another session (`kbtool session import`)."""
    digest: Sha256 | None = None
    """SHA-256 of the record without this field, as canonical JSON; null only until it is written
    (``sealed``)."""

    @property
    def origin(self) -> Origin:
        """Where its figures come from."""
        return _ORIGINS.get(self.steps[0].kind, "recipe")

    @property
    def why_no_test(self) -> str | None:
        """Why nothing in it tests code: a script or an import made it; ``None`` of a recipe's."""
        if self.origin == "recipe":
            return None
        return (ImportResult if self.origin == "file" else LogResult).unvalidated

    @property
    def source(self) -> str:
        """The name of the recipe, the script or the file that it is from."""
        return self.steps[0].title if self.recipe is None else self.recipe

    @property
    def made_on(self) -> str:
        """The card or the processor that its figures come from, as far as anybody knows."""
        taken = self.last(ImportResult)
        if taken is not None:
            return taken.place or "a machine that its file does not name"
        return self.machine.card or self.machine.cpu

    @property
    def outcome(self) -> RunStatus:
        """The status, by today's rule (``StepRecord.outcome``)."""
        is_noisy = any(step.outcome == "noisy" for step in self.steps)
        return "noisy" if self.status == "passed" and is_noisy else self.status

    @property
    def verdicts(self) -> dict[str, bool]:
        """What its validate steps say: case set, variant and device → whether all cases there were
        right; "" of a kernel as a whole, wrong where a step failed without a wrong case (it hung,
        it crashed). What was not reached has no verdict."""
        found: dict[str, bool] = {}
        for step in self.steps:
            if step.kind != "validate":
                continue
            result = step.result if isinstance(step.result, ValidationResult) else None
            wrong = False
            for case in result.cases if result else ():
                area = f"{case.case_set} {case.variant or ''} {result.device if result else ''}"
                wrong = wrong or not case.passed
                if not case.passed:
                    found[area] = False
                elif step.status in {"passed", "failed"}:
                    found.setdefault(area, True)
            if step.status == "passed":
                found.setdefault("", True)
            elif step.status in {"failed", "timeout", "crashed"} and not wrong:
                found[""] = False
        return found

    @property
    def validated_at(self) -> datetime:
        """When its last validate step began; of a step kept from an earlier attempt, there."""
        times = [step.started for step in self.steps if step.kind == "validate" and step.started]
        return max(times, default=self.started)

    def last(self, kind: type[T]) -> T | None:
        """The last result of this kind; ``None`` if no step has one."""
        results = [step.result for step in self.steps if isinstance(step.result, kind)]
        return results[-1] if results else None

    def sealed(self) -> Run:
        """The run with its digest: what is written to a file."""
        return self.model_copy(update={"digest": digest_of(self)})

    @model_validator(mode="after")
    def _benchmarks_are_validated(self) -> Self:
        """A figure counts only for an artifact that passed validation in the same run."""
        passed: list[ValidationResult] = []
        for step in self.steps:
            result = step.result
            if result is None:
                continue
            if step.status == "noisy" and result.noise is None:
                raise ValueError(f"step {step.id}: noisy, although its times are not")
            if step.status == "passed" and result.fault is not None:
                raise ValueError(f"step {step.id}: passed, although {result.fault}")
            if step.status == "passed" and isinstance(result, ValidationResult):
                passed.append(result)
            if result.measured is not None:
                missing = unvalidated(*result.measured, passed)
                if missing is not None:
                    raise ValueError(
                        f"step {step.id}: a {result.type} of {missing}, which did not pass"
                        " validation in this run"
                    )
        return self

    @model_validator(mode="after")
    def _status_follows_from_steps(self) -> Self:
        """Steps run in order up to the first that does not pass; its status is the run's."""
        passed = [step.status == "passed" for step in self.steps]
        first = passed.index(False) if False in passed else len(passed)
        for step in self.steps[first + 1 :]:
            if step.status != "not-run":
                raise ValueError(
                    f"step {step.id}: {step.status}, although step {self.steps[first].id} before it"
                    " did not pass"
                )
        if self.recovered:
            expected = {"interrupted"}
        elif first == len(passed):
            # kbtool itself can end between the last step and the record.
            expected = {"passed", "interrupted", "crashed"}
        else:
            stopped = self.steps[first].status
            expected = {"crashed", _RUN_STATUS.get(stopped, stopped)}
        if self.status not in expected:
            wanted = " or ".join(sorted(expected))
            raise ValueError(f"status is {self.status!r}; its steps make it {wanted}")
        return self

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        """A recipe and its pattern, or one step that a script or an import made."""
        has_recipe = self.origin == "recipe"
        if (self.recipe is not None, self.pattern is not None) != (has_recipe, has_recipe):
            raise ValueError(
                "a run has a recipe and its pattern, or neither and one step of kind log or import"
            )
        if not has_recipe and len(self.steps) > 1:
            raise ValueError(f"a run of a {self.origin} has one step, and this has more")
        return self

    @model_validator(mode="after")
    def _times_in_order(self) -> Self:
        if self.ended < self.started:
            raise ValueError(f"ended {self.ended} is before started {self.started}")
        return self


def another_problem(one: Run, other: Run) -> bool:
    """Whether two runs were asked to solve different problems, which are never ranked together.

    Older records do not say what theirs was.
    """
    return len({run.identity.problem_digest for run in (one, other) if run.identity}) > 1


_RUN_STATUS: dict[str, str] = {"refused": "failed", "not-run": "interrupted"}
"""What a step's status makes the run's, where it is another."""


def digest_of(run: Run) -> str:
    """The digest that seals ``run``."""
    return digest_of_record(json.loads(run.model_dump_json()))


def digest_of_record(record: dict[str, Any]) -> str:
    """The digest that seals a run record, given as the JSON object that its file holds.

    Canonical JSON: keys sorted, no spaces, ASCII. Taken from what the file says and not from a
    ``Run``, so that a later kbtool, whose runs have more fields, finds the same.
    """
    rest = {key: value for key, value in record.items() if key != "digest"}
    if rest.get("taken_in") is None:
        # So that the digest of before, which ``taken_in`` keeps, follows from the rest.
        rest.pop("taken_in", None)
    text = _CANONICAL.encode(rest)
    return hashlib.sha256(text.encode()).hexdigest()


_CANONICAL = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    allow_nan=False,
    check_circular=False,  # what was read from JSON holds no circle, and looking costs a fifth
)


def first_record(record: dict[str, Any]) -> dict[str, Any]:
    """A run record as it was first written, given the JSON object of one that was taken in."""
    taken_in = record.get("taken_in")
    if taken_in is None:
        return record
    return {
        **record, "session": taken_in["session"], "taken_in": None, "digest": taken_in["digest"],
    }  # fmt: skip


def taken_into(record: dict[str, Any], session: str) -> dict[str, Any]:
    """The run record ``record``, sealed, as it is in another session; the seal of before is kept.

    In the session that it was made in, it is the record as it was first written.
    """
    first = first_record(record)
    if session == first["session"]:
        return first
    before = {"session": first["session"], "digest": first["digest"]}
    moved = {**first, "session": session, "taken_in": before}
    return {**moved, "digest": digest_of_record(moved)}
