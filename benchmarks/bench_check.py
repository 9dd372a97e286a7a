"""How long ``kbtool check`` takes, cold and warm, as whole processes, and how that grows.

    python benchmarks/bench_check.py
    python benchmarks/bench_check.py --sessions 1000 10000 --repeat 5

Cold: no cache. Warm: nothing has changed since the check before. Both are medians of the wall time
of the whole process; files are in the page cache, as they are after a checkout.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from generate import generate

SETTLE = 2.1
"""Seconds until the cache accepts a new file (kbtool.store.cache.SETTLED_NS)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, nargs="+", default=[1000, 3000, 10000])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {options.repeat} repeats\n")
    print("sessions   cold s  (min–max)      warm s  (min–max)      cold µs/session")
    costs = {}
    for sessions in options.sessions:
        with tempfile.TemporaryDirectory(prefix="kbtool-bench-") as folder:
            root = Path(folder)
            generate(root, sessions)
            time.sleep(SETTLE)
            cold = [_check(root, cold=True) for _ in range(options.repeat)]
            warm = [_check(root, cold=False) for _ in range(options.repeat)]
        costs[sessions] = statistics.median(cold)
        print(
            f"{sessions:8,}  {_spread(cold)}  {_spread(warm)}"
            f"  {1e6 * costs[sessions] / sessions:15.0f}"
        )
    least, most = min(costs), max(costs)
    if most > least:
        marginal = (costs[most] - costs[least]) / (most - least)
        print(f"\neach session beyond the first {least:,} costs {1e6 * marginal:.0f} µs cold")


def _check(root: Path, *, cold: bool) -> float:
    if cold:
        shutil.rmtree(root / ".kbtool", ignore_errors=True)
    command = [sys.executable, "-m", "kbtool", "--root", str(root), "check"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit(f"check found problems in a valid knowledge base:\n{done.stdout[:2000]}")
    return seconds


def _spread(times: list[float]) -> str:
    return f"{statistics.median(times):7.3f}  ({min(times):.3f}–{max(times):.3f})"


if __name__ == "__main__":
    main()
