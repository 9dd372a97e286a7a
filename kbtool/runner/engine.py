"""Run a recipe: steps in order, gates, deadlines, and one immutable run record."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kbtool.gpu.toolchain import (
    find_compiler,
    find_ninja,
    find_nvcc,
    find_profiler,
    find_sanitiser,
    find_torch,
)
from kbtool.model.errors import MachineError, RecordError, UsageError, UserError
from kbtool.model.identity import Identity
from kbtool.model.kinds import StepResult
from kbtool.model.kinds.base import Need, StepBase
from kbtool.model.mutant import Mutant
from kbtool.model.pattern import Pattern
from kbtool.model.recipe import Recipe
from kbtool.model.run import MachineInfo, Run, RunStatus, StepRecord
from kbtool.runner.clock import Clock
from kbtool.runner.explain import matching
from kbtool.runner.history import expected_seconds, past_runs
from kbtool.runner.journal import Journal, journal_path, run_id, write_run
from kbtool.runner.progress import Reporter
from kbtool.runner.resume import Resumption
from kbtool.runner.signals import signals_ignored, signals_interrupt
from kbtool.steps import KINDS
from kbtool.steps.base import Context, Outcome
from kbtool.store.repository import repository_state
from kbtool.store.tree import KnowledgeBase
from kbtool.store.turn import BusyError

JOURNAL_SECONDS = 5.0
"""At most this many seconds of a step's results are lost if kbtool is killed."""


@dataclass(frozen=True)
class Job:
    """A recipe to run, and where its record goes."""

    base: KnowledgeBase
    pattern: Pattern
    recipe: Recipe
    """With its parameters bound."""
    parameters: dict[str, str]
    machine: MachineInfo
    wait: bool = True
    """Whether a step that measures waits for another run that does."""


def make_context(job: Job) -> Context:
    """A fresh context for the job's steps; the seed of its inputs is drawn here."""
    kernel = job.base.kernels.get(job.recipe.kernel) if job.recipe.kernel else None
    if job.recipe.kernel and kernel is None:
        raise _no_kernel(job, job.recipe.kernel)
    return Context(
        root=job.base.root,
        kernel=kernel.record if kernel else None,
        machine=job.machine,
        wait=job.wait,
        seed=secrets.randbelow(2**31 - 1) + 1,
        identity=Identity(problem=job.base.digests([kernel.path])) if kernel else Identity(),
        mutants=_mutants(job) if any(s.kind == "mutants" for s in job.recipe.steps) else [],
        ablations=[
            (pattern.record.id, ablation)
            for pattern in job.base.patterns.values()
            for ablation in pattern.record.ablations
            if ablation.kernel == job.recipe.kernel
        ],
    )


def _no_kernel(job: Job, id_: str) -> UserError:
    """The error for a kernel that is missing or does not load."""
    path = f"kernels/{id_}/kernel.yaml"
    works = f"recipe {job.recipe.name} works on kernel {id_},"
    if not (job.base.root / path).exists():
        return UserError(f"{works} but there is no {path}")
    unsound = next((found for found in job.base.findings if found.path == path), None)
    why = f"{unsound}; `kbtool check` lists all" if unsound else f"{path}: see `kbtool check`"
    return RecordError(f"{works} which does not load; correct it first:\n  {why}")


def _mutants(job: Job) -> list[tuple[str, Mutant]]:
    """The mutants of the job's kernel, each with its bug, in the order of the sessions."""
    known = [
        (f"{entry.record.id}#bugs.{bug.id}", mutant)
        for entry in job.base.sessions.values()
        for bug in entry.record.bugs
        for mutant in bug.mutants
        if mutant.kernel == job.recipe.kernel
    ]
    if job.base.findings:
        # An unreadable record may hold mutants, which must not be skipped silently.
        raise RecordError(f"{job.base.findings[0]}; `kbtool check` lists all")
    return known


def plan(job: Job) -> Iterator[tuple[StepBase, list[str], str | None]]:
    """Each step, what it would do, and why the run would stop there. Writes nothing.

    Ends at the first step that would stop the run.

    Raises:
        UsageError: as ``preflight``.
    """
    for step, lines, problem in preflight(job):
        missing = "; ".join(_missing_needs(step, job.machine))
        yield step, [] if missing else lines, missing or problem
        if missing or problem:
            return


