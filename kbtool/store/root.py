"""Find the root of the knowledge base. Imports no models, so that ``check`` starts fast."""

from __future__ import annotations

import os
from pathlib import Path

from kbtool.model.errors import NotFoundError
from kbtool.store.format import format_of


def find_root(explicit: str | os.PathLike[str] | None = None, naming: str = "--root DIR") -> Path:
    """The root of the knowledge base: ``explicit``, else ``KBTOOL_ROOT``, else searched upwards.

    Args:
        explicit: the root, if the caller was given one.
        naming: how the caller is given one, for messages.

    Raises:
        NotFoundError: no knowledge base was found.
        MachineError: its format is newer than this version of kbtool.
        RecordError: its ``kbtool.yaml`` states no format.
    """
    root = _found(explicit, naming)
    format_of(root)
    return root


def _found(explicit: str | os.PathLike[str] | None, naming: str) -> Path:
    given = explicit or os.environ.get("KBTOOL_ROOT")
    if given:
        root = Path(given).absolute()
        if not is_root(root):
            raise NotFoundError(
                f"{given} is not a knowledge base: it needs the folders sessions/ and patterns/"
            )
        return root
    here = Path.cwd()
    for folder in (here, *here.parents):
        if is_root(folder):
            return folder
    raise NotFoundError(
        "no knowledge base in this folder or above: one has the folders sessions/ and"
        f" patterns/. Change to one, pass {naming}, or set KBTOOL_ROOT"
    )


def is_root(folder: Path) -> bool:
    """Whether ``folder`` is the root of a knowledge base."""
    return (folder / "sessions").is_dir() and (folder / "patterns").is_dir()
