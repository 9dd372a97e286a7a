"""The first page, and the pages of bugs and recipes: figures that the records hold."""

from __future__ import annotations

import copy
import json
import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import site_trees as trees

from kbtool.site.index import Index
from kbtool.site.pages import bug, home, pattern, recipe, run
from kbtool.store.tree import KnowledgeBase


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return trees.make(tmp_path / "kb")


def index_of(root: Path) -> Index:
    return Index(KnowledgeBase(root))


def home_page(root: Path) -> str:
    return unescape(home.page(index_of(root), None))


def part(page: str, name: str) -> str:
    return page.split(f"{{#{name}}}")[1].split("\n## ")[0]


def template(root: Path) -> dict[str, Any]:
    """The record of the run that went through."""
    (path,) = (root / "sessions").glob("*/runs/two.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def put_run(root: Path, number: int, **fields: Any) -> dict[str, Any]:
    """A run of a later day like the template's; what ``fields`` gives is other."""
    record = {**copy.deepcopy(template(root)), **fields, "attempt": 1}
    record |= {"id": f"202511{22 + number}T101010Z-copy",
               "started": f"2025-11-{22 + number}T10:10:10Z",
               "ended": f"2025-11-{22 + number}T10:11:10Z"}  # fmt: skip
    record.pop("digest")
    folder = root / "sessions" / record["session"] / "runs"
    trees.put(folder / f"{number}.json", trees.sealed(record))
    return record


def slower(record: dict[str, Any], times: float) -> list[dict[str, Any]]:
    """The steps of a run whose baseline takes so many times as long as ours."""
    steps = copy.deepcopy(record["steps"])
    arms = next(s for s in steps if s["id"] == "time")["result"]["cases"][0]["arms"]
    theirs = arms["words about theirs"]
    for key in ("median_us", "low_us", "high_us"):
        theirs[key] *= times
    theirs["samples_us"] = [value * times for value in theirs["samples_us"]]
    return steps


def test_the_latest_result_is_the_newest_run_s_and_the_history_is_of_the_same_cases(root):
    rows = [row for row in part(home_page(root), "results").splitlines() if "kernels/" in row]
    assert len(rows) == 1 and "one run so far" in rows[0] and "| 1.00 <br>" in rows[0]
    assert "| not measured |" in rows[0]  # between plain kernels
    put_run(root, 1, steps=slower(template(root), 4))
    put_run(root, 2, steps=slower(template(root), 2))
    (row,) = (r for r in part(home_page(root), "results").splitlines() if "kernels/" in r)
    assert (
        "| 2.00 <br>" in row
        and ">least 2.00<" in row
        and ">0 of 1 lost<" in row
        and "| 2.50 |" in row
    )
    assert "2025-11-24 10:10 UTC" in row
    assert "words about cpu, 2 threads: 1.00, 4.00, 2.00" in row  # what the sparkline says
    assert len(re.findall(r"[\d.]+,[\d.]+", re.search(r'points="([^"]*)"', row)[1])) == 3


AGAINST = "Peers"


def results_of(root: Path) -> tuple[list[str], list[str]]:
    """The header of the latest results, and the cells of their only row."""
    table = [line for line in part(home_page(root), "results").splitlines() if line[:1] == "|"]
    header, _, row = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table)
    return header, row


def test_a_result_is_compared_with_the_best_peer_if_peers_were_timed(root):
    header, row = results_of(root)
    told = dict(zip(header, row, strict=True))
    assert told[AGAINST] == "words about theirs, the only peer timed"
    steps = slower(template(root), 4)
    case = next(step for step in steps if step["id"] == "time")["result"]["cases"][0]
    theirs = case["arms"]["words about theirs"]
    half = {
        key: value / 2 for key, value in theirs.items() if key.endswith("_us") and key[0] != "s"
    }
    case["arms"]["best"] = {**theirs, **half, "samples_us": [v / 2 for v in theirs["samples_us"]]}
    put_run(root, 1, steps=steps)
    header, row = results_of(root)
    told = dict(zip(header, row, strict=True))
    assert told["In a chain"].startswith("2.00 <br>")
    assert told[AGAINST] == "best of words about theirs and best"


def test_a_result_of_a_run_that_was_cut_short_says_so(root):
    assert "not reached" not in part(home_page(root), "results")
    steps = copy.deepcopy(template(root)["steps"])
    timed = next(step for step in steps if step["id"] == "time")
    timed["status"], timed["result"]["not_reached"] = "interrupted", 16
    for step in steps[steps.index(timed) + 1 :]:
        step["status"] = "not-run"
    put_run(root, 1, steps=steps, status="interrupted")
    _, row = results_of(root)
    assert ">interrupted</span> <small>16 more not reached</small>" in row[-1]


