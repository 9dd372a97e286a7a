"""Find the first error in the output of a compiler, a linker or ninja."""

from __future__ import annotations

import re

_FIRST_ERROR = re.compile(
    r"\b(?:error|fatal)\b(?: #[\w-]+)?\s*:|undefined (?:reference|symbol)|multiple definition"
    r"|cannot find -l|recompile with -fPIC|file not recognized|No such file|Killed",
)
_NOT_AN_ERROR = re.compile(
    r"\s*(?:FAILED:|ninja:|collect2:)|(?:(?!\berror\b).)*\b(?:warning|note)(?: #[\w-]+)?:"
)


def first_error(output: str) -> str:
    """The first line of a build's output that reports an error, with file and line."""
    lines = output.splitlines()
    for line in lines:
        if _FIRST_ERROR.search(line) and not _NOT_AN_ERROR.match(line):
            return line.strip()
    printed = [line.strip() for line in lines if line.strip() and not _NOT_AN_ERROR.match(line)]
    return printed[-1] if printed else "the build failed and printed nothing"
