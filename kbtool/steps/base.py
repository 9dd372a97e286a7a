"""What a kind of step is: a plan in words, and a run that ends in an outcome."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import kbtool
from kbtool.gpu.build import BuildPlan
from kbtool.gpu.probe import card_uuid
from kbtool.gpu.process import Completed, run_process
from kbtool.gpu.worker import EVENT
from kbtool.model.errors import UsageError
from kbtool.model.kernel import GIVEN, CaseValue, Kernel
from kbtool.model.kinds import StepResult
from kbtool.model.kinds.base import StepBase, names_in
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.kinds.build import BuildResult
from kbtool.model.kinds.tune import TuneResult
from kbtool.model.kinds.validate import ValidationResult, unvalidated
from kbtool.model.mutant import Mutant
from kbtool.model.run import MachineInfo, StepStatus
from kbtool.store.lock import LockTimeoutError, lock
from kbtool.store.private import private_folder


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
    symptoms: str = ""
    """Lines for them to be searched in although the step passed."""


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
    on_found: Callable[[StepResult], None] = lambda _: None
    """What the step under way has found so far: what is recorded if it does not come to its end."""
    plan: BuildPlan | None = None
    """What the build step built."""
    built: BuildResult | None = None
    """The artifact."""
    validated: list[ValidationResult] = field(default_factory=list)
    """The validations that passed in this run: the gate of benchmarks."""
    mutants: list[tuple[str, Mutant]] = field(default_factory=list)
    """The kernel's mutants, each with the bug that it puts back: SESSION#bugs.ID."""
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
        """The recipe's kernel, as it was built; recipes with build steps name one."""
        if self.plan is not None:
            return self.plan.kernel
        if self.kernel is None:
            raise UsageError("the recipe names no kernel")
        return self.kernel

    def cases(self, case_sets: str) -> list[tuple[str, dict[str, CaseValue]]]:
        """(case set, case) of every case in a comma-separated list of sets.

        Raises:
            UsageError: the manifest has no such set.
        """
        names = names_in(case_sets)
        if not names:
            raise UsageError("no case set is named")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"case set {twice[0]} is named twice")
        try:
            return [(name, case) for name in names for case in self.manifest.cases(name)]
        except ValueError as error:
            raise UsageError(str(error)) from None

    def taken(
        self, case_sets: str, variant: str | None = None
    ) -> tuple[list[tuple[str, dict[str, CaseValue]]], int]:
        """The cases that the built target, or one variant of it, takes; how many it does not."""
        cases = self.cases(case_sets)
        if self.plan is None:
            return cases, 0
        target = self.manifest.targets[self.plan.target]
        taken = [(name, case) for name, case in cases if target.takes(case, variant)]
        return taken, len(cases) - len(taken)

    def variants(self, wanted: str) -> list[str | None]:
        """The variants of the built target in a comma-separated list; ``None`` is the kernel's own
        choice, ``default`` in the list. Before anything is built, those of any target.

        Raises:
            UsageError: there is no such variant.
        """
        names = names_in(wanted)
        if self.plan is not None:
            target = self.manifest.targets[self.plan.target]
            offered = target.variants_for(self.plan.architecture)
            whose = f"this build, for {self.plan.target},"
        else:
            targets = self.kernel.targets.values() if self.kernel else ()
            offered = list(dict.fromkeys(name for target in targets for name in target.variants))
            whose = "the kernel"
        if names == ["all"]:
            return [None, *offered]
        for name in names:
            if name != "default" and name not in offered:
                raise UsageError(
                    f"{whose} has no variant {name!r}; it has"
                    f" {', '.join(['default', *offered])}, or all"
                )
        if not names:
            raise UsageError("no variant is named; default is the kernel's own choice")
        return [None if name == "default" else name for name in dict.fromkeys(names)]

    def gate(self, variants: Sequence[str | None] = (None,)) -> Outcome | None:
        """The refusal to measure what has not passed validation in this run, or ``None``."""
        if self.built is None or self.plan is None:
            return Outcome("refused", "nothing was built in this run")
        lacking = unvalidated(self.built.sha256, variants, self.validated)
        if lacking is None:
            return None
        return Outcome("refused", f"{lacking} has not passed validation in this run")

    def chosen(
        self, case_sets: str, case: str, variant: str | None = None
    ) -> list[tuple[str, dict[str, CaseValue]]]:
        """The one case that ``case`` names or describes; where it is empty, every case of the sets
        that the built target, or one variant of it, takes.

        Raises:
            UsageError: there is no such set or field, or that case is not taken.
        """
        if not case:
            return self.taken(case_sets, variant)[0]
        named = [entry for entry in self.cases(case_sets) if entry[1]["name"] == case]
        try:
            one = named[0] if named else (GIVEN, self.manifest.case_from(case))
        except ValueError as error:
            raise UsageError(f"{error}; and no case of {case_sets} has that name") from None
        if self.plan and not self.manifest.targets[self.plan.target].takes(one[1], variant):
            what = f"variant {variant} of " if variant else ""
            raise UsageError(f"{what}target {self.plan.target} does not take the case {case!r}")
        return [one]

    def inside(self, name: str) -> Path:
        """The path ``name`` of the tree.

        Raises:
            UsageError: it leads out of the tree.
        """
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root.resolve()):
            raise UsageError(f"{name} leads out of the knowledge base")
        return path


