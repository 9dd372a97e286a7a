"""A lock between processes that a killed process cannot leave behind.

The kernel holds it for an open file (``flock``) and drops it when the process ends, however it
ends. The file stays: removing it would let two processes lock two files of one name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_POLL = 0.05


class LockTimeoutError(TimeoutError):
    """Another process held the lock for as long as this one would wait."""


@contextlib.contextmanager
def lock(
    path: Path, on_wait: Callable[[], None] | None = None, timeout: float | None = None
) -> Iterator[None]:
    """Hold the lock on ``path`` while the block runs.

    Args:
        path: the file to lock; made, with its folder, where it is not there.
        on_wait: called once, when another process holds the lock.
        timeout: seconds to wait at most; 0 does not wait, ``None`` waits for ever.

    Raises:
        LockTimeoutError: the time is over.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Python opens with O_CLOEXEC, so a compiler started under the lock does not keep it alive.
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
    """Whether a living process holds the lock on ``path``; the file is not made or changed."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _wait(handle: int, path: Path, timeout: float | None) -> None:
    if timeout is None:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return
    end = time.monotonic() + timeout
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise LockTimeoutError(f"{path} is held by another process")
        time.sleep(min(_POLL, left))
        if _try(handle):
            return


def _try(handle: int, mode: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
