"""Characters that steer a terminal or turn the direction of text around."""

from __future__ import annotations

import re

CONTROL = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab, line ends and form feed (which sources have), and those that
override the direction of text."""


def holds(character: str) -> str:
    """The message of a finding: a text holds a character that it may not."""
    return f"holds the control character U+{ord(character):04X}, which no reader sees; leave it out"


def visible(text: str) -> str:
    """``text`` with an escape, as in JSON, for each character that would steer the terminal."""
    if not _STEERS.search(text):
        return text
    return _STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace("\r\n", "\n"))


_STEERS = re.compile(f"\r|\x85|{CONTROL.pattern}")
"""With U+0085, which a record may hold and a terminal takes for a line end."""
