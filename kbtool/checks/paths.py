"""Paths in a record as people write them: keys and item ids joined by dots.

They equal the addresses of ``kbtool.model.address`` but work on the parsed data, so they can point
at a null or into a record that does not load. An item without an id is named by its index, from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Location = tuple[str | int, ...]

_NAMES = ("id", "kind", "pattern", "name")


def locate(data: Any, path: str) -> list[Location]:
    """All locations in ``data`` that ``path`` may mean."""
    found: list[tuple[Location, Any]] = [((), data)]
    keys = path.split(".")
    while keys and found:
        # Ids may contain dots, so take the longest name that fits.
        for length in range(len(keys), 0, -1):
            key = ".".join(keys[:length])
            below = [
                ((*place, *step), child)
                for place, node in found
                for step, child in _children(node, key)
            ]
            if below:
                break
        else:
            return []
        found, keys = below, keys[length:]
    return [place for place, _ in found]


def claim_at(data: Any, location: Sequence[str | int]) -> str | None:
    """The id of the claim that ``location`` is in, or ``None``."""
    if len(location) < 2 or location[0] != "claims":
        return None
    claim = data["claims"][location[1]]
    name = claim.get("id") if isinstance(claim, dict) else None
    return name if isinstance(name, str) else None


def spell(data: Any, location: Sequence[str | int]) -> str:
    """``location`` as people write it."""
    words: list[str] = []
    node = data
    for part in location:
        node = node[part]
        words.append(item_name(node, part) if isinstance(part, int) else part)
    return ".".join(words)


def item_name(item: Any, place: int) -> str:
    """What an item of a list is called in a path: its id, kind, pattern, name, or its place."""
    if isinstance(item, dict):
        for name in _NAMES:
            if isinstance(item.get(name), str):
                word: str = item[name]
                return word
    return str(place)


def _children(node: Any, key: str) -> Iterator[tuple[Location, Any]]:
    if isinstance(node, dict):
        if key in node:
            yield (key,), node[key]
            return
        for name, value in node.items():
            if isinstance(value, (list, dict)):
                for step, child in _children(value, key):
                    yield (name, *step), child
    elif isinstance(node, list):
        for index, item in enumerate(node):
            if item_name(item, index) == key or (key.isascii() and key == str(index)):
                yield (index,), item
