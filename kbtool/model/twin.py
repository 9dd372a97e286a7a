"""The JSON beside the pages of the site: a twin of each record's page, and an index of them.

Where the meaning or the name of a field changes, or one goes, the version goes up; a new field
alone does not raise it. Unknown is null. Addresses are relative to the root of the site.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import RootModel, SerializeAsAny, WithJsonSchema

from kbtool.model.base import Model, Output, PatternId, RunId, SessionId
from kbtool.model.kernel import Bound, CaseValue

Kind = Literal["session", "pattern", "kernel", "bug", "recipe", "run", "sweep"]


class Listed(Output):
    """A record that has a page."""

    kind: Kind
    id: str
    """The record's id; of a bug SESSION#bugs.ID; of a recipe its name."""
    title: str
    page: str
    """Its page."""
    twin: str
    """The JSON of that page."""
    date: str | None
    """YYYY-MM-DD: of a session and its bugs the session's day, of a run the day it began; null
    where there is none."""
    status: str | None
    """How a session or a run ended, a bug's status, a pattern's standing; null of other kinds."""


class Mentioned(Output):
    """A place that refers to a record."""

    page: str
    """The page that refers, with the anchor of the place."""
    why: str
    """In what capacity."""


class Sums(Output):
    """What a session cost in one currency; money that nobody knows is null and not counted."""

    currency: str | None
    """Null where nothing was paid for."""
    minutes: Decimal | None
    gpu: Decimal | None
    ai: Decimal | None
    engineer: Decimal | None
    other: Decimal | None
    total: Decimal | None
    """The sum of the money that is known."""
    unknown: list[str]
    """The columns that are not known, or a part of which is not."""
    gpu_estimated: bool
    """Whether the GPU is priced by the time of runs, which no cost line states."""


class Graded(Output):
    """What the audit makes of a claim."""

    where: str
    """The claim's path in the record."""
    grade: Literal["consistent", "inconsistent", "decision", "undetermined"]
    derived: str | None
    """What comes out; null where nothing does."""


class SessionDerived(Output):
    """What follows from a session and from what refers to it."""

    totals: list[Sums]
    """One a currency."""
    claims: list[Graded]
    bugs: dict[str, str]
    """Id of a bug met → what became of it, in this session or a later one."""
    followed_by: list[SessionId]
    runs: list[RunId]
    """Newest first."""


class PatternDerived(Output):
    """What follows from a pattern and from what sessions say of it."""

    standing: str
    """What the evidence makes of it."""
    superseded_by: list[PatternId]
    verdicts: dict[str, int]
    """Verdict → how many sessions give it."""
    claims: list[Graded]


class ArmTime(Output):
    """The times of one implementation in a case, each with its quartiles, and how it compares."""

    run: RunId
    """The run that they are from."""
    own: bool
    """Whether it is the kernel itself: by its own choice of variant, or one variant of it."""
    us: float
    """In a chain of its own calls, µs a call."""
    low_us: float
    high_us: float
    between_us: float | None = None
    """Between plain kernels, their time included; null where it was not measured."""
    between_low_us: float | None = None
    between_high_us: float | None = None
    ratio: float | None = None
    """Its time ÷ ours by `measure`, over all runs of the build that timed both; null of our own
    and where either was not measured so."""
    ratio_low: float | None = None
    """The same with the quartiles that make it least …"""
    ratio_high: float | None = None
    """… and most; null where a run has no quartiles."""


class Tuned(Output):
    """What the newest quiet tune of the same case, on the same machine, found."""

    run: RunId
    variant: str
    setting: str
    """What was set, such as the number of splits."""
    own: str
    """What the kernel chose by itself, at that run's commit."""
    best: str
    """The fastest setting whose quartiles lie apart from those of the own choice."""


class MeasuredCase(Output):
    """A case as it was timed."""

    name: str
    case: dict[str, CaseValue]
    """Its fields: the shape, the element type. One that is not there has the `default` that
    `fields` states."""
    current: bool
    """Whether it answers for its shape: of the cases with the same fields, target and machine the
    one timed between plain kernels, then the newest."""
    floor_us: float | None = None
    """The least time that the measured ceilings of the machine allow; null where none applies."""
    floor_by: Literal["reading", "arithmetic"] | None = None
    """The ceiling that takes longest."""
    arms: dict[str, ArmTime]
    """Ours, its variants, and the peers whose output was right."""
    tuned: Tuned | None = None
    """Null where no quiet run tuned it."""
    us: float
    """The time of a call of ours in a chain of its own calls, µs."""
    between_us: float | None = None
    """The same between plain kernels, their time included; null where it was not measured."""
    best_peer: str | None = None
    """The fastest peer whose output was right; null where none was timed."""
    ratio: float | None = None
    """The best peer's time ÷ ours, by `measure`: above 1 ours is faster."""


