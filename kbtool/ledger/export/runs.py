"""What runs measured, one row per case, arm and metric.

A resumed run has the rows of its last attempt. Figures that do not count are there too, with the
reason: a table that left them out would look as if nobody had measured.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from types import UnionType
from typing import Any, Literal, get_args, get_type_hints

from kbtool.ledger.export.lines import Export
from kbtool.ledger.export.openmetrics import openmetrics
from kbtool.ledger.measured import target_of
from kbtool.model.errors import MachineError
from kbtool.model.kernel import CaseValue, value_text
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.kinds.build import BuildResult
from kbtool.model.kinds.command import CommandResult
from kbtool.model.kinds.logged import ImportResult, LogResult, MetricsResult
from kbtool.model.kinds.timing import Timing
from kbtool.model.kinds.validate import OutputError, ValidationResult
from kbtool.model.run import Run, StepRecord
from kbtool.model.session import Session
from kbtool.store.tree import KnowledgeBase

Format = Literal["jsonl", "csv", "parquet", "openmetrics"]


@dataclass
class Row:
    """One figure: the columns, in their order. A case's fields are in ``case`` as one text."""

    run: str
    attempt: int
    session: str
    origin: str
    """recipe, script or file: what the figure comes from."""
    source: str
    """The name of the recipe, the script or the file."""
    recipe: str | None
    step: str
    kind: str
    """The kind of the step: benchmark, validate, command, log, import."""
    started: datetime
    """When the run began, in UTC; of a file taken in, when it says that it was measured."""
    commit: str | None
    dirty: bool | None
    """Whether the work tree differed from the commit."""
    kernel: str | None
    target: str | None
    artifact: str | None
    """SHA-256 of what was built, of the script that logged, or of the file taken in."""
    problem: str | None
    """One hash for harness and inputs; figures of different problems are not compared."""
    device: str | None
    card: str | None
    cpu: str | None
    threads: int | None
    driver: str | None
    cuda: str | None
    torch: str | None
    case_set: str | None
    name: str
    """The case's name; its fields, where it has none."""
    case: str
    """Its fields, as ``--set case=`` takes them."""
    dtype: str | None
    arm: str
    """What was timed, or the output that was compared."""
    role: str
    """subject, variant, baseline or peer; output of a validation; logged or imported."""
    metric: str
    unit: str
    better: str
    """lower, higher or neither."""
    value: float
    low: float | None
    """The 25th percentile of samples."""
    high: float | None
    """The 75th."""
    samples: int | None
    counts: bool
    """Whether the figure may be compared: right, quiet, not refused."""
    why_not: str | None
    """Why it may not."""


def runs(base: KnowledgeBase, sessions: Sequence[Session], format_: Format) -> Export:
    """The rows of the runs of ``sessions``, oldest first.

    Raises:
        MachineError: Parquet is asked for, and pyarrow is not installed.
    """
    chosen = {session.id for session in sessions}
    last = {entry.record.id: entry.record for entry in base.runs if entry.record.session in chosen}
    rows = [row for run in last.values() for row in rows_of(run)]
    write: dict[Format, Callable[[Sequence[Row]], bytes]] = {
        "jsonl": _jsonl, "csv": _csv, "parquet": _parquet, "openmetrics": openmetrics,
    }  # fmt: skip
    data = write[format_](rows)
    none = sum(1 for run in last.values() if next(rows_of(run), None) is None)
    notes = [f"{none} runs hold no figure of a case"] if none else []
    return Export(data, len(rows), {row.session for row in rows}, notes=notes)


def rows_of(run: Run) -> Iterator[Row]:
    """The figures of one run."""
    for step in run.steps:
        if isinstance(step.result, BenchmarkResult):
            for case in step.result.cases:
                yield from _timed(run, step, step.result, case)
        elif isinstance(step.result, ValidationResult):
            yield from _validated(run, step, step.result)
        elif isinstance(step.result, MetricsResult):
            yield from _logged(run, step, step.result)


