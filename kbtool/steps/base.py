"""What a kind of step is: a plan in words, and a run that ends in an outcome."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kbtool.gpu.build import BuildPlan
from kbtool.gpu.process import Completed, run_process
from kbtool.model.errors import UsageError
from kbtool.model.kernel import CaseValue, Kernel
from kbtool.model.recipe import StepBase
from kbtool.model.run import BuildResult, MachineInfo, StepResult, StepStatus


@dataclass(frozen=True)
class Outcome:
    """How a step ended."""

    status: StepStatus
    message: str
    """The outcome in a line."""
    result: StepResult | None = None
    error: str | None = None
    """The first real error, as printed."""
    output: str = ""
    """What the step printed, for the symptoms of patterns to be searched in."""


@dataclass
class Context:
    """What steps share within one run."""

    root: Path
    """The knowledge base."""
    kernel: Kernel | None
    machine: MachineInfo
    seed: int
    """For steps that draw inputs and are given no seed of their own."""
    on_line: Callable[[str], None] = lambda _: None
    """Output of compilers and programs, line by line."""
    on_progress: Callable[[int, int, str], None] = lambda done, total, label: None
    """Items done, items in all, the last one's name."""
    on_waiting: Callable[[str], None] = lambda _: None
    """What is being waited for."""
    on_tick: Callable[[], None] = lambda: None
    """Called several times a second while a child process runs."""
    plan: BuildPlan | None = None
    """What the build step built."""
    built: BuildResult | None = None
    """The artifact."""
    validated: str | None = None
    """The hash that passed validation in this run: the gate of benchmarks."""
    deadline: float = 0.0
    """When the step is stopped, by ``time.monotonic``."""

    @property
    def remaining(self) -> float:
        """Seconds until the step is stopped."""
        return max(self.deadline - time.monotonic(), 0.0)

    @property
    def kernel_folder(self) -> Path:
        """The folder of the recipe's kernel."""
        return self.root / "kernels" / self.manifest.id

    @property
    def manifest(self) -> Kernel:
        """The recipe's kernel; recipes with build steps name one."""
        if self.kernel is None:
            raise UsageError("the recipe names no kernel")
        return self.kernel

    def cases(self, case_sets: str) -> list[tuple[str, dict[str, CaseValue]]]:
        """(case set, case) of every case in a comma-separated list of sets.

        Raises:
            UsageError: the manifest has no such set.
        """
        names = [name.strip() for name in case_sets.split(",") if name.strip()]
        if not names:
            raise UsageError("no case set is named")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"case set {twice[0]} is named twice")
        try:
            return [(name, case) for name in names for case in self.manifest.cases(name)]
        except ValueError as error:
            raise UsageError(str(error)) from None

    def taken(self, case_sets: str) -> tuple[list[tuple[str, dict[str, CaseValue]]], int]:
        """The cases that the built target takes, and how many it does not take."""
        cases = self.cases(case_sets)
        if self.plan is None:
            return cases, 0
        target = self.manifest.targets[self.plan.target]
        taken = [(name, case) for name, case in cases if target.takes(case)]
        return taken, len(cases) - len(taken)

    def inside(self, name: str) -> Path:
        """The path ``name`` of the tree.

        Raises:
            UsageError: it leads out of the tree.
        """
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root.resolve()):
            raise UsageError(f"{name} leads out of the knowledge base")
        return path


S = TypeVar("S", bound=StepBase, contravariant=True)


class StepKind(Protocol[S]):
    """One kind of step."""

    def plan(self, step: S, context: Context) -> list[str]:
        """What ``run`` would do, a line each; writes nothing."""

    def run(self, step: S, context: Context) -> Outcome:
        """Do it. Errors that a user can mend are raised as ``UserError``."""


def run_worker(request: dict[str, Any], context: Context) -> tuple[dict[str, Any], Completed]:
    """Run ``kbtool.gpu.worker`` to its end; its last event, and how the process ended.

    The event is ``{"event": "none"}`` if the process died without a word.
    """
    last: dict[str, Any] = {"event": "none"}

    def on_event(raw: bytes) -> None:
        nonlocal last
        with contextlib.suppress(ValueError):
            event = json.loads(raw)
            if event["event"] == "progress":
                context.on_progress(event["done"], event["total"], event["label"])
            else:
                last = event

    done = run_process(
        [sys.executable, "-m", "kbtool.gpu.worker"],
        cwd=context.root,
        timeout=context.remaining,
        stdin=json.dumps(request).encode(),
        # Threads are set before any library starts its pool: arms must not differ in this.
        env={"OMP_NUM_THREADS": str(request["threads"]), "PYTHONSAFEPATH": "1"},
        on_line=context.on_line,
        on_event=on_event,
        on_tick=context.on_tick,
    )
    return last, done


def worker_failure(event: dict[str, Any], done: Completed, doing: str) -> Outcome | None:
    """The outcome of a worker that brought no result, or ``None`` if it did."""
    if event["event"] == "result":
        return None
    if done.timed_out:
        return Outcome("timeout", f"stopped after {done.seconds:.0f} s", output=done.output)
    if event["event"] == "unavailable":
        return Outcome("unavailable", event["message"], output=done.output)
    if event["event"] == "failed":
        return Outcome("failed", event["message"], error=event.get("error"), output=done.output)
    if done.died:
        return Outcome(
            "failed",
            f"the process was killed by {done.died} while {doing}",
            error=done.died,
            output=done.output,
        )
    lines = done.output.strip().splitlines()
    return Outcome(
        "crashed",
        f"the process ended with status {done.returncode} while {doing}",
        error=lines[-1] if lines else None,
        output=done.output,
    )
