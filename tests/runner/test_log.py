"""``kbtool.session``: values of a script go into a run record, from several processes at once."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from knowledge import RUN
from pydantic import ValidationError

import kbtool as package
from kbtool.model.errors import MachineError, UsageError, UserError
from kbtool.model.kinds.logged import Collector, LoggedValue, LogResult, Series
from kbtool.model.run import MachineInfo, Run, digest_of_record
from kbtool.runner import log
from kbtool.runner.journal import recover
from kbtool.store.tree import KnowledgeBase

MACHINE = MachineInfo(python="3", kbtool="0", os="L", cpu="A processor", cores=1)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "base"
    for name in ("sessions", "patterns"):
        (root / name).mkdir(parents=True)
    monkeypatch.setattr(log, "probe_machine", lambda: MACHINE)
    return root


def records(root: Path) -> list[Run]:
    files = sorted(root.glob("sessions/*/runs/*.json"))
    for path in files:
        record = json.loads(path.read_bytes())
        assert digest_of_record(record) == record["digest"]
    return [Run.model_validate_json(path.read_bytes()) for path in files]


def metrics(run: Run) -> list[Series]:
    result = run.steps[0].result
    assert isinstance(result, LogResult)
    return result.metrics


def start(root: Path, code: str, *arguments: str) -> subprocess.Popen:
    script = root / "tools" / "bench.py"
    script.parent.mkdir(exist_ok=True)
    if not script.exists():  # another process may read it now
        script.write_text(code)
    env = {**os.environ, "KBTOOL_ROOT": str(root)}
    return subprocess.Popen([sys.executable, str(script), *arguments], env=env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip


SCRIPT = """\
import sys
import kbtool
with kbtool.session() as s:
    for value in range(int(sys.argv[1])):
        s.log("tokens/s", value, unit="1/s", better="higher", case={"writer": sys.argv[2]})
    print("logged", flush=True)
    if len(sys.argv) > 3:
        import time; time.sleep(60)
