"""Import runs from another machine into a session: all of them, or none if one is invalid.

A run that names the session is copied byte for byte. A run of another session gets the new session
and a new digest; the old digest is kept and can still be verified.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbtool import __version__
from kbtool.checks.check import check_tree
from kbtool.model.errors import UsageError
from kbtool.model.finding import Finding
from kbtool.model.kinds.build import BuildResult
from kbtool.model.run import Run, taken_into
from kbtool.model.session import Session
from kbtool.model.words import many
from kbtool.runner.journal import SUFFIX, file_stem
from kbtool.store.document import DocumentError, read_bytes
from kbtool.store.lock import lock
from kbtool.store.private import private_folder
from kbtool.store.read import MAX_RUN_BYTES
from kbtool.store.repository import files_at
from kbtool.store.sessions import create_session, remove_session, slug
from kbtool.store.tree import KnowledgeBase, open_run
from kbtool.store.write import write_new


@dataclass(frozen=True)
class Imported:
    """An imported run."""

    file: str
    """Where it was found, as the caller named it."""
    run: Run
    """As it is here."""
    path: str
    """Where it is here, relative to the root."""
    remarks: list[str]
    """Remarks that are no reason to refuse it."""


@dataclass(frozen=True)
class Known:
    """A run that exists here already."""

    file: str
    run: Run
    path: str


@dataclass
class Intake:
    """The outcome of an import. If any file was refused, nothing was imported."""

    session: str | None = None
    """The one session that all go to; ``None`` where each goes to the one that it names."""
    made: bool = False
    """Whether the session was made for them."""
    imported: list[Imported] = field(default_factory=list)
    known: list[Known] = field(default_factory=list)
    refused: list[Finding] = field(default_factory=list)
    """What is wrong, and with which of the files."""


@dataclass(frozen=True)
class _Candidate:
    file: str
    run: Run
    record: dict[str, Any]
    raw: bytes


@dataclass(frozen=True)
class _Staged:
    """A run record as it will be here."""

    file: str
    run: Run
    path: str
    raw: bytes


def run_files(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The run records that ``paths`` name, and the journals of runs that were cut off there.

    A path is a run record, or a folder: of runs, of a session, of sessions, of a knowledge base.

    Raises:
        UsageError: a path is not there, or a folder holds no runs.
    """
    files: list[Path] = []
    journals: list[Path] = []
    for path in paths:
        if path.is_dir():
            for below in ("", "runs", "*/runs", "sessions/*/runs"):
                found = [p for p in sorted(path.glob(f"{below}/*.json".lstrip("/"))) if _is_run(p)]
                left = sorted(path.glob(f"{below}/.*{SUFFIX}".lstrip("/")))
                if found or left:
                    break
            else:
                raise UsageError(
                    f"{path} holds no runs; name run records (*.json), a folder of them, a"
                    " session's folder or a knowledge base"
                )
            files += found
            journals += left
        elif path.exists():
            files.append(path)
        else:
            raise UsageError(f"there is no {path}")
    return list(dict.fromkeys(files)), journals


def import_runs(
    root: Path,
    files: Iterable[Path],
    *,
    session: str | None = None,
    new: str | None = None,
    dry_run: bool = False,
) -> Intake:
    """Take run records into a session.

    Args:
        root: the knowledge base.
        files: the records, from ``run_files``.
        session: the id or label of the session; each goes to the one that it names without it.
        new: the title of a session to make for them.
        dry_run: judge them and write nothing.

    Raises:
        NotFoundError: there is no such session.
        LockTimeoutError: another import did not end.
        OSError: a record cannot be written; those written before it were taken back.
    """
    with lock(private_folder(root, "locks") / "import.lock", timeout=60):
        base = KnowledgeBase(root)
        intake = Intake(base.session(session).record.id if session else None)
        candidates = _sort(base, files, intake)
        if new is not None and candidates:
            intake.session = f"{min(c.run.started for c in candidates):%Y-%m-%d}-{slug(new)}"
        elif intake.session is None:
            intake.refused += _strangers(base, candidates)
        staged = _stage(candidates, intake.session)
        intake.refused += _findings(base, staged)
        if intake.refused:
            return intake
        folder = None
        if new is not None and candidates and not dry_run:
            folder = _make_session(base, new, [c.run for c in candidates])
            intake.session, intake.made = folder.name, True
            staged = _stage(candidates, folder.name)  # the name that it was judged by may be taken
        intake.imported = _imported(base, staged)
        if not dry_run:
            _write(root, staged, folder)
        return intake


