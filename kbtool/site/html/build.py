"""Build a knowledge base into a folder of HTML: write the tree, then run mkdocs on it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from kbtool import __version__
from kbtool.model.errors import MachineError, UsageError
from kbtool.site.html.engine import OVERRIDES, Engine, LogCapture, warnings
from kbtool.site.html.tree import SOURCE, Written, packaged, source_files, write
from kbtool.site.needs import INSTALL, missing_package
from kbtool.site.pages import PAGES
from kbtool.store.private import private_folder
from kbtool.store.tree import KnowledgeBase

_ASIDE = ["/tags/", "/symptoms/*/", "/sweeps/"]
"""Pages that are never in the navigation: those of a tag, a tool, a sweep."""

MARKER = ".kbtool-site"
"""The file that marks a built site. mkdocs empties its output folder, so only such a folder or an
empty one is accepted."""


class Built(NamedTuple):
    """The outcome of a build."""

    pages: int
    seconds: float
    home: Path
    problems: list[str]
    """Records left out, then mkdocs's warnings; a strict build fails if there are any."""


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
    problems += run_mkdocs(root, out)[1]
    (out / MARKER).touch()
    return Built(written.pages, time.perf_counter() - start, out / "index.html", problems)


def write_source(root: Path, today: date | None = None) -> tuple[Written, list[str]]:
    """Write the tree that mkdocs builds from; returns what was written and what was left out."""
    if (root / SOURCE).is_symlink():
        raise UsageError(f"{root / SOURCE} is a link, and its target would be cleared; remove it")
    base = KnowledgeBase(root)
    written = write(private_folder(root, Path(SOURCE).name), source_files(base, today))
    return written, [str(finding) for finding in base.findings]


def require_mkdocs() -> None:
    """Refuse if the site extra is not installed, and give the command that installs it."""
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    missing = missing_package()
    if missing is not None:
        raise MachineError(f"{missing} is missing; install the site extra: {INSTALL}")


def run_mkdocs(root: Path, out: Path) -> tuple[Engine, list[str]]:
    """Build the written tree. Returns the engine, for later updates, and mkdocs's warnings.

    Raises:
        MachineError: mkdocs could not build at all.
    """
    from mkdocs.exceptions import MkDocsException

    with LogCapture() as logged:
        try:
            config = load_config(root, out)
            config.plugins.on_startup(command="build", dirty=False)
            engine = Engine(config)
            try:
                engine.build()
            finally:
                config.plugins.on_shutdown()
        except (MkDocsException, SystemExit) as error:
            reasons = "; ".join([*warnings(logged), str(error)])
            raise MachineError(f"mkdocs could not build the site: {reasons}") from None
    return engine, warnings(logged)


def load_config(root: Path, out: Path) -> Any:
    """The knowledge base's own mkdocs.yml, or the one that comes with kbtool."""
    from mkdocs.config import load_config as mkdocs_load
    from pathspec import GitIgnoreSpec

    own = root / "mkdocs.yml"
    config = mkdocs_load(
        config_file=str(own if own.is_file() else packaged("mkdocs.yml")),
        docs_dir=str(root / SOURCE),
        site_dir=str(out),
        strict=False,
    )
    if config.theme.name == "material":
        # After the knowledge base's own templates, if it has any.
        config.theme.dirs.insert(1 if config.theme.custom_dir else 0, str(OVERRIDES))
    config.extra["kbtool_version"] = __version__
    aside = [*_ASIDE, *_guide_aside(own)]
    config.not_in_nav = (config.not_in_nav or GitIgnoreSpec([])) + GitIgnoreSpec.from_lines(aside)
    _complete_navigation(config)
    return config


def _guide_aside(own: Path) -> Iterator[str]:
    """The pages of kbtool's guide, for a mkdocs.yml of an older kbtool, which may not name them
    all. The guide's first page leads to each."""
    if own.is_file() and not own.samefile(packaged("mkdocs.yml")):
        yield from (f"/guide/{path.name}" for path in packaged("docs/guide").glob("*.md"))
        yield "/guide/schema/*"


def _complete_navigation(config: Any) -> None:
    """Add the generated pages that mkdocs.yml neither has in its navigation nor leaves out.

    mkdocs.yml sets the order. Pages that are newer than a mkdocs.yml are reached all the same.
    """
    if config.nav is None:
        return  # mkdocs lists every page
    named = set(_paths(config.nav))
    config.nav += [
        {kind.title: kind.path}
        for kind in PAGES
        if kind.path and kind.path not in named and not config.not_in_nav.match_file(kind.path)
    ]


def _paths(nav: Any) -> Iterator[str]:
    """The pages of a navigation, at any depth."""
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _paths(entry)


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