def test_home_begins_with_what_it_is_and_the_verdict(root):
    made = home_page(root)
    title, about, verdict, *_ = made.split("\n\n## ")[0].split("\n\n", 3)
    assert title.startswith("# ") and "work on GPU kernels" in about
    assert verdict.startswith('<div class="kb-verdict"')
    places = [made.index(words) for words in (
        "1.00 times the speed of the best peer in Cases of copy", "What went wrong?",
        "How fast is it?", "What did it cost?", 'class="kb-chart', "{#running}",
        "Where the work stands", "{#results}", "{#open-bugs}", "{#audit}", "{#runs}", "kb-figure",
    )]  # fmt: skip
    assert places == sorted(places)


def test_home_leads_whoever_has_a_question_somewhere(root):
    made = home_page(root)
    for target in ("symptoms/index.md", "patterns/index.md", "bugs/index.md", "compare.md",
                   "recipes/index.md", "guide/attach.md", "costs.md", "sessions/index.md",
                   "audit.md", "kernels/copy.md"):  # fmt: skip
        assert f"]({target})" in made.partition("{#running}")[0], target


def test_home_shows_the_session_started_last(root):
    """Lines of work stand one after another: the last in the list is not always the newest."""
    made = {}
    for number in (0, 1):
        path = root / "sessions" / trees.session_id(number) / "session.yaml"
        text = path.read_text()
        path.write_text(text.replace("2025-10-12T19:42Z", "2025-10-12T19:52Z"))
        (made[number],) = re.findall("Where the work stands: .*", home_page(root))
        path.write_text(text)
    assert made[0] != made[1]
    assert all(f"sessions/{trees.session_id(number)}.md" in made[number] for number in made)


def test_a_changed_case_starts_a_new_history(root):
    steps = copy.deepcopy(template(root)["steps"])
    benchmark = next(step for step in steps if step["id"] == "time")["result"]
    benchmark["cases"][0]["name"] = "another"
    put_run(root, 1, steps=steps)
    row = next(r for r in part(home_page(root), "results").splitlines() if "kernels/" in r)
    assert "one run so far" in row


def test_a_figure_leads_to_its_place_and_is_what_the_index_counts(root):
    made, index = home_page(root), index_of(root)
    counts = index.audit.counts
    wrong = counts["inconsistent"] + counts["decision"]
    assert f"[**{wrong}**](audit.md)" in made
    for grade in ("decision", "inconsistent", "undetermined"):
        assert f"[{counts[grade]}](audit.md#{grade})" in part(made, "audit")
    is_open = sum(case.is_open for case in index.bugs.values())
    assert f"[**{is_open}**](bugs/index.md)" in made


def test_an_empty_knowledge_base_says_what_is_missing(tmp_path):
    made = home_page(trees.empty(tmp_path / "kb"))
    for name, why in (
        ("results", "No data because no run"), ("runs", "No recipe was run"),
        ("open-bugs", "No session's record names a bug"), ("audit", "No record makes a claim"),
        ("running", "No session is running"),
    ):  # fmt: skip
        assert why in part(made, name)


def test_a_bug_shows_what_validation_makes_of_its_edits(root):
    index = index_of(root)
    last, first = trees.session_id(1), trees.session_id(0)
    made = unescape(bug.page(index, index.bugs[last, "nan"]))
    back = part(made, "mutants")
    assert '| <span class="kb-chip kb-chip--good">found</span> | 1 of 1 |' in back
    assert "0.1: missed in <code>words about case</code>" in back
    assert f"runs/{last}/20251121T101010Z-copy.md" in back
    assert "Found by <code>words about case</code>. The first says: words about noticed" in back
    assert "No edit puts this bug back" in bug.page(index, index.bugs[first, "odd_.x"])
    assert ">found<" in next(
        row for row in bug.listing(index).splitlines() if f"{last}/nan.md" in row
    )


def test_what_the_bound_refuses_is_told_and_the_newest_run_counts(root):
    steps = copy.deepcopy(template(root)["steps"])
    result = next(step for step in steps if step["id"] == "put")["result"]
    result["mutants"][0]["over_bound"] = [0]
    put_run(root, 1, steps=steps)
    index = index_of(root)
    made = unescape(bug.page(index, index.bugs[trees.session_id(1), "nan"]))
    assert "0.1: found too" in made and "missed in" not in made
    assert "20251123T101010Z-copy.md" in made


