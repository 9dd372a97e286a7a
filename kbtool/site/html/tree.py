"""Write the pages as files: only those that changed, and remove stale ones.

So a server that watches the tree rebuilds only when something has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kbtool.site import addresses as at
from kbtool.site.feeds import twins, words
from kbtool.site.feeds.answers import answers, scripts
from kbtool.site.feeds.feed import Place, feed
from kbtool.site.feeds.llms import llms, llms_full
from kbtool.site.html.folder import remove_others, write_changed
from kbtool.site.index import Index
from kbtool.site.pages import compare, courses, decisions, glossary, makers, pages
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
    index, written = indexed(base)
    made = pages(index, today, written)
    files = {path: text.encode() for path, text in {**written, **made}.items()}
    return files | {path: make() for path, make in _beside(index).items()}


def making_files(
    index: Index, written: Mapping[str, str], today: date | None = None
) -> dict[str, Callable[[], bytes]]:
    """The same, each file made when its function is called: path → function.

    Args:
        index: the records.
        written: the hand-written pages, as ``indexed`` returns them.
        today: the day that "this month" refers to.
    """
    made = makers(index, today, written)
    texts = {path: partial(str, text) for path, text in written.items()} | made
    return {path: partial(_encoded, text) for path, text in texts.items()} | _beside(index)


def _encoded(text: Callable[[], str]) -> bytes:
    return text().encode()


def indexed(base: KnowledgeBase, before: Index | None = None) -> tuple[Index, dict[str, str]]:
    """The index of the records, from an earlier one if there is one, and the hand-written pages."""
    prose = {**_guide(), **documents(base)}
    index = Index(base, prose.get(at.GLOSSARY, ""), before)
    written = {path: document(index, text, path) for path, text in prose.items()}
    for path in written.keys() & index.became.keys():
        written[path] = decisions.with_patterns(index, path, written[path])
    if index.glossary:
        written[at.GLOSSARY] = glossary.page(index, written[at.GLOSSARY])
    return index, written


def _beside(index: Index) -> dict[str, Callable[[], bytes]]:
    """What there is beside the pages: feeds, the twins of records, scripts, styles."""
    root = index.base.root
    place = _place(root)
    static = _static(ASSETS, "assets")
    measured = [at.measured_script(kernel) for kernel in index.kernels]
    histories = [at.history_script(kernel) for kernel in index.kernels]
    return {
        at.ANSWERS: lambda: answers(index),
        at.LLMS: lambda: llms(index, place).encode(),
        at.LLMS_FULL: lambda: llms_full(index, place).encode(),
        at.FEED: lambda: feed(index, place),
        **_together(twins.paths(index), lambda: twins.files(index)),
        **_together(measured, lambda: scripts(index)),
        **_together(histories, lambda: courses.scripts(index)),
        **_together(compare.script_paths(index), lambda: compare.scripts(index)),
        **static,
        words.PLACE: lambda: words.script(index, static[words.PLACE]()),
        **_static(root / "docs" / "assets", "assets"),
    }


def _together(
    paths: Iterable[str], make: Callable[[], Mapping[str, bytes]]
) -> dict[str, Callable[[], bytes]]:
    """Files that are made together, when the first is asked for."""
    made = cache(make)
    return {path: partial(lambda path: made()[path], path) for path in paths}


def write(target: Path, files: Mapping[str, bytes]) -> Written:
    """Make ``target`` hold exactly ``files``."""
    removed = remove_others(target, {target / path for path in files})
    changed = write_changed(target, files)
    return Written(sum(path.endswith(".md") for path in files), changed, removed)


def settings_of(root: Path) -> dict[str, Any]:
    """The knowledge base's own mkdocs.yml, or the one that comes with kbtool; nothing if it is not
    YAML, which the generator will report. It may name Python objects: they are None here."""
    own = root / "mkdocs.yml"
    text = (own if own.is_file() else packaged("mkdocs.yml")).read_text("utf-8")
    try:
        found = yaml.load(text, Loader=_Plain)
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}


class _Plain(yaml.SafeLoader):
    """YAML without what its tags stand for."""


_Plain.add_multi_constructor("!", lambda loader, tag, node: None)
_Plain.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, tag, node: None)


def _place(root: Path) -> Place:
    """The site's name and address from its settings."""
    settings = settings_of(root)
    name, url = (
        value if isinstance(value := settings.get(key), str) and value.strip() else None
        for key in ("site_name", "site_url")
    )
    return Place(name or "kbtool", url)


def _guide() -> dict[str, str]:
    folder = packaged("docs/guide")
    return {
        f"guide/{path.name}": path.read_text(encoding="utf-8")
        for path in sorted(folder.glob("*.md"))
    }


def _static(folder: Path, prefix: str) -> dict[str, Callable[[], bytes]]:
    if not folder.is_dir():
        return {}
    return {
        f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in _STATIC
    }
