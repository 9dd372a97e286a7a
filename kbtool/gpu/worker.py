"""The worker: a child process that loads a library and runs it, so that a crash is a finding.

It reads one JSON request on stdin and writes JSON lines to the descriptor in ``KBTOOL_EVENTS``:
``progress`` with the result of each case; ``peer`` with a name before a peer's code runs, and with
null before the kernel's own code runs; ``identity`` with what was read, once everything is loaded
and again after the task; at the end ``result``, ``unavailable``, ``refused``, ``failed`` or, if the
kernel ended the CUDA context, ``crashed``. Under a profiler or sanitizer, which may not pass stdin
and descriptors on, the only argument names a file with the request, and events are lines of stdout
that begin with ``EVENT``. Each event repeats the request's ``token``, which a kernel's code that
writes to the same descriptor does not know.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtool.gpu.task import Send, Task

if TYPE_CHECKING:
    from kbtool.gpu.seal import Seal

EVENT = "kbtool-event "
"""The prefix of an event on stdout."""


def main() -> int:
    """Read the request, run it and report. The exit status is 0 whatever the verdict."""
    watched = len(sys.argv) > 1
    descriptor = sys.stdout.fileno() if watched else int(os.environ["KBTOOL_EVENTS"])
    prefix = EVENT if watched else ""
    with os.fdopen(descriptor, "w", buffering=1) as events:
        request = json.loads(Path(sys.argv[1]).read_bytes() if watched else sys.stdin.buffer.read())
        token = request.pop("token")
        process = os.getpid()

        def send(event: str, **fields: Any) -> None:
            if os.getpid() != process:
                os._exit(0)  # a copy that the kernel's code forked has no results to report
            events.write(prefix + json.dumps({"event": event, "token": token, **fields}) + "\n")

        gc.disable()  # no import makes garbage worth a collection
        event, fields = _work(_task(request), send)
        send(event, **fields)
    return 0


def _work(task: Task, send: Send) -> tuple[str, dict[str, Any]]:
    """Load everything and run the task; the last event and its fields."""
    os.environ.update(task.env)
    try:
        import torch
    except ImportError as error:
        return "unavailable", {"message": f"torch does not import: {error}"}
    gc.enable()
    from kbtool.gpu.build_plan import sha256_of
    from kbtool.gpu.seal import Seal

    torch.set_num_threads(task.threads)
    library = Path(task.library)
    if sha256_of(library) != task.sha256:
        return "failed", {"message": f"{library.name} has changed since it was built"}
    seal = Seal(Path(task.root), Path(task.harness), task.read_before, closed=task.closed)
    seal.begin()

    def send_sealed(event: str, **fields: Any) -> None:
        if event == "progress":
            seal.look()
        seal.check()
        send(event, **fields)

    event, fields = _run(task, send_sealed, seal)
    read = seal.finish()
    if seal.refusal is not None:
        return "refused", {"message": seal.refusal}
    send("identity", identity=read.model_dump())
    return event, fields


def _run(task: Task, send: Send, seal: Seal) -> tuple[str, dict[str, Any]]:
    import torch

    from kbtool.gpu.build_plan import MODULES
    from kbtool.gpu.context import context_lost
    from kbtool.gpu.harness import HarnessError, load_harness, load_module
    from kbtool.gpu.seal import ChangedError

    manifest = Path(task.harness).with_name("kernel.yaml")
    try:
        if manifest.exists():
            manifest.read_bytes()  # the seal takes note of it
        if not task.library.endswith(MODULES):
            with seal.linking(Path(task.library)):
                try:
                    torch.ops.load_library(task.library)  # type: ignore[no-untyped-call]
                except OSError as error:
                    what = f"{Path(task.library).name} does not load: {error}"
                    return "failed", {"message": what, "error": str(error)}
        with seal.solution():
            for path in map(Path, task.modules):
                if importlib.util.find_spec(path.stem) is not None:
                    raise HarnessError(
                        f"{path.name} cannot be imported as {path.stem}: Python finds another"
                        " module of that name here; rename the file"
                    )
                load_module(path, path.stem)
            if task.interface:
                load_module(Path(task.interface), "kbtool_interface")
        harness = load_harness(Path(task.harness))
        seal.hold(harness)
        send("identity", identity=seal.identity().model_dump())
        try:
            torch.zeros(1, device=task.device)
        except RuntimeError as error:  # torch has no exception type for a full card
            return "unavailable", {"message": f"{task.device} does not start: {error}"}
        return "result", {"result": task.run(harness, send)}
    except ChangedError as error:
        return "refused", {"message": str(error)}
    except HarnessError as error:
        return "failed", {"message": str(error), "error": str(error)}
    except torch.OutOfMemoryError as error:
        return "unavailable", {"message": f"the device has too little memory: {error}"}
    except (Exception, SystemExit) as error:
        if context_lost(task.torch_device):
            traceback.print_exc()
            what = str(error).partition("\n")[0]
            return "crashed", {"message": f"the CUDA context was lost: {what}", "error": what}
        place = _place_in(Path(task.harness), error)
        if place is None:
            raise
        traceback.print_exc()
        what = f"{type(error).__name__}: {error}"
        return "failed", {"message": f"{place} raised {what}", "error": what}


def _place_in(harness: Path, error: BaseException) -> str | None:
    """The line and function of the harness that an error came from, or ``None``."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename) == harness:
            return f"{harness.name}:{frame.lineno}, {frame.name},"
    return None


def _task(fields: dict[str, Any]) -> Task:
    """The task of a request, which names its class as ``module:class``."""
    module, _, name = fields.pop("task").partition(":")
    task: type[Task] = getattr(importlib.import_module(module), name)
    return task.model_validate(fields)


if __name__ == "__main__":
    status = main()
    gc.freeze()  # or the end of the interpreter collects torch's modules: 0.4 s
    sys.exit(status)
