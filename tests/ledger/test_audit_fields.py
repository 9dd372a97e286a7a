"""The audit of what fields claim without a claim: times, cost lines, cards, bugs called fixed."""

from __future__ import annotations

import subprocess

import pytest
from audited import ID, as_yaml, audited, claim, grades, report
from knowledge import RUN, Knowledge, from_outside, sealed, validated

from kbtool.ledger.claims.audit import audit
from kbtool.ledger.claims.report import answer_of
from kbtool.ledger.patterns import accounts
from kbtool.model.cards import capability_of, card_of
from kbtool.store.tree import KnowledgeBase


def test_the_duration_is_compared_with_start_and_end(base: Knowledge) -> None:
    times = {"started": "2025-01-01T09:00Z", "ended": "2025-01-01T09:11Z"}
    assert grades(base, duration="25 min", **times) == {"duration": "inconsistent"}
    assert grades(base, duration="11 min", **times) == {"duration": "consistent"}
    written = claim("t", "elapsed", ["#started", "#ended"], stated="25 min")
    assert grades(base, written, duration="25 min", **times) == {"t": "inconsistent"}
    unzoned = {"started": "2025-01-01T09:00", "ended": "2025-01-01T09:11Z"}
    assert grades(base, duration="25 min", **unzoned) == {}


def test_the_duration_is_compared_with_the_sum_of_stretches(base: Knowledge) -> None:
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


GPU = {"kind": "gpu", "basis": "estimated", "rate": "2.49 USD/h"}
BILL = {"kind": "gpu", "basis": "billed", "amount": "3.74"}


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ([{**GPU, "duration": "90 min"}] * 2, "costs.0 is the same line"),
        ([GPU, GPU], "costs.0 is the same line"),
        ([{**BILL, "kind": "ai"}] * 2, "costs.0 is the same line"),
        ([GPU, {**GPU, "rate": "1 USD/h"}], "costs.0 lasts as long as the session too"),
        ([{**GPU, "duration": "90 min"}, BILL], "costs.0 estimates what this bills"),
        ([BILL, {**GPU, "duration": "1 h", "card": "H100"}], "costs.0 bills what this estimates"),
        ([{**BILL, "basis": "claimed"}, BILL], "costs.0 claims what this bills"),
        ([{**BILL, "basis": "claimed", "rate": "1 USD/h", "amount": "3"}, BILL], "costs.0 claims"),
        ([{**GPU, "kind": "ai", "id": "a"}, {**BILL, "kind": "ai"}], "costs.a estimates what"),
        ([{**BILL, "source": "log:1"}, {**BILL, "source": "log:2"}], "costs.0 is the same line"),
        ([{**BILL, "note": "first card"}, {**BILL, "note": "second card"}], None),
        ([BILL, {**BILL, "amount": "1.00"}], None),
        ([{**GPU, "duration": "1 h"}, {**BILL, "kind": "ai"}], None),
        ([{**GPU, "duration": "1 h", "card": "L4"}, {**BILL, "card": "H100"}], None),
        ([{**GPU, "duration": "1 h", "card": "Gaudi3"}, {**BILL, "card": "MI300X"}], None),
        ([{**GPU, "card": "L4"}, {**GPU, "card": "H100"}], None),
        ([{**GPU, "kind": "ai"}, {**GPU, "kind": "ai", "rate": "1 USD/h"}], None),
        ([{**BILL, "basis": "claimed", "amount": "1.00"}, BILL], None),
    ],
)
def test_no_cost_is_counted_twice(base: Knowledge, costs: list[dict], said: str | None) -> None:
    found = audited(base, costs=costs, environment={"card": "NVIDIA H100 80GB HBM3"})
    twice = {path: item for path, item in found.items() if path.endswith(".basis")}
    assert [(item.grade, str(item.finding).startswith(said)) for item in twice.values()] == (
        [("inconsistent", True)] if said else []
    )
    if said:
        (path,) = twice
        base.session(more=as_yaml({"costs": costs, "acknowledged": {path: "two cards"}}))
        kept = report(base)
        assert kept.counts["unacknowledged"] == 0 and not kept.stale
        assert kept.place(ID, path)[1] > 6


