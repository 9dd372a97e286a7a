"""Child processes: output, deadlines, and no orphans."""

from __future__ import annotations

import sys
import time

import pytest

from kbtool.gpu.process import run_process


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def test_output_is_passed_on_line_by_line_with_the_childs_status(tmp_path):
    lines: list[str] = []
    done = run_process(
        python("print('one'); print('two', end=''); raise SystemExit(7)"),
        cwd=tmp_path, timeout=20, on_line=lines.append,
    )  # fmt: skip
    assert (done.returncode, lines) == (7, ["one", "two"])
    assert not done.timed_out


def test_a_child_gets_standard_input_and_sends_events(tmp_path):
    events: list[bytes] = []
    code = (
        "import os,sys; f=os.fdopen(int(os.environ['KBTOOL_EVENTS']),'w');"
        " f.write(sys.stdin.read().upper()); f.close()"
    )
    done = run_process(
        python(code), cwd=tmp_path, timeout=20, stdin=b"a\nb\n", on_event=events.append
    )
    assert done.returncode == 0
    assert events == [b"A", b"B"]


@pytest.mark.slow
def test_a_deadline_ends_a_child_that_ignores_the_request(tmp_path):
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); print('on'); time.sleep(60)"
    started = time.monotonic()
    done = run_process(python(code), cwd=tmp_path, timeout=1)
    assert done.timed_out
    assert done.died == "SIGKILL"
    assert time.monotonic() - started < 20


@pytest.mark.slow
def test_a_grandchild_that_holds_the_pipe_does_not_hold_the_run(tmp_path):
    code = "import subprocess as s; s.Popen(['sleep','60']); print('done')"
    done = run_process(python(code), cwd=tmp_path, timeout=30)
    assert done.returncode == 0
    assert done.seconds < 20
    assert "done" in done.output


def test_a_child_that_does_not_read_its_input_is_judged_by_its_status(tmp_path):
    done = run_process(
        python("raise SystemExit(3)"), cwd=tmp_path, timeout=20, stdin=b"x" * 10_000_000
    )
    assert done.returncode == 3
