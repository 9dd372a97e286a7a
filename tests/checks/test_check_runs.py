"""Rules on runs: names, figures, times, statuses and digests."""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest
from knowledge import KERNEL, LOOK, RUN, Knowledge, from_outside, line_of, sealed, validated

from kbtool.model.run import Run, digest_of, digest_of_record, taken_into
from kbtool.store.tree import parse_run


def add_run(base: Knowledge, name: str | None = None, **changes: object) -> Path:
    run = {**RUN, **changes}
    return base.write(f"sessions/2025-01-01-a/runs/{name or RUN['id']}.json", sealed(run))


def test_a_sound_run_and_a_resumed_attempt_have_no_findings(base):
    base.pattern(more=LOOK)
    base.session()
    add_run(base)
    add_run(base, f"{RUN['id']}.2", attempt=2)
    assert base.findings() == []


@pytest.mark.parametrize(
    ("name", "changes", "rules"),
    [
        ("x", {}, ["run"]),
        (None, {"attempt": 2}, ["run", "run"]),
        (None, {"session": "2025-01-02-b"}, ["run"]),
        (None, {"pattern": "P07"}, ["link"]),
        (None, {"kernel": "none"}, ["link"]),
        (None, {"status": "failed", "extra": 1}, ["run"]),
        (None, {"steps": []}, ["run"]),
        (None, {"steps": [{**RUN["steps"][0], "status": "failed"}]}, ["run"]),
        (None, {"id": "20250101T090000Z-other"}, ["run"]),
    ],
)  # fmt: skip
def test_a_run_that_contradicts_its_session_recipe_or_name_is_a_finding(base, name, changes, rules):
    base.pattern(more=LOOK)
    base.session()
    path = add_run(base, name, **changes)
    found = base.findings()
    assert [f.rule for f in found] == rules
    assert {f.path for f in found} == {path.relative_to(base.root).as_posix()}


def test_a_run_of_a_recipe_that_is_gone_is_no_finding(base):
    base.pattern(more=LOOK)
    base.session()
    add_run(base, None, recipe="gone")
    assert base.findings() == []


SHA = "ab" * 32


SAMPLES = [3.0, 1.0, 2.0, 10.0]


def timing(**changes: object) -> dict[str, object]:
    low, median, high = statistics.quantiles(SAMPLES, n=4, method="inclusive")
    figures = {"median_us": median, "low_us": low, "high_us": high}
    return {"samples_us": SAMPLES, "calls_per_sample": 1, **figures, **changes}


def steps(
    *,
    output: dict[str, object] | None = None,
    case: dict[str, object] | None = None,
    arm: dict[str, object] | None = None,
) -> list[dict[str, object]]:
    """A validation and a benchmark, sound but for the changes."""
    out = {"passed": True, "error": 1.0, "bound": 2.0, "torch_error": 1.0, **(output or {})}
    checked = {"case_set": "s", "name": "c", "case": {}, "passed": True, "repeatable": True,
               "outputs": {"out": out}, **(case or {})}  # fmt: skip
    timed = {"name": "c", "case": {}, "bytes": 1, "flops": 1, "rechecked": True,
             "arms": {"ours": timing(**(arm or {}))}}  # fmt: skip
    validation = {"type": "validation", "sha256": SHA, "device": "cpu", "seed": 1, "rule": "R",
                  "cases": [checked]}  # fmt: skip
    benchmark = {"type": "benchmark", "sha256": SHA, "device": "cpu", "threads": 1,
                 "subject": "ours", "baseline": "theirs", "read_gb_s": 1.0, "protocol": "P",
                 "cases": [timed]}  # fmt: skip
    return [
        {**RUN["steps"][0], "id": "v", "kind": "validate", "result": validation},
        {**RUN["steps"][0], "id": "b", "kind": "benchmark", "result": benchmark},
    ]


