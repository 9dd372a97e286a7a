"""The folder ``.kbtool`` under the root: caches and locks, never committed, always expendable."""

from __future__ import annotations

from pathlib import Path

from kbtool.store.write import write_atomic

FOLDER = ".kbtool"
BUILD = "build"


def private_folder(root: Path, name: str) -> Path:
    """The folder ``.kbtool/NAME``, made if need be, kept out of git by a file of its own."""
    folder = root / FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    ignore = root / FOLDER / ".gitignore"
    if not ignore.exists():
        write_atomic(ignore, b"*\n")
    return folder


def build_cache(root: Path) -> Path:
    """Where builds are kept, for a plan, which makes nothing."""
    return root / FOLDER / BUILD
