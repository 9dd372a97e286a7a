"""What a source of a kernel includes, read without a compiler."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Container, Iterator

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\w+))', re.MULTILINE)


def includes(
    name: str, text: bytes, listed: Container[str], folder: str | os.PathLike[str]
) -> Iterator[str | None]:
    """The kernel's own files that one of them includes; conditions are not evaluated.

    Args:
        name: of the file, normal and relative to ``folder``.
        text: its content.
        listed: the files that the manifest lists, as ``name`` is written.
        folder: the kernel's folder, where other files are looked for.

    Yields:
        Each file, listed or not, as ``name`` is written; ``None`` for one that a macro names,
        which only the compiler can tell.
    """
    for quoted, angled, macro in _INCLUDE.findall(text.decode("utf-8", "replace")):
        if macro:
            yield None
            continue
        beside = [posixpath.join(posixpath.dirname(name), quoted)] if quoted else []
        for place in map(posixpath.normpath, [*beside, quoted or angled]):
            if place in listed or (not place.startswith("..") and _is_file(folder, place)):
                yield place
                break


def _is_file(folder: str | os.PathLike[str], path: str) -> bool:
    return os.path.isfile(os.path.join(folder, path))  # noqa: PTH113, PTH118