def test_an_edit_that_no_run_put_back_says_so(root):
    for path in (root / "sessions").glob("*/runs/*.json"):
        path.unlink()
    index = index_of(root)
    case = index.bugs[trees.session_id(1), "nan"]
    assert "no run has put it back yet" in bug.page(index, case)
    assert ">never run<" in bug.listing(index)


def test_expected_times_are_the_medians_of_runs_alike_on_one_machine(root):
    def steps_of(made: str) -> dict[str, list[str]]:
        rows = (row.split(" | ") for row in made.splitlines() if re.match(r"\| \d", row))
        return {cells[1].rpartition(" ")[2]: cells[2:] for cells in rows}

    def taking(seconds: float) -> list[dict[str, Any]]:
        return [{**step, "seconds": seconds} for step in template(root)["steps"]]

    put_run(root, 1, steps=taking(6.2))
    put_run(root, 2, steps=taking(100), parameters={"seed": "another"},
            machine={**template(root)["machine"], "cpu": "faster"})  # fmt: skip
    index = index_of(root)
    made = unescape("\n".join(recipe.steps(index, index.recipes["copy"][1], settings=False)))
    header = next(line for line in made.splitlines() if "Declared" in line)
    assert header.split(" | ")[4:] == [
        "Took on faster, 2 cores", "Took on words about cpu, 2 cores |"
    ]  # fmt: skip
    # The template's run built in its first attempt, 4.2 s, and failed to validate there; what the
    # second attempt kept says nothing new.
    assert steps_of(made)["build"] == [
        "<code>build</code>", "5 s", "100 s <small>n = 1</small>",
        "5.20 s <small>n = 2</small> |",
    ]  # fmt: skip
    assert steps_of(made)["validate"][3] == "6.20 s <small>n = 1</small> |"


def test_machines_with_the_same_card_are_distinguished(root):
    for number, (cpu, cores) in enumerate((("a", 16), ("b", 16), ("b", 32)), 1):
        machine = {**template(root)["machine"], "card": "H200", "cpu": cpu, "cores": cores}
        put_run(root, number, machine=machine)
    index = index_of(root)
    made = unescape("\n".join(recipe.steps(index, index.recipes["copy"][1], settings=False)))
    header = next(line for line in made.splitlines() if "Declared" in line)
    assert re.findall(r"Took on ([^|]*) \|", header) == [
        "H200, 32 cores", "H200, 16 cores, b", "H200, 16 cores, a"
    ]  # fmt: skip


def test_a_recipe_s_command_repeats_no_default_and_an_empty_one_is_a_word(root):
    path = root / "patterns" / "p01.yaml"
    record = json.loads(path.read_text())
    record["recipes"][0]["parameters"]["part"] = {"type": "str", "default": "", "help": "a part"}
    path.write_text(json.dumps(record))
    index = index_of(root)
    made = unescape(recipe.page(index, *index.recipes["copy"]))
    assert "<code>kbtool run-recipe copy</code>" in made
    assert "| <code>part</code> | text | empty | a part |" in made
    assert "<code></code>" not in made


def test_a_recipe_that_never_ran_says_that_its_times_are_declared(root):
    for path in (root / "sessions").glob("*/runs/*.json"):
        path.unlink()
    index = index_of(root)
    table, why = recipe.steps(index, index.recipes["copy"][1], settings=True)
    assert "Took" not in table and "it was never run here" in why


def test_both_pages_name_the_pattern_that_replaced_another(root):
    index = index_of(root)
    for name, how, other in (("P01", "Superseded by", "P02"), ("P02", "Supersedes", "P01")):
        made = unescape(pattern.page(index, index.patterns[name]))
        (row,) = (line for line in made.splitlines() if line.startswith(f"| {how} |"))
        assert f"({other}.md)" in row and "words about since" in row
        assert f"../sessions/{trees.session_id(0)}.md" in row


def test_a_paused_session_has_begun_then_and_not_paused_then(root, monkeypatch):
    monkeypatch.setattr(home, "_LONG_PAUSED", timedelta(days=60))
    assert " begun 2025-10-12 19:42 UTC" in part(home_page(root), "running")


