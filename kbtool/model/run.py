"""A run: what a recipe measured, written once by kbtool and never typed."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from kbtool.model.base import KernelId, Model, PatternId, RunId, SessionId

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Microseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

QUIET = 0.05
"""The share of the cores that others may use while a benchmark runs."""

StepStatus = Literal[
    "passed", "failed", "unavailable", "refused", "timeout", "interrupted", "crashed", "not-run"
]
"""passed; failed: a finding; unavailable: the machine lacks something; refused: a gate was shut;
timeout; interrupted: Ctrl-C or a signal; crashed: a bug in kbtool or in the harness; not-run."""

RunStatus = Literal["passed", "failed", "unavailable", "timeout", "interrupted", "crashed"]

_ROUNDING_US = 1e-4
"""Samples are kept to so many microseconds."""


class MachineInfo(Model):
    """The machine and the software that a run was made on; probed, never typed."""

    card: str | None = None
    """The accelerator's name; null on a machine without one."""
    compute_capability: str | None = None
    """sm_90 and the like."""
    card_memory_bytes: int | None = None
    """Device memory."""
    multiprocessors: int | None = None
    """Streaming multiprocessors."""
    l2_bytes: int | None = None
    """The card's L2 cache."""
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
    cores: int
    """Processors that this process may use."""


class RepositoryState(Model):
    """The code measured: commit and dirty state, before and after the steps."""

    commit: str | None = None
    """The commit checked out; null outside a git repository."""
    branch: str | None = None
    """The branch; null if detached."""
    dirty: bool | None = None
    """Whether the work tree differed from the commit when the run began."""
    changed_during_run: bool | None = None
    """Whether commit or work tree changed before the run ended."""


class BuildResult(Model):
    """What a build step made."""

    type: Literal["build"] = "build"
    kernel: KernelId
    target: str
    key: str
    """Hash of sources, flags, compiler, torch, architecture: the name of the build folder."""
    artifact: str
    """File name of the library."""
    sha256: Sha256
    """Hash of the library: what validate and benchmark must find."""
    bytes: int
    warm: bool
    """Whether it was there already and no compiler ran."""
    compiler: str
    flags: list[str]
    sources: dict[str, Sha256]
    """File → hash."""


class OutputError(Model):
    """One output of one case, held against the reference."""

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
            said, is_ = ("passed", "over") if self.passed else ("did not pass", "within")
            raise ValueError(f"{said}, although error {self.error} is {is_} bound {self.bound}")
        return self


class CaseResult(Model):
    """One case of a validation."""

    case_set: str
    name: str
    case: dict[str, Any]
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


class ValidationResult(Model):
    """What a validate step found."""

    type: Literal["validation"] = "validation"
    sha256: Sha256
    """The library that was validated."""
    device: str
    seed: int
    rule: str
    """The rule of the verdict, in words."""
    cases: list[CaseResult]

    @property
    def passed(self) -> bool:
        """Whether every case passed."""
        return bool(self.cases) and all(case.passed for case in self.cases)


class Timing(Model):
    """Samples of one arm on one case."""

    samples_us: Annotated[list[Microseconds], Field(min_length=1)]
    """Microseconds a call, one entry a sample."""
    median_us: Microseconds
    """The median of the samples."""
    low_us: Microseconds
    """Their 25th percentile."""
    high_us: Microseconds
    """Their 75th percentile."""
    calls_per_sample: int
    """Calls that a sample averages over."""
    host_us: Microseconds | None = None
    """Median time of one call as the host sees it, launch and return included."""

    @model_validator(mode="after")
    def _figures_follow_from_samples(self) -> Self:
        samples = self.samples_us if len(self.samples_us) > 1 else self.samples_us * 2
        quartiles = statistics.quantiles(samples, n=4, method="inclusive")
        names = ("low_us", "median_us", "high_us")
        for name, figure in zip(names, quartiles, strict=True):
            stated: float = getattr(self, name)
            if not math.isclose(stated, figure, rel_tol=1e-9, abs_tol=_ROUNDING_US):
                raise ValueError(f"{name} is {stated}, but the samples give {figure}")
        return self


