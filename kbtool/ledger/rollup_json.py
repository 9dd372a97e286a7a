"""A table of costs as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from kbtool.ledger.rollup import By, Rollup, Row
from kbtool.model.money import amount_json, half_up


def number(minutes: Decimal | None) -> int | float | None:
    """Minutes as a JSON number: whole where they are whole, else to a thousandth."""
    if minutes is None:
        return None
    return int(minutes) if minutes == minutes.to_integral_value() else float(half_up(minutes, 3))


Extra = Mapping[tuple[str, ...], Mapping[str, object]]
"""Keys of a row → what else to say of it; ``()`` is the last line's."""


def as_json(
    rollup: Rollup, unreadable: Iterable[str] = (), extras: Sequence[Extra] = ()
) -> dict[str, object]:
    """The contract that scripts rely on: money as decimal strings, minutes as numbers."""
    known = rollup.total.total is not None
    return {
        "currency": rollup.currency,
        "by": list(rollup.by),
        "rows": [_with(row, rollup.by, extras) for row in rollup.rows],
        "total": _with(rollup.total, (), extras),
        "attributed": amount_json(rollup.attributed) if known else None,
        "unattributed": amount_json(rollup.unattributed) if known else None,
        "repeated": amount_json(rollup.repeated) if known else None,
        "sessions_in_several_rows": len(rollup.shared),
        "other_currencies": rollup.other_currencies,
        "left_out": sorted(set(unreadable)),
    }


def _with(row: Row, by: tuple[By, ...], extras: Sequence[Extra]) -> dict[str, object]:
    figures = row_json(row, by)
    for extra in extras:
        figures |= extra.get(row.keys, {})
    return figures


def row_json(row: Row, by: tuple[By, ...] = ()) -> dict[str, object]:
    """One row of ``as_json``."""
    return {
        "key": row.key,
        "label": row.label,
        "keys": dict(zip(by, row.keys, strict=True)) if by else {},
        "minutes": number(row.minutes),
        "gpu": amount_json(row.gpu),
        "ai": amount_json(row.ai),
        "engineer": amount_json(row.engineer),
        "other": amount_json(row.other),
        "total": amount_json(row.total),
        "sessions": len(row.sessions),
        "priced": len(row.priced),
        "estimated": len(row.estimated),
        "unknown": row.unknown,
    }