def test_start_and_end_replace_an_unstated_duration(base: Knowledge) -> None:
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
    assert "2025-01-01-a has ended" in str(items["2025-01-03-c", "started"].finding)
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
def test_stated_properties_of_a_card_are_compared_with_its_data_sheet(
    base: Knowledge, stated: dict, wrong: set[str]
) -> None:
    found = grades(base, environment=stated)
    assert {name for name, grade in found.items() if grade == "inconsistent"} == wrong
    assert "undetermined" not in found.values()


def test_cards_are_recognised_by_their_names() -> None:
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


@pytest.mark.parametrize(
    ("fixes", "grade", "said"),
    [
        ([], "inconsistent", "no record has a fix of it"),
        ([True], "consistent", "a test confirmed the fix"),
        ([False, True], "consistent", "a test confirmed the fix, after one that failed"),
        ([True, False], "inconsistent", "the last fix of it that was tested was seen to fail"),
        ([True, None], "consistent", "a test confirmed the fix"),
        ([None], None, None),
    ],
)
def test_a_bug_is_fixed_by_its_last_fix(base: Knowledge, fixes, grade, said) -> None:
    bugs = [{"id": "b", "title": "B", "status": "fixed"}]
    made = [{"bug": "#bugs.b", "change": "c", "confirmed": tested} for tested in fixes]
    item = audited(base, bugs=bugs, fixes=made).get("bugs.b.status")
    assert (item.grade, item.finding) == (grade, said) if item else grade is None


def test_a_fix_may_name_another_recurrence_of_its_bug(base: Knowledge) -> None:
    met = {"id": "b", "title": "B", "status": "open"}
    again = {**met, "status": "fixed", "recurrence_of": f"{ID}#bugs.b"}
    fix = {"bug": f"{ID}#bugs.b", "change": "c", "confirmed": True}
    base.session("2025-01-02-b", f"follows: {ID}\n" + as_yaml({"bugs": [again], "fixes": [fix]}))
    assert grades(base, bugs=[met]) == {"bugs.b.status": "consistent"}
    # One that was made before it was met again mends it no more.
    base.session("2025-01-02-b", f"follows: {ID}\n" + as_yaml({"bugs": [again]}))
    audited(base, bugs=[met], fixes=[{**fix, "bug": "#bugs.b"}])
    (item,) = [item for item in report(base).items if item.record == "2025-01-02-b"]
    assert (item.grade, item.finding) == ("inconsistent", "no record has a fix of it")


def test_a_proof_is_consistent_if_the_step_it_names_succeeded(base: Knowledge) -> None:
    steps = [{"id": n, "title": n, "status": n} for n in ("done", "failed", "unknown")]
    evidence = [
        {"pattern": "P01", "verdict": "proved", "note": "n", "shown_by": [f"#steps.{step['id']}"]}
        for step in steps
    ]
    assert grades(base, steps=steps, evidence=evidence) == {
        "evidence.0.shown_by": "consistent", "evidence.1.shown_by": "inconsistent",
        "evidence.2.shown_by": "undetermined",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("validation", "where", "grade", "standing"),
    [
        ({}, {}, "consistent", "proved"),
        ({"passed": False}, {}, "inconsistent", "applied"),
        ({"passed": False}, {"status": "failed"}, "consistent", "proved"),
        ({}, {"status": "failed"}, "inconsistent", "applied"),
        ({"reached": False}, {"status": "failed"}, "inconsistent", "applied"),
        (None, {}, "undetermined", "applied"),
    ],
)
def test_the_audit_and_the_ranking_judge_a_proof_alike(
    base: Knowledge, validation: dict | None, where: dict, grade: str, standing: str
) -> None:
    run = "20250101T080000Z-look" if validation is None else base.run(validated(0, **validation))
    base.pattern()
    proof = {"pattern": "P01", "verdict": "proved", "note": "n", "shown_by": [f"{run}#steps.check"]}
    item = audited(base, evidence=[{**proof, **({"where": where} if where else {})}])[
        "evidence.P01.shown_by"
    ]
    assert item.grade == grade
    loaded = KnowledgeBase(base.root)
    (account,) = accounts(
        [entry.record for entry in loaded.patterns.values()],
        [entry.record for entry in loaded.sessions.values()],
        [entry.record for entry in loaded.runs],
    )
    assert account.standing == standing
    (edge,) = account.edges
    assert (edge.unproved is None) == (standing == "proved")
    if edge.unproved:
        assert grade in edge.unproved and (item.finding or item.why) in edge.unproved


