"""A parsed record for the rules, and the id that its file name or text states."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kbtool.checks.paths import Location, item_name
from kbtool.checks.references import references
from kbtool.model.base import (
    KernelId,
    Model,
    PatternId,
    SessionId,
    pattern_of,
)
from kbtool.model.finding import Finding
from kbtool.store.document import Document
from kbtool.store.scan import FileKind


@dataclass(slots=True)
class Places:
    """Places in a record's data that several rules need, collected in one walk."""

    nulls: list[Location] = field(default_factory=list)
    items: list[tuple[Location, list[Any]]] = field(default_factory=list)
    """Lists of items with ids: where the list is, and the id of each item."""
    sources: list[tuple[Location, str]] = field(default_factory=list)
    """Every ``source`` that is text."""

    def walk(self, node: Any, location: Location) -> None:
        """Collect from ``node``, which stands at ``location``."""
        if type(node) is dict:
            for key, value in node.items():
                if type(value) is str:
                    if key == "source":
                        self.sources.append(((*location, key), value))
                elif value is None:
                    self.nulls.append((*location, key))
                else:
                    self.walk(value, (*location, key))
            return
        ids = []
        for index, value in enumerate(node):
            if type(value) is dict:
                ids.append(value.get("id"))
                self.walk(value, (*location, index))
            elif value is None:
                self.nulls.append((*location, index))
            elif type(value) is list:
                self.walk(value, (*location, index))
        if ids:
            self.items.append((location, ids))


class RecordFile:
    """A parsed record: its data as written and, if the schema allows it, its model."""

    __slots__ = (
        "_names", "data", "document", "id", "kind", "path", "places", "record", "references"
    )  # fmt: skip

    def __init__(self, path: str, kind: FileKind, document: Document, record: Model | None) -> None:
        self.path = path
        self.kind = kind
        self.document = document
        self.data: dict[str, Any] = document.data
        self.record = record
        self.places = Places()
        self.places.walk(self.data, ())
        self.id = promised_id(path, kind, self.data.get("id"))
        self.references = list(references(self.data, kind, self.id))
        self._names: dict[str, Counter[str]] = {}

    def names_in(self, key: str) -> Counter[str]:
        """What the items of a list of the record are called, and how many by each name."""
        if key not in self._names:
            items = self.data.get(key)
            names = (item_name(item, -1) for item in items) if type(items) is list else ()
            self._names[key] = Counter(names)
        return self._names[key]

    def finding(self, location: Location | list[str | int], rule: str, message: str) -> Finding:
        """A finding at the key of ``location``."""
        return self.document.finding(location, rule, message)


_SESSION_ID = re.compile(pattern_of(SessionId))

_PATTERN_ID = re.compile(pattern_of(PatternId))

_ID_FORMS: dict[FileKind, re.Pattern[str]] = {
    "session": _SESSION_ID,
    "pattern": _PATTERN_ID,
    "kernel": re.compile(pattern_of(KernelId)),
}

_RAW_ID = re.compile(r"^id:[ \t]*[\"']?([\w-]+)", re.MULTILINE)


def promised_id(path: str, kind: FileKind, stated: object = None) -> str:
    """The id of a record, valid or not: the stated one, else the one in its file name."""
    form = _ID_FORMS.get(kind)
    if form is not None and isinstance(stated, str) and form.fullmatch(stated):
        return stated
    name = file_name(path, kind)
    if kind == "pattern" and _PATTERN_ID.fullmatch(begin := name.partition("-")[0]):
        return begin
    return name


def raw_id(text: str) -> str | None:
    """The id in the text of a file that cannot be parsed, if any."""
    found = _RAW_ID.search(text)
    return found[1] if found else None


def file_name(path: str, kind: FileKind) -> str:
    """The name that must go with the id: of the folder, or of the file without its suffix."""
    parts = path.split("/")
    if kind in {"pattern", "symptoms", "run", "sweep", "ledger", "excuses"}:
        return parts[-1].rsplit(".", 1)[0]
    return parts[1] if len(parts) > 1 else path