class MeasuredSet(Output):
    """The cases of one case set, element type and machine, of one build (ADR 0038)."""

    kernel: str
    page: str
    """The page with these figures."""
    target: str
    machine: str
    case_set: str
    subject: str
    """Our implementation, with the kernel's own choice of variant."""
    dtype: str | None
    commit: str | None
    runs: list[RunId]
    """The runs that the figures are from, newest first."""
    commands: list[str]
    """What repeats the newest of these runs; empty if no recipe made it."""
    repeat: dict[RunId, list[str]]
    """Run → what repeats it; runs that no recipe made are left out."""
    measure: Literal["between", "chain"] | None
    """What the ratios are of: times between plain kernels, or in a chain; null where no peer was
    timed."""
    mean: float | None
    """The best peer's time ÷ ours, geometric mean over the cases."""
    least: float | None
    lost: int | None
    """In how many cases the best peer is faster."""
    against: str
    """The peers, and which are missing."""
    cases: list[MeasuredCase]


class KernelDerived(Output):
    """What refers to a kernel, and how fast it is."""

    recipes: list[str]
    runs: list[RunId]
    """Newest first."""
    verdict: str | None
    """How it stands beside its peers, in a sentence; null where no quiet run says."""
    results: list[MeasuredSet]
    """Every case set that a quiet run timed, by machine and element type."""


class BugDerived(Output):
    """What became of a bug."""

    session: SessionId
    """The session that met it."""
    status: str
    open: bool
    """Whether the fault is still there; of one met again, the newest meeting speaks."""
    fixed_in: list[SessionId]
    """The sessions with a fix of it."""
    met_again: list[str]
    """The same fault met later: SESSION#bugs.ID."""


class RecipeDerived(Output):
    """What refers to a recipe."""

    pattern: PatternId
    """The pattern that it belongs to."""
    runs: list[RunId]
    """Newest first."""


class RunDerived(Output):
    """What follows from a run, whose record is that of its last attempt."""

    headline: str
    """What it found, in a line."""
    attempts: int


class SweepDerived(Output):
    """What follows from a sweep."""

    counts: dict[str, int]
    """Status → cells."""
    reused: int
    """Cells that earlier runs stand for."""
    held_s: dict[str, float]
    """Card → seconds for which it was held."""
    busy_s: dict[str, float]
    """Card → seconds in which steps ran on it."""


class Twin(Listed):
    """The JSON of a record's page."""

    type: Literal["twin"] = "twin"
    version: Literal[1] = 1
    """Of the form that this schema describes."""
    record: Annotated[SerializeAsAny[Model], WithJsonSchema({"type": "object"})]
    """The record as `kbtool schema KIND` describes it, with defaults put in; a bug and a recipe as
    in the session and the pattern that they are part of."""
    derived: (
        SessionDerived
        | PatternDerived
        | KernelDerived
        | BugDerived
        | RecipeDerived
        | RunDerived
        | SweepDerived
    )
    """What follows from it and from the other records; by `kind`."""
    mentioned_by: list[Mentioned]
    """What else refers to it."""


class TwinIndex(Output):
    """`index.json` at the root of the site: every record that has a page."""

    type: Literal["index"] = "index"
    version: Literal[1] = 1
    """Of the form that this schema describes."""
    records: list[Listed]


class ProblemField(Output):
    """A field of a kernel's cases."""

    name: str
    type: Literal["int", "float", "bool", "str", "ints"]
    help: str
    default: CaseValue
    """What a case has that does not set it."""
    minimum: Bound | None
    maximum: Bound | None
    divides: str | None
    """A field whose value is always a multiple of this one's."""
    values: list[CaseValue]
    """What the measured cases have, in order."""


class Answers(Output):
    """`answers.json` at the root of the site: the results of every kernel. `rule` says how to find
    the fastest for a shape; `kbtool fastest` and the page of the kernel do the same. Of a case
    what is null is left out, and a field that has its default."""

    type: Literal["answers"] = "answers"
    version: Literal[1] = 1
    """Of the form that this schema describes."""
    rule: str
    """How far a measured case is from a shape, and which case answers for it."""
    fields: dict[str, list[ProblemField]]
    """Kernel → the fields of its cases."""
    results: list[MeasuredSet]


class TwinFile(RootModel[Twin | TwinIndex | Answers]):
    """A file of JSON on the site."""
