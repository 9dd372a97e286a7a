"""Rules between records."""

from __future__ import annotations

import fcntl
import importlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from knowledge import KERNEL, LOOK, RECIPE, RUN, Knowledge, line_of, sealed, validated

from kbtool.model.run import Run, digest_of, digest_of_record, taken_into
from kbtool.store.tree import parse_run


def add_run(base: Knowledge, name: str | None = None, **changes: object) -> Path:
    run = {**RUN, **changes}
    return base.write(f"sessions/2025-01-01-a/runs/{name or RUN['id']}.json", sealed(run))


def test_links_to_records_that_are_not_there(base):
    base.pattern(
        more="supersedes:\n  - pattern: P02\n    since: 2025-01-01-x\n"
        "related: [P03]\nstated_in: [2025-01-01-x]\n"
    )
    path = base.session(
        more="""\
follows: 2025-01-01-x
evidence:
  - {pattern: P09, verdict: applied, note: N}
bugs:
  - {id: a, title: T, status: open, recurrence_of: "2025-01-01-y#bugs.a"}
claims:
  - {id: c, says: S, stated: 1 h, how: same, of: ["2025-01-01-z#duration"]}
"""
    )
    pattern = base.root / "patterns/P01.yaml"
    assert [(f.path.split("/")[0], f.rule, f.line) for f in base.findings()] == [
        ("patterns", "link", line_of(pattern, "P02")),
        ("patterns", "link", line_of(pattern, "since")),
        ("patterns", "link", line_of(pattern, "related")),
        ("patterns", "link", line_of(pattern, "stated_in")),
        ("sessions", "link", line_of(path, "follows")),
        ("sessions", "link", line_of(path, "P09")),
        ("sessions", "link", line_of(path, "recurrence_of")),
        ("sessions", "link", line_of(path, "claims") + 1),
    ]


def test_links_into_other_records_are_followed_to_the_figure(base):
    base.session(more="duration: 5 min\nbugs: [{id: tail, title: T, status: open}]\n")
    path = base.session(
        "2025-01-02-b",
        """\
fixes:
  - {bug: 2025-01-01-a#bugs.tail, change: C}
  - {bug: 2025-01-01-a#bugs.head, change: C}
  - {bug: 2025-01-01-a#duration, change: C}
claims:
  - {id: a, says: S, stated: 5 min, how: same, of: [2025-01-01-a#duration]}
  - {id: b, says: S, stated: 5 min, how: same, of: [2025-01-01-a#durations]}
""",
    )
    for _ in range(2):  # the second time, answers come from the cache
        found = base.findings(cached=True)
        assert [(f.rule, f.line) for f in found] == [
            ("link", line_of(path, "bugs.head")),
            ("link", line_of(path, "#duration, change")),
            ("link", line_of(path, "#durations")),
        ]
    assert "there is no 'head'" in found[0].message
    assert "is not a bug" in found[1].message


def test_a_finding_for_a_link_by_label_names_the_id(base):
    base.session(more="bugs: [{id: tail, title: T, status: open}]\n", label="N+2")
    path = base.session(
        "2025-01-02-b",
        "follows: N+2\nfixes: [{bug: N+2#bugs.tail, change: C}]\n"
        "claims: [{id: c, says: S, stated: 1, how: count, of: ['N+2#bugs', 'N+3#bugs']}]\n",
    )
    for _ in range(2):  # the second time, from the cache
        said = {f.line: f.message for f in base.findings(cached=True) if f.rule == "link"}
        assert said == {
            line_of(path, "follows"): "N+2 is the label of 2025-01-01-a; write 2025-01-01-a",
            line_of(path, "fixes"): (
                "N+2 is the label of 2025-01-01-a; write 2025-01-01-a#bugs.tail"
            ),
            line_of(path, "claims"): "N+2 is the label of 2025-01-01-a; write 2025-01-01-a#bugs",
        }


