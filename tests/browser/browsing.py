"""A built site on a server of its own, and a page of it that is open in the browser."""

from __future__ import annotations

import functools
import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SETTLED = """() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"""

# Earlier answers stay on the page until the next, and a busy machine answers late.
AWAIT_ANSWER = """() => {
  window.answered = false;
  new MutationObserver((changes, observer) => {
    if (!changes.some(change => change.addedNodes.length)) return;
    observer.disconnect();
    window.answered = true;
  }).observe(document.querySelector(".kb-search__list"), { childList: true });
}"""


@dataclass
class Visit:
    """An open page, and what went wrong on it."""

    page: Any
    faults: list[str] = field(default_factory=list)

    def goto(self, url: str) -> Any:
        response = self.page.goto(url, wait_until="load")
        self.page.evaluate(SETTLED)
        return response

    def ask(self, query: str) -> Any:
        """Search; the links of what is found."""
        self.page.evaluate(AWAIT_ANSWER)
        if self.page.evaluate("document.activeElement.name") == "query":
            self.page.keyboard.press("Control+A")
        else:
            self.page.keyboard.press("/")
        self.page.keyboard.insert_text(query)  # at once: no letter is answered by itself
        self.page.wait_for_function("answered")
        links = self.page.locator(".kb-search__item a")
        links.first.wait_for()
        return links


@dataclass
class Served:
    """A built site, and its two addresses."""

    out: Path
    http: str

    @property
    def file(self) -> str:
        return self.out.as_uri()

    def bases(self) -> dict[str, str]:
        return {"http": self.http, "file": self.file}

    def pages(self) -> list[str]:
        found = self.out.rglob("*.html")
        return sorted(p.relative_to(self.out).as_posix() for p in found)

    def one_of_each_kind(self) -> list[str]:
        """The largest page of each kind, whatever kinds there are."""
        largest: dict[str, str] = {}
        for page in self.pages():
            kind, size = _kind(page), (self.out / page).stat().st_size
            if kind not in largest or size > (self.out / largest[kind]).stat().st_size:
                largest[kind] = page
        return sorted(largest.values())


RUN = re.compile(r"\d{8}T\d{6}Z-(.+)-[0-9a-f]{4}\.html")


def _kind(page: str) -> str:
    """Pages at the top, indexes and the topics of a kernel are each a kind of their own; runs of a
    recipe are one, since its steps make the page; other pages of one folder and depth are one."""
    top, *below = page.split("/")
    if not below or below == ["index.html"]:
        return page
    if top == "kernels" and len(below) == 2:
        return f"kernels/*/{below[1]}"
    if run := RUN.fullmatch(below[-1]):
        return f"{top}/{run[1]}"
    return f"{top}/{min(len(below), 3)}"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def send_error(self, code: int, *args: Any, **kwargs: Any) -> None:
        """As a host of static files does: its own page for what is not there."""
        missing = Path(self.directory) / "404.html"
        if code != 404:
            super().send_error(code, *args, **kwargs)
            return
        body = missing.read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def served(out: Path) -> Iterator[Served]:
    """The site that was built into ``out``, on a free port of the loopback interface."""
    handler = functools.partial(_Quiet, directory=str(out))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Served(out, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
