"""Create a session: its folder, a record with commented examples, and a notes file."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

from kbtool.model.run import MachineInfo, RepositoryState
from kbtool.model.session import Session
from kbtool.store.document import DocumentError, parse
from kbtool.store.dump import dump, scalar
from kbtool.store.load import validate
from kbtool.store.lock import lock
from kbtool.store.private import private_folder
from kbtool.store.repository import reasons
from kbtool.store.schema import modeline
from kbtool.store.tree import Entry, KnowledgeBase, load_record
from kbtool.store.write import new_folder

_SLUG_LENGTH = 48
_NO_NAME = "session"
_SHORT = re.compile(rf"[\w ]{{1,{_SLUG_LENGTH}}}")

_HINTS = """\
# What was paid for. `kbtool session cost gpu 0.40 --basis billed` adds a line. An estimate with a
# rate and no amount is the rate times its duration, or times the time of the session.
# costs:
#   - {kind: gpu, basis: estimated, rate: 0.20 USD/h}
#   - {kind: ai, amount: "0.40", basis: billed}

# What was to take how long, and what it took: `kbtool session step TITLE` adds one.
# steps:
#   - {id: build, title: Build it, target: 5 min, actual: 12 min, status: done}

# Figures measured by hand: `kbtool session measurement TITLE NAME=FIGURE` adds a row. What kbtool
# measures is under runs/.
# measurements:
#   - id: latency
#     title: Latency of one call
#     kind: benchmark
#     columns: {ours: {title: Two passes, unit: us}}
#     rows:
#       - {id: s4096, case: {S: 4096}, values: {ours: 12.5}}

# Bugs, and what fixed them: `kbtool session bug TITLE`, `kbtool session fix BUG` add them.
# An id stays with its bug.
# bugs:
#   - id: nan-in-last-tile
#     title: NaN in the last query tile
#     symptom: the last 16 rows are NaN when the length is no multiple of 64
#     cause: the loop bound counts the whole tile
#     status: fixed
#     minutes_lost: 25 min
# fixes:
#   - bug: "#bugs.nan-in-last-tile"
#     change: bound the loop by the rows that are left
#     commit: "0123abc"
#     confirmed: true

# Commits made; `kbtool session close` adds those that git knows.
# commits:
#   - {id: bound, sha: "0123abc", title: Bound the loop by the rows that are left}

# What was decided, between which options, and why: `kbtool session decision QUESTION` adds it.
# decisions:
#   - id: card
#     question: Keep the card until tomorrow?
#     options: [{id: keep, title: Keep it}, {id: stop, title: Stop it}]
#     chosen: stop
#     reason: nobody waits for it

# What this session says of a pattern: discovered, applied, proved, contradicted, not_reproduced.
# `kbtool session evidence` adds it.
# evidence:
#   - pattern: P01
#     verdict: applied
#     note: it failed at once instead of after the build
#     saved: 20 min

# A figure that others determine, as stated; `kbtool audit` recomputes it.
# claims:
#   - {id: card, says: Ten cents, stated: 0.10 USD, how: product, of: ["#costs.gpu.rate", 30 min]}

# What a later session is to do: `kbtool session plan TITLE` adds it.
# plans:
#   - {id: next, title: Merge on the card, target: 2 h, steps: [{id: merge, title: Write it}]}

# What was learned, a sentence each: `kbtool session lesson TEXT` adds one.
# lessons:
#   - Reset the workspace before each call, not after.

# A null needs its reason here, under its path: `unknown: {outcome: "the machine was taken away"}`.
"""

_NOTES = """\
# {title}

