"""Write to one knowledge base from many processes and read it all the while.

    python -m soak.writers                          20 processes for a minute
    python -m soak.writers --processes 8 --seconds 10 --seed 1

Every process runs commands, drawn from the seed: some write (``session new``, ``note``, ``cost``,
``bug``, ``fix``, ``pause``, ``resume`` and ``run-recipe``), some read. Each command runs in a
process of its own. Asked afterwards and all the while:

- no command ends in an error; only ``pause`` and ``resume`` may find that another was quicker,
- whatever a command said that it wrote is there once at the end, and nothing else is,
- what a reader tells holds everything that was written before it began,
- ``check`` finds nothing, and no temporary file or journal is left.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from kbtool.cli.main import COMMANDS, run
from kbtool.model.session import Session
from kbtool.store.tree import KnowledgeBase

BASE = Path(__file__).parent / "base"
IN_BASE = {"costs": 50, "show": 0, "list": 5}
"""What readers count before anything is written: cents, bugs, and sessions with the shared ones."""
SHARED = ("first", "second")
"""Labels of the sessions that every process writes to."""
CENT = Decimal("0.01")
WRITERS = ("note", "cost", "bug", "fix", "new", "pause", "resume", "run")
READERS = ("check", "costs", "show", "list", "audit", "status")


@dataclass(frozen=True)
class Event:
    """A command that a process ran."""

    what: str
    name: str
    """A text of its own, which the record then holds; empty if it only reads."""
    session: str
    began: float
    ended: float
    status: int
    told: int | None
    """How many facts a reader told; ``None`` for other commands."""
    message: str


class Process:
    """Draws commands and runs them until the time is up.

    Args:
        root: the knowledge base.
        number: of this process.
        seed: with the number, the seed of its draws.
    """

    def __init__(self, root: Path, number: int, seed: int) -> None:
        self._root, self._number = root, number
        self._random = random.Random(f"{seed}/{number}")
        self._bugs: list[str] = []

    def run(self, until: float, log: Path) -> None:
        """Run commands until then, and write what they did to ``log``, a line each."""
        with log.open("w") as file:
            count = 0
            while time.monotonic() < until:
                count += 1
                event = self._one(f"{self._number}x{count}y")
                file.write(json.dumps(asdict(event)) + "\n")

    def _one(self, name: str) -> Event:
        session = self._random.choice(SHARED)
        what = self._random.choice(self._random.choice((WRITERS, READERS)))
        if what == "fix" and not self._bugs:
            what = "bug"
        command, read = self._command(what, name, session)
        began = time.monotonic()
        status, out, error = _called(["--root", str(self._root), *command])
        ended = time.monotonic()
        if what == "bug" and status == 0:
            self._bugs.append(f"{session}#bugs.fault-{name}")
        told = read(json.loads(out)) if read and status == 0 else None
        written = name if what in {"note", "cost", "bug", "fix", "new", "run"} else ""
        message = (error + (out if what == "check" else "")).strip()
        return Event(what, written, session, began, ended, status, told, message)

    def _command(
        self, what: str, name: str, session: str
    ) -> tuple[list[str], Callable[[Any], int] | None]:
        """The words of a command, and how to count the facts in its JSON."""
        there = ["--session", session]
        match what:
            case "note":
                return ["session", "note", f"note-{name}", *there], None
            case "cost":
                cost = ["session", "cost", "gpu", str(CENT), "--basis", "billed"]
                return [*cost, "--note", f"cost-{name}", *there], None
            case "bug":
                return ["session", "bug", f"Fault {name}", "--id", f"fault-{name}", *there], None
            case "fix":
                bug = self._bugs.pop(self._random.randrange(len(self._bugs)))
                fix = ["session", "fix", bug, f"fix-{name}", "--commit", "none"]
                return [*fix, "--session", bug.partition("#")[0]], None
            case "new":
                return ["session", "new", f"Made {name}", "--label", f"made-{name}"], None
            case "pause" | "resume":
                return ["session", what, "third"], None
            case "run":
                return ["run-recipe", "hello", *there, "--json"], None
            case "check":
                return ["check", "--json"], lambda told: len(told["findings"])
            case "costs":
                return ["costs", "--by", "kind", "--currency", "USD", "--json"], _cents
            case "show":
                return ["session", "show", session, "--json"], lambda told: len(told["bugs"])
            case "list":
                return ["session", "list", "--json"], lambda told: len(told["sessions"])
            case "audit":
                return ["audit", "--json"], None
            case _:
                return ["status", "--json"], None


def _cents(told: Any) -> int:
    """What GPU time cost, in cents, from the JSON of ``costs``."""
    return sum(int(Decimal(row["gpu"]) / CENT) for row in told["rows"] if row["key"] == "gpu")


def _called(words: list[str]) -> tuple[int, str, str]:
    """Run a command in a process of its own: its exit status and what it wrote."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        if not (child := os.fork()):
            _run_and_end(words, out.fileno(), error.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        error.seek(0)
        return status, out.read(), error.read()


def _run_and_end(words: list[str], out: int, error: int) -> NoReturn:
    status = 70
    try:
        os.dup2(out, 1)
        os.dup2(error, 2)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        status = run(words)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def written(root: Path, *, processes: int, seconds: float, seed: int) -> list[Event]:
    """The events of many processes on a copy of the base, made at ``root``."""
    shutil.copytree(BASE, root)
    for label in (*SHARED, "third"):
        status, _, error = _called(
            ["--root", str(root), "session", "new", f"Shared {label}", "--label", label]
        )
        assert status == 0, error
    for module in COMMANDS.values():
        importlib.import_module(module)  # once, before the forks
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, str(number)) for number in range(processes)]
        until = time.monotonic() + seconds
        children = []
        for number, log in enumerate(logs):
            if not (child := os.fork()):
                failed = True
                try:
                    Process(root, number, seed).run(until, log)
                    failed = False
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(failed)
            children.append(child)
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert not any(ends), "a process of the soak itself failed"
        lines = (line for log in logs for line in log.read_text().splitlines())
        return [Event(**json.loads(line)) for line in lines]


