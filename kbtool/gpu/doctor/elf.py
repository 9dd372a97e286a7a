"""The symbol versions that a shared library needs and defines, from its ELF file."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path

DEFINED, NEEDED = 0x6FFFFFFD, 0x6FFFFFFE
"""The types of the sections .gnu.version_d and .gnu.version_r."""
_NAME = re.compile(rb"GLIBCXX_(\d+(?:\.\d+)*)\0")


def newest_glibcxx(path: Path, section: int) -> str | None:
    """The newest version of libstdc++'s symbols that a library defines or needs; ``None`` if it has
    none, or cannot be read.

    Args:
        path: the library.
        section: ``DEFINED`` or ``NEEDED``.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return newest(_versions(data, section))
    except (OSError, ValueError, struct.error):
        return None


def newest(versions: Iterator[str] | list[str]) -> str | None:
    """The newest of some versions."""
    return max(versions, key=numbers, default=None)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparisons."""
    return tuple(map(int, re.findall(r"\d+", version)))


def _versions(data: mmap.mmap, section: int) -> Iterator[str]:
    if data[:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian
        return
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    # Type, offset, size, and the section that has the names.
    headers = [
        struct.unpack_from("<4xI16xQQI", data, table + index * size) for index in range(count)
    ]
    for kind, start, _, names in headers:
        if kind != section or names >= count:
            continue
        text = headers[names][1]
        at, more = start, True
        while more:
            if section == DEFINED:
                _, _, _, entries, _, first, step = struct.unpack_from("<HHHHIII", data, at)
            else:
                _, entries, _, first, step = struct.unpack_from("<HHIII", data, at)
            entry = at + first
            for _ in range(entries):
                if section == DEFINED:
                    name, following = struct.unpack_from("<II", data, entry)
                else:
                    name, following = struct.unpack_from("<8xII", data, entry)
                if match := _NAME.match(data, text + name):
                    yield match[1].decode()
                entry += following
            at, more = at + step, step > 0
