"""Break every file operation of every writing command once, and look at what is left.

    python -m soak.crashes                    every operation: killed, and answered with 3 errors
    python -m soak.crashes --draw 60          so many of them, drawn
    python -m soak.crashes --only "session"   those of commands whose name holds the text

A command runs on a copy of ``soak/base``. One of its file operations below the base (open for
writing, write, fsync, rename, link, unlink, mkdir, ...) kills it, a write after half of its bytes,
or fails with ENOSPC, EIO or EACCES; ``faults.c`` does that. Afterwards

- every file of a record is as it was before, or as the whole command leaves it,
- if the command said that it succeeded, all of them are as it leaves them,
- ``check`` finds nothing, at the latest after one ``recover``, and after ``migrate`` was run again
  if it was broken,
- an error has an exit status and a message of its own, and leaves no temporary file.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kbtool.store.cache import SETTLED_NS

BASE = Path(__file__).parent / "base"
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)
KILL = 0
HANGS = 300
"""Seconds after which a command counts as one that hangs."""

Command = tuple[str, ...]

_LOG = Path(__file__).parents[1] / "tests" / "fixtures" / "logs" / "bullets.md"

_RESULTS = _LOG.parents[1] / "results" / "google-benchmark.json"

WRITING: dict[str, tuple[Command, ...]] = {
    "init": (("init", "{root}/new"),),
    "session new": (("session", "new", "A new thing", "--at", "2025-01-05T09:00Z"),),
    "session start": (
        ("session", "new", "Later", "--planned"),
        ("session", "start", "{session}"),
    ),
    "session note": (
        ("session", "new", "Now"), ("session", "note", "seen", "--session", "{session}"),
    ),
    "session cost": (
        ("session", "new", "Then", "--at", "2025-01-05T09:00Z"),
        ("session", "cost", "gpu", "--rate", "l4", "--session", "{session}"),
    ),
    "session bug": (
        ("session", "new", "Now"), ("session", "bug", "A fault", "--session", "{session}"),
    ),
    "session fix": (
        ("session", "new", "Now"), ("session", "bug", "A fault", "--session", "{session}"),
        ("session", "fix", "a-fault", "a change", "--commit", "none", "--session", "{session}"),
    ),
    "session hypothesis": (
        ("session", "new", "Now"), ("session", "bug", "A fault"),
        ("session", "hypothesis", "last", "a cause", "--session", "{session}"),
    ),
    "session measurement": (
        ("session", "new", "Now"),
        ("session", "measurement", "Latency", "ours=12.5us", "--session", "{session}"),
    ),
    "session decision": (
        ("session", "new", "Now"), ("session", "decision", "Keep?", "no", "--or", "yes"),
    ),
    "session evidence": (
        ("session", "new", "Now"),
        ("session", "evidence", "P01", "applied", "it helped", "--session", "{session}"),
    ),
    "session plan": (("session", "new", "Now"), ("session", "plan", "Go on", "--step", "Go=1 h")),
    "session step": (("session", "new", "Now"), ("session", "step", "Build", "--actual", "5 min")),
    "session lesson": (("session", "new", "Now"), ("session", "lesson", "Look first.")),
    "session add": (
        ("session", "new", "Now"), ("session", "add", "note seen", "bug Wrong", "lesson Look."),
    ),
    "session pause": (("session", "new", "Now"), ("session", "pause", "{session}")),
    "session resume": (
        ("session", "new", "Now"), ("session", "pause", "{session}"),
        ("session", "resume", "{session}"),
    ),
    "session close": (("session", "new", "Now"), ("session", "close", "{session}")),
    "session import": (("session", "import", "{elsewhere}", "--new", "From elsewhere"),),
    "import": (("import", str(_LOG)),),
    "import-results": (("import-results", str(_RESULTS)),),
    "run-recipe": (("run-recipe", "hello"),),
    "recover": (("recover",),),
    "forget": (("forget", "look", "--reason", "not needed"),),
    "migrate": (("migrate",),),
    "kernel new": (("kernel", "new", "softcap", "--like", "cuda"),),
    "schema": (("schema",),),
    "export jsonl": (("export", "jsonl", "--output", "{root}/lines.jsonl"),),
    "check": (("check",),),
    "costs": (("costs", "--currency", "USD"),),
    "status": (("status",),),
    "site build": (("site", "build"),),
}  # fmt: skip
"""Command → the commands before it, and it. ``{session}`` is the newest session."""

CACHING = {"check", "costs", "status"}
"""Commands that write caches only: of files that have been as they are for two seconds."""

READING = {
    "session edit": "writes once the editor has ended, as session note does",
    "completion": "reads nothing of the knowledge base",
    "recipes": "reads only", "session list": "reads only", "session show": "reads only",
    "compare": "with --measure it writes as run-recipe and session import do",
    "bisect": "writes as compare --measure does",
    "fastest": "reads only",
    "history": "reads only", "audit": "writes the caches that costs writes",
    "keep-or-stop": "reads only", "patterns": "reads only",
    **dict.fromkeys(
        ("sweep run", "sweep attach", "sweep pause", "sweep stop", "sweep resume"),
        "broken by soak.sweeps; its runs are written as those of session import",
    ),
    "sweep list": "reads only", "sweep show": "reads only",
    "explain": "reads only", "search": "reads only", "doctor": "reads only",
    "mcp": "its tools write as session note, bug and fix, and run-recipe do",
    "export beancount": "writes as export jsonl does",
    "export corpus": "writes as export jsonl does", "export focus": "writes as export jsonl does",
    "export runs": "writes as export jsonl does",
    "export mlflow": "writes to MLflow's store only, which is no record",
    "export parquet": "writes as export jsonl does", "site serve": "does not end",
    "kernel compile": "writes to the build cache only, which is no record",
}  # fmt: skip
"""Commands that are not broken here, and why."""


class Point(NamedTuple):
    """One operation of a command, and what happens at it."""

    command: str
    number: int
    """The operation, from 1."""
    error: int
    """Its error; ``KILL`` kills the process."""

    @property
    def name(self) -> str:
        """What reports call it."""
        what = "killed" if self.error == KILL else errno.errorcode[self.error]
        return f"{self.command}, operation {self.number} {what}"


class _Start(NamedTuple):
    """Where a command starts from, and what it leaves."""

    root: Path
    command: Command
    before: dict[str, str]
    after: dict[str, str]
    operations: int


class Soak:
    """Breaks commands, each on a copy of the base that it starts from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library = folder / "faults.so"
        source = Path(__file__).parent / "faults.c"
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", "-o", self._library, source, "-ldl"], check=True
        )
        self._starts: dict[str, _Start] = {}

    def start(self, command: str) -> _Start:
        """Where a command starts from and what it leaves; made once."""
        if command not in self._starts:
            root = self._folder / command.replace(" ", "-")
            shutil.copytree(BASE, root)
            *earlier, last = WRITING[command]
            for one in earlier:
                _must(_kbtool(root, self._filled(one, root)))
            if command == "recover":
                self._leave_a_journal(root)
            if command == "migrate":
                _make_older(root)
            before = snapshot(root)
            with self._copy(command, root) as copy:
                done, operations = self._broken(copy, self._filled(last, copy), 0, KILL)
                _must(done)
                _must(_kbtool(copy, ("check",)))
                if not operations:
                    raise AssertionError(f"{command} writes nothing, so nothing of it is broken")
                self._starts[command] = _Start(root, last, before, snapshot(copy), operations)
        return self._starts[command]

    def faults(self, point: Point) -> list[str]:
        """What is wrong after a command was broken there."""
        start = self.start(point.command)
        with self._copy(point.command, start.root) as root:
            command = self._filled(start.command, root)
            try:
                done, _ = self._broken(root, command, point.number, point.error)
            except subprocess.TimeoutExpired:
                return [f"it has not ended after {HANGS} s"]
            now = snapshot(root)
            found = [
                f"{path} is neither as before nor as after"
                for path in sorted(now.keys() | start.before.keys())
                if now.get(path) not in {start.before.get(path), start.after.get(path)}
            ]
            if done.returncode == 0 and now != start.after:
                found.append("it says that it succeeded, and its records are not there")
            if point.error != KILL:
                found += _faults_of_answer(done, start.root, root)
            if point.command == "migrate":
                _kbtool(root, ("migrate",))
            if not _is_sound(root):
                _kbtool(root, ("recover",))
                if not _is_sound(root):
                    checked = _kbtool(root, ("check",))
                    found.append(f"check: {(checked.stdout + checked.stderr).strip()[:300]}")
        return found

    def _broken(
        self, root: Path, command: Command, number: int, error: int
    ) -> tuple[subprocess.CompletedProcess[str], int]:
        """Run a command with one operation broken; with it, how many operations it came to."""
        with tempfile.NamedTemporaryFile(dir=self._folder) as counter:
            counter.write(bytes(8))
            counter.flush()
            done = _kbtool(
                root, command, LD_PRELOAD=str(self._library), SOAK_ROOT=str(root),
                SOAK_COUNTER=counter.name, SOAK_AT=str(number), SOAK_ERRNO=str(error),
            )  # fmt: skip
            return done, int.from_bytes(Path(counter.name).read_bytes(), sys.byteorder)

    def _filled(self, command: Command, root: Path) -> Command:
        """The command with its places filled in."""
        sessions = sorted((root / "sessions").glob("*/session.yaml"), key=os.path.getmtime)
        places = {"root": str(root), "session": sessions[-1].parent.name}
        if any("{elsewhere}" in word for word in command):
            places["elsewhere"] = str(self._elsewhere())
        return tuple(word.format(**places) for word in command)

    def _elsewhere(self) -> Path:
        """A knowledge base with a run that the others do not have; made once."""
        root = self._folder / "elsewhere"
        if not root.exists():
            shutil.copytree(BASE, root)
            _must(_kbtool(root, ("run-recipe", "hello")))
            shutil.rmtree(root / "sessions" / "2025-01-02-b")
        return root

    def _leave_a_journal(self, root: Path) -> None:
        for number in range(1, 1000):
            # Each on a copy: the next run would go into the session that a killed one has made.
            with self._copy("recover", root) as copy:
                self._broken(copy, ("run-recipe", "hello"), number, KILL)
                if list(copy.glob("sessions/*/runs/.*.journal")):
                    shutil.rmtree(root)
                    shutil.copytree(copy, root)
                    return
        raise AssertionError("no kill leaves a journal")

    @contextmanager
    def _copy(self, command: str, root: Path) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            copy = Path(shutil.copytree(root, Path(folder, "base")))
            if command in CACHING:
                time.sleep(SETTLED_NS / 1e9 + 0.1)
            yield copy