def test_a_run_with_figures_is_sound(base):
    base.pattern(more=LOOK)
    base.session()
    add_run(base, steps=steps())
    add_run(base, f"{RUN['id']}.2", attempt=2, steps=steps(arm={"median_us": 2.50004}))
    assert base.findings() == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arm": {"median_us": 2.4}}, "median_us is 2.4, but the samples give 2.5"),
        ({"arm": {"low_us": 1.0}}, "low_us is 1.0"),
        ({"arm": {"high_us": 3.0}}, "high_us is 3.0"),
        ({"arm": {"samples_us": [1.0]}}, "but the samples give 1.0"),
        ({"output": {"error": 3.0}}, "passed, although error 3.0 is over bound 2.0"),
        ({"output": {"passed": False}}, "did not pass, although error 1.0 is within bound 2.0"),
        ({"output": {"passed": False, "error": None}}, "passed, although output 'out' did not"),
        ({"case": {"repeatable": False}}, "a second call gave other bits"),
    ],
)
def test_figures_of_a_run_that_contradict_each_other_are_a_finding(base, changed, said):
    base.pattern(more=LOOK)
    base.session()
    add_run(base, steps=steps(**changed))
    (finding,) = base.findings()
    assert finding.rule == "run"
    assert said in finding.message


def test_a_benchmark_that_would_have_been_refused_is_found(base):
    base.pattern(more=LOOK)
    base.session()
    fast = {"median_us": 0.0025, "low_us": 0.00175, "high_us": 0.00475,
            "samples_us": [0.003, 0.001, 0.002, 0.01]}  # fmt: skip
    went = steps(arm=fast)
    (case,) = went[1]["result"]["cases"]
    case["bytes"] = 3  # 1.2 GB/s, beside a ceiling of 1.0
    add_run(base, steps=went)
    (finding,) = base.findings()
    assert finding.rule == "run"
    assert "step b, case 'c': 1.2 GB/s is over the measured read ceiling" in finding.message
    case["refused"] = "1.2 GB/s is over the measured read ceiling of 1.0 GB/s"
    add_run(base, steps=went)
    assert base.findings() == []
    case |= {"refused": None, "bytes": 1, "rechecked": False}
    add_run(base, steps=went)
    assert "the result was wrong after timing" in base.findings()[0].message


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ("ended: 2025-01-01T08:30Z", "was made after the session ended (2025-01-01T08:30Z)"),
        ("started: 2025-01-01T10:05+01:00", "was made before the session began (2025-01-01T10:05"),
        ("ended: 2025-01-01T09:00:30Z", "ended after the session did"),
        ("started: 2025-01-01T09:02Z", "began before the session did"),
        ("started: 2025-01-01T09:00:30Z\nended: 2025-01-01T09:01Z", None),  # clocks differ
        (
            "started: 2025-01-01T12:00\nended: 2025-01-01T13:00",
            None,
        ),  # in a zone that nobody states
        ("started: 2025-01-01T08:00Z", None),
        ("", None),
    ],
)
def test_a_run_lies_within_its_session(base, times, said):
    base.pattern(more=LOOK)
    base.session(more=f"{times}\n")
    add_run(base, ended="2025-01-01T09:01:40Z")
    for cached in (True, True, False):
        found = base.findings(cached=cached)
        assert [finding.rule for finding in found] == (["times"] if said else [])
        assert not said or said in found[0].message


def test_an_imported_run_may_lie_outside_the_time_of_its_session(base):
    base.pattern(more=LOOK)
    base.session(more="ended: 2025-01-01T08:30Z\n")
    moved = taken_into({**RUN, "session": "2025-01-02-b", "digest": digest_of_record(
        {**RUN, "session": "2025-01-02-b"})}, "2025-01-01-a")  # fmt: skip
    base.write(f"sessions/2025-01-01-a/runs/{RUN['id']}.json", json.dumps(moved))
    assert base.findings() == []


HUNG = {"status": "timeout", "result": None}


CRASHED = {"status": "failed", "result": None, "error": "segmentation fault"}


EARLIER = {"started": "2025-01-01T09:00:00Z"}


