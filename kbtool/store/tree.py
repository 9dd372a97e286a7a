"""The knowledge base on disk: its files and its loaded records."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from kbtool.model.base import Model
from kbtool.model.errors import NotFoundError, RecordError
from kbtool.model.excuses import Excuses, Forgotten
from kbtool.model.finding import Finding
from kbtool.model.kernel import Kernel
from kbtool.model.ledger import Ledger
from kbtool.model.machine_path import without_machine_paths
from kbtool.model.pattern import Pattern
from kbtool.model.recipe import Recipe
from kbtool.model.run import Run, digest_of_record, first_record
from kbtool.model.session import Session
from kbtool.model.session_costs import SessionCosts, session_costs_of
from kbtool.model.symptom import UNCHECKED, Symptoms
from kbtool.store.cache import SETTLED_NS, now_ns
from kbtool.store.document import Document, DocumentError, parse, read_bytes
from kbtool.store.load import validate
from kbtool.store.order import in_order
from kbtool.store.packaged import SYMPTOMS, other_symptoms
from kbtool.store.parsed import parse_all
from kbtool.store.pool import WORTH_A_POOL, collector_off
from kbtool.store.read import MAX_RUN_BYTES
from kbtool.store.root import find_root, is_root
from kbtool.store.scan import EXCUSES, LEDGER, FileKind, Stamp, files_at, folders_in, named_in
from kbtool.store.session_costs import session_costs_in

__all__ = [
    "Entry",
    "KnowledgeBase",
    "find_root",
    "is_root",
    "load_record",
    "load_run",
    "open_run",
    "parse_run",
]

R = TypeVar("R", bound=Model)


@dataclass(frozen=True)
class Entry(Generic[R]):
    """A record and its file."""

    path: str
    """The file, relative to the root."""
    record: R
    document: Document | None
    """The parsed YAML; ``None`` for a run, which is JSON."""


LAST = "last"
"""The newest run or session, wherever one is named."""


def meant(name: str, ids: Iterable[str], *, inside: bool = False) -> list[str]:
    """The ids that a name can stand for: the one that it is; else those that begin with it; else
    those that end with it, whole words.

    Args:
        name: as given.
        ids: all that there are.
        inside: whether, if there is none of these, a name of three letters or more stands for those
            that hold it anywhere.
    """
    known = list(ids) if name else []
    exact = [id_ for id_ in known if id_ == name]
    begun = exact or [id_ for id_ in known if id_.startswith(name)]
    ended = begun or [id_ for id_ in known if id_.endswith(f"-{name}")]
    held = inside and len(name) >= _WORD
    return ended or [id_ for id_ in known if held and name in id_]


_WORD = 3


class KnowledgeBase:
    """All records under one root, loaded on first use.

    A file that does not load is left out and reported in ``findings``; the rest is usable.

    Args:
        root: the root.
        before: the same, read earlier. A file that is the same is not read again. Of a file that no
            longer loads its record is taken, and what keeps the file from loading is in ``stale``.
    """

    def __init__(self, root: Path, before: KnowledgeBase | None = None) -> None:
        self.root = root
        self.findings: list[Finding] = []
        self.stale: list[Finding] = []
        self._loaded: dict[tuple[type[Model], str], Entry[Any]] = {}
        self._loaded_before = before._loaded if before else {}
        self._runs_read: dict[Path, Entry[Run] | None] = {}
        self._stamps: dict[tuple[type[Model], str], Stamp] = {}
        self._stamps_before = before._stamps if before else {}
        self._packaged: KnowledgeBase | None = before._packaged if before else None

    def report(self, findings: Iterable[Finding]) -> None:
        """Note what keeps files from loading; a file may be read in more ways than one."""
        known = set(self.findings)
        self.findings.extend(one for one in findings if one not in known)

    def session_files(self) -> Iterator[Path]:
        """Every session record, sorted by folder name."""
        for folder in folders_in(self.root, "sessions"):
            yield self.root / folder / "session.yaml"

    def pattern_files(self) -> Iterator[Path]:
        """Every pattern record."""
        yield from (self.root / path for path in named_in(self.root, "patterns", ".yaml"))

    def symptom_files(self) -> Iterator[Path]:
        """Every file of the catalogue of symptoms in this knowledge base, which may have none."""
        yield from (self.root / path for path in named_in(self.root, SYMPTOMS, ".yaml"))

    def kernel_files(self) -> Iterator[Path]:
        """Every kernel manifest."""
        for folder in folders_in(self.root, "kernels"):
            path = self.root / folder / "kernel.yaml"
            if path.exists():
                yield path

    def run_files(self, session: str | None = None) -> Iterator[Path]:
        """Every run record, or those of one session."""
        folders = [f"sessions/{session}"] if session else folders_in(self.root, "sessions")
        for folder in folders:
            yield from (self.root / path for path in named_in(self.root, f"{folder}/runs", ".json"))

    @cached_property
    def sessions(self) -> dict[str, Entry[Session]]:
        """Session id → session, in the order of the work (see ``in_order``)."""
        by_id = {entry.record.id: entry for entry in self._load(self.session_files(), Session)}
        ordered = in_order([entry.record for entry in by_id.values()])
        return {session.id: by_id[session.id] for session in ordered}

    def with_sessions(self, paths: Iterable[str]) -> KnowledgeBase:
        """The same records, but of the sessions only those in these files, in this order."""
        part = copy(self)
        entries = self._load((self.root / path for path in paths), Session, "linked-sessions")
        part.sessions = {entry.record.id: entry for entry in entries}
        return part

    @cached_property
    def session_costs(self) -> dict[str, SessionCosts]:
        """Session id → session as far as time and money go, in the order of ``sessions``.

        It takes less time than ``sessions``, and next to none where these are loaded.
        """
        if "sessions" in vars(self) or self._loaded_before:
            return {id_: session_costs_of(entry.record) for id_, entry in self.sessions.items()}
        files = files_at(self.root, [self.shown(path) for path in self.session_files()], "session")
        sessions, findings = session_costs_in(str(self.root), files)
        self.report(findings)
        return {session.id: session for session in in_order(sessions)}

    @cached_property
    def patterns(self) -> dict[str, Entry[Pattern]]:
        """Pattern id → pattern."""
        return {e.record.id: e for e in self._load(self.pattern_files(), Pattern)}

    @cached_property
    def symptoms(self) -> dict[str, Entry[Symptoms]]:
        """Tool → the symptoms that this knowledge base knows of it, beside kbtool's own."""
        return {e.record.id: e for e in self._load(self.symptom_files(), Symptoms)}

    @cached_property
    def catalogue(self) -> dict[str, Symptoms]:
        """Tool → its symptoms: kbtool's own, and those of this knowledge base, which win where both
        have a name. Kbtool's own belong to no pattern of another knowledge base."""
        own = {tool: entry.record for tool, entry in self.symptoms.items()}
        files = other_symptoms(self.root)
        if not files:
            return own
        self._packaged = KnowledgeBase(files[0].parents[1], self._packaged)
        entries = self._packaged._load(iter(files), Symptoms)
        return merged([entry.record for entry in entries], own)

    @cached_property
    def kernels(self) -> dict[str, Entry[Kernel]]:
        """Kernel id → manifest."""
        return {e.record.id: e for e in self._load(self.kernel_files(), Kernel)}

    @cached_property
    def ledger(self) -> Ledger:
        """Rates and budgets; empty if there is no ledger."""
        path = self.root / "sessions" / LEDGER
        files = iter([path] if path.exists() else [])
        return next((entry.record for entry in self._load(files, Ledger)), Ledger())

    @cached_property
    def forgotten(self) -> list[Forgotten]:
        """Recipes that were deleted, oldest first; none if the file does not load."""
        path = self.root / "sessions" / EXCUSES
        files = iter([path] if path.exists() else [])
        return [one for entry in self._load(files, Excuses) for one in entry.record.forgotten]

    @cached_property
    def runs(self) -> list[Entry[Run]]:
        """Every run, oldest first. A resumed run has one entry per attempt."""
        return _in_time(filter(None, map(self._run_in, self.run_files())))

    def runs_with(self, kernel: str, *kinds: str) -> list[Entry[Run]]:
        """The runs of a kernel that have a result of one of these kinds, oldest first. Parses no
        other run: that is what takes long."""
        result = re.compile(rf'"type":\s*"(?:{"|".join(kinds)})"'.encode())
        named = f'"{kernel}"'.encode()

        def may(path: Path) -> bool:
            try:
                raw = read_bytes(path, self.shown(path), MAX_RUN_BYTES)
            except DocumentError:
                return True  # to be reported
            return named in raw and result.search(raw) is not None

        of_runs = self._files_of_runs.values()
        # A run that was resumed has its results in any of its attempts.
        paths = (path for files in of_runs if any(map(may, files)) for path in files)
        entries = filter(None, map(self._run_in, paths))
        return _in_time(entry for entry in entries if entry.record.kernel == kernel)

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """File, relative to the root → SHA-256, for those of ``names`` that exist."""
        paths = {name: self.root / name for name in names}
        return {
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in paths.items()
            if path.is_file()
        }

    def runs_of(self, session: str) -> list[Entry[Run]]:
        """The runs of one session, sorted by file name. Reads no other run."""
        return [entry for path in self.run_files(session) if (entry := self._run_in(path))]

    def run(self, id_: str) -> Entry[Run] | None:
        """The last attempt of a run that loads. Reads no other run."""
        attempts = filter(None, map(self._run_in, self._files_of_runs.get(id_, ())))
        return max(attempts, key=lambda entry: entry.record.attempt, default=None)

    def _begun_last(self, ids: Sequence[str]) -> list[str]:
        """The run that began last; an id holds the second, and runs of one second are read."""
        second = [id_ for id_ in ids if id_.partition("-")[0] == ids[-1].partition("-")[0]]
        if len(second) < 2:
            return second
        began = {
            entry.record.id: entry.record.started
            for id_ in second
            for path in self._files_of_runs[id_]
            if (entry := self._run_in(path))
        }
        return [max(began, key=began.__getitem__)] if began else second[-1:]

    def run_named(self, name: str) -> Entry[Run]:
        """The last attempt of a run, by its id, a part of it that no other run has (3e62), or
        ``last``. Reads no other run, unless it began in the same second.

        Raises:
            NotFoundError: no run is meant, or more than one.
            RecordError: an attempt of it does not load.
        """
        ids = sorted(self._files_of_runs)
        found = self._begun_last(ids) if name == LAST else meant(name, ids, inside=True)
        if len(found) > 1:
            some = ", ".join(found[:5])
            raise NotFoundError(f"{name!r} matches several runs: {some}; write more of the id")
        if not found:
            raise NotFoundError(
                f"there is no run {name!r}; `kbtool session show` lists the runs of a session"
            )
        attempts = self._files_of_runs[found[0]]
        entries = [entry for path in attempts if (entry := self._run_in(path))]
        if len(entries) < len(attempts):
            paths = {self.shown(path) for path in attempts}
            raise RecordError(str(next(f for f in self.findings if f.path in paths)))
        return max(entries, key=lambda entry: entry.record.attempt)

    @cached_property
    def _files_of_runs(self) -> dict[str, list[Path]]:
        """Run id, from file names → the file of each attempt."""
        found: dict[str, list[Path]] = {}
        for path in self.run_files():
            found.setdefault(path.name.partition(".")[0], []).append(path)
        return found

    def _run_in(self, path: Path) -> Entry[Run] | None:
        if path not in self._runs_read:
            self._runs_read[path] = self._run_at(path, self.shown(path))
        return self._runs_read[path]

    def _run_at(self, path: Path, shown: str) -> Entry[Run] | None:
        if not self._unchanged([shown], Run):
            loaded = load_run(path, shown)
            if isinstance(loaded, Finding):
                return self._instead([loaded], Run, shown)
            self._loaded[Run, shown] = loaded
        return self._loaded[Run, shown]

    def _unchanged(self, shown: Sequence[str], kind: type[Model]) -> set[str]:
        """Those of these files that are as they were; their records are taken from ``before``."""
        unchanged = set()
        now = now_ns()
        for file in files_at(self.root, shown, _FILE_KINDS[kind]):
            key = kind, file.path
            if max(file.stamp[:2]) < now - SETTLED_NS:
                self._stamps[key] = file.stamp
            if key in self._loaded_before and self._stamps_before.get(key) == file.stamp:
                self._loaded[key] = self._loaded_before[key]
                unchanged.add(file.path)
        return unchanged

    def _instead(self, found: list[Finding], kind: type[R], shown: str) -> Entry[R] | None:
        """The record that a file had before what was found kept it from loading."""
        key = kind, shown
        earlier = self._loaded_before.get(key)
        self._stamps.pop(key, None)  # so that it is read, and told of, each time
        if earlier is None:
            self._loaded.pop(key, None)
            self.report(found)
        else:
            self._loaded[key] = earlier
            self.stale.extend(one for one in found if one not in self.stale)
        return earlier

    def recipes(self) -> dict[str, tuple[Pattern, Recipe]]:
        """Recipe name → the pattern it belongs to, and the recipe."""
        return {
            recipe.name: (entry.record, recipe)
            for entry in self.patterns.values()
            for recipe in entry.record.recipes
        }

    def session(self, name: str) -> Entry[Session]:
        """The session with this id, label, a part of an id that no other has, or ``last``, the
        last in the order of the work.

        Raises:
            NotFoundError: no session matches, or more than one does.
            RecordError: the session exists but does not load.
        """
        labels = {id_: entry.record.label for id_, entry in self.sessions.items()}
        return self.sessions[self.session_named(name, labels)]

    def session_named(self, name: str, labels: Mapping[str, str]) -> str:
        """The id of the session that ``session`` finds.

        Args:
            name: as ``session`` takes it.
            labels: the label of each session that loads, by its id.
        """
        if name in labels:
            return name
        labelled = [id_ for id_, label in labels.items() if label == name]
        newest = list(labels)[-1:] if name == LAST else []
        if name == LAST and not labelled:  # else a fact would go into the one before it
            self._refuse_invalid(name, labels, lambda id_, _: [id_] > newest)
        for found in (labelled, newest, meant(name, labels, inside=True)):
            if len(found) == 1:
                return found[0]
            if found:
                names = ", ".join(found[:5])
                raise NotFoundError(
                    f"{name!r} matches several sessions: {names}; write more of the id"
                )
        self._refuse_invalid(
            name, labels, lambda id_, path: id_.startswith(name) or name == _value_in(path, "label")
        )
        raise NotFoundError(f"there is no session {name!r}; see `kbtool session list`")

    def _refuse_invalid(
        self, name: str, loaded: Collection[str], meant: Callable[[str, Path], bool]
    ) -> None:
        unsound = self._invalid_session(loaded, meant)
        if unsound is not None:
            raise RecordError(f"session {name!r} does not load; correct it first:\n  {unsound}")

    def unsound_of_status(self, status: str) -> Finding | None:
        """The first finding of a session that does not load and states this status."""
        loaded = self.sessions  # loading fills the findings
        return self._invalid_session(loaded, lambda _, path: _value_in(path, "status") == status)

    def _invalid_session(
        self, loaded: Collection[str], meant: Callable[[str, Path], bool]
    ) -> Finding | None:
        """The first finding of a session not ``loaded`` and for which ``meant(id, path)``."""
        for finding in self.findings:
            folder, _, file = finding.path.rpartition("/")
            id_ = folder.removeprefix("sessions/")
            if file != "session.yaml" or id_ in loaded:
                continue
            if meant(id_, self.root / finding.path):
                return finding
        return None

    def shown(self, path: Path) -> str:
        """``path`` relative to the root, for messages."""
        return path.relative_to(self.root).as_posix()

    def _load(
        self, files: Iterator[Path], kind: type[R], kept_as: str | None = None
    ) -> list[Entry[R]]:
        shown = [self.shown(path) for path in files]
        unchanged = self._unchanged(shown, kind)
        changed = [path for path in shown if path not in unchanged]
        with collector_off() if len(changed) >= WORTH_A_POOL else nullcontext():
            for document in parse_all(self.root, changed, _FILE_KINDS[kind], kept_as):
                loaded = _record(document, kind)
                if isinstance(loaded, Entry):
                    self._loaded[kind, loaded.path] = loaded
                else:
                    self._instead(loaded, kind, document.path)
        return [self._loaded[kind, path] for path in shown if (kind, path) in self._loaded]


