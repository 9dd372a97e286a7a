"""Findings: what is wrong, where, by which rule. Errors in records are values, never exceptions."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One problem in one place."""

    path: str
    """The file, relative to the root of the knowledge base."""
    line: int
    """The line, from 1."""
    rule: str
    """The name of the rule."""
    message: str
    """What is wrong and what to do about it."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def fault(path: str, what: str, error: Exception) -> Finding:
    """The finding where kbtool itself fails on a file, so that everything else is still checked.

    Args:
        path: the file.
        what: what failed.
        error: the exception.
    """
    said = " ".join(str(error).split())[:200]
    message = (
        f"{what} fails on it: {type(error).__name__}: {said}. The rest was checked. This is a fault"
        " of kbtool: please report it with the file"
    )
    return Finding(path, 1, "fault", message)
