"""A sweep: one recipe in a matrix of parameters and commits, run by an engine; written by kbtool.

The record lies at ``sessions/SESSION/sweeps/ID.json``. It is rewritten while the sweep goes on, and
is sealed each time, as a run is.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from kbtool.model.base import AtLeastOne, Commit, KernelId, Model, Name, PatternId, RunId, SessionId
from kbtool.model.kinds.base import Sha256
from kbtool.model.run import RepositoryState

CellStatus = Literal[
    "waiting", "queued", "running",
    "passed", "noisy", "failed", "unavailable", "timeout", "interrupted", "crashed",
    "preempted", "lost", "unreachable", "refused",
]  # fmt: skip
"""waiting: not given to the engine; queued: it has not begun; running; passed to crashed: what its
run says; timeout: also, the engine's time limit was over; preempted: the engine took the machine
away; lost: it ended without a word; unreachable: its machine did not answer any more; refused:
what came home is no sound record."""

UNDER_WAY = ("queued", "running")
"""What an engine has to do with now."""
TRANSIENT = ("preempted", "lost", "unreachable")
"""The ends that say nothing of the code: they are tried again by themselves."""
AGAIN = ("noisy", "timeout", "interrupted", *TRANSIENT)
"""The ends of cells that `kbtool sweep resume` runs again unless told otherwise."""


class Attempt(Model):
    """One time that a cell was given to the engine."""

    job: Name | None = None
    """The engine's id of it; null where kbtool was killed before it learned that."""
    queued: AwareDatetime
    """When it was given to the engine."""
    started: AwareDatetime | None = None
    """When it began; null where it never did."""
    ended: AwareDatetime | None = None
    """When it ended; of one that was lost, when that was noticed."""
    status: CellStatus
    message: str | None = None
    """Why it ended so, where no run says it."""
    run: RunId | None = None
    """The run that it made."""
    machine: Name | None = None
    """The card, or the processor, that it ran on."""
    cards: int = 0
    """The cards that it held."""
    busy_s: Annotated[float, Field(ge=0)] | None = None
    """The seconds that the steps of its run took."""

    @property
    def held_s(self) -> float | None:
        """Seconds for which it held its machine; of one that was lost, at most."""
        return self.held_until(None)

    def held_until(self, now: datetime | None) -> float | None:
        """The same up to ``now``, of one that has not ended."""
        ended = self.ended or now
        if self.started is None or ended is None:
            return None
        return max(0.0, (ended - self.started).total_seconds())

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        is_over = self.status not in ("waiting", *UNDER_WAY)
        if is_over != (self.ended is not None):
            raise ValueError(
                f"an attempt that is {self.status} has an end if, and only if, it is over"
            )
        if self.status == "passed" and self.run is None:
            raise ValueError("an attempt passed only if its run did: it names none")
        return self


class Cell(Model):
    """A place in the matrix."""

    id: Annotated[str, Field(pattern=r"^[1-9]\d*$")]
    """Its number: 1, 2, …"""
    parameters: dict[str, str]
    """What the axes give it; the recipe's defaults are not among them."""
    commit: Commit | None = None
    """The commit that it runs; null of the work tree."""
    status: CellStatus = "waiting"
    run: RunId | None = None
    """The run that its status is from."""
    reused: bool = False
    """Whether that run was made before the sweep: it was not run again."""
    message: str | None = None
    """Why it is so, where no run says it."""
    expected_s: Annotated[float, Field(ge=0)] | None = None
    """The seconds that it was expected to take on this machine when the sweep began; null where
    another machine runs it, where an earlier run stands for it, and in older records."""
    attempts: list[Attempt] = []

    @property
    def label(self) -> str:
        """What sets it apart, in a line."""
        parts = [f"{name}={value}" for name, value in self.parameters.items()]
        return " ".join([*parts, *([self.commit[:12]] if self.commit else [])]) or "as it is"

    @model_validator(mode="after")
    def _says_what_ran(self) -> Self:
        if self.status == "passed" and self.run is None:
            raise ValueError(f"cell {self.id} passed, but names no run")
        ran = [one.run for one in self.attempts if one.run]
        if self.run is not None and self.reused == (self.run in ran):
            raise ValueError(f"cell {self.id}: run {self.run} is either its own or reused")
        last = self.attempts[-1].status if self.attempts and not self.reused else self.status
        if self.status not in ("waiting", last):
            raise ValueError(f"cell {self.id} is {self.status}, its last attempt is not")
        return self


