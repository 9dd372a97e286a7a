"""Files are written completely or not at all, also when writing is interrupted."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbtool.runner.journal import recover
from kbtool.store import write
from kbtool.store.lock import is_locked
from kbtool.store.tree import KnowledgeBase
from kbtool.store.write import abandoned, new_folder, write_atomic, write_new


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_write_atomic_replaces_and_keeps_the_mode(tmp_path):
    path = tmp_path / "a"
    write_atomic(path, b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()
    path.chmod(0o640)
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert leftovers(tmp_path) == []


def test_write_atomic_writes_through_a_symlink(tmp_path):
    (tmp_path / "target").write_bytes(b"one")
    (tmp_path / "link").symlink_to("target")
    write_atomic(tmp_path / "link", b"two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"two"


def test_a_new_file_replaces_nothing(tmp_path):
    path = tmp_path / "a"
    write_new(path, b"one")
    with pytest.raises(FileExistsError):
        write_new(path, b"two")
    assert path.read_bytes() == b"one"
    assert leftovers(tmp_path) == []


def test_a_new_file_on_a_file_system_without_links(tmp_path, monkeypatch):
    def refuse(self, target):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    write_new(tmp_path / "a", b"one")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
@pytest.mark.parametrize("writer", [write_atomic, write_new])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call, writer):
    path = tmp_path / "a"
    if writer is write_atomic:
        path.write_bytes(b"old")
    if call == "replace" and writer is write_new:
        call = "link"

    def fail(*args, **keys):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "write":
        real = os.fdopen

        def fdopen(handle, *args, **keys):
            file = real(handle, *args, **keys)
            return _Full(file)

        monkeypatch.setattr(os, "fdopen", fdopen)
    elif call == "link":
        monkeypatch.setattr(Path, "hardlink_to", fail)
        monkeypatch.setattr(Path, "replace", fail)
    else:
        monkeypatch.setattr(*((os, "fsync") if call == "fsync" else (Path, "replace")), fail)
    with pytest.raises(OSError, match="No space left") as told:
        writer(path, b"new" * 1000)
    assert told.value.errno == errno.ENOSPC
    assert (path.read_bytes() if path.exists() else None) == (
        b"old" if writer is write_atomic else None
    )
    assert leftovers(tmp_path) == []


class _Full:
    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def fileno(self):
        return self.file.fileno()

    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


LIMITED = """
import resource, sys
from pathlib import Path
from kbtool.store.write import write_atomic
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_atomic(Path(sys.argv[1]), b"x" * 100_000)
except OSError as error:
    print("OSError", error.errno)
"""


def test_a_real_limit_on_the_size_of_files(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"OSError {errno.EFBIG}\n"
    assert path.read_bytes() == b"old"
    assert leftovers(tmp_path) == []


@pytest.fixture
def tiny_disk(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], capture_output=True
    )
    if not mounted or mounted.returncode != 0:
        pytest.skip("no right to mount a small file system here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_a_disk_that_is_really_full(tiny_disk, kbtool):
    for name in ("sessions", "patterns"):
        (tiny_disk / name).mkdir()
    assert kbtool("session", "new", "A", root=tiny_disk).code == 0
    record = next(tiny_disk.glob("sessions/*/session.yaml"))
    before = record.read_bytes()
    with (tiny_disk / "ballast").open("wb") as file, contextlib.suppress(OSError):
        file.write(b"x" * 100_000)
    for command in (
        ["session", "note", "x" * 8000],
        ["session", "cost", "gpu", "1", "--basis", "billed", "--note", "x" * 8000],
        ["session", "new", "B"],
    ):
        done = kbtool(*command, root=tiny_disk)
        assert done.code == 3, done
        assert "disk is full" in done.err
        assert record.read_bytes() == before
        assert [path.name for path in (tiny_disk / "sessions").iterdir()] == [record.parent.name]
    (tiny_disk / "ballast").unlink()
    assert kbtool("check", root=tiny_disk).code == 0


LOOP = """
import sys
from pathlib import Path
from kbtool.store.write import write_atomic
print("go", flush=True)
while True:
    for letter in (b"a", b"b"):
        write_atomic(Path(sys.argv[1]), letter * 50_000)
"""


@pytest.mark.slow
def test_a_kill_leaves_one_whole_file(tmp_path):
    path = tmp_path / "record"
    for number in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", LOOP, str(path)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.01 + 0.013 * number)
            writer.send_signal(signal.SIGKILL)
        if path.exists():
            assert path.read_bytes() in (b"a" * 50_000, b"b" * 50_000)


def test_two_writers_at_once_leave_the_file_of_one(tmp_path):
    path = tmp_path / "record"

    def write(letter: bytes) -> None:
        for _ in range(50):
            write_atomic(path, letter * 20_000)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b")]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            assert len(set(path.read_bytes())) == 1
    for thread in threads:
        thread.join()
    assert leftovers(tmp_path) == []


CLAIM = """
import sys
from pathlib import Path
from kbtool.store.write import new_folder
for _ in range(20):
    folder = new_folder(Path(sys.argv[1]), "day-name", lambda name: {"a": name.encode()})
    print(folder.name, (folder / "a").read_text())
