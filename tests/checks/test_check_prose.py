"""Figures in prose that link to a record must agree with it."""

from __future__ import annotations

import copy
import json
import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from knowledge import LOOK, RUN, line_of, sealed

from kbtool.checks.prose_rules import judged
from kbtool.ledger.claims.audit import audit
from kbtool.model.address import AddressError, figure_of, resolve
from kbtool.model.prose import (
    Address,
    Operation,
    broken_links,
    expression,
    figure_links,
    plain,
    readable,
)
from kbtool.model.run import Run
from kbtool.store.tree import KnowledgeBase

RUN_ID = RUN["id"]
HASH = "0" * 64


def timing(median: float) -> dict[str, Any]:
    return {
        "samples_us": [median], "median_us": median, "low_us": median, "high_us": median,
        "calls_per_sample": 1, "host_us": 30.25,
    }  # fmt: skip


def case(name: str, **arms: float) -> dict[str, Any]:
    return {
        "name": name, "case": {}, "arms": {arm: timing(us) for arm, us in arms.items()},
        "bytes": 65536, "flops": 10, "rechecked": True, "workspace_bytes": {"ours": 7},
    }  # fmt: skip


def measured() -> dict[str, Any]:
    """A run that validated three cases and timed two."""
    cases = [{"case_set": "s", "name": f"n={n}", "case": {}, "passed": True} for n in range(3)]
    steps = [
        {"id": "check", "kind": "validate", "title": "V", "status": "passed", "seconds": 12.5,
         "result": {"type": "validation", "sha256": HASH, "device": "d", "seed": 1, "rule": "r",
                    "cases": cases}},
        {"id": "time", "kind": "benchmark", "title": "B", "status": "passed", "seconds": 3,
         "result": {"type": "benchmark", "sha256": HASH, "device": "d", "threads": 1,
                    "subject": "ours", "baseline": "theirs", "read_gb_s": 3108.33, "protocol": "p",
                    "cases": [case("B=1 S=128 causal=true", ours=5.563, theirs=20.4515),
                              case("B=1 S=512 causal=true", ours=5.7725, theirs=63.97375)]}},
    ]  # fmt: skip
    run = copy.deepcopy(RUN)
    run["steps"] = [
        {"expected_seconds": 1, "expected_from": "declared", **step} for step in steps
    ]  # fmt: skip
    return run


OURS = "steps.time.S=128.arms.ours"
COSTS = """\
costs:
  - {kind: gpu, amount: 0.35, basis: billed}
  - {kind: ai, amount: 1.00, basis: billed}
"""
THEIRS = "steps.time.S=128.arms.theirs"


@pytest.fixture
def known(base):
    base.pattern("P01", LOOK)
    base.session(more="duration: 90 min\n" + COSTS)
    base.write(f"sessions/2025-01-01-a/runs/{RUN_ID}.json", sealed(measured()))
    return base


@pytest.mark.parametrize(
    ("path", "figure"),
    [
        (OURS, "5.563 us"),
        ("steps.time.causal=true_S=512.arms.theirs", "63.97375 us"),
        (f"{OURS}.host_us", "30.25 us"),
        ("steps.time.S=128.bytes", "65536 B"),
        ("steps.time.S=128.workspace_bytes.ours", "7 B"),
        ("steps.time.read_gb_s", "3108.33 GB/s"),
        ("steps.check.cases", "3"),
        ("steps.check.cases_passed", "3"),
        ("steps.check.seconds", "12.5 s"),
        ("steps.check.n=2.passed", None),
        ("steps.time.causal=true.arms.ours", None),
        ("steps.time.S=256.arms.ours", None),
        ("machine.cpu", None),
        ("steps.check.sha256", None),
        ("steps.time.model_fields_set", None),
    ],
)
def test_a_path_into_a_run_gives_its_figure_or_an_error(path, figure):
    run = Run.model_validate(measured())
    if figure is None:
        with pytest.raises(AddressError):
            figure_of(resolve(run, path), path)
    else:
        assert figure_of(resolve(run, path), path).text == figure


