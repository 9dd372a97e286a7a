"""Cached results, each tied to the file that it was computed from.

Losing the cache costs only time. It is discarded when kbtool or a library has changed, when its
checksum is wrong, or when its format differs. A file changed less than two seconds ago is not
cached, because a second change could leave the same stamp. Only its owner can read it: it repeats
what records say, and some of them may be private.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kbtool.model.finding import Finding
from kbtool.store.private import FOLDER, private_folder
from kbtool.store.read import read_stamped
from kbtool.store.scan import Stamp
from kbtool.store.write import write_private

SETTLED_NS = 2_000_000_000
"""Age from which a file's stamp is trusted: coarse file systems store times to two seconds."""


class Cache:
    """Path → stamp and a JSON value. Each kind of result has its own cache."""

    def __init__(self, root: str, name: str, digest: str) -> None:
        self._root = root
        self._path = f"{FOLDER}/cache/{name}.json"
        self._digest = digest
        self._rows: dict[str, list[Any]] = self._load()
        self._changed = False

    def get(self, path: str, stamp: Stamp) -> Any:
        """The cached value of the file, or ``None`` if its stamp differs."""
        row = self._rows.get(path)
        return row[1] if row is not None and tuple(row[0]) == stamp else None

    def put(self, path: str, stamp: Stamp, value: Any, read_at_ns: int) -> None:
        """Cache ``value``, unless the file had just changed when it was read."""
        if max(stamp[0], stamp[1]) < read_at_ns - SETTLED_NS:
            self._rows[path] = [stamp, value]
            self._changed = True
        elif self._rows.pop(path, None) is not None:
            self._changed = True

    def touch(self) -> None:
        """Note that a cached value was extended, so that ``save`` writes it."""
        self._changed = True

    def save(self, paths: Iterable[str]) -> None:
        """Write the entries of ``paths`` and drop the rest. A write error is ignored."""
        wanted = set(paths)
        kept = {path: row for path, row in self._rows.items() if path in wanted}
        if not self._changed and len(kept) == len(self._rows):
            return
        body = json.dumps(kept, separators=(",", ":"), ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
        with contextlib.suppress(OSError):
            private_folder(Path(self._root), "cache")
            head = f"{self._digest} {_sum(body)}\n".encode()
            write_private(Path(self._root, self._path), head + body)

    def _load(self) -> dict[str, list[Any]]:
        got = read_stamped(self._root, self._path, sys.maxsize)
        if isinstance(got, Finding):
            return {}
        head, _, body = got[0].partition(b"\n")
        try:
            if head.decode() != f"{self._digest} {_sum(body)}":
                return {}
            rows = json.loads(body)
        except (ValueError, RecursionError):
            return {}
        return rows if isinstance(rows, dict) else {}


def code_digest(folders: Mapping[str, str | os.PathLike[str]], libraries: Iterable[str]) -> str:
    """A digest of the code that cached results depend on.

    Args:
        folders: name → folder. The content of all Python files below counts.
        libraries: top-level packages. Path, time and size count; they are not imported.
    """
    digest = hashlib.sha256(f"{sys.version}\n".encode())
    for name, folder in sorted(folders.items()):
        for path in sorted(Path(folder).rglob("*.py")):
            place = path.relative_to(folder).as_posix()
            digest.update(f"{name}/{place}\n".encode() + path.read_bytes())
    for library in libraries:
        spec = importlib.util.find_spec(library)
        if spec is not None and spec.origin:
            status = os.stat(spec.origin)  # noqa: PTH116
            digest.update(f"{spec.origin} {status.st_mtime_ns} {status.st_size}\n".encode())
    return digest.hexdigest()


def now_ns() -> int:
    """The current time, on the clock of file times."""
    return time.time_ns()


def _sum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
