"""The step kind ``benchmark``: the validated library beside its peers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kbtool.gpu.harness import peers_named_in, unknown_peer
from kbtool.model.errors import UsageError
from kbtool.model.kinds.base import names_in
from kbtool.model.kinds.benchmark import BenchmarkResult, BenchmarkStep
from kbtool.model.run import StepStatus
from kbtool.model.words import many
from kbtool.steps.base import Context, Invocation, Links, Outcome, StepKind, Table
from kbtool.steps.benchmark import page, report
from kbtool.steps.worker import alone, library_request, measure, with_part

PEER_SECONDS = 300.0
"""The longest time of one call of a peer: its first call may compile for minutes."""
SHORT_SECONDS = 60.0
"""A benchmark that is over sooner is not worth stopping because others are busy."""
PEER_LOSSES = 2
"""How many times in a step a peer may kill the process or hang."""
RULE = (
    "a peer that kills its process, or is not back after"
    f" {PEER_SECONDS / 60:g} min, is left out of that case, after {PEER_LOSSES} such cases of all"
    " that follow"
)


class Benchmark(StepKind[BenchmarkStep, BenchmarkResult]):
    """Refuses any file that validate has not passed in the same run."""

    result = BenchmarkResult

    def plan(self, step: BenchmarkStep, context: Context) -> list[str]:
        """The cases and the samples."""
        cases = context.cases(step.case_sets)
        context.variants(step.variants)
        threads = step.threads or context.machine.cores
        if threads > context.machine.cores:
            cores = many(context.machine.cores, "core")
            raise UsageError(f"{threads} threads are more than this machine has: {cores}")
        known = peers_named_in(context.kernel_folder / context.manifest.harness)
        if known and (unknown := unknown_peer(_peers(step) or (), known)):
            raise UsageError(unknown)
        return [
            f"time {many(len(cases), 'case')} of {step.case_sets},"
            f" {many(step.samples, 'sample')} of each, {many(threads, 'thread')}{_named(step)},"
            f" peers {step.peers}{_with_energy(step)}; refused unless this library passed"
            " validation",
            RULE,
        ]

    def run(self, step: BenchmarkStep, context: Context) -> Outcome:
        """Fails if a case is wrong after timing or faster than the machine's ceiling allows; noisy
        if others were busy meanwhile and no case is wrong."""
        named = [name for name in context.variants(step.variants) if name is not None]
        refusal = context.gate([None, *named])
        if refusal is not None:
            return refusal
        assert context.built is not None and context.plan is not None
        cases = context.accepted_cases(step.case_sets)[0]
        if not cases:
            return context.none_accepted(step.case_sets)
        timing = _Timing(
            {
                **library_request(context.plan, context.built, context.manifest),
                "closed": True,
                "task": "kbtool.steps.benchmark.task:Benchmark",
                "cases": cases,
                "seed": context.seed,
                "threads": step.threads or context.machine.cores,
                "samples": step.samples,
                "expected_s": max(context.expected_s, SHORT_SECONDS),
                "energy": step.energy,
                "variants": named,
                "peers": _peers(step),
                "own_calls": context.manifest.own_calls,
            },
            context,
        )
        with alone(timing.request, context):
            measured, failure = timing.run()
        if failure is not None:
            return failure
        result = timing.with_rule(BenchmarkResult.model_validate(measured))
        refused = [case for case in result.cases if case.refused]
        if not refused:
            return Outcome(result.step_status, report.headline(result), result)
        first = f"{refused[0].name}: {refused[0].refused}"
        message = f"{len(refused)} of {many(len(result.cases), 'figure')} refused: {first}"
        if result.step_status == "noisy":
            return Outcome("noisy", f"{result.noise}; {message}", result)
        return Outcome(result.step_status, message, result, first)

    def found(self, result: BenchmarkResult, status: StepStatus) -> str:
        """The speed beside the best peer."""
        return report.speed(result)

    def report(self, result: BenchmarkResult, invocation: Invocation) -> Sequence[str | Table]:
        """See ``report``."""
        return report.report(result, invocation.kernel)

    def page(self, result: BenchmarkResult, links: Links) -> str:
        """See ``page``."""
        return page.page(result, links)


class _HangError(Exception):
    """A peer took too long; its process has been stopped."""


class _Timing:
    """One benchmark. Each peer that kills its process makes another process necessary."""

    def __init__(self, request: dict[str, Any], context: Context) -> None:
        self.request, self.context = request, context
        self.known: BenchmarkResult | None = None
        self.lost: dict[str, dict[int, str]] = {}
        """Peer → number of a case → how the process ended in it."""
        self.peer: str | None = None
        """The peer that is running."""
        self.since = 0.0

    def run(self) -> tuple[Any, Outcome | None]:
        """The last process's result, or the outcome if it returned none and no peer caused that."""
        while True:
            self.peer = None
            request = {
                **self.request,
                "left_out": [self._left_out(n) for n in range(len(self.request["cases"]))],
                "known": self.known and self.known.model_dump(mode="json"),
            }
            try:
                measured, failure = measure(
                    request, self.context, "benchmarking", self._on_event, self._tick
                )
            except _HangError:
                self._lose(f"not back after {PEER_SECONDS / 60:g} min")
                continue
            if failure is None or self.peer is None or failure.status == "timeout":
                return measured, failure
            why = f": {failure.error}" if failure.status == "crashed" else ""
            self._lose(failure.message + why)

    def with_rule(self, result: BenchmarkResult) -> BenchmarkResult:
        """The result, with the rule for peers that ended a process in its protocol."""
        if not self.lost:
            return result
        return result.model_copy(update={"protocol": f"{result.protocol}; {RULE}"})

    def _left_out(self, number: int) -> dict[str, str]:
        """The peers that are left out of the case of that number, and why."""
        found = {}
        for peer, cases in self.lost.items():
            if number in cases:
                found[peer] = cases[number]
            elif len(cases) >= PEER_LOSSES:
                found[peer] = f"left out after {len(cases)} cases: {list(cases.values())[-1]}"
        return found

    def _on_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "peer":
            self.peer, self.since = event["peer"], time.monotonic()
            return
        part = BenchmarkResult.model_validate(event["part"])
        self.known = with_part(self.known, part, len(self.request["cases"]))
        self.context.on_found(self.with_rule(self.known))
        self.context.on_progress(event["done"], event["total"], event["label"])

    def _tick(self) -> None:
        self.context.on_tick()
        if self.peer is not None and time.monotonic() - self.since > PEER_SECONDS:
            raise _HangError

    def _lose(self, how: str) -> None:
        assert self.peer is not None
        number = len(self.known.cases) if self.known else 0
        self.lost.setdefault(self.peer, {})[number] = how
        case = self.request["cases"][number][1]["name"]
        self.context.on_waiting(f"another process: {self.peer}: {how}, in {case}")


def _peers(step: BenchmarkStep) -> list[str] | None:
    """The peers by name; ``None`` for all."""
    return None if step.peers == "all" else names_in(step.peers)


def _with_energy(step: BenchmarkStep) -> str:
    return ", and energy where the card tells it, 2 s each" if step.energy else ""


def _named(step: BenchmarkStep) -> str:
    return "" if step.variants == "default" else f", variants {step.variants} too"
