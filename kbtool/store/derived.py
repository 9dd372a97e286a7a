"""What many records come to, made on all cores and kept in a cache until a file changes.

With nothing changed no model is imported and no YAML read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kbtool.model.finding import Finding
from kbtool.store.cache import Cache, code_digest, now_ns
from kbtool.store.pool import in_processes
from kbtool.store.read import MAX_BYTES, read_stamped
from kbtool.store.scan import File

Make = Callable[[Any], Any]
"""A function from a record to JSON data, or to the findings against it."""

Open = Callable[[bytes, str], Any]
"""A function from the bytes of a file and its path to the record, as ``Make`` takes it.

Raises:
    DocumentError: the file holds none.
"""


def derive_all(
    root: str,
    files: Sequence[File],
    make: Make,
    kept_as: str | None,
    code: Sequence[str] = ("model", "store"),
    kept_in: str | None = None,
    opened: tuple[Open, int] | None = None,
) -> list[Any | list[Finding]]:
    """What ``make`` makes of each file, in order; a list of findings for each that does not load.

    Args:
        root: the root of the knowledge base.
        files: the files.
        make: runs in this process and in forks of it.
        kept_as: the name of the cache; without it there is none.
        code: the folders of kbtool that ``make`` depends on.
        kept_in: the knowledge base that keeps the cache, if the files are none of its own.
        opened: how a file is read, and its most bytes. Default: as a YAML document.
    """
    cache = Cache(kept_in or root, kept_as, _digest(code)) if kept_as is not None else None
    made: dict[str, Any] = {
        file.path: cache.get(file.path, file.stamp) if cache else None for file in files
    }
    read_at = now_ns()
    new = [file for file in files if made[file.path] is None]
    if new:
        for path, stamp, *value in in_processes(new, partial(_make_part, root, make, opened)):
            made[path] = value
            if cache and stamp is not None:
                cache.put(path, tuple(stamp), value, read_at)
    if cache:
        cache.save(file.path for file in files)
    return [_answer(*made[file.path]) for file in files]


def is_unsound(made: Any) -> bool:
    """Whether this is the findings against a record, rather than what was made of it."""
    return isinstance(made, list) and bool(made) and isinstance(made[0], Finding)


def _answer(value: Any, findings: list[Any]) -> Any:
    return [Finding(*finding) for finding in findings] if findings else value


def _make_part(
    root: str, make: Make, opened: tuple[Open, int] | None, files: Sequence[File]
) -> list[Any]:
    """Path and stamp of each file, what was made of it, and the findings against it.

    What cannot be read has no stamp: it may be readable the next time, with no change.
    """
    from kbtool.store.document import DocumentError, parse

    read, most = opened or (parse, MAX_BYTES)
    done: list[Any] = []
    for path, _, _ in files:
        value: Any = None
        stamp = None
        findings: list[Finding] = []
        got = read_stamped(root, path, most)
        if isinstance(got, Finding):
            findings = [got]
        else:
            raw, stamp = got
            try:
                value = make(read(raw, path))
                if is_unsound(value):
                    value, findings = None, value
            except DocumentError as error:
                findings = [error.finding]
        done.append((path, stamp, value, findings))
    return done


def _digest(code: Sequence[str]) -> str:
    package = Path(__file__).parents[1]
    folders = {name: package / name for name in code}
    return code_digest(folders, ("pydantic", "pydantic_core", "yaml"))