@pytest.mark.parametrize(("days", "listed"), [(30, True), (31, False)])
def test_a_session_that_paused_long_before_the_newest_run_is_counted(
    root, monkeypatch, days, listed
):
    index = index_of(root)
    since = index.runs_of()[0].started - timedelta(days=days)
    monkeypatch.setattr(home, "moment", lambda session: since)
    told = part(unescape(home.page(index, None)), "running").split("Where the work stands")[0]
    assert (" begun 2025-10-12" in told) == listed
    counted = "[1 session](sessions/index.md) has been paused since more than 30 days before"
    assert (counted in told) == (not listed)


def test_the_table_of_patterns_has_what_one_chooses_by(root):
    index = index_of(root)
    made = unescape(pattern.listing(index))
    assert "| Pattern | Lesson | Gain | Evidence | Verdict |" in made
    for name, account in index.accounts.items():
        (row,) = (line for line in made.splitlines() if f"<small>{name}</small>" in line)
        assert f"[{account.pattern.title}]({name}.md)" in row
        assert pattern.verdicts(account) in row and f">{account.standing}</span>" in row


def test_the_statuses_of_the_list_of_bugs_add_up_with_what_is_open(root):
    change_status(root, confirmed="false")
    index = index_of(root)
    made = unescape(bug.listing(index))
    card = made.partition("kb-facts")[2].partition("</div>")[0]
    found = re.findall(r">([\w -]+)</span> </small><br>\[?(\d+)", card)
    counts = {word: int(n) for word, n in found}
    told = int(re.search(r"bugs, (\d+) unresolved", made)[1])
    words = [f"{counts['open']} open"] if "open" in counts else []
    words.append(f"{counts['fix unconfirmed']} with a fix that no test confirmed")
    assert f" {told} unresolved: {', '.join(words)}." in made
    assert counts["recurred"] == 1 and sum(counts.values()) == len(index.bugs)
    assert counts.get("open", 0) + counts.get("fix unconfirmed", 0) == told


def change_status(root, **of_fix):
    for path in (root / "sessions").glob("*/session.yaml"):
        record = json.loads(path.read_text())
        record["fixes"] = [{**fix, **of_fix} for fix in record["fixes"]]
        path.write_text(json.dumps(record))


def test_a_bug_without_a_symptom_is_listed_with_cause_and_target(root):
    path = root / "sessions" / trees.session_id(1) / "session.yaml"
    record = json.loads(path.read_text())
    record["bugs"][0]["symptom"] = None
    path.write_text(json.dumps(record))
    index = index_of(root)
    made = unescape(bug.listing(index))
    row = next(line for line in made.splitlines() if f"{trees.session_id(1)}/nan.md" in line)
    assert "<small>Cause: words about cause</small>" in row
    assert 'cpu <span class="kb-chip kb-chip--good">found</span>' in row


def test_a_bug_leads_to_its_source_and_a_run_to_the_edit(root):
    path = root / "sessions" / trees.session_id(1) / "session.yaml"
    record = json.loads(path.read_text())
    record["sources"]["log"]["url"] = "https://example.org/issues/1"
    path.write_text(json.dumps(record))
    index = index_of(root)
    made = unescape(bug.page(index, index.bugs[trees.session_id(1), "nan"]))
    assert 'words about source · <a href="https://example.org/issues/1" rel=' in made
    assert "- words about find\n+ words about put" in made
    attempts = next(iter(index.runs.values()))
    assert "/nan.md#mutants.put-back)" in unescape(run.page(index, attempts))


def test_a_mutant_that_its_bug_no_longer_has_is_no_link(root):
    path = root / "sessions" / trees.session_id(1) / "session.yaml"
    record = json.loads(path.read_text())
    record["bugs"][0]["mutants"][0]["id"] = "put-otherwise"
    path.write_text(json.dumps(record))
    index = index_of(root)
    made = unescape(run.page(index, next(iter(index.runs.values()))))
    assert "put-back" in made and "#mutants.put-back" not in made


def test_runs_are_listed_with_their_moment_and_one_line_names_them_all(root):
    put_run(root, 1)
    index = index_of(root)
    listed = unescape(run.listing(index))
    assert "| Run | Recipe | Session |" in listed and ">[2025-11-23 10:10 UTC](" in listed
    mentioned = recipe.page(index, *index.recipes["copy"]).partition("{#mentioned-by}")[2]
    (line,) = (one for one in mentioned.splitlines() if "-copy.md" in one)
    assert line.startswith('- runs: <span class="kb-nowrap">[2025-11-23 10:10 UTC](')
    assert line.count("](") == 2


