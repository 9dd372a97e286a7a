"""The step kind ``benchmark``: the validated library beside its peers."""

from __future__ import annotations

import math

from kbtool.model.recipe import BenchmarkStep
from kbtool.model.run import BenchmarkResult
from kbtool.steps.base import Context, Outcome, run_worker, worker_failure
from kbtool.steps.validate import library_request
from kbtool.store.lock import LockTimeoutError, lock


class Benchmark:
    """Refuses any file that validate has not passed in the same run."""

    def plan(self, step: BenchmarkStep, context: Context) -> list[str]:
        """The cases and the samples."""
        cases = context.cases(step.case_set)
        threads = step.threads or context.machine.cores
        return [
            f"time {len(cases)} cases of {step.case_set}, {step.samples} samples an arm,"
            f" {threads} threads; refused unless validate passed this very library"
        ]

    def run(self, step: BenchmarkStep, context: Context) -> Outcome:
        """Failed if a case is wrong after timing or beats the machine's own ceiling."""
        if context.built is None or context.plan is None:
            return Outcome("refused", "nothing was built in this run")
        if context.validated != context.built.sha256:
            return Outcome(
                "refused",
                f"library {context.built.sha256[:12]} has not passed validation in this run",
            )
        request = {
            **library_request(context.plan, context.built, context.manifest),
            "task": "benchmark",
            "cases": context.taken(step.case_set)[0],
            "seed": context.seed,
            "threads": step.threads or context.machine.cores,
            "samples": step.samples,
        }
        # Two benchmarks at once would measure each other.
        try:
            with lock(
                context.root / ".kbtool" / "benchmark.lock",
                on_wait=lambda: context.on_waiting("another benchmark on this machine"),
                timeout=context.remaining,
            ):
                event, done = run_worker(request, context)
        except LockTimeoutError:
            return Outcome("timeout", "another benchmark kept this machine busy")
        failure = worker_failure(event, done, "benchmarking")
        if failure is not None:
            return failure
        result = BenchmarkResult.model_validate(event["result"])
        refused = [case for case in result.cases if case.refused]
        if refused:
            first = f"{refused[0].name}: {refused[0].refused}"
            return Outcome(
                "failed", f"{len(refused)} of {len(result.cases)} figures are refused: {first}",
                result, first,
            )  # fmt: skip
        return Outcome("passed", headline(result), result)


def headline(result: BenchmarkResult) -> str:
    """A benchmark in a line: the geometric mean of the ratios and their range."""
    if result.noise is not None:
        return f"{len(result.cases)} cases timed; {result.noise}, so no ratio is claimed"
    ratios = [value for case in result.cases if (value := result.ratio(case)) is not None]
    if not ratios:
        return f"{len(result.cases)} cases timed; no {result.baseline} to compare with"
    mean = math.exp(sum(math.log(value) for value in ratios) / len(ratios))
    return (
        f"{result.baseline} ÷ {result.subject}: geometric mean {mean:.2f}×,"
        f" {min(ratios):.2f}× to {max(ratios):.2f}× over {len(ratios)} cases"
    )
