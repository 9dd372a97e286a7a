"""The step kind ``ablate``: the kernel with and without each technique, timed in turn."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from kbtool.model.ablation import Ablation
from kbtool.model.errors import UsageError
from kbtool.model.identity import Identity
from kbtool.model.kernel import CaseValue, Kernel
from kbtool.model.kinds.ablate import AblateResult, AblateStep, AblationCase, AblationResult
from kbtool.model.kinds.base import names_in
from kbtool.model.kinds.benchmark import BenchmarkResult, BenchmarkStep
from kbtool.model.kinds.build import BuildStep
from kbtool.model.kinds.validate import ValidateStep
from kbtool.model.run import StepStatus
from kbtool.model.words import many
from kbtool.steps.ablate import page, report
from kbtool.steps.base import Context, Invocation, Links, Outcome, StepKind, Table
from kbtool.steps.benchmark.run import Benchmark
from kbtool.steps.build.run import Build
from kbtool.steps.copies import copied_kernel, edit_file, read_record
from kbtool.steps.validate.run import Validate


class Ablate(StepKind[AblateStep, AblateResult]):
    """Measures what techniques gain; an ablated kernel has to pass validation first."""

    result = AblateResult

    def plan(self, step: AblateStep, context: Context) -> list[str]:
        """Which techniques are taken out, and what is timed."""
        chosen = _chosen(step, context)
        lines = [f"take out {ablation.id} ({pattern})" for pattern, ablation in chosen]
        return [
            *(lines or ["no pattern has an ablation of this kernel"]),
            f"for each of the built target: build the rest, validate it over {step.case_sets}, and"
            f" time it and the whole kernel in turn, {many(step.rounds, 'round')} of"
            f" {many(step.samples, 'sample')}, at most {step.limit} each",
        ]

    def run(self, step: AblateStep, context: Context) -> Outcome:
        """Fails if an ablation does not build or is wrong; noisy if others were busy."""
        if (refusal := context.gate()) is not None:
            return refusal
        assert context.built is not None and context.plan is not None
        tried, skipped = [], {}
        for pattern, ablation in _chosen(step, context):
            if why := _not_here(ablation, context):
                skipped[ablation.id] = why
            else:
                tried.append((pattern, ablation))
        if not tried:
            reasons = "; ".join(f"{name}: {why}" for name, why in skipped.items()) or "none known"
            return Outcome("failed", f"no ablation can be tried here: {reasons}")
        results: list[AblationResult] = []
        trials = [_Trial(step, context, *one) for one in tried]

        def found() -> AblateResult:
            assert context.built is not None and context.plan is not None
            timed = next((trial.timed for trial in trials if trial.timed), None)
            device, between = timed or (context.plan.device, False)
            return AblateResult(
                kernel=context.manifest.id,
                target=context.plan.target,
                device=device,
                seed=context.seed,
                sha256=context.built.sha256,
                case_sets=step.case_sets,
                between=between,
                ablations=results,
                skipped=skipped,
                not_reached=len(tried) - len(results),
            )

        with ExitStack() as copies:
            _build_all(trials, context, copies)
            for trial in trials:
                if not context.remaining:
                    late = "the step's time was over before every ablation"
                    return Outcome("timeout", late, found())
                results.append(trial.run())
                context.on_found(found())
                context.on_progress(len(results), len(tried), report.summary(results[-1]))
        result = found()
        if result.fault:
            wrong = next(one for one in results if one.verdict != "measured")
            error = f"{wrong.ablation.id}: {wrong.message}"
            return Outcome("failed", report.headline(result), result, error, error)
        status: StepStatus = "noisy" if result.noise else "passed"
        return Outcome(status, report.headline(result), result)

    def found(self, result: AblateResult, status: StepStatus) -> str:
        """What was measured so far, where the step was cut short."""
        return "" if status in {"passed", "failed"} else report.headline(result)

    def report(self, result: AblateResult, invocation: Invocation) -> list[str | Table]:
        """See ``report``."""
        return report.report(result)

    def page(self, result: AblateResult, links: Links) -> str:
        """See ``page``."""
        return page.page(result, links)


def _chosen(step: AblateStep, context: Context) -> list[tuple[str, Ablation]]:
    """The ablations that the step names, of every target, each with its pattern."""
    patterns = {pattern for pattern, _ in context.ablations}
    wanted = _named(step.patterns, patterns, "pattern with an ablation")
    of_patterns = [(p, a) for p, a in context.ablations if p in wanted]
    names = _named(step.ablations, {a.id for _, a in of_patterns}, "ablation")
    return [(p, a) for p, a in of_patterns if a.id in names]


def _named(listed: str, known: set[str], what: str) -> set[str]:
    if listed == "all":
        return known
    names = names_in(listed)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"there is {', '.join(sorted(known))}"
            raise UsageError(f"there is no {what} {name!r}; {meant}")
    return set(names)


def _not_here(ablation: Ablation, context: Context) -> str | None:
    """Why an ablation cannot be tried with what was built, or ``None``."""
    assert context.plan is not None
    if ablation.target != context.plan.target:
        return f"needs a build for {ablation.target}"
    if not _accepted(ablation, context):
        return "none of its cases is taken by this build"
    # The sources of another architecture, or of a part of the target that was left out.
    sources = {*context.plan.sources, "kernel.yaml"}
    missing = [edit.file for edit in ablation.edits if edit.file not in sources]
    return f"{missing[0]} is no part of this build" if missing else None


def _accepted(ablation: Ablation, context: Context) -> list[str]:
    """The cases of an ablation that the built target takes."""
    taken = _Timed.of(context, ablation).accepted_cases(_sets(ablation))[0]
    return [f"{case_set}/{case['name']}" for case_set, case in taken]


def _sets(ablation: Ablation) -> str:
    return ",".join(dict.fromkeys(case.partition("/")[0] for case in ablation.cases))


@dataclass
class _Timed(Context):
    """A context that takes some cases only."""

    only: frozenset[str] = frozenset()
    """SET/NAME of each."""

    @classmethod
    def of(cls, context: Context, ablation: Ablation) -> _Timed:
        """The same context, for the cases of an ablation."""
        same = {field.name: getattr(context, field.name) for field in fields(Context)}
        return cls(**same, only=frozenset(ablation.cases))

    def cases(self, case_sets: str) -> list[tuple[str, dict[str, CaseValue]]]:
        """Those of the cases that are among ``only``."""
        return [e for e in super().cases(case_sets) if f"{e[0]}/{e[1]['name']}" in self.only]


class _StoppedError(Exception):
    """The user interrupted the step while it built."""


def _build_all(trials: list[_Trial], context: Context, copies: ExitStack) -> None:
    """Build every ablated kernel in a copy of its own, several at once."""
    stopped = threading.Event()

    def tick() -> None:
        if stopped.is_set():
            raise _StoppedError

    roots = [copies.enter_context(copied_kernel(context)) for _ in trials]
    with ThreadPoolExecutor(context.machine.cores) as pool:
        pairs = zip(trials, roots, strict=True)
        left = {pool.submit(trial.build, root, tick) for trial, root in pairs}
        try:
            while left:
                done, left = wait(left, timeout=0.2, return_when=FIRST_COMPLETED)
                context.on_tick()
                for one in done:
                    one.result()
        finally:
            # The threads see it at the next tick and stop their compilers.
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)


class _Trial:
    """One ablation: build, validate, then time in turn."""

    def __init__(
        self, step: AblateStep, context: Context, pattern: str, ablation: Ablation
    ) -> None:
        self.step, self.pattern, self.ablation = step, pattern, ablation
        self.context = replace(
            context,
            on_line=lambda _: None,
            on_progress=lambda done, total, label: None,
            on_found=lambda _: None,
        )
        self.timed: tuple[str, bool] | None = None
        """The device that timed it, and whether the times are between plain kernels."""
        self._without: Context | AblationResult

    def build(self, root: Path, tick: Callable[[], None]) -> None:
        """Build the kernel without the technique, in the copy of its folder below ``root``."""
        whole = self.context
        assert whole.plan is not None and whole.built is not None
        folder = root / "kernels" / whole.manifest.id
        try:
            for edit in self.ablation.edits:
                edit_file(folder, edit.file, edit.find, edit.put)
            kernel = read_record(folder / "kernel.yaml", Kernel)
        except UsageError as error:
            self._without = self._verdict("not-built", str(error))
            return
        own = replace(
            whole, root=root, kernel=kernel, plan=None, built=None, validated=[],
            identity=Identity(), on_identity=lambda _: None, on_tick=tick,
        )  # fmt: skip
        build = BuildStep(
            kind="build", id="build", target=whole.plan.target,
            specialisation=whole.built.specialisation, **self._common(),
        )  # fmt: skip
        outcome = Build().run(build, own)
        self._without = replace(own, on_tick=whole.on_tick)
        if outcome.status != "passed" or own.built is None:
            verdict = "not-built" if outcome.status == "failed" else "not-judged"
            self._without = self._verdict(verdict, outcome.error or outcome.message)
        elif own.built.sha256 == whole.built.sha256:
            self._without = self._verdict("not-built", "the edits change nothing in the library")

    def run(self) -> AblationResult:
        """The verdict, and the times if the ablated kernel is right."""
        if isinstance(self._without, AblationResult):
            return self._without
        own = self._without
        limit = min(float(self.step.limit.minutes * 60), self.context.remaining)
        self.context.deadline = own.deadline = time.monotonic() + limit
        check = ValidateStep(
            kind="validate", id="validate", case_sets=self.step.case_sets, **self._common()
        )
        outcome = Validate().run(check, own)
        if outcome.status != "passed":
            verdict = "wrong" if outcome.status == "failed" else "not-judged"
            return self._verdict(verdict, f"{outcome.status}: {outcome.message}")
        return self._time(own)

    def _verdict(self, verdict: Any, message: str) -> AblationResult:
        return AblationResult(
            pattern=self.pattern, ablation=self.ablation, verdict=verdict, message=message
        )

    def _time(self, without: Context) -> AblationResult:
        assert without.built is not None
        sides = (_Timed.of(self.context, self.ablation), _Timed.of(without, self.ablation))
        timed = BenchmarkStep(
            kind="benchmark", id="benchmark", case_sets=_sets(self.ablation), peers="",
            samples=self.step.samples, **self._common(),
        )  # fmt: skip
        results: tuple[list[BenchmarkResult], list[BenchmarkResult]] = ([], [])
        for round_number, side in _turns(self.step.rounds):
            outcome = Benchmark().run(timed, sides[side])
            which = ("with", "without")[side]
            if outcome.status not in {"passed", "noisy"}:
                message = f"round {round_number + 1}, {which} it: {outcome.message}"
                return self._verdict("not-judged", message)
            assert isinstance(outcome.result, BenchmarkResult)
            results[side].append(outcome.result)
        first = results[0][0]
        between = all(
            case.arms[first.subject].between_us is not None
            for result in (*results[0], *results[1])
            for case in result.cases
        )
        self.timed = first.device, between
        return AblationResult(
            pattern=self.pattern,
            ablation=self.ablation,
            verdict="measured",
            sha256=without.built.sha256,
            noise=next((r.noise for r in (*results[0], *results[1]) if r.noise), None),
            cases=[
                AblationCase(
                    case=f"{case.case_set}/{case.name}",
                    with_us=_times(results[0], number, between),
                    without_us=_times(results[1], number, between),
                )
                for number, case in enumerate(first.cases)
            ],
        )

    def _common(self) -> dict[str, Any]:
        step = self.step
        return {"title": step.title, "expected": step.expected, "timeout": step.timeout}


def _turns(rounds: int) -> Iterator[tuple[int, int]]:
    """(round, side): with, without; without, with; and so on, so that what drifts meets both."""
    for number in range(rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            yield number, side


def _times(results: list[BenchmarkResult], number: int, between: bool) -> list[float]:
    """The kernel's own time of one case, in microseconds, one a round."""
    times = [result.cases[number].arms[result.subject].us(between) for result in results]
    return [time_us for time_us in times if time_us is not None]