Prose for people: what was tried, what was seen, what was surprising. Figures belong in
session.yaml, measurements in runs/. `kbtool session note TEXT` adds a line with the time.
"""


def create_session(
    base: KnowledgeBase,
    *,
    title: str,
    name: str | None = None,
    label: str | None = None,
    status: Literal["planned", "running", "complete"] = "running",
    objective: str | None = None,
    budget_time: str | None = None,
    budget_money: str | None = None,
    engineer: str | None = None,
    now: datetime | None = None,
    ended: datetime | None = None,
    machine: MachineInfo | None = None,
    repository: RepositoryState | None = None,
) -> Entry[Session]:
    """Create a session that is ready to fill in. Returns the record.

    Args:
        base: the knowledge base.
        title: what the session is about.
        name: the part of its id after the date. Default: made of the title.
        label: its short name. Default: the name in its id, or a short title that gives it none.
        status: ``running`` and ``complete`` start it now. A run without a session makes a
            ``complete`` one, so that nothing else is added to it; it ends when it starts until
            the run's end is known, so that the record is sound at every moment.
        objective: what it is meant to achieve.
        budget_time: time budget, such as ``2 h``.
        budget_money: money budget, such as ``5 USD``.
        engineer: who does the work.
        now: start time, with its zone. Default: now.
        ended: end of a ``complete`` one. Default: its start.
        machine: the probed machine.
        repository: state of the git checkout. Default: not recorded.

    Raises:
        ValueError: the schema refuses a text.
        OSError: the folder or a file cannot be written; nothing is left behind.
    """
    now = now or datetime.now().astimezone()
    name = slug(title) if name is None else name
    # A short title without a letter that an id allows is the label itself, if that is free.
    short = title if name == _NO_NAME and _SHORT.fullmatch(title) else None
    if short and any(entry.record.label == short for entry in base.sessions.values()):
        short = None
    # Validate before the folder is made: a name may lead elsewhere.
    wanted = f"{now:%Y-%m-%d}-{name}"
    given: dict[str, str | None] = {
        "objective": objective, "budget_time": budget_time, "budget_money": budget_money,
        "engineer": engineer,
    }  # fmt: skip
    if status != "planned":
        given["started"] = now.isoformat(timespec="seconds")
    if status == "complete":
        given["ended"] = (ended or now).isoformat(timespec="seconds")

    def text_for(id_: str) -> str:
        return _record(id_, label or short or id_[11:], title, status, given, machine, repository)

    def files(id_: str) -> dict[str, bytes]:
        notes = _NOTES.format(title=title)
        return {"notes.md": notes.encode(), "session.yaml": text_for(id_).encode()}

    _read(f"sessions/{wanted}/session.yaml", text_for(wanted))
    path = new_folder(base.root / "sessions", wanted, files) / "session.yaml"
    return _read(base.shown(path), text_for(path.parent.name))


UNSORTED = "unsorted"
"""The name of the session of a day for runs outside a session."""


def unsorted_session(
    base: KnowledgeBase, machine: MachineInfo, repository: RepositoryState
) -> Entry[Session]:
    """The session of this day for runs of this machine that belong to no other; made if needed.

    It is complete from the start, so that no command takes it for an engineer's session, and lasts
    as long as its runs do.
    """
    with lock(private_folder(base.root, "locks") / f"{UNSORTED}.lock", timeout=30):
        now = datetime.now().astimezone()
        here = environment(machine)
        for folder in sorted((base.root / "sessions").glob(f"{now:%Y-%m-%d}-{UNSORTED}*/")):
            path = folder / "session.yaml"
            entry = load_record(path, base.shown(path), Session) if path.is_file() else []
            if isinstance(entry, Entry) and _takes(entry.record, here, now):
                return entry
        return create_session(
            base,
            title=f"Runs outside a session, {now:%Y-%m-%d}",
            name=UNSORTED,
            status="complete",
            now=now,
            machine=machine,
            repository=repository,
        )


def _takes(session: Session, here: Mapping[str, str], now: datetime) -> bool:
    """Whether an unsorted session takes a run that begins now on the machine ``here``."""
    if not _UNSORTED.fullmatch(session.id[11:]) or session.status != "complete":
        return False
    began, there = session.started, session.environment
    return (
        began is not None
        and began.zoned
        and began.at <= now
        and there is not None
        and all(getattr(there, key) == here.get(key) for key in ("card", "cpu"))
    )


_UNSORTED = re.compile(rf"{UNSORTED}(?:-\d+)?")


def half_made(base: KnowledgeBase) -> list[Path]:
    """Folders that an older kbtool, killed while it made a session, left without a record.

    They hold nothing, or notes in which nobody has written. This kbtool leaves none.
    """
    found = []
    for folder in sorted((base.root / "sessions").glob("[!.]*/")):
        notes = folder / "notes.md"
        with contextlib.suppress(OSError, UnicodeDecodeError):
            held = list(folder.iterdir())
            if held == [] or (held == [notes] and _BLANK_NOTES.fullmatch(notes.read_text("utf-8"))):
                found.append(folder)
    return found


_BLANK_NOTES = re.compile(r"# [^\n]*" + re.escape(_NOTES.removeprefix("# {title}")))


def without_end(base: KnowledgeBase) -> list[tuple[Entry[Session], datetime]]:
    """Sessions that an older kbtool, killed during a run, left complete without an end, and when
    each began."""
    return [
        (entry, entry.record.started.at)
        for entry in base.sessions.values()
        if entry.record.origin == "tool"
        and entry.record.status == "complete"
        and entry.record.started is not None
        and entry.record.started.zoned
        and entry.record.ended is None
        and "ended" not in entry.record.unknown
    ]


def slug(title: str, otherwise: str = _NO_NAME) -> str:
    """A title as the name part of an id: ``Fix NaN (S=4)`` → ``fix-nan-s-4``.

    Args:
        title: any text.
        otherwise: the name if the title has no character that an id allows.
    """
    plain = unicodedata.normalize("NFKD", title.casefold()).encode("ascii", "ignore").decode()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if len(words) > _SLUG_LENGTH:
        words = words[: _SLUG_LENGTH + 1].rpartition("-")[0] or words[:_SLUG_LENGTH]
    return words or otherwise


def environment(machine: MachineInfo) -> dict[str, str]:
    """``machine`` as the ``environment`` of a session; unknown fields are left out."""
    known = {
        "card": machine.card or "none",
        "card_memory": machine.card_memory_bytes and f"{machine.card_memory_bytes / 2**30:.1f} GiB",
        "compute_capability": machine.compute_capability,
        "cpu": machine.cpu,
        "driver": machine.driver,
        "cuda": machine.cuda,
        "nvcc": machine.nvcc,
        "torch": machine.torch,
        "numpy": machine.numpy,
        "python": machine.python,
    }
    return {key: str(value) for key, value in known.items() if value}


def _record(
    id_: str,
    label: str,
    title: str,
    status: str,
    given: Mapping[str, str | None],
    machine: MachineInfo | None,
    repository: RepositoryState | None,
) -> str:
    hints = {
        "objective": "# objective: what this session is meant to achieve",
        "outcome": "# outcome: the result",
        "budget_time": "# budget_time: 2 h",
        "budget_money": "# budget_money: 5 USD",
        "engineer": "# engineer: who works, a name or initials",
    }
    lines = [modeline("session")]
    lines += [
        f"{key}: {scalar(value)}"
        for key, value in {
            "id": id_, "label": label, "title": title, "origin": "tool", "status": status,
        }.items()
    ]  # fmt: skip
    for key, hint in hints.items():
        value = given.get(key)
        lines.append(hint if value is None else f"{key}: {scalar(value)}")
    times = {key: given.get(key) for key in ("started", "ended")}
    lines += [f"{key}: {scalar(time)}" for key, time in times.items() if time is not None]
    text = "\n".join(lines) + "\n"
    if machine is not None:
        details = {"os": machine.os, "cores": str(machine.cores)}
        text += "\n" + dump({"environment": {**environment(machine), "details": details}})
    unknown: dict[str, str] = {}
    if repository is not None:
        text += "\n" + dump({"repository": _repository(repository)})
        unknown = {f"repository.{key}": why for key, why in reasons(repository).items()}
    text += "\n" + _HINTS
    if unknown:
        text += dump({"unknown": unknown})
    return text


def _repository(state: RepositoryState) -> dict[str, str | None]:
    dirty = None if state.dirty is None else str(state.dirty).lower()
    return {"branch": state.branch, "commit": state.commit, "dirty": dirty}


def _read(shown: str, text: str) -> Entry[Session]:
    try:
        document = parse(text.encode(), shown)
    except DocumentError as error:
        key = text.splitlines()[error.finding.line - 1].partition(":")[0]
        raise ValueError(f"{key} {error.finding.message}") from None
    record = validate(document, Session)
    if isinstance(record, list):
        raise ValueError("; ".join(finding.message for finding in record))
    return Entry(shown, record, document)


def remove_session(folder: Path) -> None:
    """Remove a session that was just created; errors are ignored."""
    with contextlib.suppress(OSError):
        for name in ("session.yaml", "notes.md"):
            (folder / name).unlink(missing_ok=True)
        if (folder / "runs").is_dir():
            (folder / "runs").rmdir()
        folder.rmdir()
