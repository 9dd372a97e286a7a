"""Run ``kbtool.gpu.worker``, the process that loads the library, for steps."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import kbtool
from kbtool.gpu.build_plan import BuildPlan
from kbtool.gpu.probe import card_uuid
from kbtool.gpu.process import MAX_CHARACTERS, Completed, run_process, shortened
from kbtool.gpu.worker import EVENT
from kbtool.model.identity import Identity
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.kinds.build import BuildResult
from kbtool.model.kinds.tune import TuneResult
from kbtool.model.kinds.validate import ValidationResult
from kbtool.steps.base import Context, Outcome
from kbtool.store.turn import turn

_WAITS = "OMP_WAIT_POLICY"
"""The environment variable that says how OpenMP's threads wait."""
_LAST = frozenset(("result", "unavailable", "refused", "failed", "crashed"))
"""The final events of a worker."""


def library_request(plan: BuildPlan, built: BuildResult, kernel: Kernel) -> dict[str, Any]:
    """The part of a worker's request that says what to load."""
    return {
        "library": str(plan.library),
        "sha256": built.sha256,
        "modules": [str(path) for path in plan.modules],
        "env": kernel.targets[plan.target].env,
        "harness": str(plan.folder / kernel.harness),
        "interface": str(plan.folder / kernel.interface) if kernel.interface else None,
        "device": plan.device,
    }


def run_worker(
    request: dict[str, Any],
    context: Context,
    *,
    timeout: float | None = None,
    under: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    on_line: Callable[[str], None] | None = None,
    on_tick: Callable[[], None] | None = None,
    times: bool = False,
) -> tuple[dict[str, Any], Completed]:
    """Run ``kbtool.gpu.worker`` to its end; its last event, and how the process ended.

    The event is ``{"event": "none"}`` if the process died without a word. If the worker reported
    what it was doing, the event has that as ``at``.

    Args:
        request: the fields of a ``kbtool.gpu.task.Task``; ``task`` is its class: ``module:class``.
        context: of the step.
        timeout: seconds. Default: the time that the step has left.
        under: a program, with its arguments, that runs the worker, such as a profiler.
        env: variables to add.
        on_event: called with each event before the last. Default: reports the progress.
        on_line: called with each line that the worker prints. Default: shows it.
        on_tick: called several times a second. Default: the context's ``on_tick``.
        times: whether the worker measures times. In one that does not, threads that wait do not
            spin: on cores that others use, spinning costs ten times what it saves.
    """

    def report_progress(event: dict[str, Any]) -> None:
        context.on_progress(event["done"], event["total"], event["label"])

    token = secrets.token_hex(16)
    events = _Events(token, on_event or report_progress, on_line or context.on_line, context.hold)
    data = json.dumps(
        {
            **request,
            "token": token,
            "root": str(context.root),
            "read_before": context.identity.model_dump(),
        }
    ).encode()
    with tempfile.NamedTemporaryFile(prefix="kbtool-request-") as file:
        if under:  # it may pass on neither its stdin nor the descriptor of the events
            file.write(data)
            file.flush()
        done = run_process(
            [*under, sys.executable, "-m", "kbtool.gpu.worker", *([file.name] if under else [])],
            cwd=context.root,
            timeout=context.remaining if timeout is None else timeout,
            stdin=None if under else data,
            # Threads are set before any library starts its pool: arms must not differ in this.
            env={
                "OMP_NUM_THREADS": str(request["threads"]),
                **({} if times or _WAITS in os.environ else {_WAITS: "PASSIVE"}),
                **own_package(),
                **(env or {}),
            },
            on_line=events.read_line,
            on_event=None if under else events.read,
            on_tick=on_tick or context.on_tick,
        )  # fmt: skip
    return events.last(), done


