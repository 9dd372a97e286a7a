"""mkdocs's server that reloads the browser, for pages that are built when they are asked for.

It imports mkdocs, so it is imported where it is needed.
"""

from __future__ import annotations

import html
import posixpath
import re
import threading
import time
import traceback
from collections.abc import Iterable
from typing import Any

from mkdocs.livereload import LiveReloadServer

from kbtool.site.html.serve import Live
from kbtool.site.html.watch import POLL_SECONDS, stamps
from kbtool.store.scan import Stamp


class Server(LiveReloadServer):
    """Serves ``live``, and brings its pages up to date while nobody asks for one."""

    def __init__(self, live: Live, host: str, port: int, seen: dict[str, Stamp]) -> None:
        """Bind nothing yet.

        Args:
            live: the site; ``refresh`` was called.
            host: the address to listen on.
            port: the port.
            seen: what ``stamps`` found before that.
        """
        super().__init__(self._refresh, host, port, str(live.out))
        self.error_handler = lambda code: live.read("404.html") if code == 404 else None
        self.live = live
        self._changed = threading.Event()
        self._changed.set()
        self._ended = False
        self._rest = threading.Thread(target=self._bring_rest, daemon=True)
        self._watching = threading.Thread(target=self._watch, args=(seen,), daemon=True)

    def serve(self, **options: Any) -> None:
        """Serve until ``shutdown``."""
        self._rest.start()
        self._watching.start()
        super().serve(**options)  # type: ignore[no-untyped-call]

    def shutdown(self, wait: bool = False) -> None:
        """End it."""
        self._ended = True
        self._changed.set()
        self.live.end()
        if self._rest.is_alive():
            self._rest.join()
        super().shutdown(wait)

    def _watch(self, seen: dict[str, Stamp]) -> None:
        while not self._ended:
            before, seen = seen, stamps(self.live.root)
            if seen != before:
                with self._rebuild_cond:
                    self._want_rebuild = True
                    self._rebuild_cond.notify_all()
            time.sleep(POLL_SECONDS)

    def _refresh(self) -> None:
        self.live.refresh()
        self._changed.set()

    def _bring_rest(self) -> None:
        while self._changed.wait() and not self._ended:
            self._changed.clear()
            try:
                self.live.bring_all()
            except Exception:  # whoever asks for the page is told, and the others are served
                traceback.print_exc()

    def _serve_request(self, environ: Any, start_response: Any) -> Iterable[bytes] | None:
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "ignore")
        if path.startswith("/livereload/"):
            return super()._serve_request(environ, start_response)
        address = posixpath.normpath(f"/{path}").lstrip("/")
        if path.endswith("/"):
            address = posixpath.join(address, "index.html")
        with self._epoch_cond:
            self._epoch_cond.wait_for(lambda: self._visible_epoch == self._wanted_epoch)
            epoch = self._visible_epoch
        content = self.live.read(address)
        if content is None:
            return super()._serve_request(environ, start_response)  # a redirection, or 404
        if address.endswith(".html"):
            shown = with_faults(content, self.live.faults)
            content = self._inject_js_into_html(shown, epoch)  # type: ignore[no-untyped-call]
        kind = self._guess_type(address)  # type: ignore[no-untyped-call]
        length = str(len(content))
        start_response("200 OK", [("Content-Type", kind), ("Content-Length", length)])
        return [content]


def with_faults(content: bytes, faults: list[str]) -> bytes:
    """A page with these faults on top of it."""
    if not faults:
        return content
    lines = "".join(f"<li><code>{html.escape(fault)}</code></li>" for fault in faults)
    shown = (
        '<div class="md-grid md-typeset" role="alert"><div class="admonition danger">'
        '<p class="admonition-title">Pages do not show every record as it is now</p>'
        f"<ul>{lines}</ul></div></div>"
    )
    return re.sub(rb"<body[^>]*>", lambda found: found[0] + shown.encode(), content, count=1)
