"""``kbtool session`` from outside: a session from its plan to its end."""

from __future__ import annotations

import json
import re

import pytest
from git import Repo
from knowledge import LOOK, RUN, sealed


@pytest.mark.slow
def test_a_session_from_new_to_close(base, kbtool):
    def session(*arguments):
        done = kbtool("session", *arguments, root=base.root)
        assert done.code == 0, done.err
        return done

    made = json.loads(session("new", "Fix the NaN", "--label", "N+8", "--json").out)
    id_ = made["id"]
    assert made["record"]["status"] == "running"
    assert session("note", "the tail").out.endswith(" the tail\n")
    session("cost", "gpu", "0.40", "--basis", "billed", "--duration", "2 h")
    session("cost", "engineer", "20.00", "--basis", "estimated", "--currency", "eur")
    session("pause")
    session("resume")
    assert f"{id_} is complete" in session("close", "--outcome", "fixed").out
    assert kbtool("check", root=base.root).code == 0
    shown = json.loads(session("show", "N+8", "--json").out)
    assert shown["session"]["outcome"] == "fixed"
    assert [line["amount"] for line in shown["session"]["costs"]] == ["0.40", "20.00"]
    assert len(shown["session"]["stretches"]) == 2
    text = session("show", id_[:12]).out
    for part in ("N+8: Fix the NaN", "complete", "gpu 0.40 USD (billed)", "20.00 EUR"):
        assert part in text


def test_a_plan_is_started_later(base, kbtool):
    kbtool("session", "new", "Later", "--planned", root=base.root)
    assert kbtool("session", "close", "later", root=base.root).code == 2
    assert kbtool("session", "start", "later", root=base.root).code == 0
    listed = json.loads(kbtool("session", "list", "--json", root=base.root).out)
    assert [s["status"] for s in listed["sessions"]] == ["running"]
    assert kbtool("check", root=base.root).code == 0


def test_new_prints_the_path_alone_on_stdout(base, kbtool):
    done = kbtool("session", "new", "A title", "--budget-time", "2 h", root=base.root)
    assert (base.root / done.out.strip()).is_file()


@pytest.mark.slow
def test_a_title_that_gives_no_id_is_told_with_the_option_that_does(base, kbtool):
    done = kbtool("session", "new", "修正する", root=base.root)
    assert "no letter a to z and no digit for the id, so that is the date and" in done.err
    assert "--id NAME" in done.err
    done = kbtool("session", "new", "修正する", "--id", "fix-nan", root=base.root)
    assert re.search(r"^sessions/[0-9-]{10}-fix-nan/session\.yaml$", done.out)
    assert "--id" not in done.err
    done = kbtool("session", "bug", "日本語", "--session", "fix-nan", root=base.root)
    assert ": bug bug: 日本語" in done.out and "--id NAME" in done.err
    again = kbtool(
        "session", "bug", "日本語", "--id", "nan", "--session", "fix-nan", root=base.root
    )
    assert ": bug nan: 日本語" in again.out and "--id NAME" not in again.err
    assert "--id NAME" not in kbtool("session", "new", "Fix 修正", root=base.root).err
    assert kbtool("check", root=base.root).code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["new"],
        ["new", " "],
        ["new", "T", "--budget-time", "soon"],
        ["new", "T at 10.0.0.1"],
        ["new", "T", "--label", "A"],
        ["new", "T", "--label", " A "],
        ["new", "T", "--id", ""],
        ["new", "T", "--id", "../x"],
        ["new", "T", "--id", "Fix"],
        ["new", "T", "--label", ""],
        ["new", "T", "--label", "one\ntwo"],
        ["new", "one\ntwo"],
        ["new", "one\u2028two"],
        ["new", "T", "--objective", "one\r\ntwo"],
        ["new", "T", "--budget-time", "2"],
        ["new", "T", "--budget-money", "2 h"],
        ["show", "none"],
        ["show"],
        ["pause"],
        ["resume"],
        ["close"],
        ["note", "text"],
        ["note", "text", "--session", "none"],
        ["note", "ssh 10.0.0.1", "--session", "A"],
        ["note", "", "--session", "A"],
        ["cost", "gpu", "0.4", "--session", "A"],
        ["cost", "gpu", "much", "--basis", "billed", "--session", "A"],
        ["cost", "gpu", "nan", "--basis", "billed", "--session", "A"],
        ["cost", "rent", "1", "--basis", "billed", "--session", "A"],
        ["cost", "gpu", "1", "--basis", "billed", "--currency", "dollars", "--session", "A"],
        ["cost", "gpu", "1", "--basis", "billed", "--rate", "cheap", "--session", "A"],
        ["close", "A"],
        ["list", "--status", "asleep"],
    ],
)
def test_invalid_arguments_exit_2_and_write_nothing(base, kbtool, arguments):
    path = base.session()
    before = path.read_bytes()
    done = kbtool("session", *arguments, root=base.root)
    assert (done.code, done.out) == (2, ""), done
    assert done.err
    assert path.read_bytes() == before
    assert [entry.name for entry in (base.root / "sessions").iterdir()] == ["2025-01-01-a"]
    assert not path.with_name("notes.md").exists()


