"""The audit over records: grades, what rests on a claim, acknowledgements, whole ledgers."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest
from audited import COSTS, ID, as_yaml, audited, claim, grades, report
from hypothesis import given, settings
from hypothesis import strategies as st
from knowledge import LOOK, RUN, Knowledge, line_of, sealed
from pydantic import ValidationError

from kbtool.ledger.claims.audit import audit
from kbtool.ledger.claims.report import GRADES, answer_of
from kbtool.model.claim import IN_WORDS, Claim, How
from kbtool.model.session import Session
from kbtool.store.document import parse
from kbtool.store.tree import Entry, KnowledgeBase


def test_sums_and_counts_are_graded_and_unknown_operands_are_undetermined(base: Knowledge) -> None:
    found = grades(
        base,
        claim("right", "sum", ["#costs.gpu", "#costs.ai"], stated="1.35 USD"),
        claim("wrong", "sum", ["#costs.gpu", "#costs.ai"], stated="1.36 USD"),
        claim("all", "sum", ["#costs"], stated="1.35 USD"),
        claim("seven", "count", ["#costs"], stated="7"),
        claim("two", "count", ["#costs"], stated="2"),
        claim("unknown", "sum", ["#duration", "5 min"], stated="9 min"),
        claim("nothing", None, None, stated="9 min"),
        claim("astray", "sum", ["#nowhere", "5 min"], stated="9 min"),
        claim("no-record", "sum", ["2020-01-01-x#duration"], stated="9 min"),
        claim("no-figure", "sum", ["#label"], stated="9 min"),
        claim("units", "sum", ["#costs.gpu", "5 min"], stated="5.35 USD"),
        costs=COSTS,
        duration=None,
    )
    assert {name for name, grade in found.items() if grade == "consistent"} == {
        "right", "all", "two"
    }  # fmt: skip
    assert {name for name, grade in found.items() if grade == "inconsistent"} == {
        "wrong", "seven", "units"
    }  # fmt: skip


def test_an_unknown_cost_leaves_the_sum_undetermined(base: Knowledge) -> None:
    costs = [*COSTS, {"kind": "engineer", "amount": None, "basis": "claimed"}]
    found = grades(base, claim("all", "sum", ["#costs"], stated="99 USD"), costs=costs)
    assert found == {"all": "undetermined"}


def test_the_computation_names_the_places_of_its_operands(base: Knowledge) -> None:
    base.session(
        more=as_yaml(
            {"costs": COSTS, "claims": [claim("t", "sum", ["#costs.gpu", "1.05 USD"],
                                              stated="2.40 USD")]}
        )
    )  # fmt: skip
    path = base.root / "sessions" / ID / "session.yaml"
    (finding,) = answer_of(report(base)).as_json()["findings"]
    assert finding["path"] == f"sessions/{ID}/session.yaml"
    assert finding["line"] == line_of(path, "id: t")
    assert (finding["record"], finding["claim"], finding["grade"]) == (ID, "t", "inconsistent")
    assert (finding["stated"], finding["derived"]) == ("2.40 USD", "1.40 USD")
    assert finding["expression"] == "0.35 USD + 1.05 USD"
    assert finding["operands"] == [
        {"value": "0.35 USD", "path": finding["path"], "line": line_of(path, "kind: gpu")},
        {"value": "1.05 USD", "path": None, "line": None},
    ]


def test_the_mean_that_gives_the_figure_is_named(base: Knowledge) -> None:
    of = ["4 ×", "9 ×"]
    items = audited(
        base,
        claim("a", "mean", of, stated="6.0 ×"),
        claim("b", "mean", of, stated="6.5 ×", source="log:1"),
        claim("c", "mean", of, stated="8.0 ×"),
    )
    found = report(base)
    assert items["a"].grade == "inconsistent"
    assert "the geometric mean gives it" in str(found.computation(items["a"]).why)
    assert items["b"].grade == "consistent"
    assert "the arithmetic mean gives it" in str(found.computation(items["b"]).why)
    assert "no mean gives it" in str(found.computation(items["c"]).why)
    assert "harmonic 5.538 ×" in str(found.computation(items["c"]).why)


def test_a_claimed_duration_is_compared_with_start_and_end(base: Knowledge) -> None:
    found = grades(
        base,
        claim("minutes", "elapsed", ["#started", "#ended"], stated="11 min"),
        claim("more", "elapsed", ["#started", "#ended"], stated="25 min"),
        # A clock read to the minute may be up to a minute behind; one with seconds is not.
        claim("behind", "elapsed", ["#started", "#ended"], stated="12 min"),
        claim(
            "to-the-second",
            "elapsed",
            ["2025-01-01T09:15:00Z", "2025-01-01T09:26:00Z"],
            stated="12 min",
        ),
        claim("zones", "elapsed", ["#started", "2025-01-01T10:00"], stated="25 min"),
        claim("forwards", "order", ["#started", "#ended", "2025-01-01T12:00+02:00"]),
        claim("backwards", "order", ["#ended", "#started"]),
        claim("unsaid", "order", ["#started", "2025-01-01T12:00"]),
        started="2025-01-01T09:15Z",
        ended="2025-01-01T09:26Z",
    )
    assert found == {
        "minutes": "consistent", "more": "inconsistent", "zones": "undetermined",
        "behind": "consistent", "to-the-second": "inconsistent",
        "forwards": "consistent", "backwards": "inconsistent", "unsaid": "undetermined",
    }  # fmt: skip


def test_a_claimed_version_may_be_a_prefix_of_the_recorded_one(base: Knowledge) -> None:
    found = grades(
        base,
        claim("other", "same", ["#environment.torch"], stated="2.7"),
        claim("that", "same", ["#environment.torch"], stated="2.2"),
        claim("longer", "same", ["#environment.torch"], stated="2.2.1"),
        claim("no-prefix", "same", ["#environment.torch"], stated="2.20"),
        environment={"torch": "2.2.1+cu121"},
    )
    assert found == {
        "other": "inconsistent", "that": "consistent", "longer": "consistent",
        "no-prefix": "inconsistent",
    }  # fmt: skip


MEASURED = {
    "id": "m", "title": "Times", "kind": "benchmark",
    "columns": {"ms": {"title": "time", "unit": "ms"}},
    "rows": [
        {"id": "s64", "case": {"S": "64", "D": "8"}, "values": {"ms": "1.0"}},
        {"id": "s128", "case": {"S": "128", "D": "8"}, "values": {"ms": "3.0"}},
        {"id": "again", "case": {"S": "128", "config": "x"}, "values": {"ms": "4.0"}},
        {"id": "bare", "values": {"ms": "4.0"}},
    ],
}  # fmt: skip


def test_an_average_is_not_compared_with_one_size(base: Knowledge) -> None:
    base.session(
        more=as_yaml(
            {
                "measurements": [MEASURED],
                "claims": [
                    claim("average", "mean", ["#measurements.m.s64.ms", "#measurements.m.s128.ms"],
                          stated="2.0 ms"),
                    claim("unlike", "alike", ["#measurements.m.s128.ms", "#claims.average.stated"]),
                    claim("worked-out", "alike",
                          ["#measurements.m.s128.ms",
                           {"how": "mean",
                            "of": ["#measurements.m.s64.ms", "#measurements.m.s128.ms"]}]),
                    claim("like", "alike", ["#measurements.m.s128.ms", "#measurements.m.again.ms"]),
                    claim("unsaid", "alike", ["#measurements.m.s64.ms", "#measurements.m.bare.ms"]),
                    claim("unmeasured", "alike", ["#measurements.m.s128.ms", "3 ms"]),
                    claim("unsaid-within", "alike",
                          ["#measurements.m.s64.ms",
                           {"how": "mean",
                            "of": ["#measurements.m.s64.ms", "#measurements.m.bare.ms"]}]),
                ],
            }
        )
    )  # fmt: skip
    found = report(base)
    items = {item.claim: item for item in found.items}
    assert {name: item.grade for name, item in items.items()} == {
        "average": "consistent", "unlike": "inconsistent", "worked-out": "inconsistent",
        "like": "consistent",
        "unsaid": "undetermined", "unmeasured": "undetermined", "unsaid-within": "undetermined",
    }  # fmt: skip
    why = found.computation(items["unsaid-within"]).why
    assert why == "mean of 1.0 ms, 4.0 ms does not say under which conditions it was measured"
    said = found.computation(items["unlike"]).derived
    assert (
        said == "unlike: one is at D=8 S=128, the other at an average over 2: D=8 S=128, D=8 S=64"
    )


def test_a_claim_of_success_is_graded_by_the_status_of_its_operands(base: Knowledge) -> None:
    later = "2025-01-02-b"
    base.session(
        later,
        f"follows: {ID}\n" + as_yaml({"bugs": [{"id": "b", "title": "NaN", "status": "open"}]}),
    )
    items = audited(
        base,
        claim("good", "outcome", ["#steps.s.status"]),
        claim("bad", "outcome", ["#steps.s.status", "#steps.f.status"]),
        claim("unsaid", "outcome", ["#steps.u.status"]),
        claim("gone", "outcome", [f"{later}#bugs.b"]),
        claim("saved", "outcome", ["#budget_time"]),
        steps=[{"id": "s", "title": "S", "status": "done"}, {"id": "f", "title": "F",
                "status": "failed"}, {"id": "u", "title": "U"}],
        budget_time="0 min",
    )  # fmt: skip
    assert {name: item.grade for name, item in items.items()} == {
        "good": "consistent", "bad": "inconsistent", "unsaid": "undetermined",
        "gone": "inconsistent", "saved": "inconsistent",
    }  # fmt: skip
    assert report(base).computation(items["gone"]).derived == f"{later}#bugs.b is bug 'NaN' (later)"


def test_a_claim_about_a_run_step_is_graded_by_the_steps_status(base: Knowledge) -> None:
    base.pattern(more=LOOK)
    statuses = ("passed", "failed", "timeout", "crashed", "unavailable")
    for number, status in enumerate(statuses):
        run = {**RUN, "id": f"20250101T09000{number}Z-look", "status": status,
               "steps": [{**RUN["steps"][0], "status": status}]}  # fmt: skip
        base.write(f"sessions/{ID}/runs/{run['id']}.json", sealed(run))
    items = audited(
        base,
        *(
            claim(status, "outcome", [f"20250101T09000{number}Z-look#steps.look"])
            for number, status in enumerate(statuses)
        ),
    )
    assert {name: item.grade for name, item in items.items()} == {
        "passed": "consistent", "failed": "inconsistent", "timeout": "inconsistent",
        "crashed": "inconsistent", "unavailable": "undetermined",
    }  # fmt: skip
    found = report(base)
    said = "20250101T090001Z-look#steps.look is step 'Look', failed"
    assert found.computation(items["failed"]).derived == said
    why = found.computation(items["unavailable"]).why
    assert why is not None and why.endswith("is step 'Look', unavailable")


def test_each_kind_of_item_is_graded_by_its_own_status_field(base: Knowledge) -> None:
    guess = {"id": "h", "statement": "S", "verdict": "rejected"}
    items = audited(
        base,
        claim("step", "outcome", ["#steps.s"]),
        claim("guess", "outcome", ["#bugs.b.h"]),
        claim("fix", "outcome", ["#fixes.f"]),
        claim("untested", "outcome", ["#fixes.g"]),
        claim("thing", "outcome", ["#deliverables.d"]),
        claim("plan", "outcome", ["#plans.p.q"]),
        bugs=[{"id": "b", "title": "B", "status": "open", "hypotheses": [guess]}],
        fixes=[
            {"id": "f", "bug": "#bugs.b", "change": "c", "confirmed": False},
            {"id": "g", "bug": "#bugs.b", "change": "c"},
        ],
        steps=[{"id": "s", "title": "S", "status": "done"}],
        deliverables=[{"id": "d", "title": "D"}],
        plans=[{"id": "p", "title": "P", "steps": [{"id": "q", "title": "Q"}]}],
    )
    found = report(base)
    said = {
        name: (item.grade, found.computation(item).derived or found.computation(item).why)
        for name, item in items.items()
    }
    nothing = "neither borne out nor contradicted: "
    assert said == {
        "step": ("consistent", "steps.s is step 'S', done"),
        "guess": ("inconsistent", "bugs.b.h is hypothesis 'h', rejected"),
        "fix": ("inconsistent", "fixes.f is fix 'f', failed"),
        "untested": ("undetermined", f"{nothing}fixes.g is fix 'g', untested"),
        "thing": ("consistent", "deliverables.d is deliverable 'D', done"),
        "plan": ("undetermined", f"{nothing}plans.p.q is planned step 'Q'"),
    }


def test_the_status_of_a_bug_is_what_later_sessions_made_of_it(base: Knowledge) -> None:
    bugs = [{"id": n, "title": n, "status": "open"} for n in ("mended", "failed", "back", "open")]
    bugs.append({"id": "hoped", "title": "hoped", "status": "fixed"})
    fixes = [
        {"bug": f"{ID}#bugs.mended", "change": "c", "confirmed": True},
        {"bug": f"{ID}#bugs.failed", "change": "c", "confirmed": False},
        {"bug": f"{ID}#bugs.back", "change": "c"},
        {"bug": f"{ID}#bugs.hoped", "change": "c", "confirmed": False},
    ]
    base.session("2025-01-02-b", f"follows: {ID}\n" + as_yaml({"fixes": fixes}))
    again = {"id": "z", "title": "Z", "status": "worked-around", "recurrence_of": f"{ID}#bugs.back"}
    base.session("2025-01-03-c", "follows: 2025-01-02-b\n" + as_yaml({"bugs": [again]}))
    where = {"where": {"status": "fixed"}}
    items = audited(
        base,
        *(claim(bug["id"], "outcome", [f"#bugs.{bug['id']}"], **where) for bug in bugs),
        # A count is of what stands here.
        claim("count", "count", ["#bugs"], stated="1", **where),
        bugs=bugs,
    )
    said = {name: (item.grade, item.finding) for name, item in items.items() if "." not in name}
    assert said == {
        "mended": ("consistent", "bugs.mended is bug 'mended', fixed"),
        "failed": ("inconsistent", "bugs.failed is bug 'failed', open"),
        "back": ("inconsistent", "bugs.back is bug 'back', worked-around"),
        "open": ("inconsistent", "bugs.open is bug 'open', open"),
        "hoped": ("inconsistent", "bugs.hoped is bug 'hoped', open"),
        "count": ("consistent", None),
    }


def test_a_claim_derived_from_typed_figures_alone_is_undetermined(base: Knowledge) -> None:
    literals = ["50 us", "1 us"]
    items = audited(
        base,
        claim("typed", "ratio", literals, stated="50"),
        claim("wrong", "ratio", literals, stated="49"),
        claim("cited", "ratio", literals, stated="50", source="log:3"),
        claim("deep", "sum", [{"how": "ratio", "of": literals}, "1"], stated="51"),
        claim("order", "order", ["2025-01-01T09:00Z", "2025-01-01T10:00Z"]),
        claim("stated", None, None, stated="50 us"),
        claim("through", "ratio", ["#claims.stated", "1 us"], stated="50"),
        claim("twice", "same", ["#claims.through.stated"], stated="50"),
        claim("recorded", "ratio", ["#duration", "1 min"], stated="5"),
        claim("after", "same", ["#claims.recorded"], stated="5"),
        duration="5 min",
    )
    grades_ = {name: item.grade for name, item in items.items()}
    assert grades_ == {
        "typed": "undetermined", "wrong": "inconsistent", "cited": "consistent",
        "deep": "undetermined", "order": "undetermined", "stated": "undetermined",
        "through": "undetermined", "twice": "undetermined", "recorded": "consistent",
        "after": "consistent",
    }  # fmt: skip
    assert str(items["typed"].why).startswith("rests on typed figures alone")


BUGS = [
    {"id": "a", "title": "A", "status": "open", "component": "partial"},
    {"id": "b", "title": "B", "status": "fixed", "component": "reduction"},
    {"id": "c", "title": "C", "status": "open"},
]
FIXES = [{"bug": "#bugs.b", "change": "c"}]


def test_a_count_counts_what_is_known_and_what_is_asked_for(base: Knowledge) -> None:
    both = ["#bugs.a", "#bugs.b"]
    found = grades(
        base,
        claim("two-fixed", "count", both, stated="2", where={"status": "fixed"}),
        claim("one-fixed", "count", ["#bugs"], stated="1", where={"status": "fixed"}),
        claim("unsaid", "count", ["#bugs"], stated="1", where={"component": "partial"}),
        claim("no-such-field", "count", ["#bugs"], stated="1", where={"colour": "red"}),
        claim("null", "count", ["#duration", "#budget_time"], stated="2"),
        claim("absent", "count", ["#bugs.z"], stated="1"),
        bugs=BUGS, fixes=FIXES, duration=None, budget_time="1 h",
    )  # fmt: skip
    assert found == {
        "two-fixed": "inconsistent", "one-fixed": "consistent", "unsaid": "undetermined",
        "no-such-field": "undetermined", "null": "undetermined", "absent": "undetermined",
    }  # fmt: skip
    with pytest.raises(ValidationError, match="where is for a count or an outcome"):
        Claim(**claim("x", "sum", ["#costs"], stated="1", where={"status": "fixed"}))


def test_evidence_on_both_sides_is_shown_and_turns_no_decision(base: Knowledge) -> None:
    at_fault = {"where": {"component": "partial"}}
    items = audited(
        base,
        claim("there", "outcome", ["#bugs.a"], **at_fault),
        claim("elsewhere", "outcome", ["#bugs.b"], **at_fault),
        claim("both", "outcome", ["#bugs.a", "#bugs.b"], **at_fault),
        bugs=BUGS, fixes=FIXES, decisions=[DECISION],
        rests_on={"decisions.keep": ["#claims.there", "#claims.elsewhere", "#claims.both"]},
    )  # fmt: skip
    assert {name: item.grade for name, item in items.items()} == {
        "there": "consistent", "elsewhere": "decision", "both": "inconsistent"
    }  # fmt: skip
    came = report(base).computation(items["both"])
    assert came.derived == "bugs.b is bug 'B'; and yet bugs.a is bug 'A'"
    assert came.expression == "outcome of bug 'A', bug 'B', where component is partial"


def test_equal_figures_under_unstated_conditions_are_undetermined(base: Knowledge) -> None:
    table = {
        "id": "m", "title": "M", "kind": "benchmark",
        "columns": {"ms": {"title": "T", "unit": "ms"}},
        "rows": [
            {"id": "one", "case": {"S": 128}, "values": {"ms": 1.8}},
            {"id": "two", "case": {"S": 128, "D": 64}, "values": {"ms": 0.5}},
            {"id": "three", "case": {"S": 64}, "values": {"ms": 0.5}},
        ],
    }  # fmt: skip
    one, two, three = (f"#measurements.m.{row}.ms" for row in ("one", "two", "three"))
    found = grades(
        base,
        claim("quoted", "same", [one], stated="0.5 ms"),
        claim("alike", "same", [one, two], stated="0.5 ms"),
        claim("unlike", "same", [one, three], stated="0.5 ms"),
        claim("unsaid", "same", [one, "#budget_time"], stated="0.5 ms"),
        measurements=[table], budget_time="0.5 ms",
    )  # fmt: skip
    assert found == {
        "quoted": "inconsistent", "alike": "inconsistent", "unlike": "undetermined",
        "unsaid": "undetermined",
    }  # fmt: skip


DECISION = {
    "id": "keep", "question": "Keep it?", "chosen": "yes",
    "options": [
        {"id": "yes", "title": "Yes", "figures": {"hours": "12 h", "rate": "0.20 USD/h"}},
        {"id": "no", "title": "No", "figures": {"loss": "0.80..1.20 USD"}},
    ],
}  # fmt: skip


def test_a_claim_between_the_options_of_a_decision_turns_it(base: Knowledge) -> None:
    items = audited(
        base,
        claim("cost", "product", ["#decisions.keep.yes.hours", "#decisions.keep.yes.rate"],
              stated="2.40 USD"),
        claim("pays", "difference", ["#decisions.keep.no.loss", "#claims.cost.stated"],
              stated=">0 USD"),
        decisions=[DECISION],
    )  # fmt: skip
    assert items["cost"].grade == "consistent"
    assert items["pays"].grade == "decision"
    assert items["pays"].turns == (f"{ID}#decisions.keep",)


def test_a_wrong_figure_below_a_claim_that_holds_turns_the_decision(base: Knowledge) -> None:
    """As stated, keeping it costs 0.24 and pays; recomputed it costs 2.40 and does not."""
    items = audited(
        base,
        claim("cost", "product", ["#decisions.keep.yes.hours", "#decisions.keep.yes.rate"],
              stated="0.24 USD"),
        claim("again", "same", ["#claims.cost.stated"], stated="0.24 USD"),
        claim("pays", "difference", ["#decisions.keep.no.loss", "#claims.again.stated"],
              stated=">0 USD"),
        decisions=[DECISION],
    )  # fmt: skip
    assert {name: item.grade for name, item in items.items()} == {
        "cost": "decision", "again": "consistent", "pays": "consistent",
    }  # fmt: skip
    assert items["cost"].turns == (f"{ID}#decisions.keep",)


def test_a_wrong_figure_that_leaves_the_verdict_alone_turns_nothing(base: Knowledge) -> None:
    found = grades(
        base,
        claim("cost", "sum", ["0.50 USD"], stated="0.24 USD"),
        claim("pays", "difference", ["#decisions.keep.no.loss", "#claims.cost.stated"],
              stated=">0 USD"),
        claim("plain", "sum", ["2 USD"], stated="1 USD"),
        claim("nothing-rests", "sum", ["2 USD"], stated="<1 USD"),
        decisions=[DECISION],
        rests_on={"outcome": ["#claims.plain"]},
        outcome="It went well.",
    )  # fmt: skip
    assert found == {
        "cost": "inconsistent", "pays": "consistent", "plain": "inconsistent",
        "nothing-rests": "inconsistent",
    }  # fmt: skip


def test_a_record_says_what_rests_on_a_claim_of_an_earlier_one(base: Knowledge) -> None:
    base.session(
        "2025-01-02-b",
        f"follows: {ID}\noutcome: Built on it.\nrests_on: {{outcome: ['{ID}#claims.fits']}}\n",
    )
    items = audited(
        base,
        claim("fits", "sum", ["3 h"], stated="<= 2 h"),
        claim("sign", "difference", ["1 USD", "3 USD"], stated="2 USD"),
        rests_on={"title": ["#claims.sign"]},
    )  # fmt: skip
    assert (items["fits"].grade, items["fits"].turns) == ("decision", ("2025-01-02-b#outcome",))
    assert items["sign"].grade == "decision"


def test_an_acknowledged_claim_must_be_inconsistent(base: Knowledge) -> None:
    wrong = claim("wrong", "sum", ["2 min"], stated="1 min")
    right = claim("right", "sum", ["#duration"], stated="25 min")
    unknown = claim("unknown", None, None, stated="2 min")
    base.session(
        more=as_yaml(
            {
                "duration": "25 min",
                "started": "2025-01-01T09:00Z",
                "ended": "2025-01-01T09:10Z",
                "claims": [wrong, right, unknown],
                "acknowledged": {
                    "claims.wrong": "the log is wrong",
                    "duration": "a pause, perhaps",
                    "claims.right": "why?",
                    "claims.unknown": "why?",
                    "claims.gone": "why?",
                },
            }
        )
    )
    found = report(base)
    items = {item.claim: item for item in found.items}
    assert items["wrong"].acknowledged == "the log is wrong"
    assert items["duration"].acknowledged == "a pause, perhaps"
    assert items["right"].acknowledged is None
    path = base.root / "sessions" / ID / "session.yaml"
    stale = {(s["line"], s["message"].split(":")[0]) for s in answer_of(found).as_json()["stale"]}
    assert stale == {
        (line_of(path, "claims.right"), "claims.right is consistent"),
        (line_of(path, "claims.unknown"), "claims.unknown is undetermined"),
        (line_of(path, "claims.gone"), "claims.gone is not an audited claim"),
    }
    assert not answer_of(found).passed
    assert found.counts["unacknowledged"] == 0 and found.counts["stale"] == 3


def test_rests_on_with_a_missing_item_is_a_finding_of_check_and_audit(base: Knowledge) -> None:
    path = base.session(
        more="outcome: x\nclaims: []\nrests_on:\n  outcome: ['#claims.none', '#outcome']\n"
        "  decisions.gone: []\n"
    )
    at = line_of(path, "decisions.gone")
    assert {(f.rule, f.line) for f in base.findings()} == {("link", at - 1), ("link", at)}
    assert [stale.message for stale in report(base).stale] == [
        "#claims.none is no claim; name one",
        "#outcome is no claim; name one",
    ]


def test_a_claim_that_derives_from_itself_is_undetermined(base: Knowledge) -> None:
    base.session("2025-01-02-b", "claims:\n- {id: x, says: x, stated: 1 min, how: same,"
                 f" of: ['{ID}#claims.b.stated']}}\n")  # fmt: skip
    found = grades(
        base,
        claim("a", "sum", ["#claims.b.stated", "1 min"], stated="9 min"),
        claim("b", "sum", ["#claims.a.stated", "1 min"], stated="7 min"),
        claim("self", "same", ["#claims.self.stated"], stated="7 min"),
        claim("c", "sum", ["3 min"], stated="7 min"),
    )
    assert found.pop("x") == "undetermined"
    assert found == {
        "a": "undetermined", "b": "undetermined", "self": "undetermined", "c": "inconsistent"
    }  # fmt: skip


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.lists(st.decimals(0, 10**4, places=2), min_size=1, max_size=5),
            st.integers(1, 10**4),
            st.sampled_from(["0.20", "3.00", "25.00"]),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(-3, 3),
)
def test_sums_and_products_of_random_costs_hold_and_a_cent_more_is_found(
    tmp_path_factory: Any, drawn: list, cents: int
) -> None:
    """Sums, products and running totals hold; moved by a cent or more, each is found."""
    base = Knowledge(tmp_path_factory.mktemp("kb"))
    running, before = Decimal(0), None
    for at, (amounts, minutes, rate) in enumerate(drawn):
        price = (Decimal(rate) * minutes / 60).quantize(Decimal("0.01"))
        costs = [{"kind": "gpu", "id": f"c{i}", "amount": f"{a}", "basis": "billed"}
                 for i, a in enumerate(amounts)]  # fmt: skip
        paid = sum(amounts, Decimal(0))
        running += paid
        id_ = f"2025-01-0{at + 1}-s"
        of = ["#costs", *([f"{before}#claims.running.stated"] if before else [])]
        wrong = Decimal(cents) / 100
        more = {
            "duration": f"{minutes} min",
            "costs": costs,
            "claims": [
                claim("paid", "sum", ["#costs"], stated=f"{paid} USD"),
                claim("running", "sum", of, stated=f"{running} USD"),
                claim("price", "product", ["#duration", f"{rate} USD/h"], stated=f"{price} USD"),
                claim("off", "sum", ["#costs"], stated=f"{paid + wrong} USD"),
                claim("off-price", "product", ["#duration", f"{rate} USD/h"],
                      stated=f"{price + wrong} USD"),
            ],
        }  # fmt: skip
        base.session(id_, (f"follows: {before}\n" if before else "") + as_yaml(more))
        before = id_
    for item in report(base).items:
        moved = item.claim.startswith("off") and cents != 0
        assert item.grade == ("inconsistent" if moved else "consistent"), item


@pytest.mark.slow
def test_a_long_chain_of_running_totals_takes_no_stack_and_no_square_of_time(
    base: Knowledge,
) -> None:
    many = 3000
    claims = [claim("c0", "sum", ["#costs.gpu"], stated="2 USD")]  # the first is wrong
    claims += [
        claim(f"c{n}", "sum", [f"#claims.c{n - 1}.stated", "1 USD"], stated=f"{n + 2} USD")
        for n in range(1, many)
    ]
    claims.append(claim("fits", "same", [f"#claims.c{many - 1}.stated"], stated=f">{many} USD"))
    base.session(more=as_yaml({"claims": claims, "costs": COSTS, "outcome": "x",
                                      "rests_on": {"outcome": ["#claims.fits"]}}))  # fmt: skip
    loaded = KnowledgeBase(base.root)
    assert len(loaded.sessions) == 1
    begun = time.process_time()
    found = audit(loaded)
    assert time.process_time() - begun < 5
    items = {item.claim: item for item in found.items}
    assert items["c0"].grade == "decision"
    assert found.counts["consistent"] == many


ODD = [
    "#label", "#costs", "#costs.gpu", "#bugs", "#bugs.b", "#bugs.b.status", "#started", "#ended",
    "#duration", "#claims.x", "#claims.x.stated", "#claims.other.says", "#measurements.m.s64.ms",
    "#measurements.m", "#environment", "#environment.torch", "#nowhere", "2020-01-01-x#duration",
    "2025-01-01T09:00", "5 min", "-5..5 min", "0", "0 USD", "1e59", "1e61", "-3", "~0", "<0 min",
    ">=0.0", "88 %", "3 lines", "x/y 2", "1 /", "1 USD/h", "5+ s",
]  # fmt: skip


@pytest.mark.slow
@given(
    st.sampled_from(get_args(How)),
    st.lists(
        st.one_of(
            st.sampled_from(ODD),
            st.builds(
                lambda how, of: {"how": how, "of": of},
                st.sampled_from(get_args(How)),
                st.lists(st.sampled_from(ODD), min_size=1, max_size=2),
            ),
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["5 min", ">0", "~0", "1..2 USD", "0.0 %", "1e40 ×", "2.2"]),
)
@settings(max_examples=300, deadline=None)
def test_no_derivation_breaks_the_audit(how: str, of: list[Any], stated: str) -> None:
    data = claim("x", how, of, **({} if how in IN_WORDS else {"stated": stated}))
    other = claim("other", "same", ["5 min"], stated="5 min")
    try:
        session = Session.model_validate(
            {
                "id": ID, "label": "N", "title": "T", "origin": "person", "status": "complete",
                "costs": COSTS, "bugs": [{"id": "b", "title": "B", "status": "fixed"}],
                "started": "2025-01-01T09:00Z", "measurements": [MEASURED],
                "environment": {"torch": "2.2.1"}, "claims": [data, other],
            }
        )  # fmt: skip
    except ValidationError:
        return
    loaded = KnowledgeBase(Path("/nowhere"))
    loaded.sessions = {ID: Entry("s.yaml", session, parse(b"id: x\nclaims: []\n", "s.yaml"))}
    loaded.patterns, loaded.runs = {}, []
    found = audit(loaded)
    answer = answer_of(found).as_json()
    assert sum(found.counts[grade] for grade in GRADES) == len(found.items)
    assert len(answer["findings"]) + len(answer["undetermined"]) == len(found.items)
    for item in found.items:
        assert item.grade != "undetermined" or found.computation(item).why