def test_internal_fields_of_a_record_have_no_path():
    run = Run.model_validate(measured())
    for path in ("model_fields_set", "model_extra"):
        with pytest.raises(AddressError, match="there is no"):
            resolve(run, path)


@pytest.mark.parametrize(
    "text",
    [
        f"[5.563 µs](figure:{RUN_ID}#{OURS})",
        f"[5.56 µs](figure:{RUN_ID}#{OURS})",
        f"[5.6 us](figure:{RUN_ID}#{OURS})",
        f"[6 µs](figure:{RUN_ID}#{OURS})",
        f"[0.0056 ms](figure:{RUN_ID}#{OURS})",
        f"[5,563 ns](figure:{RUN_ID}#{OURS})",
        f"[**5.56 µs**](figure:{RUN_ID}#{OURS})",
        f"[3 of 3](x) [3 cases](figure:{RUN_ID}#steps.check.cases_passed)",
        f"[3.7×](figure:ratio({RUN_ID}#{THEIRS},#{OURS}))",
        f"[3.68 ×](figure:ratio({RUN_ID}#{THEIRS},{RUN_ID}#{OURS}))",
        f"[73 %](figure:saving({RUN_ID}#{OURS},#{THEIRS}))",
        f"[26.0 µs](figure:sum({RUN_ID}#{THEIRS},#{OURS}))",
        f"[<6 µs](figure:{RUN_ID}#{OURS})",
        f"[3.1 TB/s](figure:{RUN_ID}#steps.time.read_gb_s)",
        f"[11.8 GB/s](figure:ratio({RUN_ID}#steps.time.S=128.bytes,#{OURS}))",
        "[0.35 USD](figure:2025-01-01-a#costs.gpu) in [1.5 h](figure:2025-01-01-a#duration)",
        # A quotient of money may have been taken before it was rounded to cents.
        "[0.353×](figure:ratio(2025-01-01-a#costs.gpu,#costs.ai))",
        f"[5.56 µs][ours]\n\n[ours]: <figure:{RUN_ID}#{OURS}>",
        f"[5.56 µs]\n\n[5.56 µs]: figure:{RUN_ID}#{OURS}",
        f"`[9 µs](figure:{RUN_ID}#{OURS})`\n\n```md\n[9 µs](figure:NO#where)\n```\n",
        "<!-- [9 µs](figure:NO#where) -->",
    ],
)
def test_a_figure_that_agrees_with_its_record_passes(known, text):
    known.write("README.md", f"# Title\n\n{text}\n")
    assert known.findings() == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"[5.57 µs](figure:{RUN_ID}#{OURS})", "is 5.563 us"),
        (f"[5.5 µs](figure:{RUN_ID}#{OURS})", "the text says 5.5 µs"),
        (f"[5.56 ms](figure:{RUN_ID}#{OURS})", "the text says"),
        (f"[5.56](figure:{RUN_ID}#{OURS})", "a bare number"),
        (f"[5.56 USD](figure:{RUN_ID}#{OURS})", "USD"),
        (f"[4 cases](figure:{RUN_ID}#steps.check.cases_passed)", "is 3"),
        (f"[3.8×](figure:ratio({RUN_ID}#{THEIRS},#{OURS}))", "is 3.676"),
        (f"[5.56 µs](figure:{RUN_ID}#steps.time.S=128.arms.nobody)", "there is no 'nobody'"),
        (f"[5.56 µs](figure:{RUN_ID}#machine.cpu)", "is no figure"),
        ("[5.56 µs](figure:20250101T090000Z-gone#steps.a)", "there is no record"),
        ("[5.56 µs](figure:2025-01-01-z#duration)", "there is no record"),
        ("[5.56 µs](figure:#duration)", "names no record"),
        ("[5.56 µs](figure:duration)", "is no address"),
        (f"[fast](figure:{RUN_ID}#{OURS})", "is not a quantity"),
        (f"[5.56 µs](figure:twice({RUN_ID}#{OURS}))", "not an operation"),
        (f"[5.56 µs](figure:ratio({RUN_ID}#{OURS}))", "ratio takes 2 operands"),
        (f"[5.56 µs](figure:sum({RUN_ID}#{OURS},2025-01-01-a#costs.gpu))", "USD"),
        (f"[5.56 µs](figure:{RUN_ID} #{OURS})", "is no link to a figure"),
        (f"[5.56 µs](figure:ratio({RUN_ID}#{OURS})", "is no link to a figure"),
        (f"5 apples\n\n[ours]: <figure:{RUN_ID}#{OURS}>", "the text does not use"),
    ],
)
def test_a_figure_that_differs_from_its_record_is_a_finding(known, text, told):
    path = known.write("README.md", f"# Title\n\n{text}\n")
    (found,) = known.findings()
    assert (found.path, found.rule) == ("README.md", "figure")
    assert found.line == line_of(path, "figure:")
    assert told in found.message


