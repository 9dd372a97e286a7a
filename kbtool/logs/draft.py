"""The draft of a session: what was placed, with its lines, and what was not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kbtool.model.base import cited_lines
from kbtool.store.dump import Data, dump, scalar
from kbtool.store.schema import modeline

_ORDER = (
    "costs", "steps", "measurements", "bugs", "fixes", "commits", "decisions", "plans",
    "deliverables", "claims", "lessons",
)  # fmt: skip


class Names:
    """Names that were given: the second of a kind gets a number."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._last: dict[str, int] = {}

    def fresh(self, name: str) -> str:
        """``name``, or with the next number that nobody has."""
        made, number = name, self._last.get(name, 1)
        while made in self._seen:
            number += 1
            made = f"{name}-{number}"
        self._last[name] = number
        self._seen.add(made)
        return made


@dataclass
class Item:
    """One entry of a list of the record."""

    data: dict[str, Any]
    lines: set[int]
    unknown: dict[str, str] = field(default_factory=dict)
    """Path below the entry → the reason for its null."""


@dataclass(frozen=True, order=True)
class Left:
    """Something that was not placed."""

    line: int
    text: str
    why: str


@dataclass
class Draft:
    """A session's record in the making."""

    key: str
    """The key of the report among its `sources`."""
    fields: dict[str, str | None] = field(default_factory=dict)
    cites: dict[str, set[int]] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    environment_lines: set[int] = field(default_factory=set)
    repository: dict[str, Any] = field(default_factory=dict)
    repository_lines: set[int] = field(default_factory=set)
    lists: dict[str, list[Item]] = field(default_factory=lambda: {name: [] for name in _ORDER})
    left: list[Left] = field(default_factory=list)
    ids: dict[str, Names] = field(default_factory=dict)

    def add(self, name: str, data: dict[str, Any], lines: Iterable[int], **unknown: str) -> Item:
        """Add an entry to a list; its id is made unique."""
        if "id" in data:
            data["id"] = self.unique(name, data["id"])
        item = Item(data, set(lines), unknown)
        self.lists[name].append(item)
        return item

    def unique(self, within: str, name: str) -> str:
        """An id that no other entry of the list has."""
        return self.ids.setdefault(within, Names()).fresh(name)

    def cite(self, lines: Iterable[int]) -> str:
        """A citation of these lines: ``log:3,8-9``."""
        return f"{self.key}:{spans_of(lines, ',')}"

    def cited(self) -> set[int]:
        """The lines that something in the record cites."""
        stated = (lines for key, lines in self.cites.items() if key in self.fields)
        entries = (item.lines for items in self.lists.values() for item in items)
        below = (line for items in self.lists.values() for item in items
                 for line in _lines_below(item.data))  # fmt: skip
        return (self.environment_lines | self.repository_lines).union(below, *stated, *entries)


def _lines_below(data: Any) -> Iterator[int]:
    """The lines that the options of a decision and the hypotheses of a bug cite."""
    for part in [*data.get("options", ()), *data.get("hypotheses", ())]:
        for first, last in cited_lines(part["source"]):
            yield from range(first, last + 1)


def spans_of(lines: Iterable[int], between: str = ", ") -> str:
    """Numbers of lines, those that follow each other as one: ``3, 8-9``."""
    spans: list[list[int]] = []
    for line in sorted(set(lines)):
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    return between.join(f"{first}-{last}" if last > first else f"{first}" for first, last in spans)


def slug(text: str, otherwise: str = "item") -> str:
    """The first words of a text as an id."""
    from kbtool.store.sessions import slug as name_of

    made = name_of(text[:200], otherwise)
    return made if len(made) <= 40 else made[:41].rpartition("-")[0] or made[:40]


Span = tuple[int, int, str, int | None]
"""First and last line of a part of the record, its key, and the place of the entry in its list."""


def write(draft: Draft, head: dict[str, str], source: dict[str, str]) -> tuple[str, list[Span]]:
    """The record as YAML, and which lines of it hold what."""
    parts = [
        f"{modeline('session')}\n",
        "# Drafted by `kbtool import`: read it beside the log, and correct what it got wrong.\n",
    ]
    count = 2
    spans: list[Span] = []

    def put(key: str, place: int | None, part: str) -> None:
        nonlocal count
        parts.append(part)
        spans.append((count + 1, count + part.count("\n"), key, place))
        count = spans[-1][1]

    def space(text: str) -> None:
        nonlocal count
        parts.append(text)
        count += text.count("\n")

    for key in ("id", "label", "title", "origin"):
        put(key, None, f"{key}: {scalar(head[key])}\n")
    put("sources", None, dump({"sources": {draft.key: source}}))
    put("status", None, dump({"status": head["status"]}))
    unknown = dict(draft.unknown)
    for key, value in draft.fields.items():
        put(key, None, dump({key: value}))
    if draft.environment:
        cited = {**draft.environment, "source": draft.cite(draft.environment_lines)}
        put("environment", None, dump({"environment": cited}))
    if draft.repository:
        cited = {**draft.repository, "source": draft.cite(draft.repository_lines)}
        put("repository", None, dump({"repository": cited}))
    for name in _ORDER:
        items = draft.lists[name]
        if not items:
            continue
        space(f"\n{name}:\n")
        for place, item in enumerate(items):
            if name == "lessons":
                put(name, place, f"  - {scalar(item.data['text'])}\n")
                continue
            data: dict[str, Data] = {**item.data, "source": draft.cite(item.lines)}
            # An entry of a list: its first key follows the dash.
            put(name, place, re.sub(r"^    ", "  - ", dump(data, 4), count=1))
            own = item.data.get("id") or item.data.get("kind") or str(place)
            unknown |= {f"{name}.{own}.{path}": why for path, why in item.unknown.items()}
    cites = {key: draft.cite(lines) for key, lines in draft.cites.items() if key in draft.fields
             and draft.fields[key] is not None}  # fmt: skip
    for key, what in (("cites", cites), ("unknown", unknown)):
        if what:
            space("\n")
            put(key, None, dump({key: what}))
    return "".join(parts), spans


def not_placed(draft: Draft, name: str, uncited: Iterable[int], code: Iterable[int]) -> str:
    """What was not placed, as Markdown: for the file beside the draft.

    Args:
        draft: the draft.
        name: the name of the log.
        uncited: lines of text that nothing in the record cites.
        code: lines of code, which are not read.
    """
    lines = [f"# Not placed from {name}", "",
             "What `kbtool import` found in the log and put nowhere.", ""]  # fmt: skip
    for left in sorted(draft.left):
        quoted = re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", left.text)
        lines.append(f"- line {left.line}: {quoted} ({left.why})")
    for title, numbers in (("Lines that no entry cites", uncited), ("Code, not read", code)):
        if said := spans_of(numbers):
            lines += ["", f"{title}: {said}"]
    return "\n".join(lines) + "\n"
