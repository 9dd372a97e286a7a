"""What runs measured, as other tools read it: against the raw records of this repository."""

from __future__ import annotations

import csv
import io
import json
import statistics
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from knowledge import validated

from kbtool.ledger.export.openmetrics import openmetrics
from kbtool.ledger.export.runs import Row, rows_of, runs
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.run import Run
from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[2]
SESSION = "2026-11-25-peers-and-pairs"


@pytest.fixture(scope="module")
def base() -> KnowledgeBase:
    return KnowledgeBase(ROOT)


def exported(base: KnowledgeBase, format_: Any) -> bytes:
    return runs(base, [base.sessions[SESSION].record], format_).data


def raw() -> list[dict[str, Any]]:
    last: dict[str, dict[str, Any]] = {}
    for path in sorted((ROOT / "sessions" / SESSION / "runs").glob("*.json")):
        run = json.loads(path.read_bytes())
        if run["attempt"] >= last.get(run["id"], run)["attempt"]:
            last[run["id"]] = run
    return list(last.values())


def results(kind: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [
        (run, step["result"])
        for run in raw()
        for step in run["steps"]
        if step["result"] and step["result"]["type"] == kind
    ]


@pytest.fixture(scope="module")
def rows(base: KnowledgeBase) -> list[dict[str, Any]]:
    return [json.loads(line) for line in exported(base, "jsonl").decode().splitlines()]


@pytest.mark.slow
def test_every_arm_of_every_case_has_its_times(rows):
    arms = [
        (run["id"], case["case_set"], case["name"], arm, timing)
        for run, result in results("benchmark")
        for case in result["cases"]
        for arm, timing in case["arms"].items()
    ]
    assert len(arms) > 1000
    times = {
        (row["run"], row["case_set"], row["name"], row["arm"]): row
        for row in rows
        if row["metric"] == "time"
    }
    assert len(times) == len(arms)
    for *key, timing in arms:
        row = times[tuple(key)]
        assert row["value"] == pytest.approx(statistics.median(timing["samples_us"]))
        assert row["low"] <= row["value"] <= row["high"]
        assert (row["unit"], row["samples"]) == ("us", len(timing["samples_us"]))


def test_rates_follow_from_the_work_of_the_case(rows):
    work = {
        (run["id"], case["case_set"], case["name"]): (case["bytes"], case["flops"], result)
        for run, result in results("benchmark")
        for case in result["cases"]
    }
    by_arm: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        if row["kind"] == "benchmark":
            key = (row["run"], row["case_set"], row["name"], row["arm"])
            by_arm.setdefault(key, {})[row["metric"]] = row["value"]
    for (run, case_set, name, _), found in by_arm.items():
        moved, operations, result = work[run, case_set, name]
        seconds = found["time"] / 1e6
        assert found["bandwidth"] == pytest.approx(moved / seconds / 1e9)
        assert found["arithmetic"] == pytest.approx(operations / seconds / 1e9)
        assert found["share of read ceiling"] == pytest.approx(
            found["bandwidth"] / result["read_gb_s"]
        )


def test_every_output_that_was_compared_has_its_error(rows):
    wanted = sorted(
        out["error"]
        for _, result in results("validation")
        for case in result["cases"]
        for out in case["outputs"].values()
        if out["error"] is not None
    )
    errors = [row for row in rows if row["metric"] == "error"]
    assert sorted(row["value"] for row in errors) == wanted != []
    assert all(row["counts"] == (row["value"] <= row["high"]) for row in errors)


def test_a_figure_that_does_not_count_says_why(base):
    run = next(
        entry.record for entry in base.runs
        if (result := entry.record.last(BenchmarkResult)) and result.noise
    )  # fmt: skip
    times = [row for row in rows_of(run) if row.kind == "benchmark"]
    assert times and all(not row.counts and row.why_not for row in times)
    assert {row.why_not for row in times if "noisy" in (row.why_not or "")}


def test_a_peer_whose_output_is_wrong_does_not_count(base):
    run = next(e.record for e in base.runs if e.record.last(BenchmarkResult))
    raw_run = json.loads(run.model_dump_json())
    step = next(s for s in raw_run["steps"] if (s["result"] or {}).get("type") == "benchmark")
    case = step["result"]["cases"][0]
    peer = step["result"]["baseline"]
    case["peers"][peer] = {
        "passed": False, "error": 3.0, "bound": 1.0, "torch_error": 1.0, "message": "off by 3",
    }  # fmt: skip
    found = [
        row for row in rows_of(Run.model_validate(raw_run))
        if (row.name, row.case_set, row.arm) == (case["name"], case["case_set"], peer)
    ]  # fmt: skip
    assert found and not any(row.counts for row in found if row.kind == "benchmark")


def test_a_wrong_output_does_not_count():
    (right,) = rows_of(Run.model_validate_json(validated(0)))
    (wrong,) = rows_of(Run.model_validate_json(validated(0, passed=False)))
    assert (right.metric, right.value, right.high, right.counts) == ("error", 1.0, 2.0, True)
    assert (wrong.value, wrong.counts, wrong.why_not) == (3.0, False, "over its bound")


@pytest.mark.slow
def test_csv_holds_the_same(base, rows):
    table = list(csv.DictReader(io.StringIO(exported(base, "csv").decode())))
    assert len(table) == len(rows)
    for told, row in list(zip(table, rows, strict=True))[:: len(rows) // 500 + 1]:
        for name, value in row.items():
            text = "" if value is None else str(value)
            assert told[name] == (text.lower() if isinstance(value, bool) else text), name


@pytest.mark.slow
def test_parquet_is_typed_and_read_by_pyarrow_pandas_and_duckdb(base, rows, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    pandas, duckdb = pytest.importorskip("pandas"), pytest.importorskip("duckdb")
    file = tmp_path / "runs.parquet"
    file.write_bytes(exported(base, "parquet"))
    table = pq.read_table(file)
    types = {name: str(of) for name, of in zip(table.schema.names, table.schema.types, strict=True)}
    assert list(types) == list(Row.__dataclass_fields__)
    assert (types["value"], types["counts"], types["attempt"]) == ("double", "bool", "int64")
    assert types["started"] == "timestamp[us, tz=UTC]"
    assert table.num_rows == len(rows)
    assert not table.schema.field("value").nullable and table.schema.field("low").nullable
    frame = pandas.read_parquet(file)
    timed = frame[(frame.metric == "time") & frame.counts]
    of_rows = [row["value"] for row in rows if row["metric"] == "time" and row["counts"]]
    assert timed.value.sum() == pytest.approx(sum(of_rows))
    (found,) = duckdb.sql(
        f"SELECT count(*), sum(value) FROM '{file}' WHERE metric = 'time' AND counts"
    ).fetchall()
    assert found == (len(of_rows), pytest.approx(sum(of_rows)))


def families_of(text: str) -> dict[str, Any]:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


@pytest.mark.slow
def test_openmetrics_is_what_its_own_parser_takes_and_says_the_same(base, rows):
    found = families_of(exported(base, "openmetrics").decode())
    units = {name: family.unit for name, family in found.items()}
    assert units["kbtool_time_seconds"] == "seconds"
    assert units["kbtool_bandwidth_bytes_per_second"] == "bytes_per_second"
    samples = [sample for family in found.values() for sample in family.samples]
    bounds = sum(row["low"] is not None for row in rows) + sum(r["high"] is not None for r in rows)
    assert len(samples) == len(rows) + bounds  # no two rows share their labels
    key = ("run", "step", "case_set", "name", "arm", "metric", "counts")

    def of(metric: str, field: str, per_base: float) -> dict[tuple, float]:
        return {
            tuple(str(row[k]).lower() if k == "counts" else row[k] for k in key):
            row[field] / per_base
            for row in rows if row["metric"] == metric
        }  # fmt: skip

    def told(family: str) -> dict[tuple, float]:
        return {
            tuple(sample.labels.get(k) for k in key): sample.value
            for sample in found[family].samples
        }

    assert told("kbtool_time_seconds") == pytest.approx(of("time", "value", 1e6))
    assert told("kbtool_time_low_seconds") == pytest.approx(of("time", "low", 1e6))
    assert told("kbtool_arithmetic_operations_per_second") == pytest.approx(
        of("arithmetic", "value", 1e-9)
    )
    (started,) = {row["started"] for row in rows if row["run"] == samples[0].labels["run"]}
    assert float(samples[0].timestamp) == datetime.fromisoformat(started).timestamp()


@pytest.mark.parametrize("text", ['a "b"', "a\\b", "a\nb", "ä{x=1}", "#"])
def test_openmetrics_keeps_any_text_in_a_label(text):
    (row,) = rows_of(Run.model_validate_json(validated(0)))
    alike = [replace(row, name=text, metric=metric) for metric in (text, "Error", "error")]
    families = families_of(openmetrics(alike).decode()).values()
    labels = [sample.labels for family in families for sample in family.samples]
    assert len(labels) == 6 and {one["name"] for one in labels} == {text}
    assert {one["metric"] for one in labels} == {text, "Error", "error"}


@pytest.mark.parametrize(
    ("unit", "family", "value"),
    [
        ("\u00b5s", "kbtool_m_seconds", 12.5e-6),
        ("\u03bcs", "kbtool_m_seconds", 12.5e-6),
        ("\u00b5J", "kbtool_m_joules", 12.5e-6),
        ("mW", "kbtool_m_watts", 12.5e-3),
        ("MW", "kbtool_m_watts", 12.5e6),
    ],
)
def test_openmetrics_scales_a_unit_with_a_prefix_to_its_base_unit(unit, family, value):
    (row,) = rows_of(Run.model_validate_json(validated(0)))
    found = families_of(openmetrics([replace(row, metric="m", unit=unit, value=12.5)]).decode())
    assert found[family].samples[0].value == pytest.approx(value)


def test_openmetrics_keeps_units_apart_that_differ_in_a_small_letter():
    (row,) = rows_of(Run.model_validate_json(validated(0)))
    row = replace(row, low=None, high=None)
    alike = [replace(row, unit=unit, value=value) for unit, value in (("mK", 1.0), ("MK", 2.0))]
    families = families_of(openmetrics(alike).decode()).values()
    samples = [one for family in families for one in family.samples]
    assert {one.labels["unit"]: one.value for one in samples} == {"mK": 1.0, "MK": 2.0}


def test_shares_of_both_ceilings_and_of_the_bound_are_rows(base):
    run = next(e.record for e in base.runs if e.record.last(BenchmarkResult))
    raw_run = json.loads(run.model_dump_json())
    step = next(s for s in raw_run["steps"] if (s["result"] or {}).get("type") == "benchmark")
    result = step["result"]
    result["arithmetic_gflop_s"] = {"float32": 1e-3}
    first = result["cases"][0]
    first["computes_in"] = "float32"
    found: dict[str, dict[str, float]] = {}
    for row in rows_of(Run.model_validate(raw_run)):
        if (row.case_set, row.name) == (first["case_set"], first["name"]):
            found.setdefault(row.arm, {})[row.metric] = row.value
    ours = found[result["subject"]]
    assert ours["share of arithmetic ceiling"] == pytest.approx(ours["arithmetic"] / 1e-3)
    assert ours["share of bound"] == ours["share of arithmetic ceiling"]
    assert ours["share of bound"] > ours["share of read ceiling"]
    assert ours["arithmetic intensity"] == pytest.approx(first["flops"] / first["bytes"])
    metrics = {row.metric for row in rows_of(run)}
    assert "arithmetic intensity" in metrics and "share of bound" not in metrics
    first["flops"] = 0
    of_none = {
        row.metric for row in rows_of(Run.model_validate(raw_run))
        if (row.case_set, row.name) == (first["case_set"], first["name"])
    }  # fmt: skip
    assert "share of bound" in of_none and "share of arithmetic ceiling" not in of_none


def test_metrics_of_the_harness_and_peak_memory_are_rows(base):
    run = next(e.record for e in base.runs if e.record.last(BenchmarkResult))
    raw_run = json.loads(run.model_dump_json())
    step = next(s for s in raw_run["steps"] if (s["result"] or {}).get("type") == "benchmark")
    result = step["result"]
    ours, first = result["subject"], result["cases"][0]
    result["metrics"] = [{"name": "cosine", "unit": "1", "better": "higher"}]
    first["metrics"] = {ours: {"cosine": 0.25}}
    first["peak_bytes"] = {ours: 4096}
    found = [
        (row.name, row.arm, row.metric, row.unit, row.better, row.value)
        for row in rows_of(Run.model_validate(raw_run))
        if row.metric in {"cosine", "peak memory"}
    ]
    assert found == [
        (first["name"], ours, "peak memory", "B", "lower", 4096.0),
        (first["name"], ours, "cosine", "1", "higher", 0.25),
    ]
