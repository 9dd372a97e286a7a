"""How long the site takes: this repository's records, and generated knowledge bases.

    python benchmarks/bench_site.py [SESSIONS ...]

For each: pages and seconds of a cold build (no cache, an empty folder), with the CPU seconds of all
processes; bytes of the median page and of the largest pages; size of the search index, and seconds
from a key press to the first answer in a browser, if there is one; seconds in ``serve`` until a
changed record is shown on its own page, and on every other page that shows it.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from generate import generate

from kbtool.site.html import serve as serving
from kbtool.site.html.build import build

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ANSWER = """async word => {
  const field = document.querySelector(".md-search__input");
  const began = performance.now();
  field.focus();
  field.value = word;
  field.dispatchEvent(new KeyboardEvent("keyup"));
  while (!document.querySelector(".md-search-result__item"))
    await new Promise(done => setTimeout(done, 2));
  return (performance.now() - began) / 1000;
}"""


def measure(name: str, root: Path, out: Path, word: str) -> None:
    shutil.rmtree(root / ".kbtool", ignore_errors=True)
    processor = _processor_time()
    built = build(root, out)
    processor = _processor_time() - processor
    sizes = {path: path.stat().st_size for path in out.rglob("*.html")}
    index = (out / "search" / "search_index.js").stat().st_size
    print(f"{name}: {built.pages} pages in {built.seconds:.1f} s ({processor:.1f} s CPU)")
    print(f"  page: {statistics.median(sizes.values()) / 1e3:.0f} kB median;", end=" ")
    largest = sorted(((size, path) for path, size in sizes.items()), reverse=True)[:4]
    named = (f"{path.relative_to(out)} {size / 1e3:.0f} kB" for size, path in largest)
    print(f"the largest: {', '.join(named)}")
    print(f"  search: {index / 1e6:.1f} MB; {first_search(out, word)}")


def first_search(out: Path, word: str) -> str:
    """The time on a page just opened from its folder, so that loading the index counts."""
    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if chromium is None:
        return "no browser to search in"
    from playwright.sync_api import sync_playwright

    times = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        for _ in range(5):
            page = browser.new_page()
            page.goto((out / "index.html").as_uri(), wait_until="load")
            times.append(page.evaluate(ANSWER, word))
            page.close()
        browser.close()
    return f"first answer after {statistics.median(times):.2f} s (5 times, median)"


def change_to_visible(root: Path) -> None:
    """Serve, change a record in the middle, and ask for its page until it shows the change."""
    from mkdocs import livereload

    servers: list[Any] = []
    begin: Callable[..., None] = livereload.LiveReloadServer.serve
    livereload.LiveReloadServer.serve = lambda self: (servers.append(self), begin(self))[1]
    port = serving.free_port(0)
    thread = threading.Thread(target=serving.serve, args=(root, port, lambda line: None))
    thread.start()
    files = sorted((root / "sessions").glob("*/session.yaml"))
    record = files[len(files) // 2]
    page = f"http://{serving.HOST}:{port}/sessions/{record.parent.name}.html"
    listing = f"http://{serving.HOST}:{port}/sessions/index.html"
    _wait(page, "Fix the split")
    time.sleep(3)
    own, everywhere = [], []
    for number in range(3):
        words = f"Changed for the {number + 1}. time"
        text = record.read_text(encoding="utf-8").splitlines()
        text = [f"title: {words}" if line.startswith("title:") else line for line in text]
        record.write_text("\n".join(text) + "\n", encoding="utf-8")
        own.append(_wait(page, words))
        everywhere.append(own[-1] + _wait(listing, words))
        time.sleep(3)
    servers[0].shutdown()
    thread.join()
    livereload.LiveReloadServer.serve = begin
    print(
        f"  serve: a new title on the record's page after {statistics.median(own):.1f} s,"
        f" on the list of all after {statistics.median(everywhere):.1f} s (3 times, median)"
    )


def _wait(url: str, words: str) -> float:
    start = time.perf_counter()
    while time.perf_counter() - start < 120:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                if words in answer.read().decode():
                    return time.perf_counter() - start
        except OSError:
            pass
        time.sleep(0.02)
    sys.exit(f"{url} never showed {words!r}")


def _processor_time() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    sizes = [int(argument) for argument in sys.argv[1:]] or [500, 1500]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="kbtool-bench-") as folder:
        own = Path(folder) / "own"
        for name in ("sessions", "patterns", "kernels", "docs"):
            shutil.copytree(ROOT / name, own / name)
        measure("this repository", own, Path(folder) / "own-site", "benchmark")
        for sessions in sizes:
            root = Path(folder) / str(sessions)
            generate(root, sessions)
            measure(f"{sessions:,} sessions", root, Path(folder) / f"{sessions}-site", "tail")
            change_to_visible(root)


if __name__ == "__main__":
    main()
