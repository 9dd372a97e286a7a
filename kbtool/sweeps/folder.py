"""The files of a sweep under way: ``.kbtool/sweeps/ID``.

    bundles/COMMIT.tar            what the machines get
    cells/NUMBER/ATTEMPT/         one attempt of a cell:
        request.json              what to run, written before the engine is asked
        job                       the engine's id of it, written after
        claim.json                who has it: the job that began, or kbtool that gave it up
        run.json                  the run that it made
        ended.json                how it ended; the last that a job writes
        log                       what it printed
    paused, stopped               asked for, from any terminal
    drive.lock                    held by the process that drives it

Only the job writes claim.json of an attempt that runs, and only once: whoever creates the file
first, the job or a kbtool that gave the attempt up, has decided whether it runs. So kbtool and jobs
may be killed at any moment, and no attempt runs twice or counts twice.
"""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from kbtool.store.private import private_folder
from kbtool.store.write import write_atomic, write_new

GIVEN_UP = "given up"
"""The job of a claim by which kbtool keeps a job that has not begun from running."""


class Claim(NamedTuple):
    """Who has an attempt, since when, and where."""

    job: str
    started: datetime
    machine: str | None
    cards: int


class End(NamedTuple):
    """How an attempt ended."""

    ended: datetime
    status: int | None
    """The exit status of `kbtool run-recipe`; ``None`` if it did not run."""
    signal: str | None
    """The signal by which the engine ended it."""
    message: str | None


class AttemptFolder(NamedTuple):
    """The files of one attempt."""

    path: Path

    @property
    def job(self) -> str | None:
        """The engine's id of it, if that is known."""
        claim = self.claim
        if claim is not None and claim.job != GIVEN_UP:
            return claim.job
        with contextlib.suppress(OSError):
            return (self.path / "job").read_text("utf-8")
        return None

    @property
    def claim(self) -> Claim | None:
        """Who has it; ``None`` if nobody has yet."""
        data = _read(self.path / "claim.json")
        if data is None:
            return None
        started = datetime.fromisoformat(data["started"])
        return Claim(data["job"], started, data["machine"], data["cards"])

    @property
    def end(self) -> End | None:
        """How it ended; ``None`` if it has not, or nobody wrote it."""
        data = _read(self.path / "ended.json")
        if data is None:
            return None
        ended = datetime.fromisoformat(data["ended"])
        return End(ended, data["status"], data["signal"], data["message"])

    @property
    def last_words(self) -> str | None:
        """The last line that it printed."""
        with contextlib.suppress(OSError):
            lines = (self.path / "log").read_text("utf-8", "replace").strip().splitlines()
            return lines[-1][:500] if lines else None
        return None

    @property
    def run(self) -> Path | None:
        """The record of its run, if there is one."""
        path = self.path / "run.json"
        return path if path.exists() else None

    def create(self, request: dict[str, Any]) -> None:
        """Make it, with what is to run."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path / "request.json", json.dumps(request, indent=1).encode())

    def request(self) -> dict[str, Any]:
        """What is to run.

        Raises:
            OSError: there is none.
        """
        data: dict[str, Any] = json.loads((self.path / "request.json").read_bytes())
        return data

    def queued_as(self, job: str) -> None:
        """Note the engine's id of it."""
        write_atomic(self.path / "job", job.encode())

    def claimed_by(self, claim: Claim) -> bool:
        """Take it for a job, or give it up; false if another was quicker."""
        data = claim._replace(started=claim.started.isoformat())._asdict()  # type: ignore[arg-type]
        try:
            write_new(self.path / "claim.json", json.dumps(data).encode())
        except FileExistsError:
            return False
        return True

    def ended_by(self, end: End) -> None:
        """Note how it ended."""
        data = end._replace(ended=end.ended.isoformat())._asdict()  # type: ignore[arg-type]
        write_atomic(self.path / "ended.json", json.dumps(data).encode())


class SweepFolder(NamedTuple):
    """The files of one sweep."""

    path: Path

    @classmethod
    def of(cls, root: Path, sweep: str) -> SweepFolder:
        """Those of the sweep of this id."""
        return cls(private_folder(root, "sweeps") / sweep)

    def bundle(self, commit: str | None) -> Path:
        """The archive of a commit, or of the work tree."""
        return self.path / "bundles" / f"{commit or 'work-tree'}.tar"

    def attempts(self, cell: str) -> list[AttemptFolder]:
        """Those of a cell, oldest first."""
        folder = self.path / "cells" / cell
        found = [one for one in folder.glob("*") if one.name.isdecimal()]
        return [AttemptFolder(one) for one in sorted(found, key=lambda one: int(one.name))]

    def attempt(self, cell: str, number: int) -> AttemptFolder:
        """One attempt of a cell, from 1."""
        return AttemptFolder(self.path / "cells" / cell / str(number))

    def is_asked(self, what: str) -> bool:
        """Whether somebody asked it to be ``paused`` or ``stopped``."""
        return (self.path / what).exists()

    def ask(self, what: str) -> None:
        """Ask it to be ``paused`` or ``stopped``."""
        write_atomic(self.path / what, b"")

    def withdraw(self) -> None:
        """Let it go on."""
        for what in ("paused", "stopped"):
            (self.path / what).unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data
