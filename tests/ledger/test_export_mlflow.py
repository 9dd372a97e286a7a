"""Runs in MLflow: what its own client reads back, from a store in files."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from knowledge import sealed, validated

mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed: kbtool[mlflow]")

from kbtool.ledger.export import mlflow as to_mlflow  # noqa: E402
from kbtool.ledger.export.mlflow import CONTENT, RUN, export  # noqa: E402
from kbtool.ledger.export.runs import rows_of  # noqa: E402
from kbtool.model.errors import MachineError  # noqa: E402
from kbtool.model.kinds.benchmark import BenchmarkResult  # noqa: E402
from kbtool.store.tree import KnowledgeBase  # noqa: E402

ROOT = Path(__file__).parents[2]
SESSION = "2026-11-25-cpu-ablations"


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # Without it MLflow 3.17 refuses a store in files; one in a database needs all of mlflow.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "store").as_uri()


def there(uri: str, experiment: str = "kbtool") -> list[Any]:
    client = mlflow.tracking.MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id]))


def send(base: KnowledgeBase, uri: str) -> Any:
    return export(base, [entry.record for entry in base.sessions.values()], uri, "kbtool")


@pytest.fixture
def small(base: Any) -> KnowledgeBase:
    base.session("2025-01-01-a")
    base.run(validated(0))
    return KnowledgeBase(base.root)


@pytest.mark.slow
def test_a_run_of_this_repository_has_its_figures_and_what_it_was_made_of(uri):
    base = KnowledgeBase(ROOT)
    run = next(
        entry.record for entry in base.runs
        if entry.record.last(BenchmarkResult) and entry.record.machine.card
    )  # fmt: skip
    sent = export(base, [base.sessions[run.session].record], uri, "kernels")
    (one,) = [found for found in there(uri, "kernels") if found.data.tags[RUN] == run.id]
    rows = list(rows_of(run))
    assert len(one.data.metrics) == len(rows) > 100
    assert sorted(one.data.metrics.values()) == pytest.approx(sorted(row.value for row in rows))
    row = next(row for row in rows if row.metric == "time" and row.counts)
    parts = (row.case_set, row.name.replace("=", ":"), row.arm, "time in us")
    key = "/".join(part for part in parts if part)
    assert one.data.metrics[key] == row.value
    assert one.data.params["commit"] == run.repository.commit
    assert one.data.params["kernel"] == run.kernel and one.data.params["card"] == run.machine.card
    assert one.info.start_time == int(run.started.timestamp() * 1e3)
    assert run.id in sent.written


def test_a_second_export_makes_no_second_run(small, uri):
    first, second = send(small, uri), send(small, uri)
    assert (len(first.written), len(second.written), len(second.known)) == (1, 0, 1)
    (one,) = there(uri)
    assert one.data.metrics == {"s/c/out/error": 1.0}
    assert (one.info.status, one.info.run_name) == ("FINISHED", one.data.tags[RUN])


def test_what_an_interrupted_export_left_is_made_again(small, uri, monkeypatch):
    client = mlflow.tracking.MlflowClient

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(client, "set_terminated", stopped)
        with pytest.raises(KeyboardInterrupt):
            send(small, uri)
    assert len(there(uri)) == 1
    assert send(small, uri).replaced == [there(uri)[0].data.tags[RUN]]
    (one,) = there(uri)
    assert one.data.tags[CONTENT] and one.info.status == "FINISHED"


def test_a_run_whose_figures_are_others_now_is_replaced(base, uri):
    base.session("2025-01-01-a")
    base.run(validated(0))
    send(KnowledgeBase(base.root), uri)
    record = json.loads(validated(0))
    del record["digest"]
    record["steps"][-1]["result"]["cases"][0]["outputs"]["out"]["error"] = 1.5
    base.run(sealed(record))
    assert len(send(KnowledgeBase(base.root), uri).replaced) == 1
    (one,) = there(uri)
    assert one.data.metrics == {"s/c/out/error": 1.5}


def test_a_figure_that_does_not_count_is_marked(base, uri):
    base.session("2025-01-01-a")
    base.run(validated(0, passed=False))
    send(KnowledgeBase(base.root), uri)
    (one,) = there(uri)
    assert one.data.metrics == {"not counted/s/c/out/error": 3.0}
    assert one.data.tags["kbtool.why_not"] == "over its bound"
    assert one.info.status == "FAILED"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a/b c/time in us", "a/b c/time in us"),
        ("n=4096/x", "n:4096/x"),
        ("n<9/x", r"n_9/x-[0-9a-f]{8}"),
        ("../x", r"x-[0-9a-f]{8}"),
        ("ä" * 400, r"_{241}-[0-9a-f]{8}"),
        ("a//b", r"a/b-[0-9a-f]{8}"),
    ],
)
def test_a_name_that_mlflow_does_not_take_is_changed_and_stays_its_own(text, name, small, uri):
    key = to_mlflow._key(text)
    assert re.fullmatch(name, key) and len(key) <= 250
    assert to_mlflow._key(text + "!") != key
    client = mlflow.tracking.MlflowClient(tracking_uri=uri)
    client.log_metric(client.create_run("0").info.run_id, key, 1.0)


def test_a_store_that_refuses_is_said(small):
    os.environ.pop("MLFLOW_ALLOW_FILE_STORE", None)
    with pytest.raises(MachineError, match="MLflow's store refused: "):
        send(small, "file:///dev/null/x")


def test_a_server_that_is_down_is_said_at_once_and_not_after_minutes(small):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{closed.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(MachineError, match=f"no MLflow server answers at {uri}: start it, or"):
            send(small, uri)
    assert time.monotonic() - begun < 60
    assert not {"MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"} & set(os.environ)


def test_a_database_without_its_driver_is_said_with_what_to_install(small, monkeypatch):
    monkeypatch.setattr(to_mlflow, "find_spec", lambda name: None)
    with pytest.raises(MachineError, match="in a database needs all of mlflow"):
        send(small, "sqlite:///x.db")


def test_without_mlflow_it_says_what_to_install(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(MachineError, match=r"needs mlflow; .* pip install 'kbtool\[mlflow\]'"):
        send(small, "file:x")


@pytest.mark.slow
def test_the_command_says_what_it_did(base, kbtool, uri):
    base.session("2025-01-01-a")
    base.run(validated(0))
    said = json.loads(
        kbtool("export", "mlflow", "--tracking-uri", uri, "--json", root=base.root).out
    )
    assert (len(said["written"]), said["metrics"], said["experiment"]) == (1, 1, "kbtool")
    again = kbtool("export", "mlflow", "--tracking-uri", uri, root=base.root)
    assert (again.code, again.out) == (0, "")
    assert "0 runs written to experiment kbtool, 0 replaced, 1 there already" in again.err
