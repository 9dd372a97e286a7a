"""mkdocs's build with the pages rendered in parallel, and rebuilds of changed pages only.

mkdocs renders all pages in one process, and all of them again when one has changed. Rendering a
page depends on little but that page, so here forked processes share the pages (ADR 0018).
Everything else is mkdocs's own: configuration, plugins, theme and the order of the steps.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kbtool.model.errors import MachineError

T = TypeVar("T")
R = TypeVar("R")

OVERRIDES = Path(__file__).parents[1] / "overrides"
"""Templates that replace the theme's own."""

SHAREABLE = frozenset({"search", "tags", "offline"})
"""Plugins whose state from page to page is handled here; without the prefix ``material/``."""

_WORTH_A_FORK = 60
"""Rendering fewer pages than this is faster than starting a process for them."""


class Rendered(NamedTuple):
    """A page whose Markdown was rendered, in a form that can be sent between processes."""

    content: str
    toc: Any
    title: str | None
    anchors: set[str] | None
    links: dict[str, dict[str, str]]
    """Path of a page → anchor → the link as written."""
    logged: list[tuple[int, str]]
    """Level and text of mkdocs's log messages."""


class Placed(NamedTuple):
    """A page that was put into its template and written."""

    entries: list[dict[str, Any]]
    """Its entries in the search index."""
    logged: list[tuple[int, str]]


class Engine:
    """A site that is built once as a whole; then only pages that change are built.

    Args:
        config: mkdocs's loaded configuration; ``build`` empties its ``site_dir``.
    """

    def __init__(self, config: Any) -> None:
        self.config = config
        self._found: dict[str, list[dict[str, Any]]] = {}
        self._tag_lists: set[str] = set()
        names = {name.rpartition("/")[2] for name in config.plugins}
        self._shared = names <= SHAREABLE

    def build(self) -> None:
        """Build every page: ``mkdocs.commands.build.build``, step by step.

        Raises:
            MkDocsException: what mkdocs raises.
        """
        from mkdocs.commands.build import _build_extra_template, _build_theme_template
        from mkdocs.structure.files import get_files, set_exclusions
        from mkdocs.structure.nav import get_navigation
        from mkdocs.structure.pages import Page
        from mkdocs.utils import clean_directory

        config = self.config = self.config.plugins.on_config(self.config)
        config.plugins.on_pre_build(config=config)
        clean_directory(config.site_dir)
        files = get_files(config)
        env = config.theme.get_env()
        env.trim_blocks = env.lstrip_blocks = True  # a third of a page is indentation
        files.add_files_from_theme(env, config)
        self.files = config.plugins.on_files(files, config=config)
        set_exclusions(self.files, config)
        nav = get_navigation(self.files, config)
        self.nav = config.plugins.on_nav(nav, config=config, files=self.files)
        pages = []
        for file in self.files.documentation_pages():
            pages.append(file.page or Page(None, file, config))
            self._read(pages[-1])
        self._render(pages)
        self.env = config.plugins.on_env(env, config=config, files=self.files)
        self.files.copy_static_files()
        for template in config.theme.static_templates:
            _build_theme_template(template, self.env, self.files, config, self.nav)
        for template in config.extra_templates:
            _build_extra_template(template, self.files, config, self.nav)
        self._place(pages)
        self._titles = {page.file.src_uri: page.title for page in self.nav.pages}
        for page in pages:
            page.validate_anchor_links(files=self.files, log_level=config.validation.links.anchors)
        config.plugins.on_post_build(config=config)

    def show(self, changed: Sequence[str]) -> None:
        """Build only these pages again, without the pages that show them and the search index.

        Args:
            changed: paths in ``docs_dir``; those that the last build did not have are skipped.
        """
        files = [self.files.get_file_from_path(path) for path in changed]
        pages = [file.page for file in files if file is not None and file.page is not None]
        for page in pages:
            page.read_source(self.config)
        self._render(pages)
        self._place(pages)

    def update(self, changed: Sequence[str]) -> bool:
        """Bring the site up to date; returns whether that was possible without a full build.

        If a file is new or gone, or the title of a page in the navigation has changed, nothing is
        built and a full build is needed.

        Args:
            changed: paths in ``docs_dir``; every file that differs from the last build.
        """
        files = [self.files.get_file_from_path(path) for path in changed]
        if None in files:
            return False
        pages = [file.page for file in files if file.page is not None]
        for page in pages:
            page.read_source(self.config)
        if any(self._titles.get(page.file.src_uri, page.title) != page.title for page in pages):
            return False
        for file in files:
            if file.page is None:
                file.copy_file()
        self._render(pages)
        self._place([*pages, *self._lists_of_tags()])
        self.config.plugins.on_post_build(config=self.config)
        return True

    def _lists_of_tags(self) -> list[Any]:
        """Render the tag pages again: a change of any page may change them."""
        plugins = self.config.plugins
        plugin = plugins.get("material/tags") or plugins.get("tags")
        if plugin is None:
            return []
        plugin.on_config(self.config)  # forgets every tag
        lists = []
        for page in (file.page for file in self.files.documentation_pages()):
            if page.file.src_uri in self._tag_lists:
                page.read_source(self.config)
                lists.append(page)
            page.markdown = plugin.on_page_markdown(page.markdown, page=page, config=self.config)
        self._render(lists)
        plugin.on_env(self.env, config=self.config)
        return lists

    def _read(self, page: Any) -> None:
        config = self.config
        config._current_page = page
        page = config.plugins.on_pre_page(page, config=config, files=self.files)
        page.read_source(config)
        if "<!-- material/tags" in page.markdown:
            self._tag_lists.add(page.file.src_uri)
        page.markdown = config.plugins.on_page_markdown(
            page.markdown, page=page, config=config, files=self.files
        )
        config._current_page = None

    def _render(self, pages: Sequence[Any]) -> None:
        for page, made in zip(pages, self._each(self._rendered, pages), strict=True):
            page.content, page.toc, page._title_from_render, page.present_anchor_ids = made[:4]
            page.links_to_anchors = {
                self.files.get_file_from_path(path): links for path, links in made.links.items()
            }
            _log_again(made.logged)

    def _rendered(self, page: Any) -> Rendered:
        config = self.config
        config._current_page = page
        with LogCapture() as logged:
            page.render(config, self.files)
            content = config.plugins.on_page_content(
                page.content, page=page, config=config, files=self.files
            )
        config._current_page = None
        links = {file.src_uri: links for file, links in (page.links_to_anchors or {}).items()}
        title, anchors = page._title_from_render, page.present_anchor_ids
        return Rendered(content, page.toc, title, anchors, links, logged)

    def _place(self, pages: Sequence[Any]) -> None:
        self.doc_files = self.files.documentation_pages()
        for page, placed in zip(pages, self._each(self._placed, pages), strict=True):
            self._found[page.file.src_uri] = placed.entries
            _log_again(placed.logged)
        index = self._search_index()
        if index is not None:
            index.entries = [entry for entries in self._found.values() for entry in entries]

    def _placed(self, page: Any) -> Placed:
        from mkdocs.commands.build import _build_page

        index = self._search_index()
        if index is not None:
            index.entries = []
        with LogCapture() as logged:
            _build_page(page, self.config, self.doc_files, self.nav, self.env)
        return Placed([_without_tags(entry) for entry in index.entries] if index else [], logged)

    def _search_index(self) -> Any:
        plugins = self.config.plugins
        plugin = plugins.get("material/search") or plugins.get("search")
        return getattr(plugin, "search_index", None)

    def _each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return shared(work, items) if self._shared else [work(item) for item in items]


