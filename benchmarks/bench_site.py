"""How long the site takes: this repository's records, and generated knowledge bases.

    python benchmarks/bench_site.py [SESSIONS ...]

For each, seconds and CPU seconds of all processes, medians of ROUNDS: of a cold build (no cache, an
empty folder), of a repeated one, and of one after a change of one record; bytes of the median page
and of the largest; size of the search index, and seconds from a key press to the first answer in a
browser, if there is one. In ``serve``: seconds from the change of a record until a page that shows
it is what a build makes of it, where that page alone is asked for, and where all are, in turn.
"""

from __future__ import annotations

import itertools
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from generate import generate

from kbtool.site.html.build import build
from kbtool.site.html.serve import HOST, free_port

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 3
PAUSE = 0.05
"""Seconds between two looks at pages that have not changed yet."""
SETTLE = 40
"""Seconds in which the server brings all pages up to date after its start."""
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ANSWER = """async word => {
  const field = document.querySelector(".kb-search__input");
  const began = performance.now();
  field.focus();
  field.value = word;
  field.dispatchEvent(new Event("input"));
  while (!document.querySelector(".kb-search__item"))
    await new Promise(done => setTimeout(done, 2));
  return (performance.now() - began) / 1000;
}"""


def measure(name: str, root: Path, out: Path, word: str) -> None:
    cold = [timed_build(root, out, cold=True) for _ in range(ROUNDS)]
    print(f"{name}: {cold[0][0]} pages; a build takes")
    print(f"  cold {_shown(cold)}", flush=True)
    print(f"  repeated {_shown([timed_build(root, out) for _ in range(ROUNDS)])}", flush=True)
    sizes = {path: path.stat().st_size for path in out.rglob("*.html")}
    index = (out / "search" / "search_index.js").stat().st_size
    print(f"  page: {statistics.median(sizes.values()) / 1e3:.0f} kB median;", end=" ")
    largest = sorted(((size, path) for path, size in sizes.items()), reverse=True)[:4]
    named = (f"{path.relative_to(out)} {size / 1e3:.0f} kB" for size, path in largest)
    print(f"the largest: {', '.join(named)}")
    print(f"  search: {index / 1e6:.1f} MB; {first_search(out, word)}")


def timed_build(root: Path, out: Path, cold: bool = False) -> tuple[int, float, float]:
    """Pages, seconds, and CPU seconds of all processes."""
    if cold:
        # Moved, not deleted: for minutes after files were deleted, ext4 is slow to create others.
        for folder in filter(Path.exists, (root / ".kbtool", out)):
            folder.rename(tempfile.mkdtemp(dir=out.parent))
    used = _processor_time()
    built = build(root, out, date.today())
    return built.pages, built.seconds, _processor_time() - used


def _shown(builds: list[tuple[int, float, float]]) -> str:
    seconds, used = (statistics.median(one[place] for one in builds) for place in (1, 2))
    return f"{seconds:.1f} s ({used:.1f} s CPU)"


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


def change_one_record(root: Path, out: Path) -> None:
    """Change a record in the middle: build, then serve, and ask for every page that it changed."""
    files = sorted((root / "sessions").glob("*/session.yaml"))
    record = files[len(files) // 2]
    old = record.read_text(encoding="utf-8")
    builds, rounds = [], []
    before = _pages(out)
    for number in range(ROUNDS):
        record.write_text(_edited(old, number), encoding="utf-8")
        builds.append(timed_build(root, out))
        rounds.append(_pages(out))
    record.write_text(old, encoding="utf-8")
    timed_build(root, out)
    print(f"  with one record changed {_shown(builds)}", flush=True)
    changed = [path for path in before if len({before[path], *(one[path] for one in rounds)}) > 1]
    alone: dict[str, list[float]] = {path: [] for path in changed}
    every = []
    with served(root) as (address, started):
        time.sleep(SETTLE)
        _wait(address, {path: before[path] for path in changed})
        for path, now in itertools.product([*changed, None], rounds):
            wanted = {path: now[path]} if path else {one: now[one] for one in changed}
            record.write_text(_edited(old, rounds.index(now)), encoding="utf-8")
            last = max(_wait(address, wanted).values())
            (alone[path] if path else every).append(last)
            _wait(address, {one: now[one] for one in changed})
    record.write_text(old, encoding="utf-8")
    times = {path: statistics.median(found) for path, found in alone.items()}
    slowest = max(times, key=lambda path: times[path])
    print(
        f"  serve: the first page after {started:.1f} s; a change is on a page that is asked for"
        f" after {statistics.median(times.values()):.1f} s (median of {len(times)} pages), on the"
        f" home page after {times['index.html']:.1f} s, on the slowest, {slowest}, after"
        f" {times[slowest]:.1f} s, on all after {statistics.median(every):.1f} s"
    )


def _edited(record: str, number: int) -> str:
    """The record with another title, cost and loss, for many pages to show."""
    text = re.sub("^title: .*", f"title: Changed for the {number + 1}. time", record, flags=re.M)
    text = text.replace("kind: gpu, amount: ", f"kind: gpu, amount: {number + 1}", 1)
    return text.replace("minutes_lost: ", f"minutes_lost: {number + 1}", 1)


def _pages(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.html")}


@contextmanager
def served(root: Path) -> Iterator[tuple[str, float]]:
    """The address of a server, and how many seconds it took to the first page."""
    port = free_port(HOST, 0)
    command = [sys.executable, "-m", "kbtool", "--root", root, "site", "serve", "--port", str(port)]
    start = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        address = f"http://{HOST}:{port}"
        while _read(f"{address}/index.html") is None:
            time.sleep(PAUSE)
        yield address, time.perf_counter() - start
        server.send_signal(signal.SIGINT)


def _wait(address: str, pages: Mapping[str, bytes]) -> dict[str, float]:
    """Page → the seconds from now until it is as expected, all asked for again and again."""
    start = time.perf_counter()
    found: dict[str, float] = {}
    while len(found) < len(pages):
        for path in pages.keys() - found.keys():
            if _read(f"{address}/{path}") == pages[path]:
                found[path] = time.perf_counter() - start
        if time.perf_counter() - start > 120:
            sys.exit(f"never shown: {', '.join(pages.keys() - found.keys())}")
        time.sleep(PAUSE)
    return found


def _read(url: str) -> bytes | None:
    """A page without the script that reloads it."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            content: bytes = answer.read()
    except OSError:
        return None
    script = content.rfind(b"<script>\nvar livereload")
    return content[:script] + content[content.rfind(b"</body>") :] if script > 0 else content


def _processor_time() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    sizes = [int(argument) for argument in sys.argv[1:]] or [1000]
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
            change_one_record(root, Path(folder) / f"{sessions}-site")


if __name__ == "__main__":
    main()
