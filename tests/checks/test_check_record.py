"""Rules about a single record: each test breaks one and expects its name and line."""

from __future__ import annotations

import os

import pytest
from knowledge import LOOK, PATTERN, SESSION, SESSION_LINE, Knowledge, line_of, validated

from kbtool.checks.record_rules import RECORD_RULES
from kbtool.checks.rules import TREE_RULES
from kbtool.store.read import MAX_BYTES
from kbtool.store.schema import modeline


def test_a_sound_knowledge_base_has_no_findings(base):
    base.session()
    base.pattern()
    base.kernel()
    assert base.findings() == []


@pytest.mark.parametrize(
    ("title", "said"),
    [
        ('""', "is empty"),
        ('"  "', "is blank"),
        (r'"\u00a0"', "is blank"),
        (r'"\u200b\u3000"', "is blank"),
        (r'"\u2800\u3164"', "is blank"),
        (r'"\u2801"', None),
        (r'"\u3000a"', None),
        ('"."', None),
    ],
)
def test_a_title_of_which_nobody_sees_anything_is_refused(base: Knowledge, title, said):
    base.session(more=f"bugs: [{{id: a, title: {title}, status: open}}]\n")
    assert [finding.message for finding in base.findings()] == [f"bugs[0].title: {said}"] * bool(
        said
    )


@pytest.mark.parametrize(
    ("match", "said"),
    [("''", "is empty"), ("'('", "'(' has fewer than 3 characters")],
)
def test_a_text_that_is_too_short_is_empty_only_if_it_is(base: Knowledge, match, said):
    path = base.root / "symptoms" / "mine.yaml"
    path.parent.mkdir()
    symptom = f"{{id: a, title: A, match: {match}, example: (, source: s, advice: Wait}}"
    path.write_text(f"{modeline('symptoms')}\nid: mine\ntitle: Mine\nsymptoms:\n  - {symptom}\n")
    assert [finding.message for finding in base.findings()] == [f"symptoms[0].match: {said}"]


@pytest.mark.parametrize(
    ("cores", "passes"),
    [("16", True), ("-1", False), ("0", False), ("two", False), ("9" * 9, False)],
)
def test_cores_of_a_machine_are_a_whole_number(base: Knowledge, cores, passes):
    base.session(more=f"environment: {{details: {{cores: '{cores}'}}}}\n")
    found = [finding.message for finding in base.findings()]
    said = f"environment.details: cores is a whole number of at least 1, got '{cores}'"
    assert found == ([] if passes else [said])


@pytest.mark.parametrize("length", [1_000, 1_001])
def test_a_title_that_is_too_long_is_refused_in_a_short_line(base: Knowledge, length):
    path = base.session()
    path.write_text(path.read_text().replace("A sitting", "T" * length))
    found = [finding.message for finding in base.findings()]
    refused = f"title: {'T' * 40}… has over 1,000 characters"
    assert found == ([refused] if length > 1_000 else [])


def test_every_rule_says_what_it_is():
    for rule in (*RECORD_RULES, *TREE_RULES):
        assert rule.__doc__, rule.__name__