R = TypeVar("R", ValidationResult, BenchmarkResult, TuneResult)


def with_part(known: R | None, part: R, total: int) -> R:
    """``known`` with the cases of ``part`` after its own; of all else the newer is taken.

    Args:
        known: what there is of so many cases.
        part: more of them.
        total: how many there are to be.
    """
    cases = [*(known.cases if known else []), *part.cases]
    return part.model_copy(update={"cases": cases, "not_reached": total - len(cases)})


S = TypeVar("S", bound=StepBase, contravariant=True)


class StepKind(Protocol[S]):
    """One kind of step."""

    def plan(self, step: S, context: Context) -> list[str]:
        """What ``run`` would do, a line each; writes nothing."""

    def run(self, step: S, context: Context) -> Outcome:
        """Do it. Errors that a user can mend are raised as ``UserError``."""


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
) -> tuple[dict[str, Any], Completed]:
    """Run ``kbtool.gpu.worker`` to its end; its last event, and how the process ended.

    The event is ``{"event": "none"}`` if the process died without a word. What the worker was at,
    where it told, is added to it as ``at``.

    Args:
        request: see ``kbtool.gpu.worker.Request``.
        context: of the step.
        timeout: seconds; what is left to the step where not given.
        under: a program, with its arguments, that runs the worker and watches it.
        env: variables to add.
        on_event: called with each event before the last; tells the progress where not given.
        on_line: called with each line that it prints; shows it where not given.
        on_tick: called several times a second; tells that time passes where not given.
    """
    last: dict[str, Any] = {"event": "none"}
    at: str | None = None

    def told(event: dict[str, Any]) -> None:
        context.on_progress(event["done"], event["total"], event["label"])

    def read(raw: bytes) -> None:
        nonlocal last, at
        try:
            event = json.loads(raw)
        except ValueError:
            return  # the process died in the middle of a line
        if event["event"] == "at":
            at = event["label"]
        elif event["event"] in _ON_THE_WAY:
            (on_event or told)(event)
        else:
            last = event

    def read_line(line: str) -> None:
        if line.startswith(EVENT):
            read(line.removeprefix(EVENT).encode())
        else:
            (on_line or context.on_line)(line)

    data = json.dumps(request).encode()
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
            env={"OMP_NUM_THREADS": str(request["threads"]), **own_package(), **(env or {})},
            on_line=read_line,
            on_event=None if under else read,
            on_tick=on_tick or context.on_tick,
        )  # fmt: skip
    return ({**last, "at": at} if at else last), done


def own_package() -> dict[str, str]:
    """Variables that let another Python import this very package, and nothing from the folder that
    it is started in: a checkout that is not installed was found there by ``python -m kbtool``."""
    variables = {"PYTHONSAFEPATH": "1"}
    parent = str(Path(kbtool.__file__).parents[1])
    # What is installed is found, and its folder ahead of Python's own would hide modules of that.
    if parent not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        paths = (parent, os.environ.get("PYTHONPATH"))
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return variables


_ON_THE_WAY = frozenset(("progress", "profile", "probe", "peer"))
"""Events that a worker sends before its last one."""


def worker_failure(event: dict[str, Any], done: Completed, doing: str) -> Outcome | None:
    """The outcome of a worker that brought no result, or ``None`` if it did."""
    if event["event"] == "result":
        return None
    where = f", in {event['at']}" if event.get("at") else ""
    if done.timed_out:
        return Outcome("timeout", f"stopped after {done.seconds:.0f} s{where}", output=done.output)
    if event["event"] == "unavailable":
        return Outcome("unavailable", event["message"], output=done.output)
    if event["event"] == "failed":
        message = f"{event['message']}{where}"
        return Outcome("failed", message, error=event.get("error"), output=done.output)
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


def run_alone(
    request: dict[str, Any],
    context: Context,
    doing: str,
    on_event: Callable[[dict[str, Any]], None],
    on_tick: Callable[[], None] | None = None,
) -> tuple[Any, Outcome | None]:
    """``run_worker`` for one that times, since two at once would measure each other.

    Returns:
        The worker's result, or the outcome of a worker that brought none.
    """
    with contextlib.ExitStack() as held:
        try:
            own = private_folder(context.root, "locks") / "benchmark.lock"
            for path in [own, *_card_lock(request)]:
                held.enter_context(
                    lock(
                        path,
                        on_wait=lambda: context.on_waiting("another benchmark on this machine"),
                        timeout=context.remaining,
                    )
                )
        except LockTimeoutError:
            return None, Outcome("timeout", "another benchmark kept this machine busy")
        event, done = run_worker(request, context, on_event=on_event, on_tick=on_tick)
    return event.get("result"), worker_failure(event, done, doing)


def _card_lock(request: Mapping[str, Any]) -> list[Path]:
    """What a benchmark of another checkout on the same card holds, if it is the same user's."""
    card = card_uuid() if request.get("device") == "cuda" else None
    return [Path(tempfile.gettempdir()) / f"kbtool-{os.getuid()}-{card}.lock"] if card else []
