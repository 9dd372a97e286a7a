"""Put hostile values into every field of every record, and run kbtool on what comes of it.

    python -m soak.fields                    every field with every value, over 100,000 mutants
    python -m soak.fields --draw 500         so many of them, drawn
    python -m soak.fields --only TEXT        those whose name holds the text
    python -m soak.fields --part 2/8         the second of eight parts of those of a seed
    python -m soak.fields --places 3         a field in so many of the places that it has, not one
    python -m soak.fields --accepted         also list the values that `check` lets pass, by field

A mutant is the small knowledge base in ``soak/base`` with one value replaced. ``check`` has to
answer with findings, and every command with an exit status of its own: an exception, more than two
CPU seconds, more than 1 GB of memory, or a control character on the terminal is a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from kbtool.model.cheat import Catalogue
from kbtool.model.excuses import Excuses
from kbtool.model.kernel import Kernel
from kbtool.model.ledger import Ledger
from kbtool.model.pattern import Pattern
from kbtool.model.run import Run, digest_of_record
from kbtool.model.session import Session
from kbtool.model.symptom import Symptoms
from kbtool.store.document import parse
from kbtool.store.dump import dump
from soak import once
from soak.values import FOR_THE_SITE, NUMBERS, SCALES, SHAPES, TEXTS, VALUES

BASE = Path(__file__).parent / "base"
SLOW = 2.0
"""CPU seconds of one command that count as a fault."""
HANGS = 30.0
"""Seconds after which the process with a mutant is killed: machines are shared."""
LARGE = 1 << 30
"""Bytes of memory that count as a fault."""

FILES: tuple[tuple[str, type[BaseModel]], ...] = (
    ("sessions/*/session.yaml", Session),
    ("sessions/*/runs/*.json", Run),
    ("sessions/ledger.yaml", Ledger),
    ("sessions/excuses.yaml", Excuses),
    ("patterns/*.yaml", Pattern),
    ("symptoms/*.yaml", Symptoms),
    ("kernels/*/kernel.yaml", Kernel),
    ("kernels/*/cheats.yaml", Catalogue),
)

_NOTHING = object()


class Place(NamedTuple):
    """A field of a record that a value is put into."""

    file: str
    """Relative to the base."""
    field: str
    """MODEL.FIELD."""
    location: tuple[str | int, ...]
    """Where it stands in the file; the last part is the field's key."""


class Mutant(NamedTuple):
    """One value in one place."""

    place: Place
    value: str
    """The name of the value."""

    @property
    def name(self) -> str:
        """What it is called in reports and by ``--only``."""
        return f"{self.place.file}:{'.'.join(map(str, self.place.location))}={self.value}"


class Outcome(NamedTuple):
    """What came of a mutant."""

    mutant: Mutant
    faults: list[str]
    accepted: bool
    """Whether ``check`` found nothing wrong with it."""


def places(most: int = 1) -> list[Place]:
    """Every field of every model that occurs in the base, whether the record has it or not.

    Args:
        most: how often to take a field that many records have.
    """
    found: list[Place] = []
    taken = Counter[str]()
    for pattern, kind in FILES:
        for path in sorted(BASE.glob(pattern)):
            data = _data(path)
            for model, location in _fields(kind.model_validate(data), data, ()):
                field = f"{model}.{location[-1]}"
                taken[field] += 1
                if taken[field] <= most:
                    found.append(Place(path.relative_to(BASE).as_posix(), field, location))
    return found


def _data(path: Path) -> Any:
    raw = path.read_bytes()
    return json.loads(raw) if path.suffix == ".json" else parse(raw, str(path)).data


def _fields(
    model: BaseModel, data: Any, location: tuple[str | int, ...]
) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    for name, field in type(model).model_fields.items():
        key = field.alias or name
        yield type(model).__name__, (*location, key)
        if isinstance(data, dict) and key in data:
            yield from _inside(getattr(model, name), data[key], (*location, key))


def _inside(
    value: Any, data: Any, location: tuple[str | int, ...]
) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    if isinstance(value, BaseModel):
        yield from _fields(value, data, location)
    elif isinstance(value, list | dict):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _inside(item, data[key], (*location, key))


