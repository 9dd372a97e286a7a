"""mkdocs's build: pages are rendered in parallel, and those that would be the same are reused.

mkdocs renders all pages in one process, and all of them at each build. Rendering a
page depends on little but that page, so here forked processes share the pages (ADR 0018).
Everything else is mkdocs's own: configuration, plugins, theme and the order of the steps.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import logging
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Container, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kbtool.model.errors import MachineError
from kbtool.site.html.folder import remove_others, write_changed
from kbtool.site.html.pieces import Piece, cut, filled, filled_entries, has_all, rows_of
from kbtool.site.html.reuse import SHAREABLE, Made, Recorder, Store, address_in, digest_of

T = TypeVar("T")
R = TypeVar("R")

OVERRIDES = Path(__file__).parents[1] / "overrides"
"""Templates that replace the theme's own."""

LISTS_TAGS = "<!-- material/tags"
"""What a page has that lists the tags of all pages."""

OF_ALL = ("search/search_index.json", "search/search_index.js", "tags.json")
"""What ``finish`` writes from all pages; until then that of before is better than none."""

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
    asked: dict[str, str | None]
    """See ``Made``."""
    logged: list[tuple[int, str]]
    """Level and text of mkdocs's log messages."""
    pieces: dict[str, Piece]
    """Mark → a piece of a long table; ``content`` has the marks."""


class Placed(NamedTuple):
    """A page that was put into its template and written."""

    output: str
    """With the marks of its pieces, as its entries."""
    entries: list[dict[str, Any]]
    """Its entries in the search index."""
    logged: list[tuple[int, str]]