RATES = """\
# yaml-language-server: $schema=../schemas/ledger.json
rates:
  - {id: l4, kind: gpu, rate: 0.20 USD/h, day: 2025-01-01, card: L4}
  - {id: marie, kind: engineer, rate: 60 EUR/h, day: 2025-01-01}
"""


def test_costs_at_a_rate_of_the_ledger(base, kbtool):
    base.write("sessions/ledger.yaml", RATES)
    base.session(more="duration: 107 min\nenvironment: {card: H100}\n")

    def cost(*arguments):
        return kbtool("session", "cost", *arguments, "--session", "A", root=base.root)

    assert cost("gpu", "--rate", "l4").out == (
        "2025-01-01-a: gpu 0.36 USD (estimated) [rate 0.20 USD/h, card L4]\n"
    )
    assert "engineer 90.00 EUR" in cost("engineer", "--rate", "marie", "--duration", "90 min").out
    assert "ai 0.10 USD" in cost("ai", "--rate", "0.20 USD/h", "--duration", "30 min").out
    lines = json.loads(kbtool("session", "show", "A", "--json", root=base.root).out)
    first, second, third = lines["session"]["costs"]
    assert (first["rate_id"], first["rate"], first["card"]) == ("l4", "0.20 USD/h", "L4")
    assert (second["rate_id"], second["currency"]) == ("marie", "EUR")
    assert "rate_id" not in third
    assert kbtool("check", root=base.root).code == 0
    total = json.loads(kbtool("costs", "--currency", "USD", "--json", root=base.root).out)["total"]
    assert total["total"] == "0.46"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gpu"], "give AMOUNT, or --rate"),
        (["gpu", "--rate", "h100"], r"neither a rate of sessions/ledger.yaml \(l4, marie\)"),
        (["ai", "--rate", "l4"], "l4 is a rate of gpu, not of ai"),
        (
            ["gpu", "--rate", "l4", "--basis", "billed"],
            "a billed amount must be given: AMOUNT is missing",
        ),
        (["gpu", "1.00", "--rate", "l4"], "give the basis of the amount"),
        (
            ["gpu", "1.00", "--rate", "l4", "--duration", "1 h", "--basis", "estimated"],
            "0.20; correct",
        ),
        (["gpu", "--rate", "l4", "--currency", "EUR"], "is not in EUR"),
        (["gpu", "1.00", "--basis", "claimed", "--invoice", "I-7"], "give --basis billed"),
        (["gpu", "--rate", "l4", "--invoice", "I-7"], "give --basis billed"),
        (["gpu", "1.00", "--basis", "claimed", "--note", "one\ntwo"], "more than one line"),
    ],
)
def test_a_cost_that_does_not_follow_is_refused(base, kbtool, arguments, said):
    base.write("sessions/ledger.yaml", RATES)
    path = base.session()
    before = path.read_bytes()
    done = kbtool("session", "cost", *arguments, "--session", "A", root=base.root)
    assert (done.code, done.out) == (2, "")
    assert re.search(said, done.err), done.err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("rate", "given", "said"),
    [
        ("until: 2024-12-31", [], "--rate: l4 held until 2024-12-31; name the rate that replaced"),
        ("card: L4", ["--card", "H100"], "the price of card L4; the line pays for card H100"),
    ],
)
def test_a_rate_that_check_would_refuse_is_refused_at_once(base, kbtool, rate, given, said):
    base.write("sessions/ledger.yaml", RATES.replace("card: L4", rate).replace("2025", "2024", 1))
    path = base.session(more="duration: 107 min\n")
    before = path.read_bytes()
    words = ["session", "cost", "gpu", "--rate", "l4", *given, "--session", "A"]
    done = kbtool(*words, root=base.root)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert path.read_bytes() == before