def test_links_to_a_record_that_does_not_load_add_no_finding(base):
    base.session(more="nonsense: 1\n")
    base.session("2025-01-02-b", "follows: 2025-01-01-a\n")
    assert [finding.rule for finding in base.findings()] == ["schema"]


def test_sessions_do_not_follow_in_a_circle(base):
    own = base.session("2025-01-01-a", "follows: 2025-01-01-a\n")
    base.session("2025-01-02-b", "follows: 2025-01-04-d\n")
    base.session("2025-01-03-c", "follows: 2025-01-02-b\n")
    base.session("2025-01-04-d", "follows: 2025-01-03-c\n")
    base.session("2025-01-05-e", "follows: 2025-01-04-d\n")
    found = base.findings()
    assert [finding.rule for finding in found] == ["cycle", "cycle"]
    assert found[0].line == line_of(own, "follows")
    round_ = "2025-01-02-b → 2025-01-04-d → 2025-01-03-c → 2025-01-02-b"
    assert found[1].message.endswith(round_)


def test_patterns_do_not_supersede_in_a_circle(base):
    base.session()
    older = "  - {{pattern: {}, since: 2025-01-01-a}}\n"
    base.pattern("P01", "supersedes:\n" + older.format("P02"))
    base.pattern("P02", "supersedes:\n" + older.format("P03") + older.format("P01"))
    base.pattern("P03")
    assert [(f.path, f.rule) for f in base.findings()] == [("patterns/P01.yaml", "cycle")]


def test_bugs_do_not_recur_in_a_circle(base):
    bug = 'bugs: [{{id: {}, title: T, status: open, recurrence_of: "{}"}}]\n'
    base.session("2025-01-01-a", bug.format("x", "2025-01-02-b#bugs.y"))
    base.session("2025-01-02-b", bug.format("y", "2025-01-01-a#bugs.x"))
    base.session("2025-01-03-c", bug.format("z", "#bugs.z"))
    assert [(f.path[9:21], f.rule) for f in base.findings()] == [
        ("2025-01-01-a", "cycle"),
        ("2025-01-03-c", "cycle"),
    ]


def test_a_long_line_of_sessions_is_no_circle_and_no_recursion(base):
    before = ""
    for number in range(1200):
        base.session(f"2025-01-01-s{number:04}", before)
        before = f"follows: 2025-01-01-s{number:04}\n"
    assert base.findings() == []


def test_ids_and_recipe_names_are_unique(base):
    base.pattern("P01", LOOK)
    base.pattern("P02", LOOK)
    base.pattern("P03").rename(base.root / "patterns/P03-a.yaml")
    base.pattern("P03").rename(base.root / "patterns/P03-b.yaml")
    second = base.root / "patterns/P02.yaml"
    assert [(f.path, f.rule, f.line) for f in base.findings()] == [
        ("patterns/P02.yaml", "unique", line_of(second, "name: look")),
        ("patterns/P03-b.yaml", "unique", 2),
    ]


def test_a_label_belongs_to_one_session(base):
    base.session("2025-01-01-a", label="N+7")
    second = base.session("2025-01-02-b", label="N+7")
    base.session("2025-01-03-c", label="N+7A")
    found = base.findings()
    assert [(f.path, f.rule) for f in found] == [("sessions/2025-01-02-b/session.yaml", "unique")]
    assert found[0].line == line_of(second, "label")
    assert "2025-01-01-a has the label 'N+7'" in found[0].message


def test_default_labels_may_repeat(base):
    base.session("2025-01-01-look", label="look")
    base.session("2025-01-02-look", label="look")
    base.session("undated-look", label="look")
    assert base.findings() == []
    base.session("2025-01-03-c", label="look")
    assert [f.path for f in base.findings()] == [
        "sessions/2025-01-03-c/session.yaml",
        "sessions/undated-look/session.yaml",
    ]


