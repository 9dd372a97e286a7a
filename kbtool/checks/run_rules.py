"""Rules over one run."""

from __future__ import annotations

from collections.abc import Iterator

from kbtool.checks.ceiling import refusal
from kbtool.model.finding import Finding
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.run import Run


def run_is_in_its_place(path: str, run: Run) -> Iterator[Finding]:
    """A run lies in the folder of its session, under its id: ID.json, later ID.ATTEMPT.json."""
    parts = path.split("/")
    if parts[1] != run.session:
        yield Finding(path, 1, "run", f"is of session {run.session} but in {parts[1]}; move it")
    wanted = f"{run.id}.json" if run.attempt == 1 else f"{run.id}.{run.attempt}.json"
    if parts[-1] != wanted:
        yield Finding(path, 1, "run", f"must be called {wanted}, as its id and attempt say")


def benchmarks_are_possible(path: str, run: Run) -> Iterator[Finding]:
    """No case of a benchmark that counts would have been refused while it was measured."""
    for step in run.steps:
        result = step.result
        if not isinstance(result, BenchmarkResult):
            continue
        for case in result.cases:
            why = refusal(case, result.subject, result.read_gb_s)
            if case.refused is None and why is not None:
                message = f"step {step.id}, case {case.name!r}: {why}, but it is not refused"
                yield Finding(path, 1, "run", message)
