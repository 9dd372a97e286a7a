"""Validate the unmodified library, then its mutants, several in parallel."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

from kbtool.gpu.build import BuildError, BuildTimeoutError, build_all
from kbtool.gpu.build_plan import BuildPlan
from kbtool.gpu.mutants import over_bound, plan_mutant
from kbtool.gpu.process import Completed
from kbtool.model.kernel import CaseValue
from kbtool.model.kinds.base import names_in
from kbtool.model.kinds.mutants import MutantResult, MutantsResult, MutantsStep, replaceable_cases
from kbtool.model.kinds.validate import CaseResult, ValidationResult
from kbtool.model.mutant import Mutant
from kbtool.model.words import many
from kbtool.steps.base import Context, Outcome
from kbtool.steps.build.run import ninja_progress
from kbtool.steps.mutants import report
from kbtool.steps.worker import library_request, run_worker, worker_failure

_Result = TypeVar("_Result")

_MOST_ON_A_CARD = 6
"""The most processes per card: each holds a CUDA context and its tensors."""

_BUILT_TOGETHER = 16
"""How many mutants are built while the ones before are validated."""


def _cards(context: Context) -> list[str]:
    """The cards that processes may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return visible.split(",")
    return [str(number) for number in range(context.machine.cards or 1)]


@dataclass(frozen=True)
class _Library:
    plan: BuildPlan
    sha256: str


class TimeUpError(Exception):
    """The step has run out of time."""


def tells_nothing(process: Completed, silent: float, limit: float) -> bool:
    """Whether a process ended for a reason that is not the kernel's fault.

    Args:
        process: how it ended.
        silent: seconds since its last case came to an end.
        limit: seconds that it was given for all of its cases.
    """
    if process.timed_out:
        return 2 * silent < limit  # case after case ended: the machine is slow, nothing hangs
    return process.died == "SIGKILL"  # the machine ran out of memory: no kernel does that itself


class _StoppedError(Exception):
    """Another thread failed, or the user interrupted."""


