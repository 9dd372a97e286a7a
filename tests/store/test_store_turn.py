"""One benchmark at a time on a machine's processor, and on each of its cards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbtool.model.errors import MachineError
from kbtool.store.turn import VARIABLE, BusyError, turn

HOLD = """
import sys, time
from kbtool.store.turn import turn
card, run = sys.argv[1:]
with turn(card or None, run, wait=False, on_wait=print, on_tick=lambda: None):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


@contextmanager
def another(card: str | None, run: str = "theirs") -> Iterator[subprocess.Popen[str]]:
    """A process that has the turn, and is killed in the end."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, card or "", run], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def take(card: str | None, *, run: str = "ours", wait: bool = False) -> None:
    with turn(card, run, wait=wait, on_wait=lambda _: None, on_tick=lambda: None):
        pass


@pytest.mark.parametrize(
    ("theirs", "ours", "busy"),
    [
        (None, None, True),
        ("card-1", None, True),
        (None, "card-1", True),
        ("card-1", "card-1", True),
        ("card-1", "card-2", False),
    ],
)
def test_a_measurement_waits_for_others_on_its_processor_or_card(theirs, ours, busy):
    with another(theirs) as process:
        if not busy:
            take(ours)
            return
        with pytest.raises(BusyError) as error:
            take(ours)
        said = str(error.value)
        assert said.startswith("run theirs of ") and f"(pid {process.pid}, since 20" in said
        assert said.endswith("Z) measures on this machine: nothing was measured, as --no-wait says")
    take(ours)


@pytest.mark.parametrize("card", [None, "card-1"])
def test_the_second_run_waits_and_names_the_first_once(card):
    with another(card) as process:
        told: list[str] = []
        ticks: list[float] = []

        def tick() -> None:
            ticks.append(time.monotonic())
            if len(ticks) == 3:
                process.kill()  # what it leaves behind blocks nobody

        with turn(card, "ours", wait=True, on_wait=told.append, on_tick=tick):
            pass
    assert len(ticks) >= 3 and len(told) == 1
    assert told[0].startswith("run theirs of ") and f"(pid {process.pid}, " in told[0]


def test_a_file_says_who_has_the_turn_and_nothing_afterwards(folder):
    with turn("1-2", "ours", wait=False, on_wait=print, on_tick=lambda: None):
        written = json.loads((folder / "kbtool-GPU-1-2.lock").read_text())
        assert (written["run"], written["pid"]) == ("ours", os.getpid())
    files = {path.name: path for path in folder.iterdir()}
    assert set(files) == {"kbtool-GPU-1-2.lock", "kbtool-benchmark.lock"}
    assert all(path.read_text() == "" and path.stat().st_mode & 0o777 == 0o666
               for path in files.values())  # fmt: skip


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": 1}', '{"run": "\\u001b[2J", "pid": "x"}'])
def test_a_lock_file_with_invalid_content_names_no_run(folder, text):
    with another(None):
        (folder / "kbtool-benchmark.lock").write_text(text)
        with pytest.raises(BusyError, match=r"^another run measures on this machine"):
            take(None)


def test_a_file_that_was_cleaned_away_is_made_again(folder):
    with another(None):
        (folder / "kbtool-benchmark.lock").unlink()
        with turn(None, "ours", wait=False, on_wait=print, on_tick=lambda: None):
            assert "ours" in (folder / "kbtool-benchmark.lock").read_text()


@pytest.mark.parametrize("readable", [True, False])
def test_a_file_of_another_user_is_enough_if_it_can_be_read(folder, monkeypatch, readable):
    (folder / "kbtool-benchmark.lock").touch()
    opened = os.open

    def refused(path: Path, flags: int, *mode: int) -> int:
        if flags & os.O_RDWR or not readable:
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", refused)
    if readable:
        take(None)
        return
    with pytest.raises(MachineError, match=f"belongs to .*: permission denied; .*{VARIABLE}"):
        take(None)


def test_a_link_is_not_followed_and_a_missing_folder_is_named(folder, monkeypatch):
    target = folder / "precious"
    target.write_text("kept")
    (folder / "kbtool-benchmark.lock").symlink_to(target)
    with pytest.raises(MachineError, match=r"take turns by .*benchmark\.lock, which belongs"):
        take(None)
    assert target.read_text() == "kept"
    monkeypatch.setenv(VARIABLE, str(folder / "none"))
    with pytest.raises(MachineError, match=f"none/.*: No such file or directory; .*{VARIABLE}"):
        take(None)


def test_a_pipe_in_the_place_of_a_lock_file_is_refused_and_not_waited_for(folder):
    os.mkfifo(folder / "kbtool-benchmark.lock")
    with pytest.raises(MachineError, match="no plain file; remove it"):
        take(None)


def test_a_folder_that_depends_on_the_current_one_is_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, "locks")
    with pytest.raises(MachineError, match="KBTOOL_LOCKS=locks: write the whole path"):
        take(None)