def _is_run(path: Path) -> bool:
    return path.name[0] != "." and path.is_file()


def _sort(base: KnowledgeBase, files: Iterable[Path], intake: Intake) -> list[_Candidate]:
    """Read the files; those that are here already, or are no sound records, go to ``intake``."""
    here = {_key(e.record): (_first_digest(e.record), e.path) for e in base.runs}
    found: dict[tuple[str, int], _Candidate] = {}
    for path in files:
        file = str(path)
        try:
            raw = read_bytes(path, file, MAX_RUN_BYTES)
            run, record = open_run(raw)
        except DocumentError as error:
            intake.refused.append(error.finding)
            continue
        except ValueError as error:
            intake.refused.append(Finding(file, 1, "run", _invalid(raw, str(error))))
            continue
        key, digest = _key(run), _first_digest(run)
        there = here.get(key)
        if there is not None and there[0] == digest:
            intake.known.append(Known(file, run, there[1]))
        elif there is not None:
            intake.refused.append(_differs(file, run, there[1]))
        elif key in found and _first_digest(found[key].run) != digest:
            intake.refused.append(_differs(file, run, found[key].file))
        elif key not in found:
            found[key] = _Candidate(file, run, record, raw)
    return sorted(found.values(), key=lambda c: (c.run.started, c.run.id, c.run.attempt))


def _key(run: Run) -> tuple[str, int]:
    return run.id, run.attempt


def _first_digest(run: Run) -> str | None:
    return run.taken_in.digest if run.taken_in else run.digest


def _differs(file: str, run: Run, other: str) -> Finding:
    return Finding(
        file, 1, "run",
        f"{file_stem(*_key(run))} is also {other}, with different content: only one of them is"
        " the record of that run; leave the other out",
    )  # fmt: skip