@pytest.mark.parametrize(
    ("content", "rule", "line"),
    [
        (b"", "yaml", 1),
        (b"# only a comment\n", "yaml", 1),
        (b"just text\n", "yaml", 1),
        (b"- a\n- b\n", "yaml", 1),
        (b"id: a\nlabel: [1, 2\n", "yaml", 3),
        (b"id: a\nid: b\n", "duplicate-key", 2),
        (b"id: a\nlabel:\n  x: 1\n  x: 2\n", "duplicate-key", 4),
        (b"id: a\nlabel: &x b\ntitle: *x\n", "yaml", 2),
        (b"id: a\nlabel: *x\n", "yaml", 2),
        (b"a: &a [*a]\n", "yaml", 1),
        (b"id: !!python/object:os.system x\n", "yaml", 1),
        (b"id: a\n---\nid: b\n", "yaml", 2),
        (b"id: \xff\xfe\n", "encoding", 1),
        (b"id: a\nlabel: \x00\x01\n", "encoding", 2),
        (b"\x7fELF\x02\x01\x01\xff" + bytes(range(256)), "encoding", 1),
        (b"a: " + b"[" * 5000, "yaml", 1),
        (b"".join(b" " * n + b"a:\n" for n in range(300)), "yaml", 65),
        (b"? [a]\n: b\n", "yaml", 1),
        (b"id: a\n\tlabel: b\n", "yaml", 2),
    ],
)  # fmt: skip
def test_a_file_that_does_not_parse_is_one_finding_with_its_line(base, content, rule, line):
    base.write("sessions/2025-01-01-a/session.yaml", content)
    (finding,) = base.findings()
    assert (finding.rule, finding.line) == (rule, line), finding


def test_a_truncated_record_is_a_finding(base):
    path = base.session(more="bugs:\n  - {id: a, title: A, status: open}\n")
    path.write_bytes(path.read_bytes()[:-12])
    assert [rule for rule, _ in base.rules()] == ["yaml"]


def test_an_enormous_record_is_refused_unread(base):
    base.write("sessions/2025-01-01-a/session.yaml", b"# " + b"x" * MAX_BYTES)
    (finding,) = base.findings()
    assert finding.rule == "file"
    assert "4,194,306 bytes" in finding.message


@pytest.mark.parametrize("kind", ["folder", "pipe", "dangling link", "link outside"])
def test_a_record_that_is_no_regular_file_is_a_finding(base, kind, tmp_path):
    path = base.root / "sessions/2025-01-01-a/session.yaml"
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    else:
        (tmp_path / "elsewhere").write_text("id: x")
        path.symlink_to(tmp_path / "elsewhere")
    (finding,) = base.findings()
    assert finding.rule in {"file", "path"}
    assert finding.path == "sessions/2025-01-01-a/session.yaml"


def test_every_breach_of_the_schema_is_a_finding_at_its_key(base):
    path = base.session(
        more="objectve: typo\ncosts:\n  - kind: gpu\n    amount: -1\n    basis: guessed\n"
    )
    assert base.rules() == [
        ("schema", line_of(path, "objectve")),
        ("schema", line_of(path, "amount")),
        ("schema", line_of(path, "basis")),
    ]


def test_a_commit_that_looks_like_a_number_stays_text(base):
    base.session(more="commits:\n  - {id: a, sha: 7e12345}\n  - {id: b, sha: 0012345}\n")
    assert base.findings() == []


def test_the_first_line_names_the_schema(base):
    base.write("sessions/2025-01-01-a/session.yaml", SESSION.format(id="2025-01-01-a", label="A"))
    base.write("patterns/P01.yaml", SESSION_LINE + PATTERN.format(id="P01", number=1))
    assert base.rules() == [("modeline", 1), ("modeline", 1)]


def test_a_byte_order_mark_is_named(base):
    path = base.session()
    path.write_bytes("\ufeff".encode() + path.read_bytes())
    (finding,) = base.findings()
    assert (finding.rule, finding.line) == ("encoding", 1)
    assert "byte order mark" in finding.message


def test_an_id_is_the_name_of_its_folder_or_file(base):
    base.pattern().rename(base.root / "patterns/P01-a-lesson.yaml")
    base.session().parent.rename(base.root / "sessions/2025-01-01-b")
    base.pattern("P02").rename(base.root / "patterns/P03.yaml")
    assert [(f.path, f.rule, f.line) for f in base.findings()] == [
        ("patterns/P03.yaml", "id", 2),
        ("sessions/2025-01-01-b/session.yaml", "id", 2),
    ]


