"""GPU costs that no record states: the time of runs on a card, at the ledger's rate."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from typing import Any

import pytest
from click.testing import CliRunner
from knowledge import RUN, Knowledge, from_outside, sealed

from kbtool.cli.main import cli
from kbtool.ledger.estimated import costs_of
from kbtool.ledger.rollup import Row, roll_up
from kbtool.store import cache, held_cards
from kbtool.store.tree import KnowledgeBase

DAY = "2025-01-01"
LINE = "# yaml-language-server: $schema=../schemas/ledger.json\nrates:\n"
RATES = """\
  - {id: h100, kind: gpu, rate: 1.25 USD/h, day: 2024-10-12, card: H100}
  - {id: l4, kind: gpu, rate: 0.20 USD/h, day: 2024-10-12, card: L4}
"""


@pytest.fixture
def priced(base: Knowledge) -> Knowledge:
    base.write("sessions/ledger.yaml", LINE + RATES)
    return base


def ran(
    base: Knowledge, card: str | None, minutes: str, name: str = "a", attempt: int = 1, **more: Any
) -> None:
    """A run of ``minutes`` (06:00 is six) on a card, in the session 2025-01-01-NAME."""
    machine = {**RUN["machine"], "card": card, **more}
    id_ = f"20250101T090000Z-{name}"
    base.run(sealed({
        **RUN, "id": id_, "session": f"{DAY}-{name}", "machine": machine, "attempt": attempt,
        "ended": f"2025-01-01T09:{minutes}Z",
    }))  # fmt: skip


def total(base: Knowledge) -> Row:
    return roll_up([*costs_of(KnowledgeBase(base.root)).sessions.values()], "session").total


def test_the_time_of_runs_is_priced_at_the_rate_of_their_card(priced, monkeypatch):
    monkeypatch.setattr(cache, "SETTLED_NS", -(10**12))  # files as new as these are kept too
    priced.session(f"{DAY}-a")
    ran(priced, "NVIDIA H100 80GB HBM3", "06:00")
    for _ in "a cold and a warm cache":
        row = total(priced)
        # 6 minutes at 1.25 an hour are an eighth of a dollar, and half a cent is a cent.
        assert (row.gpu, row.coverage, row.estimated) == (Decimal("0.13"), "1 of 1", {f"{DAY}-a"})
        assert "gpu" not in row.unknown
        monkeypatch.setattr(held_cards, "parse_run", None)


def test_attempts_and_cards_of_a_run_add_up(priced):
    priced.session(f"{DAY}-a")
    ran(priced, "NVIDIA H100", "12:00", cards=2)
    ran(priced, "NVIDIA H100", "24:00", attempt=2)
    assert total(priced).gpu == Decimal("1.00")  # 2 × 12 + 24 minutes


def test_what_nobody_knows_is_unknown_and_not_zero(priced):
    for name in "abc":
        priced.session(f"{DAY}-{name}")
    ran(priced, "NVIDIA H200", "06:00", "a")  # the ledger has no rate of it
    ran(priced, None, "06:00", "b")
    row = total(priced)
    assert (row.gpu, row.total, row.unknown["gpu"]) == (None, None, 3)
    assert row.coverage == "0 of 3"
    base = KnowledgeBase(priced.root)
    by_card = roll_up([*costs_of(base).sessions.values()], "card", "USD").rows
    assert [(one.key, one.gpu, one.unknown["gpu"]) for one in by_card] == [
        ("H200", None, 1), ("unstated", None, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "amount"),
    [
        ("[{kind: gpu, amount: 3, basis: billed, card: H100}]", "3"),
        ("[{kind: gpu, amount: 3, basis: billed}]", "3"),  # of no card, so of all
        ("[{kind: gpu, amount: 3, basis: billed, card: L4}]", "3.13"),
        ("[{kind: ai, amount: 3, basis: billed}]", "3.13"),
    ],
)
def test_a_card_that_a_line_pays_for_is_not_paid_twice(priced, lines, amount):
    priced.session(f"{DAY}-a", f"costs: {lines}\n")
    ran(priced, "NVIDIA H100 80GB HBM3", "06:00")
    assert total(priced).total == Decimal(amount)


@pytest.mark.parametrize(
    ("rates", "amount"),
    [
        ("{id: a, kind: gpu, rate: 2 USD/h, day: 2025-01-02, card: H100}", None),  # later
        ("{id: a, kind: gpu, rate: 2 USD/h, day: 2024-01-01, until: 2024-12-31, card: H100}", None),
        ("{id: a, kind: ai, rate: 2 USD/h, day: 2024-01-01}", None),
        ("{id: a, kind: gpu, rate: 2 USD/h, day: 2024-01-01, card: L40}", None),
        ("{id: a, kind: gpu, rate: 2 USD/h, day: 2024-01-01, card: H100}", "0.20"),
        (
            "{id: a, kind: gpu, rate: 2 USD/h, day: 2024-12-31, card: H100}\n"
            "  - {id: b, kind: gpu, rate: 4 USD/h, day: 2024-01-01, card: H100 80GB HBM3}",
            "0.40",
        ),
    ],
)  # fmt: skip
def test_the_rate_is_that_of_the_card_on_the_day_of_the_session(base, rates, amount):
    base.write("sessions/ledger.yaml", f"{LINE}  - {rates}\n")
    base.session(f"{DAY}-a")
    ran(base, "NVIDIA H100 80GB HBM3", "06:00")
    assert total(base).gpu == (amount and Decimal(amount))


def test_a_file_of_another_tool_held_no_card(priced):
    priced.session(f"{DAY}-a")
    run = json.loads(from_outside("import"))
    del run["digest"]
    priced.run(sealed({**run, "machine": {**run["machine"], "card": "NVIDIA L4"},
                       "ended": "2025-01-01T19:00:00Z"}))  # fmt: skip
    assert total(priced).gpu is None


def test_a_run_that_does_not_load_is_told_once(priced):
    priced.session(f"{DAY}-a")
    priced.write(f"sessions/{DAY}-a/runs/20250101T090000Z-x.json", "{}")
    base = KnowledgeBase(priced.root)
    costs_of(base)
    assert base.runs == []
    assert [one.path for one in base.findings] == [f"sessions/{DAY}-a/runs/20250101T090000Z-x.json"]


def test_the_command_says_of_how_many_sessions_money_is_known(priced):
    priced.session(f"{DAY}-a")
    priced.session(f"{DAY}-b", "costs: [{kind: ai, amount: 1, basis: billed}]\n")
    priced.session(f"{DAY}-c")
    path = priced.session(f"{DAY}-d")
    path.write_text(path.read_text().replace("status: complete", "status: planned"))
    ran(priced, "NVIDIA H100 80GB HBM3", "06:00")
    run = ["--root", str(priced.root), "costs"]
    done = CliRunner().invoke(cli, run)
    assert done.exit_code == 0
    head, _, *rows, _, last = done.stdout.splitlines()
    assert head.endswith("priced")
    assert [row.split()[-1] for row in rows] == ["estimated", "stated", "no", "no"]
    assert last.endswith("2 of 3")  # the fourth has only been planned
    assert "gpu is estimated for 1 session: the time that runs held a card" in done.stderr
    by_month = CliRunner().invoke(cli, [*run, "--by", "month", "--csv"]).stdout
    (row,) = csv.DictReader(io.StringIO(by_month))
    assert (row["gpu"], row["priced"], row["estimated"]) == ("0.13", "2", "1")
    whole = json.loads(CliRunner().invoke(cli, [*run, "--json"]).stdout)["total"]
    assert (whole["total"], whole["priced"], whole["estimated"]) == ("1.13", 2, 1)
