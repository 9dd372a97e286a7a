"""How long ``kbtool --help`` and a completion by the shell take, beside an empty click program, and
how long ``kbtool doctor``.

    python benchmarks/bench_startup.py

All but the last take turns, so that other load on the machine affects both. Watch the ratio of the
medians; seconds differ from machine to machine. `kbtool doctor` has to end within 5 s, cold too:
before each cold run torch's files are dropped from memory.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from timed import timed

EMPTY = """
import click
@click.group()
def cli(): "An empty program."
cli(["--help"])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=20)
    repeat = parser.parse_args().repeat
    programs = {
        "empty click program": ["-c", EMPTY],
        "kbtool --help": ["-m", "kbtool", "--help"],
        "kbtool costs --help": ["-m", "kbtool", "costs", "--help"],
        "kbtool run-recipe <Tab>": ["-m", "kbtool"],
        "kbtool session fix <Tab>": ["-m", "kbtool"],
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(repeat + 1):
        for name, arguments in programs.items():
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, *arguments], check=True, capture_output=True, env=completing(name)
            )
            if turn:  # the first fills the page cache
                times[name].append(time.perf_counter() - start)
    base = statistics.median(times["empty click program"])
    print(f"{'':24}median ms     min–max ms   ratio")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        spread = f"{1e3 * min(seconds):.0f}–{1e3 * max(seconds):.0f}"
        print(f"{name:24}{1e3 * median:9.0f}  {spread:>13}  {median / base:6.2f}")
    for name, is_cold in (("kbtool doctor", False), ("kbtool doctor, cold", True)):
        seconds = [doctor(is_cold) for _ in range(5)]
        spread = f"{1e3 * min(seconds):.0f}–{1e3 * max(seconds):.0f}"
        print(f"{name:24}{1e3 * statistics.median(seconds):9.0f}  {spread:>13}")
    print(f"kbtool doctor: {timed([sys.executable, '-m', 'kbtool', 'doctor'], 5)}")


def completing(line: str) -> dict[str, str]:
    """The environment in which a shell asks for what comes at the end of a line."""
    if not line.endswith("<Tab>"):
        return {**os.environ}
    words = line.removesuffix("<Tab>")
    place = str(len(words.split()))
    return {**os.environ, "_KBTOOL_COMPLETE": "bash_complete", "COMP_WORDS": words,
            "COMP_CWORD": place}  # fmt: skip


def doctor(is_cold: bool) -> float:
    """Seconds that `kbtool doctor` takes; cold: with no file of torch in memory."""
    found = importlib.util.find_spec("torch")
    for path in Path(found.origin).parent.rglob("*") if is_cold and found and found.origin else ():
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "kbtool", "doctor"], check=False, capture_output=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