def test_the_invoice_of_a_cost_is_recorded(base, kbtool):
    base.session()
    done = kbtool("session", "cost", "gpu", "2.50", "--basis", "billed", "--invoice", "2026-118",
                  "--session", "A", root=base.root)  # fmt: skip
    assert done.out == "2025-01-01-a: gpu 2.50 USD (billed) [invoice 2026-118]\n"
    exported = kbtool("export", "focus", root=base.root)
    assert "2026-118" in exported.out


@pytest.mark.slow
def test_two_running_sessions_need_a_name(base, kbtool):
    for title, who in (("One", "Marie"), ("Two", "Bob")):
        kbtool("session", "new", title, "--engineer", who, root=base.root)
    done = kbtool("session", "note", "x", root=base.root)
    assert done.code == 2
    assert "more than one session is running: " in done.err
    assert "-one (Marie), " in done.err and "say which: --session ID" in done.err
    assert "say which: add its ID" in kbtool("session", "close", root=base.root).err
    assert kbtool("session", "note", "x", "--session", "one", root=base.root).code == 0


@pytest.mark.slow
def test_the_running_session_of_another_needs_its_name(base, kbtool):
    repo = Repo.init(base.root)
    with repo.config_writer() as config:
        config.set_value("user", "name", "Bob")
    kbtool("session", "new", "One", "--engineer", "Marie", root=base.root)
    done = kbtool("session", "note", "x", root=base.root)
    assert done.code == 2
    assert "is another's: " in done.err and "-one (Marie), and git's user.name is Bob" in done.err
    assert kbtool("session", "note", "x", "--session", "one", root=base.root).code == 0
    kbtool("session", "new", "Two", root=base.root)
    assert kbtool("session", "close", root=base.root).out.startswith("20")
    shown = json.loads(kbtool("session", "show", "one", "--json", root=base.root).out)
    assert shown["session"]["status"] == "running"


def test_a_running_session_that_does_not_load_is_an_error(base, kbtool):
    kbtool("session", "new", "Good", root=base.root)
    made = json.loads(kbtool("session", "new", "Bad", "--json", root=base.root).out)
    path = base.root / "sessions" / made["id"] / "session.yaml"
    path.write_text(path.read_text() + "\nnonsense: 1\n")
    done = kbtool("session", "note", "x", root=base.root)
    assert done.code == 1
    assert "a session that says it is running does not load" in done.err
    assert "nonsense" in done.err and "--session ID" in done.err
    assert kbtool("session", "note", "x", "--session", "good", root=base.root).code == 0


def test_an_unsound_record_is_refused_with_its_findings(base, kbtool):
    path = base.session(more="nonsense: 1\n")
    before = path.read_bytes()
    done = kbtool("session", "close", "2025-01-01-a", root=base.root)
    assert (done.code, done.out) == (1, "")
    assert "session.yaml:7: schema: nonsense" in done.err
    assert path.read_bytes() == before


def test_runs_are_shown_with_their_figures(base, kbtool):
    base.pattern(more=LOOK)
    base.session()
    failed = {**RUN["steps"][0], "status": "failed", "message": "no card"}
    run = {**RUN, "status": "failed", "steps": [failed]}
    base.write(f"sessions/2025-01-01-a/runs/{RUN['id']}.json", sealed(run))
    text = kbtool("session", "show", "A", root=base.root).out
    assert "2025-01-01 09:00  look  failed  look: no card" in text
    answer = json.loads(kbtool("session", "show", "A", "--json", root=base.root).out)
    assert answer["runs"][0]["recipe"] == "look"