def test_claims_do_not_derive_from_themselves(base):
    claim = '  - {{id: {}, says: S, stated: 1 h, how: same, of: ["{}"]}}\n'
    own = base.session("2025-01-01-a", "claims:\n" + claim.format("x", "#claims.x.stated"))
    base.session(
        "2025-01-02-b",
        "duration: 1 h\nclaims:\n"
        + claim.format("x", "#y")  # lists are searched: this is #claims.y
        + claim.format("y", "2025-01-03-c#claims.z.dot.stated")
        + claim.format("fine", "#claims.x"),
    )
    nested = (
        "claims: [{id: z.dot, says: S, stated: 1 h, how: sum, of: [1 h, {how: sum,"
        ' of: ["2025-01-02-b#claims.x"]}]}, {id: z, says: S, stated: 1 h, how: same,'
        ' of: ["2025-01-02-b#duration"]}]\n'
    )
    base.session("2025-01-03-c", nested)
    for _ in range(2):
        found = base.findings(cached=True)
        assert [(f.path[9:21], f.rule) for f in found] == [
            ("2025-01-01-a", "cycle"),
            ("2025-01-02-b", "cycle"),
        ]
    assert found[0].line == line_of(own, "id: x")
    round_ = "2025-01-02-b#claims.x → 2025-01-02-b#claims.y → 2025-01-03-c#claims.z.dot →"
    assert round_ in found[1].message


def test_a_breach_of_the_schema_hides_no_broken_link(base):
    path = base.session(
        more="""\
nonsense: 1
follows: 2025-01-01-x
evidence:
  - {pattern: P09, verdict: guessed, note: N}
bugs:
  - {id: tail, title: T, status: open, recurrence_of: "2025-01-01-y#bugs.a"}
fixes:
  - {bug: "#bugs.tail", change: C}
  - {bug: "#bugs.head", change: C}
  - {bug: "#costs.gpu", change: C}
  - {bug: "no reference", change: C}
claims:
  - {id: c, says: S, how: same, of: ["2025-01-01-z#duration", "#outcome", "#nowhere"]}
"""
    )
    found = base.findings()
    assert [(f.line, f.rule) for f in found if f.rule == "link"] == [
        (line_of(path, "follows"), "link"),
        (line_of(path, "P09"), "link"),
        (line_of(path, "recurrence_of"), "link"),
        (line_of(path, "bugs.head"), "link"),
        (line_of(path, "costs.gpu"), "link"),
        (line_of(path, "id: c"), "link"),
        (line_of(path, "id: c"), "link"),
    ]
    assert [f.line for f in found if f.rule == "schema"] == [
        line_of(path, "nonsense"),
        line_of(path, "P09"),
        line_of(path, "no reference"),
        line_of(path, "id: c"),
    ]


def test_a_list_that_is_broken_itself_makes_no_broken_links(base):
    path = base.session(
        more="bugs: [{idd: tail, title: T, status: open}]\n"
        'fixes: [{bug: "#bugs.tail", change: C}]\n'
    )
    assert {f.rule for f in base.findings()} == {"schema"}
    path.write_text(path.read_text().replace("bugs: [", "bugs: x\nlessons: ["))
    assert {f.rule for f in base.findings()} == {"schema"}


@pytest.mark.parametrize("damage", ["nonsense: 1\n", "nonsense: [\n"])
def test_a_pattern_that_does_not_load_is_one_finding(base, damage):
    base.pattern("P02", damage).rename(base.root / "patterns/P02-a-lesson.yaml")
    base.write("patterns/P03-torn.yaml", b"\xff")
    base.pattern("P04", damage).rename(base.root / "patterns/lesson.yaml")
    base.kernel(KERNEL + damage)
    base.pattern(more="related: [P02, P03, P04]\n" + RECIPE)
    evidence = "evidence: [{pattern: P02, verdict: applied, note: N}]\n"
    base.session(more=evidence + "follows: 2025-01-02-b\n")
    base.session("2025-01-02-b", damage)
    by_file = {f.path: f.rule for f in base.findings()}
    told = "yaml" if "[" in damage else "schema"
    assert by_file.pop("patterns/lesson.yaml") in {told, "id"}
    assert by_file == {
        "patterns/P02-a-lesson.yaml": told,
        "patterns/P03-torn.yaml": "encoding",
        "kernels/add/kernel.yaml": told,
        "sessions/2025-01-02-b/session.yaml": told,
    }


