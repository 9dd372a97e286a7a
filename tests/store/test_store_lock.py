"""The lock between processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from kbtool.store.lock import LockTimeoutError, claimed, is_abandoned, is_locked, lock

HOLD = """
import sys, time
from pathlib import Path
from kbtool.store.lock import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

COUNT = """
import sys
from pathlib import Path
from kbtool.store.lock import lock
folder = Path(sys.argv[1])
for _ in range(100):
    with lock(folder / "lock"):
        number = int((folder / "n").read_text())
        (folder / "n").write_text(str(number + 1))
"""


def test_a_held_lock_reports_the_wait_and_times_out(tmp_path):
    path = tmp_path / "sub" / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert is_locked(path)
        waits = []
        begun = time.monotonic()
        with pytest.raises(LockTimeoutError), lock(path, lambda: waits.append(1), timeout=0.2):
            pass
        assert time.monotonic() - begun >= 0.2
        with pytest.raises(LockTimeoutError), lock(path, timeout=0):
            pass
        assert waits == [1]
        holder.kill()
        holder.wait()
        # The kernel lets go of it, however its holder ended.
        with lock(path, lambda: waits.append(2), timeout=5):
            assert is_locked(path)
    assert not is_locked(path)
    assert waits in ([1], [1, 2])


def test_the_lock_is_released_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), lock(tmp_path / "lock"):
        _ = 1 / 0
    with lock(tmp_path / "lock", timeout=0):
        pass


def test_nothing_gets_lost_between_processes(tmp_path):
    (tmp_path / "n").write_text("0")
    counting = [subprocess.Popen([sys.executable, "-c", COUNT, str(tmp_path)]) for _ in range(3)]
    assert [process.wait() for process in counting] == [0, 0, 0]
    assert (tmp_path / "n").read_text() == "300"


def test_a_file_that_is_not_there_is_not_locked_and_not_made(tmp_path):
    assert not is_locked(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_abandoned_if_it_is_there_and_nobody_holds_it(tmp_path):
    path = tmp_path / "file"
    assert not is_abandoned(path)
    with lock(path):
        assert not is_abandoned(path)
    assert is_abandoned(path)


def test_an_abandoned_file_is_claimed_by_one_process_only(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with claimed(path) as first:
        assert first
        with claimed(path) as second:
            assert not second
        path.unlink()
    with claimed(path) as gone:
        assert not gone


def test_a_file_that_is_removed_before_its_lock_is_free_is_not_claimed(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.touch()
    opened = os.open

    def removed_meanwhile(*args):
        handle = opened(*args)
        path.unlink()
        return handle

    monkeypatch.setattr(os, "open", removed_meanwhile)
    assert not is_abandoned(path)
    monkeypatch.undo()
    path.touch()
    monkeypatch.setattr(os, "open", removed_meanwhile)
    with claimed(path) as is_there:
        assert not is_there
