"""The format of a knowledge base: one number, in ``kbtool.yaml`` at its root (ADR 0046).

Every command reads it, so this imports no models and no YAML.
"""

from __future__ import annotations

import re
from pathlib import Path

from kbtool import __version__
from kbtool.model.errors import MachineError, RecordError

FILE = "kbtool.yaml"
"""The file that states the format. A knowledge base without it has format 1."""

FORMAT = 2
"""The format that this version writes. It reads this one and all earlier ones."""

SINCE = "0.1.0"
"""The oldest version of kbtool that reads ``FORMAT``."""

_FORMAT = re.compile(r"^format:[ \t]*(.*?)[ \t]*(?:[ \t]#.*)?\r?$", re.MULTILINE)
_SINCE = re.compile(r"^kbtool:[ \t]*['\"]?([\w.+-]+)", re.MULTILINE)

_NEW = "# The format of this knowledge base. `kbtool migrate` raises it.\n"
_OLDEST = "# The oldest version of kbtool that reads this format.\n"


def format_of(root: Path) -> int:
    """The format of the knowledge base at ``root``.

    Raises:
        RecordError: the file does not state one whole number.
        MachineError: the format is newer than this version of kbtool.
    """
    try:
        raw = (root / FILE).read_bytes()
    except FileNotFoundError:
        return 1
    return format_in(raw)


def format_in(raw: bytes) -> int:
    """The format that the content of the file states; errors are those of ``format_of``."""
    text = raw.decode("utf-8-sig", "replace")
    stated = _FORMAT.findall(text)
    if len(stated) != 1 or not re.fullmatch("[1-9][0-9]{0,8}", stated[0]):
        raise RecordError(
            f"{FILE} must state the format of the knowledge base once, as a whole number:"
            f" `format: {FORMAT}`"
        )
    number = int(stated[0])
    if number > FORMAT:
        since = _SINCE.search(text)
        needed = f"kbtool {since[1]} or newer" if since else "a newer kbtool"
        raise MachineError(
            f"this knowledge base has format {number} and needs {needed}; this is kbtool"
            f" {__version__}, which reads formats up to {FORMAT}"
        )
    return number


def with_format(raw: bytes | None) -> bytes:
    """The content of the file for ``FORMAT``; what else was in it, if it was there, is kept."""
    if raw is None:
        return f"{_NEW}format: {FORMAT}\n{_OLDEST}kbtool: {SINCE}\n".encode()
    text = raw.decode("utf-8", "surrogateescape")
    text = _put(text, _FORMAT, str(FORMAT))
    return _put(text, _SINCE, SINCE).encode("utf-8", "surrogateescape")


def _put(text: str, expression: re.Pattern[str], value: str) -> str:
    found = expression.search(text)
    return text if found is None else text[: found.start(1)] + value + text[found.end(1) :]