TOOL = "started: 2025-01-01T09:00Z\n"


@pytest.mark.parametrize("status", ["complete", "terminated"])
def test_a_session_that_is_over_has_an_end(base, status):
    path = base.session(more=TOOL)
    assert base.findings() == []  # by hand one may leave it out
    path.write_text(path.read_text().replace("person", "tool").replace("complete", status))
    assert base.rules() == [("times", line_of(path, "started"))]
    journal = base.write("sessions/2025-01-01-a/runs/.20250101T090000Z-look.journal", "{}\n")
    with journal.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # From another process, as a lock of one's own is none.
        assert base.findings(cached=True) == []
    journal.unlink()
    path.write_text(path.read_text() + "ended: 2025-01-01T10:00Z\n")
    assert base.findings() == []


def test_a_recipe_names_a_kernel_its_targets_and_case_sets(base):
    path = base.pattern(more=RECIPE)
    assert base.rules() == [("recipe", line_of(path, "kernel:"))]
    base.kernel()
    assert base.findings() == []
    path.write_text(
        path.read_text()
        .replace("case_sets: small", "case_sets: 'small, huge'")
        .replace("kind: build,", "kind: build, target: cuda,")
    )
    assert base.rules() == [
        ("recipe", line_of(path, "cuda")),
        ("recipe", line_of(path, "huge")),
    ]


@pytest.mark.parametrize(
    "step",
    [
        "kind: tune, variants: all, case_sets: huge",
        "kind: mutants, case_sets: small, profile: 'small, huge'",
        "kind: profile, case_set: huge",
    ],
)
def test_whatever_step_names_a_case_set_is_held_to_the_manifest(base, step):
    base.kernel()
    more = f"      - {{id: more, title: M, expected: 1 s, timeout: 1 s, {step}}}\n"
    path = base.pattern(more=RECIPE + more)
    assert base.rules() == [("recipe", line_of(path, "huge"))]


def test_the_choices_of_a_parameter_are_held_to_the_manifest_too(base):
    base.kernel()
    choice = (
        "    parameters:\n      cases: {type: choice, default: small, choices: [small, none],"
        " help: H}\n"
    )
    more = RECIPE.replace("    steps:", choice + "    steps:").replace(
        "case_sets: small", "case_sets: '${cases}'"
    )
    path = base.pattern(more=more)
    assert base.rules() == [("recipe", line_of(path, "case_sets"))]


@pytest.mark.parametrize(
    "path", ["..", "../..", "/etc", "out/../../x", "link/inside", "~/x", "a\\b"]
)
def test_a_command_step_that_leaves_the_tree_is_a_finding(base, path, tmp_path):
    (base.root / "link").symlink_to(tmp_path)
    step = "      - {{id: x, kind: command, title: X, expected: 1 s, timeout: 9 s, run: [a], {}}}\n"
    head = "recipes:\n  - name: x\n    title: X\n    steps:\n"
    for key, value in (("cwd", f"'{path}'"), ("produces", f"['{path}']")):
        record = base.pattern(more=head + step.format(f"{key}: {value}"))
        assert base.rules() == [("path", line_of(record, "kind: command"))], key
    base.pattern(more=head + step.format("cwd: sub/dir, produces: [out/x.json]"))
    assert base.findings() == []


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("none.cpp", "manifest"),
        ("../../patterns/P01.yaml", "path"),
        ("/etc/passwd", "path"),
        ("link.cpp", "path"),
        ("folder", "manifest"),
    ],
)
def test_a_manifest_names_files_in_its_own_folder(base, source, rule):
    base.pattern()
    path = base.kernel(KERNEL.replace("add.cpp", source))
    (path.parent / "folder").mkdir()
    (path.parent / "link.cpp").symlink_to(base.root / "patterns/P01.yaml")
    assert base.rules() == [(rule, line_of(path, "cpu:"))]


