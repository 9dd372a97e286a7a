"""Build a knowledge base into a folder of HTML: write the tree, then lay it out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from kbtool import __version__
from kbtool.model.errors import MachineError, UsageError
from kbtool.site.html import zensical
from kbtool.site.html.engine import OVERRIDES, Engine, LogCapture, warnings
from kbtool.site.html.navigation import missing_pages
from kbtool.site.html.reuse import Store
from kbtool.site.html.tree import SOURCE, Written, packaged, source_files, write
from kbtool.site.needs import INSTALL, ZENSICAL, generator_of, missing_package
from kbtool.store.format import FILE
from kbtool.store.private import private_folder
from kbtool.store.tree import KnowledgeBase

_ASIDE = ["/tags/", "/symptoms/*/", "/sweeps/"]
"""Pages that are never in the navigation: those of a tag, a tool, a sweep."""

MARKER = ".kbtool-site"
"""The file that marks a built site. A build empties its output folder, so only such a folder or an
empty one is accepted."""


class Built(NamedTuple):
    """The outcome of a build."""

    pages: int
    seconds: float
    home: Path
    problems: list[str]
    """Records left out, then the generator's warnings; a strict build fails if there are any."""


def build(root: Path, out: Path, today: date | None = None) -> Built:
    """Build the site of the knowledge base at ``root`` into ``out``.

    Raises:
        MachineError: the generator is not installed, or it could not build.
        UsageError: ``out`` holds something else, or ``kbtool.yaml`` names an unknown generator.
    """
    generator = required_generator(root)
    _check_out(out)
    start = time.perf_counter()
    written, problems = write_source(root, today)
    problems += zensical.build(root, out) if generator == ZENSICAL else run_mkdocs(root, out)
    (out / MARKER).touch()
    return Built(written.pages, time.perf_counter() - start, out / "index.html", problems)


def write_source(root: Path, today: date | None = None) -> tuple[Written, list[str]]:
    """Write the tree of Markdown; returns what was written and what was left out."""
    if (root / SOURCE).is_symlink():
        raise UsageError(f"{root / SOURCE} is a link, and its target would be cleared; remove it")
    base = KnowledgeBase(root)
    written = write(private_folder(root, Path(SOURCE).name), source_files(base, today))
    return written, [str(finding) for finding in base.findings]


def required_generator(root: Path) -> str:
    """The generator of the site.

    Raises:
        UsageError: ``kbtool.yaml`` names another than those that kbtool knows.
        MachineError: it is not installed; with the command that installs it.
    """
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    generator = generator_of(root)
    if generator not in INSTALL:
        known = " or ".join(INSTALL)
        raise UsageError(f"{FILE} names the generator {generator!r}; kbtool knows {known}")
    missing = missing_package(generator)
    if missing is not None:
        raise MachineError(f"{missing} is missing; install it: {INSTALL[generator]}")
    return generator


def run_mkdocs(root: Path, out: Path, source: Path | None = None) -> list[str]:
    """Build the written tree; pages that would be the same as before are reused.

    Args:
        root: the knowledge base.
        out: the folder to build into.
        source: the tree. Default: where ``write_source`` wrote it.

    Returns:
        mkdocs's warnings.

    Raises:
        MachineError: mkdocs could not build at all.
    """
    store = Store(root)
    with LogCapture() as logged, refusals(logged):
        config = load_config(root, out, source)
        config.plugins.on_startup(command="build", dirty=False)
        try:
            Engine(config, store).build()
        finally:
            config.plugins.on_shutdown()
            store.close()
    return warnings(logged)


@contextmanager
def refusals(logged: Sequence[tuple[int, str]]) -> Iterator[None]:
    """Turn what mkdocs raises into a ``MachineError`` that says what it logged before."""
    from mkdocs.exceptions import MkDocsException

    try:
        yield
    except (MkDocsException, SystemExit) as error:
        reasons = "; ".join([*warnings(logged), str(error)])
        raise MachineError(f"mkdocs could not build the site: {reasons}") from None


def load_config(root: Path, out: Path, source: Path | None = None) -> Any:
    """The knowledge base's own mkdocs.yml, or the one that comes with kbtool."""
    from mkdocs.config import load_config as mkdocs_load
    from pathspec import GitIgnoreSpec

    own = root / "mkdocs.yml"
    config = mkdocs_load(
        config_file=str(own if own.is_file() else packaged("mkdocs.yml")),
        docs_dir=str(source or root / SOURCE),
        site_dir=str(out),
        strict=False,
    )
    if config.theme.name == "material":
        # After the knowledge base's own templates, if it has any.
        config.theme.dirs.insert(1 if config.theme.custom_dir else 0, str(OVERRIDES))
    config.extra["kbtool_version"] = __version__
    aside = [*_ASIDE, *_guide_aside(own)]
    config.not_in_nav = (config.not_in_nav or GitIgnoreSpec([])) + GitIgnoreSpec.from_lines(aside)
    if config.nav is not None:  # else mkdocs lists every page
        config.nav += missing_pages(config.nav, config.not_in_nav)
    return config


def _guide_aside(own: Path) -> Iterator[str]:
    """The pages of kbtool's guide, for a mkdocs.yml of an older kbtool, which may not name them
    all. The guide's first page leads to each."""
    if own.is_file() and not own.samefile(packaged("mkdocs.yml")):
        yield from (f"/guide/{path.name}" for path in packaged("docs/guide").glob("*.md"))
        yield "/guide/schema/*"


def _check_out(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; name a folder with --out")
    if not out.is_dir() or not any(out.iterdir()) or (out / MARKER).exists():
        return
    if (out / "404.html").exists() and (out / "search").is_dir():
        return  # built by mkdocs itself
    raise UsageError(
        f"{out} holds files other than a site, and a build would delete them; name an empty folder"
        " with --out"
    )
