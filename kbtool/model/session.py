"""A session: one piece of work, what it set out to do, what it cost and what came of it.

Lists and mappings have a ``default_factory``: Pydantic makes a deep copy of a literal default for
each record, which was a quarter of the time that a session takes to validate.
"""

from __future__ import annotations

import re
from datetime import UTC, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from kbtool.model.base import (
    Amount,
    Cite,
    Cited,
    Commit,
    Duration,
    HowMany,
    Instant,
    KernelId,
    Memory,
    Model,
    PatternId,
    Quantity,
    Reference,
    SessionId,
    Size,
    Slug,
    SourceFile,
    Text,
    Title,
)
from kbtool.model.bug import Bug, Fix
from kbtool.model.claim import Claim
from kbtool.model.cost import CostLine
from kbtool.model.decision import Decision, Plan
from kbtool.model.measurement import Measurement
from kbtool.model.price import is_exact
from kbtool.model.session_costs import plain_card

_UNREADABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters, line breaks, and what turns the direction of the text that follows."""


_LONGEST_LABEL = 80


def _is_readable(label: str) -> str:
    if len(label) > _LONGEST_LABEL:
        raise ValueError(f"{label[:20]!r}… has {len(label):,} characters, over {_LONGEST_LABEL}")
    if re.search(r"[/\\#]|^[-.]", label):
        raise ValueError(f"{label!r}: a label holds none of / \\ # and begins with neither - nor .")
    found = _UNREADABLE.search(label)
    if found:
        raise ValueError(f"{label!r} holds the character U+{ord(found[0]):04X}; leave it out")
    return label


Purchase = Literal["on-demand", "preemptible", "reserved", "owned"]
"""How a machine is paid for."""


class Environment(Cited):
    """The machine and the software of a session, as stated or as probed."""

    card: str | None = None
    """The accelerator: L4, H100 80GB HBM3; 'none' on a machine without one."""
    card_memory: Memory | None = None
    """Device memory."""
    compute_capability: str | None = None
    """sm_89 and the like."""
    architecture: str | None = None
    """The architecture's name as stated: Ada, Hopper."""
    shared_memory: Memory | None = None
    """Shared memory a block may use."""
    cpu: str | None = None
    """The processor."""
    driver: str | None = None
    """Version of the card's driver."""
    cuda: str | None = None
    """Version of the CUDA runtime."""
    nvcc: str | None = None
    """Version of the CUDA compiler."""
    torch: str | None = None
    """Version of PyTorch."""
    numpy: str | None = None
    """Version of NumPy."""
    python: str | None = None
    """Version of Python."""
    instance: str | None = None
    """The name of the rented machine; never its address."""
    zone: str | None = None
    """Where it is rented."""
    purchase: Purchase | None = None
    """How it is paid for."""
    details: dict[str, str] = Field(default_factory=dict)
    """Anything else: tile sizes, threads per block, compiler flags."""

    @field_validator("details")
    @classmethod
    def _cores_are_a_number(cls, details: dict[str, str]) -> dict[str, str]:
        """``cores``, which a new session gets from the machine, is how many there are."""
        cores = details.get("cores", "1")
        if not re.fullmatch("[1-9][0-9]{0,5}", cores):
            raise ValueError(f"cores is a whole number of at least 1, got {cores[:40]!r}")
        return details


class Repository(Cited):
    """The code that the session worked on."""

    branch: str | None = None
    """The branch checked out."""
    commit: Commit | None = None
    """The commit checked out at the start."""
    dirty: bool | None = None
    """Whether the work tree differed from the commit."""


class Step(Cited):
    """One step of the session: how long it should have taken and how long it took."""

    id: Slug
    """A name for references."""
    title: Title
    """What was to be done."""
    target: Duration | None = None
    """The time planned."""
    actual: Duration | None = None
    """The time it took."""
    pattern: PatternId | None = None
    """The pattern that it was done by: its two times count as what that pattern saved or lost."""
    status: Literal["done", "failed", "skipped", "unknown"] = "unknown"
    """How it ended."""
    note: str | None = None
    """Why it took so long, what came of it."""


class CommitEntry(Cited):
    """A commit made, or checked out, in the session."""

    id: Slug
    """A name for references."""
    sha: Commit | None = None
    """The commit's id."""
    title: Title | None = None
    """Its subject line, or what it does."""
    role: Literal["made", "checked-out", "mentioned"] = "made"
    """What the session had to do with it."""
    branch: str | None = None
    """The branch it went to."""
    insertions: HowMany | None = None
    """Lines added."""
    deletions: HowMany | None = None
    """Lines removed."""
    files: HowMany | None = None
    """Files changed."""


