"""What stands in a record, and a derivation with its figures put in, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from kbtool.ledger.claims.operands import Given, Records, Unknown
from kbtool.model.bug import Bug, Fix
from kbtool.model.claim import Claim, Derivation
from kbtool.model.cost import CostLine
from kbtool.model.run import Run, StepRecord


def word_of(value: Any) -> str | None:
    """The word by which a thing says how it ended; ``None`` of what has none."""
    if isinstance(value, Fix):
        return {True: "confirmed", False: "failed", None: "untested"}[value.confirmed]
    if isinstance(value, Bug) or not isinstance(value, BaseModel):
        return None
    if isinstance(value, Run | StepRecord):
        return value.outcome  # older records say passed of noisy times
    for name in ("status", "verdict", "state"):
        word = getattr(value, name, None)
        if isinstance(word, str):
            return word
    passed = getattr(value, "passed", None)
    return None if passed is None else "passed" if passed else "failed"


def shown(value: Any) -> str:
    """What stands somewhere, in a few words."""
    if isinstance(value, Claim):
        value = value.stated if value.stated is not None else value.says
    if isinstance(value, CostLine):
        return "unknown" if value.amount is None else f"{value.amount} {value.currency}"
    if isinstance(value, BaseModel):
        names = (getattr(value, key, None) for key in ("title", "id", "name"))
        name = next(filter(None, names), None)
        return f"{_kind_of(value)} {name!r}" if name else _kind_of(value)
    if isinstance(value, (list, dict)):
        return f"{len(value)} items"
    if isinstance(value, bool):
        return str(value).lower()
    return "unknown" if value is None else str(value)


def _kind_of(value: BaseModel) -> str:
    """What a thing is, as people call it: a StepRecord is a step, a PlannedStep a planned step."""
    words = re.findall("[A-Z][a-z]*", type(value).__name__)
    return " ".join(words[:-1] if words[-1] in {"Record", "Result", "Entry"} else words).lower()


_SYMBOLS = {"sum": " + ", "difference": " − ", "product": " × ", "ratio": " ÷ "}
_PHRASES = {
    "percent": "{} in per cent of {}",
    "change": "change from {1} to {0}",
    "saving": "saving of {} against {}",
    "elapsed": "from {} to {}",
    "same": "{}",
    "alike": "{} beside {}",
}


def expression(how: str, of: Sequence[Any], records: Records, own: str) -> str:
    """A derivation with its figures put in: ``107 min × 0.20 USD/h``."""
    operands = [_operand(operand, records, own) for operand in of]
    if how in _SYMBOLS:
        return _SYMBOLS[how].join(operands)
    if how in _PHRASES:
        return _PHRASES[how].format(*operands)
    return f"{how.replace('_', ' ')} of {', '.join(operands)}"


def _operand(operand: Any, records: Records, own: str) -> str:
    if isinstance(operand, Derivation):
        return f"({expression(operand.how, operand.of, records, own)})"
    if isinstance(operand, Given):
        return str(operand.value)
    if not isinstance(operand, str):
        return str(operand)
    try:
        return shown(records.at(operand, own))
    except Unknown:
        return operand