def mutants(most: int = 1) -> list[Mutant]:
    """Every value in every place; ``most`` as for :func:`places`.

    Some have no place to stand: a field that is not there cannot be left out. Those are not run.
    """
    found = [
        Mutant(place, value)
        for place in places(most)
        for value in (
            *TEXTS, *SHAPES, *(NUMBERS if place.file.endswith(".json") else ()),
            "absent", "doubled",
        )
    ]  # fmt: skip
    # Few fields hold fractions below them, so that each is tried wherever it is.
    runs = [place for place in places(10**9) if place.file.endswith(".json")]
    return found + [Mutant(place, value) for place in runs for value in SCALES]


def mutated(*chosen: Mutant) -> bytes | None:
    """The file of these mutants with each value in its place; ``None`` where one cannot stand."""
    path = BASE / chosen[0].place.file
    data = copy.deepcopy(_data(path))
    if not all(_put(data, mutant) for mutant in chosen):
        return None
    if path.suffix == ".json":
        if "digest" in data and chosen[0].place.location != ("digest",):
            with contextlib.suppress(Exception):
                data["digest"] = digest_of_record({k: v for k, v in data.items() if k != "digest"})
        return json.dumps(data).encode()
    line = path.read_text().split("\n", 1)[0]
    try:
        return f"{line}\n{dump(data)}".encode()
    except RecursionError:
        return None  # YAML that no record can be written as


def _put(data: Any, mutant: Mutant) -> bool:
    """Put the value in its place; whether it can stand there."""
    parent = data
    for part in mutant.place.location[:-1]:
        parent = parent[part]
    key = mutant.place.location[-1]
    if mutant.value == "absent":
        if key not in parent:
            return False
        del parent[key]
    elif mutant.value == "doubled":
        former = parent.get(key)
        if not isinstance(former, list) or not former:
            return False
        parent[key] = former * 30 if len(json.dumps(former)) < 3000 else former * 2
    elif mutant.value in SCALES:
        former = parent.get(key)
        scaled = _scaled(former, SCALES[mutant.value])
        # One figure alone is tried by the values above.
        if not isinstance(former, dict | list) or scaled == former:
            return False
        parent[key] = scaled
    else:
        value = VALUES[mutant.value]
        if parent.get(key, _NOTHING) == value and type(parent[key]) is type(value):
            return False
        parent[key] = value
    return True


def _scaled(node: Any, by: float) -> Any:
    """``node`` with every fraction in it multiplied."""
    if isinstance(node, dict):
        return {key: _scaled(value, by) for key, value in node.items()}
    if isinstance(node, list):
        return [_scaled(value, by) for value in node]
    return node * by if isinstance(node, float) else node


_READ: tuple[tuple[str, ...], ...] = (
    ("audit",), ("costs",), ("costs", "--by", "pattern"), ("session", "list"),
    ("session", "show", "2025-01-01-a"), ("session", "show", "2025-01-02-b"), ("status",),
    ("patterns",), ("patterns", "P01"), ("recipes",), ("recipes", "look"), ("history",),
    ("search", "look"), ("explain", "--words", "nvcc fatal"),
    ("compare", "last", "last"), ("keep-or-stop", "--pause", "1 h"), ("export", "jsonl"),
    ("export", "beancount"), ("export", "focus"), ("export", "corpus"), ("export", "runs"),
    ("run-recipe", "look", "--dry-run"),
)  # fmt: skip
"""Commands that read; all of them are run on what ``check`` accepts, one on what it does not."""

_RAISED = re.compile(r": fault: (.*?)\. The rest was checked", re.DOTALL)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def tried(mutant: Mutant, root: Path, draw: random.Random) -> Outcome | None:
    """Run kbtool on a mutant.

    Args:
        mutant: the mutant.
        root: a copy of the base, which is left as it was.
        draw: decides which command is run on a record that ``check`` refuses.
    """
    raw = mutated(mutant)
    if raw is None:
        return None
    path = root / mutant.place.file
    sound = path.read_bytes()
    faults: list[str] = []
    began, largest = time.process_time(), _most_memory()
    path.write_bytes(raw)
    try:
        accepted = _run(root, ("check",), faults) == 0
        for command in _READ if accepted else (draw.choice(_READ),):
            _run(root, command, faults)
        if accepted or draw.random() < 0.05:
            _timed("the pages", lambda: _pages(root), faults, limit=10)
    finally:
        path.write_bytes(sound)
    spent = time.process_time() - began
    # All of them together.
    if spent > SLOW * 6:
        faults.append(f"takes {spent:.0f} CPU seconds")
    if _most_memory() - largest > LARGE:
        faults.append("takes over 1 GB of memory")
    return Outcome(mutant, faults, accepted)


