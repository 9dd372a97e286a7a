"""Run a sweep of cheap cells and kill cells, engines' jobs and kbtool itself, at random.

    python -m soak.sweeps                     1,000 cells on submitit's local executor
    python -m soak.sweeps --cells 60          so many
    python -m soak.sweeps --on here           on another engine
    python -m soak.sweeps --on ssh            on two hosts, whose connections break as well

Whatever was killed, at the end

- every cell has passed, and names a run that has its parameters,
- no run counts for two cells or for two attempts, and no run is there that counts for none,
- what a cell's program wrote down agrees: it ran at least as often as runs say,
- ``check`` finds nothing.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kbtool.model.sweep import Sweep
from kbtool.store.sweeps import open_sweep
from soak.hosts import Hosts, hosts

_PATTERN = """\
# yaml-language-server: $schema=../schemas/pattern.json
id: P01
number: 1
title: Something cheap
summary: It takes no time.
stated_status: operational
problem: Cells are many.
solution: Let each take no time.
when_to_use: [always]
when_not: [never]
recipes:
  - name: cheap
    title: Something cheap
    parameters:
      n: {type: int, default: "1", help: a number}
    steps:
      - id: work
        kind: command
        title: Work on it
        expected: 1 s
        timeout: 60 s
        run: [python3, work.py, "${n}"]
"""
_WORK = """\
import os, sys
with open(os.environ["SOAK_TOLD"], "a") as told:
    told.write(sys.argv[1] + "\\n")
"""


def sweep(folder: Path, path: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A kbtool that drives a sweep, in a session of its own."""
    with (folder / "kbtool.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "kbtool", "--root", str(folder / "base"), "sweep", *arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "PATH": path, "TMPDIR": str(folder),
                 "SOAK_TOLD": str(folder / "told")},
        )  # fmt: skip


def jobs(base: Path) -> list[int]:
    """Processes of cells: kbtool's own for them, submitit's, and the recipes'."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            of_cell = "kbtool.sweeps.cell" in command or "submitit" in command
            if str(base.parent) in command and (of_cell or "run-recipe" in command):
                found.append(int(path.parent.name))
    return found


def soak(
    folder: Path, cells: int, engine: str, at_once: int, draw: random.Random, over_ssh: Hosts | None
) -> int:
    """Run it; the number of kills."""
    path = (over_ssh.environment if over_ssh else os.environ)["PATH"]
    base = folder / "base"
    for name in ("sessions", "patterns", "kernels"):
        (base / name).mkdir(parents=True)
    (base / "patterns" / "P01.yaml").write_text(_PATTERN)
    (base / "work.py").write_text(_WORK)
    numbers = ",".join(map(str, range(1, cells + 1)))
    begun = ["cheap", "--over", f"n={numbers}", "--on", engine, "--jobs", str(at_once)]
    killed: collections.Counter[str] = collections.Counter()
    driver, began = sweep(folder, path, *begun), time.monotonic()
    try:
        while True:
            time.sleep(draw.uniform(0.3, 1.5))
            code = driver.poll()
            record = _record(base)
            if code is not None:
                if record is not None and record.counts.get("passed") == cells:
                    break
                # 3: all connections were cut before one stood.
                if code not in (0, 1, 4, -signal.SIGKILL, *([3] if over_ssh else [])):
                    raise AssertionError(f"kbtool ended with {code}: {_tail(folder)}")
                started = begun if record is None else ["attach", "last"]
                is_over = record is not None and record.status != "running"
                driver = sweep(folder, path, *(["resume", "last"] if is_over else started))
                continue
            if draw.random() < 0.04:
                os.kill(driver.pid, signal.SIGKILL)
                killed["kbtool"] += 1
            elif (there := jobs(base)) and draw.random() < 0.2:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(draw.choice(there), signal.SIGKILL)
                    killed["a cell's process"] += 1
            elif over_ssh and draw.random() < 0.1:
                host = draw.choice(list(over_ssh.servers))
                killed["connections"] += over_ssh.cut(host)
                if draw.random() < 0.2:
                    over_ssh.stop(host)
                    killed["servers"] += 1
                    time.sleep(draw.uniform(0, 5))
                    over_ssh.start(host)
            done = record.counts.get("passed", 0) if record else 0
            print(f"\r{done} of {cells} cells, killed {dict(killed)}", end="", flush=True)
    finally:
        driver.kill()
        for process in jobs(base):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    print(f"\n{cells} cells in {time.monotonic() - began:.0f} s")
    return sum(killed.values())


def verify(folder: Path) -> dict[str, int]:
    """Hold what the sweep says against its runs and against what the programs wrote.

    Raises:
        AssertionError: something was lost, counted twice, or shown as run that was not.
    """
    base = folder / "base"
    record = _record(base)
    assert record is not None
    runs = {path.stem: json.loads(path.read_text()) for path in base.glob("sessions/*/runs/*.json")}
    told = collections.Counter((folder / "told").read_text().split())
    own = collections.Counter(one.run for one in record.attempts if one.run)
    assert set(own) == set(runs), "a run counts for no attempt, or an attempt has none"
    assert not [run for run, times in own.items() if times > 1], "a run counts twice"
    passed = collections.Counter[str]()
    for cell in record.cells:
        assert cell.status == "passed" and cell.run is not None, f"cell {cell.id}: {cell.status}"
        run = runs[cell.run]
        assert (run["status"], run["parameters"]) == ("passed", cell.parameters), cell.id
    for run in runs.values():
        passed[run["parameters"]["n"]] += run["status"] == "passed"
    for number, times in passed.items():
        assert times == 1, f"n={number} passed {times} times"
        assert told[number] >= times, f"n={number} never ran"
    check = [sys.executable, "-m", "kbtool", "--root", str(base), "check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return {
        "cells": len(record.cells), "attempts": len(record.attempts), "runs": len(runs),
        "programs that ran": sum(told.values()),
    }  # fmt: skip


def _record(base: Path) -> Sweep | None:
    paths = sorted(base.glob("sessions/*/sweeps/[!.]*.json"))
    return open_sweep(paths[-1].read_bytes()) if paths else None


def _tail(folder: Path) -> str:
    return (folder / "kbtool.log").read_text()[-2000:]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--on", default="submitit", choices=("here", "submitit", "ssh"))
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory(prefix="kbtool-soak-") as folder:
        draw = random.Random(given.seed)
        engine, over_ssh, told = given.on, None, str(Path(folder) / "told")
        with contextlib.ExitStack() as stack:
            if engine == "ssh":
                at = hosts(Path(folder) / "hosts", "node-a", "node-b", SOAK_TOLD=told)
                over_ssh = stack.enter_context(at)
                each = max(1, given.jobs // 2)
                engine = f"ssh:node-a={each},node-b={each}"
            kills = soak(Path(folder), given.cells, engine, given.jobs, draw, over_ssh)
        print(f"{kills} processes killed:", verify(Path(folder)))


if __name__ == "__main__":
    main()
