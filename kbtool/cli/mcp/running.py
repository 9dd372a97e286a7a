"""The tool that runs a recipe, in a child process that ends when the call is cancelled."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import anyio
from anyio.abc import ByteReceiveStream, Process
from pydantic import Field

from kbtool.cli.mcp.answers import Used
from kbtool.gpu.process import watch
from kbtool.model.base import Output
from kbtool.model.errors import UsageError, UserError

PATIENCE_S = 60.0
"""So long a run that was told to end has for writing its record."""
_ITEMS_EVERY_S = 0.5

Report = Callable[[float, float, str], Awaitable[None]]
"""Takes progress: steps done, steps in all, and a line."""


class StepDone(Output):
    """A step of a run."""

    id: str
    status: str
    seconds: float | None
    message: str
    """What it found."""
    error: str | None
    """The first error; explain says what it means."""


class RunAnswer(Output):
    """A run that was made."""

    run: str
    """Its id, for get_record, explain and compare."""
    status: str
    """passed, failed, noisy (the times prove nothing: resume measures again), unavailable,
    timeout, interrupted, crashed."""
    session: str
    path: str
    """The record of the run."""
    steps: list[StepDone]
    headlines: list[dict[str, Any]]
    """The kernel against its peers, if the run timed any."""
    records: list[Used]


async def run_recipe(
    root: Path,
    report: Report,
    recipe: Annotated[str | None, Field(description="The name of a recipe.")] = None,
    settings: Annotated[
        dict[str, str] | None, Field(description="Parameters of the recipe: name → value.")
    ] = None,
    session: Annotated[
        str | None,
        Field(description="The session for the run, or 'new'. Default: the running session."),
    ] = None,
    resume: Annotated[
        str | None,
        Field(description="Instead of a recipe: continue this run where it did not pass."),
    ] = None,
) -> RunAnswer:
    """Run a recipe and append the run to a session: build, validate, measure. It may take minutes;
    plan_recipe says what it would do. Cancelling the call ends the run, and its record says so."""
    if (recipe is None) == (resume is None):
        raise UsageError("give one of recipe and resume")
    if resume is not None and (settings or session):
        raise UsageError("resume continues with the settings and the session of the run")
    arguments = [f"--resume={resume}"] if resume is not None else ["--", str(recipe)]
    options = [f"--set={name}={value}" for name, value in (settings or {}).items()]
    options += [f"--session={session}"] if session else []
    out, said = await _run(root, ["--json", "--progress=rawjson", *options, *arguments], report)
    return _answer(out, said)


async def _run(root: Path, arguments: list[str], report: Report) -> tuple[bytes, list[str]]:
    """What the run printed, and its last messages."""
    from kbtool.steps.worker import own_package  # imports all kinds of step

    command = [sys.executable, "-m", "kbtool", "--root", str(root), "run-recipe", *arguments]
    process = await anyio.open_process(
        command, cwd=root, env={**os.environ, **own_package()}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    watchdog = watch(process.pid)
    out: list[bytes] = []
    said: deque[str] = deque(maxlen=20)

    async def keep(stream: ByteReceiveStream) -> None:
        async for piece in stream:
            out.append(piece)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep, process.stdout)
            await _follow(process.stderr, report, said)
        await process.wait()
    finally:
        await _end(process)
        watchdog.kill()
        watchdog.communicate()
    return b"".join(out), list(said)


async def _end(process: Process) -> None:
    """Tell the run to end, if it goes on, and wait for its record."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.terminate()
            with anyio.move_on_after(PATIENCE_S):
                await process.wait()
        # What the run started and left behind; it has a session of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await process.aclose()


async def _follow(stream: ByteReceiveStream, report: Report, said: deque[str]) -> None:
    """Report the events of a run, which are lines of JSON; other lines are messages."""
    step, steps, told = 0, 1, 0.0
    async for line in _lines(stream):
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, TypeError, KeyError):
            said.append(line)
            continue
        now = time.monotonic()
        if kind == "run-started":
            steps = len(event["expected_seconds"]) or 1
            await report(0, steps, f"run {event['run']} in session {event['session']}")
        elif kind in {"step-started", "step-kept"}:
            step, steps = event["number"] - 1, event["total"]
            await report(step, steps, f"{event['step']} {kind.removeprefix('step-')}")
        elif kind == "item" and (now - told >= _ITEMS_EVERY_S or event["done"] == event["total"]):
            told = now
            share = event["done"] / max(event["total"], 1)
            await report(step + min(share, 1.0) * 0.99, steps,
                         f"{event['done']} of {event['total']}, {event['label']}")  # fmt: skip
        elif kind == "step-ended":
            await report(step + 1, steps, f"{event['step']} {event['status']}: {event['message']}")
        elif kind == "waiting":
            await report(step, steps, f"waiting for {event['what']}")


async def _lines(stream: ByteReceiveStream) -> AsyncIterator[str]:
    rest = b""
    async for piece in stream:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


def _answer(out: bytes, said: list[str]) -> RunAnswer:
    try:
        made: Mapping[str, Any] = json.loads(out)
        if "error" in made:
            raise UserError(made["error"]["message"])
        id_ = made["id"]
    except (ValueError, KeyError):
        lines = [line.removeprefix("kbtool: ") for line in said if line.strip()]
        raise UserError("\n".join(lines) or "the run ended without a record") from None
    return RunAnswer(
        run=id_,
        status=made["status"],
        session=made["session"],
        path=made["path"],
        steps=[
            StepDone.model_validate({name: step.get(name) for name in StepDone.model_fields})
            for step in made["steps"]
        ],
        headlines=made["headlines"],
        records=[Used(id=id_, path=made["path"])],
    )