def _most_memory() -> int:
    """The most bytes that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _pages(root: Path) -> int:
    """Make every page of the site, without mkdocs."""
    from kbtool.model.errors import UserError
    from kbtool.site.html.tree import source_files
    from kbtool.store.tree import KnowledgeBase

    with contextlib.suppress(UserError):
        source_files(KnowledgeBase(root))
    return 0


def _run(root: Path, command: Sequence[str], faults: list[str], limit: float = SLOW) -> int | None:
    """Run a command in this process; its exit status, ``None`` after an exception."""
    from kbtool.cli import main

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "replace") for _ in range(2))

    def raising(error: Exception) -> int:
        raise error

    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        once.replaced(main, "_bug", lambda _: raising),
    ):
        code = _timed(
            " ".join(command), lambda: main.run(["--root", str(root), *command]), faults, limit
        )
    printed = ""
    for stream in (out, err):
        stream.flush()
        printed += stream.buffer.getvalue().decode()
    # What a rule or a model raises becomes a finding, so that the rest is checked.
    faults += [f"{command[0]}: {said}" for said in _RAISED.findall(printed)]
    # An export is data for programs; in the rest a control character would steer the terminal.
    if command[0] != "export" and (found := _CONTROL.search(printed)):
        faults.append(f"{command[0]} prints the character U+{ord(found[0]):04X}")
    return code


def _timed(
    what: str, call: Callable[[], int], faults: list[str], limit: float = SLOW
) -> int | None:
    """What a call returns, ``None`` after an exception; what went wrong is added to ``faults``."""
    began = time.process_time()
    code = None
    try:
        code = call()
    except Exception as error:  # every exception is a fault here
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split())[:120]
        file = Path(last.filename).name
        faults.append(f"{what}: {type(error).__name__} at {file}:{last.lineno}: {said}")
    spent = time.process_time() - began
    if spent > limit:
        faults.append(f"{what}: takes {spent:.1f} CPU seconds")
    return code


def run(chosen: Sequence[Mutant], seed: int, processes: int) -> Iterator[Outcome]:
    """Try mutants in child processes, one of which may hang or die.

    Args:
        chosen: the mutants.
        seed: of what is drawn for each.
        processes: how many children there are at a time.
    """
    # By file: what was found out about the others then holds, as in a base at rest.
    shares = [
        sorted(chosen[start::processes], key=lambda mutant: mutant.place.file)
        for start in range(processes)
    ]
    children = [_Child(share, seed) for share in shares if share]
    try:
        while children:
            pipes = select.select([child.pipe for child in children], [], [], 1.0)[0]
            ready = {pipe.fileno() for pipe in pipes}  # before any of them is closed
            for child in list(children):
                if child.pipe.fileno() in ready:
                    outcome = child.read()
                elif time.monotonic() - child.heard > HANGS:
                    outcome = child.lost(f"hangs: killed after {HANGS:.0f} s")
                else:
                    continue
                if outcome is not None:
                    yield outcome
                if not child.left and child.ended:
                    children.remove(child)
    finally:
        for child in children:
            child.end()


def built(value: str, accepted: Sequence[Mutant]) -> list[str]:
    """The faults of a site build in which a value stands wherever `check` lets it stand alone."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "base")
        shutil.copytree(BASE, root)
        by_file: defaultdict[str, list[Mutant]] = defaultdict(list)
        for mutant in accepted:
            by_file[mutant.place.file].append(mutant)
        for file, chosen in by_file.items():
            # A value inside another one's place has nowhere to stand.
            with contextlib.suppress(LookupError, TypeError):
                (root / file).write_bytes(mutated(*chosen) or (BASE / file).read_bytes())
        faults: list[str] = []
        _run(root, ("site", "build", "--out", f"{folder}/site"), faults, limit=60)
        if not (Path(folder) / "site" / "index.html").is_file() and not faults:
            faults.append(f"site build makes no site where {value} stands")
    return faults


