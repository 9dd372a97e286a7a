"""Write records atomically.

The data goes to a hidden temporary file in the same folder, is flushed to disk, and is then renamed
or linked into place. A crash, a full disk or a kill leaves either the old file or the new one. A
kill leaves the temporary file too: its writer holds a lock on it, so ``abandoned`` finds it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from kbtool.store.lock import is_locked

STAGED = ".tmp"
"""How the hidden name of a file or folder ends that is not in its place yet."""

_NAME = re.compile(rf"\..+\.[a-z0-9_]{{8}}{re.escape(STAGED)}")
_IN = ("sessions", "patterns", "symptoms", "kernels", "schemas", "docs", ".kbtool/cache")
"""The folders of a knowledge base that have such files, beside its root."""
_LOCKED_AFTER_S = 2.0
"""A file that is younger may not be locked yet."""

_MODE = 0o666
"""Mode of a new file before the umask; ``mkstemp`` alone would make records private."""
_PRIVATE = 0o600


def write_atomic(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, replacing an existing file.

    Raises:
        OSError: the write failed, for example with ``ENOSPC``; the old file is intact.
    """
    target = path.resolve() if path.is_symlink() else path
    with _staged(target, data) as (_, staged):
        with contextlib.suppress(FileNotFoundError):
            staged.chmod(target.stat().st_mode & 0o7777)
        staged.replace(target)
    sync_folder(target.parent)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner reads, replacing what is there: a link, not its target.

    Raises:
        OSError: the write failed; what was there is intact.
    """
    with _staged(path, data, _PRIVATE) as (_, staged):
        staged.replace(path)


def write_new(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, which must not exist yet.

    Raises:
        FileExistsError: ``path`` exists; it is unchanged.
        OSError: the write failed; ``path`` does not exist.
    """
    with _staged(path, data) as (_, staged):
        _link(staged, path)
    sync_folder(path.parent)


def open_new(path: Path, data: bytes) -> BinaryIO:
    """Create ``path`` with ``data``, and leave it open and locked: nobody sees it without both.

    Raises:
        FileExistsError: ``path`` exists; it is unchanged.
        OSError: the write failed; ``path`` does not exist.
    """
    with _staged(path, data) as (file, staged):
        _link(staged, path)
        return os.fdopen(os.dup(file.fileno()), "ab")  # the lock belongs to both


def new_folder(parent: Path, name: str, files: Callable[[str], Mapping[str, bytes]]) -> Path:
    """Create a folder with its files in one step: it is there with all of them, or not at all.

    It is made under a hidden name and renamed, which only one of two processes can do.

    Args:
        parent: where it goes; made if missing.
        name: its name; ``name-2``, ``name-3`` … if there is one of that name.
        files: file name → content, for the folder's name; ``files/log.md`` is in a folder in it.

    Raises:
        OSError: a write failed; nothing is left behind.
    """
    parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{name[:200]}.", suffix=STAGED, dir=parent))
    held: int | None = None
    try:
        held = _held(staged)
        staged.chmod(0o777 & ~_umask())
        number = 1
        while True:
            folder = parent / (name if number == 1 else f"{name}-{number}")
            number += 1
            if os.path.lexists(folder):
                continue
            for file, data in files(folder.name).items():
                (staged / file).parent.mkdir(exist_ok=True)
                write_atomic(staged / file, data)
            try:
                staged.rename(folder)
            except OSError as error:
                if error.errno not in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
                    raise
            else:
                sync_folder(parent)
                return folder
    finally:
        shutil.rmtree(staged, ignore_errors=True)
        if held is not None:
            os.close(held)


def abandoned(root: Path) -> Iterator[Path]:
    """Temporary files and folders of a knowledge base that no process is about to put in place."""
    # os.walk passes over a folder that is put in place just now; pathlib raises for it.
    inside = (
        Path(folder, name)
        for top in _IN
        for folder, folders, files in os.walk(root / top)
        for name in (*folders, *files)
        if _NAME.fullmatch(name)
    )
    for path in sorted([*root.glob(f".*{STAGED}"), *inside]):
        if not _NAME.fullmatch(path.name) or is_locked(path):
            continue
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.lstat().st_mtime > _LOCKED_AFTER_S:
                yield path


def remove_abandoned(root: Path) -> list[Path]:
    """Remove them, and return their paths."""
    removed = []
    for path in abandoned(root):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        removed.append(path)
    return removed


def _held(folder: Path) -> int | None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        _hold(handle)
        return handle
    return None


def _hold(handle: int) -> None:
    with contextlib.suppress(OSError):  # a file system may have no locks
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sync_folder(folder: Path) -> None:
    """Flush the names in ``folder`` to disk, if the file system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def _staged(path: Path, data: bytes, mode: int = _MODE) -> Iterator[tuple[BinaryIO, Path]]:
    """Write ``data`` to a hidden temporary file beside ``path``; removed unless renamed."""
    stem = path.name.removeprefix(".")[:200]
    handle, name = tempfile.mkstemp(prefix=f".{stem}.", suffix=STAGED, dir=path.parent)
    staged = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            _hold(file.fileno())
            os.fchmod(file.fileno(), mode & ~_umask())
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            yield file, staged
    finally:
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)


def _link(staged: Path, path: Path) -> None:
    """Give a staged file its name. A link fails if the target exists, where a rename would replace
    it silently."""
    try:
        path.hardlink_to(staged)
    except FileExistsError:
        raise
    except OSError:
        _create_exclusive(path, staged)


def _create_exclusive(path: Path, staged: Path) -> None:
    """``write_new`` without hard links: create the file exclusively, then rename over it."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE))
    try:
        staged.replace(path)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _umask() -> int:
    # Reading the umask means setting it, and another thread's new file could get the wrong mode.
    # So read it from /proc where possible.
    try:
        with Path("/proc/self/status").open(encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