class Evidence(Cited):
    """What this session says of a pattern."""

    pattern: PatternId
    """The pattern."""
    verdict: Literal["discovered", "applied", "proved", "contradicted", "not_reproduced"]
    """discovered: first written down here; applied: followed; proved: it paid, and figures show it;
    contradicted: it was followed and failed, or the figures speak against it; not_reproduced: a
    stated gain was sought and not found."""
    note: Text
    """What happened."""
    saved: Duration | None = None
    """Time saved, as stated."""
    lost: Duration | None = None
    """Time lost, as stated."""
    money: Amount | None = None
    """Money saved, as stated."""
    expected: bool = False
    """Whether the time and the money were still expected when it was written, not yet seen."""
    shown_by: list[Reference] = Field(default_factory=list)
    """Where it shows: a step of a run, a measurement, a fix, a step (RUN#steps.validate, #fixes.f);
    a proof that states neither time nor money that was saved needs one."""
    where: dict[str, str] = Field(default_factory=dict)
    """What each of them has to be to show it, where that is no success: `status: failed` of a
    validation that found the bug. One that is anything else speaks against."""

    @model_validator(mode="after")
    def _proof_shows(self) -> Self:
        saved = not self.expected and (self.saved is not None or self.money is not None)
        if self.verdict == "proved" and not saved and not self.shown_by:
            raise ValueError(
                "proved, and nothing shows it: give saved or money, seen and not expected, or"
                " shown_by: [RUN#steps.validate]; without proof the verdict is applied"
            )
        if self.where and not (self.verdict == "proved" and self.shown_by):
            raise ValueError("where says how the shown_by of a proof shows it; give both, or none")
        return self


class Deliverable(Cited):
    """A thing that the session made."""

    id: Slug
    """A name for references."""
    title: Title
    """The file or the thing."""
    about: str | None = None
    """What it is for."""
    sizes: dict[Slug, Size] = Field(default_factory=dict)
    """Stated sizes: lines: 316 lines; binary: 240 KB."""
    state: Literal["done", "partial", "planned", "unknown"] = "done"
    """Whether it was there at the end of the session."""


class Stretch(Model):
    """A time of work between two pauses."""

    started: Instant
    """When it began."""
    ended: Instant | None = None
    """When it ended; absent while it lasts."""

    @model_validator(mode="after")
    def _times_in_order(self) -> Self:
        elapsed = self.ended.since(self.started) if self.ended else None
        if elapsed is not None and elapsed.total_seconds() < 0:
            raise ValueError(f"ended {self.ended} is before started {self.started}")
        return self

    def __str__(self) -> str:
        return f"{self.started} to {self.ended or 'now'}"


