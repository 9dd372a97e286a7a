"""Cost lines as JSON Lines: one object a line, amounts as decimal text, unknown as null."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kbtool.ledger.export.lines import Entry, Export, entries
from kbtool.ledger.rollup import Links
from kbtool.ledger.rollup_json import number
from kbtool.model.money import amount_json
from kbtool.model.session import Session


def jsonl(sessions: Sequence[Session], links: Links | None = None) -> Export:
    """Every cost line of ``sessions``, those of unknown amount too."""
    lines = list(entries(sessions, links))
    rows = [json.dumps(fields(entry), ensure_ascii=False) + "\n" for entry in lines]
    return Export("".join(rows).encode(), len(rows), {entry.session.id for entry in lines})


def fields(entry: Entry) -> dict[str, Any]:
    """One cost line: what JSON Lines and Parquet have of it."""
    session, line = entry.session, entry.line
    time = line.duration
    return {
        "line": entry.reference,
        "session": session.id,
        "label": session.label,
        "day": session.day,
        "kind": line.kind,
        "amount": amount_json(line.amount),
        "currency": line.currency,
        "basis": line.basis,
        "minutes": None if time is None or not time.is_single else number(time.minutes),
        "rate": None if line.rate is None else line.rate.text,
        "rate_id": line.rate_id,
        "invoice": line.invoice,
        "card": session.card_of(line.card),
        "patterns": list(entry.patterns),
        "note": line.note,
        "source": line.source,
    }
