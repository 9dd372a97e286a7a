"""Addresses inside a record: ``measurements.fa1.s128.pytorch``, ``costs.gpu``, ``duration``.

A path is keys and item ids joined by dots. An item of a list is named by its ``id`` (a cost line
without one by its kind, evidence by its pattern). Where a key is no field of a model, the lists
and tables inside it are searched, so that ``rows`` and ``values`` need not be spelled out.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from kbtool.model.base import Quantity
from kbtool.model.session import CostLine, Measurement


class AddressError(LookupError):
    """A path that leads nowhere; the message says where it goes wrong and what is there."""


def item_key(item: object) -> str | None:
    """What an item of a list is called in a path, or ``None``."""
    values = getattr(item, "__dict__", {})
    for name in ("id", "kind", "pattern", "name"):
        key = values.get(name)
        if isinstance(key, str):
            return key
    return None


def split_reference(reference: str) -> tuple[str | None, str]:
    """``RECORD#path`` → (record or ``None`` for this one, path)."""
    record, _, path = reference.partition("#")
    return record or None, path


def resolve(record: BaseModel, path: str) -> Any:
    """What stands at ``path`` in ``record``.

    A figure comes as a ``Quantity`` with its unit: that of its column, a cost line's currency.

    Raises:
        AddressError: the path leads nowhere, or to more than one item.
    """
    node: Any = record
    unit = ""
    table: Measurement | None = None
    keys = path.split(".")
    while keys:
        if isinstance(node, Measurement):
            table = node
        # Ids may hold dots themselves, so the longest name that fits is taken; a field's does not.
        is_field = isinstance(node, BaseModel) and keys[0] in type(node).model_fields
        for length in (1,) if is_field else range(len(keys), 0, -1):
            key = ".".join(keys[:length])
            found = list(_children(node, key))
            if found:
                break
        else:
            raise AddressError(f"there is no {keys[0]!r} in {path!r}; there is {_known(node)}")
        if len(found) > 1:
            raise AddressError(f"{key!r} in {path!r} names {len(found)} items; give each an id")
        node, keys = found[0], keys[length:]
        if table is not None and key in table.columns:
            unit = table.columns[key].unit
    if isinstance(node, CostLine):
        node, unit = node.amount, node.currency
    if isinstance(node, (Decimal, int)) and not isinstance(node, bool):
        return Quantity(f"{node} {unit}".strip())
    return node


def _children(node: Any, key: str) -> Iterator[Any]:
    if isinstance(node, BaseModel):
        if key in type(node).model_fields:
            yield getattr(node, key)
            return
        for name in type(node).model_fields:
            value = getattr(node, name)
            if isinstance(value, (list, dict)):
                yield from _children(value, key)
    elif isinstance(node, dict):
        if key in node:
            yield node[key]
    elif isinstance(node, list):
        yield from (item for item in node if item_key(item) == key)


def _known(node: Any) -> str:
    if isinstance(node, BaseModel):
        names = list(type(node).model_fields)
    elif isinstance(node, dict):
        names = list(node)
    elif isinstance(node, list):
        names = [key for item in node if (key := item_key(item)) is not None]
    else:
        return "nothing inside a single value"
    return ", ".join(names) or "nothing"
