"""Where the records are that come with kbtool: symptoms, patterns, kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

SYMPTOMS = "symptoms"
"""The folder of the catalogue of symptoms, under the root of a knowledge base."""
_HISTORY = re.compile(
    r"^(?:bugs|lessons|stated_in|decisions|claims|rests_on|supersedes):.*\n(?:[ -].*\n)*"
    r"|^  - (?:file|commit):.*\n(?:    .*\n)*"  # a place outside of the kernels
    r"|^  claims\..*\n(?:    .*\n)*"  # why a claim lacks a field
    r"|^  - name:.*\n(?:    .*\n)*?.*\bsessions/.*\n(?:    .*\n)*",  # a recipe
    re.MULTILINE,
)
"""What a pattern says of sessions and decisions, which are those of kbtool's own repository."""
_RECIPE = re.compile(r"^  - name: (\S+)\n(?:    .*\n)*?    kernel: ", re.MULTILINE)
_EMPTY = re.compile(r"^\w+:\n(?!  )", re.MULTILINE)
_ABOUT = frozenset((".md", ".svg"))
"""Files of a kernel that tell of measurements in kbtool's own repository."""


def packaged(folder: str) -> Path:
    """A folder of records that comes with kbtool: in its checkout, else in the installed wheel."""
    package = Path(__file__).parents[1]
    checkout = package.parent / folder
    return checkout if checkout.is_dir() else package / f"_{folder}"


def other_symptoms(root: Path) -> list[Path]:
    """The files of kbtool's own catalogue of symptoms; none where ``root`` holds this catalogue."""
    folder = packaged(SYMPTOMS)
    if not folder.is_dir() or folder.resolve() == (root / SYMPTOMS).resolve():
        return []
    return sorted(folder.glob("*.yaml"))


def recipes() -> list[str]:
    """The recipes that come with kbtool, with a kernel."""
    texts = (path.read_text("utf-8") for path in packaged("patterns").glob("*.yaml"))
    return sorted(found[1] for text in texts for found in _RECIPE.finditer(text))


def kernels_with_patterns() -> dict[str, bytes]:
    """The files of the kernels that come with kbtool and all its patterns, which refer to them, for
    a knowledge base of its own: file → content."""
    found = {}
    for path in _files(packaged("kernels")):
        if path.suffix not in _ABOUT:
            inside = path.relative_to(packaged("kernels")).as_posix()
            found[f"kernels/{inside}"] = path.read_bytes()
    for path in sorted(packaged("patterns").glob("*.yaml")):
        text = _EMPTY.sub("", _HISTORY.sub("", path.read_text("utf-8")))
        found[f"patterns/{path.name}"] = text.encode()
    return found


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith((".", "__")) for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden and path.suffix != ".so":
            yield path