COMMAND = {
    **RUN["steps"][0], "id": "serve", "kind": "command",
    "result": {"type": "command", "argv": ["serve"], "exit_code": 0, "output_tail": "", "metrics": [
        {"name": "rate", "unit": "GB/s", "values": [10]}]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("run", "place", "why"),
    [
        (from_outside(), "steps.log", "logged, not validated"),
        (from_outside(), "steps.log.rate", "logged, not validated"),
        (from_outside(), "status", "logged, not validated"),
        (from_outside("import"), "steps.import", "taken in, not validated here"),
        (sealed({**RUN, "steps": [COMMAND], "attempt": 1}), "steps.serve.rate",
         "logged, not validated"),
        (sealed({**RUN, "steps": [COMMAND], "attempt": 1}), "steps.serve", None),
    ],
    ids=["a script", "its value", "its run", "an import", "a value of a command", "a command"],
)  # fmt: skip
def test_a_value_that_nobody_validated_proves_no_pattern(
    base: Knowledge, run: str, place: str, why: str | None
) -> None:
    base.pattern()
    name = base.run(run)
    proof = {"pattern": "P01", "verdict": "proved", "note": "n", "shown_by": [f"{name}#{place}"]}
    told = [{**proof, "where": {"status": "passed"}}] if place.count(".") == 1 else []
    for evidence in (*told, proof):
        item = audited(base, evidence=[evidence])["evidence.P01.shown_by"]
        assert item.grade == ("undetermined" if why else "consistent")
        assert why is None or why in (item.why or "")
    loaded = KnowledgeBase(base.root)
    (account,) = accounts(
        [entry.record for entry in loaded.patterns.values()],
        [entry.record for entry in loaded.sessions.values()],
        [entry.record for entry in loaded.runs],
    )
    assert account.standing == ("applied" if why else "proved")


def test_a_claim_of_success_cannot_confirm_a_proof_by_a_failed_step(base: Knowledge) -> None:
    run = base.run(validated(0, passed=False))
    proof = {
        "pattern": "P01", "verdict": "proved", "note": "n", "shown_by": [f"{run}#steps.check"],
        "where": {"status": "failed"},
    }  # fmt: skip
    said = claim("c", "outcome", [f"{run}#steps.check"])
    assert grades(base, said, evidence=[proof]) == {
        "c": "inconsistent", "evidence.P01.shown_by": "consistent",
    }  # fmt: skip


def test_a_claim_of_failure_cannot_confirm_a_proof(base: Knowledge) -> None:
    steps = [{"id": "s", "title": "S", "status": "failed"}]
    proof = {"pattern": "P01", "verdict": "proved", "note": "n", "shown_by": ["#steps.s"]}
    for where, told in ((None, False), ({"status": "failed"}, True)):
        said = claim("c", "outcome", ["#steps.s"], **({"where": where} if where else {}))
        found = grades(base, said, steps=steps, evidence=[proof])
        assert found.get("evidence.P01.shown_by") == ("inconsistent" if told else None)
        assert found["c"] == ("consistent" if told else "inconsistent")


def test_each_step_that_confirmed_a_fix_passed(base: Knowledge) -> None:
    passed, failed = base.run(validated(0)), base.run(validated(1, passed=False))
    cut = base.run(validated(2, reached=False))
    gone = "20250101T080000Z-look"
    shown = [[passed], [passed, failed], [failed], [cut], [gone], [passed, gone]]
    fixes = [
        {"bug": "#bugs.b", "change": "c", "confirmed": True,
         "shown_by": [f"{run}#steps.check" for run in runs]}
        for runs in shown
    ]  # fmt: skip
    bugs = [{"id": "b", "title": "B", "status": "fixed"}]
    for fix, grade in zip(
        fixes, ["consistent", *["inconsistent"] * 3, *["undetermined"] * 2], strict=True
    ):
        found = audited(base, bugs=bugs, fixes=[fix])
        assert found["fixes.0.shown_by"].grade == grade
        held = "inconsistent" if grade == "inconsistent" else "consistent"
        assert found["bugs.b.status"].grade == held
    said = audited(base, bugs=bugs, fixes=[fixes[1]])["fixes.0.shown_by"].finding
    assert said == f"{failed}#steps.check did not pass (failed)"


@pytest.mark.parametrize(
    ("run", "step", "place", "said"),
    [
        (sealed({**RUN, "attempt": 1}), "look", None, "{} looks at the machine and tests no code"),
        (validated(0, kernel="add"), "check", "kernels/other/a.cu", "{} is of kernel add, and the"
         " fix of other"),
        (from_outside(), "log", None, "{} is logged, not validated, and tests no code"),
        (from_outside("import"), "import", None, "{} is taken in, not validated here, and tests no"
         " code"),
        (validated(0, kernel="add"), "check", "kernels/add/a.cu", None),
    ],
    ids=["a probe", "another kernel", "a script", "an import", "its kernel"],
)  # fmt: skip
def test_a_step_that_tests_something_else_confirms_no_fix(
    base: Knowledge, run: str, step: str, place: str | None, said: str | None
) -> None:
    shown = f"{base.run(run)}#steps.{step}"
    fix = {"bug": "#bugs.b", "change": "c", "confirmed": True, "shown_by": [shown], "place": place}
    found = audited(base, bugs=[{"id": "b", "title": "B", "status": "fixed"}], fixes=[fix])
    grade = "inconsistent" if said else "consistent"
    assert found["fixes.0.shown_by"].grade == found["bugs.b.status"].grade == grade
    assert said is None or found["fixes.0.shown_by"].finding == said.format(shown)


def test_the_audit_reads_no_run_that_no_record_names(base: Knowledge) -> None:
    passed, failed = base.run(validated(0)), base.run(validated(1, passed=False))
    resumed = base.run(validated(2, attempt=2, began=1, passed=False))
    base.write("sessions/2025-01-01-a/runs/20250101T110000Z-look.json", "{")
    of = [f"{failed}#steps.check"]
    base.session(more=as_yaml({"claims": [claim("c", "outcome", of), claim("d", "outcome", [
        f"{passed}#steps.check"])]}))  # fmt: skip
    loaded = KnowledgeBase(base.root)
    told = answer_of(audit(loaded)).as_json()
    (wrong,) = told["findings"][:1]
    assert resumed == failed
    assert wrong["operands"][0]["path"].endswith(f"{failed}.2.json")
    assert told["left_out"] == [] and not loaded.findings


def test_a_commit_is_in_the_repository_that_the_session_names(base: Knowledge) -> None:
    fields = {
        "bugs": [{"id": "b", "title": "B", "status": "open"}],
        "fixes": [{"bug": "#bugs.b", "change": "c", "commit": "deadbee"}],
        "commits": [{"id": "made", "sha": "7e12345"}, {"id": "unsaid"}],
    }
    made = ["fixes.0.commit", "commits.made.sha"]
    found = audited(base, **fields)
    assert [(path, item.grade) for path, item in found.items()] == [
        (path, "undetermined") for path in made
    ]
    assert str(found[made[0]].why).startswith("there is no repository here")
    run = ["git", "-c", "user.name=T", "-c", "user.email=t@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*run, *arguments], cwd=base.root, check=True)
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=base.root, text=True).strip()
    found = audited(base, **fields)
    assert {item.grade for item in found.values()} == {"undetermined"}
    assert "the session names none that does" in str(found[made[0]].why)
    found = audited(base, **fields, repository={"commit": "f" * 40})
    assert {item.grade for item in found.values()} == {"undetermined"}
    fields["commits"][0]["sha"] = head[:8]
    found = audited(base, **fields, repository={"commit": head})
    assert [item.grade for item in found.values()] == ["inconsistent", "consistent"]
    assert head[:12] in str(found[made[0]].finding)


def test_a_bug_called_fixed_is_graded_by_its_fixes(base: Knowledge) -> None:
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
