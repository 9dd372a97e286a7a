"""``kbtool keep-or-stop`` from outside, and what the guide says of the log of N+7A."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
LEDGER = """\
# yaml-language-server: $schema=../schemas/ledger.json
rates:
  - {id: l4, kind: gpu, rate: 0.20 USD/h, day: 2025-10-12}
  - {id: engineer, kind: engineer, rate: 50 USD/h, day: 2025-10-12}
keep_or_stop: {rate: l4, people: [engineer], restart: 6 min}
"""


def test_the_figures_of_n7a_give_the_advice_stop(kbtool):
    where = "N+7A#decisions.gpu-until-next"
    done = kbtool(
        "keep-or-stop", "--json", "--idle", f"{where}.keep.time", "--rate", f"{where}.keep.rate",
        "--restart-cost", f"{where}.stop.context-loss", root=REPOSITORY,
    )  # fmt: skip
    answer = json.loads(done.out)
    assert answer["advice"] == "stop"
    assert answer["keep"] == {"low": "2.40", "high": "2.40"}
    assert answer["stop"] == {"low": "0.80", "high": "1.20"}
    assert answer["stopping_saves"] == {"low": "1.20", "high": "1.60"}
    assert answer["break_even_idle_hours"] == {"low": "4", "high": "6"}
    turns = {turn["input"]: turn for turn in answer["turns"]}
    assert turns["rate"]["at"] == {"low": "0.06667", "high": "0.1"}
    assert turns["people"]["at"] is None
    assert answer["inputs"]["idle"]["from"] == f"{where}.keep.time"


def blocks() -> list[tuple[str, str]]:
    """Command and output of each block of the guide that shows this command at work."""
    text = (REPOSITORY / "docs" / "guide" / "ledger.md").read_text(encoding="utf-8")
    found = re.findall(
        r"```text\n\$ kbtool (keep-or-stop(?:[^\n]*\\\n)*[^\n]*)\n(.*?)```", text, re.S
    )
    return [(command.replace("\\\n", " "), output) for command, output in found]


@pytest.mark.parametrize("number", range(2))
def test_the_guide_shows_what_comes_out(kbtool, number):
    command, output = blocks()[number]
    done = kbtool(*shlex.split(command), root=REPOSITORY)
    assert (done.code, done.out.strip()) == (0, output.strip())
    assert len(blocks()) == 2


def test_defaults_come_from_the_ledger(base, kbtool):
    base.write("sessions/ledger.yaml", LEDGER)
    answer = json.loads(kbtool("keep-or-stop", "--idle", "12 h", "--json", root=base.root).out)
    assert answer["inputs"]["people"] == {
        "low": "50", "high": "50", "unit": "USD/h", "from": "ledger.yaml",
    }  # fmt: skip
    assert answer["stop"]["low"] == "5.02"  # 6 min of 50.20 USD/h
    assert answer["advice"] == "keep"
    own = kbtool(
        "keep-or-stop", "--idle", "12 h", "--people", "10 USD/h", "--people", "engineer",
        "--rate", "0.30 USD/h", "--json", root=base.root,
    )  # fmt: skip
    answer = json.loads(own.out)
    assert (answer["inputs"]["people"]["low"], answer["keep"]["low"]) == ("60", "3.60")
    assert answer["inputs"]["people"]["from"] == "10 USD/h, engineer"


def test_a_preemption_costs_a_restart_and_more(base, kbtool):
    done = kbtool(
        "keep-or-stop", "--idle", "10 h", "--rate", "1 USD/h", "--restart-cost", "20 USD",
        "--preemption", "10..50 %", "--preemption-cost", "40 USD", root=base.root,
    )  # fmt: skip
    assert "keep  16.00 to 40.00 USD" in done.out
    assert "stop  20.00 USD" in done.out
    assert "advice: either; stopping saves 20.00 USD at most and costs 4.00 USD more" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--idle"),
        (["--idle", "12 h"], "say what the card costs: .*\\(none yet\\)"),
        (["--idle", "12 h", "--rate", "l4", "--restart-cost", "1 USD"],
         "neither a rate of sessions/ledger.yaml"),
        (["--idle", "1e999999 h", "--rate", "l4", "--restart-cost", "1 USD"],
         "it has more than 100 digits"),
        (["--idle", "12 h", "--rate", "1 USD/h"], "say what a restart costs"),
        (["--idle", "12 h", "--rate", "1 USD/h", "--restart", "5 min"], "who wait for the restart"),
        (["--idle", "12", "--rate", "1 USD/h"], "--idle: .*takes a time"),
        (["--idle", "12 h", "--rate", "1 USD/h", "--restart-cost", "1 EUR"], "several currencies"),
        (["--idle", "12 h", "--rate", "1 USD/h", "--restart-cost", "1 USD", "--preemption", "2"],
         "--preemption: .*per cent"),
        (["--idle", "N#x", "--rate", "1 USD/h"], "there is no session 'N'"),
    ],
)  # fmt: skip
def test_invalid_arguments_exit_2(base, kbtool, arguments, said):
    done = kbtool("keep-or-stop", *arguments, root=base.root)
    assert (done.code, done.out) == (2, "")
    assert re.search(said, done.err, re.S), done.err


def test_a_ledger_that_does_not_load_is_reported(base, kbtool):
    base.write("sessions/ledger.yaml", LEDGER + "price: 1\n")
    done = kbtool("keep-or-stop", "--idle", "12 h", root=base.root)
    assert (done.code, done.out) == (1, "")
    assert "sessions/ledger.yaml:6: schema: price" in done.err


def test_an_engineers_rate_is_no_cards(base, kbtool):
    base.write("sessions/ledger.yaml", LEDGER)
    done = kbtool(
        "keep-or-stop", "--idle", "12 h", "--rate", "engineer", "--restart", "10 min",
        "--people", "engineer", root=base.root,
    )  # fmt: skip
    assert done.code == 2
    assert "engineer is a rate of engineer, not of gpu; of gpu there is l4" in done.err