def test_two_items_of_a_list_must_not_share_an_id(base):
    bug = "  - {{id: {}, title: T, status: open}}\n"
    path = base.session(more="bugs:\n" + bug.format("a") + bug.format("b") + bug.format("a"))
    assert base.rules() == [("unique", line_of(path, "id: a,", 2))]


NULLS = """\
started: null
bugs:
  - {id: tail, title: T, status: open, cause: null}
fixes:
  - {bug: "#bugs.tail", change: C, commit: null}
measurements:
  - id: fa1
    title: M
    kind: benchmark
    columns: {torch: {title: T, unit: us}}
    rows: [{id: s128, values: {torch: null}}]
"""


def test_a_null_without_a_reason_is_a_finding_that_names_its_path(base):
    path = base.session(more=NULLS)
    assert base.rules() == [
        ("null-reason", line_of(path, "started")),
        ("null-reason", line_of(path, "cause")),
        ("null-reason", line_of(path, "commit")),
        ("null-reason", line_of(path, "values")),
    ]
    said = " ".join(finding.message for finding in base.findings())
    for name in ("started", "bugs.tail.cause", "fixes.0.commit"):
        assert f"{{{name}: why}}" in said


def test_reasons_go_by_item_ids_and_may_leave_rows_and_values_out(base):
    reasons = "unknown: {started: w, bugs.tail.cause: w, fixes.0.commit: w, %s: w}\n"
    for name in ("measurements.fa1.s128.torch", "measurements.fa1.rows.s128.values.torch"):
        base.session(more=NULLS + reasons % name)
        assert base.findings() == []


def test_a_reason_without_its_null_is_a_finding(base):
    path = base.session(more="objective: known\nunknown:\n  objective: w\n  ended: w\n")
    assert base.rules() == [
        ("null-reason", line_of(path, "objective", 2)),
        ("null-reason", line_of(path, "ended")),
    ]


def test_a_nulls_reason_cannot_be_null(base):
    path = base.session(more="ended: null\nunknown:\n  ended: null\n")
    assert base.rules() == [("schema", line_of(path, "ended", 2))]


def test_references_within_a_record_must_resolve(base):
    path = base.session(
        more="""\
costs:
  - {kind: gpu, amount: 1.00, basis: billed}
bugs:
  - {id: tail, title: T, status: open}
fixes:
  - {bug: "#bugs.tail", change: C}
  - {bug: "#bugs.head", change: C}
  - {bug: "#costs.gpu", change: C}
  - {bug: "2025-01-01-a#bugs.tail", change: C}
  - {bug: "2025-01-01-a#bugs.none", change: C}
claims:
  - {id: a, says: S, stated: 1 USD, how: sum, of: ["#costs.gpu", "0.5 USD"]}
  - id: b
    says: S
    stated: 1 USD
    how: sum
    of:
      - how: sum
        of:
          - "#costs.gpu"
          - "#costs.ai"
"""
    )
    assert base.rules() == [
        ("link", line_of(path, "bugs.head")),
        ("link", line_of(path, "bug: \"#costs.gpu")),
        ("link", line_of(path, "bugs.none")),
        ("link", line_of(path, "costs.ai")),
    ]  # fmt: skip


TRANSCRIPT = """\
# yaml-language-server: $schema=../../schemas/session.json
id: 2025-01-01-a
label: A
title: A sitting
origin: log
sources:
  log: {file: log.txt, about: a log}
status: complete
duration: 25 min
grade: A
updated: 2025-01-01T10:00Z
bugs:
  - {id: a, title: no figures need no source, status: open}
  - id: b
    title: T
    status: open
    minutes_lost: 5 min
environment:
  driver: "550"
costs:
  - {kind: gpu, amount: 1.00, basis: claimed, source: log:12}
  - {kind: ai, amount: 1.00, basis: claimed, source: elsewhere:12}
decisions:
  - id: d
    question: Q
    source: log:1-4,9
    options: [{id: o, title: T, figures: {cost: 1 USD}}]
cites:
  duration: log:4
  outcome: log:5
"""


