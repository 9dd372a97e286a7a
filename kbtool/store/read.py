"""Read a file together with its stamp."""

from __future__ import annotations

import os
import stat

from kbtool.model.finding import Finding
from kbtool.store.scan import Stamp, stamp_of

MAX_BYTES = 4 << 20
"""Size limit of a record: measurements belong in run files, prose in notes."""
MAX_RUN_BYTES = 64 << 20
"""Size limit of a run record."""


def read_stamped(root: str, path: str, limit: int) -> tuple[bytes, Stamp] | Finding:
    """The bytes at ``path`` under ``root`` and their stamp, or a finding.

    The stamp is taken first: if the file then changes, the stamp no longer matches the file.
    """
    try:
        # Opening a named pipe would block until there is a writer.
        handle = os.open(f"{root}/{path}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                return _unreadable(path, "is no regular file; put one there or name another")
            if status.st_size > limit:
                return _unreadable(path, too_large(status.st_size, limit))
            raw = os.read(handle, status.st_size + 1)
            while len(raw) < status.st_size:
                more = os.read(handle, status.st_size + 1 - len(raw))
                if not more:
                    break
                raw += more
            return raw, stamp_of(status)
        finally:
            os.close(handle)
    except OSError as error:
        return _unreadable(path, f"cannot be read: {error.strerror}")


def too_large(size: int, limit: int) -> str:
    """The message for a file that is too large."""
    return (
        f"has {size:,} bytes; a record has at most {limit:,}: move figures to runs/,"
        " prose to notes.md"
    )


def _unreadable(path: str, message: str) -> Finding:
    return Finding(path, 1, "file", message)
