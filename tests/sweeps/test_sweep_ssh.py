"""A sweep on hosts that ssh reaches: OpenSSH's own server, on this machine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_sweep_faults import LIMIT_S, driven, folder_of, until

from kbtool.model.errors import UsageError
from kbtool.sweeps.engines.ssh import hosts_of
from kbtool.sweeps.folder import GIVEN_UP, AttemptFolder
from soak.hosts import Hosts, hosts, missing

needs_sshd = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason="no sshd (Debian: apt-get install openssh-server)"),
]
TWO = ("--on", "ssh:node-a,node-b")


def sshd(test):
    for mark in needs_sshd:
        test = mark(test)
    return test


@pytest.fixture
def two(swept, tmp_path: Path) -> Iterator[Hosts]:
    pytest.importorskip("execnet")
    with hosts(tmp_path / "hosts", "node-a", "node-b") as made:
        swept.env["PATH"] = made.environment["PATH"]
        yield made


def there(two: Hosts, swept, name: str) -> AttemptFolder:
    """The folder of an attempt on its host."""
    sweeps = two.folder / "tmp" / f"kbtool-{os.getuid()}" / "sweeps"
    return AttemptFolder(sweeps / swept.records[-1].stem / "cells" / name)


@sshd
def test_cells_run_on_the_hosts_and_their_runs_come_home(swept, two):
    said = swept.swept("cheap", "--over", "n=1,2,3", "--over", "ends=well,badly", *TWO, code=1)
    assert [one["status"] for one in said["cells"]] == ["passed", "failed"] * 3
    jobs = [attempt["job"] for one in said["cells"] for attempt in one["attempts"]]
    assert {job.partition("/")[0] for job in jobs} == {"node-a", "node-b"}
    for cell in said["cells"]:
        run = swept.runs[cell["run"]]
        # Made from an archive, without git, and yet it knows what it is of.
        assert run["repository"]["commit"] == swept.first and not run["repository"]["dirty"]
    log = folder_of(swept).attempt("1", 1).path / "log"
    assert "work: Work on it" in log.read_text()
    swept.sound()


@sshd
def test_a_connection_that_breaks_and_a_kbtool_that_is_killed_lose_nothing(swept, two):
    over = ("cheap", "--over", "n=1,2", "--set", "seconds=8")
    with driven(swept, *over, *TWO) as sweep:
        until(lambda: all(folder_of(swept).attempt(cell, 1).claim for cell in "12"))
        assert two.cut("node-a") == two.cut("node-b") == 1
        until(lambda: two.connections("node-a"))  # it connects again
        os.killpg(sweep.pid, signal.SIGKILL)
        sweep.wait()
    assert swept("attach", "last").code == 0
    assert [len(cell.attempts) for cell in swept.last.cells] == [1, 1]
    assert len(swept.runs) == 2
    swept.sound()


@sshd
def test_a_host_that_is_down_leaves_its_cell_to_another_and_ends_it_once_it_is_back(swept, two):
    (swept.root / "work.py").write_text(
        "import os, time\n"
        "while not os.path.exists(os.environ['TMPDIR'] + '/go'):\n    time.sleep(0.1)\n"
    )
    swept.commit("waits")
    over = ("cheap", "--over", "n=1,2,3", *TWO, "--engine-option", "patience=3")
    with driven(swept, *over) as sweep:
        until(lambda: all(folder_of(swept).attempt(cell, 1).claim for cell in "12"))
        down = next(
            folder_of(swept).attempt(cell, 1) for cell in "12"
            if (folder_of(swept).attempt(cell, 1).job or "").startswith("node-b")
        )  # fmt: skip
        two.stop("node-b")
        until(lambda: "unreachable" in swept.records[-1].read_text())
        assert not down.end
        two.start("node-b")
        left = there(two, swept, f"{down.path.parent.name}/1")
        until(lambda: left.end)
        assert left.end.signal == "SIGTERM"
        (two.folder / "tmp" / "go").touch()
        assert sweep.wait(LIMIT_S) == 0
        said = sweep.stderr.read()
    assert "kbtool: node-b does not answer: " in said and "node-b answers again" in said
    record = swept.last
    assert {cell.status for cell in record.cells} == {"passed"}
    lost = [one for one in record.attempts if one.status == "unreachable"]
    assert [(one.run, one.message) for one in lost] == [(None, "node-b did not answer any more")]
    assert len(swept.runs) == 3
    swept.sound()


@sshd
def test_lost_timed_out_and_stopped_are_told_apart(swept, two):
    over = ("cheap", "--over", "n=1,2", "--set", "seconds=50", "--tries", "1")
    with driven(swept, *over, *TWO) as sweep:
        first, second = (folder_of(swept).attempt(cell, 1) for cell in "12")
        log = second.path / "log"
        until(lambda: first.claim and log.exists() and "work: Work on it" in log.read_text())
        process = there(two, swept, "1/1").job.partition(".")[0]
        os.kill(int(process), signal.SIGKILL)
        until(lambda: swept.last.cells[0].status == "lost")
        assert swept("stop", "last").code == 0
        assert sweep.wait(LIMIT_S) == 4
    lost, stopped = swept.last.cells
    assert (lost.status, lost.run, stopped.status) == ("lost", None, "interrupted")
    assert swept.runs[stopped.run]["status"] == "interrupted"
    said = swept.swept("cheap", "--over", "n=3", "--set", "seconds=50", *TWO,
                       "--engine-option", "time=0.3", code=4)  # fmt: skip
    assert said["cells"][0]["status"] == "timeout"
    swept.sound()


@sshd
def test_a_host_without_this_kbtool_gets_no_cell(swept, two):
    python = two.folder / "bin" / "python-without"
    python.write_text('#!/bin/sh\nunset PYTHONPATH; exec python3 -S "$@"\n')
    python.chmod(0o755)
    done = swept(
        "cheap", "--over", "n=1", *TWO, "--engine-option", "python=$TMPDIR/../bin/python-without"
    )
    assert done.code == 3 and "no host answers" in done.err
    assert "node-a does not answer: " in done.err and "No module named 'kbtool'" in done.err


@pytest.fixture
def host(tmp_path, monkeypatch):
    from kbtool.sweeps.engines.there import Host

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("kbtool.sweeps.engines.there.visible_cards", lambda: ["3", "5"])
    return Host("20260101T000000Z-sweep-cheap-0000")


def test_what_a_host_was_asked_about_before_it_was_to_start_never_begins(host, monkeypatch):
    seen = host.look({"1/1": 0})["1/1"]
    assert not seen["lives"] and json.loads(seen["claim.json"])["job"] == GIVEN_UP
    started = []

    class Child:
        pid = os.getpid()

    def start(path, card, *command):
        started.append((path.parts[-2:], card, command[0]))
        return Child

    monkeypatch.setattr("kbtool.sweeps.engines.there.start", start)
    request = {"digest": "0" * 64, "recipe": "cheap"}
    host.start("1/1", request, 1, 60)
    assert started == [(("1", "1"), "5", "timeout")]  # and its process finds who has it
    attempt = host._attempt("1/1")
    assert attempt.claim.job == GIVEN_UP
    assert attempt.request()["archive"].endswith(f"archives/{'0' * 64}")


def test_a_long_log_comes_in_parts_and_its_end_after_it(host, monkeypatch):
    monkeypatch.setattr("kbtool.sweeps.engines.there.MOST_LOG", 4)
    host.look({"1/1": 0})
    path = host._attempt("1/1").path
    for name in ("run.json", "ended.json"):
        (path / name).write_text("{}")
    (path / "log").write_text("abcdef")
    first, second = host.look({"1/1": 0})["1/1"], host.look({"1/1": 4})["1/1"]
    assert (first["log"], first["lives"], first["ended.json"]) == (b"abcd", True, None)
    assert (second["log"], second["lives"], second["ended.json"]) == (b"ef", False, b"{}")


def test_hosts_are_read_from_the_command_or_from_a_file(tmp_path):
    assert hosts_of("node-a, node-b=4") == {"node-a": None, "node-b": 4}
    file = tmp_path / "hosts"
    file.write_text("node-a  # the old one\n\nnode-b=4\n")
    assert hosts_of(f"@{file}") == {"node-a": None, "node-b": 4}
    for text in ("", "node-a,node-a", "me@node-a", "node-a:22", "-oProxyCommand=x", "node-a=0",
                 f"@{tmp_path}"):  # fmt: skip
        with pytest.raises(UsageError, match="--on ssh"):
            hosts_of(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--on", "ssh:" + ".".join("1234")), "address of a machine"),
        (("--on", "ssh:a", "--engine-option", "python=/home/me/python"), "path of a machine"),
        (("--on", "ssh:a", "--engine-option", "partition=gpu"), "takes python, time, patience"),
        (("--on", "ssh:a", "--engine-option", "time=soon"), "write a number"),
        (("--on", "ssh"), "is not one of"),
    ],
)
def test_what_the_record_may_not_hold_and_what_it_does_not_take_is_refused(swept, arguments, says):
    pytest.importorskip("execnet")
    done = swept("cheap", "--over", "n=1", *arguments)
    assert done.code == 2 and says in done.err, done.err
    assert not swept.records


def test_a_host_that_does_not_answer_is_said_once_with_what_ssh_says(swept, tmp_path):
    pytest.importorskip("execnet")
    commands = tmp_path / "bin"
    commands.mkdir()
    ssh = commands / "ssh"
    ssh.write_text(
        '#!/bin/sh\nwhile [ "$1" != -E ]; do shift; done; echo refused >> "$2"; exit 255\n'
    )
    ssh.chmod(0o755)
    path = f"{commands}:{os.environ['PATH']}"
    done = swept("cheap", "--over", "n=1", "--on", "ssh:node-a", PATH=path)
    assert done.code == 3 and done.err.count("node-a does not answer: refused") == 1
    assert "no host answers" in done.err
