"""``kbtool import-results``: files that the tools themselves wrote become run records."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtool.model.kinds.logged import ImportResult, Series, described
from kbtool.model.run import Run, digest_of_record
from kbtool.runner.results.base import ResultFileError, Taken
from kbtool.runner.results.table import Columns, _value
from kbtool.runner.take_results import File, read_files
from kbtool.store.tree import KnowledgeBase

FIXTURES = Path(__file__).parents[1] / "fixtures" / "results"
GOOGLE = FIXTURES / "google-benchmark.json"
REPEATED = FIXTURES / "google-benchmark-repeated.json"
AGGREGATES = FIXTURES / "google-benchmark-aggregates.json"
PYTEST = FIXTURES / "pytest-benchmark.json"
ASV = FIXTURES / "asv" / "machine" / "3fd2444d-existing-python3.json"
NVBENCH = FIXTURES / "nvbench-by-hand.json"
ALL = (GOOGLE, REPEATED, AGGREGATES, PYTEST, ASV, NVBENCH)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "base"
    for name in ("sessions", "patterns"):
        (made / name).mkdir(parents=True)
    return made


def taken(root: Path, path: Path, **columns: Any) -> File:
    (file,) = read_files(KnowledgeBase(root), [path], Columns(**columns))
    return file


def metric(file: File, name: str, label: str) -> Series:
    (found,) = (one for one in file.result.metrics if (one.name, one.label) == (name, label))
    return found


def changed(tmp_path: Path, source: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    data = json.loads(source.read_text())
    change(data)
    path = tmp_path / source.name
    path.write_text(json.dumps(data))
    return path


def test_google_benchmark(root):
    file = taken(root, GOOGLE)
    raw = json.loads(GOOGLE.read_text())["benchmarks"][0]
    time = metric(file, "time", "sum_numbers n=8")
    assert (time.unit, time.better, time.values) == ("us", "lower", [raw["real_time"]])
    assert metric(file, "cpu time", "sum_numbers n=8").values == [raw["cpu_time"]]
    rate = metric(file, "bytes_per_second", "sum_numbers n=8")
    assert (rate.unit, rate.better, rate.values) == ("B/s", "higher", [raw["bytes_per_second"]])
    assert metric(file, "terms", "sum_numbers n=8").values == [8]
    assert metric(file, "time", "sort_words").unit == "ns"
    assert (file.result.tool, file.result.tool_version) == ("Google Benchmark", "1.9.5")
    assert file.result.machine == {"host": "vm", "cores": "2", "clock": "2596 MHz"}
    assert file.result.measured_at is not None and file.result.measured_at.year == 2026
    assert file.left_out == ["benchmarks.4 (gives_up): failed: no card here"]


def test_repetitions_of_google_benchmark_are_samples(root):
    raw = [b for b in json.loads(REPEATED.read_text())["benchmarks"]
           if b["run_name"] == "sum_numbers/n:8" and b["run_type"] == "iteration"]  # fmt: skip
    time = metric(taken(root, REPEATED), "time", "sum_numbers n=8")
    assert time.values == [one["real_time"] for one in raw]
    assert time.count == 5


def test_of_aggregates_alone_the_median_is_taken(root):
    (median,) = (b for b in json.loads(AGGREGATES.read_text())["benchmarks"]
                 if b["aggregate_name"] == "median")  # fmt: skip
    time = metric(taken(root, AGGREGATES), "time", "sort_words")
    assert (time.values, time.count) == ([median["real_time"]], 3)


def test_pytest_benchmark(root):
    file = taken(root, PYTEST)
    raw = json.loads(PYTEST.read_text())
    for one in raw["benchmarks"]:
        params = {**(one["params"] or {}), **one["extra_info"]}
        name = one["fullname"].partition("[")[0]
        time = metric(file, "time", " ".join([name, *(f"{k}={v}" for k, v in params.items())]))
        assert time.values == one["stats"]["data"]
        assert time.median == pytest.approx(one["stats"]["median"])
        assert (time.unit, time.better) == ("s", "lower")
    assert len(file.result.metrics) == 3
    assert (file.result.tool, file.result.tool_version) == ("pytest-benchmark", "5.3.1")
    assert file.result.place == "AMD EPYC"
    assert (file.result.machine["cores"], file.result.commit) == ("2", None)


@pytest.mark.slow
@pytest.mark.parametrize("dirty", [True, False, None])
def test_a_commit_with_changes_is_taken_in_as_such(root, tmp_path, kbtool, dirty):
    commit = {"id": "3fd2444d" * 5, "dirty": dirty}
    path = changed(tmp_path, PYTEST, lambda d: d.update(commit_info=commit))
    assert taken(root, path).result.dirty is dirty
    kbtool("import-results", str(path), root=root)
    rows = json.loads(f"[{','.join(kbtool('export', 'runs', root=root).out.splitlines())}]")
    assert {(row["commit"], row["dirty"]) for row in rows} == {("3fd2444d" * 5, dirty)}


def test_of_many_samples_median_quartiles_and_number_are_kept(root, tmp_path):
    drawn = [math.sin(n) + 2 for n in range(1001)]
    path = changed(tmp_path, PYTEST, lambda d: d["benchmarks"][0]["stats"].update(data=drawn))
    time = taken(root, path).result.metrics[0]
    low, median, high = statistics.quantiles(drawn, n=4, method="inclusive")
    assert (time.values, time.quartiles, time.count) == ([median], (low, high), 1001)


def test_asv(root):
    file = taken(root, ASV)
    raw = json.loads(ASV.read_text())
    row = dict(zip(raw["result_columns"], raw["results"]["speed.Sums.time_sum"], strict=False))
    time = metric(file, "time", "speed.Sums.time_sum n=1000 kind=list")
    assert (time.unit, time.better, time.values) == ("s", "lower", [row["result"][2]])
    assert time.quartiles == (row["stats_q_25"][2], row["stats_q_75"][2])
    assert time.count == row["stats_repeat"][2]
    length = metric(file, "track", "speed.Sums.track_length n=1000 kind=range")
    assert (length.unit, length.values) == ("elements", [1000])
    assert metric(file, "memory", "speed.peakmem_list").unit == "B"
    assert file.left_out == [
        "results.speed.time_broken: it failed, and has no result",
        "results.speed.Sums.track_length[1]: track is nan, which is no measurement",
    ]
    assert file.result.commit == raw["commit_hash"]
    assert file.result.machine["cpu"] == "AMD EPYC"


def test_asv_without_its_list_of_benchmarks_needs_a_unit_for_what_is_tracked(root, tmp_path):
    alone = tmp_path / "alone.json"
    alone.write_bytes(ASV.read_bytes())
    with pytest.raises(ResultFileError, match=r"track_length: no unit; keep benchmarks.json in"):
        taken(root, alone)
    file = taken(root, alone, unit="elements")
    assert metric(file, "time", "speed.Sums.time_sum param1=10 param2=list").unit == "s"
    assert metric(file, "track", "speed.Sums.track_length param1=10 param2=list").unit == "elements"


@pytest.mark.parametrize("written", ["[" * 100_000, "{", "[1]", "\udcff", "9" * 5000])
def test_a_list_of_asv_that_is_none_is_as_if_it_were_not_there(root, tmp_path, written):
    folder = tmp_path / "results"
    shutil.copytree(ASV.parents[1], folder)
    (folder / "benchmarks.json").write_bytes(written.encode("utf-8", "surrogateescape"))
    with pytest.raises(ResultFileError, match="no unit; keep benchmarks"):
        taken(root, folder / "machine" / ASV.name)


def test_nvbench(root):
    file = taken(root, NVBENCH)
    label = "copy Elements=16777216 T=F32"
    time = metric(file, "cold/time/gpu/mean", label)
    assert (time.values, time.unit, time.better) == ([2**-14], "s", "lower")
    assert time.count == 512
    assert metric(file, "batch/time/gpu/mean", label).count == 1024
    rate = metric(file, "cold/bw/global/bytes_per_second", label)
    assert (rate.values, rate.unit, rate.better) == ([2.0**41], "B/s", "higher")
    assert not [one for one in file.result.metrics if "walltime" in one.name]
    assert file.left_out == [
        "copy (Device=0 Elements=33554432 T=F32): skipped: out of memory",
    ]
    assert file.result.machine == {
        "card": "A card", "compute_capability": "sm_90", "card_memory": "79.6 GiB",
    }  # fmt: skip
    assert (file.result.tool, file.result.tool_version) == ("nvbench", "0.1.0")


def test_what_an_nvbench_states_is_named_as_it_names_it(root):
    said = described(
        metric(taken(root, NVBENCH), "cold/time/gpu/mean", "copy Elements=16777216 T=F32")
    )
    assert said == "cold/time/gpu/mean 6.10e-05 s (copy Elements=16777216 T=F32, of 512 samples)"


def test_a_summary_of_nvbench_is_taken_in_or_told(root, tmp_path):
    def add(data: dict[str, Any]) -> None:
        value = [{"name": "value", "type": "float64", "value": "1.5e9"}]
        data["benchmarks"][0]["states"][0]["summaries"] += [
            {"tag": "nv/cold/sm_clock_rate/mean", "hint": "frequency", "data": value},
            {"tag": "my/warmth", "hint": "temperature", "data": value},
        ]

    file = taken(root, changed(tmp_path, NVBENCH, add))
    (clock,) = (one for one in file.result.metrics if one.name == "cold/sm_clock_rate/mean")
    assert (clock.values, clock.unit, clock.better) == ([1.5e9], "Hz", "neither")
    assert file.left_out[0].endswith("my/warmth has the hint 'temperature', whose unit is unknown")


def test_two_cards_of_one_name_are_two_cases(root, tmp_path):
    def second_card(data: dict[str, Any]) -> None:
        data["devices"].append({**data["devices"][0], "id": 1})
        states = data["benchmarks"][0]["states"]
        states.append({**states[0], "device": 1})

    file = taken(root, changed(tmp_path, NVBENCH, second_card))
    label = "copy Elements=16777216 T=F32 card=A card device="
    assert metric(file, "cold/time/gpu/mean", f"{label}0").values == [2**-14]
    assert metric(file, "cold/time/gpu/mean", f"{label}1").values == [2**-14]


def google(root: Path, tmp_path: Path, *names: str) -> File:
    entries = [{"name": name, "real_time": n} for n, name in enumerate(names, 1)]
    path = tmp_path / "named.json"
    path.write_text(json.dumps({"context": {}, "benchmarks": entries}))
    return taken(root, path)


def test_an_argument_that_a_google_benchmark_names_twice_keeps_both_values(root, tmp_path):
    file = google(root, tmp_path, "a/n:1/n:2", "a/n:3/n:2")
    assert metric(file, "time", "a/n:2 n=1").values == [1]
    assert metric(file, "time", "a/n:2 n=3").values == [2]


@pytest.mark.parametrize("value", ["--5", "\u00b2", "-", "9" * 5000])
def test_an_argument_of_a_google_benchmark_that_is_no_number_is_text(root, tmp_path, value):
    file = google(root, tmp_path, f"f/n:{value}")
    assert metric(file, "time", f"f n={value}").case == {"n": value}


@pytest.mark.parametrize("rounds", [(5, 7), (1, 1)])
def test_two_medians_of_one_case_are_refused(root, tmp_path, rounds):
    def twice(data: dict[str, Any]) -> None:
        first = data["benchmarks"][0]
        first["stats"].pop("data")
        data["benchmarks"] = [{**first, "stats": {**first["stats"], "rounds": n}} for n in rounds]

    with pytest.raises(ResultFileError, match=r"benchmarks.1 .*: time of one case is there twice"):
        taken(root, changed(tmp_path, PYTEST, twice))


def test_samples_of_one_case_in_two_entries_are_merged(root, tmp_path):
    def twice(data: dict[str, Any]) -> None:
        data["benchmarks"] = data["benchmarks"][:1] * 2

    samples = json.loads(PYTEST.read_text())["benchmarks"][0]["stats"]["data"]
    time = taken(root, changed(tmp_path, PYTEST, twice)).result.metrics[0]
    assert time.values == samples * 2


@pytest.mark.slow
def test_a_value_costs_the_same_however_many_came_before_it():
    def cost(before: int) -> float:
        found = Taken("a tool")
        found.add("", "t", "s", "lower", [1.0] * before)
        began = time.process_time()
        for _ in range(50):
            found.add("", "t", "s", "lower", [2.0])
        took = time.process_time() - began
        assert found.series[0].count == before + 50
        return took

    assert min(cost(500_000) for _ in range(3)) < 20 * min(cost(1) for _ in range(3))


CSV = "n,dtype,time,note\n8,fp16,1.5,a\n8,fp16,2.5,b\n16,bf16,3e0,\n"


def test_csv_with_columns_named_on_the_command_line(root, tmp_path):
    path = tmp_path / "sweep.csv"
    path.write_bytes(b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode())
    file = taken(root, path, value="time", case=["n", "dtype"], unit="us", better="lower")
    found = [(s.name, s.case, s.values, s.unit, s.better) for s in file.result.metrics]
    assert found == [
        ("time", {"n": 8, "dtype": "fp16"}, [1.5, 2.5], "us", "lower"),
        ("time", {"n": 16, "dtype": "bf16"}, [3.0], "us", "lower"),
    ]
    assert file.result.place is None


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        (CSV, {}, "a CSV file needs --value COLUMN; its columns are n, dtype, time, note"),
        (CSV, {"value": "us"}, "line 1: no column 'us'; there is n, dtype, time, note"),
        (CSV, {"value": "time", "case": ["m"]}, "line 1: no column 'm'"),
        (CSV, {"value": "time"}, "no unit of 'time': give --unit, such as us, GB/s or J"),
        (CSV, {"value": "time", "unit": "12"}, "line 2: unit: '12' is no unit"),
        (CSV[:-7], {"value": "time", "unit": "us"}, "line 4: 2 cells under 4 columns: the file is"),
        (CSV + '8,"fp', {"value": "time", "unit": "us"}, "the file is cut off"),
        (CSV + "8,fp16,fast,\n", {"value": "time", "unit": "us"}, "line 5: 'fast' is no number"),
        (
            CSV + "8,fp16,1.25,",
            {"value": "time", "unit": "us"},
            "line 5: no line ends here: the file",
        ),
        ("n\n12", {"value": "n", "unit": "1"}, "is cut off; if it is whole, end its last line"),
        ("n\n1_000\n", {"value": "n", "unit": "1"}, "line 2: '1_000' is no number; write digits"),
        ("n\n٣\n", {"value": "n", "unit": "1"}, "line 2: '٣' is no number; write digits only"),
        ("n,n\n1,2\n", {"value": "n", "unit": "1"}, "line 1: more than one column 'n'"),
        ("n\nnan\n", {"value": "n", "unit": "1"}, "no finite value: line 2: n is nan, which is no"),
        ("", {"value": "n", "unit": "1"}, "line 1: no column 'n'"),
    ],
)
def test_a_csv_file_that_cannot_be_read_says_where_and_what_to_do(
    root, tmp_path, text, columns, said
):
    path = tmp_path / "sweep.csv"
    path.write_text(text)
    with pytest.raises(ResultFileError) as error:
        taken(root, path, **columns)
    assert str(error.value).startswith(str(path)) and said in str(error.value)


def test_cells_of_cases_that_are_written_differently_are_different_cases():
    written = ["2.1", "2.10", "7", "007", "-0", "1.50", "x"]
    assert [_value(text) for text in written] == [2.1, "2.10", 7, "007", "-0", "1.50", "x"]


def test_a_value_that_is_not_finite_is_left_out_and_told(root, tmp_path):
    path = tmp_path / "sweep.csv"
    path.write_text("n,t\n1,inf\n2,\n3,4\n")
    file = taken(root, path, value="t", unit="s", case=["n"])
    assert [one.values for one in file.result.metrics] == [[4.0]]
    assert file.left_out == [
        "line 2: t is inf, which is no measurement", "line 3: t is None, which is no measurement",
    ]  # fmt: skip


LATER: list[tuple[Path, Callable[[dict[str, Any]], object], str]] = [
    (GOOGLE, lambda d: d["context"].update(json_schema_version=2),
     "JSON schema version 2 of Google Benchmark, and this kbtool reads up to 1: update kbtool"),
    (PYTEST, lambda d: d.update(version="6.0.0"), "version 6 of pytest-benchmark"),
    (PYTEST, lambda d: d.update(version="1" + "0" * 400), "version 100000000000000000 of pytest"),
    (ASV, lambda d: d.update(version=3), "results version 3 of asv"),
    (NVBENCH, lambda d: d["meta"]["version"]["json"].update(major=2), "file version 2 of nvbench"),
    (ASV, lambda d: d.update(version=1), "`asv update` makes it 2"),
    (NVBENCH, lambda d: d.pop("meta"), "an nvbench without file versions: write it with a newer"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "change", "said"), LATER)
def test_a_file_of_another_version_of_its_tool_says_what_to_update(
    root, tmp_path, source, change, said
):
    with pytest.raises(ResultFileError) as error:
        taken(root, changed(tmp_path, source, change))
    assert said in str(error.value)


@pytest.mark.parametrize("source", ALL, ids=lambda p: p.stem)
def test_a_file_that_is_cut_off_anywhere_is_refused(root, tmp_path, source):
    raw = source.read_bytes()
    path = tmp_path / "cut.json"
    for part in range(1, 20):
        path.write_bytes(raw[: len(raw) * part // 20])
        with pytest.raises(ResultFileError, match=r"line \d+, column \d+: it is (cut|no)"):
            taken(root, path)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = node.items() if isinstance(node, dict) else enumerate(node)
    found = []
    for key, value in children:
        found.append((*path, key))
        if isinstance(value, dict | list):
            found += places(value, (*path, key))
    return found


HUGE = (10**400, -(10**400), 2**63, "9" * 5000, "1e999", "1" + "0" * 400, "²", "nan", math.inf)
HOSTILE = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    | st.sampled_from([*HUGE, [[]], {"a": {}}])
)  # fmt: skip


def taken_or_refused(found: dict[str, Any]) -> File | None:
    with TemporaryDirectory() as folder:
        base = Path(folder)
        for name in ("sessions", "patterns"):
            (base / name).mkdir()
        path = base / "results.json"
        path.write_text(json.dumps(found))
        try:
            return taken(base, path)
        except ResultFileError as error:
            assert str(error).startswith(f"{path}: ") or "holds no finite value" in str(error)
            assert len(str(error)) < len(str(path)) + 400
            return None


@pytest.mark.slow
@pytest.mark.parametrize("source", ALL, ids=lambda p: p.stem)
def test_a_huge_number_in_any_place_is_taken_in_or_refused_in_words(source):
    raw = source.read_text()
    for place in places(json.loads(raw)):
        for value in HUGE:
            found = node = json.loads(raw)
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = value
            file = taken_or_refused(found)
            if file is not None:
                result = file.result
                assert ImportResult.model_validate_json(result.model_dump_json()) == result


@pytest.mark.slow
@given(st.data())
def test_a_file_with_any_value_in_any_place_is_taken_in_or_refused_in_words(data):
    """It never ends with another exception, and never takes in what is not finite."""
    source = data.draw(st.sampled_from(ALL))
    found = json.loads(source.read_text())
    place = data.draw(st.sampled_from(places(found)))
    node = found
    for key in place[:-1]:
        node = node[key]
    if data.draw(st.booleans()):
        node[place[-1]] = data.draw(HOSTILE)
    else:
        del node[place[-1]]
    file = taken_or_refused(found)
    if file is None:
        return
    assert all(math.isfinite(v) for one in file.result.metrics for v in one.values)
    assert ImportResult.model_validate_json(file.result.model_dump_json()) == file.result


CELLS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=6)


@pytest.mark.slow
@given(st.lists(st.tuples(CELLS, CELLS, st.floats(-1e300, 1e300)),
                min_size=1, max_size=12))  # fmt: skip
def test_any_table_is_read_back(drawn):
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["a", "b", "value"])
    writer.writerows([a, b, repr(value)] for a, b, value in drawn)
    with TemporaryDirectory() as folder:
        base = Path(folder)
        for name in ("sessions", "patterns"):
            (base / name).mkdir()
        path = base / "results.csv"
        path.write_text(text.getvalue(), "utf-8", newline="")
        try:
            file = taken(base, path, value="value", case=["a", "b"], unit="1")
        except ResultFileError as error:
            assert "take it out of the file first" in str(error)  # it looked like an address
            return
    assert sum(len(one.values) for one in file.result.metrics) == len(drawn)
    assert sorted(v for one in file.result.metrics for v in one.values) == sorted(
        value for *_, value in drawn
    )
    assert len(file.result.metrics) == len({(a, b) for a, b, _ in drawn})


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[1, 2]", "no JSON object"),
        ("{}", "it has the keys none"),
        ('{"runs": 1}', "it is no result file of nvbench, Google Benchmark, pytest-benchmark or"),
        ("[" * 100_000, "it is no result file of"),
        ('{"a": 1} x', "line 1, column 10: it is no JSON"),
        ("\udcff", "is not UTF-8"),
    ],
)
def test_what_is_no_result_file_is_refused(root, tmp_path, written, said):
    path = tmp_path / "x.json"
    path.write_bytes(written.encode("utf-8", "surrogateescape"))
    with pytest.raises(ResultFileError) as error:
        taken(root, path)
    assert said in str(error.value)


def test_an_address_or_a_path_of_a_machine_is_refused_with_its_place(root, tmp_path):
    path = changed(tmp_path, GOOGLE, lambda d: d["context"].update(host_name="10.20.30.40"))
    with pytest.raises(ResultFileError, match=r'"host": "10.20.30.40".* take it out of the file'):
        taken(root, path)


@pytest.mark.slow
def test_every_view_says_that_nothing_was_validated_here(root, tmp_path, kbtool):
    kbtool("session", "new", "Compare with others", root=root)
    done = kbtool("import-results", *map(str, ALL), root=root)
    assert done.code == 0, done.err
    assert (
        "17 metrics of Google Benchmark 1.9.5, measured on vm; taken in, not validated" in done.err
    )
    assert kbtool("check", root=root).code == 0
    paths = sorted(root.glob("sessions/*/runs/*.json"))
    assert len(paths) == len(ALL) == len(done.out.splitlines())
    for path in paths:
        record = json.loads(path.read_text())
        assert digest_of_record(record) == record["digest"]
        run = Run.model_validate(record)
        assert (run.origin, run.recipe, run.pattern) == ("file", None, None)
        result = run.steps[0].result
        assert isinstance(result, ImportResult)
        source = next(one for one in ALL if one.name == run.source)
        assert result.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
        assert run.session.endswith("-compare-with-others")
    shown = kbtool("session", "show", root=root).out
    assert shown.count("[taken in, not validated here]") == len(ALL)
    table = kbtool("export", "runs", "--format", "csv", root=root).out
    rows = list(csv.DictReader(io.StringIO(table)))
    assert {(r["counts"], r["why_not"], r["role"], r["origin"]) for r in rows} == {
        ("false", "taken in, not validated here", "imported", "file")
    }
    on_card = [row for row in rows if row["source"] == NVBENCH.name]
    assert {(row["card"], row["cpu"]) for row in on_card} == {("A card", "")}
    (asv,) = {row["commit"] for row in rows if row["source"] == ASV.name}
    assert asv == json.loads(ASV.read_text())["commit_hash"]
    other = changed(tmp_path, PYTEST, lambda d: d["benchmarks"].pop())
    again = kbtool("import-results", str(GOOGLE), str(other), root=root)
    assert again.code == 0 and len(again.out.splitlines()) == 1
    assert f"{GOOGLE} is in run " in again.err and "already: not taken in again" in again.err


def test_of_files_with_the_same_content_one_is_taken_in(root, tmp_path, kbtool):
    copy = tmp_path / "copy.json"
    copy.write_bytes(GOOGLE.read_bytes())
    done = kbtool("import-results", str(GOOGLE), str(copy), str(PYTEST), root=root)
    assert done.code == 0 and len(done.out.splitlines()) == 2
    assert f"{copy} holds the same as {GOOGLE}: taken in once" in done.err


@pytest.mark.slow
def test_a_file_that_ten_take_in_at_once_is_taken_in_once(root, kbtool):
    def take(_: int) -> tuple[int, int]:
        done = kbtool("import-results", str(GOOGLE), root=root)
        return done.code, len(done.out.splitlines())

    with ThreadPoolExecutor(10) as pool:
        done = sorted(pool.map(take, range(10)))
    assert done == [*[(0, 0)] * 9, (0, 1)]
    assert len(list(root.glob("sessions/*/runs/*.json"))) == 1


@pytest.mark.slow
def test_csv_is_taken_in_again_if_it_is_read_in_another_way(root, tmp_path, kbtool):
    path = tmp_path / "sweep.csv"
    path.write_text("n,m,time,mem\n8,1,1.5,64\n16,2,2.5,128\n")

    def written(*columns: str) -> int:
        done = kbtool("import-results", str(path), "--unit", "1", *columns, root=root)
        assert done.code == 0, done.err
        return len(done.out.splitlines())

    assert written("--case", "n", "--value", "time") == 1
    assert written("--case", "n", "--value", "time") == 0
    assert written("--case", "n", "--value", "mem") == 1
    assert written("--case", "n", "--value", "mem", "--metric", "time") == 1
    assert written("--case", "n", "--case", "m", "--value", "time") == 1
    assert written("--case", "n", "--case", "m", "--value", "time") == 0
    assert len(list(root.glob("sessions/*/runs/*.json"))) == 4


def test_all_files_are_taken_in_or_none(root, tmp_path, kbtool):
    cut = tmp_path / "cut.json"
    cut.write_text(GOOGLE.read_text()[:-20])
    done = kbtool("import-results", str(PYTEST), str(cut), root=root)
    assert done.code == 2 and "cut.json: line" in done.err
    assert list(root.glob("sessions/*/runs/*")) == []


def test_the_session_that_they_went_to_is_named_though_none_runs(root, kbtool):
    done = kbtool("import-results", str(GOOGLE), root=root)
    (session,) = (path.name for path in root.glob("sessions/*-unsorted"))
    assert f"session show {session}`" in done.err.splitlines()[-1]


def test_a_dry_run_writes_nothing(root, kbtool):
    done = kbtool("import-results", str(GOOGLE), "--dry-run", root=root)
    assert done.code == 0 and "sum_numbers n=8" in done.out
    assert list(root.glob("sessions/*")) == []