def test_a_transcript_cites_every_figure(base):
    path = base.write("sessions/2025-01-01-a/session.yaml", TRANSCRIPT)
    assert base.rules() == [
        ("provenance", line_of(path, "grade")),
        ("provenance", line_of(path, "updated")),
        ("provenance", line_of(path, "id: b")),
        ("provenance", line_of(path, "environment")),
        ("provenance", line_of(path, "elsewhere")),
        ("provenance", line_of(path, "outcome")),
    ]


def test_a_transcript_without_sources_is_a_finding(base):
    text = TRANSCRIPT.split("sources:")[0] + "status: complete\n"
    base.write("sessions/2025-01-01-a/session.yaml", text)
    assert base.rules() == [("provenance", 5)]
    base.write("sessions/2025-01-01-a/session.yaml", text.replace(": log", ": mention"))
    assert base.rules() == [("provenance", 5)]


@pytest.mark.parametrize("origin", ["tool", "person"])
def test_ones_own_record_needs_no_sources(base, origin):
    text = TRANSCRIPT.split("sources:")[0].replace(": log", f": {origin}")
    base.write("sessions/2025-01-01-a/session.yaml", text + "status: complete\nduration: 5 min\n")
    assert base.findings() == []


def test_findings_come_sorted_and_once(tmp_path):
    base = Knowledge(tmp_path)
    for name in ("b", "a", "c"):
        base.session(f"2025-01-01-{name}", more="nonsense: 1\nalso: 1\n")
    found = base.findings()
    assert found == sorted(set(found))
    assert len(found) == 6


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("duration: 30 USD", "'30 USD' takes a time, in ns, us, ms, s, min, h: 25 min"),
        ("duration: 30", "it has no unit"),
        ("duration: -5 min", "it is negative"),
        ("budget_time: 2 days", "takes a time"),
        ("budget_money: 5", "takes an amount with its currency (ISO 4217): 5 USD"),
        ("budget_money: 5 min", "takes an amount"),
        ("budget_money: -5 USD", "it is negative"),
        ("environment: {card_memory: 24 h}", "takes bytes: 24 GB"),
        ("environment: {shared_memory: 48}", "takes bytes"),
        ("costs: [{kind: gpu, basis: billed, rate: 0.20 USD}]", "takes money per s, min, h or day"),
        ("costs: [{kind: gpu, basis: billed, duration: 1 USD}]", "takes a time"),
        ("steps: [{id: a, title: T, target: 5 USD}]", "takes a time"),
        ("steps: [{id: a, title: T, actual: soon..later}]", "is not a quantity"),
        ("bugs: [{id: a, title: T, status: open, minutes_lost: '5'}]", "takes a time"),
        (
            "bugs: [{id: a, title: T, status: open, hypotheses: [{id: h, statement: S,"
            " likelihood: 120 %}]}]",
            "takes per cent: 80 %, 60..80 %; it is more than 100",
        ),
        ("plans: [{id: a, title: T, target: 5 USD}]", "takes a time"),
        ("plans: [{id: a, title: T, budget: 5 min}]", "takes an amount"),
        ("plans: [{id: a, title: T, steps: [{id: b, title: T, target: 1}]}]", "takes a time"),
        ("evidence: [{pattern: P01, verdict: proved, note: N, saved: 5}]", "takes a time"),
        ("evidence: [{pattern: P01, verdict: proved, note: N, lost: 5 %}]", "takes a time"),
        ("evidence: [{pattern: P01, verdict: proved, note: N, money: 5 h}]", "takes an amount"),
        ("deliverables: [{id: a, title: T, sizes: {x: 5 min}}]", "takes bytes, lines or a count"),
    ],
)
def test_a_finding_for_a_wrong_quantity_says_what_its_key_takes(base, lines, said):
    base.pattern()
    base.session(more=lines + "\n")
    (finding,) = base.findings()
    assert finding.rule == "schema"
    assert said in finding.message


