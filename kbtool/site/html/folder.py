"""Make a folder hold exactly these files: write what differs, remove what is stale."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_changed(target: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write those of ``files`` that are missing or different in ``target``; returns their paths."""
    changed = []
    for path, content in files.items():
        file = target / path
        if not file.is_file() or file.read_bytes() != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            changed.append(path)
    return changed


def remove_others(target: Path, wanted: set[Path]) -> list[str]:
    """Remove every file below ``target`` that is not wanted, and every empty folder."""
    removed = []
    # Deepest first, so that a folder is empty when its turn comes.
    for path in sorted(target.rglob("*"), key=lambda p: len(p.parts), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in wanted:
            path.unlink()
            removed.append(path.relative_to(target).as_posix())
    return removed