_work: Callable[[int], Any]


def shared(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The results of ``work`` on each of ``items``, in order; in forks of this process if faster.

    Other effects of ``work`` are lost.

    Raises:
        MachineError: one of the forks was killed.
    """
    processes = min(len(items) // _WORTH_A_FORK, _processors())
    if processes < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return [work(item) for item in items]
    global _work
    _work = lambda place: work(items[place])  # noqa: E731 - forks inherit it, nothing is pickled
    gc.collect()
    gc.freeze()  # garbage collection in a fork would touch, and so copy, all memory
    try:
        # Not multiprocessing's own pool: it waits for ever for a process that was killed.
        with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
            return list(pool.map(_called, range(len(items)), chunksize=8))
    except BrokenProcessPool:
        raise MachineError(
            "a process that rendered pages was killed: is there too little memory? Build the site"
            " again"
        ) from None
    finally:
        gc.unfreeze()


def _called(place: int) -> Any:
    return _work(place)


def _processors() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_TAG = re.compile(r"<[^>]*>")


def _without_tags(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of the search index without HTML tags: a third smaller, and tags are not found."""
    text = " ".join(_TAG.sub(" ", entry["text"]).split())
    return {**entry, "title": _TAG.sub("", entry["title"]), "text": text}


class LogCapture(logging.Handler):
    """Captures the log messages of mkdocs instead of printing them, while it is entered."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.logged: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.logged.append((record.levelno, record.getMessage()))

    def __enter__(self) -> list[tuple[int, str]]:
        self._logger = logging.getLogger("mkdocs")
        self._before = self._logger.handlers[:], self._logger.propagate
        self._logger.handlers, self._logger.propagate = [self], False
        return self.logged

    def __exit__(self, *_: object) -> None:
        self._logger.handlers, self._logger.propagate = self._before


def warnings(logged: Sequence[tuple[int, str]]) -> list[str]:
    """The messages that are warnings or worse."""
    return [text for level, text in logged if level >= logging.WARNING]


def _log_again(logged: Sequence[tuple[int, str]]) -> None:
    for level, text in logged:
        logging.getLogger("mkdocs").log(level, text)