def test_quantities_of_the_kind_that_their_key_takes_pass(base):
    base.session(
        more="""\
duration: 60+ min
budget_time: 1.5 h
budget_money: 30..50 EUR
environment: {card_memory: 79.6 GiB, shared_memory: 48 KB}
costs: [{kind: gpu, basis: billed, amount: 1, rate: 0.20 USD/h, duration: 7 h}]
bugs:
  - id: a
    title: T
    status: open
    hypotheses: [{id: h, statement: S, likelihood: 60..80 %}]
deliverables: [{id: a, title: T, sizes: {a: 316 lines, b: 240 kB, c: 6}}]
"""
    )
    assert base.findings() == []


TABLE = """\
measurements:
  - id: m
    title: M
    kind: benchmark
    columns: {ours: {title: O, unit: us}, ratio: {title: R, unit: ''}}
    rows: [{id: r, values: {%s}}]
"""


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (TABLE % "ours: 41.2 us", "'41.2 us' is not a number: the column's unit is us; write 41.2"),
        (TABLE % "ours: 41.2 ms", "the column's unit is us; write digits only"),
        (TABLE % "ours: 41..42 us", "the column's unit is us; write digits only"),
        (TABLE % "ratio: 3x", "'3x' is not a number: the column has no unit; write digits only"),
        (TABLE % "nobody: 3x", "'3x' is not a number; write digits only"),
        ("commits: [{id: a, files: few}]", "'few' is not a whole number; write digits only"),
        ("commits: [{id: a, sha: deadbeef0z}]", "is not a commit id; write 7 to 40"),
        ("commits: [{id: A}]", "'A' is not a name; use small letters"),
        ("follows: N+2", "'N+2' is not a session id; write the whole id: 2026-11-02-name"),
        (
            "fixes: [{bug: 'N+2#bugs.x', change: C}]",
            "'N+2' is not an id. Refer to a record by its id",
        ),
        ("fixes: [{bug: bugs.x, change: C}]", "'bugs.x' is not a reference; write ID#path"),
        ("fixes: [{bug: '#bugs.x', change: C, confirmed: so}]", "'so' is neither true nor false"),
    ],
)
def test_a_finding_for_a_malformed_value_says_what_to_write(base, lines, said):
    base.session(more=lines + "\n")
    assert said in base.findings()[0].message


@pytest.mark.parametrize(
    ("operand", "said"),
    [
        (
            "N+2#bugs.x",
            "of[0]: 'N+2#bugs.x': 'N+2' is not an id. Refer to a record by its id, not by",
        ),
        ("'# x'", "of[0]: '# x' is not a reference; write ID#path"),
        ("soon", "of[0]: 'soon' is not an operand; write a reference"),
        ("[1]", "of[0]: a list is not an operand"),
        ("{how: guess, of: ['#duration']}", "of[0].how: 'guess' is not one of 'sum'"),
        ("{how: ratio, of: ['#duration']}", "of[0]: ratio takes 2 operands, not 1"),
        ("{how: sum, of: [soon]}", "of[0].of[0]: 'soon' is not an operand"),
    ],
)
def test_a_malformed_operand_is_one_finding(base, operand, said):
    base.session(more=f"claims: [{{id: a, says: S, stated: 1 h, how: sum, of: [{operand}]}}]\n")
    (finding,) = base.findings()
    assert finding.rule == "schema" and said in finding.message


def test_a_claim_may_count_a_list_of_a_record_that_does_not_load(base):
    claim = "claims: [{id: a, says: S, stated: 1, how: count, of: ['#bugs']}]\n"
    base.session(more=f"bugs: [{{id: b, title: B, status: open}}]\nnonsense: 1\n{claim}")
    assert [finding.rule for finding in base.findings()] == ["schema"]