def _make_older(root: Path) -> None:
    """Give three files what they had in the first format, which has no ``kbtool.yaml``."""
    ledger = root / "sessions" / "ledger.yaml"
    ledger.write_text(ledger.read_text().replace("day:", "on:"))
    cheats = root / "kernels" / "add" / "cheats.yaml"
    cheats.write_text(cheats.read_text().partition("\n")[2])
    harness = root / "kernels" / "add" / "harness.py"
    harness.write_text(f"{harness.read_text()}\n\ndef terms(inputs):\n    return {{}}\n")


def snapshot(root: Path) -> dict[str, str]:
    """What records, schemas and exports say, without times and what is drawn: path → content.

    Of a run that is its recipe, its status and its session.
    """
    found = {}
    for path in sorted(root.rglob("*")):
        shown = path.relative_to(root).as_posix()
        if any(part[0] == "." for part in shown.split("/")) or shown.startswith("site/"):
            continue
        if path.is_file():
            text = path.read_text(errors="replace")
            if path.suffix == ".json" and path.parent.name == "runs":
                text = " ".join(re.findall(r'"(?:recipe|status|session)": "[^"]*"', text))
            found[_undrawn(shown)] = _undrawn(text)
    return found


def _undrawn(text: str) -> str:
    return re.sub(r"[0-9]+", "0", re.sub(r"\b[0-9a-f]{4,}\b", "0", text))