def faults(root: Path, events: list[Event]) -> list[str]:
    """What is wrong with the answers of the commands and with what they left."""
    return [*_wrong_ends(events), *_told_too_little(events), *_lost(root, events), *_left(root)]


def kept(root: Path, events: list[Event], found: list[str]) -> str:
    """The faults in full, after a copy of the base and of all events was put where it stays."""
    folder = Path(tempfile.mkdtemp(prefix="kbtool-soak-fault-"))
    shutil.copytree(root, folder / "base", symlinks=True)
    lines = (json.dumps(asdict(event)) for event in sorted(events, key=lambda one: one.began))
    (folder / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return "\n".join([*found, f"the base and what each command said are in {folder}"])


def _wrong_ends(events: list[Event]) -> Iterator[str]:
    for one in events:
        if one.status != ALLOWED.get(one.what, 0) and one.status != 0:
            yield f"{one.what} ends with {one.status}: {one.message}"
        if one.what == "check" and one.told:
            yield f"check finds {one.told} problems while others write: {one.message}"


ALLOWED = {"audit": 1, "pause": 2, "resume": 2}
"""Other exit statuses: the base has a wrong claim, and another process may have been quicker."""
COUNTED = {"costs": "cost", "show": "bug", "list": "new"}
"""Reader → the writer whose facts it counts."""


def _told_too_little(events: list[Event]) -> Iterator[str]:
    """Readers that did not tell what had been written before they began, or told of more."""
    for reader in events:
        if reader.what not in COUNTED or reader.told is None:
            continue
        same = [
            one
            for one in events
            if (one.what == COUNTED[reader.what] and reader.what in {"costs", "list"})
            or ((one.what, one.session) == ("bug", reader.session) and reader.what == "show")
        ]  # fmt: skip
        least = sum(one.status == 0 and one.ended < reader.began for one in same)
        most = sum(one.began < reader.ended for one in same)
        told = reader.told - IN_BASE[reader.what]
        if not least <= told <= most:
            yield f"{reader.what} tells of {told} facts, when {least} to {most} were written"


def _lost(root: Path, events: list[Event]) -> Iterator[str]:
    """Facts that were written and are not there once."""
    sessions = [entry.record for entry in KnowledgeBase(root).sessions.values()]
    said = Counter(re.findall(r"\b(?:note|cost|fix|made|fault)-\w+y\b", _facts(root, sessions)))
    prefix = {"bug": "fault", "new": "made"}
    for one in events:
        if one.name and one.what != "run" and one.status == 0:
            key = f"{prefix.get(one.what, one.what)}-{one.name}"
            if said[key] != 1:
                yield f"{key} was written and is there {said[key]} times"
    runs = len(list(root.glob("sessions/*/runs/*-hello-*.json")))
    made = sum(one.what == "run" and one.status == 0 for one in events)
    if runs != made:
        yield f"{made} runs were made and {runs} are there"


def _facts(root: Path, sessions: list[Session]) -> str:
    """The facts that the commands write, each once."""
    texts = [path.read_text() for path in root.glob("sessions/*/notes.md")]
    for session in sessions:
        texts.append(str(session.label))
        texts += [str(cost.note) for cost in session.costs]
        texts += [bug.id for bug in session.bugs]
        texts += [fix.change for fix in session.fixes]
    return "\n".join(texts)


def _left(root: Path) -> Iterator[str]:
    status, out, error = _called(["--root", str(root), "check"])
    if status:
        yield f"check ends with {status} at the end: {(out + error).strip()}"
    for path in (*root.rglob(".*.tmp"), *root.rglob("*.journal")):
        yield f"{path.relative_to(root)} is left"


def main() -> int:
    """Run the processes; 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"{options.processes} processes, {options.seconds:g} s, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kbtool-soak-") as folder:
        root = Path(folder, "base")
        events = written(root, **vars(options))
        every = faults(root, events)
        if every:
            print(kept(root, events, every))
        found = Counter(re.sub(r"[0-9]+", "0", fault)[:300] for fault in every)
    ran = Counter(event.what for event in events if event.status == 0)
    print(f"{len(events):,} commands: " + ", ".join(f"{n:,} {what}" for what, n in ran.items()))
    for fault, times in found.most_common():
        print(f"{times:6,} {fault}")
    print("no fault" if not found else f"{found.total():,} faults of {len(found)} kinds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