def newest(root):
    index = index_of(root)
    return run.page(index, next(iter(index.runs.values())))


def test_an_environment_step_without_missing_tools_has_no_section(root):
    steps = copy.deepcopy(template(root)["steps"])
    assert "{#step-1}" in newest(root)
    steps[0]["result"]["missing"] = []
    put_run(root, 1, steps=steps)
    made = newest(root)
    assert "{#step-1}" not in made and "(#step-1)" not in made and "{#step-2}" in made
    index = index_of(root)
    (name,) = {name for _, name in index.runs if name.startswith("20251123")}
    assert "#" not in index.place(f"{name}#steps.environment.missing", "")
    assert index.place(f"{name}#steps.build.bytes", "").endswith("#step-2")


def test_a_run_says_at_its_head_where_it_was_measured_and_at_which_commit(root):
    def card():
        return unescape(newest(root)).partition("kb-facts")[2].partition("</div>")[0]

    assert "[words about cpu, 2 cores](#machine)" in card()
    assert "| CPU | words about cpu |" in unescape(newest(root))
    assert "[<code>7e12345</code>, work tree changed](#machine)" in card()
    figures = {"sm_clock_mhz": "1980", "l2_bytes": "52428800"}
    machine = {**template(root)["machine"], "card": "H200", "driver": "580", **figures}
    state = {**template(root)["repository"], "commit": None}
    put_run(root, 1, machine=machine, repository=state)
    made = unescape(newest(root))
    assert "| L2 cache | 52,428,800 bytes |" in made and "| SM clock | 1,980 MHz |" in made
    assert "[H200, driver 580](#machine)" in card() and "[unknown](#machine)" in card()


def test_a_run_says_what_took_part(root):
    identity = {
        "problem": {"kernels/copy/harness.py": "a" * 64},
        "solution": {"kernels/copy/interface.py": "b" * 64},
        "packages": {"torch": "2.13.0"},
    }
    put_run(root, 1, identity=identity)
    part = unescape(newest(root)).partition("{#identity}")[2]
    assert "| problem | <code>kernels/copy/harness.py</code> | <code>aaaaaaaaaaaa</code> |" in part
    assert (
        "| solution | <code>kernels/copy/interface.py</code> | <code>bbbbbbbbbbbb</code> |" in part
    )
    assert "Packages: torch 2.13.0" in part
    put_run(root, 2, identity=None)
    assert "{#identity}" not in newest(root)


def test_what_a_run_calls_an_arm_is_an_implementation_on_its_page(root):
    steps = copy.deepcopy(template(root)["steps"])
    result = next(step for step in steps if step["id"] == "time")["result"]
    result["protocol"] = "5 samples an arm, arms in turn, on an Arm64 or ARM processor"
    put_run(root, 1, steps=steps)
    said = "5 samples an implementation, implementations in turn, on an Arm64 or ARM processor"
    assert said in unescape(newest(root))


def test_how_it_was_timed_stands_before_the_charts_of_which_each_set_has_one(root):
    made = unescape(newest(root))
    assert "<summary>How it was timed</summary>\n\nwords about protocol" in made
    assert made.index("How it was timed") < made.index("kb-plot")
    assert made.count("kb-plot") == 1
    steps = copy.deepcopy(template(root)["steps"])
    cases = next(step for step in steps if step["id"] == "time")["result"]["cases"]
    cases[0]["case_set"] = "one"
    cases.append({**cases[0], "case_set": "two", "name": "another"})
    put_run(root, 1, steps=steps)
    made = unescape(newest(root))
    assert made.count("kb-plot") == 2
    assert made.index("**one**") < made.index("kb-plot") < made.index("**two**")


def test_summary_columns_come_before_the_times_of_other_arms(root):
    steps = copy.deepcopy(template(root)["steps"])
    cases = next(step for step in steps if step["id"] == "time")["result"]["cases"]
    cases[0]["workspace_bytes"] = {"words about ours": 0}
    put_run(root, 1, steps=steps)
    made = unescape(newest(root))
    (header,) = (line for line in made.splitlines() if "| Right after timing |" in line)
    assert [cell.strip() for cell in header.split("|")][1:-1] == [
        "Case", "words about ours (µs)", "Speed against words about theirs",
        "Against the fastest peer of this run", "Share of ceiling", "Right after timing",
        "words about theirs (µs)",
    ]  # fmt: skip
    assert "No workspace in any case: words about ours." in made and "(bytes)" not in made
