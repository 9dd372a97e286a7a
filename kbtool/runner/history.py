"""Expected durations of steps, from past runs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping

from kbtool.model.finding import Finding
from kbtool.model.kinds.base import StepBase
from kbtool.model.kinds.build import BuildResult
from kbtool.model.run import MachineInfo, Run
from kbtool.store.document import DocumentError, read_bytes
from kbtool.store.read import MAX_RUN_BYTES
from kbtool.store.tree import KnowledgeBase, parse_run

PAST_RUNS = 20


def place(machine: MachineInfo) -> tuple[str | None, str, int]:
    """What a duration depends on: the card, and without one the processor and its cores."""
    return (machine.card, machine.cpu, machine.cores)


def past_runs(
    base: KnowledgeBase, recipe: str, parameters: Mapping[str, str], machine: MachineInfo
) -> list[Run]:
    """The newest runs of ``recipe`` with the same parameters on the same card, or processor."""
    named = [path for path in base.run_files() if f"-{recipe}-" in path.name]
    # Of most runs the text tells already that they differ; to read 40 of them takes 2 s.
    texts = [json.dumps(text, ensure_ascii=False) for text in (machine.cpu, *parameters.values())]
    runs = []
    for path in sorted(named, key=lambda path: path.name, reverse=True)[: 2 * PAST_RUNS]:
        try:
            raw = read_bytes(path, base.shown(path), MAX_RUN_BYTES)
        except DocumentError:
            continue
        if not all(text.encode() in raw for text in texts):
            continue
        run = parse_run(raw, base.shown(path))
        if isinstance(run, Finding):
            continue
        alike = run.recipe == recipe and run.parameters == dict(parameters)
        if alike and place(run.machine) == place(machine):
            runs.append(run)
    return runs[:PAST_RUNS]


def seconds_taken(step: StepBase, runs: Iterable[Run]) -> list[float]:
    """How long a step took in those of ``runs`` that say something of the next one."""
    return [
        record.seconds
        for run in runs
        for record in run.steps
        if record.id == step.id and record.status == "passed" and record.seconds is not None
        and record.attempt == run.attempt
        # A build that reused objects does not show how long compiling takes.
        and not (
            isinstance(record.result, BuildResult) and (record.result.warm or record.result.reused)
        )
    ]  # fmt: skip


def expected_seconds(step: StepBase, runs: Iterable[Run]) -> tuple[float, bool]:
    """Expected seconds of a step, and whether they come from past runs."""
    took = seconds_taken(step, runs)
    if took:
        return statistics.median(took), True
    return float(step.expected.minutes * 60), False