"""


@pytest.mark.slow
def test_a_script_logs_into_the_running_session_and_every_view_says_not_validated(base, kbtool):
    kbtool("session", "new", "Tune it", root=base)
    done = start(base, SCRIPT, "5", "a")
    assert done.wait(60) == 0
    assert done.stderr is not None and "kbtool: logged 5 values: sessions/" in done.stderr.read()
    (run,) = records(base)
    assert (run.origin, run.recipe, run.pattern, run.source) == (
        "script", None, None, "tools/bench.py",
    )  # fmt: skip
    assert run.session.endswith("-tune-it")
    (series,) = metrics(run)
    assert (series.values, series.unit, series.better) == ([0, 1, 2, 3, 4], "1/s", "higher")
    result = run.steps[0].result
    assert isinstance(result, LogResult)
    assert result.sha256 == hashlib.sha256(SCRIPT.encode()).hexdigest()
    assert run.steps[0].seconds is not None and run.machine.cores >= 1
    assert kbtool("check", root=base).code == 0
    shown = kbtool("session", "show", root=base).out
    assert "tokens/s 2 1/s (writer=a, median of 5) [logged, not validated]" in shown
    told = json.loads(kbtool("session", "show", "--json", root=base).out)["runs"][0]
    assert (told["origin"], told["source"]) == ("script", "tools/bench.py")
    (row,) = csv.DictReader(io.StringIO(kbtool("export", "runs", "--format", "csv", root=base).out))
    assert (row["metric"], row["value"], row["unit"], row["better"]) == (
        "tokens/s", "2.0", "1/s", "higher",
    )  # fmt: skip
    assert (row["low"], row["high"], row["samples"]) == ("1.0", "3.0", "5")
    assert (row["counts"], row["why_not"], row["role"]) == (
        "false", "logged, not validated", "logged",
    )  # fmt: skip
    assert row["artifact"] == result.sha256
    refused = kbtool("run-recipe", "--resume", "last", root=base)
    assert refused.code == 2 and "only a recipe's run is continued" in refused.err


def test_without_a_running_session_the_values_go_where_stray_runs_go(base, kbtool):
    for _ in range(2):
        with package.session(root=base) as s:
            s.log("energy", 3.5, unit="J")
    with package.session("new", root=base) as s:
        s.log("energy", 3.5, unit="J")
    own, *stray = sorted(run.session[11:] for run in records(base))
    assert stray == ["unsorted"] * 2 and own.startswith("run-of-script-")
    assert kbtool("check", root=base).code == 0


def test_a_paused_session_of_somebody_else_does_not_stop_a_script(base, kbtool):
    kbtool("session", "new", "Wait", root=base)
    kbtool("session", "pause", root=base)
    with package.session("wait", root=base) as s:
        s.log("energy", 3.5, unit="J")
    (run,) = records(base)
    assert run.session.endswith("-wait")


def test_nothing_logged_leaves_nothing(base):
    with package.session(root=base):
        pass
    assert list(base.glob("sessions/*/runs/*")) == []


@pytest.mark.slow
def test_ten_processes_at_once_lose_and_tear_nothing(base, kbtool):
    kbtool("session", "new", "Ten writers", root=base)
    started = [start(base, SCRIPT, "300", str(writer)) for writer in range(10)]
    assert [one.wait(120) for one in started] == [0] * 10
    found = {str(s.case["writer"]): s.values for run in records(base) for s in metrics(run)}
    assert found == {str(writer): list(range(300)) for writer in range(10)}
    assert len(records(base)) == 10
    assert kbtool("check", root=base).code == 0


@pytest.mark.slow
def test_what_killed_processes_logged_is_recovered(base, kbtool):
    kbtool("session", "new", "Ten writers", root=base)
    started = [start(base, SCRIPT, "300", str(writer), "wait") for writer in range(3)]
    for one in started:
        assert one.stdout is not None and one.stdout.readline() == "logged\n"
        one.kill()
        one.wait()
    assert records(base) == []
    assert kbtool("recover", root=base).code == 0
    found = {str(s.case["writer"]): s.values for run in records(base) for s in metrics(run)}
    assert found == {str(writer): list(range(300)) for writer in range(3)}
    assert {(run.status, run.recovered) for run in records(base)} == {("interrupted", True)}
    assert kbtool("check", root=base).code == 0


@pytest.mark.slow
def test_ten_processes_without_a_session_share_the_one_of_the_day(base, kbtool):
    started = [start(base, SCRIPT, "3", str(writer)) for writer in range(10)]
    assert [one.wait(120) for one in started] == [0] * 10
    assert len(records(base)) == 10
    assert len({run.session for run in records(base)}) == 1
    assert kbtool("check", root=base).code == 0


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (RuntimeError("out of memory"), "failed", "RuntimeError: out of memory"),
        (KeyboardInterrupt(), "interrupted", "interrupted"),
        (SystemExit(3), "failed", "SystemExit: 3"),
        (SystemExit(0), "passed", None),
        (ConnectionError("no route to 8.8.4.4"), "failed", "ConnectionError"),
    ],
)
def test_how_the_script_ended_is_recorded_with_what_it_had_logged(base, raised, status, message):
    with pytest.raises(type(raised)), package.session(root=base) as s:
        s.log("energy", 3.5, unit="J")
        raise raised
    (run,) = records(base)
    assert (run.status, run.steps[0].message) == (status, message)
    assert metrics(run)[0].values == [3.5]


def test_a_path_in_an_error_is_taken_and_the_record_is_sound(base, kbtool):
    with pytest.raises(OSError), package.session(root=base) as s:
        s.log("energy", 3.5, unit="J")
        raise OSError("no /home/somebody/model.bin")
    (run,) = records(base)
    assert run.steps[0].message == "OSError: no …/model.bin"
    assert kbtool("check", root=base).code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"value": math.nan, "unit": "J"}, "log('m'): value: nan is no measurement"),
        ({"value": -math.inf, "unit": "J"}, "value: -inf is no measurement"),
        ({"value": 1.0}, "log('m'): metric 'm' has no unit: write one, such as us"),
        ({"value": 1.0, "unit": "12"}, "unit: '12' is no unit"),
        ({"value": "fast", "unit": "J"}, "value: Input should be a valid number"),
        ({"value": "12", "unit": "J"}, "value: '12' is text, and no number"),
        ({"value": True, "unit": "1"}, "value: True is no number"),
        ({"value": 1.0, "unit": "J", "better": "up"}, "better: Input should be 'lower', 'higher'"),
        ({"value": 1.0, "unit": "J", "case": {"x": object()}}, "case.x"),
        ({"value": 1.0, "unit": "J", "case": [8]}, "case: [8] is no mapping: write one"),
        ({"value": 1.0, "unit": "J", "case": "b=8"}, "case: 'b=8' is no mapping"),
        (
            {"value": 1.0, "unit": "J", "case": {"host": "8.8.4.4"}},
            "log('m'): it holds the address of a machine (8.8.…)",
        ),
        (
            {"value": 1.0, "unit": "J", "case": {"model": "/home/somebody/model.bin"}},
            "log('m'): it holds a path of a machine (/home/somebody/model.bin): write it relative",
        ),
    ],
)
def test_what_is_no_value_is_refused_and_the_others_stay(base, given, said):
    with package.session(root=base) as s:
        s.log("other", 1, unit="1")
        with pytest.raises(UsageError) as error:
            s.log("m", **given)
    assert said in str(error.value)
    (run,) = records(base)
    assert [(one.name, one.values) for one in metrics(run)] == [("other", [1.0])]


def test_a_record_that_no_command_could_read_is_not_written(base, kbtool, monkeypatch):
    monkeypatch.setattr("kbtool.runner.journal.MAX_RUN_BYTES", 4000)
    size = r"run \S+ has [5-9],\d{3} bytes; a run record has at most 4,000: log fewer values, or"
    with pytest.raises(MachineError, match=size), package.session(root=base) as s:
        for value in range(400):
            s.log("energy", value, unit="J")
    assert records(base) == []
    (journal,) = base.glob("sessions/*/runs/.*.journal")
    unsound: list[str] = []
    assert recover(KnowledgeBase(base), lambda path, why: unsound.append(why)) == []
    assert re.match(size, unsound[0]) and journal.exists()
    monkeypatch.undo()
    recover(KnowledgeBase(base))
    assert len(metrics(records(base)[0])[0].values) == 400


def test_messages_name_what_a_script_has_and_no_options(base, kbtool, monkeypatch):
    monkeypatch.chdir(base.parent)
    with pytest.raises(UserError) as error, package.session():
        pass
    assert "pass root=DIR, or set KBTOOL_ROOT" in str(error.value)
    for number in (1, 2):
        kbtool("session", "new", f"Tune {number}", "--planned", root=base)
    with pytest.raises(UserError) as error, package.session("tune-1", root=base):
        pass
    assert 'opens it, kbtool.session("new") makes one for this run' in str(error.value)
    for path in base.glob("sessions/*/session.yaml"):
        path.write_text(path.read_text().replace("status: planned", "status: running"))
    with pytest.raises(UserError) as error, package.session(root=base):
        pass
    assert 'say which: kbtool.session("ID"), or kbtool.session("new")' in str(error.value)
    assert "--" not in str(error.value)


def test_a_metric_keeps_its_unit(base):
    with package.session(root=base) as s:
        s.log("rate", 1, unit="1/s", case={"n": 1})
        with pytest.raises(UsageError, match=r"metric 'rate' was in 1/s .* now: a metric has one"):
            s.log("rate", 60, unit="1/min", case={"n": 2})


def test_numbers_of_numpy_are_taken(base):
    np = pytest.importorskip("numpy")
    with package.session(root=base) as s:
        s.log("m", np.float32(0.5), unit="1", case={"n": np.int64(3)})
    (run,) = records(base)
    assert (metrics(run)[0].values, metrics(run)[0].case) == ([0.5], {"n": 3})


class Tensor:
    def item(self) -> float:
        return 0.5


def test_a_tensor_of_one_value_is_taken(base):
    with package.session(root=base) as s:
        s.log("m", Tensor(), unit="1")
    assert metrics(records(base)[0])[0].values == [0.5]


def test_scripts_that_draw_one_id_have_a_record_each(base, kbtool, monkeypatch):
    kbtool("session", "new", "Now", root=base)
    drawn = iter(f"20250101T090000Z-x-000{n}" for n in (1, 1, 2, 1, 2, 3))
    monkeypatch.setattr(log, "run_id", lambda *_: next(drawn))
    with package.session(root=base) as first:
        first.log("m", 1, unit="1")
        with package.session(root=base) as second:
            second.log("m", 2, unit="1")
    with package.session(root=base) as third:
        third.log("m", 3, unit="1")
    assert [metrics(run)[0].values for run in records(base)] == [[1.0], [2.0], [3.0]]


def test_values_are_logged_inside_the_with_statement(base):
    s = package.session(root=base)
    with pytest.raises(UsageError, match=r"write `with kbtool.session\(\) as s:` first"):
        s.log("m", 1, unit="1")


def test_a_forked_process_is_told_to_open_a_session_of_its_own(base):
    with package.session(root=base) as s:
        s.log("m", 1, unit="1")
        child = os.fork()
        if child == 0:
            try:
                s.log("m", 2, unit="1")
            except UsageError as error:
                os._exit(7 if "each process opens its own" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    (run,) = records(base)
    assert metrics(run)[0].values == [1.0]


def test_a_run_has_a_recipe_or_one_step_that_a_script_made():
    step = {**RUN["steps"][0], "id": "log", "kind": "log", "result": {"type": "log"}}
    script = {**RUN, "recipe": None, "pattern": None, "steps": [step]}
    assert Run.model_validate(script).origin == "script"
    assert Run.model_validate(RUN).origin == "recipe"
    for wrong in (
        {**RUN, "recipe": None}, {**RUN, "pattern": None}, {**script, "recipe": "look"},
        {**RUN, "recipe": None, "pattern": None},
    ):  # fmt: skip
        with pytest.raises(ValidationError, match="a recipe and its pattern, or neither"):
            Run.model_validate(wrong)
    with pytest.raises(ValidationError, match="a run of a script has one step"):
        Run.model_validate({**script, "steps": [step, {**RUN["steps"][0]}]})


NAMES = st.sampled_from(["tokens/s", "energy", "loss"])
CASES = st.dictionaries(
    st.text("abn", min_size=1, max_size=3),
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False) | st.lists(st.integers(0, 9), max_size=3),
    max_size=3,
)  # fmt: skip
VALUES = st.floats(-1e300, 1e300)


@given(st.lists(st.tuples(NAMES, VALUES, CASES), min_size=1, max_size=30))
def test_of_any_values_each_is_kept_once_under_its_metric_and_case_in_order(drawn):
    collector = Collector()
    expected = defaultdict(list)
    for name, value, case in drawn:
        collector.add(LoggedValue(name=name, unit="1", value=value, case=case))
        expected[name, json.dumps(case, sort_keys=True)].append(value)
    found = [Series.model_validate_json(one.model_dump_json()) for one in collector.series]
    kept = {(one.name, json.dumps(one.case, sort_keys=True)): one.values for one in found}
    assert kept == expected
    assert len(found) == len(kept)
    assert len(collector) == len(drawn)
    for one in found:
        low, high = one.quartiles
        if len(one.values) > 1:
            assert math.isfinite(one.median) and math.isfinite(low) and math.isfinite(high)
            slack = 1e-12 * max(map(abs, one.values))
            assert low - slack <= one.median <= high + slack


@pytest.mark.slow
def test_the_commit_is_that_of_the_script_or_unknown(base: Path, tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=base, check=True, capture_output=True)

    code = 'import kbtool\nwith kbtool.session() as s:\n    s.log("t", 1, unit="ms")\n'
    for path in (base / "bench.py", tmp_path / "bench.py"):
        path.write_text(code)
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "empty")
    env = {**os.environ, "KBTOOL_ROOT": str(base)}

    def state(script: Path) -> tuple[bool, bool | None]:
        before = {run.id for run in records(base)}
        subprocess.run([sys.executable, str(script)], env=env, check=True, capture_output=True)
        [run] = [run for run in records(base) if run.id not in before]
        return run.repository.commit is not None, run.repository.dirty

    assert state(base / "bench.py") == (True, True)  # untracked
    git("add", "bench.py")
    git("commit", "-q", "-m", "script")
    assert state(base / "bench.py") == (True, False)
    assert state(tmp_path / "bench.py") == (False, None)


def test_a_session_can_be_opened_again_and_not_twice_at_once(base: Path) -> None:
    again = package.session(root=base)
    for value in (1, 2):
        with again as s:
            s.log("t", value, unit="ms")
            with pytest.raises(UsageError, match="this one is open already"):
                again.__enter__()
    assert sorted(metrics(run)[0].values for run in records(base)) == [[1.0], [2.0]]
