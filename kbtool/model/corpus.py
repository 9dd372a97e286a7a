"""The corpus: what a line of ``kbtool export corpus`` may hold.

Made from the records, for those who learn from them: people, search, models. A line is one object
with a ``type``. A bug and a fix have every field of their records. Other lines have the fields
named here; those in ``keeps`` are the record's, in type and meaning. Where the meaning or the name
of a field changes, or one goes, the version goes up; a new field alone does not raise it. Unknown
is null. Figures with units are text as stated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, RootModel, create_model

from kbtool.model.base import Commit, Model, Output, SessionId, Slug
from kbtool.model.bug import Bug, Fix
from kbtool.model.docstrings import docstrings_of
from kbtool.model.kinds.build import BuildResult
from kbtool.model.kinds.minimise import FailingCase
from kbtool.model.kinds.mutants import MutantResult
from kbtool.model.kinds.timing import Timing
from kbtool.model.pattern import Pattern
from kbtool.model.run import Run, StepRecord
from kbtool.model.session import Environment, Session

_ALL_WRITTEN = ConfigDict(json_schema_serialization_defaults_required=True)
"""Every field is in the line, one with a default too, so the schema requires it."""

M = TypeVar("M", bound=Model)


def keeps(record: type[Model], names: str) -> Callable[[type[M]], type[M]]:
    """Put these fields of a record in front of a line's own. All of them are required."""
    docstrings = docstrings_of(record)
    fields: dict[str, Any] = {}
    for name in names.split():
        annotation = record.model_fields[name].rebuild_annotation()
        fields[name] = annotation, Field(description=docstrings.get(name))
    kept: Any = create_model(record.__name__, __base__=Model, **fields)

    def extend(line: type[M]) -> type[M]:
        bases: tuple[Any, ...] = line, kept
        return create_model(
            line.__name__, __base__=bases, __doc__=line.__doc__, __module__=line.__module__
        )

    return extend


class Corpus(Output):
    """The first line: what the rest is."""

    type: Literal["corpus"] = "corpus"
    version: Literal[1] = 1
    """Of the form that this schema describes."""
    counts: dict[str, int]
    """Type → how many lines follow."""


@keeps(
    Session,
    "id label title status follows objective outcome grade costs steps measurements decisions"
    " evidence lessons tags sources",
)
class CorpusSession(Output):
    """One session; its bugs, fixes, runs and failed attempts have lines of their own."""

    type: Literal["session"] = "session"
    day: str | None
    """YYYY-MM-DD; null where no log gives it."""
    minutes: float | None
    """How long it took."""
    environment: Environment | None
    """The machine and the software, without the machine's name."""
    commit: Commit | None
    """The commit checked out at the start."""


@keeps(
    Pattern,
    "id title summary stated_status supersedes related needs conflicts bugs lessons problem"
    " solution rules when_to_use when_not code places no_places signs symptoms recipes"
    " ablations not_ablated tags sources",
)
class CorpusPattern(Output):
    """A lesson, with its recipes: the procedure as executable steps."""

    type: Literal["pattern"] = "pattern"


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
    """A change that fixes a bug: the fields of its record."""

    model_config = _ALL_WRITTEN

    type: Literal["fix"] = "fix"
    id: str
    """SESSION#fixes.ID; by its place, from 0, where it has no id."""
    session: SessionId
    bug: str
    """SESSION#bugs.ID."""


@keeps(BuildResult, "kernel target compiler flags sources sha256")
class CorpusBuild(Output):
    """How a library was built: a build recipe that worked."""


@keeps(Timing, "median_us low_us high_us between_us")
class CorpusTiming(Output):
    """The time of one implementation on one case."""

    case: str
    arm: str


@keeps(MutantResult, "bug verdict")
class CorpusKill(Output):
    """A bug put back, and whether validation found it."""

    mutant: Slug


@keeps(StepRecord, "id kind title status seconds expected_seconds message error patterns")
class CorpusStep(Output):
    """One step of a run. What it found stands in the field of its kind, and is null otherwise."""

    build: CorpusBuild | None = None
    cases: int | None = None
    """Cases validated."""
    failing: list[FailingCase] | None = None
    """The cases that failed validation."""
    timings: list[CorpusTiming] | None = None
    """Benchmarks of cases that were not refused."""
    kills: list[CorpusKill] | None = None


@keeps(Run, "session pattern recipe kernel parameters status started ended machine")
class CorpusRun(Output):
    """One execution of a recipe, as measured."""

    type: Literal["run"] = "run"
    id: str
    """The run's id, with .ATTEMPT from the second attempt on."""
    commit: str | None
    dirty: bool | None
    """Whether the work tree differed from the commit."""
    steps: list[CorpusStep]


class CorpusAttempt(Output):
    """Something that was tried and did not work."""

    type: Literal["attempt"] = "attempt"
    id: str
    """Where the record of it stands."""
    session: SessionId
    kind: Literal["hypothesis", "step", "fix", "evidence", "run"]
    """hypothesis: rejected; step: failed; fix: shown not to work; evidence: a pattern that was
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
