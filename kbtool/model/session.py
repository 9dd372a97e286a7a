"""A session: one sitting of work, what it set out to do, what it cost and what came of it.

Lists and mappings have a ``default_factory``: Pydantic makes a deep copy of a literal default for
each record, which was a quarter of the time that a session takes to validate.
"""

from __future__ import annotations

import re
from datetime import timedelta
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
    Figure,
    Instant,
    KernelId,
    Likelihood,
    Memory,
    Model,
    Money,
    PatternId,
    Quantity,
    Rate,
    Reference,
    RunStep,
    SessionId,
    Size,
    Slug,
    SourceFile,
)
from kbtool.model.claim import Claim
from kbtool.model.mutant import Mutant
from kbtool.model.price import currency_of, is_exact, price_of, require_product

_UNREADABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters, line breaks, and what turns the direction of the text that follows."""


def _is_readable(label: str) -> str:
    found = _UNREADABLE.search(label)
    if found:
        raise ValueError(f"{label!r} holds the character U+{ord(found[0]):04X}; leave it out")
    return label


Text = Annotated[str, Field(min_length=1)]
CostKind = Literal["gpu", "ai", "engineer", "other"]
"""What is paid for."""
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


class Repository(Cited):
    """The code that the session worked on."""

    branch: str | None = None
    """The branch checked out."""
    commit: Commit | None = None
    """The commit checked out at the start."""
    dirty: bool | None = None
    """Whether the work tree differed from the commit."""


class CostLine(Cited):
    """One thing that was paid for. A total is never a line: totals are derived."""

    kind: CostKind
    """What was paid for."""
    id: Slug | None = None
    """A name for references; the kind where it is absent (#costs.gpu)."""
    amount: Money | None = None
    """How much; null, with the reason under `unknown`, where nobody knows. An estimate may leave it
    out: it is then the rate times the duration, or times the session's own time, to the cent."""
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "USD"
    """Three capitals, as in ISO 4217."""
    basis: Literal["claimed", "estimated", "billed"]
    """claimed: stated by somebody; estimated: from a rate and a time; billed: on an invoice."""
    duration: Duration | None = None
    """The time paid for, where it is stated apart from the session's own."""
    rate: Rate | None = None
    """The price of a unit of time: 0.20 USD/h."""
    rate_id: Slug | None = None
    """The rate in sessions/ledger.yaml that `rate` was taken from."""
    card: str | None = None
    """The card that the line pays for, if not the session's."""
    invoice: Text | None = None
    """The number of the invoice, of a line that is billed."""
    note: str | None = None
    """What the line covers."""

    @property
    def is_open(self) -> bool:
        """Whether it is an estimate that goes on for as long as the session does."""
        return (
            self.basis == "estimated"
            and self.rate is not None
            and self.duration is None
            and "amount" not in self.model_fields_set
        )

    def settled(self, minutes: Decimal) -> CostLine:
        """An estimate that leaves the amount out, with the one that follows from its rate.

        The amount does not count as stated: it is not among the fields that were set.
        """
        assert self.rate is not None
        values = {**dict(self), "amount": price_of(self.rate, minutes)}
        return CostLine.model_construct(self.model_fields_set, **values)

    @model_validator(mode="after")
    def _estimate_follows_from_rate(self) -> CostLine:
        """An estimate that has a rate and a time is their product."""
        if self.rate_id is not None and self.rate is None:
            raise ValueError(f"rate_id names {self.rate_id!r}: write the rate itself too")
        if self.basis != "estimated":
            return self
        stated = "amount" in self.model_fields_set
        if self.rate is None:
            if not stated:
                raise ValueError("an estimate needs an amount, or a rate to derive it from")
            return self
        if currency_of(self.rate) != self.currency:
            raise ValueError(f"the rate {self.rate} is not in {self.currency}; set currency")
        if not stated:
            time = self.duration
            if not is_exact(self.rate) or (time is not None and not is_exact(time)):
                raise ValueError(
                    "without an amount, an estimate needs one exact rate and one exact duration;"
                    f" it has {self.rate}" + ("" if time is None else f" and {time}")
                )
            if time is not None:
                return self.settled(time.minutes)
        elif self.amount is not None and self.duration is not None:
            require_product(self.amount, self.rate, self.duration)
        return self


class Step(Cited):
    """One step of the sitting: how long it should have taken and how long it took."""

    id: Slug
    """A name for references."""
    title: Text
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


class Bug(Cited):
    """A fault that the session met. Its fix is a `fix`, in this session or in a later one."""

    id: Slug
    """A name for references; it stays with the bug."""
    title: Text
    """The fault in a few words."""
    component: str | None = None
    """The part at fault: a kernel, a script, the build."""
    symptom: Text | None = None
    """What was seen."""
    cause: str | None = None
    """Why; null, with the reason under `unknown`, while nobody knows."""
    status: Literal["open", "fixed", "worked-around", "unknown"]
    """As the session left it; what later fixes made of it is derived."""
    recurrence_of: Reference | None = None
    """The same fault met earlier: SESSION#bugs.ID."""
    minutes_lost: Duration | None = None
    """Time spent on it in this session."""
    error_text: str | None = None
    """The error message, as printed."""
    hypotheses: list[Hypothesis] = Field(default_factory=list)
    """What it might be, as believed in the session."""
    mutants: list[Mutant] = Field(default_factory=list)
    """Edits that put the bug back: the `mutants` step shows that validation finds each."""


class Hypothesis(Cited):
    """A possible cause and how likely it was held to be."""

    id: Slug
    """A name for references."""
    statement: Text
    """The possible cause."""
    likelihood: Likelihood | None = None
    """As stated: 80 %."""
    verdict: Literal["open", "confirmed", "rejected"] = "open"
    """As this session left it."""
    note: str | None = None
    """What speaks for or against it."""


class Fix(Cited):
    """A change that mends a bug, of this session or of an earlier one."""

    id: Slug | None = None
    """A name for references."""
    bug: Reference
    """SESSION#bugs.ID, or #bugs.ID in this session."""
    change: Text
    """What was changed."""
    place: str | None = None
    """File and lines, as stated."""
    commit: Commit | None = None
    """The commit that holds the change."""
    confirmed: bool | None = None
    """Whether a test showed that the fault was gone."""
    shown_by: list[RunStep] = Field(default_factory=list)
    """The steps of runs that showed it; the audit asks whether they passed."""
    note: str | None = None
    """How it was shown, or what remained."""

    @property
    def kernel(self) -> str | None:
        """The kernel in whose folder the change was made, where ``place`` says so."""
        folder, _, rest = (self.place or "").partition("/")
        return rest.partition("/")[0] if folder == "kernels" and "/" in rest else None

    @model_validator(mode="after")
    def _shows_what_is_confirmed(self) -> Self:
        if self.shown_by and not self.confirmed:
            raise ValueError(
                "shown_by names what showed that the fault was gone, and confirmed is not true;"
                " leave one of the two out, or write confirmed: true"
            )
        return self


class CommitEntry(Cited):
    """A commit made, or checked out, in the session."""

    id: Slug
    """A name for references."""
    sha: Commit | None = None
    """The commit's id."""
    title: str | None = None
    """Its subject line, or what it does."""
    role: Literal["made", "checked-out", "mentioned"] = "made"
    """What the session had to do with it."""
    branch: str | None = None
    """The branch it went to."""
    insertions: int | None = None
    """Lines added."""
    deletions: int | None = None
    """Lines removed."""
    files: int | None = None
    """Files changed."""


class Column(Model):
    """One column of figures in a measurement."""

    title: Text
    """What is measured, for which arm: 'PyTorch SDPA latency'."""
    unit: str
    """The unit of every figure in the column; '' for a pure number."""


class Row(Model):
    """One case of a measurement."""

    id: Slug
    """A name for references."""
    case: dict[str, str] = Field(default_factory=dict)
    """The shape and settings: {B: 1, H: 1, S: 128, D: 64}."""
    values: dict[Slug, Figure | None] = Field(default_factory=dict)
    """Column → figure; null, with the reason under `unknown`, where none was taken."""
    verdict: Literal["pass", "fail"] | None = None
    """The verdict that the log gives this case."""
    note: str | None = None
    """The log's remark on this case."""


class Measurement(Cited):
    """A table of figures that the session measured."""

    id: Slug
    """A name for references."""
    title: Text
    """What the table shows."""
    kind: Literal["benchmark", "correctness", "memory", "build", "other"]
    """What was measured."""
    about: str | None = None
    """Conditions: element type, statistic, baseline, bound of the verdict."""
    artifact: str | None = None
    """What was measured: a binary, a commit, a kernel."""
    validated: bool | None = None
    """Whether the thing measured had passed validation before; null if the log does not say."""
    subject: Slug | None = None
    """The column with the times of what was worked on; a speedup is reckoned from it."""
    columns: Annotated[dict[Slug, Column], Field(min_length=1)]
    """The columns of figures, by name."""
    rows: Annotated[list[Row], Field(min_length=1)]
    """One entry a case."""

    @model_validator(mode="after")
    def _values_have_columns(self) -> Self:
        if self.subject is not None:
            column = self.columns.get(self.subject)
            if column is None or column.unit not in Quantity.MINUTES:
                raise ValueError(f"subject: {self.subject!r} is no column of times")
        for row in self.rows:
            extra = sorted(set(row.values) - set(self.columns))
            if extra:
                raise ValueError(
                    f"row {row.id!r} has figures for {', '.join(extra)}, which is no column;"
                    f" the columns are {', '.join(self.columns)}"
                )
        return self


class Option(Cited):
    """A way that could have been taken."""

    id: Slug
    """A name for references."""
    title: Text
    """The option."""
    detail: str | None = None
    """Its grounds, its price, what it was expected to bring."""
    figures: dict[Slug, Quantity] = Field(default_factory=dict)
    """Stated figures: cost, time, confidence, expected speedup."""


class Decision(Cited):
    """A choice, the options it was made between, and why."""

    id: Slug
    """A name for references."""
    question: Text
    """What had to be decided."""
    options: list[Option] = Field(default_factory=list)
    """The options considered."""
    chosen: Slug | None = None
    """The id of the option taken; null, with the reason under `unknown`, while it is open."""
    reason: str | None = None
    """Why."""

    @model_validator(mode="after")
    def _chosen_is_an_option(self) -> Self:
        if self.chosen is not None and self.chosen not in {option.id for option in self.options}:
            raise ValueError(f"chosen: {self.chosen!r} is none of the options")
        return self


class PlannedStep(Model):
    """A step of a plan."""

    id: Slug
    """A name for references."""
    title: Text
    """What is to be done."""
    target: Duration | None = None
    """The time planned."""
    detail: str | None = None
    """How."""


class Plan(Cited):
    """What a later sitting was to do."""

    id: Slug
    """A name for references."""
    title: Text
    """The aim."""
    for_session: str | None = None
    """The label of the sitting planned for: N+7B."""
    target: Duration | None = None
    """The time planned in all."""
    budget: Amount | None = None
    """The money planned in all."""
    steps: list[PlannedStep] = Field(default_factory=list)
    """The steps planned."""
    expected: list[str] = Field(default_factory=list)
    """What it was expected to bring."""
    figures: dict[Slug, Quantity] = Field(default_factory=dict)
    """Figures stated of the plan: target speedup, bound of the error."""


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

    @model_validator(mode="after")
    def _proof_shows(self) -> Self:
        saved = not self.expected and (self.saved is not None or self.money is not None)
        if self.verdict == "proved" and not saved and not self.shown_by:
            raise ValueError(
                "proved, and nothing shows it: give saved or money, seen and not expected, or"
                " shown_by: [RUN#steps.validate]; without proof the verdict is applied"
            )
        return self


class Deliverable(Cited):
    """A thing that the session made."""

    id: Slug
    """A name for references."""
    title: Text
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
    """One sitting of work."""

    id: SessionId
    """DATE-NAME, or undated-NAME where no log gives the date; permanent."""
    label: Annotated[Text, AfterValidator(_is_readable)]
    """The session's own name: N+7A."""
    title: Text
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
    """The time box."""
    budget_money: Amount | None = None
    """The money box."""
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
    """Changes that mend a bug."""
    commits: list[CommitEntry] = Field(default_factory=list)
    """Commits made or checked out."""
    decisions: list[Decision] = Field(default_factory=list)
    """Choices made or left open."""
    evidence: list[Evidence] = Field(default_factory=list)
    """What the session says of patterns."""
    claims: list[Claim] = Field(default_factory=list)
    """Figures stated that other figures determine, as stated."""
    plans: list[Plan] = Field(default_factory=list)
    """What a later sitting was to do."""
    deliverables: list[Deliverable] = Field(default_factory=list)
    """What was made."""
    lessons: list[str] = Field(default_factory=list)
    """What was learned, in a sentence each."""
    tags: list[Slug] = Field(default_factory=list)
    """Words to find it by."""
    rests_on: dict[str, list[Reference]] = Field(default_factory=dict)
    """Path of a decision, a plan, an outcome → the claims that it rests on; derived are those that
    hold the figures of its own options against each other."""
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
        card = stated or (self.environment.card if self.environment else None)
        return card.removeprefix("NVIDIA ") if card and card != "none" else None

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


Bug.model_rebuild()
