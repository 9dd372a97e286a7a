"""A run that no recipe made: one step, which holds what a script logged or a file of a tool."""

from __future__ import annotations

from datetime import datetime

from kbtool.model.kinds.logged import ImportResult, LogResult
from kbtool.model.run import MachineInfo, RepositoryState, Run, RunStatus, StepRecord


def one_step_run(
    id_: str,
    session: str,
    title: str,
    result: LogResult | ImportResult,
    *,
    machine: MachineInfo,
    repository: RepositoryState,
    started: datetime,
    ended: datetime,
    seconds: float,
    status: RunStatus = "passed",
    message: str | None = None,
) -> Run:
    """The run; ``title`` is the script's or the file's name."""
    step = StepRecord(
        id=result.type,
        kind=result.type,
        title=title,
        status=status,
        started=started,
        seconds=round(seconds, 3),
        expected_seconds=0,
        expected_from="declared",
        message=message,
        result=result,
    )
    return Run(
        id=id_,
        session=session,
        recipe=None,
        pattern=None,
        parameters={},
        status=status,
        started=started,
        ended=ended,
        machine=machine,
        repository=repository,
        steps=[step],
    )