def test_a_source_of_one_architecture_is_held_to_the_same_rules(base):
    cuda = "  cuda: {sources: [add.cpp], architectures: [sm_80, sm_90a],\n    %s}\ncase_fields:"
    listed = cuda % "architecture_sources: {sm_90a: [%s]}"
    path = base.kernel(KERNEL.replace("case_fields:", listed % "none.cu"))
    assert base.rules() == [("manifest", line_of(path, "architecture_sources"))]
    base.kernel(KERNEL.replace("case_fields:", listed % "add.cpp"))
    assert "among sources too" in base.findings()[0].message
    base.kernel(KERNEL.replace("case_fields:", cuda % "architecture_sources: {sm_70: [none.cu]}"))
    assert "none of architectures; there is sm_80, sm_90a" in base.findings()[0].message


def test_a_specialisation_leaves_out_sources_that_there_are(base):
    part = (
        "  cpu: {sources: [add.cpp], specialisations: {one: {without: [%s], only: {%s: ['1']}}}}\n"
    )
    cpu = "  cpu: {sources: [add.cpp]}\n"

    def message(without: str, field: str) -> str:
        base.kernel(KERNEL.replace(cpu, part % (without, field)))
        return base.findings()[0].message

    assert "specialisations.one: no source is named like 'b*.cpp'" in message("b*.cpp", "n")
    assert "specialisations.one: no source is left" in message("a*.cpp", "n")
    two = part.replace("[add.cpp]", "[add.cpp, b.cpp]")
    base.write("kernels/add/b.cpp", "")
    base.kernel(KERNEL.replace(cpu, two % ("b.cpp", "m")))
    assert "specialisations.one.only: 'm' is no case field" in base.findings()[0].message


def test_a_manifest_lists_what_its_files_include_target_by_target(base):
    one = "  cpu: {sources: [add.cpp]}\n"
    two = one + "  other:\n    sources: [add.cpp]\n    headers: [./sub/a.h, b.h]\n"
    path = base.kernel(KERNEL.replace(one, two))
    source = '#include <vector>\n#include MACRO\n#include "sub/a.h"\n'
    base.write("kernels/add/add.cpp", source)
    base.write("kernels/add/sub/a.h", '#include "../b.h"\n')
    base.write("kernels/add/b.h", "")
    assert base.rules() == [("manifest", line_of(path, "cpu:"))]
    assert base.findings()[0].message == (
        "add.cpp includes sub/a.h, which target cpu does not list; add it to the target's headers"
    )
    base.kernel(KERNEL.replace(one, two.replace(", b.h", "")))
    base.write("kernels/add/add.cpp", source)
    assert [(f.line, f.message.partition(",")[0]) for f in base.findings()] == [
        (line_of(path, "cpu:"), "add.cpp includes sub/a.h"),
        (line_of(path, "headers"), "sub/a.h includes b.h"),
    ]


def test_a_new_include_is_found_although_no_record_changed(base):
    base.kernel()
    base.write("kernels/add/add.h", "")
    assert base.findings(cached=True) == []
    base.write("kernels/add/add.cpp", '#include "add.h"\n')
    assert [f.rule for f in base.findings(cached=True)] == ["manifest"]


def test_a_file_that_vanishes_is_found_although_no_record_changed(base):
    base.kernel()
    assert base.findings(cached=True) == []
    (base.root / "kernels/add/add.cpp").unlink()
    assert [f.rule for f in base.findings(cached=True)] == ["manifest"]


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