def _timed(
    run: Run, step: StepRecord, result: BenchmarkResult, case: BenchmarkCase
) -> Iterator[Row]:
    about = _about(run, step, result.sha256, result.device, result.threads, case.case)
    of_case: dict[str, Any] = {**about, "case_set": case.case_set, "name": case.name}
    for arm, timing in case.arms.items():
        wrong = case.peers.get(arm) or case.timed.get(arm)
        why_not = (
            case.refused or result.noise or case.suspect.get(arm)
            or (wrong.message or "its output is wrong" if wrong and not wrong.passed else None)
        )  # fmt: skip
        row = {
            **of_case, "arm": arm, "role": _role(result, arm), "counts": why_not is None,
            "why_not": why_not,
        }  # fmt: skip
        for metric in _metrics(result, case, timing):
            yield Row(**row, **metric)
        if arm in case.first_call_us:
            yield Row(**row, **_metric("first call", "us", "lower", case.first_call_us[arm]))
        if arm in case.peak_bytes:
            yield Row(**row, **_metric("peak memory", "B", "lower", case.peak_bytes[arm]))
        if arm in case.energy_j:
            yield Row(**row, **_metric("energy", "J", "lower", case.energy_j[arm]))
        for own in result.metrics:
            if (value := case.metrics.get(arm, {}).get(own.name)) is not None:
                yield Row(**row, **_metric(own.name, own.unit, own.better, value))
        if arm in case.workspace_bytes:
            yield Row(**row, **_metric("workspace", "B", "lower", case.workspace_bytes[arm]))


def _metrics(
    result: BenchmarkResult, case: BenchmarkCase, timing: Timing
) -> Iterator[dict[str, Any]]:
    samples = len(timing.samples_us)
    times = (timing.median_us, timing.low_us, timing.high_us)
    yield _metric("time", "us", "lower", *times, samples=samples)
    if timing.between_us is not None:
        between = (timing.between_us, timing.between_low_us, timing.between_high_us)
        yield _metric("time between plain kernels", "us", "lower", *between, samples=samples)
    if timing.host_us is not None:
        yield _metric("host time", "us", "lower", timing.host_us)
    for name, unit, work in (
        ("bandwidth", "GB/s", case.bytes),
        ("arithmetic", "GFLOP/s", case.flops),
    ):
        if work:
            rates = [work / (us * 1e3) for us in times]
            yield _metric(name, unit, "higher", rates[0], rates[2], rates[1], samples=samples)
    if case.bytes:
        share = case.bytes / (timing.median_us * 1e3) / result.read_gb_s
        yield _metric("share of read ceiling", "1", "higher", share)
    if (rate := result.arithmetic_ceiling(case)) is not None and (bound := result.bound(case)):
        if case.flops:
            share = case.flops / (timing.median_us * 1e3) / rate
            yield _metric("share of arithmetic ceiling", "1", "higher", share)
        yield _metric("share of bound", "1", "higher", bound.us / timing.median_us)
    if case.intensity is not None:
        yield _metric("arithmetic intensity", "FLOP/B", "neither", case.intensity)


def _validated(run: Run, step: StepRecord, result: ValidationResult) -> Iterator[Row]:
    for case in result.cases:
        about = _about(run, step, result.sha256, result.device, None, case.case)
        for output, error in case.outputs.items():
            if error.error is None or error.bound is None:
                continue
            yield Row(
                **about, case_set=case.case_set, name=case.name, arm=output,
                role="output" if case.variant is None else f"output of {case.variant}",
                counts=error.passed, why_not=_why_wrong(error),
                **_metric("error", "1", "lower", error.error, high=error.bound),
            )  # fmt: skip


