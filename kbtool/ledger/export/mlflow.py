"""Runs as runs of MLflow, through its own client.

A run of kbtool is one run there: what it was made of are parameters, its figures metrics. A run
that is there with the same content is left alone; one whose content has changed, or that an
interrupted export left, is made again. The tag ``kbtool.content`` is set last and tells them apart.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kbtool.ledger.export.runs import Row, rows_of
from kbtool.model.errors import MachineError
from kbtool.model.run import Run
from kbtool.model.session import Session
from kbtool.store.tree import KnowledgeBase

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

RUN, CONTENT = "kbtool.run", "kbtool.content"
NOT_COUNTED = "not counted"
"""Begins the name of a metric whose figure is noisy, wrong, refused or validated by nobody."""
_PARAMETERS = (
    "recipe", "kernel", "target", "commit", "dirty", "problem", "artifact", "device", "card", "cpu",
    "threads", "driver", "cuda", "torch",
)  # fmt: skip
_STATUS = {"passed": "FINISHED", "noisy": "FINISHED", "interrupted": "KILLED"}
"""Status of a run → MLflow's; of any other FAILED."""
_DATABASES = ("sqlite:", "postgresql", "mysql", "mssql")
_AT_ONCE = 1000
"""Metrics in one request, the most that MLflow takes; of parameters it takes a tenth."""
_FIRST = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Of the first request, which shows whether there is a server."""
_LONGEST_KEY = 250
_LONGEST_VALUE = 500


@dataclass
class Sent:
    """What an export to MLflow did."""

    written: list[str] = field(default_factory=list)
    """The runs that are new there."""
    replaced: list[str] = field(default_factory=list)
    """Those whose content was another."""
    known: list[str] = field(default_factory=list)
    """Those that were there."""
    empty: int = 0
    """Runs without a figure, which are left out."""
    metrics: int = 0
    """Metrics of the runs that were written."""


def export(base: KnowledgeBase, sessions: Sequence[Session], uri: str, experiment: str) -> Sent:
    """Write the runs of ``sessions`` that hold figures into an experiment.

    Raises:
        MachineError: MLflow is not installed, or its store refuses.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise MachineError(
            "export mlflow needs mlflow; install it: pip install 'kbtool[mlflow]'"
        ) from None
    if uri.startswith(_DATABASES) and find_spec("sqlalchemy") is None:
        raise MachineError(
            "a store of MLflow in a database needs all of mlflow; install it: pip install mlflow"
        )
    chosen = {session.id for session in sessions}
    last = {entry.record.id: entry.record for entry in base.runs if entry.record.session in chosen}
    try:
        client = MlflowClient(tracking_uri=uri)
        with _soon():
            client.get_experiment_by_name(experiment)
        return _export(client, experiment, list(last.values()))
    except (MlflowException, ModuleNotFoundError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        if isinstance(error.__context__, OSError):  # what its HTTP client raised
            raise MachineError(
                f"no MLflow server answers at {uri}: start it, or correct --tracking-uri ({first})"
            ) from None
        raise MachineError(f"MLflow's store refused: {first}") from None


@contextlib.contextmanager
def _soon() -> Iterator[None]:
    """Meanwhile the client gives up after seconds, where nobody set how long it waits: by itself it
    asks a server that is down eight times, for four minutes."""
    ours = {name: value for name, value in _FIRST.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def _export(client: MlflowClient, experiment: str, runs: Sequence[Run]) -> Sent:
    sent = Sent()
    found = client.get_experiment_by_name(experiment)
    place = found.experiment_id if found else client.create_experiment(experiment)
    there = _runs_there(client, place)
    for run in runs:
        rows = list(rows_of(run))
        if not rows:
            sent.empty += 1
            continue
        content = _Content.of(run, rows)
        known = there.get(run.id, [])
        kept = next((one for one in known if one.data.tags.get(CONTENT) == content.digest), None)
        for other in known:
            if other is not kept:
                client.delete_run(other.info.run_id)
        if kept:
            sent.known.append(run.id)
            continue
        _write(client, place, run, content)
        (sent.replaced if known else sent.written).append(run.id)
        sent.metrics += len(content.metrics)
    return sent


def _runs_there(client: MlflowClient, experiment_id: str) -> dict[str, list[Any]]:
    """Run of kbtool → its runs in the experiment."""
    found: dict[str, list[Any]] = {}
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], max_results=_AT_ONCE, page_token=token)
        for run in page:
            if name := run.data.tags.get(RUN):
                found.setdefault(name, []).append(run)
        token = page.token
        if not token:
            return found