def test_list_orders_sessions_by_follows(base, kbtool):
    assert "no sessions yet" in kbtool("session", "list", root=base.root).err
    base.session("2025-01-02-b", "follows: 2025-01-03-c\n", label="second")
    base.session("2025-01-03-c", label="first")
    rows = kbtool("session", "list", root=base.root).out.splitlines()[2:]
    assert [row.split()[1] for row in rows] == ["first", "second"]
    none = kbtool("session", "list", "--status", "running", root=base.root)
    assert (none.code, none.out) == (0, "")


FULL = """\
updated: 2025-01-01T10:00Z
engineer: M. C.
environment: {cpu: EPYC}
sources: {log: {file: a.md, about: A log}}
costs:
  - {kind: gpu, amount: 1.40, basis: claimed, duration: 7 h, rate: 0.20 USD/h}
steps:
  - {id: build, title: Build it, target: 5 min, actual: 60+ min, status: done}
measurements:
  - id: fa1
    title: Latency
    kind: benchmark
    validated: false
    columns: {torch: {title: PyTorch, unit: ms}, ours: {title: Ours, unit: ms}}
    rows:
      - {id: s64, case: {S: 64}, values: {torch: 0.050, ours: 1E-5}, verdict: fail}
      - {id: s128, values: {torch: 12.5}}
bugs:
  - id: tail
    title: The tail is wrong
    status: open
    symptom: NaN
    cause: the loop bound
    error_text: NaN at 112
    hypotheses: [{id: h, statement: A race, likelihood: 80 %, verdict: rejected}]
claims:
  - id: cost
    says: It cost 1.40
    stated: 1.40 USD
    how: product
    of: ["#costs.gpu.duration", {how: ratio, of: [1 USD, 5 h]}]
  - {id: many, says: Many, stated: 7, how: count, of: ["1", "2", "3", "4", "5", "6", "7"]}
plans:
  - id: next
    title: Go on
    for_session: N+9
    target: 45..60 min
    budget: 5 USD
    steps: [{id: look, title: Look, target: 10 min}]
deliverables:
  - {id: lib, title: The library, state: partial, sizes: {binary: 240 KB}}
tags: [l4]
"""


def test_show_prints_every_part_of_a_record(base, kbtool):
    base.session(more=FULL)
    text = kbtool("session", "show", "A", root=base.root).out
    for part in (
        "  updated:   2025-01-01T10:00Z",
        "  - gpu 1.40 USD (claimed) [duration 7 h, rate 0.20 USD/h]",
        "  - build (done): Build it [target 5 min, actual 60+ min]",
        "measurement fa1: Latency (benchmark, not validated before)\n"
        "  case  torch ms  ours ms  verdict\n"
        "  ────  ────────  ───────  ───────\n"
        "  S=64     0.050  0.00001  fail\n"
        "  s128      12.5        –  –\n",
        "  - tail (open): The tail is wrong\n"
        "      symptom: NaN\n"
        "      cause: the loop bound\n"
        "      hypothesis h (rejected, 80 %): A race\n",
        "  - cost: It cost 1.40\n"
        "      stated: 1.40 USD; derives from: product of #costs.gpu.duration, ratio(1 USD, 5 h)\n",
        "count of 1, 2 … 7 (7 figures)",
        "  - next for N+9: Go on [target 45..60 min, budget 5 USD]\n"
        "      look: Look [target 10 min]\n",
        "  - lib (partial): The library [binary 240 KB]",
        "  engineer:  M. C.\n",
        "  tags:      l4\n",
        "\nnot shown: sources, environment (cpu), measurements (columns.title), bugs (error_text);"
        " --json has all\n",
    ):
        assert part in text, text


