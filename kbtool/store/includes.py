"""Find the ``#include``s of a kernel's source without a compiler."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Container, Iterator

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\w+))', re.MULTILINE)


def includes(
    name: str, text: bytes, listed: Container[str], folder: str | os.PathLike[str]
) -> Iterator[str | None]:
    """The kernel's own files that a file includes. ``#if`` is not evaluated.

    Args:
        name: normalised path of the file, relative to ``folder``.
        text: content of the file.
        listed: the files that the manifest lists, as normalised paths.
        folder: the kernel's folder, to look for files that are not listed.

        Yields:
            The normalised path of each included file, listed or not; ``None`` where a macro gives
            the name.
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
