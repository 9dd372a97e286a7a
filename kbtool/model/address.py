"""Addresses inside a record: ``measurements.fa1.s128.pytorch``, ``costs.gpu``, ``duration``.

A path is keys and item ids joined by dots. An item of a list is named by its ``id`` (a cost line
without one by its kind, evidence by its pattern). Where a key is no field of a model, the lists
and tables inside it are searched, so that ``rows`` and ``values`` need not be spelled out.

In a run, what a step found is searched too, and a case goes by any words of its name that no other
case has all of, joined by underscores: ``steps.benchmark.M=1_N=4096.arms.tiled``. What a record
derives of itself has a name as well: ``steps.validate.cases_passed``.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from kbtool.model.base import Quantity
from kbtool.model.cost import CostLine
from kbtool.model.kinds.benchmark import BenchmarkCase
from kbtool.model.kinds.logged import MetricsResult, Series
from kbtool.model.kinds.timing import Timing
from kbtool.model.measurement import Measurement
from kbtool.model.run import Run, StepRecord


class AddressError(LookupError):
    """A path that leads nowhere; the message says where it goes wrong and what is there."""


def item_key(item: object) -> str | None:
    """What an item of a list is called in a path, or ``None``."""
    values = getattr(item, "__dict__", {})
    for name in ("id", "kind", "pattern", "name", "tool"):
        key = values.get(name)
        if key is not None and isinstance(key, str):
            return key
    return None


@lru_cache(maxsize=1 << 14)
def split_reference(reference: str) -> tuple[str | None, str]:
    """``RECORD#path`` → (record or ``None`` for this one, path)."""
    record, _, path = reference.partition("#")
    return record or None, path


def resolve(record: BaseModel, path: str) -> Any:
    """What stands at ``path`` in ``record``.

    A figure comes as a ``Quantity`` with its unit: that of its column, a cost line's currency, the
    one that the name of a run's field ends in. The samples of an implementation come as their
    median.

    Raises:
        AddressError: the path leads nowhere, or to more than one item.
    """
    node: Any = record
    unit = ""
    table: Measurement | None = None
    series: Series | None = None
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
        series = node if isinstance(node, Series) else series
        if table is not None and key in table.columns:
            unit = table.columns[key].unit
        elif series is not None and key != "samples":
            unit = _unit_of(series)
        else:
            unit = _unit_in(key) or unit
    return figure_in(node, unit)


def figure_in(node: Any, unit: str = "") -> Any:
    """What a node at the end of a path stands for: a number with its unit, an amount, a median."""
    if isinstance(node, CostLine):
        return None if node.amount is None else Quantity.of(node.amount, node.currency)
    if isinstance(node, Timing):
        node, unit = node.median_us, "us"
    if isinstance(node, Series):
        node, unit = node.median, _unit_of(node)
    if isinstance(node, (Decimal, int, float)) and not isinstance(node, bool):
        return Quantity(f"{node} {unit}".strip())
    return node


def figure_of(found: object, path: str) -> Quantity:
    """The figure that ``found``, which stands at ``path``, is; of a list, how many items it has.

    Raises:
        AddressError: it is no figure.
    """
    if isinstance(found, list):
        return Quantity(str(len(found)))
    if not isinstance(found, Quantity):
        kind = "nothing" if found is None else f"a {type(found).__name__}"
        raise AddressError(f"{path!r} is no figure: {kind} stands there")
    return found


def measuring_step(record: BaseModel, path: str, found: object) -> StepRecord | None:
    """The step of a run that measured the time or rate ``found`` at ``path``, if it is such, or
    that logged it."""
    if not isinstance(record, Run) or not isinstance(found, Quantity):
        return None
    named = [s for s in record.steps if path.startswith(f"steps.{s.id}.") and s.result is not None]
    step = max(named, key=lambda step: len(step.id), default=None)
    if step is None or step.result is None:
        return None
    if isinstance(step.result, MetricsResult):
        return step if step.result.metrics and not path.endswith(".exit_code") else None
    timed = found.unit in {"us", "GB/s"} and step.result.measured is not None
    return step if timed else None


def unproved(record: Run, path: str, step: StepRecord) -> str | None:
    """Why a time that a step measured, which stands at ``path``, proves nothing; else ``None``."""
    if isinstance(step.result, MetricsResult):
        return step.result.unvalidated
    if step.result is not None and step.result.noise:
        return step.result.noise
    keys = path.split(".")
    for length in range(len(keys) - 1, 2, -1):
        try:
            case = resolve(record, ".".join(keys[:length]))
        except AddressError:
            continue
        if isinstance(case, BenchmarkCase):
            if case.refused:
                return f"refused: {case.refused}"
            wrong = [name for name, out in case.peers.items() if not out.passed]
            arm = next((name for name in wrong if name in keys[length:]), None)
            return f"the output of {arm} is wrong" if arm else None
    return None


_UNITS = {"us": "us", "seconds": "s", "bytes": "B", "flops": "FLOP"}
"""How the name of a field of a run ends → its unit."""


def _unit_of(series: Series) -> str:
    """Its unit as a quantity has it: ``/s`` for 1/s, nothing for 1."""
    return series.unit.removeprefix("1")


def _unit_in(field: str) -> str:
    if field.endswith("_gb_s"):
        return "GB/s"
    return _UNITS.get(field.rpartition("_")[2], "")


def _children(node: Any, key: str) -> Iterator[Any]:
    if isinstance(node, BaseModel):
        if key in type(node).model_fields or _is_derived(node, key):
            yield getattr(node, key)
            return
        if isinstance(node, StepRecord) and node.result is not None:
            yield from _children(node.result, key)
        for name in type(node).model_fields:
            value = getattr(node, name)
            if isinstance(value, (list, dict)):
                yield from _children(value, key)
    elif isinstance(node, dict):
        if key in node:
            yield node[key]
    elif isinstance(node, list):
        exact = [item for item in node if item_key(item) == key]
        words = set(key.split("_"))
        with_words = [item for item in node if words <= _words_of(item)]
        no_more = [item for item in with_words if words == _words_of(item)]
        yield from exact or no_more or with_words


def _is_derived(node: BaseModel, key: str) -> bool:
    """Whether ``key`` is a property of ours, not one of Pydantic's."""
    return isinstance(getattr(type(node), key, None), property) and not hasattr(BaseModel, key)


def _words_of(item: object) -> set[str]:
    """The words of a case's name, cut where an address has underscores."""
    name = getattr(item, "name", None)
    # A word may hold underscores itself: page_size=16.
    if not isinstance(name, str) or " " not in name:
        return set()
    return set("_".join(name.split()).split("_"))


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
