"""The files of a kernel, as text."""

from __future__ import annotations

import hashlib
import posixpath
from pathlib import Path

from kbtool.model.kernel import Kernel
from kbtool.model.pattern import Pattern, Place
from kbtool.store.history import file_at
from kbtool.store.tree import KnowledgeBase

MAX_BYTES = 1 << 20
"""A longer file is not a source and is not read."""


def kernel_file(base: KnowledgeBase, kernel: str, path: str) -> str | None:
    """The text of ``path`` in a kernel's folder; ``None`` if it does not exist or is not text.

    A path or link that leads out of the folder also gives ``None``.
    """
    entry = base.kernels.get(kernel)
    if entry is None or "\0" in path:
        return None
    return _inside((base.root / entry.path).parent, path)


def place_file(base: KnowledgeBase, place: Place) -> tuple[str, str | None]:
    """The file where a pattern stands: its path from the root, and its text if it is there."""
    path = place.file
    if "\0" in path:
        return path, None
    if place.kernel is not None:
        entry = base.kernels.get(place.kernel)
        if entry is None:
            return path, None
        path = posixpath.join(posixpath.dirname(entry.path), path)
    if place.commit is not None:
        return path, file_at(str(base.root), place.commit, path)
    if place.kernel is not None:
        return path, kernel_file(base, place.kernel, place.file)
    return path, _inside(base.root, path)


def places_of(base: KnowledgeBase, pattern: Pattern) -> list[dict[str, str | int | None]]:
    """Where a pattern stands: path from the root, commit if not today's, line, and the text there.
    The line is ``None`` where the text is not found."""
    found: list[dict[str, str | int | None]] = []
    for place in pattern.places:
        path, text = place_file(base, place)
        line = line_of(place.text, text)
        found.append({"path": path, "commit": place.commit, "line": line, "text": place.text})
    return found


def line_of(find: str, text: str | None) -> int | None:
    """The line of a text where what is to be found begins; ``None`` if it is not in it."""
    place = text.find(find) if text is not None else -1
    return text.count("\n", 0, place) + 1 if text is not None and place >= 0 else None


def _inside(folder: Path, path: str) -> str | None:
    folder = folder.resolve()
    try:
        file = (folder / path).resolve()
        if not file.is_relative_to(folder) or not file.is_file():
            return None
        if file.stat().st_size > MAX_BYTES:
            return None
        return file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def kernel_paths(kernel: Kernel) -> dict[str, list[str]]:
    """A manifest and the files it names, each once: purpose → paths, in manifest order."""
    face = [kernel.harness, *([kernel.interface] if kernel.interface else [])]
    groups = {"the manifest": ["kernel.yaml"], "the problem and the Python face": face}
    for name, target in kernel.targets.items():
        groups[f"sources of {name}"] = target.sources
        for architecture, sources in target.architecture_sources.items():
            groups[f"sources of {name} for {architecture}"] = sources
        groups[f"headers of {name}"] = target.headers
    seen: set[str] = set()
    found: dict[str, list[str]] = {}
    for group, paths in groups.items():
        new = [path for path in dict.fromkeys(paths) if path not in seen]
        seen.update(new)
        if new:
            found[group] = new
    return found


def kernel_hashes(base: KnowledgeBase, kernel: Kernel) -> dict[str, str]:
    """The existing files of a kernel → SHA-256, as a build records them."""
    return {
        posixpath.normpath(path): hashlib.sha256(text.encode()).hexdigest()
        for paths in kernel_paths(kernel).values()
        for path in paths
        if (text := kernel_file(base, kernel.id, path)) is not None
    }