def merged(packaged: Iterable[Symptoms], own: Mapping[str, Symptoms]) -> dict[str, Symptoms]:
    """The catalogue of kbtool and that of a knowledge base as one; see ``catalogue``."""
    found: dict[str, Symptoms] = {}
    for tool in packaged:
        added = own.get(tool.id)
        names = {one.id for one in added.symptoms} if added else set()
        kept = [
            one.model_copy(update={"patterns": []}) for one in tool.symptoms if one.id not in names
        ]
        title = added.title if added else tool.title
        listed = [*kept, *(added.symptoms if added else ())]
        signs = (added and added.signs) or tool.signs
        prints = (added and added.prints) or tool.prints
        found[tool.id] = tool.model_copy(
            update={"title": title, "signs": signs, "prints": prints, "symptoms": listed}
        )
    return found | {tool: record for tool, record in own.items() if tool not in found}


def _value_in(path: Path, key: str) -> str | None:
    """The value of a key in the text of a record that does not load, if any."""
    line = rf"^{key}:[ \t]*(.+?)[ \t]*$"
    try:
        found = re.search(line, path.read_text("utf-8", "replace"), re.M)
    except OSError:
        return None
    return found[1].strip("\"'") if found else None


def load_record(path: Path, shown: str, kind: type[R]) -> Entry[R] | list[Finding]:
    """One YAML record, or its findings."""
    try:
        document = parse(read_bytes(path, shown), shown)
    except DocumentError as error:
        return [error.finding]
    return _record(document, kind)


