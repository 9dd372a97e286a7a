"""Engines: what starts the jobs of a sweep, and tells how they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from kbtool.model.errors import UsageError
from kbtool.model.sweep import CellStatus, EngineUse


class JobState(NamedTuple):
    """How a job is, as its engine tells."""

    gone: bool
    """Whether it has ended, or is not known any more; what has begun says so by itself."""
    why: CellStatus = "lost"
    """Of one that is gone: what ended it, where the engine knows."""
    message: str | None = None


class Engine(Protocol):
    """What schedules attempts. kbtool asks it for three things, and schedules nothing itself."""

    @property
    def slots(self) -> int | None:
        """How many jobs it takes at once; ``None`` if it has a queue of its own."""

    @property
    def is_here(self) -> bool:
        """Whether its jobs run on this machine."""

    def submit(self, attempts: Sequence[Path]) -> list[str]:
        """Start, or put into the queue, a job for each folder of an attempt; their ids.

        Raises:
            MachineError: the engine refuses them.
        """
        ...

    def states(self, jobs: Sequence[str]) -> Mapping[str, JobState]:
        """How the jobs are. One that is left out is not known now: ask again."""
        ...

    def cancel(self, jobs: Sequence[str]) -> None:
        """End jobs, whether they have begun or not."""
        ...


def engine_of(use: EngineUse, folder: Path, minutes: int) -> Engine:
    """The engine of a sweep.

    Args:
        use: which, and what it is told.
        folder: where it may keep its files.
        minutes: the time that a job may take, where the engine is told no other.

    Raises:
        UsageError: an option is none of the engine's.
        MachineError: this machine does not have it.
    """
    if use.name == "here":
        from kbtool.sweeps.engines.here import Here

        if use.options:
            raise UsageError(f"--engine-option {next(iter(use.options))}: engine here takes none")
        return Here(use.jobs)
    if use.name == "ssh":
        from kbtool.sweeps.engines.ssh import SSH

        return SSH(folder, use, minutes)
    from kbtool.sweeps.engines.submitted import Local, Slurm

    if use.name == "submitit":
        return Local(folder, use, minutes)
    return Slurm(folder, use, minutes)
