"""Rules between records."""

from __future__ import annotations

import fcntl
import importlib
import shutil
import subprocess
import sys

import pytest
from knowledge import KERNEL, LOOK, RECIPE, line_of


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


def test_a_pattern_comes_from_bugs_and_decisions_that_are_there(base):
    base.session(more="bugs: [{id: a, title: T, status: open}]\noutcome: O\n")
    base.write("docs/adr/0026-plan.md", "# 0026: Plan\n")
    path = base.pattern(
        more="""\
bugs:
  - 2025-01-01-a#bugs.a
  - 2025-01-01-a#bugs.b
  - 2025-01-01-a#outcome
  - 2025-01-09-x#bugs.a
decisions:
  - 26
  - 27
"""
    )
    for _ in range(2):  # the second time, facts come from the cache
        assert [(f.rule, f.line, f.message) for f in base.findings(cached=True)] == [
            ("link", line_of(path, "bugs.b"),
             "2025-01-01-a#bugs.b: there is no 'b' in 'bugs.b'; there is a"),
            ("link", line_of(path, "#outcome"),
             "2025-01-01-a#outcome is not a bug; write 2025-01-01-a#bugs.ID"),
            ("link", line_of(path, "2025-01-09-x"), "there is no record '2025-01-09-x'"),
            ("link", line_of(path, "27"), "there is no decision 27: no docs/adr/0027-*.md"),
        ]  # fmt: skip


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


@pytest.mark.slow
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


def test_a_pattern_comes_from_lessons_that_are_there(base):
    base.session(more="lessons: [Look first., Look twice., It waits.]\n")
    path = base.pattern(
        more="""\
lessons:
  - {session: 2025-01-01-a, text: "Look\\n first."}
  - {session: 2025-01-01-a, text: Look}
  - {session: 2025-01-01-a, text: Wait less.}
  - {session: 2025-01-09-x, text: Wait.}
"""
    )
    for _ in range(2):  # the second time, facts come from the cache
        assert [(f.rule, f.line, f.message) for f in base.findings(cached=True)] == [
            ("link", line_of(path, "text: Look}"),
             "these words stand in 2 lessons of 2025-01-01-a; quote one of its lessons"),
            ("link", line_of(path, "Wait less."),
             "these words stand in no lesson of 2025-01-01-a; quote one of its lessons"),
            ("link", line_of(path, "2025-01-09-x"), "there is no session '2025-01-09-x'"),
        ]  # fmt: skip


def test_a_pattern_stands_in_files_of_kernels_and_of_the_repository(base):
    base.kernel()
    base.write("kernels/add/add.cpp", "one two one\n")
    base.write("bench/time.py", "warm = 3\n")
    path = base.pattern(
        more="""\
places:
  - {kernel: add, file: add.cpp, text: two}
  - {kernel: add, file: add.cpp, text: one}
  - {kernel: sub, file: add.cpp, text: two}
  - {file: bench/time.py, text: warm}
  - {file: bench/time.py, text: cold}
  - {file: ../time.py, text: warm}
"""
    )
    found = [(f.rule, f.line, f.message.partition(";")[0]) for f in base.findings()]
    assert found == [
        ("place", line_of(path, "text: one"),
         "add.cpp: the text to find stands in lines 1, 1: 'one'"),
        ("place", line_of(path, "kernel: sub"), "there is no kernel 'sub'"),
        ("place", line_of(path, "text: cold"), "bench/time.py: the text to find is gone: 'cold'"),
        ("path", line_of(path, "../time.py"), "'../time.py' leaves the repository"),
    ]  # fmt: skip


def test_a_pattern_stood_in_a_file_of_a_commit(base):
    def git(*arguments: str) -> str:
        own = ["git", "-C", str(base.root), "-c", "user.name=a", "-c", "user.email=a@b.c"]
        return subprocess.run(
            [*own, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    base.kernel()
    base.write("kernels/add/add.cpp", "split();\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "split")
    commit = git("rev-parse", "HEAD")
    base.write("kernels/add/add.cpp", "")
    path = base.pattern(
        more=f"""\
places:
  - {{commit: {commit}, kernel: add, file: add.cpp, text: split}}
  - {{commit: {commit[:12]}, file: kernels/add/add.cpp, text: split}}
  - {{commit: {commit}, kernel: add, file: add.cpp, text: merge}}
  - {{commit: {commit}, kernel: add, file: none.cpp, text: split}}
  - {{commit: 0123abc, kernel: add, file: add.cpp, text: split}}
  - {{commit: {commit}, file: ../add.cpp, text: split}}
"""
    )
    at = f"commit {commit[:12]}"
    assert [(f.rule, f.line, f.message.partition(";")[0]) for f in base.findings()] == [
        ("place", line_of(path, "text: merge"),
         f"add.cpp of {at}: the text to find is gone: 'merge'"),
        ("place", line_of(path, "none.cpp"), f"{at} has no file 'none.cpp'"),
        ("place", line_of(path, "0123abc"),
         "no branch or tag of this repository has commit 0123abc"),
        ("path", line_of(path, "../add"), "'../add.cpp' leaves the repository"),
    ]  # fmt: skip
    shutil.rmtree(base.root / ".git")
    assert {f.rule for f in base.findings()} == {"path"}  # of commits nobody knows


def test_a_pattern_stands_somewhere_or_says_why_not(base):
    base.write("a.py", "x\n")
    path = base.pattern(more="no_places: It was taken out.\n")
    assert base.findings() == []
    path.write_text(path.read_text() + "places: [{file: a.py, text: x}]\n")
    (finding,) = base.findings()
    assert "no_places says why it stands in no source, and places says where" in finding.message
