"""The audit of what fields claim without a claim: times, cost lines, cards, bugs called fixed."""

from __future__ import annotations

import pytest
from audited import ID, as_yaml, audited, claim, grades, report
from knowledge import Knowledge

from kbtool.ledger.cards import capability_of, card_of


def test_duration_start_and_end(base: Knowledge) -> None:
    times = {"started": "2025-01-01T09:00Z", "ended": "2025-01-01T09:11Z"}
    assert grades(base, duration="25 min", **times) == {"duration": "inconsistent"}
    assert grades(base, duration="11 min", **times) == {"duration": "consistent"}
    written = claim("t", "elapsed", ["#started", "#ended"], stated="25 min")
    assert grades(base, written, duration="25 min", **times) == {"t": "inconsistent"}
    unzoned = {"started": "2025-01-01T09:00", "ended": "2025-01-01T09:11Z"}
    assert grades(base, duration="25 min", **unzoned) == {}


def test_duration_and_stretches(base: Knowledge) -> None:
    stretches = [
        {"started": "2025-01-01T09:00Z", "ended": "2025-01-01T09:10Z"},
        {"started": "2025-01-01T11:00Z", "ended": "2025-01-01T11:20Z"},
    ]
    times = {"started": "2025-01-01T09:00Z", "ended": "2025-01-01T11:20Z", "stretches": stretches}
    assert grades(base, duration="30 min", **times) == {"duration": "consistent"}
    assert grades(base, duration="140 min", **times) == {"duration": "inconsistent"}


def test_steps_fit_the_session(base: Knowledge) -> None:
    steps = [{"id": n, "title": n, "actual": "20 min"} for n in ("a", "b")]
    assert grades(base, duration="40 min", steps=steps) == {"steps": "consistent"}
    assert grades(base, duration="39 min", steps=steps) == {"steps": "inconsistent"}


def test_a_cost_line_is_its_rate_times_its_time(base: Knowledge) -> None:
    line = {"kind": "gpu", "amount": "0.36", "basis": "claimed", "rate": "0.20 USD/h"}
    assert grades(base, costs=[line], duration="107 min") == {"costs.gpu": "consistent"}
    assert grades(base, costs=[{**line, "amount": "0.35"}], duration="107 min") == {
        "costs.gpu": "inconsistent"
    }
    assert grades(base, costs=[{**line, "duration": "1 h"}], duration="107 min") == {
        "costs.gpu": "inconsistent"
    }
    written = claim("t", "product", ["#costs.gpu.duration", "#costs.gpu.rate"], stated="0.20 USD")
    timed = [{**line, "amount": "0.20", "duration": "1 h"}]
    assert grades(base, written, costs=timed) == {"t": "consistent"}
    estimated = [{**line, "basis": "estimated"}]
    assert grades(base, costs=estimated, duration="107 min") == {}


def test_cost_lines_of_one_kind_have_paths_and_lines_of_their_own(base: Knowledge) -> None:
    line = {"kind": "gpu", "basis": "claimed", "rate": "0.20 USD/h"}
    costs = [
        {**line, "amount": "0.20", "duration": "1 h"},
        {**line, "amount": "9.00", "duration": "1 h"},
        {**line, "amount": "7.00", "duration": "1 h", "id": "night"},
        {**line, "amount": "0.50", "duration": "1 h"},
    ]
    base.session(more=as_yaml({"costs": costs, "acknowledged": {"costs.1": "so it says"}}))
    found = report(base)
    assert {item.where: item.grade for item in found.items} == {
        "costs.0": "consistent", "costs.1": "inconsistent", "costs.night": "inconsistent",
        "costs.3": "inconsistent",
    }  # fmt: skip
    assert found.counts["acknowledged"] == 1 and not found.stale
    lines = [found.place(item.record, item.where)[1] for item in found.items]
    assert len(set(lines)) == 4


def test_start_and_end_stand_in_for_a_duration_that_nobody_states(base: Knowledge) -> None:
    times = {"started": "2025-01-01T09:00Z", "ended": "2025-01-01T10:00Z", "duration": None}
    steps = [{"id": n, "title": n, "actual": "35 min"} for n in ("a", "b")]
    line = {"kind": "gpu", "amount": "0.20", "basis": "claimed", "rate": "0.20 USD/h"}
    found = grades(base, steps=steps, costs=[line], **times)
    assert (found["steps"], found["costs.gpu"]) == ("inconsistent", "consistent")
    short = [{**steps[0], "actual": "30 min"}, {**steps[1], "actual": "31 min"}]
    dear = [{**line, "amount": "0.90"}]
    found = grades(base, steps=short, costs=dear, **times)  # a clock may be a minute behind
    assert (found["steps"], found["costs.gpu"]) == ("consistent", "inconsistent")
    stretches = [
        {"started": "2025-01-01T09:00Z", "ended": "2025-01-01T09:20Z"},
        {"started": "2025-01-01T09:40Z", "ended": "2025-01-01T10:00Z"},
    ]
    found = grades(base, steps=short, costs=[line], stretches=stretches, **times)
    assert (found["steps"], found["costs.gpu"]) == ("inconsistent", "inconsistent")