def _kbtool(root: Path, command: Command, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kbtool", "--root", str(root), *command],
        cwd=root, env={**os.environ, **environment}, capture_output=True, text=True, timeout=HANGS,
    )  # fmt: skip


def _must(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        said = done.stdout + done.stderr
        raise AssertionError(f"{done.args[5:]} ends with {done.returncode}: {said}")


def _is_sound(root: Path) -> bool:
    return _kbtool(root, ("check",)).returncode == 0


def _faults_of_answer(
    done: subprocess.CompletedProcess[str], before: Path, root: Path
) -> Iterator[str]:
    if done.returncode == 70 or done.returncode < 0 or "Traceback" in done.stderr:
        said = done.stderr.strip().splitlines()[-3:]
        yield f"it ends with {done.returncode}: {' '.join(said)[:300]}"
    if done.returncode != 0 and not done.stderr.strip():
        yield f"it ends with {done.returncode} and says nothing"
    there = {path.name for path in before.rglob(".*.tmp")}
    left = [path.name for path in root.rglob(".*.tmp") if path.name not in there]
    if left and done.returncode != 0:  # else removing it is what failed
        yield f"it leaves {left[0]}"


def points(soak: Soak, commands: Sequence[str]) -> list[Point]:
    """Every operation of these commands, with everything that may happen at it."""
    return [
        Point(command, number, error)
        for command in commands
        for number in range(1, soak.start(command).operations + 1)
        for error in (KILL, *ERRORS)
    ]


def main() -> int:
    """Break the operations that were asked for; 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draw", type=int, metavar="N", help="break so many, drawn")
    parser.add_argument("--only", default="", metavar="TEXT", help="of commands that hold the text")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    commands = [name for name in WRITING if options.only in name]
    began, faulty = time.monotonic(), 0
    kinds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="kbtool-soak-") as folder:
        soak = Soak(Path(folder))
        every = points(soak, commands)
        random.Random(options.seed).shuffle(every)
        chosen = every[: options.draw]
        print(
            f"{len(chosen):,} points of {len(commands)} commands, seed {options.seed}", flush=True
        )
        with ThreadPoolExecutor(options.processes) as pool:
            for point, faults in zip(chosen, pool.map(soak.faults, chosen), strict=True):
                faulty += bool(faults)
                for fault in faults:
                    kinds[f"{point.command}: {_undrawn(fault)[:100]}"] += 1
                    print(f"{point.name}\n  {fault}", flush=True)
    print(
        f"\n{len(chosen):,} points in {time.monotonic() - began:.0f} s; {faulty:,} with a fault,"
        f" of {len(kinds)} kinds"
    )
    for kind, count in kinds.most_common():
        print(f"{count:6,} {kind}")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
