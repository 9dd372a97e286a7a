"""What ``status``, ``keep-or-stop`` and budgets say of sweeps that go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import commands
import pytest

from kbtool.ledger.held import enter
from kbtool.model.sweep import Attempt
from kbtool.store.lock import lock
from kbtool.store.sweeps import write_sweep
from kbtool.store.tree import KnowledgeBase
from kbtool.sweeps.folder import SweepFolder

pytestmark = pytest.mark.slow

L4 = "NVIDIA L4"


@pytest.fixture
def driven(swept) -> Iterator[Callable[[], None]]:
    """Let this process drive the newest sweep."""
    with ExitStack() as held:

        def drive() -> None:
            path = SweepFolder.of(swept.root, swept.last.id).path
            path.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock(path / "drive.lock"))

        yield drive


def going_on(swept, card: str | None = L4, expected: float | None = 1200) -> None:
    """A sweep of four cells: one took 30 minutes, one has run for 12, two wait."""
    swept("cheap", "--over", "n=1,2,3,4")
    now = datetime.now(UTC)

    def since(minutes: int, **more: Any) -> Attempt:
        began = now - timedelta(minutes=minutes)
        place = {"machine": card or "a processor", "cards": int(card is not None)}
        return Attempt(**{"queued": began, "started": began, "status": "running", **place, **more})

    record = swept.last
    first = record.cells[0].attempts[0]
    done = since(60, ended=now - timedelta(minutes=30), status="passed", run=first.run)
    record.cells[0].attempts[:] = [done]
    for n, cell in enumerate(record.cells[1:], 1):
        record.cells[n] = cell.model_copy(
            update={"status": "running" if n == 1 else "waiting", "run": None,
                    "attempts": [since(12)] if n == 1 else [], "expected_s": expected}
        )  # fmt: skip
    write_sweep(swept.root, record.model_copy(update={"status": "running", "ended": None}))
    swept.knowledge.write(
        "sessions/ledger.yaml",
        "# yaml-language-server: $schema=../schemas/ledger.json\nrates:\n"
        "  - {id: l4, kind: gpu, rate: 0.60 USD/h, day: 2025-10-12, card: L4}\n"
        f"budgets: [{{month: {datetime.now().astimezone():%Y-%m}, money: 0.80 USD}}]\n",
    )


def told(swept, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = commands.run([*arguments, "--json"], swept.root, {})
    assert done.code == code, done.out + done.err
    said: dict[str, Any] = json.loads(done.out)
    return said


def text(swept, *arguments: str, code: int = 0) -> str:
    done = commands.run([*arguments], swept.root, {})
    assert done.code == code, done.out + done.err
    return " ".join(done.out.split())


def test_what_it_has_used_and_what_is_to_come_counts_in_budgets(swept, driven):
    going_on(swept)
    driven()
    said = told(swept, "status")
    (sweep,) = said["sweeps"]
    assert sweep["driven"] and sweep["counts"] == {"passed": 1, "waiting": 2, "running": 1}
    assert sweep["held_s"][L4] == pytest.approx(42 * 60, abs=30)
    assert sweep["to_come_s"] == pytest.approx((8 + 20 + 20) * 60, abs=30)
    assert (sweep["spent"], sweep["to_come"]) == ({"USD": "0.42"}, {"USD": "0.48"})
    assert (sweep["per_hour"], sweep["unknown"]) == ({"USD": "0.60"}, [])
    (month,) = said["month"]["boxes"]
    assert (month["spent"], month["under_way"], month["to_come"]) == ("0.42", "0.42", "0.48")
    # 0.38 USD are left, at 0.60 an hour.
    at = datetime.fromisoformat(said["stop"]["at"]) - datetime.now(UTC)
    assert at == pytest.approx(timedelta(minutes=38), abs=timedelta(minutes=2))
    shown = text(swept, "status")
    assert "0.42 USD that is in no cost line yet" in shown
    assert "0.38 USD left; 0.42 USD of it by sweeps under way" in shown
    assert "about 0.48 USD more expected of sweeps, which is MORE THAN IS LEFT" in shown
    assert "0.42/0.80USD" in text(swept, "status", "--short")


def test_what_an_earlier_end_of_it_entered_counts_once(swept, driven):
    going_on(swept)
    enter(KnowledgeBase(swept.root), swept.last)  # as when it was paused after the first cell
    driven()
    said = told(swept, "status")
    assert said["sweeps"][0]["spent"] == {"USD": "0.12"}
    (month,) = said["month"]["boxes"]
    assert (month["spent"], month["under_way"]) == ("0.42", "0.12")


def test_what_the_session_pays_by_the_hour_counts_once(swept, driven):
    going_on(swept)
    path = swept.root / "sessions" / swept.last.session / "session.yaml"
    path.write_text(path.read_text() + "costs: [{kind: gpu, basis: estimated, rate_id: l4, "
                    "rate: 0.60 USD/h, card: L4}]\n")  # fmt: skip
    driven()
    (sweep,) = told(swept, "status")["sweeps"]
    assert sweep["held_s"] and (sweep["spent"], sweep["to_come"]) == ({}, {})


def test_a_sweep_that_was_cut_off_is_told_apart(swept):
    going_on(swept)
    (sweep,) = told(swept, "status")["sweeps"]
    assert not sweep["driven"]
    assert (sweep["spent"], sweep["per_hour"]) == ({"USD": "0.30"}, {})
    assert sweep["to_come"] is sweep["to_come_s"] is None
    assert sweep["unknown"] == ["what the cells took that ran when it was cut off"]
    shown = text(swept, "status")
    assert "cut off: " in shown and "what they still take nobody knows" in shown


def test_what_nobody_knows_stays_unknown(swept, driven):
    going_on(swept, "NVIDIA H100")
    driven()
    said = told(swept, "status")
    assert said["sweeps"][0]["spent"] == {} and said["sweeps"][0]["to_come"] is None
    assert said["sweeps"][0]["unknown"] == ["the rate of NVIDIA H100"]
    assert said["month"]["boxes"][0]["to_come"] is None


def test_without_an_estimate_the_cells_that_passed_tell(swept, driven):
    going_on(swept, expected=None)
    driven()
    (sweep,) = told(swept, "status")["sweeps"]
    assert sweep["to_come_s"] == pytest.approx((30 - 12 + 30 + 30) * 60, abs=30)


def test_a_sweep_on_the_processor_costs_nothing(swept, driven):
    going_on(swept, None)
    driven()
    (sweep,) = told(swept, "status")["sweeps"]
    assert (sweep["held_s"], sweep["spent"], sweep["to_come"], sweep["unknown"]) == ({}, {}, {}, [])


def test_a_budget_of_a_sweep_counts_the_cells_that_run(swept):
    from kbtool.cli.sweep_output import View
    from kbtool.ledger.rates import figure
    from kbtool.model.base import Amount

    going_on(swept)
    folder = SweepFolder.of(swept.root, swept.last.id)
    folder.path.mkdir(parents=True, exist_ok=True)
    base = KnowledgeBase(swept.root)
    for limit, is_spent in (("0.45 USD", False), ("0.40 USD", True)):  # 0.30 USD are of the first
        View(base, folder, figure(Amount, limit))(swept.last, None)
        assert folder.is_asked("paused") is is_spent


IDLE = ("keep-or-stop", "--idle", "12 h", "--restart-cost", "1 USD")


def test_the_time_for_which_a_sweep_holds_the_card_is_not_idle(swept, driven):
    going_on(swept)
    driven()
    said = told(swept, *IDLE, "--rate", "l4")
    assert float(said["inputs"]["idle"]["low"]) == pytest.approx(12 - 48 / 60, abs=0.02)
    assert f" h of sweep {swept.last.id}" in said["inputs"]["idle"]["from"]
    assert [one["id"] for one in said["sweeps"]] == [swept.last.id]
    assert "only the time after it counts as idle" in text(swept, *IDLE, "--rate", "l4")
    # Of a price by itself nobody knows the card.
    said = told(swept, *IDLE, "--rate", "0.60 USD/h")
    assert said["inputs"]["idle"]["low"] == "12"
    assert said["notes"] and f"holds {L4}. If that is this card" in said["notes"][0]


def test_a_sweep_on_another_card_says_nothing_of_this_one(swept, driven):
    going_on(swept, "NVIDIA H100")
    driven()
    said = told(swept, *IDLE, "--rate", "l4")
    assert (said["inputs"]["idle"]["low"], said["notes"]) == ("12", [])


def test_a_sweep_keeps_what_its_cells_were_expected_to_take(swept):
    swept("cheap", "--over", "n=1")
    swept("cheap", "--over", "n=1,2")
    assert [cell.expected_s is None for cell in swept.last.cells] == [True, False]
    assert swept.last.cells[1].expected_s > 0
    assert told(swept, "status")["sweeps"] == []
