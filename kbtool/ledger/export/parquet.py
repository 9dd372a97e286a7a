"""Cost lines as Parquet: money is decimal128, never a float. Needs the extra ``parquet``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import date
from decimal import Decimal

from kbtool.ledger.export.jsonl import fields
from kbtool.ledger.export.lines import Export, entries
from kbtool.ledger.rollup import Links
from kbtool.model.errors import MachineError
from kbtool.model.session import Session

PRECISION, SCALE = 38, 6
"""Of an amount: digits in all, and after the point, where ``Money`` has six."""


def parquet(sessions: Sequence[Session], links: Links | None = None) -> Export:
    """Every cost line of ``sessions``, with the columns of JSON Lines.

    Raises:
        MachineError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MachineError(
            "parquet needs pyarrow; install it: pip install 'kbtool[parquet]'"
        ) from None
    text = pa.string()
    schema = pa.schema(
        [
            pa.field("line", text, nullable=False),
            pa.field("session", text, nullable=False),
            pa.field("label", text, nullable=False),
            pa.field("day", pa.date32()),
            pa.field("kind", text, nullable=False),
            pa.field("amount", pa.decimal128(PRECISION, SCALE)),
            pa.field("currency", text, nullable=False),
            pa.field("basis", text, nullable=False),
            pa.field("minutes", pa.float64()),
            pa.field("rate", text),
            pa.field("rate_id", text),
            pa.field("invoice", text),
            pa.field("card", text),
            pa.field("patterns", pa.list_(text), nullable=False),
            pa.field("note", text),
            pa.field("source", text),
        ]
    )
    rows = []
    for entry in entries(sessions, links):
        row = fields(entry)
        row["amount"] = None if row["amount"] is None else Decimal(row["amount"])
        row["day"] = None if row["day"] is None else date.fromisoformat(row["day"])
        rows.append(row)
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file, compression="zstd")
    return Export(file.getvalue(), len(rows), {row["session"] for row in rows})
