"""How long a script takes to log 10,000 values: fails if the values took 2 s or more.

    python benchmarks/bench_log.py
    python benchmarks/bench_log.py --values 100000 --processes 10

Timed are the calls of ``log`` and the end of the ``with`` statement, which writes the record; its
beginning, which probes the machine, is printed apart. With every value on a case of its own, which
makes the largest record, and with all of them on one. With several processes each logs that many.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_S = 2.0
SCRIPT = """
import sys, time
import kbtool
values, cases = int(sys.argv[1]), int(sys.argv[2])
start = time.perf_counter()
with kbtool.session() as s:
    begun = time.perf_counter()
    for i in range(values):
        s.log("tokens/s", 1830 + i, unit="1/s", better="higher", case={"batch": i % cases})
ended = time.perf_counter()
print(begun - start, ended - begun)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--values", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kbtool-bench-") as folder:
        root = Path(folder, "base")
        for name in ("sessions", "patterns"):
            (root / name).mkdir(parents=True)
        script = Path(folder, "bench.py")
        script.write_text(SCRIPT)
        kbtool = [sys.executable, "-m", "kbtool", "--root", str(root)]
        subprocess.run([*kbtool, "session", "new", "Now"], check=True, capture_output=True)
        least = 0.0
        for cases in (options.values, 1):
            turns = [_logged(script, root, cases, options) for _ in range(options.repeat)]
            begin, took = min(turns, key=lambda turn: turn[1])
            least = max(least, took)
            print(f"{options.values:,} values on {cases:,} cases, {options.processes} processes:"
                  f" {took:.2f} s at least, {max(t for _, t in turns):.2f} s at most;"
                  f" {begin:.2f} s to begin")  # fmt: skip
    if options.values <= 10_000 and options.processes == 1 and least >= LIMIT_S:
        sys.exit(f"log took {least:.2f} s, not under {LIMIT_S} s")


def _logged(
    script: Path, root: Path, cases: int, options: argparse.Namespace
) -> tuple[float, float]:
    """Seconds that the slowest process took to begin, and to log and write."""
    command = [sys.executable, str(script), str(options.values), str(cases)]
    env = {**os.environ, "KBTOOL_ROOT": str(root)}
    started = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(options.processes)
    ]
    found = [process.communicate()[0].split() for process in started]
    return max(float(begin) for begin, _ in found), max(float(took) for _, took in found)


if __name__ == "__main__":
    main()