class Engine:
    """A site that is built as a whole, or begun and then built page by page.

    Args:
        config: mkdocs's loaded configuration; ``build`` replaces what is in its ``site_dir``.
        store: the pages of earlier builds.
    """

    def __init__(self, config: Any, store: Store | None = None) -> None:
        self.config = config
        self.files: Any
        self.nav: Any
        self.env: Any
        self.pages: list[Any]
        self._digest = digest_of(config, OVERRIDES) if store is not None else None
        self._store = store
        self._made: dict[str, Made] = {}
        self._around = ""
        self._titled: dict[str, str] = {}
        """Path of a page whose title the navigation shows → the source that it was found in."""
        names = {name.rpartition("/")[2] for name in config.plugins}
        self._shared = names <= SHAREABLE
        self._renderer: Any = None
        """Takes the shortcuts; ``None`` if a page may depend on more than is known."""

    def build(self) -> None:
        """Build every page: ``mkdocs.commands.build.build``, step by step.

        Raises:
            MkDocsException: what mkdocs raises.
        """
        from kbtool.site.html.shortcuts import fill_navigation_once

        self.begin()
        self._remove_stale()
        for page in self.pages:
            self._read(page)
        self._settle_titles()
        new = [page for page in self.pages if not self._reuse(page)]
        self._render([page for page in new if page.content is None])
        self.env = self.config.plugins.on_env(self.env, config=self.config, files=self.files)
        if self._renderer is not None:
            fill_navigation_once(self.env, self.config, self.nav)
        self.files.copy_static_files()
        self._write_templates()
        self._place(new)
        self._end()

    def begin(self) -> None:
        """Find the files and the navigation; read no page yet."""
        from mkdocs.structure.files import get_files, set_exclusions
        from mkdocs.structure.nav import get_navigation
        from mkdocs.structure.pages import Page
        from mkdocs.utils import clean_directory

        from kbtool.site.html.shortcuts import Renderer, index_less

        config = self.config = self.config.plugins.on_config(self.config)
        config.plugins.on_pre_build(config=config)
        if self._digest is None:
            clean_directory(config.site_dir)
        files = get_files(config)
        env = config.theme.get_env()
        env.trim_blocks = env.lstrip_blocks = True  # a third of a page is indentation
        files.add_files_from_theme(env, config)
        self.files = config.plugins.on_files(files, config=config)
        set_exclusions(self.files, config)
        nav = get_navigation(self.files, config)
        self.nav = config.plugins.on_nav(nav, config=config, files=self.files)
        self.env = env
        self.doc_files = self.files.documentation_pages()
        self.pages = [file.page or Page(None, file, config) for file in self.doc_files]
        if self._digest is not None:
            self._renderer = Renderer(config)
            search = config.plugins.get("material/search")
            if hasattr(search, "search_index"):
                index_less(search.search_index)

    @property
    def page_by_page(self) -> bool:
        """Whether the site can be begun, and then built page by page: whether it is known what a
        page depends on."""
        return self._digest is not None

    def start(self, generated: Container[str]) -> None:
        """Write what the theme brings, and remove what is stale, after ``begin``.

        Args:
            generated: the paths of the files that ``bring`` will be called for.
        """
        self._remove_stale(OF_ALL)
        for file in self.files:
            if file.page is None and file.src_uri not in generated and file.inclusion.is_included():
                file.copy_file()

    @property
    def shown_everywhere(self) -> list[str]:
        """The pages whose titles the navigation shows: they must be there for ``settle``."""
        return [page.file.src_uri for page in self._untitled()]

    def settle(self) -> None:
        """Find the titles of these pages anew."""
        for page in self._untitled():
            self._read(page)
        before = self._around
        self._settle_titles()
        if self._around != before:
            self._write_templates()

    def bring(self, path: str) -> None:
        """Bring one file of the site up to date with its source.

        Args:
            path: the source, in ``docs_dir``.
        """
        file = self.files.get_file_from_path(path)
        if file.page is None:
            file.copy_file()
            return
        tags = self._tags()
        if tags is not None:
            tags.mappings.data.pop(file.page.url, None)
        self._read(file.page)
        if not self._reuse(file.page):
            self._render([file.page])
            self._place([file.page])

    def finish(self) -> list[str]:
        """Write what is made of all pages together, when all were brought; returns the warnings."""
        tags = self._tags()
        if tags is not None:
            tags.on_config(self.config)  # forgets every tag
            for page in self.pages:
                tags.on_page_markdown(page.markdown, page=page, config=self.config)
            tags.on_env(self.env, config=self.config)
        with LogCapture() as logged:
            self._end()
        said = [one for page in self.pages for one in self._made[page.file.src_uri].logged]
        return warnings([*said, *logged])

    def _tags(self) -> Any:
        return self.config.plugins.get("material/tags") or self.config.plugins.get("tags")

    def _settle_titles(self) -> None:
        """Find the titles that the navigation takes from pages, which were read before.

        Every page shows the navigation, so this comes before any page is placed or reused.
        """
        for page in self._untitled():
            path, source = page.file.src_uri, self._source(page)
            if self._titled.get(path) == source:
                continue
            made = self._known(page)
            if made is not None:
                page._title_from_render = made.title
            else:
                self._render([page])
            self._titled[path] = source
        self._around = _sum(str(self.nav))

    def _untitled(self) -> list[Any]:
        return [page for page in self.nav.pages if "title" not in vars(page)]

    def _write_templates(self) -> None:
        from mkdocs.commands.build import _build_extra_template, _build_theme_template

        config = self.config
        for template in config.theme.static_templates:
            _build_theme_template(template, self.env, self.files, config, self.nav)
        for template in config.extra_templates:
            _build_extra_template(template, self.files, config, self.nav)

    def _end(self) -> None:
        """Check the links between pages, and write what is made of all of them together."""
        config = self.config
        for page in self.pages:
            page.validate_anchor_links(files=self.files, log_level=config.validation.links.anchors)
        index = self._search_index()
        if index is not None:
            made = (self._made[page.file.src_uri] for page in self.pages)
            index.entries = [
                entry for one in made for entry in filled_entries(one.entries, one.pieces)
            ]
        config.plugins.on_post_build(config=config)
        if self._digest is not None and self._store is not None:
            self._store.save(self._made)

    def _remove_stale(self, kept: Sequence[str] = ()) -> None:
        """Remove from the site what is not written from a file or a template, but for ``kept``."""
        site = Path(self.config.site_dir)
        written = {Path(f.abs_dest_path) for f in self.files if f.inclusion.is_included()}
        templates = [*self.config.theme.static_templates, *self.config.extra_templates]
        remove_others(site, written | {site / name for name in (*templates, *kept)})

    def _read(self, page: Any) -> None:
        config = self.config
        config._current_page = page
        page = config.plugins.on_pre_page(page, config=config, files=self.files)
        page.read_source(config)
        if LISTS_TAGS in page.markdown:
            self._digest = None  # such a page depends on every other
        page.markdown = config.plugins.on_page_markdown(
            page.markdown, page=page, config=config, files=self.files
        )
        config._current_page = None

    def _source(self, page: Any) -> str:
        return _sum(f"{self._digest} {page.file.content_string}")

    def _known(self, page: Any) -> Made | None:
        """The page of an earlier build, made of the same Markdown, if its links lead where they
        did; the navigation may differ."""
        if self._digest is None or self._store is None:
            return None
        made = self._store.get(page.file.src_uri, self._source(page))
        if made is None:
            return None
        return made if self._leads_there(made.asked) else None

    def _leads_there(self, asked: dict[str, str | None]) -> bool:
        return all(address_in(self.files, path) == at for path, at in asked.items())

    def _reuse(self, page: Any) -> bool:
        """Take the page of an earlier build, if it would be the same now; returns whether it is."""
        made = self._known(page)
        if made is None or made.around != self._around:
            return False
        self._made[page.file.src_uri] = made
        page._title_from_render, page.present_anchor_ids = made.title, set(made.anchors)
        page.links_to_anchors = self._to_files(made.links)
        _log_again(made.logged)
        path = Path(page.file.abs_dest_path)
        write_changed(path.parent, {path.name: filled(made.output, made.pieces).encode()})
        return True

    def _render(self, pages: Sequence[Any]) -> None:
        for page in pages:
            page.cut, page.known = (page.markdown, {}), {}
            if self._digest is not None and self._store is not None:
                page.cut = cut(page.markdown, f"{self._digest} {page.file.src_uri}")
                if page.cut[1] and (before := self._store.get(page.file.src_uri)):
                    page.known = before.pieces
        for page, made in zip(pages, self._each(self._rendered, pages), strict=True):
            page.content, page.toc, page._title_from_render, page.present_anchor_ids = made[:4]
            page.links_to_anchors = self._to_files(made.links)
            page.asked, page.logged, page.pieces = made.asked, made.logged, made.pieces
            _log_again(made.logged)

    def _to_files(self, links: dict[str, dict[str, str]]) -> dict[Any, dict[str, str]]:
        return {self.files.get_file_from_path(path): found for path, found in links.items()}

    def _rendered(self, page: Any) -> Rendered:
        short, cuts = page.cut
        made = self._whole(page, short)
        if not cuts:
            return made
        if not has_all(made.content, cuts):
            return self._whole(page, page.markdown)
        pieces = {mark: self._piece(page, mark, text) for mark, text in cuts.items()}
        for piece in pieces.values():
            made.asked.update(piece.asked)
            made.logged.extend(piece.logged)
            for path, links in piece.links.items():
                made.links[path] = links | made.links.get(path, {})
        anchors = (made.anchors or set()).union(*(piece.anchors for piece in pieces.values()))
        return made._replace(anchors=anchors, pieces=pieces)

    def _whole(self, page: Any, markdown: str) -> Rendered:
        """The page with this Markdown, in one piece."""
        config = self.config
        config._current_page = page
        recorder = Recorder(self.files)
        files = recorder if self._digest is not None else self.files
        before, page.markdown = page.markdown, markdown
        with LogCapture() as logged:
            if self._renderer is not None:
                self._renderer.render(page, files)
            else:
                page.render(config, files)
            content = config.plugins.on_page_content(
                page.content, page=page, config=config, files=self.files
            )
        page.markdown = before
        config._current_page = None
        links = {file.src_uri: links for file, links in (page.links_to_anchors or {}).items()}
        title, anchors = page._title_from_render, page.present_anchor_ids
        return Rendered(content, page.toc, title, anchors, links, recorder.asked, logged, {})

    def _piece(self, page: Any, mark: str, markdown: str) -> Piece:
        """A piece of one of the tables of a page, as it was or rendered."""
        before: Piece | None = page.known.get(mark)
        if before is not None and self._leads_there(before.asked):
            return before
        part = copy.copy(page)
        part.meta = {}  # a page may be left out of the search: that is no matter of its pieces
        made = self._whole(part, markdown)
        part.content = rows_of(made.content)
        text = ""
        search = self._search()
        if search is not None:
            entries: list[dict[str, Any]] = []
            search.search_index.entries = entries
            search.on_page_context({}, page=part, config=self.config, nav=self.nav)
            text = " ".join(_without_tags(entry)["text"] for entry in entries)
        anchors = sorted(made.anchors or ())
        return Piece(part.content, text, anchors, made.links, made.asked, made.logged)

    def _place(self, pages: Sequence[Any]) -> None:
        for page, placed in zip(pages, self._each(self._placed, pages), strict=True):
            _log_again(placed.logged)
            made = Made(
                self._source(page), self._around, page.asked, placed.output,
                page._title_from_render, sorted(page.present_anchor_ids or ()),
                {file.src_uri: links for file, links in page.links_to_anchors.items()},
                placed.entries, [*page.logged, *placed.logged], page.pieces,
            )  # fmt: skip
            self._made[page.file.src_uri] = made
            if self._digest is not None and self._store is not None:
                self._store.put(page.file.src_uri, made)

    def _placed(self, page: Any) -> Placed:
        from mkdocs.commands.build import _build_page

        index = self._search_index()
        if index is not None:
            index.entries = []
        with LogCapture() as logged:
            _build_page(page, self.config, self.doc_files, self.nav, self.env)
        entries = [_without_tags(entry) for entry in index.entries] if index else []
        file = Path(page.file.abs_dest_path)
        output = file.read_text("utf-8")
        if page.pieces:
            file.write_text(filled(output, page.pieces), encoding="utf-8")
        return Placed(output, entries, logged)

    def _search(self) -> Any:
        """The plugin that makes the search index, if it has one."""
        plugins = self.config.plugins
        plugin = plugins.get("material/search") or plugins.get("search")
        return plugin if hasattr(plugin, "search_index") else None

    def _search_index(self) -> Any:
        return getattr(self._search(), "search_index", None)

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


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _log_again(logged: Sequence[tuple[int, str]]) -> None:
    for level, text in logged:
        logging.getLogger("mkdocs").log(level, text)