_FILE_KINDS: dict[type[Model], FileKind] = {
    Session: "session", Pattern: "pattern", Symptoms: "symptoms", Kernel: "kernel",
    Ledger: "ledger", Excuses: "excuses", Run: "run",
}  # fmt: skip


def _record(document: Document | Finding, kind: type[R]) -> Entry[R] | list[Finding]:
    if isinstance(document, Finding):
        return [document]
    record = validate(document, kind, UNCHECKED if kind is Symptoms else None)
    return record if isinstance(record, list) else Entry(document.path, record, document)


def _in_time(runs: Iterable[Entry[Run]]) -> list[Entry[Run]]:
    return sorted(runs, key=lambda e: (e.record.started, e.record.id, e.record.attempt))


def load_run(path: Path, shown: str) -> Entry[Run] | Finding:
    """One run record, or its findings."""
    try:
        raw = read_bytes(path, shown, MAX_RUN_BYTES)
    except DocumentError as error:
        return error.finding
    run = parse_run(raw, shown)
    return run if isinstance(run, Finding) else Entry(shown, run, None)


def parse_run(raw: bytes, shown: str) -> Run | Finding:
    """The run record in ``raw``, or findings about its schema or its digest."""
    try:
        return open_run(raw)[0]
    except ValueError as error:
        return Finding(
            shown, 1, "run",
            f"{error}; runs are written by kbtool and never edited: restore the file with git,"
            " or remove it",
        )  # fmt: skip


def open_run(raw: bytes) -> tuple[Run, dict[str, Any]]:
    """The run record in ``raw``, without paths of a machine, and its JSON object as it stands.

    Raises:
        ValueError: the schema or the digest does not match.
    """
    run, record = read_json(raw, Run)
    if run.digest is None:
        raise ValueError("unsealed: it has no digest")
    if run.digest != digest_of_record(record):
        raise ValueError("unsealed: its content does not match its digest")
    if run.taken_in is not None and run.taken_in.digest != digest_of_record(first_record(record)):
        raise ValueError("unsealed: its content does not match the digest from before the import")
    return run, record


def read_json(raw: bytes, kind: type[R]) -> tuple[R, dict[str, Any]]:
    """A record that kbtool wrote as JSON, without paths of a machine, and its object as it stands.

    Raises:
        ValueError: the schema does not match.
    """
    try:
        text = raw.decode()
        # Records of old versions may hold paths of a machine, which nothing may show.
        record = kind.model_validate_json(without_machine_paths(text))
        return record, json.loads(text, object_pairs_hook=_without_duplicates)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        raise ValueError(f"{place + ': ' if place else ''}{message}") from None
    except RecursionError as error:
        raise ValueError(str(error)) from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {twice!r} is twice in one object")
    return record