def another(minute: int, *, busy: float = 0.0, harness: str | None = None) -> str:
    """The record of another run, and which problem it solves."""
    run = measured() | {"id": f"20250101T09{minute:02}00Z-look"}
    run["steps"][1]["result"]["others_busy"] = busy
    if busy:
        run |= {"status": "noisy"}
        run["steps"][1]["status"] = "noisy"
    if harness:
        run |= {"identity": {"problem": {"kernels/add/harness.py": harness * 64}}}
    return sealed({**run, "attempt": 1})


def test_a_time_of_a_noisy_run_is_no_figure_outside_of_sessions(known):
    run = known.run(another(1, busy=0.5))
    said = f"[5.56 µs](figure:{run}#{OURS}), [3 cases](figure:{run}#steps.check.cases_passed)"
    known.write("sessions/2025-01-01-a/notes.md", said)
    assert known.findings() == []
    known.write("README.md", said)
    (found,) = known.findings()
    assert (found.path, found.rule) == ("README.md", "figure")
    assert f"{run}#{OURS} proves nothing (noisy: other processes used 50%" in found.message
    assert "take the figure from a quiet run, or say it in words" in found.message


def logged(unit: str = "GB/s") -> str:
    """The record of a run that a script made."""
    metrics = [
        {"name": "rate", "unit": unit, "better": "higher", "values": [10, 12]},
        {"name": "energy", "unit": "J", "values": [3.5]},
    ]
    step = {**RUN["steps"][0], "id": "log", "kind": "log", "title": "bench.py",
            "result": {"type": "log", "metrics": metrics}}  # fmt: skip
    return sealed({**RUN, "id": "20250101T090900Z-bench", "recipe": None, "pattern": None,
                   "steps": [step], "attempt": 1})  # fmt: skip


@pytest.mark.parametrize(("unit", "said"), [("GB/s", "11 GB/s"), ("1/s", "11 /s"), ("1", "11")])
def test_a_logged_value_is_no_figure_outside_of_sessions(known, unit, said):
    run = known.run(logged(unit))
    text = f"[{said}](figure:{run}#steps.log.rate) of [3.5 J](figure:{run}#steps.log.energy)"
    record = Run.model_validate_json(logged(unit))
    assert (
        figure_of(resolve(record, "steps.log.rate"), "rate").unit == said.removeprefix("11").strip()
    )
    assert (
        figure_of(resolve(record, "steps.log.rate.values"), "values").low == 2
    )  # a list is its number of items
    known.write("sessions/2025-01-01-a/notes.md", text)
    assert known.findings() == []
    known.write("README.md", text)
    found = known.findings()
    assert [one.rule for one in found] == ["figure", "figure"]
    assert all("proves nothing (logged, not validated)" in one.message for one in found)


