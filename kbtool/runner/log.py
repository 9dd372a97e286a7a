"""Log values from any script into the run record of a session; see ``kbtool.session``.

Each process writes a run record of its own, whole, when the ``with`` statement ends. Until then
each value is a line in the journal of the run, so that ``kbtool recover`` finds the values of a
process that was killed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import ValidationError

from kbtool.checks.text_rules import WRITTEN_RULES, private
from kbtool.gpu.build_plan import sha256_of
from kbtool.gpu.probe import probe_machine
from kbtool.model.errors import MachineError, UsageError, first_problem
from kbtool.model.kinds.logged import Collector, LoggedValue, LogResult, Series, plain
from kbtool.model.run import RepositoryState, Run, RunStatus
from kbtool.model.words import many
from kbtool.runner.clock import Clock
from kbtool.runner.destination import destination
from kbtool.runner.journal import Journal, journal_path, run_id, write_run
from kbtool.runner.one_step import one_step_run
from kbtool.runner.signals import signals_ignored
from kbtool.store.edit import end_run_session
from kbtool.store.repository import repository_state
from kbtool.store.root import find_root
from kbtool.store.sessions import slug
from kbtool.store.tree import KnowledgeBase

NAMING = 'kbtool.session("{}")'
"""How a script names a session, for messages."""
INTERACTIVE = "interactive Python"
"""What stands for the script where Python reads none from a file."""


class SessionLog:
    """Takes values of a script; ``kbtool.session`` makes one."""

    def __init__(self, name: str | None, root: str | Path | None) -> None:
        self._name = name
        self._root = root
        self._values = Collector()
        self._lock = threading.Lock()
        self._process: int | None = None
        self._journal: Journal | None = None

    def __enter__(self) -> SessionLog:
        """Choose the session, and note script, machine and commit.

        Raises:
            UserError: there is no knowledge base, or no session that the values could go to.
        """
        if self._process == os.getpid():
            raise UsageError("kbtool.session: this one is open already; log to it, or make another")
        self._base = KnowledgeBase(find_root(self._root, "root=DIR"))
        self._script, self._sha256, self._inside = _script(self._base.root)
        self._machine = probe_machine()
        title = f"Run of script {self._script}"
        self._session = destination(self._base, self._machine, self._name, title, NAMING)
        self._repository = self._state()
        self._clock = Clock()
        self._began = time.monotonic()
        self._process = os.getpid()
        return self

    def log(
        self,
        name: str,
        value: float,
        *,
        unit: str | None = None,
        better: str = "neither",
        case: Mapping[str, Any] | None = None,
    ) -> None:
        """Log one value of a metric. Values of one metric on one case are samples of it.

        Args:
            name: what is measured: ``tokens/s``.
            value: a finite number, of numpy or torch too.
            unit: its unit: ``1/s``, ``GB/s``, ``J``; ``1`` of a pure number.
            better: ``lower``, ``higher`` or ``neither``.
            case: the shape and settings that it was measured with.

        Raises:
            UsageError: the value is not finite, there is no unit, the metric has another one, the
                case is no mapping, or there is an address, a secret or a path of a machine in it,
                which no record may hold.
        """
        if self._process != os.getpid():
            raise UsageError(
                "log: write `with kbtool.session() as s:` first"
                if self._process is None
                else f"log: process {self._process} opened this session; each process opens its"
                " own: `with kbtool.session() as s:`"
            )
        if not isinstance(case, Mapping | None):
            raise UsageError(
                f"log({name!r}): case: {case!r} is no mapping: write one, such as {{'batch': 8}}"
            )
        fields = {key: plain(of) for key, of in (case or {}).items()}
        try:
            entry = LoggedValue.model_validate(
                {"name": name, "value": plain(value), "unit": unit, "better": better,
                 "case": fields}
            )  # fmt: skip
            if (found := private(entry.model_dump(mode="json"))) is not None:
                raise ValueError(f"it {found[1]}")
            with self._lock:
                self._values.add(entry)
                if self._journal is None:
                    self._begin()
                assert self._journal is not None
                self._journal.value(entry)
        except ValidationError as error:
            raise UsageError(f"log({name!r}): {first_problem(error)}") from None
        except ValueError as error:
            raise UsageError(f"log({name!r}): {error}") from None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the run record; none where nothing was logged."""
        if self._process != os.getpid() or self._journal is None:
            self._process = None
            return
        self._process = None
        status, message = _how(error)
        with signals_ignored():
            after = self._state()
            self._repository = self._repository.model_copy(
                update={"changed_during_run": self._repository.changed_to(after)}
            )
            run = self._run(status, self._values.series, message)
            try:
                _, path = write_run(self._base, run)
            except MachineError:
                self._journal.close(keep=True)
                raise
            self._journal.close()
            record = self._base.root / "sessions" / run.session / "session.yaml"
            end_run_session(record, run.started.astimezone(), run.ended.astimezone())
        logged = many(len(self._values), "value")
        self._journal, self._values = None, Collector()
        print(f"kbtool: logged {logged}: {self._base.shown(path)}", file=sys.stderr)

    def _state(self) -> RepositoryState:
        """The commit of the script; unknown of one that is no file of the knowledge base."""
        if not self._inside:
            return RepositoryState()
        return repository_state(self._base.root, self._script)

    def _begin(self) -> None:
        """Make the journal of the run."""
        runs = self._base.root / "sessions" / self._session / "runs"
        while self._journal is None:
            self._id = run_id(self._clock.started, slug(Path(self._script).stem, "script"))
            try:
                message = "the script ended before its record was written"
                header = self._run("interrupted", [], message)
                journal = Journal(journal_path(runs, self._id, 1), header)
            except FileExistsError:  # another process has the same id; draw another one
                continue
            if (runs / f"{self._id}.json").exists():  # it has ended already
                journal.close()
                continue
            self._journal = journal

    def _run(self, status: RunStatus, metrics: list[Series], message: str | None) -> Run:
        return one_step_run(
            self._id,
            self._session,
            self._script,
            LogResult(sha256=self._sha256, metrics=metrics),
            machine=self._machine,
            repository=self._repository,
            started=self._clock.started,
            ended=self._clock.now(),
            seconds=time.monotonic() - self._began,
            status=status,
            message=message,
        )


def _script(root: Path) -> tuple[str, str | None, bool]:
    """The script that Python was started with, its SHA-256, and whether it is under ``root``."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    path = Path(file).resolve() if file else None
    if path is None or not path.is_file():
        return INTERACTIVE, None, False
    inside = path.is_relative_to(root.resolve())
    name = path.relative_to(root.resolve()).as_posix() if inside else path.name
    return name, sha256_of(path), inside


def _how(error: BaseException | None) -> tuple[RunStatus, str | None]:
    """How a script ended, and why."""
    if error is None or (isinstance(error, SystemExit) and error.code in {None, 0}):
        return "passed", None
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "interrupted"
    message = f"{type(error).__name__}: {error}"[:1000]
    if private(message, WRITTEN_RULES) is not None:
        message = type(error).__name__
    return "failed", message
