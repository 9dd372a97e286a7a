"""The site on this machine, each page built when it is asked for, from the records as they are."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from kbtool.model.errors import MachineError
from kbtool.site.html import zensical_server
from kbtool.site.html.build import load_config, refusals, required_generator, run_mkdocs
from kbtool.site.html.engine import LISTS_TAGS, OF_ALL, Engine, LogCapture
from kbtool.site.html.folder import remove_others, write_changed
from kbtool.site.html.reuse import Store
from kbtool.site.html.tree import indexed, making_files
from kbtool.site.html.watch import stamps
from kbtool.site.index import Index
from kbtool.site.needs import ZENSICAL
from kbtool.store.prose import documents
from kbtool.store.tree import KnowledgeBase

HOST = "127.0.0.1"
QUIET_S = 0.5
"""Seconds without a reader after which other pages are built: a browser asks for one thing after
another, and would wait for each page that is begun in between."""
SECONDS_TO_SEARCH = 120
"""That the first search waits for its index, which is written after all pages."""


class Live:
    """A site whose pages are built when they are asked for.

    ``refresh`` reads the records. ``read`` builds the page that is asked for, unless it is there as
    it would be now. ``bring_all`` builds the others while nobody asks, and the search index.

    Args:
        root: the knowledge base.
        folder: an empty folder to build in.
        say: prints a line on the terminal.
    """

    def __init__(self, root: Path, folder: Path, say: Callable[[str], None]) -> None:
        self.root = root
        self.out = folder / "site"
        self.faults: list[str] = []
        """Why pages do not show everything as it is now."""
        self._source = folder / "source"
        self._say = say
        self._said: list[str] = []
        self._turns = Turns()
        self._store = Store(root)
        self._index: Index | None = None
        self._making: dict[str, Callable[[], bytes]] = {}
        self._settings: bytes | None = None
        self._engine: Engine | None = None
        self._version = 0
        self._whole = (
            threading.Event()
        )  # every page was brought once, and the search index is there
        self._due: dict[str, str] = {}
        """Address of a file that was not brought since the last change → its source."""

    def refresh(self) -> None:
        """Read the records again, and begin the site anew if it has other pages than before.

        What goes wrong is told in ``faults``, and the pages stay as they were.
        """
        with self._turns.first():
            self._version += 1
            try:
                self._read()
            except MachineError as error:
                self.faults = [str(error)]
            except Exception as error:  # the server goes on, whatever a half-edited record does
                traceback.print_exc()
                self.faults = [f"the records could not be made into pages: {error!r}"]
            if self.faults:
                self._tell(self.faults)

    def _read(self) -> None:
        base = KnowledgeBase(self.root, self._index.base if self._index else None)
        index, written = indexed(base, self._index)
        making = making_files(index, written, date.today())
        own = self.root / "mkdocs.yml"
        settings = own.read_bytes() if own.is_file() else None
        engine = self._engine
        if engine is None or making.keys() != self._making.keys() or settings != self._settings:
            engine = self._begun(base, making)
        if engine is not None:
            for path in engine.shown_everywhere:
                self._write(making, path)
            with LogCapture():
                engine.settle()
        files = engine.files if engine is not None else ()
        self._due = {file.dest_uri: file.src_uri for file in files if file.src_uri in making}
        self._index, self._making, self._settings, self._engine = index, making, settings, engine
        stale = [f"{one}; pages show this record as it was before" for one in base.stale]
        self.faults = [*stale, *(f"{one}; no page shows this record" for one in base.findings)]

    def _begun(self, base: KnowledgeBase, making: dict[str, Callable[[], bytes]]) -> Engine | None:
        """A site without pages; or the whole site, and ``None``, if it is only built as a whole."""
        remove_others(self._source, {self._source / path for path in making})
        for path in making:
            (self._source / path).parent.mkdir(parents=True, exist_ok=True)
            (self._source / path).touch()
        with LogCapture() as logged, refusals(logged):
            config = load_config(self.root, self.out, self._source)
            config.plugins.on_startup(command="build", dirty=False)
            engine = Engine(config, self._store)
            if engine.page_by_page and not any(LISTS_TAGS in t for t in documents(base).values()):
                engine.begin()
                engine.start(making)
                return engine
        for path in making:
            self._write(making, path)
        self._tell(run_mkdocs(self.root, self.out, self._source))
        return None

    def read(self, address: str) -> bytes | None:
        """A file of the site, up to date; ``None`` if there is none.

        Args:
            address: relative to the site, such as ``sessions/index.html``.
        """
        if address in OF_ALL:
            self._whole.wait(SECONDS_TO_SEARCH)
        with self._turns.first():
            self._bring(address)
            file = self.out / address
            return file.read_bytes() if file.is_file() else None

    def _bring(self, address: str) -> None:
        path = self._due.get(address)
        if path is not None and self._engine is not None:
            self._write(self._making, path)
            with LogCapture():
                self._engine.bring(path)
            del self._due[address]

    def bring_all(self) -> bool:
        """Bring every file up to date; stops, and returns false, if records change meanwhile."""
        version = self._version
        for address in [*self._due]:
            with self._turns.last():
                if self._version != version:
                    return False
                self._bring(address)
        with self._turns.last():
            if self._version != version:
                return False
            if self._engine is not None:
                problems = self._engine.finish()
                if problems != self._said:
                    self._tell(problems)
                self._said = problems
        self._whole.set()
        return True

    def end(self) -> None:
        """Stop ``bring_all``; nothing is asked for any more."""
        self._version += 1
        self._whole.set()
        with self._turns.first():
            self._store.close()

    def _write(self, making: dict[str, Callable[[], bytes]], path: str) -> None:
        write_changed(self._source, {path: making[path]()})

    def _tell(self, lines: list[str]) -> None:
        for line in lines:
            self._say(line)


class Turns:
    """One thread at a time; those that somebody waits for go first."""

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._busy = False
        self._waiting = 0
        self._quiet_at = 0.0
        """When nobody will have waited for a while, by ``time.monotonic``."""

    @contextmanager
    def first(self) -> Iterator[None]:
        """A turn before all that can wait."""
        with self._free:
            self._waiting += 1
            self._free.wait_for(lambda: not self._busy)
            self._waiting -= 1
            self._busy = True
        try:
            yield from self._turn()
        finally:
            self._quiet_at = time.monotonic() + QUIET_S

    @contextmanager
    def last(self) -> Iterator[None]:
        """A turn when nobody has waited for ``QUIET_S``."""
        with self._free:
            while self._busy or self._waiting or (left := self._quiet_at - time.monotonic()) > 0:
                self._free.wait(None if self._busy or self._waiting else left)
            self._busy = True
        yield from self._turn()

    def _turn(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self._free:
                self._busy = False
                self._free.notify_all()


def serve(root: Path, port: int, say: Callable[[str], None]) -> None:
    """Serve the site on the loopback interface until interrupted.

    Raises:
        MachineError: the generator is not installed, or the port is in use.
        UsageError: ``kbtool.yaml`` names an unknown generator.
    """
    generator = required_generator(root)
    port = free_port(HOST, port)
    if generator == ZENSICAL:
        zensical_server.serve(root, (HOST, port), say)
        return
    from kbtool.site.html.server import Server

    with tempfile.TemporaryDirectory(prefix="kbtool-site-") as folder:
        live = Live(root, Path(folder), say)
        seen = stamps(root)
        live.refresh()
        server = Server(live, HOST, port, seen)
        say(f"open http://{HOST}:{port}/ (Ctrl-C ends it)")
        try:
            server.serve()
        except KeyboardInterrupt:
            say("stopped")
        finally:
            server.shutdown()


def free_port(host: str, port: int) -> int:
    """``port``, or a free one for 0. A port in use is reported before the records are read."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise MachineError(f"port {port}: {error.strerror}; name another with --port") from None
        found: int = probe.getsockname()[1]
        return found