class Axis(Model):
    """A parameter, or the commit, and its values."""

    name: Name
    """A parameter of the recipe, or ``commit``."""
    values: Annotated[list[Name], Field(min_length=1)]
    """In the order given; commits by their ids."""


class EngineUse(Model):
    """The engine that ran it."""

    name: Literal["here", "submitit", "slurm", "ssh"]
    """here: processes on this machine; submitit: its local executor; slurm: a cluster; ssh: hosts
    that it reaches."""
    jobs: AtLeastOne | None = None
    """At most this many at once; null where the engine decides."""
    options: dict[str, str] = {}
    """What the engine was told: hosts, partition, gpus_per_node, time …"""


class Sweep(Model):
    """A recipe in a matrix, and how each cell went."""

    id: RunId
    """Its name, as a run has one."""
    session: SessionId
    """The session that its runs go to."""
    recipe: Name
    pattern: PatternId
    """The pattern of the recipe."""
    kernel: KernelId | None = None
    axes: list[Axis]
    """What is varied."""
    engine: EngineUse
    repository: RepositoryState
    """The code where it was made."""
    bundles: dict[str, Sha256] = {}
    """What was sent to the machines: commit, or ``work tree`` → SHA-256 of the archive."""
    tries: AtLeastOne = 3
    """How often a cell is tried that was lost, preempted or unreachable."""
    status: Literal["running", "paused", "stopped", "ended"]
    """ended: no cell is left to run."""
    started: AwareDatetime
    ended: AwareDatetime | None = None
    """When it ended, was paused or stopped."""
    cells: Annotated[list[Cell], Field(min_length=1)]
    digest: Sha256 | None = None
    """SHA-256 of the record without this field, as canonical JSON."""

    @property
    def counts(self) -> dict[str, int]:
        """Status → cells, in the order of the statuses."""
        found = Counter(cell.status for cell in self.cells)
        return {one: found[one] for one in CellStatus.__args__ if found[one]}  # type: ignore[attr-defined]

    @property
    def told(self) -> str:
        """The counts in words, for people."""
        parts = [f"{number} {status}" for status, number in self.counts.items()]
        reused = sum(cell.reused for cell in self.cells)
        return ", ".join([*parts, *([f"{reused} of them from earlier runs"] if reused else [])])

    @property
    def attempts(self) -> list[Attempt]:
        """Every attempt of every cell."""
        return [attempt for cell in self.cells for attempt in cell.attempts]

    @property
    def held_s(self) -> dict[str, float]:
        """Card → seconds for which the attempts held it, a second for each card of several."""
        return self.held_until(None)

    def held_until(self, now: datetime | None) -> dict[str, float]:
        """The same up to ``now``: attempts that run count too."""
        return self._seconds(lambda one: one.held_until(now))

    @property
    def busy_s(self) -> dict[str, float]:
        """Card → seconds in which steps ran on it."""
        return self._seconds(lambda one: one.busy_s)

    def _seconds(self, of: Any) -> dict[str, float]:
        found: dict[str, float] = {}
        for one in self.attempts:
            seconds = of(one)
            if one.cards and one.machine and seconds is not None:
                found[one.machine] = found.get(one.machine, 0.0) + seconds * one.cards
        return found

    def sealed(self) -> Sweep:
        """The sweep with its digest: what is written to a file."""
        return self.model_copy(update={"digest": digest_of(json.loads(self.model_dump_json()))})

    @model_validator(mode="after")
    def _cells_are_told_apart(self) -> Self:
        ids = [cell.id for cell in self.cells]
        if ids != [str(number) for number in range(1, len(ids) + 1)]:
            raise ValueError("cells are numbered 1, 2, … in order")
        own = [one.run for one in self.attempts if one.run]
        twice = [run for run, times in Counter(own).items() if times > 1]
        if twice:
            raise ValueError(f"run {twice[0]} counts for two attempts")
        return self

    @model_validator(mode="after")
    def _times_in_order(self) -> Self:
        if (self.status == "running") != (self.ended is None):
            raise ValueError(
                f"a sweep that is {self.status} has an end if, and only if, it is over"
            )
        if self.ended is not None and self.ended < self.started:
            raise ValueError(f"ended {self.ended} is before started {self.started}")
        return self


def digest_of(record: dict[str, Any]) -> str:
    """The digest that seals a sweep record, given as JSON object."""
    rest = {key: value for key, value in record.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