class _Events:
    """Reads the events of a worker, passes them on, and keeps the last one."""

    def __init__(
        self,
        token: str,
        on_event: Callable[[dict[str, Any]], None],
        on_line: Callable[[str], None],
        on_identity: Callable[[Identity], None],
    ) -> None:
        self._token = token
        self._on_event, self._on_line, self._on_identity = on_event, on_line, on_identity
        self._last: dict[str, Any] = {"event": "none"}
        self._at: str | None = None
        self._forged = self._garbled = False

    def read(self, raw: bytes) -> None:
        """An event, as the worker wrote it."""
        try:
            event = json.loads(raw, object_hook=_shortened)
        except ValueError:
            self._garbled = True  # or the process died in the middle of a line
            return
        if not isinstance(event, dict) or event.pop("token", None) != self._token:
            self._forged = True
            return
        # Something other than kbtool wrote into a line, and an event is lost.
        self._forged = self._forged or self._garbled
        if event["event"] == "at":
            self._at = event["label"]
        elif event["event"] == "identity":
            self._on_identity(Identity.model_validate(event["identity"]))
        elif event["event"] in _LAST:
            self._last = event
        else:
            self._on_event(event)

    def read_line(self, line: str) -> None:
        """A line of output; under another program it may hold an event."""
        if line.startswith(EVENT):
            self.read(line.removeprefix(EVENT).encode())
        else:
            self._on_line(line)

    def last(self) -> dict[str, Any]:
        """The last event, with what the worker was doing as ``at`` if it reported that."""
        if self._forged:
            forged = "the kernel's code wrote an event of its own, as if it were kbtool's"
            return {"event": "refused", "message": forged}
        return {**self._last, "at": self._at} if self._at else self._last


def _shortened(fields: dict[str, Any]) -> dict[str, Any]:
    """A part of an event, without the rest of texts that are too long for a record."""
    long = {
        name: shortened(value)
        for name, value in fields.items()
        if isinstance(value, str) and len(value) > MAX_CHARACTERS
    }
    return {**fields, **long} if long else fields


def own_package() -> dict[str, str]:
    """Environment variables with which another Python imports this package, and nothing from its
    current folder: ``python -m kbtool`` may have found this package there."""
    variables = {"PYTHONSAFEPATH": "1"}
    parent = str(Path(kbtool.__file__).parents[1])
    # An installed package is found anyway; its folder on PYTHONPATH could hide Python's modules.
    if parent not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        paths = (parent, os.environ.get("PYTHONPATH"))
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return variables


def worker_failure(event: dict[str, Any], done: Completed, doing: str) -> Outcome | None:
    """The outcome if the worker returned no result, else ``None``."""
    if event["event"] == "result":
        return None
    where = f", in {event['at']}" if event.get("at") else ""
    if done.timed_out:
        return Outcome("timeout", f"stopped after {done.seconds:.0f} s{where}", output=done.output)
    if event["event"] in {"unavailable", "refused"}:
        return Outcome(event["event"], event["message"], output=done.output)
    if event["event"] in {"failed", "crashed"}:
        message = f"{event['message']}{where}"
        return Outcome(event["event"], message, error=event.get("error"), output=done.output)
    if done.died:
        return Outcome(
            "failed",
            f"the process was killed by {done.died} while {doing}{where}",
            error=done.died,
            output=done.output,
        )
    lines = done.output.strip().splitlines()
    return Outcome(
        "crashed",
        f"the process ended with status {done.returncode} while {doing}{where}",
        error=lines[-1] if lines else None,
        output=done.output,
    )


@contextlib.contextmanager
def alone(request: Mapping[str, Any], context: Context) -> Iterator[None]:
    """The turn of a step that measures times: two at once disturb each other.

    The time of the wait is none of the step's.

    Raises:
        BusyError: another run has the turn, and this one does not wait.
    """
    begun = time.monotonic()
    with turn(
        card_uuid() if request.get("device") == "cuda" else None,
        context.run,
        wait=context.wait,
        on_wait=lambda who: context.on_waiting(f"{who}, which measures on this machine"),
        on_tick=context.on_tick,
    ):
        context.waited_for(time.monotonic() - begun)
        yield


def measure(
    request: dict[str, Any],
    context: Context,
    doing: str,
    on_event: Callable[[dict[str, Any]], None],
    on_tick: Callable[[], None] | None = None,
) -> tuple[Any, Outcome | None]:
    """``run_worker`` for a worker that measures times; to be called ``alone``.

    Returns:
        The worker's result, or the outcome if it returned none.
    """
    event, done = run_worker(request, context, on_event=on_event, on_tick=on_tick, times=True)
    return event.get("result"), worker_failure(event, done, doing)


R = TypeVar("R", ValidationResult, BenchmarkResult, TuneResult)


def with_part(known: R | None, part: R, total: int) -> R:
    """Append the cases of ``part`` to ``known``; all other fields come from ``part``.

    Args:
        known: the result so far.
        part: the result of further cases.
        total: the total number of cases.
    """
    cases = [*(known.cases if known else []), *part.cases]
    return part.model_copy(update={"cases": cases, "not_reached": total - len(cases)})
