"""What a session saved against an earlier one: like with like, and no more than both sides know."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from kbtool.ledger.rollup import KINDS, Row
from kbtool.ledger.rollup_json import number
from kbtool.model.money import amount_json, half_up


@dataclass(frozen=True)
class Comparison:
    """A session beside an earlier one."""

    kinds: tuple[str, ...]
    """The kinds of cost that are fully known of both: what the money is summed over."""
    not_compared: dict[str, str]
    """Kind → on which side it is not known: ``before``, ``now``, ``both``; or ``other currency``,
    if an amount of either side is in one."""
    before: Decimal | None
    """Money of the earlier session, over ``kinds``; ``None`` without any."""
    now: Decimal | None
    """Money of this one, over ``kinds``."""
    minutes_before: Decimal | None
    minutes_now: Decimal | None

    @property
    def saved(self) -> Decimal | None:
        """Money saved; negative if this session cost more."""
        return _less(self.before, self.now)

    @property
    def percent(self) -> Decimal | None:
        """It as a share of the earlier session's, to a tenth."""
        return _share(self.before, self.now)

    @property
    def minutes_saved(self) -> Decimal | None:
        """Minutes saved; negative if this session took longer."""
        return _less(self.minutes_before, self.minutes_now)

    @property
    def minutes_percent(self) -> Decimal | None:
        """It as a share of the earlier session's, to a tenth."""
        return _share(self.minutes_before, self.minutes_now)


def compare(row: Row, before: Row) -> Comparison:
    """The row of a session beside that of an earlier one.

    Costs of kind ``other`` count as nothing where a session has none; every other kind that a
    session does not state, or states in part, is left out on both sides.
    """
    kinds: list[str] = []
    left_out: dict[str, str] = {}
    for kind in KINDS:
        unknown = [side for side, one in (("before", before), ("now", row)) if kind in one.unknown]
        if kind == "other" and not unknown and row.other is None and before.other is None:
            continue
        if kind in row.foreign | before.foreign:
            left_out[kind] = "other currency"
        elif unknown:
            left_out[kind] = unknown[0] if len(unknown) == 1 else "both"
        else:
            kinds.append(kind)

    def spent(one: Row) -> Decimal | None:
        known = [getattr(one, kind) or Decimal(0) for kind in kinds]
        return sum(known, Decimal(0)) if known else None

    return Comparison(
        tuple(kinds), left_out, spent(before), spent(row), before.minutes, row.minutes
    )


def compare_json(comparison: Comparison | None, earlier: str) -> dict[str, object]:
    """What ``costs --json --compare`` adds to a row; null for a session that is not later."""
    if comparison is None:
        return {"compared": None}
    return {
        "compared": {
            "with": earlier,
            "kinds": list(comparison.kinds),
            "not_compared": comparison.not_compared,
            "before": amount_json(comparison.before),
            "now": amount_json(comparison.now),
            "saved": amount_json(comparison.saved),
            "saved_percent": _text(comparison.percent),
            "minutes_before": number(comparison.minutes_before),
            "minutes_now": number(comparison.minutes_now),
            "minutes_saved": number(comparison.minutes_saved),
            "minutes_saved_percent": _text(comparison.minutes_percent),
        }
    }


def _less(before: Decimal | None, now: Decimal | None) -> Decimal | None:
    return None if before is None or now is None else before - now


def _share(before: Decimal | None, now: Decimal | None) -> Decimal | None:
    if before is None or now is None or before == 0:
        return None
    return half_up(Fraction(before - now) / Fraction(before) * 100, 1)


def _text(value: Decimal | None) -> str | None:
    return None if value is None else f"{value}"