def _invalid(raw: bytes, problem: str) -> str:
    """The message for a file that is not a valid run record."""
    try:
        written_by = str(json.loads(raw)["machine"]["kbtool"])
    except (ValueError, RecursionError, LookupError, TypeError):
        written_by = __version__
    if _version(written_by) > _version(__version__):
        return (
            f"{problem}: it was written by kbtool {written_by}, which is newer than this one"
            f" ({__version__}); update kbtool here and import it again"
        )
    return (
        f"{problem}; runs are written by kbtool and never edited: copy it again from the machine"
        " that it was made on"
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _strangers(base: KnowledgeBase, candidates: Iterable[_Candidate]) -> Iterator[Finding]:
    """Where no session is named, each run's own has to be here."""
    for one in candidates:
        session = one.run.session
        if session in base.sessions:
            continue
        problem = (
            "is here but invalid: correct it first (`kbtool check` says how)"
            if (base.root / "sessions" / session).is_dir()
            else "is not here: import into another one with --session ID, or a new one with --new"
            " one"
        )
        yield Finding(one.file, 1, "session", f"its session, {session}, {problem}")


def _stage(candidates: Iterable[_Candidate], session: str | None) -> list[_Staged]:
    """The records as they will be here, in ``session`` or each in its own."""
    staged = []
    for one in candidates:
        raw, run = one.raw, one.run
        if session is not None and run.session != session:
            moved = taken_into(one.record, session)
            raw = json.dumps(moved, indent=1, ensure_ascii=False).encode() + b"\n"
            run = open_run(raw)[0]
        path = f"sessions/{run.session}/runs/{file_stem(*_key(run))}.json"
        staged.append(_Staged(one.file, run, path, raw))
    return staged


def _findings(base: KnowledgeBase, staged: Sequence[_Staged]) -> Iterator[Finding]:
    """What ``check`` would say once the records are here, and does not say yet."""
    files = {one.path: one.file for one in staged}
    for path, file in files.items():
        if (base.root / path).exists():
            message = f"{path} exists here but is not a valid record; `kbtool check` says why"
            yield Finding(file, 1, "run", message)
    # `check` says nothing of a run whose recipe is gone. One that comes from elsewhere may name a
    # recipe that was never here.
    known = {recipe.name for entry in base.patterns.values() for recipe in entry.record.recipes}
    for one in staged:
        if one.run.recipe is not None and one.run.recipe not in known:
            message = f"names recipe {one.run.recipe!r}, which no pattern has"
            yield Finding(one.file, 1, "link", message)
    before = set(check_tree(base.root).findings)
    for finding in check_tree(base.root, runs={one.path: one.raw for one in staged}).findings:
        # That a fix was called confirmed too early is no fault of the run that shows it.
        if finding not in before and finding.rule != "unconfirmed":
            yield finding._replace(path=files.get(finding.path, finding.path))


def _imported(base: KnowledgeBase, staged: Iterable[_Staged]) -> list[Imported]:
    imported = []
    for one in staged:
        entry = base.sessions.get(one.run.session)
        remarks = [
            *_about_commit(base.root, one.run),
            *(_about_time(one.run, entry.record) if entry else ()),
        ]
        imported.append(Imported(one.file, one.run, one.path, remarks))
    return imported


def _about_commit(root: Path, run: Run) -> Iterator[str]:
    """Whether what was measured is the commit that the record names."""
    commit = run.repository.commit
    results = [step.result for step in run.steps if isinstance(step.result, BuildResult)]
    sources = {
        f"kernels/{built.kernel}/{name}": digest
        for built in results
        for name, digest in built.sources.items()
    }
    if run.repository.dirty:
        yield "was made on a work tree that differed from its commit"
    if run.repository.changed_during_run:
        yield "the work tree changed while it ran"
    there: dict[str, bytes | None] | None = None
    if commit is None:
        yield "names no commit: only the hashes of its sources tell what was measured"
    else:
        try:
            there = files_at(root, commit, sources)
            if there is None:
                yield f"whether its commit {commit[:12]} exists cannot be told: no git repository"
        except LookupError:
            yield (
                f"its commit {commit[:12]} is not in this repository: push it from the machine that"
                " it was made on, and fetch it here"
            )
    where = "this work tree" if there is None else f"commit {(commit or '')[:12]}"
    if there is None:
        there = {path: _content(root / path) for path in sources}
    other = [
        path
        for path, digest in sources.items()
        if (content := there[path]) is None or hashlib.sha256(content).hexdigest() != digest
    ]
    if other:
        more = f" and {len(other) - 3} more" if len(other) > 3 else ""
        are = "is not that" if len(other) == 1 else "are not those"
        yield (
            f"{len(other)} of the {many(len(sources), 'file')} that it was built from {are} of"
            f" {where}: {', '.join(other[:3])}{more}"
        )


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _about_time(run: Run, session: Session) -> Iterator[str]:
    """Whether it was made while the session lasted."""
    if run.ended > datetime.now(UTC):
        yield f"ends at {run.ended:%Y-%m-%d %H:%M} UTC, in the future: one of the clocks is wrong"
    if session.started and session.started.zoned and run.ended < session.started.at:
        yield f"was made before the session began ({session.started})"
    if session.ended and session.ended.zoned and run.started > session.ended.at:
        yield f"was made after the session ended ({session.ended})"


def _make_session(base: KnowledgeBase, title: str, runs: Sequence[Run]) -> Path:
    """A session for the runs, complete, with what they agree on of machine and commit."""
    first = runs[0]
    entry = create_session(
        base,
        title=title,
        status="complete",
        now=min(run.started for run in runs),
        ended=max(run.ended for run in runs),
        machine=first.machine if all(run.machine == first.machine for run in runs) else None,
        repository=(
            first.repository if all(run.repository == first.repository for run in runs) else None
        ),
    )
    return (base.root / entry.path).parent


def _write(root: Path, staged: Iterable[_Staged], made: Path | None) -> None:
    """Write all the records, or take back those that were written."""
    written: list[Path] = []
    try:
        for one in staged:
            path = root / one.path
            path.parent.mkdir(exist_ok=True)
            write_new(path, one.raw)
            written.append(path)
    except BaseException:
        for file in written:
            file.unlink(missing_ok=True)
        if made is not None:
            remove_session(made)
        raise
