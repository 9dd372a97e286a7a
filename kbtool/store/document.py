"""YAML as kbtool reads it: scalars are text, every value knows its line, nothing is ambiguous.

The schema gives the types, not YAML: a commit id ``7e12345`` stays text and ``no`` is not false.
Only a plain ``null`` or ``~`` or nothing at all is null. Duplicate keys, anchors, aliases, tags
and more than one document in a file are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml

from kbtool.model.finding import Finding

MAX_BYTES = 4 << 20
"""A record larger than this is a mistake: measurements belong in run files, prose in notes."""
MAX_DEPTH = 64

_SUSPECT_DEPTH = re.compile(rb"[\[{]|^[ \-?:]{128,}", re.MULTILINE)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")

_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """The safe loader without a single implicit type."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


class DocumentError(Exception):
    """A file that cannot be read as a record; carries the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class Document:
    """One parsed file: ``data`` is text, lists, dicts and ``None``; ``line`` finds its places."""

    __slots__ = ("data", "node", "path", "text")

    def __init__(self, path: str, text: str, node: Any, data: Any) -> None:
        self.path = path
        self.text = text
        self.node = node
        self.data = data

    def line(self, location: Sequence[str | int]) -> int:
        """The line, from 1, of the deepest part of ``location`` that is in the file."""
        node = self.node
        line: int = node.start_mark.line + 1
        for part in location:
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value == str(part):
                        line, node = key.start_mark.line + 1, value
                        break
            elif isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
        return line

    def finding(self, location: Sequence[str | int], rule: str, message: str) -> Finding:
        """A finding at ``location``."""
        return Finding(self.path, self.line(location), rule, message)


def read_bytes(path: Path, shown: str, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a record's file.

    Raises:
        DocumentError: it cannot be read, is larger than ``limit``, or is no regular file.
    """
    try:
        if not path.is_file():
            raise _error(shown, 1, "file", "is not a file; remove it or put a record here")
        size = path.stat().st_size
        if size > limit:
            raise _error(
                shown, 1, "file",
                f"has {size:,} bytes; a record has at most {limit:,}: move figures to runs/,"
                " prose to notes.md",
            )  # fmt: skip
        return path.read_bytes()
    except OSError as error:
        raise _error(shown, 1, "file", f"cannot be read: {error.strerror}") from None


def parse(raw: bytes, shown: str) -> Document:
    """Parse one YAML record.

    Args:
        raw: the bytes of the file.
        shown: the path to name in findings.

    Raises:
        DocumentError: it is not UTF-8, not YAML, or not the plain YAML that records are.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise _error(shown, line, "encoding", "is not UTF-8 text; save it as UTF-8") from None
    control = _CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        raise _error(shown, line, "encoding", f"holds the control character {control[0]!r}")
    try:
        if _SUSPECT_DEPTH.search(raw):
            _check_depth(text, shown)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        context = getattr(error, "context", None)
        said = f"{problem}, {context}" if context else problem
        raise _error(shown, mark.line + 1 if mark else 1, "yaml", said) from None
    if node is None:
        raise _error(shown, 1, "yaml", "is empty; a record needs at least an id")
    if not isinstance(node, yaml.MappingNode):
        raise _error(shown, 1, "yaml", "is no record: it must be a mapping of keys to values")
    return Document(shown, text, node, _build(node, shown, set()))


def _check_depth(text: str, shown: str) -> None:
    """Refuse deep nesting before the recursive composer meets it."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                mark: Any = event.start_mark
                raise _error(
                    shown, mark.line + 1, "yaml", f"is nested more than {MAX_DEPTH} levels deep"
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _build(node: Any, shown: str, seen: set[int]) -> Any:
    if id(node) in seen:
        raise _error(shown, node.start_mark.line + 1, "yaml", "is used again through an alias (*)")
    if node.tag not in _TAGS:
        raise _error(shown, node.start_mark.line + 1, "yaml", f"has a tag ({node.tag}); remove it")
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        if not node.style and node.value in ("", "~", "null"):
            return None
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, shown, seen) for item in node.value]
    built: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _error(shown, line, "yaml", "has a key that is not text")
        if key.value in built:
            raise _error(shown, line, "duplicate-key", f"{key.value!r} stands here twice")
        built[key.value] = _build(value, shown, seen)
    return built


def _error(shown: str, line: int, rule: str, message: str) -> DocumentError:
    return DocumentError(Finding(shown, line, rule, message))
