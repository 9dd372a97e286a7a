"""Parse many YAML records on all cores, with a cache.

Parsing takes most of the time of loading a record, and costs, exports, the audit and the site all
load every session. The cache holds the parsed data and line numbers, not validated models.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kbtool.model.finding import Finding
from kbtool.store.cache import Cache, code_digest, now_ns
from kbtool.store.document import MAX_BYTES, Document, DocumentError, parse
from kbtool.store.pool import in_processes
from kbtool.store.read import read_stamped
from kbtool.store.scan import NO_STAMP, File, FileKind, Stamp, stamp_of

WORTH_A_CACHE = 200
"""From this many files on the cache is used; with fewer, nothing is written."""


def parse_all(root: Path, paths: Sequence[str], kind: FileKind) -> list[Document | Finding]:
    """The documents at ``paths`` under ``root``, in order; a finding for each unreadable one."""
    if len(paths) < WORTH_A_CACHE:
        read = _read(str(root), [File(path, kind, NO_STAMP) for path in paths])
        return [_document(root, path, value) for path, _, value in read]
    cache = Cache(str(root), f"{kind}-records", _digest())
    files = [File(path, kind, _stamp(str(root), path)) for path in paths]
    known = {file.path: cache.get(file.path, file.stamp) for file in files}
    read_at = now_ns()
    new = [file for file in files if known[file.path] is None]
    for path, stamp, value in in_processes(new, partial(_read, str(root))):
        known[path] = value
        if len(value) == 2:
            cache.put(path, tuple(stamp), value, read_at)
    cache.save(paths)
    return [_document(root, path, known[path]) for path in paths]


def _read(root: str, files: Sequence[File]) -> list[Any]:
    """Path and stamp of each file, with its data and lines, or with one item: the finding."""
    done: list[Any] = []
    for path, _, stamp in files:
        value: list[Any]
        got = read_stamped(root, path, MAX_BYTES)
        if isinstance(got, Finding):
            value = [got]
        else:
            raw, stamp = got
            try:
                document = parse(raw, path)
                value = [document.data, document.lines]
            except DocumentError as error:
                value = [error.finding]
        done.append((path, stamp, value))
    return done


def _document(root: Path, path: str, value: Any) -> Document | Finding:
    return Finding(*value[0]) if len(value) == 1 else Document(path, root / path, *value)


def _stamp(root: str, path: str) -> Stamp:
    try:
        return stamp_of(os.stat(f"{root}/{path}"))  # noqa: PTH116 - pathlib costs as much again
    except OSError:
        return NO_STAMP


def _digest() -> str:
    return code_digest({"store": Path(__file__).parent}, ("yaml",))
