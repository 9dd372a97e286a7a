"""Look up the values in records that links and figures of other files refer to.

Each record is loaded once for all its questions, in parallel. The answers are cached with the facts
of the file until it changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kbtool.checks.facts import Found, Questions
from kbtool.checks.paths import claim_at, locate
from kbtool.model.address import AddressError, figure_of, measuring_step, resolve, unproved
from kbtool.model.pattern import Pattern
from kbtool.model.run import Run
from kbtool.model.session import Session
from kbtool.store.document import DocumentError, parse, read_bytes
from kbtool.store.load import validate
from kbtool.store.pool import in_processes
from kbtool.store.read import MAX_RUN_BYTES
from kbtool.store.scan import File, FileKind
from kbtool.store.tree import Entry, load_record


def answer_all(
    root: str, files: Sequence[File], questions: Questions, jobs: int | None = None
) -> Iterator[tuple[str, dict[str, Found]]]:
    """Path of each file, and path in its record → the value there.

    Args:
        root: the root of the knowledge base.
        files: the files to look up in; all of them load.
        questions: the paths to look up.
        jobs: number of processes. Default: chosen by the amount of work.
    """
    for path, answers in in_processes(files, partial(_answer_part, root, questions), jobs):
        yield path, {name: Found(*found) for name, found in answers.items()}


def _answer_part(root: str, questions: Questions, files: Sequence[File]) -> list[Any]:
    done = []
    for file in files:
        entry = _load(root, file)
        done.append((file.path, {path: look_up(entry, path) for path in questions[file.path]}))
    return done


def _load(root: str, file: File) -> Entry[Any] | None:
    """A record that was valid before. The digest of a run is not checked again."""
    path = Path(root, file.path)
    if file.kind == "run":
        try:
            run = Run.model_validate_json(read_bytes(path, file.path, MAX_RUN_BYTES))
        except (DocumentError, ValueError):
            return None
        return Entry(file.path, run, None)
    loaded = load_record(path, file.path, Session if file.kind == "session" else Pattern)
    return loaded if isinstance(loaded, Entry) else None


def answers_in(path: str, kind: FileKind, raw: bytes, asked: Sequence[str]) -> dict[str, Found]:
    """The values in a record whose content is given."""
    try:
        document = parse(raw, path)
    except DocumentError:
        return {one: look_up(None, one) for one in asked}
    record = validate(document, Session if kind == "session" else Pattern)
    entry = None if isinstance(record, list) else Entry(path, record, document)
    return {one: look_up(entry, one) for one in asked}


def look_up(entry: Entry[Any] | None, path: str) -> Found:
    """The value at a path in a record; ``None`` for a record that cannot be read."""
    if entry is None:  # the file changed during the check
        return Found("", "", "", "the record cannot be read")
    try:
        there = resolve(entry.record, path)
    except AddressError as error:
        return Found("", "", "", str(error))
    data = entry.document.data if entry.document else {}
    claims = (claim_at(data, place) for place in locate(data, path))
    claim = next(filter(None, claims), "")
    kind = type(there).__name__
    try:
        figure = figure_of(there, path)
        step = measuring_step(entry.record, path, figure)
        if step is None or step.result is None:
            return Found(kind, claim, figure.text, "")
        asked = entry.record.identity.problem_digest if entry.record.identity else ""
        return Found(kind, claim, figure.text, "", unproved(entry.record, path, step) or "", asked)
    except (AddressError, ArithmeticError) as error:
        return Found(kind, claim, "", str(error))
