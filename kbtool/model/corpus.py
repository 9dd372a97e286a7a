"""The corpus: what a line of ``kbtool export corpus`` may hold.

Made from the records, for those who learn from them: people, search, models. A line is one object
with a ``type``. A bug and a fix have every field of their records; other lines have the fields
named here. Where the meaning or the name of a field changes, or one goes, the version goes up; a
new field alone does not raise it. Unknown is null. Figures with units are text as stated.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, ConfigDict, Field, RootModel

from kbtool.model.base import (
    Commit,
    KernelId,
    Model,
    PatternId,
    SessionId,
    Slug,
    SourceFile,
)
from kbtool.model.bug import Bug, Fix
from kbtool.model.cost import CostLine
from kbtool.model.decision import Decision
from kbtool.model.kinds.base import Sha256
from kbtool.model.kinds.minimise import FailingCase
from kbtool.model.measurement import Measurement
from kbtool.model.pattern import Rule, Supersession, Symptom
from kbtool.model.recipe import Recipe
from kbtool.model.run import MachineInfo, RunStatus, Seconds, StepStatus
from kbtool.model.session import Environment, Evidence, Step

_ALL_WRITTEN = ConfigDict(json_schema_serialization_defaults_required=True)
"""Every field is in the line, one with a default too, so the schema requires it."""


class Corpus(Model):
    """The first line: what the rest is."""

    type: Literal["corpus"] = "corpus"
    version: Literal[1] = 1
    """Of the form that this schema describes."""
    counts: dict[str, int]
    """Type → how many lines follow."""


class CorpusSession(Model):
    """One sitting of work; its bugs, fixes, runs and failed attempts have lines of their own."""

    type: Literal["session"] = "session"
    id: SessionId
    label: str
    """The session's own name: N+7A."""
    title: str
    status: str
    """How it stands, or how it ended."""
    follows: SessionId | None
    """The session before it in the same line of work."""
    day: str | None
    """YYYY-MM-DD; null where no log gives it."""
    minutes: float | None
    """How long it took."""
    objective: str | None
    outcome: str | None
    grade: str | None
    """The mark it gave itself."""
    environment: Environment | None
    """The machine and the software, without the machine's name."""
    commit: Commit | None
    """The commit checked out at the start."""
    costs: list[CostLine]
    steps: list[Step]
    measurements: list[Measurement]
    decisions: list[Decision]
    evidence: list[Evidence]
    """What the session says of patterns."""
    lessons: list[str]
    tags: list[Slug]
    sources: dict[Slug, SourceFile]
    """The documents that `source` cites, by a short name."""


class CorpusPattern(Model):
    """A lesson, with its recipes: the procedure as executable steps."""

    type: Literal["pattern"] = "pattern"
    id: PatternId
    title: str
    summary: str
    stated_status: str
    """As the logs leave it."""
    supersedes: list[Supersession]
    problem: str | None
    solution: str | None
    rules: list[Rule]
    when_to_use: list[str] | None
    when_not: list[str] | None
    symptoms: list[Symptom]
    recipes: list[Recipe]
    """The procedure, with the defaults of its parameters put in."""
    tags: list[Slug]
    sources: dict[Slug, SourceFile]
    """The documents that `source` cites, by a short name."""


class CorpusBug(Bug):
    """A fault that a session met: the fields of its record, and its fixes."""

    model_config = _ALL_WRITTEN

    type: Literal["bug"] = "bug"
    id: str
    """SESSION#bugs.ID."""
    session: SessionId
    fixes: list[str]
    """The fixes of it, in any session: SESSION#fixes.ID."""


class CorpusFix(Fix):
    """A change that mends a bug: the fields of its record."""

    model_config = _ALL_WRITTEN

    type: Literal["fix"] = "fix"
    id: str
    """SESSION#fixes.ID; by its place, from 0, where it has no id."""
    session: SessionId
    bug: str
    """SESSION#bugs.ID."""


class CorpusBuild(Model):
    """How a library was built: a build recipe that worked."""

    kernel: KernelId
    target: str
    compiler: str
    flags: list[str]
    sources: dict[str, Sha256]
    """File → hash."""
    sha256: Sha256
    """Hash of the library."""


class CorpusTiming(Model):
    """The time of one arm on one case."""

    case: str
    arm: str
    median_us: float
    low_us: float
    """25th percentile."""
    high_us: float
    """75th percentile."""
    between_us: float | None = None
    """Median of the call and a plain kernel ahead of it, both together."""


class CorpusKill(Model):
    """A bug put back, and whether validation found it."""

    bug: str
    """SESSION#bugs.ID."""
    mutant: Slug
    verdict: str


class CorpusStep(Model):
    """One step of a run. What it found stands in the field of its kind, and is null otherwise."""

    id: str
    kind: str
    title: str
    status: StepStatus
    seconds: Seconds | None
    expected_seconds: Seconds
    message: str | None
    """The outcome in a line."""
    error: str | None
    """The first real error, as printed."""
    patterns: list[PatternId]
    """Patterns whose symptoms match the error."""
    build: CorpusBuild | None = None
    cases: int | None = None
    """Cases validated."""
    failing: list[FailingCase] | None = None
    """The cases that failed validation."""
    timings: list[CorpusTiming] | None = None
    """Benchmarks of cases that were not refused."""
    kills: list[CorpusKill] | None = None


class CorpusRun(Model):
    """One execution of a recipe, as measured."""

    type: Literal["run"] = "run"
    id: str
    """The run's id, with .ATTEMPT from the second attempt on."""
    session: SessionId
    pattern: PatternId
    recipe: str
    kernel: KernelId | None
    parameters: dict[str, str]
    status: RunStatus
    started: AwareDatetime
    ended: AwareDatetime
    commit: str | None
    dirty: bool | None
    """Whether the work tree differed from the commit."""
    machine: MachineInfo
    steps: list[CorpusStep]


class CorpusAttempt(Model):
    """Something that was tried and did not work."""

    type: Literal["attempt"] = "attempt"
    id: str
    """Where the record of it stands."""
    session: SessionId
    kind: Literal["hypothesis", "step", "fix", "evidence", "run"]
    """hypothesis: rejected; step: failed; fix: shown not to mend; evidence: a pattern that was
    contradicted or not reproduced; run: ended otherwise than passed."""
    about: str | None
    """The bug, pattern or recipe that it was about."""
    tried: str
    """What was tried."""
    why: str | None
    """What came of it, and why; null where no record says."""


Item = Annotated[
    Corpus | CorpusSession | CorpusPattern | CorpusBug | CorpusFix | CorpusRun | CorpusAttempt,
    Field(discriminator="type"),
]


class CorpusLine(RootModel[Item]):
    """A line of the corpus."""
