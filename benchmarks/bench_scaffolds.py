"""From an empty environment to the first validated, timed and recorded run of each scaffold.

    python benchmarks/bench_scaffolds.py
    python benchmarks/bench_scaffolds.py --like cpu --like triton --torch torch

Builds the wheel, makes a virtual environment, installs the wheel with its extra for kernels, and
for each kind of scaffold makes a knowledge base and a kernel and runs its recipe: four commands.
Seconds are wall time, downloads included. A kind that this machine cannot run is named as such.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = ("cpu", "python", "cmake", "cuda", "triton")
MISSING = 3  # exit status of kbtool where the machine lacks something


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--like", action="append", choices=KINDS, help="a kind; repeatable")
    parser.add_argument("--torch", default="torch==2.13.0", help="what is installed of torch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kbtool-bench-") as name:
        folder = Path(name)
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        [wheel] = folder.glob("*.whl")
        venv.create(folder / "env", with_pip=True)
        python = str(folder / "env/bin/python")
        install = [python, "-m", "pip", "install", "--quiet", f"{wheel}[kernels]", options.torch]
        installed = seconds(install)[0]
        print(f"pip install: {installed:.0f} s")
        for kind in options.like or KINDS:
            base = folder / kind
            kbtool = [python, "-m", "kbtool", "--root", str(base)]
            made, _ = seconds([python, "-m", "kbtool", "init", str(base)])
            made += seconds([*kbtool, "kernel", "new", "softcap", "--like", kind])[0]
            run, status = seconds([*kbtool, "run-recipe", "softcap"], may_fail=True)
            total = installed + made + run
            if status == MISSING:
                print(f"{kind:7} cannot run here; init and kernel new took {made:.1f} s")
                continue
            [record] = base.glob("sessions/*/runs/*.json")
            outcome = json.loads(record.read_text())["status"]
            print(f"{kind:7} {made:5.1f} s to make, {run:5.1f} s to run ({outcome}): 4 commands,"
                  f" {total:.0f} s from the empty environment")  # fmt: skip


def seconds(command: list[str], *, may_fail: bool = False) -> tuple[float, int]:
    """How long ``command`` takes, and its exit status."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return time.perf_counter() - start, done.returncode


if __name__ == "__main__":
    main()