class _Child:
    """A process that tries mutants in turn; a new one goes on where it dies."""

    def __init__(self, left: list[Mutant], seed: int) -> None:
        self.left, self._seed = left, seed
        self._start()

    def _start(self) -> None:
        self.ended, self.heard = False, time.monotonic()
        read, write = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            status = 1
            try:
                os.close(read)
                _work(self.left, self._seed, write)
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        self.pipe = os.fdopen(read, "rb")

    def read(self) -> Outcome | None:
        """What the process says next; ``None`` where a mutant is none, or at the end."""
        line = self.pipe.readline()
        self.heard = time.monotonic()
        if not line:
            if self.left:
                return self.lost("the process died")
            self.end()
            return None
        mutant = self.left.pop(0)
        faults, accepted = json.loads(line)
        return None if faults is None else Outcome(mutant, faults, accepted)

    def lost(self, why: str) -> Outcome:
        """The process hangs or is dead: another goes on after the mutant that it was at."""
        self.end()
        mutant = self.left.pop(0)
        if self.left:
            self._start()
        return Outcome(mutant, [why], accepted=False)

    def end(self) -> None:
        """End the process."""
        if not self.ended:
            self.ended = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self.pipe.close()


def _work(left: Sequence[Mutant], seed: int, write: int) -> None:
    with (
        once.kept(),
        tempfile.TemporaryDirectory() as folder,
        os.fdopen(write, "w") as pipe,
    ):
        root = Path(folder, "base")
        shutil.copytree(BASE, root)
        for mutant in left:
            outcome = tried(mutant, root, random.Random(f"{seed} {mutant.name}"))
            told = (None, None) if outcome is None else (outcome.faults, outcome.accepted)
            pipe.write(json.dumps(told) + "\n")
            pipe.flush()


def main() -> int:
    """Try the mutants that were asked for; 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draw", type=int, metavar="N", help="try so many, drawn")
    parser.add_argument("--only", metavar="TEXT", help="try those whose name holds the text")
    parser.add_argument(
        "--places", type=int, default=1, metavar="N", help="try a field in so many of its places"
    )
    parser.add_argument("--part", default="1/1", metavar="K/N", help="try one of N parts of them")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--accepted", action="store_true", help="list what `check` lets pass")
    options = parser.parse_args()
    every = mutants(options.places)
    chosen = [one for one in every if not options.only or options.only in one.name]
    random.Random(options.seed).shuffle(chosen)
    part, _, parts = options.part.partition("/")
    chosen = chosen[: options.draw][int(part) - 1 :: int(parts)]
    print(f"{len(chosen):,} mutants, seed {options.seed}", flush=True)
    began, done, faulty = time.monotonic(), 0, 0
    kinds: Counter[str] = Counter()
    accepted: defaultdict[str, set[str]] = defaultdict(set)
    standing: defaultdict[str, list[Mutant]] = defaultdict(list)
    for outcome in run(chosen, options.seed, options.processes):
        done += 1
        faulty += bool(outcome.faults)
        if outcome.accepted:
            accepted[outcome.mutant.place.field].add(outcome.mutant.value)
            standing[outcome.mutant.value].append(outcome.mutant)
        for fault in outcome.faults:
            kind = re.sub(r"[\d.]+ CPU", "N CPU", re.sub(r": [^:]*$", "", fault))
            kinds[kind] += 1
            if kinds[kind] <= 3:
                print(f"{outcome.mutant.name}\n  {fault}", flush=True)
        if done % (20 if sys.stderr.isatty() else 5000) == 0:
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"{done:,} of {len(chosen):,}", end=end, file=sys.stderr, flush=True)
    for value in sorted(standing.keys() & FOR_THE_SITE):
        for fault in built(value, standing[value]):
            kinds[fault] += 1
            faulty += 1
    spent = time.monotonic() - began
    print(f"\n{done:,} mutants in {spent:.0f} s; {faulty:,} with a fault, of {len(kinds)} kinds")
    for kind, count in kinds.most_common():
        print(f"{count:6,} {kind}")
    if options.accepted:
        print("\naccepted by check:")
        for field, values in sorted(accepted.items()):
            print(f"  {field}: {', '.join(sorted(values))}")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
