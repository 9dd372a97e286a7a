"""Parse YAML records: every scalar is text, and every value has its line number.

The schema decides types, not YAML: a commit id ``7e12345`` stays text and ``no`` is not false. Only
a plain ``null``, ``~`` or an empty value is null. Duplicate keys, anchors, aliases, tags and more
than one document in a file are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml

from kbtool.model.control import CONTROL, holds
from kbtool.model.finding import Finding
from kbtool.store.read import MAX_BYTES

MAX_DEPTH = 64
BOM = "\ufeff"
"""The byte order mark that editors on Windows put before a text. `kbtool check` refuses it."""

_CONFLICT = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """The safe loader without implicit types."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> None:
        """Resolve no tags: they are not used, and resolving took a quarter of the time."""


class DocumentError(Exception):
    """A file that cannot be read as a record. Holds the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class Document:
    """One parsed file. ``data`` holds text, lists, dicts and ``None``; ``line`` finds lines."""

    def __init__(self, path: str, text: str | Path, data: Any, lines: list[int]) -> None:
        """Hold parsed data and its lines.

        Args:
            path: the path to name in findings.
            text: the file's text, or its path, to read it only when needed.
            data: the parsed data.
            lines: line numbers: of the document, then of each key and item in file order.
        """
        self.path = path
        self._text = text
        self.data = data
        self.lines = lines
        self._node: Any = None
        self._below: dict[int, dict[str | int, tuple[Any, int]]] = {}

    @property
    def text(self) -> str:
        """The file's text."""
        if isinstance(self._text, Path):
            self._text = self._text.read_text(encoding="utf-8")
        return self._text

    @property
    def node(self) -> Any:
        """The YAML nodes with their positions, for edits. Composed on first use.

        A byte order mark before the text has no position.
        """
        if self._node is None:
            self._node = yaml.compose(self.text.removeprefix(BOM), Loader=_Loader)
        return self._node

    def line(self, location: Sequence[str | int]) -> int:
        """The line, from 1, of the deepest part of ``location`` that exists in the file."""
        node, at = self.data, 0
        for part in location:
            # A key of a mapping may be a number, which a location names as such.
            name = part if isinstance(node, list) else str(part)
            found = self._places_in(node, at).get(name)
            if found is not None:
                node, at = found
            elif node is self.data:
                break
        return self.lines[at]

    def _places_in(self, node: Any, at: int) -> dict[str | int, tuple[Any, int]]:
        """Key or number of what is directly in ``node`` → it, and its place among ``lines``.

        Kept, for a record of a hundred thousand faults asks as often for each of them.

        Args:
            node: a part of the data.
            at: its own place, which tells it apart.
        """
        found = self._below.get(at)
        if found is None:
            found = self._below[at] = {}
            at += 1
            for key, value in _children(node):
                found[key] = (value, at)
                at += _places(value)
        return found

    def finding(self, location: Sequence[str | int], rule: str, message: str) -> Finding:
        """A finding at ``location``."""
        return Finding(self.path, self.line(location), rule, message)


