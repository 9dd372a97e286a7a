"""The child process that loads a library and runs it: a crash there is a finding, not kbtool's end.

Reads one JSON request on stdin and writes JSON lines to the descriptor in ``KBTOOL_EVENTS``:
``progress`` while it works, then ``result``, ``unavailable`` or ``failed``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from kbtool.model.base import Model
from kbtool.model.kernel import CaseValue


class Request(Model):
    """What the worker is to do."""

    task: Literal["validate", "benchmark"]
    library: str
    """The library to load."""
    sha256: str
    """Its hash; another file is refused."""
    harness: str
    """The harness to import."""
    interface: str | None = None
    """The Python face of the operators, imported after the library."""
    cases: list[tuple[str, dict[str, CaseValue]]]
    """(case set, case)."""
    device: str = "cpu"
    seed: int
    threads: int
    samples: int = 20


def main() -> int:
    """Read the request, do it, report; the exit status is 0 whatever the verdict."""
    with os.fdopen(int(os.environ["KBTOOL_EVENTS"]), "w", buffering=1) as events:

        def send(event: str, **fields: Any) -> None:
            events.write(json.dumps({"event": event, **fields}) + "\n")

        request = TypeAdapter(Request).validate_json(sys.stdin.buffer.read())
        try:
            import torch
        except ImportError as error:
            send("unavailable", message=f"torch does not import: {error}")
            return 0
        from kbtool.gpu.build import sha256_of
        from kbtool.gpu.harness import HarnessError, load_harness, load_module

        torch.set_num_threads(request.threads)
        library = Path(request.library)
        if sha256_of(library) != request.sha256:
            send("failed", message=f"{library.name} has changed since it was built")
            return 0
        try:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        except OSError as error:
            send("failed", message=f"{library.name} does not load: {error}", error=str(error))
            return 0
        try:
            if request.interface:
                load_module(Path(request.interface), "kbtool_interface")
            harness = load_harness(Path(request.harness))
            result = _do(request, harness, send)
        except HarnessError as error:
            send("failed", message=str(error), error=str(error))
            return 0
        send("result", result=result)
    return 0


def _do(request: Request, harness: Any, send: Callable[..., None]) -> Any:
    import torch

    total = len(request.cases)

    def progress(done: int, case: Any) -> None:
        send("progress", done=done, total=total, label=case.name)

    if request.task == "validate":
        from kbtool.gpu.validate import validate

        with torch.inference_mode():
            return validate(
                harness,
                list(request.cases),
                sha256=request.sha256,
                device=torch.device(request.device),
                seed=request.seed,
                on_case=progress,
            ).model_dump(mode="json")
    from kbtool.gpu.benchmark import benchmark

    return benchmark(
        harness,
        [case for _, case in request.cases],
        _clock(request),
        case_set=request.cases[0][0],
        sha256=request.sha256,
        threads=request.threads,
        seed=request.seed,
        on_case=progress,
    ).model_dump(mode="json")


def _clock(request: Request) -> Any:
    if request.device == "cuda":
        from kbtool.gpu.cuda_clock import CudaClock

        return CudaClock(request.samples)
    from kbtool.gpu.cpu_clock import CpuClock

    return CpuClock(request.samples)


if __name__ == "__main__":
    sys.exit(main())