def test_a_claim_from_a_logged_value_is_undetermined(known):
    run = known.run(logged())
    known.session(
        more="claims:\n  - {id: c, says: S, stated: 11 GB/s, how: same,"
        f" of: ['{run}#steps.log.rate']}}\n"
    )
    (item,) = [item for item in audit(KnowledgeBase(known.root)).items if item.claim == "c"]
    assert item.grade == "undetermined" and item.why
    assert "proves nothing: logged, not validated" in item.why


def test_a_refused_time_and_one_of_a_wrong_peer_are_no_figures(known):
    run = json.loads(another(1))
    first, second = run["steps"][1]["result"]["cases"]
    first["refused"] = "arm ours: it keeps results between calls"
    second["peers"] = {"theirs": {"passed": False, "error": 2, "bound": 1, "torch_error": 1}}
    run["steps"][1]["status"] = run["status"] = "failed"
    id_ = known.run(sealed(run))
    larger = "steps.time.S=512.arms"
    known.write(
        "README.md",
        f"""\
[5.56 µs](figure:{id_}#{OURS})
[64.0 µs](figure:{id_}#{larger}.theirs)
[5.77 µs](figure:{id_}#{larger}.ours)
""",
    )
    found = [(finding.line, finding.message) for finding in known.findings()]
    assert [line for line, _ in found] == [1, 2]
    assert "proves nothing (refused: arm ours: it keeps results" in found[0][1]
    assert "proves nothing (the output of theirs is wrong)" in found[1][1]


def test_times_of_different_problems_are_put_into_no_figure(known):
    first, same, other = (
        known.run(another(minute, harness=harness)) for minute, harness in enumerate("aab", 1)
    )
    known.write("README.md", f"[3.7×](figure:ratio({first}#{THEIRS},{same}#{OURS}))")
    assert known.findings() == []
    known.write("README.md", f"[3.7×](figure:ratio({first}#{THEIRS},{RUN_ID}#{OURS}))")
    assert known.findings() == []  # older records do not say what they solve
    known.write("README.md", f"[3.7×](figure:ratio({first}#{THEIRS},{other}#{OURS}))")
    (found,) = known.findings()
    assert found.message.endswith(
        "these runs solve different problems (another harness, or a file that it reads), and their"
        " times are never compared"
    )


@pytest.mark.parametrize(
    ("busy", "harness", "grade", "told"),
    [
        (0.0, "a", "consistent", None),
        (0.0, "b", "undetermined", "are times of different problems"),
        (0.5, "a", "undetermined", "proves nothing: noisy: other processes used 50%"),
    ],
)
def test_a_claimed_speedup_needs_quiet_runs_of_one_problem(known, busy, harness, grade, told):
    first = known.run(another(1, harness="a"))
    second = known.run(another(2, busy=busy, harness=harness))
    known.session(
        more="claims:\n  - {id: c, says: S, stated: 3.68, how: ratio,"
        f" of: ['{first}#{THEIRS}', '{second}#{OURS}']}}\n"
    )
    (item,) = [item for item in audit(KnowledgeBase(known.root)).items if item.claim == "c"]
    assert item.grade == grade
    assert told is None or (item.why and told in item.why)


def test_figures_are_checked_in_every_kind_of_text(known):
    wrong = f"[9.9 µs](figure:{RUN_ID}#{OURS})"
    paths = [
        "README.md", "CHANGELOG.md", "docs/guide/a.md", "docs/adr/0001-b.md",
        "sessions/2025-01-01-a/notes.md", "kernels/add/README.md",
    ]  # fmt: skip
    known.kernel()
    for path in paths:
        known.write(path, wrong)
    known.session(more=f"outcome: >-\n  It takes\n  {wrong}.\nlessons:\n  - 'About {wrong}'\n")
    known.pattern("P01", f"{LOOK}tags: []\n# {wrong}\n".replace("Look\n", f"Look {wrong}\n", 1))
    found = [(finding.path, finding.line) for finding in known.findings()]
    assert found == sorted(
        [(path, 1) for path in paths]
        + [("sessions/2025-01-01-a/session.yaml", line) for line in (9, 11)]
        + [("patterns/P01.yaml", line_of(known.root / "patterns/P01.yaml", "title: Look"))]
    )


