"""Read prose: a session's notes, a kernel's README and DESIGN, the pages of docs/."""

from __future__ import annotations

from pathlib import Path

from kbtool.store.tree import KnowledgeBase

MAX_BYTES = 2 << 20
"""Longer prose is cut on the site."""


def notes(base: KnowledgeBase, session: str) -> str | None:
    """The text of a session's ``notes.md``, or ``None``."""
    entry = base.sessions.get(session)
    return _text((base.root / entry.path).parent / "notes.md") if entry else None


def readme(base: KnowledgeBase, kernel: str) -> str | None:
    """The text of a kernel's ``README.md``, or ``None``."""
    entry = base.kernels.get(kernel)
    return _text((base.root / entry.path).parent / "README.md") if entry else None


def design(base: KnowledgeBase, kernel: str) -> str | None:
    """The text of a kernel's ``DESIGN.md``, or ``None``."""
    entry = base.kernels.get(kernel)
    return _text((base.root / entry.path).parent / "DESIGN.md") if entry else None


def documents(base: KnowledgeBase) -> dict[str, str]:
    """The hand-written pages under ``docs/``: path relative to ``docs/`` → Markdown."""
    folder = base.root / "docs"
    found: dict[str, str] = {}
    if folder.is_dir():
        for path in sorted(folder.rglob("*.md")):
            shown = path.relative_to(folder)
            text = None if any(part[0] in "._" for part in shown.parts) else _text(path)
            if text is not None:
                found[shown.as_posix()] = text
    return found


def _text(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    text = raw[:MAX_BYTES].decode("utf-8", errors="replace")
    if len(raw) > MAX_BYTES:
        text += (
            f"\n\n*The rest of {path.name} is not shown: it is longer than {MAX_BYTES:,} bytes.*"
        )
    return text
