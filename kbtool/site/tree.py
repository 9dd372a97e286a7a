"""The pages as files: written where they changed, removed where they are stale.

What changed is what is written, so that a server watching the tree rebuilds when there is
something new and at no other time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import pages
from kbtool.site.quoted import document
from kbtool.store.prose import documents
from kbtool.store.tree import KnowledgeBase

SOURCE = ".kbtool/site-src"
"""Where the tree is written, in the root of the knowledge base."""

ASSETS = Path(__file__).parent / "assets"
_STATIC = {".css", ".js", ".svg", ".png", ".txt"}


class Written(NamedTuple):
    """What writing a tree did, as paths relative to it."""

    pages: int
    changed: list[str]
    removed: list[str]


def packaged(name: str) -> Path:
    """A file or folder that comes with kbtool: installed with it, or in its checkout."""
    here = Path(__file__).parent
    installed = here / "packaged" / name
    return installed if installed.exists() else here.parent.parent / name


def source_files(base: KnowledgeBase, today: date | None = None) -> dict[str, bytes]:
    """Everything that the site is built from: path → content.

    Hand-written pages are kbtool's own guide, then the knowledge base's ``docs/``; where paths
    collide the later one stands, and a page written by hand stands before a generated one only
    where it is the index of decisions.
    """
    index = Index(base)
    prose = {**_guide(), **documents(base)}
    written = {path: document(index, text, path) for path, text in prose.items()}
    made = pages(index, today, written)
    if at.DECISIONS in written:
        made.pop(at.DECISIONS)
    files = {path: text.encode() for path, text in {**written, **made}.items()}
    files.update(_static(ASSETS, "assets"))
    files.update(_static(base.root / "docs" / "assets", "assets"))
    return files


def write(target: Path, files: Mapping[str, bytes]) -> Written:
    """Make ``target`` hold exactly ``files``."""
    wanted = {target / path for path in files}
    removed = _remove_stale(target, wanted)
    changed = []
    for path, content in files.items():
        file = target / path
        if not file.is_file() or file.read_bytes() != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            changed.append(path)
    count = sum(path.endswith(".md") for path in files)
    return Written(count, changed, removed)


def _remove_stale(target: Path, wanted: set[Path]) -> list[str]:
    removed = []
    # Deepest first: a folder is empty, and can go, once what was in it has gone.
    for path in sorted(target.rglob("*"), key=lambda p: len(p.parts), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in wanted:
            path.unlink()
            removed.append(path.relative_to(target).as_posix())
    return removed


def _guide() -> dict[str, str]:
    folder = packaged("docs/guide")
    return {
        f"guide/{path.name}": path.read_text(encoding="utf-8")
        for path in sorted(folder.glob("*.md"))
    }


def _static(folder: Path, prefix: str) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    return {
        f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in _STATIC
    }
