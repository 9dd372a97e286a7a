"""Writing a record so that nobody ever reads half of one.

A file is written beside its place under a hidden name, flushed to the disk and then renamed (or
linked) into place, so that a crash, a full disk or a kill leaves the old file or the new one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MODE = 0o666
"""Of a new file, before the umask; ``mkstemp`` alone would make records private."""


def write_atomic(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path``, replacing what is there.

    Raises:
        OSError: it cannot be written (``ENOSPC`` and the like); what was at ``path`` is intact.
    """
    target = path.resolve() if path.is_symlink() else path
    with _staged(target, data) as staged:
        with contextlib.suppress(FileNotFoundError):
            staged.chmod(target.stat().st_mode & 0o7777)
        staged.replace(target)
    sync_folder(target.parent)


def write_new(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path``, where nothing may be yet.

    Raises:
        FileExistsError: something is there already; it is left as it is.
        OSError: it cannot be written; nothing is at ``path``.
    """
    with _staged(path, data) as staged:
        # A link fails where a rename would silently replace; the staged name is removed after.
        try:
            path.hardlink_to(staged)
        except FileExistsError:
            raise
        except OSError:
            _create_exclusive(path, staged)
    sync_folder(path.parent)


def new_folder(parent: Path, name: str) -> Path:
    """A new folder ``name`` in ``parent``; ``name-2``, ``name-3`` … where that one is taken.

    Making the folder is what claims the name: of two processes, each gets its own.
    """
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            sync_folder(parent)
            return folder


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a power cut, where the file system allows it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def _staged(path: Path, data: bytes) -> Iterator[Path]:
    """``data`` in a hidden file beside ``path``, on the disk; gone afterwards unless renamed."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:200]}.", suffix=".tmp", dir=path.parent)
    staged = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), _MODE & ~_umask())
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield staged
    finally:
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)


def _create_exclusive(path: Path, staged: Path) -> None:
    """``write_new`` on a file system without hard links: claim the name, then rename over it."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE))
    try:
        staged.replace(path)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _umask() -> int:
    # The umask can only be read by setting it; another thread's file could get the wrong mode
    # in between, so the kernel's own account is preferred.
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
