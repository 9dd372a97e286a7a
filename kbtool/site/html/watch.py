"""The files that a site is made from, watched while it is served.

They are polled: where another machine writes to a shared folder, no system tells of it. It is done
often and while pages are made, so it avoids pathlib, and mkdocs's observer, which takes three times
as long.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kbtool.store.scan import Stamp, stamp_of

POLL_SECONDS = 0.2

WATCHED = ("sessions", "patterns", "symptoms", "kernels", "docs", "mkdocs.yml")


def stamps(root: Path) -> dict[str, Stamp]:
    """Every file of the records, not what is made of them: path in the root → its stamp. Links to
    folders are not followed."""
    return {path: stamp for name in WATCHED for path, stamp in _below(f"{root}/{name}", name)}


def _below(path: str, shown: str) -> Iterator[tuple[str, Stamp]]:
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _below(entry.path, f"{shown}/{entry.name}")
                else:
                    yield from _stamped(entry.path, f"{shown}/{entry.name}")
    except NotADirectoryError:
        yield from _stamped(path, shown)
    except OSError:  # it was taken away
        return


def _stamped(path: str, shown: str) -> Iterator[tuple[str, Stamp]]:
    try:
        yield shown, stamp_of(os.stat(path))  # noqa: PTH116 - pathlib costs as much again
    except OSError:
        return
