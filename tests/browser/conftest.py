"""One browser, and two sites in it: over http on the loopback interface, and from ``file://``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import Served, Visit, served
from site_html import Site

sys.path.insert(0, str(Path(__file__).parents[1] / "site"))

CHROMIUM = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


@pytest.fixture(scope="session")
def own(real_site: Site) -> Iterator[Served]:
    """This repository's records."""
    with served(real_site.out) as site:
        yield site


@pytest.fixture(scope="session")
def hostile(hostile_site: Site) -> Iterator[Served]:
    with served(hostile_site.out) as site:
        yield site


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.skip("no chromium on this machine; Debian: apt install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with sync_api.sync_playwright() as playwright:
        flags = [
            "--no-sandbox",  # a container's root may make none
            "--disable-gpu",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # and no way out
        ]
        chromium = playwright.chromium.launch(executable_path=found, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """A new page that reaches nothing but ``base``; at its end it had no fault of any kind."""
    opened: list[tuple[Any, Visit]] = []

    def open_page(base: str, **options: Any) -> Visit:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(60_000)  # a busy machine is slow
        seen = Visit(context.new_page())

        seen.page.on(
            "request",
            lambda request: (
                request.url.startswith((base, "data:", "blob:"))
                or seen.faults.append(f"asked for {request.url}")
            ),
        )
        page = seen.page
        page.on("pageerror", lambda error: seen.faults.append(f"{page.url}: error: {error}"))
        page.on(
            "console",
            lambda said: (
                said.type == "error" and seen.faults.append(f"{page.url}: console: {said.text}")
            ),
        )
        page.on("dialog", lambda dialog: (seen.faults.append("a dialog opened"), dialog.dismiss()))
        page.on(
            "requestfailed",
            lambda request: (
                request.failure != "net::ERR_ABORTED"
                and seen.faults.append(f"{page.url}: {request.url}: {request.failure}")
            ),
        )
        page.on(
            "response",
            lambda response: (
                response.status >= 400
                and not response.request.is_navigation_request()
                and seen.faults.append(f"{page.url}: {response.url}: {response.status}")
            ),
        )
        opened.append((context, seen))
        return seen

    yield open_page
    for context, _ in opened:
        context.close()
    assert [fault for _, seen in opened for fault in seen.faults] == []