def _logged(run: Run, step: StepRecord, result: MetricsResult) -> Iterator[Row]:
    """Values that nobody validated: none of them counts."""
    taken = result if isinstance(result, ImportResult) else None
    for series in result.metrics:
        about = _about(run, step, None, None, None, series.case)
        if isinstance(result, LogResult):
            about |= {"artifact": result.sha256, "card": run.machine.card}
        elif isinstance(result, CommandResult):
            about |= {"card": run.machine.card}
        elif taken is not None:
            # What it was measured on is what the file says, and not the machine that read it.
            about |= {
                "artifact": taken.sha256, "commit": taken.commit, "dirty": taken.dirty,
                "started": taken.measured_at or run.started,
                "card": taken.machine.get("card"), "cpu": taken.machine.get("cpu"),
                "driver": taken.machine.get("driver"), "cuda": taken.machine.get("cuda"),
                "torch": None,
            }  # fmt: skip
        low, high = series.quartiles
        yield Row(
            **about, case_set=None, name=str(series.case.get("name") or about["case"]),
            arm=series.benchmark or "", role="imported" if taken else "logged",
            counts=False, why_not=result.unvalidated,
            **_metric(
                series.name, series.unit, series.better, series.median, low, high, series.count
            ),
        )  # fmt: skip


def _why_wrong(error: OutputError) -> str | None:
    return None if error.passed else error.message or "over its bound"


def _about(
    run: Run, step: StepRecord, sha256: str | None, device: str | None, threads: int | None,
    case: dict[str, CaseValue],
) -> dict[str, Any]:  # fmt: skip
    """The columns that all figures of a case share."""
    on_card, built = device == "cuda", run.last(BuildResult)
    return {
        "run": run.id,
        "attempt": run.attempt,
        "session": run.session,
        "origin": run.origin,
        "source": run.source,
        "recipe": run.recipe,
        "step": step.id,
        "kind": step.kind,
        "started": run.started,
        "commit": run.repository.commit,
        "dirty": run.repository.dirty,
        "kernel": run.kernel or (built.kernel if built else None),
        "target": target_of(run),
        "artifact": sha256,
        "problem": run.identity.problem_digest if run.identity else None,
        "device": device,
        "card": run.machine.card if on_card else None,
        "cpu": run.machine.cpu,
        "threads": threads,
        "driver": run.machine.driver if on_card else None,
        "cuda": run.machine.cuda,
        "torch": run.machine.torch,
        "case": " ".join(f"{k}={value_text(v)}" for k, v in case.items() if v is not None),
        "dtype": None if case.get("dtype") is None else str(case["dtype"]),
    }


def _metric(
    metric: str, unit: str, better: str, value: float, low: float | None = None,
    high: float | None = None, samples: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "metric": metric, "unit": unit, "better": better, "value": float(value),
        "low": low, "high": high, "samples": samples,
    }  # fmt: skip


def _role(result: BenchmarkResult, arm: str) -> str:
    if arm == result.subject:
        return "subject"
    if arm in result.variants:
        return "variant"
    return "baseline" if arm == result.baseline else "peer"


def _jsonl(rows: Sequence[Row]) -> bytes:
    lines = (json.dumps(_plain(row), ensure_ascii=False) + "\n" for row in rows)
    return "".join(lines).encode()


def _csv(rows: Sequence[Row]) -> bytes:
    text = io.StringIO()
    table = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    table.writeheader()
    for row in rows:
        plain = _plain(row)
        for name, value in plain.items():
            if isinstance(value, bool):
                plain[name] = str(value).lower()
        table.writerow(plain)
    return text.getvalue().encode()


def _plain(row: Row) -> dict[str, Any]:
    return {**asdict(row), "started": row.started.isoformat()}


def _parquet(rows: Sequence[Row]) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MachineError(
            "parquet needs pyarrow; install it: pip install 'kbtool[parquet]'"
        ) from None
    types = {
        str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(),
        datetime: pa.timestamp("us", tz="UTC"),
    }  # fmt: skip
    schema = pa.schema(
        pa.field(name, types[_base_of(of)], nullable=isinstance(of, UnionType))
        for name, of in get_type_hints(Row).items()
    )
    file = io.BytesIO()
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=schema)
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()


def _base_of(of: Any) -> Any:
    """The type of a column without null."""
    return next(one for one in get_args(of) or (of,) if one is not type(None))