def test_show_prints_costs_evidence_and_the_fixes_of_a_bug(base, kbtool):
    base.session(
        more="costs: [{kind: gpu, amount: 2.00, basis: billed, invoice: I-7, note: the card}]\n"
        "bugs: [{id: tail, title: The tail, status: open}, {id: race, title: R, status: open}]\n"
        "evidence:\n"
        "  - {pattern: P01, verdict: applied, note: n, saved: 20 min, money: 3 USD,"
        " expected: true}\n"
        "  - {pattern: P01, verdict: applied, note: m, lost: 5 min}\n"
        "decisions:\n"
        "  - {id: d, question: Keep it?, options: [{id: a, title: A}], chosen: a, reason: cheap}\n"
        "commits: [{id: one, sha: 0123abc, title: Bound it}]\n"
    )
    base.session(
        "2025-01-02-b",
        "follows: 2025-01-01-a\n"
        "fixes:\n  - {bug: 2025-01-01-a#bugs.tail, change: bound it, commit: 0123abc,"
        " confirmed: true, note: by hand}\n"
        "  - {bug: 2025-01-01-a#bugs.race, change: a lock, confirmed: false}\n",
    )
    text = kbtool("session", "show", "A", root=base.root).out
    for part in (
        "gpu 2.00 USD (billed) [invoice I-7]: the card\n",
        "  - tail (fixed; the session left it open): The tail\n"
        "      fix in B: bound it [commit 0123abc, confirmed yes]: by hand\n",
        "      fix in B: a lock [confirmed no]\n",
        "P01 applied: n [saved 20 min, money 3 USD, expected]\n",
        "P01 applied: m [lost 5 min]\n",
        "  - d: Keep it? → a\n      options: a\n      reason: cheap\n",
        "  - 0123abc (made): Bound it\n",
        "not shown: decisions (options.title); --json has all",
    ):
        assert part in text, text
    own = kbtool("session", "show", "B", root=base.root).out
    assert "2025-01-01-a#bugs.tail: bound it [commit 0123abc, confirmed yes]" in own
    answer = json.loads(kbtool("session", "show", "A", "--json", root=base.root).out)
    assert answer["bugs"]["tail"] == "fixed"


def test_each_field_listed_as_shown_exists_in_the_model():
    """A key that was renamed would be left out, and the last line would not say so."""
    from kbtool.cli.session.look import _SHOWN
    from kbtool.model.session import Session

    def keys(model, place=""):
        for name, field in model.model_fields.items():
            path = f"{place}.{name}" if place else name
            inner = [a for a in models_in(field.annotation) if a is not model]
            yield from (key for one in inner for key in keys(one, path))
            yield path

    def models_in(annotation):
        from kbtool.model.base import Model

        for part in getattr(annotation, "__args__", ()):
            yield from models_in(part)
        if isinstance(annotation, type) and issubclass(annotation, Model):
            yield annotation

    there = set(keys(Session))
    said = {
        f"{place}.{name}" if place else name for place, names in _SHOWN.items() for name in names
    }
    assert said <= there, said - there


def test_a_benchmark_on_a_busy_machine_is_shown_as_noisy(base, kbtool):
    base.pattern(more=LOOK)
    base.session()
    sha = "ab" * 32
    arm = {"samples_us": [2.0], "median_us": 2.0, "low_us": 2.0, "high_us": 2.0,
           "calls_per_sample": 1}  # fmt: skip
    case = {"name": "c", "case": {}, "bytes": 1, "flops": 1, "rechecked": True,
            "arms": {"ours": arm, "theirs": arm}}  # fmt: skip
    checked = {"case_set": "s", "name": "c", "case": {}, "passed": True}
    results = [
        {"type": "validation", "sha256": sha, "device": "cpu", "seed": 1, "rule": "R",
         "cases": [checked]},
        {"type": "benchmark", "sha256": sha, "device": "cpu", "threads": 1, "subject": "ours",
         "baseline": "theirs", "read_gb_s": 1.0, "protocol": "P", "cases": [case]},
    ]  # fmt: skip
    for busy, said in (
        (0.05, "1.00 × the speed of theirs"),
        (0.12, "noisy: other processes used 12%"),
    ):
        results[1]["others_busy"] = busy
        steps = [{**RUN["steps"][0], "id": result["type"], "result": result} for result in results]
        base.write(f"sessions/2025-01-01-a/runs/{RUN['id']}.json", sealed({**RUN, "steps": steps}))
        assert said in kbtool("session", "show", "A", root=base.root).out


def test_an_unknown_amount_is_shown_with_its_currency(base, kbtool):
    path = base.session("2025-01-01-a", label="A")
    path.write_text(path.read_text().replace("status: complete", "status: running"))
    done = kbtool("session", "cost", "gpu", "--rate", "3 EUR/h", root=base.root)
    assert "gpu so far unknown, in EUR (estimated)" in done.out
    done = kbtool(
        "session", "cost", "gpu", "1_000", "--basis", "billed", "--session", "A", root=base.root
    )
    assert (done.code, "write its digits" in done.err) == (2, True)