def preflight(job: Job) -> list[tuple[StepBase, list[str], str | None]]:
    """Each step, what it would do, and what the machine lacks for it. Detects errors in the recipe
    before anything is written.

    Raises:
        UsageError: a step names a case set, a target or a path that is not there.
    """
    context = make_context(job)
    planned: list[tuple[StepBase, list[str], str | None]] = []
    for step in job.recipe.steps:
        try:
            planned.append((step, KINDS[step.kind].plan(step, context), None))
        except MachineError as error:
            planned.append((step, [], str(error)))
    return planned


def refuse_in_vain(planned: list[tuple[StepBase, list[str], str | None]]) -> None:
    """Refuse a run that would build a library for steps that this machine cannot take.

    Raises:
        MachineError: what the machine lacks.
    """
    first = next(((step, problem) for step, _, problem in planned if problem is not None), None)
    if first is not None and first[0].does:
        raise MachineError(f"{first[0].id}: {first[1]}")


def execute(
    job: Job,
    session: str,
    report: Reporter,
    resumption: Resumption | None = None,
    clock: Clock | None = None,
) -> tuple[Run, Path]:
    """Run the recipe's steps and write the record.

    Ctrl-C, SIGTERM and SIGHUP end the step that runs, with all its processes, and are recorded.

    Args:
        job: what to run.
        session: the id of the session that the record is appended to.
        report: receives progress.
        resumption: the earlier attempt to resume.
        clock: gives the times of the run; it starts with it unless given.

    Returns:
        The record and its path.

    Raises:
        MachineError: the record could not be written; the message says where it is kept.
    """
    with signals_interrupt():
        return _Execution(job, session, report, resumption, clock or Clock()).run()


