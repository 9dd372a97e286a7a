"""Runs that end before their last step: what is kept, and how they go on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from commands import assert_passed_or_noisy
from test_run_recipe import runs_of, shell

from kbtool.cli import main
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.kinds.validate import ValidationResult
from kbtool.model.run import digest_of_record
from kbtool.runner.progress import Plain


def test_a_timeout_stops_the_whole_process_tree(second_kernel_base, kbtool, tmp_path):
    pid_file = tmp_path / "pid"
    code = (
        "import subprocess as s,sys; p=s.Popen(['sleep','300']);"
        f" open({str(pid_file)!r},'w').write(str(p.pid)); p.wait()"
    )
    done = kbtool(*shell(code), "--set", "timeout=2 s", root=second_kernel_base)
    assert done.code == 4
    assert not alive(int(pid_file.read_text()))
    (run,) = runs_of(second_kernel_base)
    assert run.status == "timeout"
    assert [step.status for step in run.steps] == ["timeout", "not-run"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_recorded_and_leaves_no_process(second_kernel_base, tmp_path, number):
    pid_file = tmp_path / "pid"
    process = start(second_kernel_base, pid_file)
    process.send_signal(number)
    assert process.wait(timeout=30) == 4
    assert not alive(int(pid_file.read_text()))
    (run,) = runs_of(second_kernel_base)
    assert run.status == "interrupted"
    assert run.steps[0].status == "interrupted"
    assert list(second_kernel_base.glob("sessions/*/runs/.*")) == []


def test_a_kill_leaves_a_journal_that_becomes_a_record(second_kernel_base, kbtool, tmp_path):
    pid_file = tmp_path / "pid"
    process = start(second_kernel_base, pid_file)
    process.kill()
    process.wait(timeout=30)
    wait_until(lambda: not alive(int(pid_file.read_text())), "the child outlived kbtool")
    assert runs_of(second_kernel_base) == []
    assert kbtool("check", root=second_kernel_base).code == 1
    done = kbtool("recover", root=second_kernel_base)
    assert done.code == 0
    (run,) = runs_of(second_kernel_base)
    assert run.recovered
    assert run.status == "interrupted"
    (record,) = second_kernel_base.glob("sessions/*/session.yaml")
    assert "ended: " in record.read_text()
    assert kbtool("check", root=second_kernel_base).code == 0
    assert list(second_kernel_base.glob("sessions/*/runs/.*")) == []
    assert "nothing to recover" in kbtool("recover", root=second_kernel_base).err


@pytest.mark.parametrize("command", [["recover"], ["run-recipe", "shell"]])
def test_files_that_a_killed_process_had_not_put_in_place_are_removed(
    second_kernel_base, kbtool, command
):
    folder = second_kernel_base / "sessions" / ".2025-01-01-a.abcdefgh.tmp"
    (folder / "runs").mkdir(parents=True)
    left = second_kernel_base / "patterns" / ".P01.yaml.abcdefgh.tmp"
    left.touch()
    for path in (folder, left):
        os.utime(path, (1e9, 1e9))
    done = kbtool(*command, root=second_kernel_base)
    assert done.code == 0, done.err
    assert not folder.exists() and not left.exists()
    assert "removed patterns/.P01.yaml.abcdefgh.tmp, which a killed kbtool left" in done.err
    assert "nothing to recover" not in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_results_of_an_interrupted_step_are_kept(second_kernel_base, kbtool, number):
    harness = second_kernel_base / "kernels" / "scaled_add" / "harness.py"
    busy = second_kernel_base / ".kbtool" / "busy"
    busy.touch()
    cut = (
        "    import os, time\n"
        f"    if len(inputs['x']) == 1000 and os.path.exists('.kbtool/busy'):\n"
        "        time.sleep(2)\n"
        f"        os.kill(os.getppid(), {int(number)})\n        time.sleep(300)\n"
        "    out = torch.full_like(inputs['x']"
    )
    whole = harness.read_text()
    harness.write_text(whole.replace('    out = torch.full_like(inputs["x"]', cut, 1))
    assert harness.read_text() != whole
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    if number == signal.SIGINT:
        assert done.code == 4
    else:
        assert kbtool("recover", root=second_kernel_base).code == 0
    (run,) = runs_of(second_kernel_base)
    validate = run.steps[2]
    assert (run.status, validate.status) == ("interrupted", "interrupted")
    assert isinstance(validate.result, ValidationResult)
    assert [case.name for case in validate.result.cases] == ["one"]
    # How long the step took nobody knows who was killed.
    longest = 3600.0 if validate.seconds is None else validate.seconds
    assert (validate.seconds is None) == (number == signal.SIGKILL)
    assert validate.result.first_seconds is not None
    assert 0 < validate.result.first_seconds <= longest
    assert validate.result.cases[0].passed
    assert not validate.result.passed
    assert validate.result.not_reached == 2
    assert kbtool("check", root=second_kernel_base).code == 0
    shown = kbtool("session", "show", run.session, root=second_kernel_base)
    assert "1 of 1 case passed; 2 not reached; " in shown.out
    # The gate stays shut: nothing counts as validated.
    busy.unlink()
    again = kbtool("run-recipe", "--resume", run.id, root=second_kernel_base)
    (resumed,) = (run for run in runs_of(second_kernel_base) if run.attempt == 2)
    assert_passed_or_noisy(resumed, again)
    assert len(resumed.steps[2].result.cases) == 3


def test_timings_taken_before_the_worker_died_are_kept(second_kernel_base, kbtool):
    manifest = second_kernel_base / "kernels" / "scaled_add" / "kernel.yaml"
    cases = "      - {name: million, n: 1000000}\n"
    manifest.write_text(
        manifest.read_text().replace(cases, cases + "      - {name: more, n: 1000001}\n")
    )
    harness = second_kernel_base / "kernels" / "scaled_add" / "harness.py"
    harness.write_text(
        harness.read_text().replace(
            "def work(case):\n", "def work(case):\n    import os; case['n'] > 1e6 and os._exit(7)\n"
        )
    )
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    assert done.code != 0
    (run,) = runs_of(second_kernel_base)
    benchmark = run.steps[3]
    assert benchmark.status == "crashed"
    assert isinstance(benchmark.result, BenchmarkResult)
    assert [case.name for case in benchmark.result.cases] == ["million"]
    assert benchmark.result.cases[0].arms["torch"].samples_us
    assert benchmark.result.not_reached == 1
    assert kbtool("check", root=second_kernel_base).code == 0


def test_resume_goes_on_at_the_step_that_failed(second_kernel_base, kbtool):
    flag = second_kernel_base / "flag"
    code = "import os,sys; sys.exit(not os.path.exists('flag'))"
    first = kbtool(*shell(code), root=second_kernel_base)
    assert first.code == 1
    (run,) = runs_of(second_kernel_base)
    assert "failed at step 1 of 2, run; record: " in first.out
    assert f"kbtool run-recipe --resume {run.id}" in first.out
    flag.touch()
    again = kbtool("run-recipe", "--resume", run.id, root=second_kernel_base)
    assert again.code == 0, again.err
    attempts = runs_of(second_kernel_base)
    assert [r.id for r in attempts] == [run.id, run.id]
    assert sorted(r.attempt for r in attempts) == [1, 2]
    done = kbtool("run-recipe", "--resume", run.id, root=second_kernel_base)
    assert done.code == 2
    assert "nothing to resume" in done.err


def test_resume_keeps_the_build_and_refuses_changed_sources(second_kernel_base, kbtool, tmp_path):
    harness = second_kernel_base / "kernels" / "scaled_add" / "harness.py"
    busy = second_kernel_base / ".kbtool" / "busy"
    busy.touch()
    work = "def work(case):\n"
    stop = f"{work}    import os\n    1 // (not os.path.exists('.kbtool/busy'))\n"
    harness.write_text(harness.read_text().replace(work, stop))
    first = kbtool("run-recipe", "add", root=second_kernel_base)
    assert first.code == 1
    (run,) = runs_of(second_kernel_base)
    assert [step.status for step in run.steps] == ["passed", "passed", "passed", "failed"]
    busy.unlink()
    kernel = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
    source = kernel.read_text()
    kernel.write_text(source + "// changed\n")
    refused = kbtool("run-recipe", "--resume", run.id, root=second_kernel_base)
    assert refused.code == 2
    assert "scaled_add.cpp has changed since run" in refused.err
    kernel.write_text(source)
    again = kbtool("run-recipe", "--resume", run.id, root=second_kernel_base)
    assert_passed_or_noisy(next(r for r in runs_of(second_kernel_base) if r.attempt == 2), again)
    assert "validate: passed in attempt 1, kept" in again.err


def test_a_kernel_found_wrong_is_run_anew_after_mending(second_kernel_base, kbtool):
    source = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
    whole = source.read_text()
    settings = ("--set", "cases=small,large", "--set", "samples=5")
    source.write_text("oops\n" + whole)
    done = kbtool("run-recipe", "add", *settings, root=second_kernel_base)
    assert done.code == 1
    assert "failed at step 2 of 4, build; record: sessions/" in done.out
    # What is the default need not be said.
    anew = "kbtool run-recipe add --set cases=small,large"
    assert done.out.splitlines()[-1] == f"after the fix, start a new run: {anew}"
    assert "--resume" not in done.out
    source.write_text(whole)
    harness = second_kernel_base / "kernels" / "scaled_add" / "harness.py"
    harness.write_text(harness.read_text().replace("def work(case):", "def work(case, oops):"))
    again = kbtool(*anew.split()[1:], root=second_kernel_base)
    (run,) = (run for run in runs_of(second_kernel_base) if run.steps[1].status == "passed")
    assert [step.status for step in run.steps][:3] == ["passed", "passed", "passed"]
    assert f"{run.status} at step 4 of 4, benchmark; record: " in again.out
    # The harness has to change, after which resuming is refused.
    assert again.out.splitlines()[-2:] == [
        f"if no file has to change: kbtool run-recipe --resume {run.id}",
        f"else, after the fix: {anew}",
    ]
    source.write_text(whole + "// changed\n")
    refused = kbtool("run-recipe", "--resume", run.id, root=second_kernel_base)
    assert refused.err.splitlines()[-1].endswith(f"; start a new one: {anew}")


def start(root: Path, pid_file: Path) -> subprocess.Popen[bytes]:
    """A run whose step has started a grandchild, its process id in ``pid_file``."""
    code = (
        "import subprocess as s; p=s.Popen(['sleep','300']);"
        f" open({str(pid_file)!r},'w').write(str(p.pid)); p.wait()"
    )
    argv = [sys.executable, "-m", "kbtool", "--root", str(root), *shell(code)]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    wait_until(lambda: pid_file.exists() and pid_file.read_text() != "", "the step did not start")
    return process


def wait_until(condition, message: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_journal_that_makes_no_record_is_told_and_stops_no_other_run(second_kernel_base, kbtool):
    kbtool("run-recipe", "shell", root=second_kernel_base)
    (path,) = second_kernel_base.glob("sessions/*/runs/*.json")
    run = json.loads(path.read_bytes())
    run["steps"][1] |= {"status": "not-run"}
    run["steps"][0] |= {"status": "not-run", "seconds": -1}
    left = path.with_name(".20250101T090000Z-shell-0000.journal")
    left.write_text(json.dumps({"run": run}))
    done = kbtool("recover", root=second_kernel_base)
    assert done.code == 1
    assert f"{left.name} makes no valid run record: Input should be greater" in done.err
    assert kbtool("run-recipe", "shell", root=second_kernel_base).code == 0
    assert left.exists()


def test_after_a_refused_step_a_new_run_is_proposed(second_kernel_base, kbtool):
    with (second_kernel_base / "kernels" / "scaled_add" / "harness.py").open("a") as file:
        file.write("import time\ntime.perf_counter = lambda: 0.0\n")
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    assert done.out.splitlines()[-1] == "after the fix, start a new run: kbtool run-recipe add"


def test_a_run_that_is_being_resumed_is_not_resumed_a_second_time(second_kernel_base, kbtool):
    code = (
        "import pathlib, sys, time; first = pathlib.Path('first');"
        " first.exists() or sys.exit(first.touch() or 1); time.sleep(60)"
    )
    kbtool(*shell(code), root=second_kernel_base)
    (run,) = runs_of(second_kernel_base)
    command = [sys.executable, "-m", "kbtool", "--root", str(second_kernel_base), "run-recipe"]
    with subprocess.Popen([*command, "--resume", run.id], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"[1/2]" not in process.stderr.readline():
            pass
        done = kbtool("run-recipe", "--resume", run.id, root=second_kernel_base)
        process.terminate()
    assert done.code == 2
    said = f"kbtool: another process makes attempt 2 of run {run.id} now; wait for it"
    assert done.err.splitlines()[-1] == said


def test_resume_without_an_id_is_refused(second_kernel_base, kbtool):
    kbtool(*shell("raise SystemExit(1)"), root=second_kernel_base)
    done = kbtool("run-recipe", "--resume", "", root=second_kernel_base)
    assert done.code == 2 and "there is no run ''" in done.err


def test_ctrl_c_between_two_steps_is_no_crash(second_kernel_base, monkeypatch):
    def interrupt(self, record, matches, output):
        raise KeyboardInterrupt

    monkeypatch.setattr(Plain, "step_ended", interrupt)
    argv = ["--root", str(second_kernel_base), *shell("print()"), "--progress", "plain"]
    assert main.run(argv) == 4
    (run,) = runs_of(second_kernel_base)
    assert run.status == "interrupted"


def test_a_second_ctrl_c_does_not_change_the_status_of_the_first():
    code = (
        "import atexit, os, signal; from kbtool.cli import main;"
        " main.run = lambda argv: 4; atexit.register(os.kill, os.getpid(), signal.SIGINT);"
        " main.main([])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (4, "")


def test_a_run_that_is_resumed_later_stays_within_its_session(second_kernel_base, kbtool):
    assert kbtool(*shell("raise SystemExit(7)"), root=second_kernel_base).code == 1
    (run,) = runs_of(second_kernel_base)
    earlier = run.started - timedelta(hours=1)
    (path,) = second_kernel_base.glob("sessions/*/session.yaml")
    moment = re.compile(r'(started|ended): "?[^"\n]*"?')
    path.write_text(moment.sub(rf'\1: "{earlier:%Y-%m-%dT%H:%M:%SZ}"', path.read_text()))
    (file,) = second_kernel_base.glob("sessions/*/runs/*.json")
    data = json.loads(file.read_text())
    times = {key: earlier.isoformat() for key in ("started", "ended")}
    steps = [{**step, "started": earlier.isoformat()} for step in data["steps"]]
    data = {**data, **times, "steps": steps}
    del data["digest"]
    file.write_text(json.dumps({**data, "digest": digest_of_record(data)}))
    assert kbtool("check", root=second_kernel_base).code == 0
    assert kbtool("run-recipe", "--resume", run.id, root=second_kernel_base).code == 1
    done = kbtool("check", root=second_kernel_base)
    assert done.code == 0, done.out