"""


def test_a_folder_goes_to_one_process_only(tmp_path):
    parent = tmp_path / "sessions"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM, str(parent)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    printed = [name for process in running for name in process.communicate()[0].split()]
    names = printed[::2]
    assert printed[1::2] == names
    assert len(names) == len(set(names)) == 60
    assert {"day-name", "day-name-2", "day-name-60"} <= set(names)


def test_a_folder_cannot_be_made_where_a_file_stands(tmp_path):
    (tmp_path / "sessions").write_text("")
    with pytest.raises(OSError):
        new_folder(tmp_path / "sessions", "a", lambda name: {})


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


KILLED = """
import os, sys
from pathlib import Path
from kbtool.store import private, write
from kbtool.store.cache import Cache
root = Path(sys.argv[1])
def stop(*_):
    print("there", flush=True)
    sys.stdin.read()
if sys.argv[2] == "file":
    Path.replace = stop
    write.write_atomic(root / "sessions" / "a" / "session.yaml", b"x")
elif sys.argv[2] == "cache":
    private.private_folder(root, "cache")
    Path.replace = stop
    cache = Cache(str(root), "words", "digest")
    cache.put("a", (0, 0, 0, 0), "x", 10**18)
    cache.save(["a"])
else:
    Path.rename = stop
    write.new_folder(root / "sessions", "2025-01-01-a", lambda name: {"session.yaml": b"x"})
"""


@pytest.mark.parametrize("search", [abandoned, lambda root: recover(KnowledgeBase(root))])
def test_a_folder_that_is_put_in_place_meanwhile_ends_no_search(tmp_path, monkeypatch, search):
    staged = tmp_path / "sessions" / ".2025-01-01-a.abcd1234.tmp"
    (staged / "runs").mkdir(parents=True)
    real = os.scandir

    def scandir(path: str | Path) -> Iterator[os.DirEntry[str]]:
        if staged.name in str(path) and staged.exists():
            staged.rename(tmp_path / "sessions" / "2025-01-01-a")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert list(search(tmp_path)) == []


@pytest.mark.parametrize("what", ["file", "folder", "cache"])
def test_what_a_killed_writer_leaves_is_found_once_it_is_dead(tmp_path, what):
    (tmp_path / "sessions" / "a").mkdir(parents=True)
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), what],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert writer.stdout is not None and writer.stdout.readline() == b"there\n"
    places = {"a", "sessions", "cache"}
    (left,) = [path for path in tmp_path.rglob(".*.tmp") if path.parent.name in places]
    aged(left)
    assert list(abandoned(tmp_path)) == []
    writer.kill()
    writer.wait()
    assert list(abandoned(tmp_path)) == [left]
    os.utime(left)  # another may be about to lock it
    assert list(abandoned(tmp_path)) == []


def aged(path: Path) -> None:
    os.utime(path, (time.time() - 60, time.time() - 60))


def test_only_names_that_a_writer_gives_are_found(tmp_path):
    for name in ("sessions/.a.yaml.abcdefgh.tmp", "sessions/x.tmp", "sessions/.mine.tmp",
                 "notes/.a.yaml.abcdefgh.tmp", ".README.md.abcd_f12.tmp"):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        aged(tmp_path / name)
    found = [str(path.relative_to(tmp_path)) for path in abandoned(tmp_path)]
    assert found == [".README.md.abcd_f12.tmp", "sessions/.a.yaml.abcdefgh.tmp"]


def test_a_new_open_file_is_locked_and_full_before_it_has_its_name(tmp_path, monkeypatch):
    path = tmp_path / ".journal"
    seen = []

    def link(staged, target):
        seen.append((is_locked(staged), staged.read_bytes(), target.exists()))
        target.hardlink_to(staged)

    monkeypatch.setattr(write, "_link", link)
    with write.open_new(path, b"first\n") as file:
        assert seen == [(True, b"first\n", False)]
        assert is_locked(path)
        file.write(b"second\n")
        file.flush()
        assert [each.name for each in tmp_path.iterdir()] == [".journal"]
        with pytest.raises(FileExistsError):
            write.open_new(path, b"other")
    assert path.read_bytes() == b"first\nsecond\n"
    assert not is_locked(path)
