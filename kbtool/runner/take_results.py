"""Take result files of other tools into a session: each file is a run record, all or none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbtool.checks.text_rules import private
from kbtool.model.kinds.logged import ImportResult
from kbtool.model.run import MachineInfo, RepositoryState, Run
from kbtool.runner.journal import run_id, write_run
from kbtool.runner.one_step import one_step_run
from kbtool.runner.results import asv, google, nvbench, pytest_benchmark
from kbtool.runner.results.base import ResultFileError, Taken
from kbtool.runner.results.table import TOOL as CSV_TOOL
from kbtool.runner.results.table import Columns
from kbtool.runner.results.table import read as read_table
from kbtool.store.document import DocumentError, read_bytes
from kbtool.store.read import MAX_RUN_BYTES
from kbtool.store.repository import repository_state
from kbtool.store.sessions import slug
from kbtool.store.tree import KnowledgeBase

_READERS = (pytest_benchmark, google, nvbench)
_TOOLS = "nvbench, Google Benchmark, pytest-benchmark or asv"


@dataclass(frozen=True)
class File:
    """A result file that was read."""

    name: str
    """As the caller named it."""
    result: ImportResult
    left_out: list[str]
    seconds: float
    known: str | None = None
    """The run that holds this very file already; of CSV, read in the same way."""
    same_as: str | None = None
    """The file before it that holds the same."""


def read_files(base: KnowledgeBase, paths: Sequence[Path], columns: Columns) -> list[File]:
    """Read every file, and write nothing.

    Args:
        base: the knowledge base; a file that one of its runs holds already is known.
        paths: the files.
        columns: what the columns of CSV files are; ``unit`` is also that of other values that name
            none.

    Raises:
        ResultFileError: one of them cannot be taken in.
    """
    here = {
        _key(result): entry.record.id
        for entry in base.runs
        if (result := entry.record.last(ImportResult)) is not None
    }
    found: dict[str, File] = {}
    files = []
    for path in paths:
        file = _read(path, columns, here)
        first = found.setdefault(_key(file.result), file)
        files.append(file if first is file else replace(file, same_as=first.name))
    return files


def write_files(
    base: KnowledgeBase, session: str, files: Iterable[File], machine: MachineInfo
) -> list[tuple[Run, Path]]:
    """Write a run record for each file that is not known. If one cannot be written, none stays.

    Raises:
        MachineError: a record could not be written.
    """
    written: list[tuple[Run, Path]] = []
    repository = repository_state(base.root)
    try:
        for one in files:
            if one.known is None and one.same_as is None:
                written.append(write_run(base, _run(session, one, machine, repository)))
    except BaseException:
        for _, path in written:
            path.unlink(missing_ok=True)
        raise
    return written


def _run(session: str, one: File, machine: MachineInfo, repository: RepositoryState) -> Run:
    now = datetime.now(UTC)
    name = one.result.file
    return one_step_run(
        run_id(now, slug(Path(name).stem, "results")), session, name, one.result,
        machine=machine, repository=repository, started=now, ended=now, seconds=one.seconds,
    )  # fmt: skip


def _read(path: Path, columns: Columns, here: dict[str, str]) -> File:
    began = datetime.now(UTC)
    try:
        raw = read_bytes(path, str(path), MAX_RUN_BYTES)
    except DocumentError as error:
        raise ResultFileError(f"{path} {error.finding.message}") from None
    digest = hashlib.sha256(raw).hexdigest()
    try:
        taken = _taken(path, raw, columns)
        result = ImportResult(
            tool=taken.tool, tool_version=taken.version, file=path.name, sha256=digest,
            measured_at=taken.measured_at, commit=taken.commit, dirty=taken.dirty,
            machine=taken.machine, metrics=taken.shortened(),
        )  # fmt: skip
        if (found := private(result.model_dump(mode="json"))) is not None:
            line, why = found
            raise ResultFileError(f"{line[:80]} {why}; take it out of the file first")
    except ResultFileError as error:
        raise ResultFileError(f"{path}: {error}") from None
    if not result.metrics:
        why = f": {taken.left_out[0]}" if taken.left_out else ""
        raise ResultFileError(f"{path} holds no finite value{why}; run the benchmark again")
    seconds = (datetime.now(UTC) - began).total_seconds()
    return File(str(path), result, taken.left_out, seconds, here.get(_key(result)))


def _key(result: ImportResult) -> str:
    """What two results share that need one record only. A CSV file holds what its reader asks for:
    other columns make another result of it."""
    if result.tool != CSV_TOOL:
        return result.sha256
    metrics = [series.model_dump(mode="json") for series in result.metrics]
    return f"{result.sha256} {json.dumps(metrics)}"


def _taken(path: Path, raw: bytes, columns: Columns) -> Taken:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ResultFileError(f"byte {error.start} is not UTF-8; save it as UTF-8") from None
    if path.suffix.lower() == ".csv" or (columns.value and not text.lstrip().startswith("{")):
        return read_table(text, columns)
    data = _json(text)
    if asv.is_mine(data):
        return asv.read(data, _beside(path), columns.unit)
    for reader in _READERS:
        if reader.is_mine(data):
            found: Taken = reader.read(data)
            return found
    raise ResultFileError(
        f"it is no result file of {_TOOLS}; it has the keys {', '.join(list(data)[:5]) or 'none'}."
        " Write CSV and name its columns with --value, --unit and --case"
    )


def _json(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        what = "it is cut off" if cut else f"it is no JSON ({error.msg})"
        raise ResultFileError(
            f"{where}: {what}: copy the file again, or run the tool again"
        ) from None
    except (RecursionError, ValueError) as error:
        raise ResultFileError(f"it is no result file of {_TOOLS}: {error}") from None
    if not isinstance(data, dict):
        raise ResultFileError(f"it is no result file of {_TOOLS}: no JSON object")
    return data


def _beside(path: Path) -> dict[str, Any]:
    """asv's ``benchmarks.json``, in the folder above the results of a machine."""
    about = path.resolve().parent.parent / "benchmarks.json"
    try:
        data = json.loads(read_bytes(about, str(about), MAX_RUN_BYTES))
    except (DocumentError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
