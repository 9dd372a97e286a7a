"""The step kind ``benchmark``: the validated library beside its peers."""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any

from kbtool.model.recipe import BenchmarkStep, names_in
from kbtool.model.results import BenchmarkResult
from kbtool.steps.base import Context, Outcome, run_alone, with_part
from kbtool.steps.validate import library_request


class Benchmark:
    """Refuses any file that validate has not passed in the same run."""

    def plan(self, step: BenchmarkStep, context: Context) -> list[str]:
        """The cases and the samples."""
        cases = context.cases(step.case_sets)
        threads = step.threads or context.machine.cores
        return [
            f"time {len(cases)} cases of {step.case_sets}, {step.samples} samples an arm,"
            f" {threads} threads{_named(step)}, peers {step.peers}; refused unless validate passed"
            " this very library"
        ]

    def run(self, step: BenchmarkStep, context: Context) -> Outcome:
        """Failed if a case is wrong after timing or beats the machine's own ceiling."""
        named = [name for name in context.variants(step.variants) if name is not None]
        shut = context.gate([None, *named])
        if shut is not None:
            return shut
        assert context.built is not None and context.plan is not None
        cases = context.taken(step.case_sets)[0]
        request = {
            **library_request(context.plan, context.built, context.manifest),
            "task": "benchmark",
            "cases": cases,
            "seed": context.seed,
            "threads": step.threads or context.machine.cores,
            "samples": step.samples,
            "variants": named,
            "peers": None if step.peers == "all" else names_in(step.peers),
        }
        known: BenchmarkResult | None = None

        def on_event(event: dict[str, Any]) -> None:
            nonlocal known
            part = BenchmarkResult.model_validate(event["part"])
            known = with_part(known, part, len(cases))
            context.on_found(known)
            context.on_progress(event["done"], event["total"], event["label"])

        measured, failure = run_alone(request, context, "benchmarking", on_event)
        if failure is not None:
            return failure
        result = BenchmarkResult.model_validate(measured)
        refused = [case for case in result.cases if case.refused]
        if refused:
            first = f"{refused[0].name}: {refused[0].refused}"
            return Outcome(
                "failed", f"{len(refused)} of {len(result.cases)} figures are refused: {first}",
                result, first,
            )  # fmt: skip
        return Outcome("passed", headline(result), result)


def _named(step: BenchmarkStep) -> str:
    return "" if step.variants == "default" else f", variants {step.variants} an arm each"


def headline(result: BenchmarkResult) -> str:
    """A benchmark in a line: the geometric mean of the ratios and their range."""
    if result.noise is not None:
        return f"{len(result.cases)} cases timed; {result.noise}, so no ratio is claimed"
    ratios = [value for case in result.cases if (value := result.ratio(case)) is not None]
    if not ratios:
        return f"{len(result.cases)} cases timed; no {result.baseline} to compare with"
    best = [value for values in result.by_set().values() for value in values]
    against_best = f"; best peer ÷ {result.subject}: {_span(best)}" if best else ""
    return f"{result.baseline} ÷ {result.subject}: {_span(ratios)}{against_best}"


def report(result: BenchmarkResult) -> list[str]:
    """Where there are several case sets, each against the best peers of its cases, in lines."""
    sets = result.by_set()
    if result.noise is not None or len(sets) < 2:
        return []
    return [
        f"{name or 'all'}: best peer ÷ {result.subject}: {_span(ratios)}"
        for name, ratios in sets.items()
    ]


def _span(ratios: list[float]) -> str:
    return (
        f"geometric mean {geometric_mean(ratios):.2f}×,"
        f" {min(ratios):.2f}× to {max(ratios):.2f}× over {len(ratios)} cases"
    )