@pytest.mark.parametrize(
    ("runs", "fix", "wrong"),
    [
        ([], "", None),
        ([validated(0, passed=False), validated(1)], "", None),
        ([validated(0), validated(1, passed=False)], "", 1),
        ([validated(0), validated(0, passed=False, attempt=2, began=0)], "", 0),
        # Another case set that is right does not make up for one that is wrong.
        ([validated(0, passed=False), validated(1, case_set="t")], "", 0),
        ([validated(0, passed=False), validated(1, case_set="t"), validated(2)], "", None),
        # What was cut off says nothing, unless a case was wrong by then.
        ([validated(0, passed=False), validated(1, reached=False)], "", 0),
        ([validated(0), validated(1, passed=False, reached=False)], "", 1),
        ([validated(0, passed=False), validated(1, reached=False, attempt=2, began=0)], "", 0),
        # A verdict that was kept from an earlier attempt is as old as that.
        ([validated(0), validated(1, passed=False),
          validated(2, attempt=2, began=0, step=EARLIER)], "", 1),
        ([validated(0), validated(1, step=HUNG, status="timeout")], "", 1),
        ([validated(0), validated(1, step=CRASHED, status="failed")], "", 1),
        ([validated(0, step=CRASHED, status="failed"), validated(1)], "", None),
        # Each kernel has verdicts of its own.
        ([validated(0, passed=False, kernel="add"), validated(1, kernel="mul")], "", 0),
        ([validated(0, passed=False, kernel="add")], "place: kernels/mul/mul.cpp", None),
        ([validated(0, passed=False, kernel="add")], "place: kernels/add/add.cpp:7", 0),
        ([validated(0, passed=False, kernel="add")], "place: kernels/README.md", 0),
        ([validated(0), validated(1, passed=False)],
         "shown_by: ['20250101T090000Z-look#steps.check']", None),
        # A value that nobody validated shows nothing.
        ([validated(0, passed=False), from_outside()],
         "shown_by: ['20250101T090900Z-bench#steps.log']", 0),
        ([validated(0, passed=False), from_outside("import")],
         "shown_by: ['20250101T090900Z-bench#steps.import']", 0),
        ([validated(0), validated(1, passed=False), from_outside()],
         "shown_by: ['20250101T090900Z-bench#steps.log',"
         " '20250101T090000Z-look#steps.check']", None),
    ],
)  # fmt: skip
def test_a_fix_is_not_confirmed_while_the_newest_validation_fails(base, runs, fix, wrong):
    base.pattern(more=LOOK)
    bugs = "bugs: [{id: b, title: B, status: fixed}]\n"
    fixes = "\nfixes: [{bug: '#bugs.b', change: C, %s}]\n"
    names = [base.run(text) for text in runs]
    for said in ("confirmed: false", "note: N"):
        base.session(more=bugs + fixes % said)
        assert {f.rule for f in base.findings()} <= {"link"}  # of kernels that are not there
    path = base.session(more=bugs + fixes % f"confirmed: true, {fix}")
    for cached in (True, True, False):
        found = [f for f in base.findings(cached=cached) if f.rule == "unconfirmed"]
        assert [f.line for f in found] == [line_of(path, "fixes")] * (wrong is not None)
        assert all(f"({names[wrong]}) wrong; validate again" in f.message for f in found)


def git(root: Path, *arguments: str) -> str:
    config = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    done = subprocess.run(["git", *config, *arguments], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("above", ["", "base"])
def test_a_run_that_git_has_committed_stays_as_it_is(tmp_path, above):
    base = Knowledge(tmp_path / above)  # at the root of the repository, or in a folder of it
    base.pattern(more=LOOK)
    base.session()
    path = add_run(base)
    git(tmp_path, "init", "--quiet")
    assert base.findings() == []  # nothing is committed yet
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "one")
    path.touch()
    add_run(base, f"{RUN['id']}.2", attempt=2)
    assert base.findings(cached=True) == []
    add_run(base, ended="2025-01-01T09:00:03Z")
    for cached in (True, True, False):
        (finding,) = base.findings(cached=cached)
        assert (finding.path, finding.rule) == (path.relative_to(base.root).as_posix(), "run")
        assert "differs from the committed file" in finding.message
    path.write_text("{}")  # told once, by its own fault
    own = [f.message for f in base.findings() if f.path.endswith(path.name)]
    assert len(own) == 1 and own[0].startswith("id: Field required")


