"""List the files of a knowledge base, each with a stamp that changes when the file does.

It avoids pathlib for speed: every check scans all sessions, and there may be ten thousand.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from kbtool.model.finding import Finding

FileKind = Literal[
    "session", "notes", "run", "sweep", "pattern", "symptoms", "kernel", "cheats", "ledger",
    "excuses", "text",
]  # fmt: skip
"""``text``: files written by people that the site may publish, other than records."""

Stamp = tuple[int, int, int, int]
"""Modification time, change time (both in ns), size, inode."""

NO_STAMP: Stamp = (0, 0, 0, 0)
"""The stamp of a missing file, or of one whose stamp is not needed."""


class File(NamedTuple):
    """A file that belongs to the records."""

    path: str
    """Relative to the root."""
    kind: FileKind
    stamp: Stamp


LEDGER = "ledger.yaml"
"""The name of the ledger, in the folder of the sessions."""

EXCUSES = "excuses.yaml"
"""The name of the file with excuses, beside the ledger."""

CHEATS = "cheats.yaml"
"""The name of a kernel's catalogue of cheats, beside its manifest."""


@dataclass
class Scan:
    """The files under a root."""

    files: list[File] = field(default_factory=list)
    journals: list[str] = field(default_factory=list)
    """Journals of runs that are in progress or were killed."""
    findings: list[Finding] = field(default_factory=list)
    """Misplaced and missing files."""


def scan(root: str) -> Scan:
    """All records under ``root``, and findings about misplaced files."""
    found = Scan()
    real_root = os.path.realpath(root)
    for entry in _entries(root, "sessions", found):
        if _is_folder(entry, real_root, f"sessions/{entry.name}", found):
            _scan_session(root, real_root, entry.name, found)
        elif entry.name == LEDGER:
            _add(entry, f"sessions/{LEDGER}", "ledger", real_root, found)
        elif entry.name == EXCUSES:
            _add(entry, f"sessions/{EXCUSES}", "excuses", real_root, found)
        elif entry.name not in _PROSE and entry.is_file():
            found.findings.append(
                _stray(
                    f"sessions/{entry.name}",
                    f"a session is a folder with a session.yaml; beside them stand {LEDGER} and"
                    f" {EXCUSES}",
                )
            )
    for entry in _entries(root, "patterns", found):
        path = f"patterns/{entry.name}"
        if entry.name.endswith(".yaml"):
            _add(entry, path, "pattern", real_root, found)
        elif entry.name not in _PROSE:
            found.findings.append(_stray(path, "patterns/ holds one .yaml file a pattern"))
    for entry in _entries(root, "symptoms", found):
        path = f"symptoms/{entry.name}"
        if entry.name.endswith(".yaml"):
            _add(entry, path, "symptoms", real_root, found)
        elif entry.name not in _PROSE:
            found.findings.append(_stray(path, "symptoms/ holds one .yaml file a tool"))
    for entry in _entries(root, "kernels", found):
        path = f"kernels/{entry.name}/kernel.yaml"
        if entry.is_dir() and os.path.lexists(f"{root}/{path}"):
            inside = {item.name: item for item in os.scandir(f"{root}/kernels/{entry.name}")}
            _add(inside["kernel.yaml"], path, "kernel", real_root, found)
            if CHEATS in inside:
                _add(inside[CHEATS], f"kernels/{entry.name}/{CHEATS}", "cheats", real_root, found)
            _scan_text(root, real_root, f"kernels/{entry.name}", _CODE, found)
    _scan_text(root, real_root, "docs", (".md",), found)
    with os.scandir(root) as top:
        for entry in top:
            if entry.name.endswith(".md") and entry.is_file():
                _add(entry, entry.name, "text", real_root, found)
    return found