class Session(Model):
    """One piece of work: its aim, its time and costs, and what came of it."""

    id: SessionId
    """DATE-NAME, or undated-NAME where no log gives the date; permanent."""
    label: Annotated[Text, AfterValidator(_is_readable)]
    """The session's own name: N+7A."""
    title: Title
    """What it was about, in a few words."""
    origin: Literal["log", "mention", "tool", "person"]
    """log: transcribed from its own log; mention: known only from other sessions' logs;
    tool: made by kbtool; person: written by hand."""
    sources: dict[Slug, SourceFile] = Field(default_factory=dict)
    """The documents that figures are cited from, by a short name."""
    status: Literal["planned", "running", "paused", "complete", "terminated", "unknown"]
    """How it stands, or how it ended."""
    follows: SessionId | None = None
    """The session before it in the same line of work."""
    objective: str | None = None
    """What it set out to do."""
    outcome: str | None = None
    """What came of it."""
    grade: str | None = None
    """The mark it gave itself."""
    started: Instant | None = None
    """When it began."""
    ended: Instant | None = None
    """When it ended or was paused."""
    stretches: list[Stretch] = Field(default_factory=list)
    """The times of work, where there were pauses between; `kbtool session resume` keeps them."""
    updated: Instant | None = None
    """When the log was last changed, where it says so."""
    duration: Duration | None = None
    """How long it took as stated; derived from the two times where it is not stated."""
    budget_time: Duration | None = None
    """The limit of its time."""
    budget_money: Amount | None = None
    """The limit of its costs."""
    engineer: str | None = None
    """Who worked; a name or initials."""
    environment: Environment | None = None
    """The machine and the software."""
    repository: Repository | None = None
    """The code worked on."""
    kernels: list[KernelId] = Field(default_factory=list)
    """The kernels worked on; those of its runs count without being named."""
    costs: list[CostLine] = Field(default_factory=list)
    """What was paid for."""
    steps: list[Step] = Field(default_factory=list)
    """Target against actual, step by step."""
    measurements: list[Measurement] = Field(default_factory=list)
    """Tables of figures measured by hand; what kbtool measured is under runs/."""
    bugs: list[Bug] = Field(default_factory=list)
    """Faults met."""
    fixes: list[Fix] = Field(default_factory=list)
    """Changes that fix a bug."""
    commits: list[CommitEntry] = Field(default_factory=list)
    """Commits made or checked out."""
    decisions: list[Decision] = Field(default_factory=list)
    """Choices made or left open."""
    evidence: list[Evidence] = Field(default_factory=list)
    """What the session says of patterns."""
    claims: list[Claim] = Field(default_factory=list)
    """Figures stated that other figures determine, as stated."""
    plans: list[Plan] = Field(default_factory=list)
    """What a later session was to do."""
    deliverables: list[Deliverable] = Field(default_factory=list)
    """What was made."""
    lessons: list[str] = Field(default_factory=list)
    """What was learned, in a sentence each."""
    tags: list[Slug] = Field(default_factory=list)
    """Words to find it by."""
    rests_on: dict[str, list[Reference]] = Field(default_factory=dict)
    """Path of a decision, a plan, an outcome → the claims that it rests on; derived are those that
    compare the figures of its own options."""
    acknowledged: dict[str, Text] = Field(default_factory=dict)
    """Path of a claim (claims.ID, or the field that makes it) that the audit finds inconsistent →
    why it is left so."""
    cites: dict[str, Cite] = Field(default_factory=dict)
    """Key of this record → where its value stands, for started, ended, duration and the like."""
    unknown: dict[str, Text] = Field(default_factory=dict)
    """Path of a null → why nobody knows; every explicit null has its reason here."""

    @model_validator(mode="after")
    def _times_in_order(self) -> Self:
        if self.started and self.ended:
            elapsed = self.ended.since(self.started)
            if elapsed is not None and elapsed.total_seconds() < 0:
                raise ValueError(f"ended {self.ended} is before started {self.started}")
        if self.status == "running" and self.ended is not None:
            raise ValueError("a running session has no end; set status to complete or paused")
        return self

    @model_validator(mode="after")
    def _stretches_are_apart_and_within(self) -> Self:
        """No time is counted twice, and none that is not the session's."""
        for zoned in (True, False):
            ordered = sorted(
                (one for one in self.stretches if one.started.zoned is zoned),
                key=lambda one: one.started.at,
            )
            for first, second in pairwise(ordered):
                if first.ended is None or _is_before(second.started, first.ended):
                    raise ValueError(
                        f"stretches: {first} and {second} overlap, and that time would count twice"
                    )
        for one in self.stretches:
            begins = self.started is not None and _is_before(one.started, self.started)
            if begins or (self.ended and one.ended and _is_before(self.ended, one.ended)):
                raise ValueError(
                    f"stretches: {one} is not within the session, which was"
                    f" {self.started or 'unknown'} to {self.ended or 'now'}"
                )
        return self

    @field_validator("costs", mode="after")
    @classmethod
    def _open_lines_last_as_long_as_the_session(
        cls, costs: list[CostLine], info: ValidationInfo
    ) -> list[CostLine]:
        """An estimate without a time of its own is of the session's, once that is known."""
        known = info.data  # the fields declared before costs, without those that are not sound
        if not any(line.is_open for line in costs) or not known.keys() >= _TIMES:
            return costs
        minutes = _minutes(**{name: known[name] for name in _TIMES})
        if minutes is None:
            return costs
        return [line.settled(minutes) if line.is_open else line for line in costs]

    @model_validator(mode="after")
    def _open_lines_have_an_exact_time(self) -> Self:
        running = next((line for line in self.costs if line.is_open), None)
        if running is not None and self.duration is not None and not is_exact(self.duration):
            raise ValueError(
                "costs: without an amount, an estimate needs one exact rate and one exact duration;"
                f" it has {running.rate} and the session's {self.duration}"
            )
        return self

    @property
    def day(self) -> str | None:
        """The day of the session, ``YYYY-MM-DD``, from its id; ``None`` where undated."""
        return None if self.id.startswith("undated-") else self.id[:10]

    def card_of(self, stated: str | None = None) -> str | None:
        """The card, by one name: logs say L4, drivers NVIDIA L4; ``None`` where there is none.

        Args:
            stated: the card that one of the cost lines names; the session's own without it.
        """
        return plain_card(stated or (self.environment.card if self.environment else None))

    def named_patterns(self) -> list[str]:
        """The patterns that it gives evidence of, or did a step by, in order of their ids."""
        by_steps = {step.pattern for step in self.steps if step.pattern is not None}
        return sorted(by_steps | {edge.pattern for edge in self.evidence})

    def began(self) -> float | None:
        """When it began, in seconds since 1970; a time without a zone counts as UTC."""
        if self.started is None:
            return None
        at = self.started.at
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()

    @property
    def minutes(self) -> Decimal | None:
        """Minutes: as stated, else from start and end without the pauses, else ``None``.

        A duration that is a range or a bound is no figure to add up: ``None``.
        """
        return _minutes(self.started, self.ended, self.stretches, self.duration)


_TIMES = {"started", "ended", "stretches", "duration"}


def _minutes(
    started: Instant | None,
    ended: Instant | None,
    stretches: list[Stretch],
    duration: Quantity | None,
) -> Decimal | None:
    """See ``Session.minutes``."""
    if duration is not None:
        return duration.minutes if duration.is_single else None
    if stretches:
        times = [s.ended.since(s.started) if s.ended else None for s in stretches]
        known = [time for time in times if time is not None]
        if len(known) < len(times):
            return None
        return sum((Decimal(str(t.total_seconds())) for t in known), Decimal(0)) / 60
    if started and ended:
        elapsed = ended.since(started)
        if elapsed is not None:
            return Decimal(str(elapsed.total_seconds())) / 60
    return None


def _is_before(one: Instant, other: Instant) -> bool:
    """Whether it is known to be: of one with a zone and one without, nobody knows."""
    elapsed = one.since(other)
    return elapsed is not None and elapsed < timedelta(0)
