"""Copies of a kernel's folder for edits, which share the build cache of the knowledge base."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from kbtool.model.base import Model
from kbtool.model.edit import edited
from kbtool.model.errors import UsageError
from kbtool.steps.base import Context
from kbtool.store.document import DocumentError, parse, read_bytes
from kbtool.store.load import validate
from kbtool.store.private import BUILD, FOLDER, build_cache

R = TypeVar("R", bound=Model)


@contextmanager
def copied_kernel(context: Context) -> Iterator[Path]:
    """A knowledge base that holds a copy of the kernel's folder and nothing else: its root."""
    with tempfile.TemporaryDirectory(prefix="kbtool-copy-") as temporary:
        root = Path(temporary)
        shutil.copytree(
            context.kernel_folder,
            root / "kernels" / context.manifest.id,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        (root / FOLDER).mkdir()
        (root / FOLDER / BUILD).symlink_to(build_cache(context.root).resolve())
        yield root


def edit_file(folder: Path, name: str, find: str, put: str) -> None:
    """Put ``put`` in the place of ``find`` in a file of ``folder``.

    Raises:
        UsageError: the file has no such text, or has it twice.
    """
    path = folder / name
    try:
        path.write_text(edited(path.read_text(encoding="utf-8"), find, put), encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: {error}") from None


def read_record(path: Path, kind: type[R]) -> R:
    """A file of a kernel's folder as a record.

    Raises:
        UsageError: it does not load.
    """
    shown = f"kernels/{path.parent.name}/{path.name}"
    try:
        record = validate(parse(read_bytes(path, shown), shown), kind)
    except DocumentError as error:
        raise UsageError(str(error)) from None
    if isinstance(record, list):
        raise UsageError(f"{record[0]}; `kbtool check` lists all")
    return record