def steps_with(*statuses: str) -> list[dict[str, object]]:
    return [
        {**RUN["steps"][0], "id": f"s{n}", "status": status} for n, status in enumerate(statuses)
    ]


@pytest.mark.parametrize(
    ("status", "steps_", "more"),
    [
        ("failed", ["passed", "failed", "not-run"], {}),
        ("failed", ["passed", "refused", "not-run"], {}),
        ("unavailable", ["unavailable"], {}),
        ("timeout", ["timeout", "not-run"], {}),
        ("crashed", ["passed", "crashed"], {}),
        ("crashed", ["passed", "interrupted", "not-run"], {}),
        ("crashed", ["passed", "passed"], {}),
        ("interrupted", ["not-run", "not-run"], {}),
        ("interrupted", ["passed", "failed"], {"recovered": True}),
        ("interrupted", ["passed", "passed"], {"recovered": True}),
    ],
)
def test_possible_run_and_step_statuses_pass(base, status, steps_, more):
    base.pattern(more=LOOK)
    base.session()
    add_run(base, status=status, steps=steps_with(*steps_), **more)
    assert base.findings() == []


@pytest.mark.parametrize(
    ("status", "steps_", "more", "said"),
    [
        ("passed", ["passed", "failed"], {}, "its steps make it crashed or failed"),
        ("passed", ["passed", "not-run"], {}, "its steps make it crashed or interrupted"),
        ("failed", ["passed", "passed"], {}, "its steps make it crashed or interrupted or passed"),
        ("timeout", ["failed"], {}, "its steps make it crashed or failed"),
        ("failed", ["failed", "passed"], {}, "although step s0 before it did not pass"),
        ("passed", ["passed"], {"recovered": True}, "its steps make it interrupted"),
        ("passed", ["passed"], {"ended": "2025-01-01T08:59:59Z"}, "is before started"),
        ("passed", ["passed"], {"ended": "2025-01-01T09:00:02"}, "ended: "),
    ],
)
def test_impossible_run_and_step_statuses_are_a_finding(base, status, steps_, more, said):
    base.pattern(more=LOOK)
    base.session()
    add_run(base, status=status, steps=steps_with(*steps_), **more)
    (finding,) = base.findings()
    assert (finding.rule, said in finding.message) == ("run", True), finding


def test_a_run_that_was_edited_is_found_by_its_seal(base):
    base.pattern(more=LOOK)
    base.session()
    path = add_run(base)
    text = path.read_text()
    path.write_text(text.replace("09:00:02Z", "09:00:03Z"))
    (finding,) = base.findings()
    assert "its content does not match its digest" in finding.message
    path.write_text(json.dumps(json.loads(text), indent=3, sort_keys=True))  # says the same
    assert base.findings() == []
    record = json.loads(text)
    del record["digest"]
    path.write_text(json.dumps(record))
    (finding,) = base.findings()
    assert "has no digest" in finding.message


def test_the_seal_of_a_run_is_that_of_its_file():
    run = Run.model_validate({**RUN, "steps": steps()}).sealed()
    assert run.digest == digest_of(run)
    assert parse_run(run.model_dump_json(indent=1).encode(), "x") == run


def test_a_duplicate_key_in_a_run_is_a_finding(base):
    base.pattern(more=LOOK)
    base.session()
    path = add_run(base)
    path.write_text(path.read_text().replace('"status"', '"status": "failed", "status"', 1))
    (finding,) = base.findings()
    assert "'status' is twice" in finding.message


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_a_truncated_or_malformed_run_is_a_finding(base, content):
    base.session()
    base.write(f"sessions/2025-01-01-a/runs/{RUN['id']}.json", content)
    assert base.rules() == [("run", 1)]


BOUNDED = KERNEL.replace(
    "help: how many}",
    "help: how many, minimum: 1, maximum: 4096}\n  lengths: {type: ints, help: L, minimum: 0}",
)


