"""``kbtool status`` from outside: budgets, cost per hour, exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from knowledge import RUN, sealed

NOW = datetime.now(UTC)
LEDGER_LINE = "# yaml-language-server: $schema=../schemas/ledger.json\n"


def running(base, minutes: float, more: str = "", name: str = "a") -> None:
    began = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(timespec="seconds")
    path = base.session(f"{NOW:%Y-%m-%d}-{name}", f'started: "{began}"\n{more}')
    path.write_text(path.read_text().replace("status: complete", "status: running"))


COSTS = "costs: [{kind: gpu, basis: estimated, rate: 6 USD/h}]\n"


def test_a_session_within_its_budgets_says_when_to_stop(base, kbtool):
    running(base, 30, "budget_time: 2 h\nbudget_money: 4 USD\n" + COSTS)
    done = kbtool("status", root=base.root)
    assert done.code == 0, done
    first, *rest = done.out.splitlines()
    assert first == "A"
    text = " ".join(" ".join(rest).split())
    assert "elapsed 30" in text and "of 120 min" in text
    assert "burns 6.00 USD/h" in text and "of 4.00 USD" in text
    assert "not counted, because no record says: ai, engineer" in text
    assert "the money budget of A is used up then" in text
    answer = json.loads(kbtool("status", "--json", root=base.root).out)
    stop = datetime.fromisoformat(answer["stop"]["at"])
    left = stop - datetime.fromisoformat(answer["now"])
    # A cent more or less moves it by six seconds.
    assert abs(left - timedelta(minutes=10)) < timedelta(seconds=60)
    assert answer["exceeded"] is False
    assert answer["running"][0]["per_hour"] == {"USD": "6.00"}
    assert answer["running"][0]["boxes"][0]["limit"] == 120


@pytest.mark.parametrize(
    "box", ["budget_time: 20 min\n", "budget_money: 2 USD\n"], ids=["time", "money"]
)
def test_an_exceeded_budget_exits_1(base, kbtool, box):
    running(base, 30, box + COSTS)
    done = kbtool("status", root=base.root)
    assert done.code == 1
    assert "EXCEEDED" in done.out and "stop now" in done.out
    short = kbtool("status", "--short", root=base.root)
    assert short.code == 1
    assert short.out.startswith("A ") and short.out.endswith("STOP\n") and "!" in short.out
    answer = kbtool("status", "--json", root=base.root)
    assert (answer.code, json.loads(answer.out)["exceeded"]) == (1, True)


def test_an_exceeded_monthly_budget_exits_1(base, kbtool):
    base.session(f"{NOW:%Y-%m-%d}-b", "costs: [{kind: ai, amount: 3.00, basis: billed}]\n")
    base.write(
        "sessions/ledger.yaml",
        f"{LEDGER_LINE}budgets:\n  - {{month: {NOW:%Y-%m}, money: 2.50 USD, time: 40 h}}\n",
    )
    done = kbtool("status", root=base.root)
    assert done.code == 1
    assert "no session is running" in done.out
    assert "3.00 of 2.50 USD, EXCEEDED by 0.50 USD" in done.out
    assert kbtool("status", "--short", root=base.root).out == f"{NOW:%Y-%m} 3.00/2.50USD!\n"


def test_a_month_is_also_told_with_the_gpu_by_the_time_of_runs(base, kbtool):
    day = f"{NOW:%Y-%m-%d}"
    rate = "{id: h100, kind: gpu, rate: 1.25 USD/h, day: 2024-10-12, card: H100}"
    base.write(
        "sessions/ledger.yaml",
        f"{LEDGER_LINE}rates: [{rate}]\nbudgets:\n  - {{month: {NOW:%Y-%m}, money: 9 USD}}\n",
    )
    base.session(f"{day}-a")
    base.session(f"{day}-b", "costs: [{kind: ai, amount: 1.00, basis: billed}]\n")
    assert "time of runs" not in kbtool("status", root=base.root).out
    before = json.loads(kbtool("status", "--json", root=base.root).out)
    assert before["month"]["with_gpu_by_runs"] == []
    base.run(sealed({
        **RUN, "id": f"{NOW:%Y%m%d}T090000Z-a", "attempt": 1, "session": f"{day}-a",
        "machine": {**RUN["machine"], "card": "NVIDIA H100 80GB HBM3"},
        "started": f"{day}T09:00:00Z", "ended": f"{day}T09:06:00Z",
    }))  # fmt: skip
    out = kbtool("status", root=base.root).out
    # 6 minutes at 1.25 an hour are 0.13; the budget counts what records state.
    assert "1.00 of 9.00 USD" in out
    told = "with the GPU by the time of runs: 1.13 USD, 2 of 2 sessions priced, GPU estimated for 1"
    assert told in out
    month = json.loads(kbtool("status", "--json", root=base.root).out)["month"]
    assert month["boxes"][0]["spent"] == "1.00"
    assert month["with_gpu_by_runs"] == [
        {"currency": "USD", "total": "1.13", "sessions": 2, "priced": 2, "gpu_estimated": 1}
    ]


def test_where_nothing_runs_the_prompt_is_empty(base, kbtool):
    base.session()
    done = kbtool("status", "--short", root=base.root)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert "no session is running" in kbtool("status", root=base.root).out


def test_without_a_budget_no_time_to_stop_is_shown(base, kbtool):
    running(base, 30)
    done = kbtool("status", root=base.root)
    assert done.code == 0
    assert "set budget_time or budget_money" in done.out
    assert kbtool("status", "--short", root=base.root).out == "A 30min\n"


def test_a_start_without_a_zone_is_no_elapsed_time(base, kbtool):
    path = base.session(more="started: 2025-01-01T10:00\nbudget_time: 1 h\n")
    path.write_text(path.read_text().replace("status: complete", "status: running"))
    done = kbtool("status", root=base.root)
    assert done.code == 0
    assert "unknown: give `started` with its zone" in done.out


def test_a_record_that_does_not_load_is_reported(base, kbtool):
    running(base, 1)
    base.session("2025-01-02-b", "nonsense: 1\n")
    done = kbtool("status", "--short", root=base.root)
    assert done.code == 1
    assert "left out: sessions/2025-01-02-b/session.yaml:7" in done.err
    assert done.out == "A 1min DOES NOT LOAD: sessions/2025-01-02-b/session.yaml\n"
    done = kbtool("status", root=base.root)
    assert "not in it, because it does not load: sessions/2025-01-02-b/session.yaml" in done.out
    assert kbtool("status", "--json", "--short", root=base.root).code == 2


def test_a_ledger_that_does_not_load_exits_1(base, kbtool):
    running(base, 30, "budget_time: 2 h\nbudget_money: 4 USD\n")
    base.write("sessions/ledger.yaml", f"{LEDGER_LINE}budgets: [{{moth: 2026-12, money: 5 USD}}]\n")
    done = kbtool("status", "--short", root=base.root)
    assert (done.code, done.out.count("\n")) == (1, 1)
    assert done.out.endswith("DOES NOT LOAD: sessions/ledger.yaml\n")
    assert "?/4.00USD" in done.out
    done = kbtool("status", root=base.root)
    assert (done.code, "set budget_time" in done.out) == (1, False)


def test_costs_over_an_unknown_time_are_shown_as_unknown(base, kbtool):
    path = base.session(more=f"started: 2025-01-01T10:00\n{COSTS}budget_money: 5 USD\n")
    path.write_text(path.read_text().replace("status: complete", "status: running"))
    done = kbtool("status", root=base.root)
    assert "unknown of 5.00 USD" in done.out and "0.00" not in done.out.replace("6.00", "")
    assert "no time to stop is known: no budget is known to run out" in done.out
    path.write_text(path.read_text().replace("budget_money: 5 USD\n", ""))
    assert "spent    unknown" in kbtool("status", root=base.root).out
    assert "?USD" in kbtool("status", "--short", root=base.root).out


def test_a_prompt_waits_for_no_model_and_no_yaml(base):
    """Once the cache has it, nothing heavy is imported."""
    running(base, 30, "budget_time: 2 h\n" + COSTS)
    command = (
        "import sys\nfrom kbtool.cli.main import run\n"
        f"assert run(['--root', {str(base.root)!r}, 'status', '--short']) == 0\n"
    )
    # As if an hour had passed, so that the cache takes the files up.
    later = "import time\nreal = time.time_ns\ntime.time_ns = lambda: real() + 3_600_000_000_000\n"
    subprocess.run([sys.executable, "-c", later + command], check=True, capture_output=True)
    heavy = (
        "heavy = {'pydantic', 'yaml', 'kbtool.model.session'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", command + heavy], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("A 30/120min 3.0")
