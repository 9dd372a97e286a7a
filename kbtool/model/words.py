"""Words that messages share."""

from __future__ import annotations

import re

_FOLDERS = re.compile(r"(?:(?<![\w./~])|(?<=-[IL])|(?<=file://))(?:/[\w.+@~-]+)+/(?=[\w.+@~-])")


def many(count: int, noun: str) -> str:
    """``1 case``, ``2 cases``: a number of things whose plural ends in s."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def without_folders(text: str) -> str:
    """``text`` with absolute paths cut down to the file's name: a record goes to other machines,
    and where a library lies on this one is nobody's business there."""
    return _FOLDERS.sub("", text)
