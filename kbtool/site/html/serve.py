"""The site on this machine, rebuilt when a record changes."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from kbtool.model.errors import MachineError
from kbtool.site.html.build import require_mkdocs, run_mkdocs, write_source
from kbtool.site.html.engine import Engine, LogCapture, warnings
from kbtool.site.html.tree import SOURCE, record_files, write_changed
from kbtool.store.tree import Entry, KnowledgeBase

HOST = "127.0.0.1"
WATCHED = ("sessions", "patterns", "symptoms", "kernels", "docs", "mkdocs.yml")
POLL_SECONDS = 0.2


def watched(root: Path) -> Iterator[Path]:
    """The folders and files that are watched: the records, not the tree made from them."""
    yield from (root / name for name in WATCHED if (root / name).exists())


class Live:
    """A site that is updated in two steps: the pages of changed records, then all other pages.

    Args:
        root: the knowledge base.
        out: the folder to build into.
        say: prints a line on the terminal.
    """

    def __init__(self, root: Path, out: Path, say: Callable[[str], None]) -> None:
        self.root = root
        self.out = out
        self.say = say
        self._engine: Engine | None = None
        self._stamps: dict[str, tuple[int, int]] = {}
        self._shown: set[str] = set()

    def show(self) -> bool:
        """Build the pages of the records that changed since the last call; returns whether any did.

        That takes a second or two, however many other records there are.
        """
        before, self._stamps = self._stamps, _stamps(self.root)
        changed = {path for path, stamp in self._stamps.items() if before.get(path) != stamp}
        if self._engine is None or not changed:
            return False
        if "mkdocs.yml" in changed:
            self._engine = None
            return False
        base = KnowledgeBase(self.root)
        # A session or a kernel is a folder; all files in it are shown on the record's page.
        folders = {"/".join(path.split("/")[:2]) for path in changed}
        kinds: tuple[Mapping[str, Entry[Any]], ...] = (base.sessions, base.patterns, base.kernels)
        records = {
            name
            for entries in kinds
            for name, entry in entries.items()
            if "/".join(entry.path.split("/")[:2]) in folders
        }
        written = write_changed(self.root / SOURCE, record_files(base, records))
        with LogCapture():
            self._engine.show(written)
        self._shown.update(written)
        return bool(written)

    def bring_up_to_date(self) -> int:
        """Build all pages that are out of date; returns how many source files had changed."""
        written, problems = write_source(self.root, date.today())
        changed = [*self._shown.union(written.changed), *written.removed]
        with LogCapture() as logged:
            engine = None if written.removed else self._engine
            if changed and engine is not None and engine.update(changed):
                problems += warnings(logged)
            elif changed or self._engine is None:
                self._engine, warned = run_mkdocs(self.root, self.out)
                problems += warned
        self._shown.clear()
        if changed:
            pages = sum(path.endswith(".md") for path in changed)
            self.say(f"{written.pages} pages, {pages} changed")
        for problem in problems:
            self.say(problem)
        return len(changed)


def _stamps(root: Path) -> dict[str, tuple[int, int]]:
    """Every watched file: path in the root → time of its last change and size."""
    found = {}
    for top in watched(root):
        files = [top] if top.is_file() else (Path(at, n) for at, _, ns in os.walk(top) for n in ns)
        for path in files:
            try:
                stat = path.stat()
            except OSError:
                continue
            found[path.relative_to(root).as_posix()] = (stat.st_mtime_ns, stat.st_size)
    return found


def free_port(port: int) -> int:
    """``port``, or a free one for 0. A port in use is reported before the first build."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise MachineError(f"port {port}: {error.strerror}; name another with --port") from None
        found: int = probe.getsockname()[1]
        return found


def serve(root: Path, port: int, say: Callable[[str], None]) -> None:
    """Serve the site on the loopback interface until interrupted.

    Raises:
        MachineError: mkdocs is not installed, or the port is in use.
    """
    require_mkdocs()
    from mkdocs.livereload import LiveReloadServer

    port = free_port(port)
    with tempfile.TemporaryDirectory(prefix="kbtool-site-") as folder:
        live = Live(root, Path(folder), say)

        def rebuild() -> None:
            # A half-edited record must not end the server.
            try:
                if live.show():
                    # Show its pages now; the other pages are updated after that.
                    with server._rebuild_cond:
                        server._want_rebuild = True
                else:
                    live.bring_up_to_date()
            except MachineError as error:
                say(str(error))

        live.show()
        server: Any = LiveReloadServer(rebuild, HOST, port, folder, polling_interval=POLL_SECONDS)
        rebuild()
        for path in watched(root):
            server.watch(str(path))
        say(f"open http://{HOST}:{port}/ (Ctrl-C ends it)")
        try:
            server.serve()
        except KeyboardInterrupt:
            say("stopped")
        finally:
            server.shutdown()