@pytest.mark.parametrize(
    ("started", "grade"),
    [
        ("2025-01-01T23:59", "consistent"),
        ("2025-01-02T00:00", "inconsistent"),
        ("2024-12-31T23:59", "inconsistent"),
        ("2025-01-02T00:30+01:00", "inconsistent"),
        ("2025-01-02T11:59Z", "consistent"),  # the first of January still, 12 hours behind
        ("2025-01-02T12:00Z", "inconsistent"),
        ("2024-12-31T10:00Z", "consistent"),  # the first of January already, 14 hours ahead
    ],
)
def test_a_session_begins_on_the_day_of_its_id(base: Knowledge, started: str, grade: str) -> None:
    assert audited(base, started=started)["id"].grade == grade


def test_a_session_comes_after_the_one_that_it_follows(base: Knowledge) -> None:
    base.session("2025-01-02-b", f"follows: {ID}\n")  # known by name only
    base.session(
        "2025-01-03-c",
        "follows: 2025-01-02-b\nstarted: 2024-12-31T09:00Z\nended: 2025-01-01T10:30+01:00\n",
    )
    base.session("2025-01-04-d", "follows: 2025-01-03-c\nupdated: 2025-01-01T09:30Z\n")
    base.session("2025-01-05-e", "follows: 2025-01-04-d\nstarted: 2025-01-01T08:00\n")
    found = audited(base, started="2025-01-01T08:00Z", ended="2025-01-01T09:00Z")
    items = {(item.record, item.where): item for item in report(base).items}
    assert items["2025-01-03-c", "started"].grade == "inconsistent"
    assert "2025-01-01-a has ended" in str(items["2025-01-03-c", "started"].said)
    assert items["2025-01-04-d", "updated"].grade == "consistent"
    assert ("2025-01-05-e", "started") not in items  # its zone is unknown
    assert not [item for item in found.values() if item.record == ID]


@pytest.mark.parametrize(
    ("stated", "wrong"),
    [
        ({"card": "L4", "architecture": "Ampere", "compute_capability": "sm_89"},
         {"environment.architecture"}),
        ({"card": "NVIDIA L4", "architecture": "Ada", "compute_capability": "8.9",
          "card_memory": "23 GB", "shared_memory": "48 KB"}, set()),
        ({"card": "L4", "compute_capability": "sm_80", "card_memory": "16 GB",
          "shared_memory": "227 KB"},
         {"environment.compute_capability", "environment.card_memory",
          "environment.shared_memory"}),
        ({"card": "H100 80GB HBM3", "compute_capability": "sm_90a", "card_memory": "79.2 GiB"},
         set()),
        ({"card": "NVIDIA H200", "card_memory": "150 GB", "architecture": "Hopper"}, set()),
        ({"card": "A new card", "compute_capability": "sm_86", "architecture": "Hopper",
          "card_memory": "1 GB"}, {"environment.architecture"}),
        ({"card": "none", "architecture": "x86"}, set()),
    ],
)  # fmt: skip
def test_facts_of_cards(base: Knowledge, stated: dict, wrong: set[str]) -> None:
    found = grades(base, environment=stated)
    assert {name for name, grade in found.items() if grade == "inconsistent"} == wrong
    assert "undetermined" not in found.values()


def test_cards_by_their_names() -> None:
    names = {
        "A100-SXM4-80GB": "A100", "Tesla T4": "T4", "NVIDIA GeForce RTX 4090": "RTX 4090",
        "NVIDIA A10G": "A10G", "NVIDIA L40S": "L40S",
    }  # fmt: skip
    for stated, name in names.items():
        card = card_of(stated)
        assert card is not None and card.name == name
    assert card_of("none") is None and card_of("L400") is None
    assert [capability_of(c) for c in ("sm_90a", "8.9", "SM89", "compute_100", "Ada")] == [
        "90", "89", "89", "100", None
    ]  # fmt: skip


def test_a_bug_called_fixed(base: Knowledge) -> None:
    bugs = [{"id": n, "title": n, "status": "fixed"} for n in ("gone", "back", "untested", "there")]
    fixes = [
        {"bug": "#bugs.gone", "change": "c", "confirmed": True},
        {"bug": "#bugs.back", "change": "c", "confirmed": True},
        {"bug": "#bugs.untested", "change": "c"},
        {"bug": "#bugs.there", "change": "c", "confirmed": False},
    ]
    again = {"id": "b", "title": "b", "status": "open", "recurrence_of": f"{ID}#bugs.back"}
    base.session("2025-01-02-b", f"follows: {ID}\n" + as_yaml({"bugs": [again]}))
    assert grades(base, bugs=bugs, fixes=fixes) == {
        "bugs.gone.status": "consistent",
        "bugs.back.status": "inconsistent",
        "bugs.there.status": "inconsistent",
    }
    written = claim("t", "outcome", ["#bugs.back.status", "2025-01-02-b#bugs.b"])
    assert "bugs.back.status" not in grades(base, written, bugs=bugs, fixes=fixes)
