"""submitit: its local executor, and Slurm."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbtool.model.errors import MachineError, UsageError
from kbtool.model.sweep import CellStatus, EngineUse
from kbtool.sweeps import processes
from kbtool.sweeps.cell import run_attempt
from kbtool.sweeps.engines import JobState


class _Submitit:
    """An executor of submitit. Its jobs are packed as calls of ``run_attempt``."""

    name = ""
    minutes = ""
    """What the executor calls the time that a job may take."""

    def __init__(self, folder: Path, use: EngineUse, minutes: int) -> None:
        try:
            import submitit
        except ImportError:
            raise MachineError("submitit is not installed: pip install 'kbtool[sweep]'") from None
        self._submitit = submitit
        self.folder = folder
        self._executor = self._made(use.jobs)
        self._told(use.options)
        given = {
            name: int(value) if value.isdecimal() else value for name, value in use.options.items()
        }
        try:
            self._executor.update_parameters(**{self.minutes: minutes, **given})
        except (NameError, TypeError) as error:
            said = str(error).split("\n")[0].rstrip(" :")
            raise UsageError(
                f"--engine-option: {said}; submitit's documentation lists them"
            ) from None

    def _made(self, jobs: int | None) -> Any:
        """The executor."""
        raise NotImplementedError

    def _told(self, options: Mapping[str, str]) -> None:
        """Refuse what the executor would pass over."""

    def submit(self, attempts: Sequence[Path]) -> list[str]:
        """Give them to the executor, as one array where it has arrays."""
        # What a process ignores, its children do: Ctrl-C in this terminal is not meant for them.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with self._executor.batch():
                jobs = [self._executor.submit(run_attempt, str(path)) for path in attempts]
        except (self._submitit.core.utils.FailedJobError, OSError) as error:
            raise MachineError(f"{self.name} takes no job: {error}") from error
        finally:
            signal.signal(signal.SIGINT, before)
        return [self._id(job) for job in jobs]

    def _id(self, job: Any) -> str:
        return str(job.job_id)


class Local(_Submitit):
    """submitit's local executor: a process for each job, at once."""

    name = "submitit"
    minutes = "timeout_min"
    is_here = True

    def __init__(self, folder: Path, use: EngineUse, minutes: int) -> None:
        self.slots: int | None = use.jobs or 1
        super().__init__(folder, use, minutes)

    def _made(self, jobs: int | None) -> Any:
        return self._submitit.LocalExecutor(self.folder)

    def submit(self, attempts: Sequence[Path]) -> list[str]:
        """Start a process for each."""
        with _silent():
            return super().submit(attempts)

    def _told(self, options: Mapping[str, str]) -> None:
        unknown = next((name for name in options if name not in _LOCAL), None)
        if unknown is not None:  # submitit would pass over it
            raise UsageError(
                f"--engine-option {unknown}: submitit's local executor takes {', '.join(_LOCAL)}"
            )

    def _id(self, job: Any) -> str:
        return processes.name_of(int(job.job_id))

    def states(self, jobs: Sequence[str]) -> Mapping[str, JobState]:
        """Whether the processes live."""
        return {job: JobState(gone=not processes.lives(job)) for job in jobs}

    def cancel(self, jobs: Sequence[str]) -> None:
        """Ask submitit's processes to end; they pass it on."""
        for job in jobs:
            processes.end(job)


class Slurm(_Submitit):
    """Slurm, by submitit's job arrays. It is asked by squeue; sacct is not needed."""

    name = "Slurm"
    minutes = "time"
    is_here = False
    slots = None

    def _made(self, jobs: int | None) -> Any:
        if shutil.which("sbatch") is None:
            raise MachineError("there is no sbatch: run this where Slurm's commands are installed")
        executor = self._submitit.SlurmExecutor(self.folder)
        executor.update_parameters(job_name="kbtool", array_parallelism=jobs or 256)
        return executor

    def states(self, jobs: Sequence[str]) -> Mapping[str, JobState]:
        """What squeue lists is there; of the rest, what scontrol still knows."""
        arrays = sorted({job.partition("_")[0] for job in jobs})
        listed = _asked(["squeue", "-h", "-r", "-o", "%i %T", "-t", "all", "-j", ",".join(arrays)])
        if listed is None:
            return {}
        now = dict(line.split(maxsplit=1) for line in listed.splitlines() if " " in line)
        return {job: _state(now.get(job)) for job in jobs}

    def cancel(self, jobs: Sequence[str]) -> None:
        """scancel."""
        if jobs:
            _asked(["scancel", *jobs])


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Give processes that are started no output of this one: who reads it waits for its end."""
    kept = [(one, os.dup(one)) for one in (1, 2)]
    try:
        with Path(os.devnull).open("wb") as nothing:
            for one, _ in kept:
                os.dup2(nothing.fileno(), one)
            yield
    finally:
        for one, copy in kept:
            os.dup2(copy, one)
            os.close(copy)


_LOCAL = ("timeout_min", "gpus_per_node", "signal_delay_s", "setup")
"""What submitit's local executor does something with."""

_ENDS: dict[str, CellStatus] = {
    "CANCELLED": "interrupted",
    "PREEMPTED": "preempted",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "NODE_FAIL": "lost",
    "BOOT_FAIL": "lost",
    "FAILED": "lost",
    "OUT_OF_MEMORY": "lost",
    "COMPLETED": "lost",
    "REVOKED": "lost",
}
"""State of Slurm → what became of an attempt that did not say so itself."""


def _state(said: str | None) -> JobState:
    """The state of a job; Slurm forgets a job some minutes after its end."""
    if said is None:
        return JobState(gone=True, message="Slurm does not know the job any more")
    if said in _ENDS:
        return JobState(gone=True, why=_ENDS[said], message=f"Slurm says {said}")
    return JobState(gone=False)


def _asked(command: list[str]) -> str | None:
    """What a command of Slurm prints; ``None`` if its controller does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:
        return done.stdout
    # Of jobs that it has forgotten, and of no others, it says so.
    return "" if "Invalid job id" in done.stderr else None