class Trial:
    """One run of the step: the library as it is, then each mutant, several at once."""

    def __init__(
        self,
        step: MutantsStep,
        context: Context,
        chosen: list[tuple[str, Mutant]],
        cases: list[tuple[str, dict[str, CaseValue]]],
    ) -> None:
        assert context.plan is not None and context.built is not None
        self.step, self.context, self.chosen, self.cases = step, context, chosen, cases
        self.plan, self.built = context.plan, context.built
        self.seed = step.seed or context.seed
        profiled = names_in(step.profile)
        self.profiled = {n for n, (name, _) in enumerate(self.cases) if name in profiled}
        cores = context.machine.cores
        cards = _cards(context) if self.plan.device == "cuda" else []
        self.at_once = step.at_once or (min(cores, _MOST_ON_A_CARD * len(cards)) or cores)
        # A process takes a place, and with it its card, while it validates.
        self.places: SimpleQueue[dict[str, str]] = SimpleQueue()
        for place in range(self.at_once):
            on = {"CUDA_VISIBLE_DEVICES": cards[place % len(cards)]} if len(cards) > 1 else {}
            self.places.put(on)
        self.stopped = threading.Event()

    def run(self) -> Outcome:
        """Judge every mutant that was chosen; the outcome of the step."""
        with tempfile.TemporaryDirectory(prefix="kbtool-mutants-") as folder, self._pool() as pool:
            # The unmodified library: a failure here is not due to a mutant.
            variants = list(dict.fromkeys(mutant.variant for _, mutant in self.chosen))
            controls = [pool.submit(self._control, variant) for variant in variants]
            judged: list[Future[MutantResult]] = []
            unreported: list[Future[MutantResult]] = []
            passed: list[ValidationResult] = []
            libraries: list[_Library | str] = []

            def tell(last: Future[MutantResult]) -> None:
                known = [one.result() for one in judged if one.done()]
                self.context.on_found(self._result(passed[0], known))
                self.context.on_progress(
                    len(known), len(self.chosen), report.summary(last.result())
                )

            for first in range(0, len(self.chosen), _BUILT_TOGETHER):
                some = self.chosen[first : first + _BUILT_TOGETHER]
                built = self._build(some, Path(folder))
                libraries += built
                if not passed:
                    self._wait(controls)
                    for variant, control in zip(variants, controls, strict=True):
                        known = control.result()
                        if isinstance(known, Outcome) and known.status == "unavailable":
                            known = self._alone(pool.submit(self._control, variant))
                        if isinstance(known, Outcome):
                            return known
                        passed.append(known)
                under_way = [
                    pool.submit(self._judge, bug, mutant, library)
                    for (bug, mutant), library in zip(some, built, strict=True)
                ]
                judged += under_way
                unreported += under_way
                # Record the judged mutants before the next ones are built.
                done = [one for one in unreported if one.done()]
                self._wait(done, tell)
                unreported = [one for one in unreported if one not in done]
            self._wait(unreported, tell)
            results = [one.result() for one in judged]
            for n, one in enumerate(results):
                if one.verdict == "not-judged":
                    again = pool.submit(self._judge, *self.chosen[n], libraries[n])
                    results[n] = self._alone(again)
                    self.context.on_found(self._result(passed[0], results))
                    summary = f"once more, alone: {report.summary(results[n])}"
                    self.context.on_progress(len(results), len(self.chosen), summary)
            return self._outcome(self._result(passed[0], results))

    def _alone(self, future: Future[_Result]) -> _Result:
        """Judge alone the mutants that ran out of card memory beside others."""
        self._wait([future])
        return future.result()

    @contextmanager
    def _pool(self) -> Iterator[ThreadPoolExecutor]:
        with ThreadPoolExecutor(self.at_once) as pool:
            try:
                yield pool
            except BaseException:
                # The threads see it at the next tick and stop their processes.
                self.stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _wait(
        self,
        futures: list[Future[Any]],
        on_done: Callable[[Future[Any]], None] = lambda one: None,
    ) -> None:
        left = set(futures)
        while left:
            done, left = wait(left, timeout=0.2, return_when=FIRST_COMPLETED)
            self.context.on_tick()
            for one in done:
                one.result()
                on_done(one)

    def _tick(self) -> None:
        if self.stopped.is_set():
            raise _StoppedError

    def _build(self, some: list[tuple[str, Mutant]], folder: Path) -> list[_Library | str]:
        """Each mutant's library, or the error."""
        plans: dict[str, BuildPlan] = {}
        errors: dict[str, str] = {}
        for _, mutant in some:
            try:
                plans[mutant.id] = plan_mutant(self.plan, mutant, folder / mutant.id)
            except ValueError as error:
                errors[mutant.id] = str(error)
        results = build_all(
            list(plans.values()),
            timeout=self.context.remaining,
            jobs=self.step.jobs,
            on_line=ninja_progress(self.context),
            on_tick=self.context.on_tick,
        )
        libraries: dict[str, _Library | str] = dict(errors)
        for (id_, plan), result in zip(plans.items(), results, strict=True):
            if isinstance(result, BuildTimeoutError):
                raise result
            if isinstance(result, BuildError):
                libraries[id_] = result.first
            else:
                libraries[id_] = _Library(plan, result.sha256)
        return [libraries[mutant.id] for _, mutant in some]

    def _control(self, variant: str | None) -> ValidationResult | Outcome:
        """Validate the unmodified library; returns an outcome if a case is wrong."""
        library = _Library(self.plan, self.built.sha256)
        event, done = self._validate(library, variant, self.context.remaining, lambda _: None)
        failure = worker_failure(event, done, "validating the library without bugs")
        if failure is not None:
            return failure
        result = ValidationResult.model_validate(event["result"])
        wrong = [case for case in result.cases if not case.passed]
        if not wrong:
            return result
        first = f"{wrong[0].case_set}/{wrong[0].name}: {wrong[0].message}"
        message = f"{many(len(wrong), 'case')} wrong without any bug put back; fix that first"
        return Outcome("failed", message, result, first, first)

    def _judge(self, bug: str, mutant: Mutant, library: _Library | str) -> MutantResult:
        """Validate one mutant."""
        if isinstance(library, str):
            return MutantResult(
                bug=bug, mutant=mutant, verdict="not-built", cases_run=0, message=library
            )
        numbers = self._numbers(mutant.variant)
        cases: list[CaseResult] = []
        profiles: dict[int, list[float | None]] = {}
        last_heard = time.monotonic()

        def on_event(event: dict[str, Any]) -> None:
            nonlocal last_heard
            last_heard = time.monotonic()
            if event["event"] == "progress":
                cases.extend(ValidationResult.model_validate(event["part"]).cases)
            else:
                profiles[numbers[event["case"]]] = event["errors"]

        limit = float(self.step.limit.minutes * 60)
        event, done = self._validate(library, mutant.variant, limit, on_event)
        if done.timed_out and not self.context.remaining:
            raise TimeUpError
        if event["event"] in {"unavailable", "failed"}:
            unjudged = event["message"]
        elif tells_nothing(done, time.monotonic() - last_heard, limit):
            unjudged = self._how_it_ended(numbers, len(cases), done, event)
        else:
            unjudged = None
        if unjudged is not None:
            return MutantResult(
                bug=bug, mutant=mutant, sha256=library.sha256, verdict="not-judged",
                cases_run=len(cases), message=unjudged,
            )  # fmt: skip
        seen = list(zip(numbers, cases, strict=False))
        killed_by = [number for number, case in seen if not case.passed]
        over = [number for number, case in seen if over_bound(case, self.step.bound)]
        messages = [f"{self._name(n)}: {case.message}" for n, case in seen if not case.passed]
        cut_short: Literal["died", "hung"] | None = None
        if event["event"] != "result":
            cut_short = "hung" if done.timed_out else "died"
            if len(cases) < len(numbers):
                # The case under way is the one that ended the process.
                killed_by.append(numbers[len(cases)])
                over.append(numbers[len(cases)])
            messages.append(self._how_it_ended(numbers, len(cases), done, event))
        return MutantResult(
            bug=bug,
            mutant=mutant,
            sha256=library.sha256,
            verdict="killed" if killed_by or cut_short else "survived",
            killed_by=killed_by,
            over_bound=over if self.step.bound else [],
            cut_short=cut_short,
            cases_run=len(cases),
            message=messages[0] if messages else None,
            profiles=profiles,
        )

    def _validate(
        self,
        library: _Library,
        variant: str | None,
        limit: float,
        on_event: Callable[[dict[str, Any]], None],
    ) -> tuple[dict[str, Any], Completed]:
        """Run the cases in their own process, so that a CUDA error does not affect others."""
        numbers = self._numbers(variant)
        request = {
            **library_request(self.plan, self.built, self.context.manifest),
            "library": str(library.plan.library),
            "modules": [str(path) for path in library.plan.modules],
            "sha256": library.sha256,
            "task": "kbtool.steps.validate.task:Validate",
            "cases": [self.cases[number] for number in numbers],
            "seed": self.seed,
            "threads": max(1, self.context.machine.cores // self.at_once),
            "variants": [variant],
            "profiled": [i for i, number in enumerate(numbers) if number in self.profiled],
            "profile_axis": self.step.profile_axis,
        }
        place = self.places.get()
        try:
            return run_worker(
                request,
                self.context,
                timeout=min(limit, self.context.remaining),
                env=place,
                on_event=on_event,
                on_tick=self._tick,
            )
        finally:
            self.places.put(place)

    def _numbers(self, variant: str | None) -> list[int]:
        """The cases that a variant takes."""
        target = self.context.manifest.targets[self.plan.target]
        return [n for n, (_, case) in enumerate(self.cases) if target.takes(case, variant)]

    def _name(self, number: int) -> str:
        case_set, case = self.cases[number]
        return f"{case_set}/{case['name']}"

    def _how_it_ended(
        self, numbers: list[int], done: int, process: Completed, event: dict[str, Any]
    ) -> str:
        where = self._name(numbers[done]) if done < len(numbers) else "after the last case"
        if event["event"] == "crashed":
            return f"{where}: {event['message']}"
        if process.timed_out:
            return f"{where}: did not end within {self.step.limit}"
        if process.died:
            return f"{where}: the process was killed by {process.died}"
        lines = process.output.strip().splitlines()
        last = f": {lines[-1]}" if lines else ""
        return f"{where}: the process ended with status {process.returncode}{last}"

    def _result(self, control: ValidationResult, results: list[MutantResult]) -> MutantsResult:
        return MutantsResult(
            kernel=self.context.manifest.id,
            target=self.plan.target,
            sha256=self.built.sha256,
            device=control.device,
            seed=self.seed,
            rule=control.rule,
            bound=self.step.bound or None,
            cases=[self._name(number) for number in range(len(self.cases))],
            mutants=results,
            replaceable=replaceable_cases(len(self.cases), results),
            not_reached=len(self.chosen) - len(results),
        )

    def _outcome(self, result: MutantsResult) -> Outcome:
        findings = [
            f"{one.mutant.id} ({one.bug}): {one.finding}"
            + (f": {one.message}" if one.message else "")
            for one in result.mutants
            if one.finding is not None
        ]
        if findings:
            return Outcome(
                "failed", report.headline(result), result, findings[0], "\n".join(findings)
            )  # fmt: skip
        return Outcome("passed", report.headline(result), result)
