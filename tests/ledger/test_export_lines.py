"""Cost lines as JSON Lines and as Parquet, read back."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from costed import SESSIONS, line, session
from hypothesis import given

from kbtool.ledger.export.jsonl import jsonl
from kbtool.ledger.export.lines import entries
from kbtool.ledger.export.parquet import parquet
from kbtool.model.address import resolve, split_reference
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]
FULL = session(
    "2025-10-12-a",
    line(
        "gpu", "1.4", duration="7 h", rate="0.20 USD/h", card="H100", note="übrig", invoice="A-7",
        basis="billed",
    ),
    line("ai", None),
    environment={"card": "L4"},
    evidence=[
        {"pattern": name, "verdict": "applied", "note": "n"} for name in ("P08", "P07", "P08")
    ],
)  # fmt: skip


def rows(data: bytes) -> list[dict]:
    return [json.loads(text) for text in data.decode().split("\n")[:-1]]


def test_json_lines_have_every_field_and_null_for_unknown():
    gpu, ai = rows(jsonl([FULL]).data)
    assert gpu == {
        "line": "2025-10-12-a#costs.gpu", "session": "2025-10-12-a", "label": "A",
        "day": "2025-10-12", "kind": "gpu", "amount": "1.40", "currency": "USD",
        "basis": "billed", "minutes": 420, "rate": "0.20 USD/h", "rate_id": None,
        "invoice": "A-7", "card": "H100", "patterns": ["P07", "P08"], "note": "übrig",
        "source": None,
    }  # fmt: skip
    assert (ai["amount"], ai["minutes"], ai["card"]) == (None, None, "L4")


@pytest.mark.slow
@given(SESSIONS)
def test_both_hold_every_line_and_every_digit(sessions):
    lines = rows(jsonl(sessions).data)
    table = pq.read_table(io.BytesIO(parquet(sessions).data))
    amounts = [entry.amount for one in sessions for entry in one.costs]
    read = [None if row["amount"] is None else Decimal(row["amount"]) for row in lines]
    assert read == table["amount"].to_pylist() == amounts
    for row, stored in zip(lines, table.to_pylist(), strict=True):
        stored["day"] = None if stored["day"] is None else stored["day"].isoformat()
        assert {**row, "amount": None} == {**stored, "amount": None}


def test_parquet_has_types():
    schema = pq.read_schema(io.BytesIO(parquet([FULL]).data))
    assert schema.field("amount").type == pa.decimal128(38, 6)
    assert schema.field("day").type == pa.date32()
    assert schema.field("patterns").type == pa.list_(pa.string())


def test_an_export_without_lines_is_a_valid_file():
    assert jsonl([session("2025-10-12-a")]).data == b""
    table = pq.read_table(io.BytesIO(parquet([]).data))
    assert (table.num_rows, table.column_names[0]) == (0, "line")


def test_the_reference_of_a_line_leads_to_it():
    base = KnowledgeBase(REPOSITORY)
    sessions = [entry.record for entry in base.sessions.values()]
    followed = 0
    for row in rows(jsonl(sessions).data):
        record, path = split_reference(row["line"])
        found = resolve(base.sessions[record].record, path)
        if row["amount"] is not None:
            assert (found.low, found.unit) == (Decimal(row["amount"]), row["currency"])
            followed += 1
    assert followed > 10


def test_lines_that_share_a_name_go_by_their_place():
    one = session("2025-10-12-a", line("gpu", "1"), line("gpu", "2"), line("gpu", "3", id="x"))
    assert [entry.reference for entry in entries([one])] == [
        "2025-10-12-a#costs.0", "2025-10-12-a#costs.1", "2025-10-12-a#costs.x",
    ]  # fmt: skip


def test_a_time_that_is_no_single_figure_is_no_number_of_minutes():
    one = session("2025-10-12-a", line("gpu", "1", duration="40..60 min", card="none"))
    assert (rows(jsonl([one]).data)[0]["minutes"], rows(jsonl([one]).data)[0]["card"]) == (
        None, None,
    )  # fmt: skip