@pytest.mark.parametrize(
    ("more", "rules"),
    [
        ("", ["schema"]),
        (", lost: 5 min", ["schema"]),
        (", saved: 5 min, expected: true", ["schema"]),
        (", saved: 5 min", []),
        (", money: 5 USD", []),
        (", shown_by: ['#fixes.f']", []),
        (", shown_by: ['#fixes.f'], where: {status: failed}", []),
        (", saved: 5 min, where: {status: failed}", ["schema"]),
        (", shown_by: ['#fixes.g']", ["link"]),
        (", shown_by: ['20250101T090000Z-look#steps.look']", ["link"]),
    ],
)
def test_proved_evidence_must_name_what_shows_it(base, more, rules):
    base.pattern()
    base.session(
        more="bugs: [{id: b, title: B, status: fixed}]\n"
        "fixes: [{id: f, bug: '#bugs.b', change: C}]\n"
        f"evidence: [{{pattern: P01, verdict: proved, note: N{more}}}]\n"
    )
    assert [finding.rule for finding in base.findings()] == rules


@pytest.mark.parametrize(
    ("more", "rules"),
    [
        ("confirmed: true, shown_by: [RUN#steps.check]", []),
        ("confirmed: true, shown_by: [RUN#steps.none]", ["link"]),
        ("confirmed: true, shown_by: [20250101T080000Z-look#steps.check]", ["link"]),
        ("confirmed: true, shown_by: [RUN#status]", ["schema"]),
        ("confirmed: true, shown_by: ['#fixes.f']", ["schema"]),
        ("confirmed: true, shown_by: RUN#steps.check", ["schema"]),
        ("confirmed: false, shown_by: [RUN#steps.check]", ["schema"]),
        ("shown_by: [RUN#steps.check]", ["schema"]),
    ],
)
def test_a_confirmed_fix_must_name_runs_that_passed(base, more, rules):
    base.pattern(more=LOOK)
    run = base.run(validated(0))
    base.session(
        more="bugs: [{id: b, title: B, status: fixed}]\n"
        f"fixes: [{{id: f, bug: '#bugs.b', change: C, {more.replace('RUN', run)}}}]\n"
    )
    assert [finding.rule for finding in base.findings()] == rules


@pytest.mark.parametrize(
    "times", ["expected: 5 USD, timeout: 5 min", "expected: 1 s, timeout: 5..9 min"]
)
def test_a_recipes_times_are_single_figures(base, times):
    step = "recipes: [{name: x, title: X, steps: [{id: a, kind: environment, title: T, %s}]}]\n"
    base.pattern(more=step % times)
    (finding,) = base.findings()
    assert "takes one time" in finding.message


@pytest.mark.parametrize(
    ("cite", "said"),
    [
        ("log:9999-5", "'log:9999-5' runs backwards; write 5-9999"),
        ("log:3,9-8", "runs backwards"),
        ("log:0", "lines are counted from 1"),
        ("log:31", "log:31 is past the end of the source: log has 30 lines"),
        ("log:1-4,29-31", "is past the end of the source"),
    ],
)
def test_cited_lines_must_exist_in_the_source(base, cite, said):
    text = TRANSCRIPT.replace("log.txt", "log.txt, lines: 30").replace("log:12}", f'"{cite}"}}')
    path = base.write("sessions/2025-01-01-a/session.yaml", text)
    (finding,) = [f for f in base.findings() if f.line == line_of(path, cite)]
    assert said in finding.message
    path.write_text(text.replace(cite, "log:1,3-30"))
    assert line_of(path, "log:1,3-30") not in [line for _, line in base.rules()]


@pytest.mark.parametrize("name", ["../log.txt", "logs/log.txt", "/log.txt", "..", "a\\b", "."])
def test_a_source_is_named_without_its_folder(base, name):
    base.session(more=f"sources: {{log: {{file: '{name}', about: a log}}}}\n")
    (finding,) = base.findings()
    assert "is not the name of a file" in finding.message