def test_a_record_may_leave_its_own_id_out(known):
    known.session(more="duration: 90 min\noutcome: Took [1.5 h](figure:#duration).\n")
    text = "Took [90 min](figure:#duration).\nTook [2.5 h](figure:#duration).\n"
    known.write("sessions/2025-01-01-a/notes.md", text)
    assert [(f.path, f.rule, f.line) for f in known.findings()] == [
        ("sessions/2025-01-01-a/notes.md", "figure", 2)
    ]


def test_a_claim_may_derive_from_a_run(known):
    claim = "claims:\n  - {{id: c, says: S, stated: 5.6 us, how: same, of: ['{}#{}']}}\n"
    known.session(more=claim.format(RUN_ID, OURS))
    assert known.findings() == []
    known.session(more=claim.format(RUN_ID, "steps.time.S=1.arms.ours"))
    assert [finding.rule for finding in known.findings()] == ["link"]
    known.session(more=claim.format("20250101T090000Z-gone", OURS))
    assert [finding.rule for finding in known.findings()] == ["link"]


def test_a_figure_of_a_resumed_run_comes_from_its_last_attempt(known):
    resumed = measured() | {"attempt": 2}
    resumed["steps"][0]["seconds"] = 20.5
    known.write(f"sessions/2025-01-01-a/runs/{RUN_ID}.2.json", sealed(resumed))
    known.write("README.md", f"[20.5 s](figure:{RUN_ID}#steps.check.seconds)")
    assert known.findings() == []


@pytest.mark.slow
def test_a_cached_result_is_dropped_when_the_text_or_the_record_changes(known):
    """What the record says and what was judged are kept; neither outlives its file."""
    text = f"[1.5 h](figure:2025-01-01-a#duration)\n[5.56 µs](figure:{RUN_ID}#{OURS})\n"
    known.write("README.md", text)
    time.sleep(2.1)
    assert known.findings(cached=True) == known.findings(cached=True) == []
    known.session(more="duration: 95 min\n")
    assert [f.line for f in known.findings(cached=True)] == [1]
    known.session(more="duration: 90 min\n")
    assert known.findings(cached=True) == []
    known.write("README.md", text.replace("5.56", "5.5"))
    assert [f.line for f in known.findings(cached=True)] == [2]


