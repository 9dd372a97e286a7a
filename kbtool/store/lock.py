"""A lock between processes that is released even if the process is killed.

The operating system holds it for an open file (``flock``) and releases it when the process ends.
The file stays: if it were removed, two processes could lock two files of the same name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_POLL = 0.05
_LOOK = 0.2
"""Seconds after which a lock is held by more than a look at it."""


class LockTimeoutError(TimeoutError):
    """Another process held the lock for the whole timeout."""


@contextlib.contextmanager
def lock(
    path: Path, on_wait: Callable[[], None] | None = None, timeout: float | None = None
) -> Iterator[None]:
    """Hold the lock on ``path`` while the block runs.

    Args:
        path: the file to lock; created with its folder if it does not exist.
        on_wait: called once if another process holds the lock.
        timeout: seconds to wait; 0 does not wait, ``None`` waits without limit.

        Raises:
            LockTimeoutError: another process still holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Python opens files with O_CLOEXEC, so a child process does not inherit the lock.
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _try(handle):
            if on_wait is not None:
                on_wait()
            _wait(handle, path, timeout)
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on ``path``. Does not create or change the file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for a writer
    except OSError:
        return False
    try:
        return not _try(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def is_abandoned(path: Path) -> bool:
    """Whether ``path`` is there and no process holds the lock on it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    try:
        return _try(handle, fcntl.LOCK_SH) and _is_there(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Hold the lock on an abandoned file while the block runs; false if it is none, or if another
    process was quicker."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        yield not isinstance(error, FileNotFoundError)
        return
    try:
        yield _taken(handle, path) and _is_there(handle)
    finally:
        os.close(handle)


def _taken(handle: int, path: Path) -> bool:
    """Take the lock, unless it is held for longer than ``is_locked`` and ``is_abandoned`` do."""
    if _try(handle):
        return True
    with contextlib.suppress(LockTimeoutError):
        _wait(handle, path, _LOOK)
        return True
    return False


def _is_there(handle: int) -> bool:
    """Whether an open file still has a name."""
    return os.fstat(handle).st_nlink > 0


def _wait(handle: int, path: Path, timeout: float | None) -> None:
    if timeout is None:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return
    end = time.monotonic() + timeout
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise LockTimeoutError(f"another process holds {path}; try again when it has ended")
        time.sleep(min(_POLL, left))
        if _try(handle):
            return


def _try(handle: int, mode: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
