"""What the tools answer with: which records were used, why there is no more, and what was cut."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeVar

from kbtool.model.base import Output
from kbtool.model.control import visible
from kbtool.model.words import many
from kbtool.store.tree import KnowledgeBase

Outcome = Literal["found", "nothing_found", "filtered_out", "unknown"]

MOST_NAMED = 100
"""So many records are named in an answer; of more, their number is."""

A = TypeVar("A", bound="Answer")


class Used(Output):
    """A record that an answer rests on."""

    id: str
    """What get_record takes."""
    path: str
    """Its file, relative to the root of the knowledge base."""


class Answer(Output):
    """What every reading tool says beside its results."""

    outcome: Outcome
    """nothing_found: all records were read, and none fits. filtered_out: some fit, but the filters
    of the call leave none. unknown: the records do not say, or one that might does not load."""
    why: str | None = None
    """Why nothing is found, and what to try."""
    records: list[Used] = []
    """The records that the answer rests on."""
    records_not_named: int = 0
    """How many more there are."""
    unreadable: list[str] = []
    """Records that do not load and so are not in the answer."""
    left_out: int = 0
    """Results that are not shown."""
    more: str | None = None
    """How to get what is left out."""


def answer(
    kind: type[A],
    base: KnowledgeBase,
    found: bool,
    /,
    *,
    why: str | None = None,
    outcome: Outcome | None = None,
    used: Iterable[tuple[str, str]] = (),
    **fields: Any,
) -> A:
    """An answer of this kind.

    Args:
        kind: its model.
        base: the knowledge base, which knows what could not be read.
        found: whether there is a result.
        why: why there is none; what else is known.
        outcome: if it is another than ``found`` says.
        used: id and path of each record that was used.
        fields: of the model.
    """
    unreadable = list(dict.fromkeys(finding.path for finding in base.findings))
    if outcome is None:
        outcome = "found" if found else "nothing_found"
    if outcome == "nothing_found" and unreadable:
        outcome = "unknown"
        why = f"{why or 'nothing was found'}; but {_unread(unreadable)}"
    names = list(dict.fromkeys(used))
    return kind(
        outcome=outcome,
        why=why,
        records=[Used(id=id_, path=path) for id_, path in names[:MOST_NAMED]],
        records_not_named=max(0, len(names) - MOST_NAMED),
        unreadable=unreadable[:MOST_NAMED],
        **fields,
    )


def _unread(paths: Sequence[str]) -> str:
    return f"{many(len(paths), 'record')} could not be read (`kbtool check` says why)"


def page(items: Sequence[Any], limit: int, offset: int) -> tuple[Sequence[Any], dict[str, Any]]:
    """A part of a list, and what an answer says of the rest."""
    shown = items[offset : offset + limit]
    left = max(0, len(items) - offset - len(shown))
    more = f"offset={offset + len(shown)} shows the next" if left else None
    return shown, {"left_out": left, "more": more}


def harmless(value: Any) -> Any:
    """Plain data with an escape for each character that steers a terminal or turns text around."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [harmless(one) for one in value]
    if isinstance(value, dict):
        return {visible(key): harmless(one) for key, one in value.items()}
    return value


def outlined(value: Any, room: int) -> tuple[Any, list[str]]:
    """Plain data in about so many characters of JSON, and the places where it was cut."""
    cut: list[str] = []
    return _outlined(value, room, "", cut), cut


_LEAST = 60
"""So many characters of a text are shown at least."""


def _outlined(value: Any, room: int, place: str, cut: list[str]) -> Any:
    size = _size(value)
    if size <= room:
        return value
    if isinstance(value, str):
        kept = max(_LEAST, room)
        if len(value) <= kept:
            return value
        cut.append(f"{place or 'text'}: the first {kept} of {len(value)} characters")
        return value[:kept] + "…"
    if isinstance(value, dict):
        return _outlined_mapping(value, room, place, cut)
    if isinstance(value, list):
        shown: list[Any] = []
        for one in value:
            need = _size(one) + 2
            if need > room:
                break
            shown.append(one)
            room -= need
        if not shown and value and room > _LEAST and isinstance(value[0], dict | list):
            shown = [_outlined(value[0], room, f"{place}[0]", cut)]
        if len(shown) < len(value):
            cut.append(f"{place or 'list'}: {len(shown)} of {len(value)} items")
        return shown
    return value


def _outlined_mapping(value: dict[str, Any], room: int, place: str, cut: list[str]) -> Any:
    sizes = {key: _size(one) + len(key) + 6 for key, one in value.items()}
    kept: dict[str, Any] = {}
    left = room
    # The small ones stay whole; the large ones share what is left.
    ordered = sorted(value, key=sizes.__getitem__)
    for number, key in enumerate(ordered):
        share = left // (len(ordered) - number)
        where = f"{place}.{key}" if place else key
        if sizes[key] > share and share < _LEAST:
            cut.append(f"{where}: left out, {sizes[key]} characters")
            continue
        kept[key] = _outlined(value[key], share - len(key) - 6, where, cut)
        left -= min(sizes[key], _size(kept[key]) + len(key) + 6)
    return {key: kept[key] for key in value if key in kept}


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, default=str))
