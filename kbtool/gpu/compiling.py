"""Counts what this process compiles and runs, and the processes it starts, so that no timed call
does."""

from __future__ import annotations

import functools
import sys
from typing import Any

_PROCESSES = frozenset(("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec"))
_seen = 0
_has_compiled = False


def compiled() -> int:
    """How often it did so since the first call of this function."""
    _watch()
    return _seen


@functools.cache
def _watch() -> None:
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    global _seen, _has_compiled
    if event == "compile":
        _has_compiled = True  # a traceback does too, and runs none of it
    elif event in _PROCESSES or (event == "exec" and _has_compiled):
        _seen, _has_compiled = _seen + 1, False
