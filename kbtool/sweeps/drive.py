"""Drive a sweep: give cells to the engine, see how they end, bring their runs home.

All that is known lies in the sweep's record and in its folder, so that kbtool may be killed at any
moment: whoever drives it next reads both and goes on. What a job has claimed is its own; what none
has claimed can be given up, and tried anew (see ``folder``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from signal import Signals

from kbtool.model.machine_path import without_machine_paths
from kbtool.model.run import Run
from kbtool.model.sweep import TRANSIENT, UNDER_WAY, Attempt, Cell, CellStatus, Sweep
from kbtool.runner.intake import import_runs
from kbtool.store.document import DocumentError, read_bytes
from kbtool.store.edit import end_run_session
from kbtool.store.read import MAX_RUN_BYTES
from kbtool.store.sweeps import write_sweep
from kbtool.store.tree import KnowledgeBase, open_run
from kbtool.sweeps.engines import Engine, JobState
from kbtool.sweeps.folder import GIVEN_UP, AttemptFolder, Claim, End, SweepFolder

LOOK_S = 0.5
"""Seconds between two looks at the engine, where nothing happens; up to ten times as many for an
engine elsewhere."""
GONE_S = 10.0
"""Seconds for which a job of an engine elsewhere may be gone before its end shows here: file
systems of clusters are late."""


class Driver:
    """The process that drives a sweep; there is one at a time, who holds its lock."""

    def __init__(
        self,
        base: KnowledgeBase,
        sweep: Sweep,
        engine: Engine,
        tell: Callable[[Sweep, Cell | None], None],
    ) -> None:
        self.base = base
        self.sweep = sweep
        self.engine = engine
        self.folder = SweepFolder.of(base.root, sweep.id)
        self.tell = tell
        self._gone: dict[Path, float] = {}
        self._changed = False

    def run(self) -> Sweep:
        """Drive it until no cell is left to run, or somebody asks it to pause or to stop.

        Raises:
            MachineError: the engine takes no job.
        """
        self._set(status="running", ended=None)
        self._take_over()
        wait = LOOK_S
        while True:
            self._changed = False
            self._look()
            stopped = self.folder.is_asked("stopped")
            if stopped:
                self._cancel()
            elif not self.folder.is_asked("paused"):
                self._submit()
            if self._changed:
                write_sweep(self.base.root, self.sweep)
            self.tell(self.sweep, None)
            if not self._active():
                break
            wait = LOOK_S if self._changed or self.engine.is_here else min(wait * 1.5, 10 * LOOK_S)
            time.sleep(wait)
        waits = any(cell.status == "waiting" for cell in self.sweep.cells)
        self._set(status="stopped" if stopped else "paused" if waits else "ended", ended=_now())
        write_sweep(self.base.root, self.sweep)
        return self.sweep

    def _active(self) -> list[Cell]:
        return [cell for cell in self.sweep.cells if cell.status in UNDER_WAY]

    def _take_over(self) -> None:
        """Note what an earlier kbtool had asked for and could not note in the record."""
        for cell in self.sweep.cells:
            for attempt in self.folder.attempts(cell.id)[len(cell.attempts) :]:
                queued = datetime.fromtimestamp(attempt.path.stat().st_mtime, UTC)
                self._attempt(cell.id, Attempt(job=attempt.job, queued=queued, status="queued"))
        for cell in self._active():
            attempt = self.folder.attempt(cell.id, len(cell.attempts))
            if attempt.job is None:
                # Whether the engine has it, nobody knows: it may not begin any more.
                attempt.claimed_by(Claim(GIVEN_UP, _now(), None, 0))

    def _look(self) -> None:
        """See what became of the attempts under way."""
        active = self._active()
        folders = {cell.id: self.folder.attempt(cell.id, len(cell.attempts)) for cell in active}
        jobs = {id_: job for id_, folder in folders.items() if (job := folder.job)}
        states = self.engine.states(list(jobs.values())) if jobs else {}
        # The engine first, then the files: what is gone by now has written its end.
        over = []
        for cell in active:
            folder = folders[cell.id]
            claim, end = folder.claim, folder.end
            given_up = claim is not None and claim.job == GIVEN_UP
            state = states.get(jobs.get(cell.id, ""))
            if end is not None and not given_up:
                # Why the engine ended a job, it tells only once the job is gone.
                if end.signal is None or self.engine.is_here or (state and state.gone):
                    over.append((cell, folder, state))
                continue
            if given_up or (state is not None and self._is_gone(folder, state)):
                self._lost(cell, folder, state)
            elif claim is not None and cell.status == "queued":
                started = cell.attempts[-1].model_copy(
                    update={"status": "running", "started": claim.started, "job": claim.job,
                            "machine": claim.machine, "cards": claim.cards}
                )  # fmt: skip
                self._attempt(cell.id, started, replace=True)
        if over:
            self._take_home(over)

    def _is_gone(self, folder: AttemptFolder, state: JobState) -> bool:
        if not state.gone:
            self._gone.pop(folder.path, None)
            return False
        since = self._gone.setdefault(folder.path, time.monotonic())
        return self.engine.is_here or time.monotonic() - since > GONE_S

    def _lost(self, cell: Cell, folder: AttemptFolder, state: JobState | None) -> None:
        """An attempt whose job is gone without a word, or that was given up."""
        claim = folder.claim
        if claim is None and not folder.claimed_by(Claim(GIVEN_UP, _now(), None, 0)):
            return  # it began just now: look again
        if folder.end is not None:
            return
        claim = claim if claim is not None and claim.job != GIVEN_UP else None
        why: CellStatus = state.why if state else "lost"
        message = state.message if state else "kbtool ended before the engine had answered"
        if self.folder.is_asked("stopped"):
            why, message = "interrupted", "the sweep was stopped"
        self._over(
            cell, why, message=message or folder.last_words or "its job ended without a word",
            started=claim.started if claim else None,
            machine=claim.machine if claim else None, cards=claim.cards if claim else 0,
        )  # fmt: skip

    def _take_home(self, over: Sequence[tuple[Cell, AttemptFolder, JobState | None]]) -> None:
        """Import the runs of attempts that have ended, all at once, without those refused."""
        runs: dict[str, Run] = {}
        refused: dict[str, str] = {}
        files: dict[Path, str] = {}
        for cell, folder, _ in over:
            path = folder.run
            if path is None:
                continue
            try:
                runs[cell.id] = open_run(read_bytes(path, path.name, MAX_RUN_BYTES))[0]
                files[path] = cell.id
            except (DocumentError, ValueError) as error:
                refused[cell.id] = str(error)
        while files:
            intake = import_runs(self.base.root, files, session=self.sweep.session)
            if not intake.refused:
                break
            for finding in intake.refused:
                for path in [one for one in files if str(one) == finding.path] or list(files):
                    refused[files.pop(path)] = f"{finding.rule}: {finding.message}"
        session = self.base.root / "sessions" / self.sweep.session / "session.yaml"
        for id_, run in runs.items():
            if id_ not in refused:
                end_run_session(session, run.started.astimezone(), run.ended.astimezone())
        for cell, folder, state in over:
            claim, end = folder.claim, folder.end
            assert claim is not None and end is not None
            ran = runs.get(cell.id)
            why, message = _verdict(ran, end, state)
            if cell.id in refused:
                why, message, ran = "refused", refused[cell.id], None
            busy = sum(step.seconds or 0.0 for step in ran.steps) if ran else None
            self._over(
                cell, why, message=message, ended=end.ended, started=claim.started,
                job=claim.job, machine=claim.machine, cards=claim.cards,
                run=ran.id if ran else None, busy_s=None if busy is None else round(busy, 3),
            )  # fmt: skip

    def _submit(self) -> None:
        """Give waiting cells to the engine, as many as it takes."""
        waiting = [cell for cell in self.sweep.cells if cell.status == "waiting"]
        if self.engine.slots is not None:
            waiting = waiting[: max(0, self.engine.slots - len(self._active()))]
        if not waiting:
            return
        folders = []
        for cell in waiting:
            folder = self.folder.attempt(cell.id, len(cell.attempts) + 1)
            folder.create({
                "sweep": self.sweep.id, "cell": cell.id, "recipe": self.sweep.recipe,
                "parameters": cell.parameters, "session": self.sweep.session,
                "engine": self.sweep.engine.name,
                "archive": str(self.folder.bundle(cell.commit)),
                "digest": self.sweep.bundles[cell.commit or WORK_TREE],
            })  # fmt: skip
            folders.append(folder)
        jobs = self.engine.submit([folder.path for folder in folders])
        for cell, folder, job in zip(waiting, folders, jobs, strict=True):
            folder.queued_as(job)
            self._attempt(cell.id, Attempt(job=job, queued=_now(), status="queued"))

    def _cancel(self) -> None:
        """End what is under way: what has not begun is given up first."""
        jobs = []
        for cell in self._active():
            folder = self.folder.attempt(cell.id, len(cell.attempts))
            folder.claimed_by(Claim(GIVEN_UP, _now(), None, 0))
            if cell.attempts[-1].job:
                jobs.append(cell.attempts[-1].job)
        self.engine.cancel(jobs)

    def _over(
        self, cell: Cell, why: CellStatus, ended: datetime | None = None, **known: object
    ) -> None:
        """Note the end of the last attempt; a cell that the engine failed is tried again."""
        if isinstance(known.get("message"), str):
            known["message"] = without_machine_paths(str(known["message"]))
        attempt = cell.attempts[-1].model_copy(
            update={**known, "status": why, "ended": ended or _now()}
        )
        self._attempt(cell.id, attempt, replace=True)
        cell = self._cell(cell.id)
        self.tell(self.sweep, cell)
        failed = sum(one.status in TRANSIENT for one in cell.attempts)
        if why in TRANSIENT and failed < self.sweep.tries and not self.folder.is_asked("stopped"):
            self._put(waits_again(cell))

    def _cell(self, id_: str) -> Cell:
        return self.sweep.cells[int(id_) - 1]

    def _attempt(self, id_: str, attempt: Attempt, *, replace: bool = False) -> None:
        cell = self._cell(id_)
        earlier = cell.attempts[:-1] if replace else cell.attempts
        self._put(
            cell.model_copy(
                update={
                    "attempts": [*earlier, attempt],
                    "status": attempt.status,
                    "run": attempt.run,
                    "message": attempt.message,
                }
            )
        )

    def _put(self, cell: Cell) -> None:
        self.sweep.cells[int(cell.id) - 1] = cell
        self._changed = True

    def _set(self, **known: object) -> None:
        self.sweep = self.sweep.model_copy(update=known)


WORK_TREE = "work tree"
"""What stands for a commit where the work tree is run."""


def waits_again(cell: Cell) -> Cell:
    """A cell that is to run once more."""
    return cell.model_copy(update={"status": "waiting", "run": None, "message": None})


def prepare(base: KnowledgeBase, sweep: Sweep) -> Sweep:
    """Pack what its cells run, and write its record: from then on it can be driven."""
    from kbtool.store.carried import pack

    folder = SweepFolder.of(base.root, sweep.id)
    (folder.path / "bundles").mkdir(parents=True, exist_ok=True)
    commits: Iterable[str | None] = dict.fromkeys(
        cell.commit for cell in sweep.cells if cell.status == "waiting"
    )
    bundles = {
        commit or WORK_TREE: pack(base.root, commit, sweep.session, folder.bundle(commit))
        for commit in commits
    }
    sweep = sweep.model_copy(update={"bundles": bundles})
    write_sweep(base.root, sweep)
    return sweep


def _verdict(run: Run | None, end: End, state: JobState | None) -> tuple[CellStatus, str | None]:
    """How an attempt ended, and why where its run does not say it."""
    if run is not None and not (run.status == "interrupted" and end.signal):
        return run.outcome, None
    if end.signal is not None:
        if state is not None and state.why != "lost":
            return state.why, state.message or f"ended by {end.signal}"
        if end.signal == "SIGUSR2":
            return "timeout", "the engine's time limit was near"
        return "interrupted", f"ended by {end.signal}"
    if end.status is not None and end.status < 0:
        return "lost", f"its kbtool was killed by {Signals(-end.status).name}"
    if end.status == 3:
        return "unavailable", end.message
    return "failed", end.message or f"kbtool ended with status {end.status} and made no run"


def _now() -> datetime:
    return datetime.now(UTC)


def is_driven(folder: SweepFolder) -> bool:
    """Whether a process drives it now."""
    from kbtool.store.lock import is_locked

    return is_locked(folder.path / "drive.lock")
