"""Write records atomically.

The data goes to a hidden temporary file in the same folder, is flushed to disk, and is then renamed
or linked into place. A crash, a full disk or a kill leaves either the old file or the new one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MODE = 0o666
"""Mode of a new file before the umask; ``mkstemp`` alone would make records private."""


def write_atomic(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, replacing an existing file.

    Raises:
        OSError: the write failed, for example with ``ENOSPC``; the old file is intact.
    """
    target = path.resolve() if path.is_symlink() else path
    with _staged(target, data) as staged:
        with contextlib.suppress(FileNotFoundError):
            staged.chmod(target.stat().st_mode & 0o7777)
        staged.replace(target)
    sync_folder(target.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, which must not exist yet.

    Raises:
        FileExistsError: ``path`` exists; it is unchanged.
        OSError: the write failed; ``path`` does not exist.
    """
    with _staged(path, data) as staged:
        # A link fails if the target exists, where a rename would replace it silently.
        try:
            path.hardlink_to(staged)
        except FileExistsError:
            raise
        except OSError:
            _create_exclusive(path, staged)
    sync_folder(path.parent)


def new_folder(parent: Path, name: str) -> Path:
    """Create a folder ``name`` in ``parent``, or ``name-2``, ``name-3`` … if it exists.

    ``mkdir`` claims the name atomically, so two processes get different folders.
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
    """Flush the names in ``folder`` to disk, if the file system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def _staged(path: Path, data: bytes) -> Iterator[Path]:
    """Write ``data`` to a hidden temporary file beside ``path``; removed unless renamed."""
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