class BenchmarkCase(Model):
    """One case of a benchmark: every arm in turn, over the same inputs."""

    name: str
    case: dict[str, Any]
    arms: dict[str, Timing]
    bytes: int
    """Least bytes that the case has to move."""
    flops: int
    """Operations that the case needs."""
    rechecked: bool
    """Whether the result was right again after timing."""
    refused: str | None = None
    """Why the figures are refused; a refused case proves nothing."""
    absent: dict[str, str] = {}
    """Arm → why it did not run."""


class BenchmarkResult(Model):
    """What a benchmark step measured."""

    type: Literal["benchmark"] = "benchmark"
    sha256: Sha256
    """The library that was timed."""
    device: str
    threads: int
    subject: str
    """The arm that runs the library."""
    baseline: str
    """The arm that ratios are taken against."""
    read_gb_s: Annotated[float, Field(gt=0)]
    """The measured ceiling of memory reads, in 10⁹ bytes a second, same run, same threads."""
    protocol: str
    """How it was timed, in words."""
    others_busy: Annotated[float, Field(ge=0)] | None = None
    """Share of the cores that other processes used meanwhile; null where it cannot be told."""
    cases: list[BenchmarkCase]

    def ratio(self, case: BenchmarkCase) -> float | None:
        """Baseline time ÷ subject time: above 1 the subject is faster; ``None`` without both."""
        subject, baseline = case.arms.get(self.subject), case.arms.get(self.baseline)
        if case.refused or subject is None or baseline is None:
            return None
        return baseline.median_us / subject.median_us

    def share_of_ceiling(self, case: BenchmarkCase) -> float | None:
        """The case's least bytes a second as a share of the measured read rate."""
        subject = case.arms.get(self.subject)
        if case.refused or subject is None:
            return None
        return case.bytes / (subject.median_us * 1e3) / self.read_gb_s

    @property
    def noise(self) -> str | None:
        """Why the figures say little, or ``None``: others were busy on the same machine."""
        if self.others_busy is None or self.others_busy <= QUIET:
            return None
        return f"noisy: other processes used {self.others_busy:.0%} of the cores meanwhile"


class CommandResult(Model):
    """What a command step did."""

    type: Literal["command"] = "command"
    argv: list[str]
    exit_code: int | None
    output_tail: str
    """The last lines printed."""
    produced: dict[str, Sha256] = {}
    """File → hash."""


class EnvironmentResult(Model):
    """What an environment step found missing or too old."""

    type: Literal["environment"] = "environment"
    missing: list[str] = []


StepResult = Annotated[
    EnvironmentResult | BuildResult | ValidationResult | BenchmarkResult | CommandResult,
    Field(discriminator="type"),
]


class StepRecord(Model):
    """One step as it went."""

    id: str
    kind: str
    title: str
    status: StepStatus
    attempt: int = 1
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


class Run(Model):
    """One execution of a recipe. Written whole, renamed into place, never changed."""

    id: RunId
    attempt: Annotated[int, Field(ge=1)] = 1
    """1, or higher for a resumed run: same id, one file an attempt."""
    session: SessionId
    recipe: str
    pattern: PatternId
    kernel: KernelId | None = None
    parameters: dict[str, str]
    status: RunStatus
    started: AwareDatetime
    ended: AwareDatetime
    machine: MachineInfo
    repository: RepositoryState
    steps: Annotated[list[StepRecord], Field(min_length=1)]
    recovered: bool = False
    """Written after kbtool was killed, from the journal of the run."""
    digest: Sha256 | None = None
    """SHA-256 of the record without this field, as canonical JSON; null only until it is written
    (``sealed``)."""

    def sealed(self) -> Run:
        """The run with its digest: what is written to a file."""
        return self.model_copy(update={"digest": digest_of(self)})

    @model_validator(mode="after")
    def _benchmarks_are_validated(self) -> Self:
        """A figure counts only for an artifact that passed validation in the same run."""
        passed: set[str] = set()
        for step in self.steps:
            result = step.result
            if isinstance(result, ValidationResult) and step.status == "passed":
                if not result.passed:
                    raise ValueError(f"step {step.id}: passed, although cases failed")
                passed.add(result.sha256)
            if isinstance(result, BenchmarkResult) and result.sha256 not in passed:
                raise ValueError(
                    f"step {step.id}: a benchmark of {result.sha256[:12]}, which did not pass"
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
    def _times_in_order(self) -> Self:
        if self.ended < self.started:
            raise ValueError(f"ended {self.ended} is before started {self.started}")
        return self


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
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