def _children(node: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(node, dict):
        return node.items()
    return enumerate(node) if isinstance(node, list) else ()


def _places(value: Any) -> int:
    """The number of keys and items in a value, at any depth, including itself."""
    if type(value) is str or value is None:
        return 1
    children = value.values() if type(value) is dict else value
    # A call for each text would take most of the time.
    below = sum(_places(child) - 1 for child in children if type(child) in _NESTED)
    return 1 + len(children) + below


_NESTED = (dict, list)


def read_bytes(path: Path, shown: str, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a record's file.

    Raises:
        DocumentError: the file cannot be read, exceeds ``limit``, or is not a regular file.
    """
    try:
        if not path.is_file():
            raise _error(shown, 1, "file", "is no regular file; put one there or name another")
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


def conflict(text: str, shown: str) -> Finding | None:
    """A finding if the text holds git's conflict markers, else ``None``."""
    marker = _CONFLICT.search(text)
    if marker is None:
        return None
    line = text.count("\n", 0, marker.start()) + 1
    message = f"holds git's conflict markers, line {line}: keep what is right and remove them"
    return Finding(shown, line, "conflict", message)


def parse(raw: bytes, shown: str) -> Document:
    """Parse one YAML record.

    Args:
        raw: the bytes of the file.
        shown: the path to name in findings.

    Raises:
        DocumentError: the file is not UTF-8, not YAML, uses YAML features that records must not
            use, or holds git's conflict markers.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise _error(shown, line, "encoding", "is not UTF-8 text; save it as UTF-8") from None
    control = CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        raise _error(shown, line, "encoding", holds(control[0]))
    unmerged = conflict(text, shown)
    if unmerged is not None:
        raise DocumentError(unmerged)
    try:
        return Document(shown, text, *_load(text, shown))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        context = getattr(error, "context", None)
        message = f"{problem}, {context}" if context else problem
        # For an invalid character libyaml reports its byte offset.
        before = mark.line if mark else raw.count(b"\n", 0, getattr(error, "position", 0))
        raise _error(shown, before + 1, "yaml", message) from None


def _load(text: str, shown: str) -> tuple[dict[str, Any], list[int]]:
    """Build data and line numbers from the parser's events.

    Events take half the time of composed nodes, and a loop cannot overflow the stack: too deep
    nesting is refused before any recursive code sees it.
    """
    loader = _Loader(text)
    try:
        return _build(loader.get_event, shown)
    finally:
        loader.dispose()


# Local names are faster than attributes, and this is the hottest loop.
_SCALAR = yaml.ScalarEvent
_MAPPING, _MAPPING_END = yaml.MappingStartEvent, yaml.MappingEndEvent
_SEQUENCE, _SEQUENCE_END = yaml.SequenceStartEvent, yaml.SequenceEndEvent


def _build(get_event: Callable[[], Any], shown: str) -> tuple[dict[str, Any], list[int]]:
    lines = [_begin(get_event, shown)]
    root: dict[str, Any] = {}
    node: Any = root
    key: str | None = None
    above: list[Any] = []
    while True:
        event = get_event()
        kind = type(event)
        value: Any
        if kind is _SCALAR:
            if event.tag is not None or event.anchor is not None:
                _plain(event, shown)
            value = event.value
            if event.style == '"' and (escaped := CONTROL.search(value)):
                raise _at(event, shown, "encoding", holds(escaped[0]))
            if key is None and type(node) is dict:
                if value in node:
                    raise _at(event, shown, "duplicate-key", f"{value!r} is here twice; remove one")
                key = value
                lines.append(event.start_mark.line + 1)
                continue
            if value in _NULLS and not event.style:
                value = None
        elif kind is _MAPPING_END or kind is _SEQUENCE_END:
            if not above:
                break
            node = above.pop()
            continue
        elif kind is _MAPPING or kind is _SEQUENCE:
            if event.tag is not None or event.anchor is not None:
                _plain(event, shown)
            if key is None and type(node) is dict:
                raise _at(event, shown, "yaml", "this key is not text; write a plain name")
            if len(above) + 2 > MAX_DEPTH:
                raise _too_deep(event, shown)
            value = {} if kind is _MAPPING else []
            above.append(node)
        else:
            raise _at(event, shown, "yaml", f"*{event.anchor} is an alias; write the value in full")
        if type(node) is dict:
            node[key] = value
            key = None
        else:
            node.append(value)
            lines.append(event.start_mark.line + 1)
        if kind is not _SCALAR:
            node, key = value, None
    get_event()  # the end of the document
    event = get_event()
    if type(event) is not yaml.StreamEndEvent:
        raise _at(event, shown, "yaml", "begins a second document; a file holds one record")
    return root, lines


def _begin(get_event: Callable[[], Any], shown: str) -> int:
    """Read up to the start of the record, which is a mapping; the line that it begins in."""
    get_event()  # the start of the stream
    event = get_event()
    if type(event) is yaml.DocumentStartEvent:
        event = get_event()
        if type(event) is _SCALAR and not event.style and event.value == "":
            event = None
    else:
        event = None
    if event is None:
        raise _error(shown, 1, "yaml", "is empty; a record needs at least an id")
    line: int = event.start_mark.line + 1
    if type(event) is not _MAPPING:
        raise _error(shown, 1, "yaml", "is not a record: it must be a mapping of keys to values")
    _plain(event, shown)
    return line


_NULLS = frozenset(("", "~", "null"))


def _plain(event: Any, shown: str) -> None:
    """Refuse tags and anchors: they change the meaning of a value."""
    if event.tag is not None:
        raise _at(event, shown, "yaml", f"has a tag ({event.tag}); remove it")
    if event.anchor is not None:
        raise _at(event, shown, "yaml", f"&{event.anchor} is an anchor; remove it")


def _too_deep(event: Any, shown: str) -> DocumentError:
    return _at(event, shown, "yaml", f"is nested more than {MAX_DEPTH} levels deep")


def _at(event: Any, shown: str, rule: str, message: str) -> DocumentError:
    return _error(shown, event.start_mark.line + 1, rule, message)


def _error(shown: str, line: int, rule: str, message: str) -> DocumentError:
    return DocumentError(Finding(shown, line, rule, message))
