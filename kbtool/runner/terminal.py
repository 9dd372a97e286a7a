"""Streams that show control characters instead of sending them to the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TextIO

from kbtool.model.control import visible


class Guarded:
    """A text stream that shows control characters instead of sending them.

    Attributes:
        unguarded: the stream itself, for what steers the terminal on purpose.
    """

    def __init__(self, stream: TextIO, worded: Callable[[str], str] = visible) -> None:
        """A guard of ``stream``; ``worded`` says how it words a text."""
        self.unguarded = stream
        self._worded = worded

    def shown(self, text: str) -> str:
        """What stands on the stream where ``text`` is written."""
        return visible(self._worded(text))

    def write(self, text: str) -> int:
        """Write text; what would steer the terminal is escaped."""
        return self.unguarded.write(self.shown(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


def unguarded(stream: TextIO) -> TextIO:
    """The stream behind a guarded one; any other as it is."""
    return stream.unguarded if isinstance(stream, Guarded) else stream