class _Execution:
    def __init__(
        self,
        job: Job,
        session: str,
        report: Reporter,
        resumption: Resumption | None,
        clock: Clock,
    ) -> None:
        self.job = job
        self.report = report
        self.context = make_context(job)
        self.clock = clock
        self.started = clock.started
        self.session = session
        self.repository = repository_state(job.base.root)
        self.id = resumption.run.id if resumption else run_id(self.started, job.recipe.name)
        self.context.run = self.id
        self.attempt = resumption.run.attempt + 1 if resumption else 1
        kept = resumption.kept if resumption else {}
        runs = past_runs(job.base, job.recipe.name, job.parameters, job.machine)
        self.records = [
            kept.get(step.id) or self._not_run(step, *expected_seconds(step, runs))
            for step in job.recipe.steps
        ]
        self.kept = set(kept)
        if resumption:
            resumption.restore(self.context)
        self.folder = job.base.root / "sessions" / session / "runs"
        self.journal: Journal
        self.found: StepResult | None = None
        """What the step under way has found so far."""
        self.journalled = 0.0
        """When that was last written to the journal, by ``time.monotonic``."""

    def run(self) -> tuple[Run, Path]:
        self.context.on_line = self.report.output
        self.context.on_progress = self.report.item
        self.context.on_waiting = self.report.waiting
        self.context.on_tick = self.report.tick
        self.context.on_identity = lambda identity: self.journal.identity(identity)
        self.report.run_started(
            self.id, self.session, [record.expected_seconds for record in self.records]
        )
        path = journal_path(self.folder, self.id, self.attempt)
        try:
            self.journal = Journal(path, self._run("interrupted"))
        except FileExistsError:
            raise UsageError(
                f"another process makes attempt {self.attempt} of run {self.id} now; wait for it"
            ) from None
        status: RunStatus = "passed"
        try:
            for index, step in enumerate(self.job.recipe.steps):
                if step.id in self.kept:
                    self.report.step_kept(index + 1, len(self.records), self.records[index])
                    continue
                status = self._step(index, step)
                if status != "passed":
                    break
        except BaseException as error:
            # A bug, or Ctrl-C between two steps: record the results so far, then let it pass.
            with signals_ignored():
                interrupted = isinstance(error, KeyboardInterrupt)
                self._finish("interrupted" if interrupted else "crashed")
            raise
        with signals_ignored():
            return self._finish(status)

    def _step(self, index: int, step: StepBase) -> RunStatus:
        started = self.clock.now()
        begun = self.records[index].model_copy(
            update={"status": "interrupted", "started": started, "attempt": self.attempt,
                    "message": "kbtool ended while this step ran"}
        )  # fmt: skip
        self.records[index] = begun
        self.journal.step(begun)
        self.found = None
        self.report.step_started(index + 1, len(self.records), begun)
        clock = time.monotonic()
        timeout = float(step.timeout.minutes * 60)
        self.context.deadline = clock + timeout
        self.context.waited = 0.0
        self.context.expected_s = begun.expected_seconds
        self.context.on_found = lambda result: self._found(index, result)
        outcome = self._outcome(step)
        text = outcome.symptoms
        if outcome.status != "passed":
            text = "\n".join(filter(None, (outcome.output, outcome.error, outcome.message)))
        base = self.job.base
        matches = (
            matching((e.record for e in base.patterns.values()), text, base.catalogue.values())
            if text
            else []
        )
        # What was found before a gate was seen to be open wrongly counts as little as what follows.
        found = None if outcome.status == "refused" else self.found
        ended = begun.model_copy(
            update={"status": outcome.status, "message": outcome.message, "error": outcome.error,
                    "seconds": round(time.monotonic() - clock - self.context.waited, 3),
                    "result": outcome.result or found,
                    "patterns": list(dict.fromkeys(
                        id_ for match in matches for id_ in match.patterns if id_ in base.patterns
                    ))}
        )  # fmt: skip
        self.records[index] = ended
        self.journal.step(ended)
        self.report.step_ended(ended, matches, outcome.output)
        return _RUN_STATUS[outcome.status]

    def _outcome(self, step: StepBase) -> Outcome:
        missing = _missing_needs(step, self.job.machine)
        if missing:
            return Outcome("unavailable", "; ".join(missing))
        try:
            return KINDS[step.kind].run(step, self.context)
        except KeyboardInterrupt:
            return Outcome("interrupted", "interrupted; its processes were stopped")
        except BusyError as error:
            return Outcome("noisy", str(error))
        except MachineError as error:
            return Outcome("unavailable", str(error))
        except UserError as error:
            return Outcome("failed", str(error))

    def _found(self, index: int, result: StepResult) -> None:
        """Write the results of a step so far to the journal, in case kbtool is killed."""
        self.found = result
        self.records[index] = self.records[index].model_copy(update={"result": result})
        if time.monotonic() - self.journalled > JOURNAL_SECONDS:
            self.journal.step(self.records[index])
            self.journalled = time.monotonic()

    def _finish(self, status: RunStatus) -> tuple[Run, Path]:
        after = repository_state(self.job.base.root)
        self.repository = self.repository.model_copy(
            update={"changed_during_run": self.repository.changed_to(after)}
        )
        try:
            run, path = write_run(self.job.base, self._run(status))
        except MachineError:
            self.journal.close(keep=True)
            raise
        self.journal.close()
        self.report.run_ended(run)
        return run, path

    def _run(self, status: RunStatus) -> Run:
        return Run(
            id=self.id,
            attempt=self.attempt,
            session=self.session,
            recipe=self.job.recipe.name,
            pattern=self.job.pattern.id,
            kernel=self.job.recipe.kernel,
            parameters=self.job.parameters,
            status=status,
            started=self.started,
            ended=self.clock.now(),
            machine=self.job.machine,
            repository=self.repository,
            steps=self.records,
            identity=self.context.identity if self.context.kernel else None,
        )

    def _not_run(self, step: StepBase, expected: float, from_history: bool) -> StepRecord:
        return StepRecord(
            id=step.id,
            kind=step.kind,
            title=step.title,
            status="not-run",
            expected_seconds=round(expected, 3),
            expected_from="history" if from_history else "declared",
        )


_RUN_STATUS: dict[str, RunStatus] = {
    "passed": "passed",
    "noisy": "noisy",
    "failed": "failed",
    "refused": "failed",
    "unavailable": "unavailable",
    "timeout": "timeout",
    "interrupted": "interrupted",
    "crashed": "crashed",
}


_FINDERS: dict[Need, Callable[[], object]] = {
    "compiler": find_compiler,
    "ninja": find_ninja,
    "torch": find_torch,
    "nvcc": find_nvcc,
    "profiler": find_profiler,
    "sanitiser": find_sanitiser,
}


def _missing_needs(step: StepBase, machine: MachineInfo) -> list[str]:
    """What the step needs and the machine lacks, each with how to get it."""
    problems = []
    for need in step.needs:
        if need == "gpu":
            if machine.card is None:
                problems.append("no gpu: run it on a machine with an NVIDIA card and its driver")
        elif need == "several_gpus":
            if (cards := machine.cards or 0) < 2:
                problems.append(
                    f"{cards} gpu{'s' if cards != 1 else ''}: run it on a machine with two NVIDIA"
                    " cards or more"
                )
        else:
            try:
                _FINDERS[need]()
            except MachineError as error:
                problems.append(str(error))
    return problems
