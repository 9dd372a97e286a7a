r"""Absolute paths that tell of one machine or person: found in text, and taken out of it.

Counted are paths below the folders where people and jobs keep their own files, Windows drives and
network shares (``\\server\share``). Not counted are the system's folders (/usr, /etc, /dev …): they
are the same on every machine of the kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_NAME = r"[\w.+@=~-]"
"""A character of a file's name, as far as it tells a path from the text around it."""

_TOPS = (
    # people
    r"home\d*", "root", "Users", "export/home", "usr/home", "var/home", "private/var",
    # what lasts no longer than a job
    "tmp", "var/tmp", "var/folders", r"scratch\d*", "builds", "__w", "sandbox",
    # what somebody mounted, installed or named
    r"work\d*", r"workspaces?", "teamspace", "notebooks", "content", "kaggle", r"mnt\d*", "media",
    "run/media", "run/user", "Volumes", r"data\d*", r"disk\d*", r"storage\d*", "shared", "srv",
    "opt", "nfs", "fsx", "efs", "lustre", "gpfs", "projects?",
)  # fmt: skip
"""The folders that count, below the root of the file system, as expressions."""

_PATH = re.compile(
    # Starting with one character that must be there is 5 times as fast as with a look behind it.
    rf"/(?:{'|'.join(_TOPS)})(?:/{_NAME}+)+/?"
    # A drive: C:\a\b; in JSON and in quoted YAML each backslash is written twice.
    rf"|:(?<=[A-Za-z]:)(?:\\\\{_NAME}+(?:\\\\{_NAME}+)*|\\{_NAME}+(?:\\{_NAME}+)+)"
    # A share: \\server\share.
    rf"|\\\\(?:[\w.-]{{2,}}\\{_NAME}{{2,}}(?:\\{_NAME}+)*"
    rf"|\\\\[\w.-]{{2,}}\\\\{_NAME}{{2,}}(?:\\\\{_NAME}+)*)"
)

_BEGINS = re.compile(
    # The end of what stands before a path: nothing that a name, a relative path, a variable, a
    # placeholder, a glob or an address could end with …
    r"(?:(?<![\w.~)\]}*$%/\\>-])|(?<=>)(?<![A-Za-z]>)"
    # … or an escape of JSON, a colour of a terminal, an option of a compiler, or file://.
    r"|\\[bfnrt]|\\u[0-9a-fA-F]{4}|\[[\d;]*[mK]|(?<![\w-])-(?:[BFIL]|isystem)|\bfile://)\Z"
)


def machine_paths(text: str) -> Iterator[tuple[int, str]]:
    """Where each path of a machine begins in ``text``, and the path.

    ``text`` may be JSON: its escapes are taken into account.
    """
    match = _PATH.search(text)
    while match is not None:
        start, end = match.span()
        if text[start] == ":":
            start -= 1  # the letter of the drive
        if _begins(text, start):
            yield start, text[start:end]
        else:
            end = match.start() + 1
        match = _PATH.search(text, end)


def without_machine_paths(text: str, folders: Mapping[str, str] | None = None) -> str:
    """``text`` without paths of a machine: ``…/name`` stands for a file, ``…`` for a folder.

    Args:
        text: plain text or JSON.
        folders: absolute folder → what to write for it; an empty text makes paths relative to it.
            Of folders inside each other the innermost counts.
    """
    if folders:
        text = _named(text, folders)
    parts = []
    done = 0
    for start, path in machine_paths(text):
        name = re.split(r"[/\\]+", path)[-1]
        # A folder's name may be that of a person.
        parts += [text[done:start], f"…/{name}" if "." in name[1:-1] else "…"]
        done = start + len(path)
    return "".join([*parts, text[done:]])


def _named(text: str, folders: Mapping[str, str]) -> str:
    innermost = sorted(folders, key=len, reverse=True)
    expression = re.compile(rf"({'|'.join(map(re.escape, innermost))})(/(?={_NAME})|(?!{_NAME}))")

    def name(match: re.Match[str]) -> str:
        if not _begins(text, match.start()):
            return match[0]
        shown = folders[match[1]]
        return shown + match[2] if shown else "" if match[2] else "."

    return expression.sub(name, text)


def _begins(text: str, start: int) -> bool:
    """Whether a path can begin at ``start``."""
    return _BEGINS.search(text, max(0, start - 16), start) is not None