@dataclass
class _Content:
    parameters: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]

    @property
    def digest(self) -> str:
        """A hash of all of it."""
        text = json.dumps([self.parameters, self.metrics, self.tags], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def of(cls, run: Run, rows: Sequence[Row]) -> _Content:
        """What is written of a run."""
        found: dict[str, list[str]] = {}
        for row in rows:
            for name in _PARAMETERS:
                value = getattr(row, name)
                if value is not None:
                    text = str(value).lower() if isinstance(value, bool) else str(value)
                    found.setdefault(name, []).append(text)
        parameters = {
            name: ", ".join(dict.fromkeys(values))[:_LONGEST_VALUE]
            for name, values in found.items()
        }
        for name, text in run.parameters.items():
            parameters[_key(f"set.{name}")] = text[:_LONGEST_VALUE]
        tags = {
            RUN: run.id, "kbtool.attempt": str(run.attempt), "kbtool.session": run.session,
            "kbtool.status": run.outcome, "kbtool.origin": run.origin,
        }  # fmt: skip
        if why := sorted({row.why_not for row in rows if row.why_not}):
            tags["kbtool.why_not"] = "; ".join(why)[:_LONGEST_VALUE]
        return cls(parameters, _metrics(rows), tags)


def _metrics(rows: Sequence[Row]) -> dict[str, float]:
    """Case set, case, arm and metric → value, with a unit in the name."""
    found: dict[str, float] = {}
    for row in rows:
        unit = "" if row.unit == "1" else f" in {row.unit.replace('/', ' per ')}"
        of = [NOT_COUNTED] * (not row.counts)
        variant = row.role.removeprefix("output of ") if row.role.startswith("output of ") else ""
        of += [part for part in (row.case_set, row.name, variant, row.arm) if part]
        key = _key("/".join(part.replace("/", " ") for part in (*of, f"{row.metric}{unit}")))
        if key in found:  # another step of the run has timed the same
            key = _key(f"{row.step}/{key}")
        found[key] = row.value
    return found


def _key(text: str) -> str:
    """A name that MLflow takes: a colon for =, and a hash at the end where more had to be changed.

    A store may use it as a path, so it holds no ``..`` and begins with no dot.
    """
    plain = text.replace("=", ":")
    name = os.path.normpath(re.sub(r"[^\w\-. :/]", "_", plain, flags=re.ASCII)).lstrip("/.")
    if name == plain and len(name) <= _LONGEST_KEY:
        return name
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_KEY - 9]}-{mark}"


def _write(client: MlflowClient, experiment_id: str, run: Run, content: _Content) -> None:
    from mlflow.entities import Metric, Param

    begun, ended = (int(at.timestamp() * 1e3) for at in (run.started, run.ended))
    made = client.create_run(experiment_id, begun, dict(content.tags), run_name=run.id).info.run_id
    parameters = [Param(name, value) for name, value in content.parameters.items()]
    for first in range(0, len(parameters), _AT_ONCE // 10):
        client.log_batch(made, params=parameters[first : first + _AT_ONCE // 10])
    metrics = [Metric(name, value, begun, 0) for name, value in content.metrics.items()]
    for first in range(0, len(metrics), _AT_ONCE):
        client.log_batch(made, metrics=metrics[first : first + _AT_ONCE])
    client.set_terminated(made, _STATUS.get(run.outcome, "FAILED"), ended)
    client.set_tag(made, CONTENT, content.digest)