def test_stray_files_in_a_session_are_findings(base):
    base.session()
    base.write("sessions/2025-01-01-a/runs/README.txt", "x")
    base.write("sessions/2025-01-01-a/runs/sub/x.json", "x")
    base.write("sessions/2025-01-01-a/plot.png", b"\x89PNG")
    base.write("sessions/2025-01-01-a/files/plot.png", b"\x89PNG")  # an attachment is welcome
    base.write("sessions/2025-01-01-a/data/x.csv", "x")
    base.write("sessions/2025-01-01-a/_draft.md", "x")
    base.write("sessions/2025-01-05-e/files", "x")
    base.write("sessions/2025-01-02-b/notes.md", "# no record\n")
    base.write("sessions/2025-01-03-c/session.yml", "id: x\n")
    base.write("sessions/2025-01-04-d/runs", "x")
    base.write("sessions/README.md", "x")
    base.write("sessions/stray.yaml", "x")
    base.write("patterns/P01.yml", "x")
    base.write("patterns/.hidden", "x")
    assert [(f.path, f.rule) for f in base.findings()] == [
        ("patterns/P01.yml", "stray"),
        ("sessions/2025-01-01-a/_draft.md", "stray"),
        ("sessions/2025-01-01-a/data", "stray"),
        ("sessions/2025-01-01-a/plot.png", "stray"),
        ("sessions/2025-01-01-a/runs/README.txt", "stray"),
        ("sessions/2025-01-01-a/runs/sub", "stray"),
        ("sessions/2025-01-02-b/session.yaml", "missing"),
        ("sessions/2025-01-03-c/session.yaml", "missing"),
        ("sessions/2025-01-03-c/session.yml", "stray"),
        ("sessions/2025-01-04-d/runs", "stray"),
        ("sessions/2025-01-04-d/session.yaml", "missing"),
        ("sessions/2025-01-05-e/files", "stray"),
        ("sessions/2025-01-05-e/session.yaml", "missing"),
        ("sessions/stray.yaml", "stray"),
    ]


def test_a_journal_is_a_finding_once_its_writer_is_dead(base):
    base.session()
    path = base.write("sessions/2025-01-01-a/runs/.20250101T090000Z-look.journal", "{}\n")
    assert [(f.rule, f.line) for f in base.findings()] == [("unfinished-run", 1)]
    held = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'rb');"
        "fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", held, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "held\n"
        assert base.findings() == []
        writer.kill()
    assert [f.rule for f in base.findings(cached=True)] == ["unfinished-run"]


def broken(*arguments):
    """A rule that fails."""
    raise ZeroDivisionError("no figure")
    yield


@pytest.mark.parametrize(
    "where", ["examine.RECORD_RULES", "examine.TEXT_RULES", "check.TREE_RULES"]
)
def test_a_rule_that_fails_is_named_and_the_rest_is_checked(base, monkeypatch, where):
    base.session(more="follows: 2025-01-09-z\n")
    sound = base.findings()
    assert [finding.rule for finding in sound] == ["link"]
    module, _, name = where.rpartition(".")
    rules = getattr(importlib.import_module(f"kbtool.checks.{module}"), name)
    monkeypatch.setattr(f"kbtool.checks.{where}", (broken, *rules))
    found = base.findings()
    assert set(sound) < set(found)
    (fault,) = set(found) - set(sound)
    assert fault.rule == "fault"
    assert fault.path in {"sessions/2025-01-01-a/session.yaml", "."}
    assert "rule broken fails on it: ZeroDivisionError: no figure" in fault.message


def test_a_validator_that_fails_is_a_finding_of_its_record(base, monkeypatch):
    base.session()
    base.session("2025-01-02-b", "outcome: x\n")

    def fail(data):
        raise OverflowError("too large")

    monkeypatch.setattr("kbtool.checks.examine.Session.model_validate", fail)
    rules = {(finding.path, finding.rule) for finding in base.findings()}
    assert rules == {
        (f"sessions/{name}/session.yaml", "fault") for name in ("2025-01-01-a", "2025-01-02-b")
    }
