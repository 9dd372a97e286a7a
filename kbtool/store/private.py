"""The folder ``.kbtool`` under the root: caches and locks. Not committed; safe to delete."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from kbtool.store.write import write_new

FOLDER = ".kbtool"
BUILD = "build"


def private_folder(root: Path, name: str) -> Path:
    """The folder ``.kbtool/NAME``, created if needed, with a ``.gitignore``."""
    folder = root / FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    ignore = root / FOLDER / ".gitignore"
    if not ignore.exists():
        with suppress(FileExistsError):  # another process was first, or it is a link to nothing
            write_new(ignore, b"*\n")
    return folder


def build_cache(root: Path) -> Path:
    """The path of the build cache. Creates nothing."""
    return root / FOLDER / BUILD