def of_cases(*cases: dict[str, Any], **changes: Any) -> str:
    """A run of kernel ``add`` that validated these cases."""
    run = json.loads(validated(1))
    (one,) = run["steps"][0]["result"]["cases"]
    run["steps"][0]["result"]["cases"] = [
        {**one, "case": case, "name": f"c{number}"} for number, case in enumerate(cases)
    ]
    return sealed({**run, "kernel": "add", **changes})


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({"n": -1}, "step check, case 'c1': n is -1, below the minimum, 1, in the manifest"),
        ({"n": 100_000}, "step check, case 'c1': n is 100000, above the maximum, 4096, in"),
        ({"n": 2, "lengths": [4, -2]}, "step check, case 'c1': lengths is -2, below the"),
        ({"n": 1, "lengths": None, "other": -7, "flag": True}, None),
        ({"n": 4096, "lengths": []}, None),
    ],
)
def test_a_case_of_a_run_outside_the_bounds_of_its_kernel_is_a_finding(base, case, said):
    base.session()
    base.pattern(more=LOOK)
    base.kernel(BOUNDED)
    id_ = base.run(of_cases({"n": 8}, case, {"n": 9}))
    found = base.findings()
    assert [finding.rule for finding in found] == ["case-bounds"] * (said is not None)
    assert all(said in finding.message for finding in found)
    assert all(finding.path.endswith(f"{id_}.json") for finding in found)
    base.kernel(KERNEL)
    assert base.findings() == []


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({"n": 9, "part": 4}, "n is 9 and part is 4; part divides n in the manifest of kernel add"),
        ({"n": 8, "part": 0}, "n is 8 and part is 0; part divides n in"),
        ({"n": 8, "part": 16}, "n is 8 and part is 16; part divides n in"),
        ({"n": 8, "part": 2, "other": 3}, None),
        ({"n": 8, "part": None}, None),
        ({"n": 8}, None),
        ({"n": True, "part": 4}, None),
        ({"n": [9, 3], "part": 4}, None),
    ],
)
def test_a_case_of_a_run_whose_fields_do_not_divide_as_declared_is_a_finding(base, case, said):
    base.session()
    base.pattern(more=LOOK)
    part = "help: how many}\n  part: {type: int, help: P, divides: n}"
    base.kernel(KERNEL.replace("help: how many}", part))
    base.run(of_cases({"n": 8, "part": 4}, case, {"n": 0, "part": 0}))
    found = base.findings()
    assert [finding.rule for finding in found] == ["case-bounds"] * (said is not None)
    assert all(f"step check, case 'c1': {said}" in finding.message for finding in found)
    base.kernel(KERNEL)
    assert base.findings() == []


def test_the_smallest_case_of_a_minimisation_is_held_to_the_bounds_too(base):
    base.session()
    base.pattern(more=LOOK)
    base.kernel(BOUNDED)
    run = json.loads(of_cases({"n": -3}))
    (smallest,) = run["steps"][0]["result"].pop("cases")
    run["steps"][0]["result"] = {
        "type": "minimise", "sha256": "ab" * 32, "device": "cpu", "seed": 1, "draws": 1,
        "rule": "R", "cases": 1, "failing": [], "smallest": smallest, "probes": 1, "deaths": 0,
    }  # fmt: skip
    run["steps"][0]["kind"] = "minimise"
    base.run(sealed(run))
    (found,) = base.findings()
    assert "step check, case 'c0': n is -3, below the minimum, 1" in found.message


def test_bounds_that_were_tightened_hold_for_cached_runs_and_can_be_excused(base):
    base.session()
    base.pattern(more=LOOK)
    base.kernel(KERNEL)
    id_ = base.run(of_cases({"n": 5000}))
    assert base.findings(cached=True) == []
    base.kernel(BOUNDED)
    assert [finding.rule for finding in base.findings(cached=True)] == ["case-bounds"]
    base.write(
        "sessions/excuses.yaml",
        "# yaml-language-server: $schema=../schemas/excuses.json\nexcuses:\n"
        f"  - {{run: sessions/2025-01-01-a/runs/{id_}.json, rule: case-bounds, reason: older}}\n",
    )
    assert base.findings(cached=True) == []
    base.kernel(KERNEL)
    assert [finding.rule for finding in base.findings(cached=True)] == ["excuse"]
