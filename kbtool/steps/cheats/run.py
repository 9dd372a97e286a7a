"""The step kind ``cheats``: run the kernel with each edit, through the gates that a user meets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbtool.model.cheat import Catalogue, Cheat
from kbtool.model.errors import UsageError
from kbtool.model.kernel import CaseValue, Kernel
from kbtool.model.kinds.base import names_in
from kbtool.model.kinds.benchmark import BenchmarkStep
from kbtool.model.kinds.build import BuildStep
from kbtool.model.kinds.cheats import CheatResult, CheatsResult, CheatsStep
from kbtool.model.kinds.validate import ValidateStep
from kbtool.model.run import StepStatus
from kbtool.model.words import many
from kbtool.steps.base import Context, Invocation, Links, Outcome, StepKind, Table
from kbtool.steps.benchmark.run import Benchmark
from kbtool.steps.build.run import Build
from kbtool.steps.cheats import page, report
from kbtool.steps.copies import copied_kernel, edit_file, read_record
from kbtool.steps.validate.run import Validate


class Cheats(StepKind[CheatsStep, CheatsResult]):
    """Tests the gates of a run: an attack that none of them stops is a finding."""

    result = CheatsResult

    def plan(self, step: CheatsStep, context: Context) -> list[str]:
        """How many edits are tried, and over which cases."""
        chosen = _chosen(step, context)
        honest = sum(cheat.honest for cheat in chosen)
        cases = many(len(context.cases(step.case_sets)), "case")
        return [
            f"edit {context.manifest.id} in a copy, one edit at a time:"
            f" {many(len(chosen) - honest, 'attack')}, {many(honest, 'honest variant')}"
            " (those of the built target)",
            f"build it, validate those of {cases} of {step.case_sets} that have the dtype of the"
            f" first of {step.benchmark}, time that one beside {step.peers}, at most {step.limit}"
            " each",
            "an attack that gets a figure is a finding, and so is an honest variant that gets none",
        ]

    def run(self, step: CheatsStep, context: Context) -> Outcome:
        """Fails if an attack gets a figure that is not declared to, or an honest variant none."""
        if context.built is None or context.plan is None:
            return Outcome("refused", "nothing was built in this run")
        chosen = _chosen(step, context)
        target = context.plan.target
        skipped = {
            cheat.id: f"needs a build for {cheat.target}"
            for cheat in chosen
            if cheat.target != target
        }
        tried = [cheat for cheat in chosen if cheat.target == target]
        step_of, outcome = _attempt(step, context, None)
        if outcome.status not in _FIGURE:
            message = f"the kernel without an edit: {step_of}: {outcome.message}"
            return Outcome(outcome.status, message, error=outcome.error, output=outcome.output)
        timed = context.cases(step.benchmark)[0][1]["name"]
        results: list[CheatResult] = []

        def found() -> CheatsResult:
            assert context.built is not None
            return CheatsResult(
                kernel=context.manifest.id,
                target=target,
                sha256=context.built.sha256,
                seed=context.seed,
                case_sets=step.case_sets,
                benchmark=f"{names_in(step.benchmark)[0]}/{timed}",
                cheats=results,
                skipped=skipped,
                not_reached=len(tried) - len(results),
            )

        for one in _judged(step, context, tried):
            results.append(one)
            context.on_found(found())
            context.on_progress(len(results), len(tried), f"{one.cheat.id}: {report.verdict(one)}")
        if len(results) < len(tried):
            return Outcome("timeout", "the step's time was over before every edit was tried")
        order = {cheat.id: number for number, cheat in enumerate(tried)}
        results.sort(key=lambda one: order[one.cheat.id])
        result = found()
        findings = [f"{one.cheat.id}: {one.finding}" for one in results if one.finding]
        if findings:
            error = "\n".join(findings)
            return Outcome("failed", report.headline(result), result, findings[0], error)
        return Outcome("passed", report.headline(result), result)

    def found(self, result: CheatsResult, status: StepStatus) -> str:
        """What was caught so far, where the step was cut short."""
        return "" if status in {"passed", "failed"} else report.headline(result)

    def report(self, result: CheatsResult, invocation: Invocation) -> Sequence[str | Table]:
        """See ``report``."""
        return report.report(result)

    def page(self, result: CheatsResult, links: Links) -> str:
        """See ``page``."""
        return page.page(result, links)


_FIGURE = ("passed", "noisy")
"""How a step ends whose figures are kept."""
_CAUGHT = ("failed", "refused")
"""How a step ends that a gate stopped."""


@dataclass
class _Sandbox(Context):
    """The context of the run of one edit: the first case of the set to time, and those of its dtype
    to validate."""

    to_time: str = ""

    def cases(self, case_sets: str) -> list[tuple[str, dict[str, CaseValue]]]:
        """The cases that this run takes of a list of sets."""
        first = super().cases(self.to_time)[:1]
        dtype = first[0][1].get("dtype")
        taken = [entry for entry in super().cases(case_sets) if entry[1].get("dtype") == dtype]
        return first if case_sets == self.to_time else taken


def _chosen(step: CheatsStep, context: Context) -> list[Cheat]:
    catalogue = read_record(context.kernel_folder / step.catalogue, Catalogue)
    if step.cheats == "all":
        return catalogue.cheats
    known = {cheat.id: cheat for cheat in catalogue.cheats}
    names = names_in(step.cheats)
    for name in names:
        if name not in known:
            raise UsageError(f"{step.catalogue} has no cheat {name!r}")
    return [known[name] for name in names]


class _StoppedError(Exception):
    """The step is over, or the user interrupted it."""


def _judged(step: CheatsStep, context: Context, cheats: list[Cheat]) -> Iterator[CheatResult]:
    """The verdict on each edit, as it comes; several at once, each on one core."""
    stopped = threading.Event()

    def tick() -> None:
        if stopped.is_set():
            raise _StoppedError

    quiet = replace(
        context, on_tick=tick, on_line=lambda _: None, on_progress=lambda done, total, label: None,
        on_found=lambda _: None, on_waiting=lambda _: None, on_identity=lambda _: None,
    )  # fmt: skip
    with ThreadPoolExecutor(step.at_once or context.machine.cores) as pool:
        left = {pool.submit(_judge, step, quiet, cheat) for cheat in cheats}
        try:
            while left and context.remaining:
                done, left = wait(left, timeout=0.2, return_when=FIRST_COMPLETED)
                context.on_tick()
                for one in done:
                    yield one.result()
        finally:
            # The threads see it at the next tick and stop their processes.
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _judge(step: CheatsStep, context: Context, cheat: Cheat) -> CheatResult:
    kind, outcome = _attempt(step, context, cheat)
    if outcome.status in _CAUGHT:
        return CheatResult(cheat=cheat, verdict="caught", step=kind, message=outcome.message)
    judged = outcome.status in _FIGURE
    message = f"{kind}: {outcome.status}: {outcome.message}"
    return CheatResult(cheat=cheat, verdict="passed" if judged else "not-judged", message=message)


def _attempt(step: CheatsStep, context: Context, cheat: Cheat | None) -> tuple[str, Outcome]:
    """Run a copy of the kernel with the edit; the kind of the last step, and how it ended."""
    assert context.plan is not None
    part = context.built.specialisation if context.built else ""
    common: dict[str, Any] = {
        "title": step.title, "expected": step.expected, "timeout": step.timeout,
    }  # fmt: skip
    build = BuildStep(
        kind="build", id="build", target=context.plan.target, specialisation=part, **common
    )
    check = ValidateStep(kind="validate", id="validate", case_sets=step.case_sets, **common)
    timed = BenchmarkStep(
        kind="benchmark", id="benchmark", case_sets=step.benchmark, peers=step.peers,
        samples=step.samples, **common,
    )  # fmt: skip
    with copied_kernel(context) as root:
        folder = root / "kernels" / context.manifest.id
        if cheat and cheat.after is None:
            _edit(folder, cheat)
        limit = min(float(step.limit.minutes * 60), context.remaining)
        own = _Sandbox(
            root=root,
            kernel=read_record(folder / "kernel.yaml", Kernel),
            machine=context.machine.model_copy(update={"cores": 1}),
            seed=context.seed,
            on_tick=context.on_tick,
            run=context.run,
            wait=context.wait,
            deadline=time.monotonic() + limit,
            to_time=step.benchmark,
        )
        outcome = Build().run(build, own)
        if outcome.status != "passed":
            return "build", outcome
        if cheat and cheat.after == "build":
            _edit(folder, cheat)
        outcome = Validate().run(check, own)
        if outcome.status != "passed":
            return "validate", outcome
        if cheat and cheat.after == "validate":
            _edit(folder, cheat)
        return "benchmark", Benchmark().run(timed, own)


def _edit(folder: Path, cheat: Cheat) -> None:
    try:
        edit_file(folder, cheat.file, cheat.find, cheat.put)
    except UsageError as error:
        raise UsageError(f"{cheat.id}: {error}") from None
