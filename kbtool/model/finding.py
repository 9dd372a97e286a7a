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
