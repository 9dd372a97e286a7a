"""Parse many YAML records on all cores, with a cache.

Parsing takes most of the time of loading a record, and exports, the audit and the site all load
every session. The cache holds the parsed data and line numbers, not validated models.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbtool.model.finding import Finding
from kbtool.store.derived import derive_all, is_unsound
from kbtool.store.document import Document
from kbtool.store.scan import FileKind, files_at

WORTH_A_CACHE = 200
"""From this many files on the cache is used; with fewer, nothing is written."""


def parse_all(
    root: Path, paths: Sequence[str], kind: FileKind, kept_as: str | None = None
) -> list[Document | Finding]:
    """The documents at ``paths`` under ``root``, in order; a finding for each unreadable one.

    Args:
        root: the root of the knowledge base.
        paths: the files.
        kind: their kind.
        kept_as: the name of the cache, if there are enough of them; that of all of the kind
            without it.
    """
    name = (kept_as or f"{kind}-records") if len(paths) >= WORTH_A_CACHE else None
    made = derive_all(str(root), files_at(root, paths, kind), _parsed, name)
    return [
        value[0] if is_unsound(value) else Document(path, root / path, *value)
        for path, value in zip(paths, made, strict=True)
    ]


def _parsed(document: Document) -> list[Any]:
    return [document.data, document.lines]
