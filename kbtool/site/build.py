"""From a knowledge base to a folder of HTML: write the tree, then run mkdocs on it."""

from __future__ import annotations

import importlib.util
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from kbtool.model.errors import MachineError, UsageError
from kbtool.site.tree import SOURCE, Written, packaged, source_files, write
from kbtool.store.tree import KnowledgeBase

MARKER = ".kbtool-site"
"""In a folder that a site was built into: mkdocs empties the folder that it builds into."""


class Built(NamedTuple):
    """What a build did."""

    pages: int
    seconds: float
    home: Path
    problems: list[str]
    """Records left out, then mkdocs's warnings; a strict build with any has failed."""


def build(root: Path, out: Path, today: date | None = None) -> Built:
    """Build the site of the knowledge base at ``root`` into ``out``.

    Raises:
        MachineError: mkdocs is not installed, or it could not build.
        UsageError: ``out`` holds something else.
    """
    require_mkdocs()
    _check_out(out)
    start = time.perf_counter()
    written, problems = write_source(root, today)
    problems += run_mkdocs(root, out)
    (out / MARKER).touch()
    return Built(written.pages, time.perf_counter() - start, out / "index.html", problems)


def write_source(root: Path, today: date | None = None) -> tuple[Written, list[str]]:
    """Write the tree that mkdocs builds from; what was written, and the records left out."""
    if (root / SOURCE).is_symlink():
        raise UsageError(f"{root / SOURCE} is a link, and what it leads to would be cleared")
    base = KnowledgeBase(root)
    written = write(root / SOURCE, source_files(base, today))
    return written, [str(finding) for finding in base.findings]


def require_mkdocs() -> None:
    """Refuse, with the command to type, where the site extra is not installed."""
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    for module in ("mkdocs", "material", "markdown_it"):
        if importlib.util.find_spec(module) is None:
            raise MachineError(
                f"{module} is missing; install the site extra: pip install 'kbtool[site]'"
            )


def run_mkdocs(root: Path, out: Path) -> list[str]:
    """Build the written tree; mkdocs's warnings.

    Raises:
        MachineError: mkdocs could not build at all.
    """
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.exceptions import MkDocsException

    with _warnings() as warnings:
        try:
            config = load_config(root, out)
            config.plugins.on_startup(command="build", dirty=False)
            try:
                mkdocs_build(config)
            finally:
                config.plugins.on_shutdown()
        except (MkDocsException, SystemExit) as error:
            said = "; ".join([*warnings, str(error)])
            raise MachineError(f"mkdocs could not build the site: {said}") from None
    return warnings


def load_config(root: Path, out: Path) -> Any:
    """The knowledge base's own mkdocs.yml, or the one that comes with kbtool."""
    from mkdocs.config import load_config as mkdocs_load

    own = root / "mkdocs.yml"
    return mkdocs_load(
        config_file=str(own if own.is_file() else packaged("mkdocs.yml")),
        docs_dir=str(root / SOURCE),
        site_dir=str(out),
        strict=False,
    )


def _check_out(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; name a folder with --out")
    if not out.is_dir() or not any(out.iterdir()) or (out / MARKER).exists():
        return
    if (out / "404.html").exists() and (out / "search").is_dir():
        return  # built by mkdocs itself
    raise UsageError(
        f"{out} holds files that are no site, and a build would delete them; name an empty folder"
        " with --out"
    )


class _Collector(logging.Handler):
    def __init__(self, into: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.into = into

    def emit(self, record: logging.LogRecord) -> None:
        self.into.append(record.getMessage())


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect what mkdocs warns of, instead of having it printed."""
    collected: list[str] = []
    logger = logging.getLogger("mkdocs")
    handler, propagate = _Collector(collected), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield collected
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