@pytest.mark.slow
def test_nothing_is_loaded_where_nothing_changed(known, kbtool):
    known.write("README.md", f"[5.56 µs](figure:{RUN_ID}#{OURS})\n")
    time.sleep(2.1)
    assert kbtool("check", root=known.root).code == 0
    done = kbtool("check", root=known.root, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.code == 0
    assert "kbtool.checks.rules" in done.err
    assert "pydantic" not in done.err


def test_a_performance_figure_without_a_link_is_a_finding_in_readmes_and_the_guide(known):
    known.kernel()
    bare = "It takes 5.6 µs after [1.5 h](figure:2025-01-01-a#duration).\n"
    for path in (
        "README.md", "kernels/add/README.md", "kernels/add/DESIGN.md", "docs/guide/deep/a.md",
    ):  # fmt: skip
        known.write(path, bare)
    for path in ("docs/adr/0001-b.md", "CHANGELOG.md", "sessions/2025-01-01-a/notes.md"):
        known.write(path, bare)
    assert [(f.path, f.rule) for f in known.findings()] == [
        ("README.md", "figure"),
        ("docs/guide/deep/a.md", "figure"),
        ("kernels/add/DESIGN.md", "figure"),
        ("kernels/add/README.md", "figure"),
    ]


@pytest.mark.parametrize(
    "text",
    ["5.6 µs", "5 μs", "12us", "1,234 ms", "40 GB/s", "3.35 TB/s", "989 TFLOP/s", "60 TFLOPS",
     "3.7×", "10 × faster", "**2×**", "3–5 ms", "~5 ms", "| 5.6 µs |", "(5.6 µs)", "S=4: 2×"],
)  # fmt: skip
def test_a_performance_figure_without_a_link_is_a_finding(known, text):
    known.write("README.md", f"Well\n\nthat is {text}, so.\n")
    assert [(f.rule, f.line) for f in known.findings()] == [("figure", 3)]


@pytest.mark.parametrize(
    "text",
    ["16×16", "2 × 3 tiles", "64 × 64", "3 × (2 + 1)", "5 GB", "24 GB of memory", "10 %", "8 warps",
     "sm_90a", "P08", "12 min", "30 s", "`5.6 µs`", "$2× y$", "$$\n5 ms\n$$", "B=1×", "0.5.6 ms",
     "[5.6 µs](https://example.org/data-sheet)", "[5.6 µs][sheet]", "![5 ms](plot.png)",
     "<!-- 5.6 µs -->", "\n```\n5.6 µs\n```"],
)  # fmt: skip
def test_text_that_is_no_performance_figure_needs_no_link(known, text):
    known.write("README.md", f"Well, {text}\n")
    assert known.findings() == []


def test_reference_expressions_are_parsed():
    assert expression("R#a.b", None) == Address("R", "a.b")
    assert expression("#a", "O") == Address("O", "a")
    assert expression("saving(sum(#a,R#b),#c)", "O") == Operation(
        "saving", (Operation("sum", (Address("O", "a"), Address("R", "b"))), Address("R", "c"))
    )
    for wrong in ("a", "#", "R#", "sum()", "sum(a)", ""):
        with pytest.raises(ValueError, match="address"):
            expression(wrong, "O")


def test_plain_text_drops_figure_links_and_their_definitions():
    text = "a [1 ms](figure:R#a) b [2 ms][x]\n\n[x]: <figure:R#b>\n"
    assert plain(text) == "a 1 ms b 2 ms\n\n\n"
    assert plain("[a](b) [c]") == "[a](b) [c]"


@given(st.text(alphabet="[]()<>#:`~!- \nafigure,R.", max_size=80))
def test_any_text_can_be_read(text):
    blanked = readable(text)
    assert len(blanked) == len(text)
    assert blanked.count("\n") == text.count("\n")
    for link in figure_links(blanked):
        assert blanked[link.start] == "["
    list(broken_links(blanked))
    plain(text)


@given(st.integers(1, 10**9), st.integers(0, 6), st.integers(1, 6))
def test_a_figure_rounded_to_any_digits_agrees_and_its_neighbours_do_not(number, places, digits):
    exact = Decimal(number).scaleb(-places)
    unit = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = (exact / unit).quantize(Decimal(1)) * unit
    if unit > 1:
        return  # nobody can tell whether the noughts of 1200 are digits: they are taken to be
    assert judged(f"{rounded:f} µs", "R#a", None, [f"{exact:f} us"]) == ""
    for other in (rounded + 2 * unit, rounded - 2 * unit):
        if other > 0 and Decimal(1).scaleb(-places) <= unit:
            assert "the text says" in judged(f"{other:f} µs", "R#a", None, [f"{exact:f} us"])


def test_a_run_that_prose_quotes_is_loaded_once(known, monkeypatch):
    known.write("sessions/2025-01-01-a/notes.md", f"[5.563 µs](figure:{RUN_ID}#{OURS})\n")
    loaded = []
    real = Run.model_validate_json

    def validate(raw):
        loaded.append(len(raw))
        return real(raw)

    monkeypatch.setattr(Run, "model_validate_json", validate)
    assert known.findings(jobs=1) == []
    assert len(loaded) == 1
