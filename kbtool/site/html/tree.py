"""Write the pages as files: only those that changed, and remove stale ones.

So a server that watches the tree rebuilds only when something has changed.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

import yaml

from kbtool.site import addresses as at
from kbtool.site.feeds import twins, words
from kbtool.site.feeds.answers import answers, scripts
from kbtool.site.feeds.feed import Place, feed
from kbtool.site.feeds.llms import llms, llms_full
from kbtool.site.index import Index
from kbtool.site.pages import compare, decisions, glossary, pages
from kbtool.site.text.quoted import document
from kbtool.store.private import FOLDER
from kbtool.store.prose import documents
from kbtool.store.tree import KnowledgeBase

SOURCE = f"{FOLDER}/site-src"
"""Where the tree is written, in the root of the knowledge base."""

_HERE = Path(__file__).parents[1]

ASSETS = _HERE / "assets"
_STATIC = {".css", ".js", ".svg", ".png", ".txt"}


class Written(NamedTuple):
    """The files that were written and removed, as paths relative to the tree."""

    pages: int
    changed: list[str]
    removed: list[str]


def packaged(name: str) -> Path:
    """A file or folder of kbtool itself: installed with it, or in its checkout."""
    installed = _HERE / "packaged" / name
    return installed if installed.exists() else _HERE.parents[1] / name


def source_files(base: KnowledgeBase, today: date | None = None) -> dict[str, bytes]:
    """Everything that the site is built from: path → content.

    Hand-written pages are kbtool's own guide, then the knowledge base's ``docs/``, which wins if
    paths collide. A generated page wins over a hand-written one, except the index of decisions.
    """
    prose, index = _read(base)
    written = {path: document(index, text, path) for path, text in prose.items()}
    for path in written.keys() & index.became.keys():
        written[path] = decisions.with_patterns(index, path, written[path])
    if index.glossary:
        written[at.GLOSSARY] = glossary.page(index, written[at.GLOSSARY])
    made = pages(index, today, written)
    place = _place(base.root)
    files = {path: text.encode() for path, text in {**written, **made}.items()}
    files[at.ANSWERS] = answers(index)
    files[at.LLMS] = llms(index, place).encode()
    files[at.LLMS_FULL] = llms_full(index, place).encode()
    files[at.FEED] = feed(index, place)
    files.update(twins.files(index))
    files.update(scripts(index))
    files.update(compare.scripts(index))
    files.update(_static(ASSETS, "assets"))
    files[words.PLACE] = words.script(index, files[words.PLACE])
    files.update(_static(base.root / "docs" / "assets", "assets"))
    return files


def record_files(base: KnowledgeBase, records: Container[str]) -> dict[str, bytes]:
    """Only the pages of these sessions, patterns and kernels, with their bugs and runs."""
    _, index = _read(base)
    own = {at.session_page(name) for name in index.sessions if name in records}
    own |= {at.pattern_page(name) for name in index.patterns if name in records}
    kernels = [name for name in index.kernels if name in records]
    own |= {at.kernel_page(name) for name in kernels}
    own |= {at.topic_page(name, topic) for name in kernels for topic in at.TOPICS}
    own |= {case.page for case in index.bugs.values() if case.session.id in records}
    own |= {at.run_page(session, run) for session, run in index.runs if session in records}
    made = pages(index, wanted=own.__contains__)
    return {path: text.encode() for path, text in made.items()}


def _read(base: KnowledgeBase) -> tuple[dict[str, str], Index]:
    """The hand-written pages, and the index of the records."""
    prose = {**_guide(), **documents(base)}
    return prose, Index(base, prose.get(at.GLOSSARY, ""))


def write(target: Path, files: Mapping[str, bytes]) -> Written:
    """Make ``target`` hold exactly ``files``."""
    removed = _remove_stale(target, {target / path for path in files})
    changed = write_changed(target, files)
    return Written(sum(path.endswith(".md") for path in files), changed, removed)


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


def _remove_stale(target: Path, wanted: set[Path]) -> list[str]:
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


def _place(root: Path) -> Place:
    """The site's name and address from its settings.

    They are read as text, because the settings may name Python objects that only mkdocs can load.
    """
    own = root / "mkdocs.yml"
    try:
        node = yaml.compose((own if own.is_file() else packaged("mkdocs.yml")).read_text("utf-8"))
    except yaml.YAMLError:
        node = None  # mkdocs will report what is wrong with them
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    found = {
        key.value: value.value
        for key, value in pairs
        if value.tag == "tag:yaml.org,2002:str" and value.value.strip()
    }
    return Place(found.get("site_name", "kbtool"), found.get("site_url"))


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