def folders_in(root: str | Path, folder: str) -> list[str]:
    """The folders in a folder, by name; none if there is no such folder."""
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            names = [one.name for one in entries if one.name[0] not in "._" and one.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [f"{folder}/{name}" for name in sorted(names)]


def named_in(root: str | Path, folder: str, ending: str) -> list[str]:
    """The files in a folder whose name ends so, by name; none if there is no such folder."""
    try:
        names = os.listdir(f"{root}/{folder}")  # noqa: PTH208
    except OSError:
        return []
    wanted = (name for name in names if name.endswith(ending) and name[0] != ".")
    return [f"{folder}/{name}" for name in sorted(wanted)]


def files_at(root: str | Path, paths: Sequence[str], kind: FileKind) -> list[File]:
    """The files at ``paths``, with their stamps."""
    return [File(path, kind, _stamp(root, path)) for path in paths]


def _stamp(root: str | Path, path: str) -> Stamp:
    try:
        return stamp_of(os.stat(f"{root}/{path}"))  # noqa: PTH116 - pathlib costs as much again
    except OSError:
        return NO_STAMP


_CODE = (".md", ".py", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp")
"""Add the text files of a kernel's folder: prose, harness, interface, sources."""


def _scan_text(
    root: str, real_root: str, folder: str, suffixes: tuple[str, ...], found: Scan
) -> None:
    """Add the text files in a folder and below. Links are not followed."""
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            inside = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        found.findings.append(Finding(folder, 1, "file", f"cannot be read: {error.strerror}"))
        return
    for entry in inside:
        path = f"{folder}/{entry.name}"
        if entry.name[0] == "." or entry.name == "__pycache__":
            continue
        if entry.is_dir(follow_symlinks=False):
            _scan_text(root, real_root, path, suffixes, found)
        elif entry.name.endswith(suffixes) and entry.is_file():
            _add(entry, path, "text", real_root, found)


_PROSE = frozenset(("README.md", "index.md"))


def scan_costs(root: str) -> list[File]:
    """Only sessions and the ledger, which hold the costs: fast enough for a shell prompt."""
    found = Scan()
    real_root = os.path.realpath(root)
    for entry in _entries(root, "sessions", found):
        if entry.name == LEDGER:
            _add(entry, f"sessions/{LEDGER}", "ledger", real_root, found)
            continue
        path = f"sessions/{entry.name}/session.yaml"
        try:
            found.files.append(File(path, "session", stamp_of(os.stat(f"{root}/{path}"))))  # noqa: PTH116
        except OSError:
            continue  # not a session; `kbtool check` reports it
    return found.files


def _scan_session(root: str, real_root: str, name: str, found: Scan) -> None:
    folder = f"sessions/{name}"
    has_record = False
    for entry in _entries(root, folder, found, hidden="."):
        if entry.name == "session.yaml":
            has_record = True
            _add(entry, f"{folder}/session.yaml", "session", real_root, found)
        elif entry.name == "notes.md":
            _add(entry, f"{folder}/notes.md", "notes", real_root, found)
        elif entry.name == "runs":
            if _is_folder(entry, real_root, f"{folder}/runs", found):
                _scan_runs(root, real_root, folder, found)
            else:
                found.findings.append(_stray(f"{folder}/runs", "runs/ is a folder of run records"))
        elif entry.name == "sweeps" and _is_folder(entry, real_root, f"{folder}/sweeps", found):
            for one in _entries(root, f"{folder}/sweeps", found):
                path = f"{folder}/sweeps/{one.name}"
                if one.name.endswith(".json") and not one.is_dir():
                    _add(one, path, "sweep", real_root, found)
                else:
                    found.findings.append(
                        _stray(path, "sweeps/ holds sweep records only, written by kbtool")
                    )
        elif entry.name == "files" and entry.is_dir():
            continue  # free-form files of the session: plots, logs
        elif entry.name in _MISSPELT:
            found.findings.append(
                _stray(f"{folder}/{entry.name}", f"write {_MISSPELT[entry.name]} instead")
            )
        else:
            found.findings.append(
                _stray(
                    f"{folder}/{entry.name}",
                    "a session holds session.yaml, notes.md, runs/, sweeps/, and any other file in"
                    " files/",
                )
            )
    if not has_record:
        found.findings.append(
            Finding(
                f"{folder}/session.yaml", 1, "missing",
                "is missing; every folder in sessions/ needs a session.yaml: write one"
                " (kbtool session new), or remove the folder",
            )
        )  # fmt: skip


_MISSPELT = {
    "session.yml": "session.yaml",
    "session.json": "session.yaml",
    "Session.yaml": "session.yaml",
    "notes.txt": "notes.md",
    "Notes.md": "notes.md",
}


def _scan_runs(root: str, real_root: str, folder: str, found: Scan) -> None:
    with os.scandir(f"{root}/{folder}/runs") as entries:
        for entry in entries:
            path = f"{folder}/runs/{entry.name}"
            if entry.name[0] == ".":
                if entry.name.endswith(".journal"):
                    found.journals.append(path)
            elif entry.name.endswith(".json") and not entry.is_dir():
                _add(entry, path, "run", real_root, found)
            else:
                found.findings.append(
                    _stray(path, "runs/ holds run records only, written by kbtool")
                )


def _entries(root: str, folder: str, found: Scan, hidden: str = "._") -> list[os.DirEntry[str]]:
    try:
        with os.scandir(f"{root}/{folder}" if folder else root) as entries:
            return [entry for entry in entries if entry.name[0] not in hidden]
    except FileNotFoundError:
        return []
    except OSError as error:
        found.findings.append(Finding(folder, 1, "file", f"cannot be read: {error.strerror}"))
        return []


def _is_folder(entry: os.DirEntry[str], real_root: str, path: str, found: Scan) -> bool:
    if not entry.is_dir():
        return False
    if entry.is_symlink() and not inside(real_root, entry.path):
        found.findings.append(_leaves(path))
    return True


def _add(entry: os.DirEntry[str], path: str, kind: FileKind, real_root: str, found: Scan) -> None:
    try:
        if entry.is_symlink() and not inside(real_root, entry.path):
            found.findings.append(_leaves(path))
            return
        found.files.append(File(path, kind, stamp_of(entry.stat())))
    except OSError as error:
        found.findings.append(Finding(path, 1, "file", f"cannot be read: {error.strerror}"))


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file. It includes the change time, which cannot be set back."""
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def inside(real_root: str, path: str) -> bool:
    """Whether ``path``, with links resolved, is inside ``real_root``."""
    real = os.path.realpath(path)
    return real == real_root or real.startswith(real_root.rstrip("/") + "/")


def _stray(path: str, why: str) -> Finding:
    return Finding(path, 1, "stray", f"does not belong here: {why}")


def _leaves(path: str) -> Finding:
    return Finding(path, 1, "path", "is a link out of the knowledge base; copy the file here")
