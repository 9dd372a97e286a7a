"""The site on this machine, rebuilt when a record changes."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

from kbtool.model.errors import MachineError
from kbtool.site.build import require_mkdocs, run_mkdocs, write_source

HOST = "127.0.0.1"
WATCHED = ("sessions", "patterns", "kernels", "docs", "mkdocs.yml")
POLL_SECONDS = 0.3


def watched(root: Path) -> Iterator[Path]:
    """What a change in rebuilds the site: the records, not the tree made from them."""
    yield from (root / name for name in WATCHED if (root / name).exists())


def regenerate(root: Path, out: Path, say: Callable[[str], None]) -> int:
    """Bring the site up to date; how many source files changed. Nothing changed, nothing built."""
    written, problems = write_source(root, date.today())
    count = len(written.changed) + len(written.removed)
    if count or not (out / "index.html").exists():
        problems += run_mkdocs(root, out)
        pages = sum(path.endswith(".md") for path in [*written.changed, *written.removed])
        say(f"{written.pages} pages, {pages} changed")
    for problem in problems:
        say(problem)
    return count


def free_port(port: int) -> int:
    """``port``, or any free one for 0; a taken port is told before the first build."""
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
        MachineError: mkdocs is not installed, or the port is taken.
    """
    require_mkdocs()
    from mkdocs.livereload import LiveReloadServer

    port = free_port(port)
    with tempfile.TemporaryDirectory(prefix="kbtool-site-") as folder:
        out = Path(folder)

        def rebuild() -> None:
            # A record that is half-edited must not end the server.
            try:
                regenerate(root, out, say)
            except MachineError as error:
                say(str(error))

        rebuild()
        server: Any = LiveReloadServer(rebuild, HOST, port, str(out), polling_interval=POLL_SECONDS)
        for path in watched(root):
            server.watch(str(path))
        say(f"open http://{HOST}:{port}/ (Ctrl-C ends it)")
        try:
            server.serve()
        except KeyboardInterrupt:
            say("stopped")
        finally:
            server.shutdown()
