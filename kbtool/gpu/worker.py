"""The child process that loads a library and runs it: a crash there is a finding, not kbtool's end.

Reads one JSON request on stdin and writes JSON lines to the descriptor in ``KBTOOL_EVENTS``:
``progress`` while it works, with the result of each case, ``peer`` before somebody else's code runs
and, with null, before the kernel's own does, then ``result``, ``unavailable`` or
``failed``. Under another program, which may pass on neither, the request is the file named as the
only argument and the events are lines of stdout that begin with ``EVENT``.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from kbtool.gpu.shrink import Search, Verdict
from kbtool.model.base import Model
from kbtool.model.kernel import CaseValue
from kbtool.model.kinds.benchmark import BenchmarkResult

EVENT = "kbtool-event "
"""What a line of stdout that is an event begins with."""


class Request(Model):
    """What the worker is to do."""

    task: Literal["validate", "benchmark", "tune", "minimise", "run", "profile", "launch"]
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
    variant: str | None = None
    """The version of the operator to validate; its own choice where there is none."""
    variants: list[str] = []
    """Versions to time, an arm each, beside its own choice."""
    peers: list[str] | None = None
    """Peers to time, an arm each; all that the harness knows where not given."""
    left_out: list[dict[str, str]] = []
    """For each case the peers that are not to be run, and why."""
    known: BenchmarkResult | None = None
    """What earlier processes measured of the first cases: this one goes on after them."""
    profiled: list[int] = []
    """Numbers of cases whose errors are told by index along ``profile_axis``."""
    profile_axis: int = 0
    of: list[str | None] = []
    """For each case the version to run; its own choice where there is none."""
    search: Search | None = None
    """How far to minimise."""
    arm: str | None = None
    """The arm to profile; that of the library where there is none."""


def main() -> int:
    """Read the request, do it, report; the exit status is 0 whatever the verdict."""
    watched = len(sys.argv) > 1
    descriptor = sys.stdout.fileno() if watched else int(os.environ["KBTOOL_EVENTS"])
    prefix = EVENT if watched else ""
    with os.fdopen(descriptor, "w", buffering=1) as events:

        def send(event: str, **fields: Any) -> None:
            events.write(prefix + json.dumps({"event": event, **fields}) + "\n")

        raw = Path(sys.argv[1]).read_bytes() if watched else sys.stdin.buffer.read()
        request = TypeAdapter(Request).validate_json(raw)
        try:
            import torch
        except ImportError as error:
            send("unavailable", message=f"torch does not import: {error}")
            return 0
        from kbtool.gpu.build_plan import sha256_of
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
            try:
                torch.zeros(1, device=request.device)
            except RuntimeError as error:  # torch has no type of its own for a card that is full
                send("unavailable", message=f"{request.device} does not start: {error}")
                return 0
            result = _do(request, harness, send)
        except HarnessError as error:
            send("failed", message=str(error), error=str(error))
            return 0
        except torch.OutOfMemoryError as error:
            send("unavailable", message=f"the device has too little memory: {error}")
            return 0
        except (Exception, SystemExit) as error:
            place = _place_in(Path(request.harness), error)
            if place is None:
                raise
            traceback.print_exc()
            what = f"{type(error).__name__}: {error}"
            send("failed", message=f"{place} raised {what}", error=what)
            return 0
        send("result", result=result)
    return 0


def _place_in(harness: Path, error: BaseException) -> str | None:
    """The line and the function of a harness that an error came from, or ``None``."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename) == harness:
            return f"{harness.name}:{frame.lineno}, {frame.name},"
    return None


def _do(request: Request, harness: Any, send: Callable[..., None]) -> Any:
    import torch

    total = len(request.cases)

    def told(done: int, part: Any) -> None:
        label = part.cases[-1].name
        send("progress", done=done, total=total, label=label, part=part.model_dump(mode="json"))

    if request.task == "validate":
        from kbtool.gpu.validate import error_profile, validate

        device = torch.device(request.device)
        settings: dict[str, Any] = {
            "device": device, "seed": request.seed, "variant": request.variant,
        }  # fmt: skip
        with torch.inference_mode():
            result = validate(
                harness, list(request.cases), sha256=request.sha256, on_case=told,
                on_begin=lambda place: send("at", label=place), **settings,
            )  # fmt: skip
            for number in request.profiled:
                errors = error_profile(
                    harness, *request.cases[number], axis=request.profile_axis, **settings
                )
                send("profile", case=number, errors=errors)
        return result.model_dump(mode="json")
    if request.task == "minimise":
        return _minimise(request, harness, send)
    if request.task == "benchmark":
        return _benchmark(request, harness, send, told)
    if request.task == "tune":
        return _tune(request, harness, told)
    from kbtool.gpu.calls import launch_interval_us, profiled_call, run_cases

    with torch.inference_mode():
        if request.task == "launch":
            return launch_interval_us()
        if request.task == "profile":
            case = request.cases[0][1]
            return profiled_call(harness, case, request.arm, request.seed)
        return run_cases(
            harness,
            list(zip(request.cases, request.of, strict=True)),
            device=torch.device(request.device),
            seed=request.seed,
            on_case=lambda done, name: send("progress", done=done, total=total, label=name),
        )


def _minimise(request: Request, harness: Any, send: Callable[..., None]) -> Any:
    """The result; ``None`` where another process has to go on with what was told so far."""
    import torch

    from kbtool.gpu.minimise import ContextLostError, Prober, minimise

    assert request.search is not None

    def told(key: str, label: str, verdict: Verdict | None) -> None:
        send("probe", key=key, label=label, verdict=verdict and verdict.model_dump())

    prober = Prober(
        harness,
        request.search,
        device=torch.device(request.device),
        seed=request.seed,
        variant=request.variant,
        on_probe=told,
    )
    with torch.inference_mode():
        try:
            result = minimise(prober, list(request.cases), request.sha256)
        except ContextLostError:
            return None
    return result.model_dump(mode="json")


def _benchmark(
    request: Request,
    harness: Any,
    send: Callable[..., None],
    told: Callable[[int, Any], None],
) -> Any:
    from kbtool.gpu.benchmark import benchmark

    return benchmark(
        harness,
        list(request.cases),
        _clock(request),
        sha256=request.sha256,
        threads=request.threads,
        seed=request.seed,
        variants=request.variants,
        peers=request.peers,
        left_out=request.left_out,
        known=request.known,
        on_peer=lambda name: send("peer", peer=name),
        on_case=told,
    ).model_dump(mode="json")


def _tune(request: Request, harness: Any, told: Callable[[int, Any], None]) -> Any:
    """What was measured, and the table with it; ``None`` where it stays as it is."""
    from kbtool.gpu.tune import tune, tuned_table

    measured = tune(
        harness,
        list(zip(request.cases, request.of, strict=True)),
        _clock(request),
        sha256=request.sha256,
        threads=request.threads,
        seed=request.seed,
        on_case=told,
    )
    table = tuned_table(harness, Path(request.harness).parent, measured.cases)
    return {
        "measured": measured.model_dump(mode="json"), "table": table, "path": harness.TABLE
    }  # fmt: skip


def _clock(request: Request) -> Any:
    if request.device == "cuda":
        from kbtool.gpu.cuda_clock import CudaClock

        return CudaClock(request.samples)
    from kbtool.gpu.cpu_clock import CpuClock

    return CpuClock(request.samples)


if __name__ == "__main__":
    sys.exit(main())
