"""``kbtool sweep`` on this machine: cells, their runs, what need not run again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kbtool.model.sweep import digest_of
from kbtool.store.tree import KnowledgeBase
from kbtool.sweeps.plan import axes_of

REPOSITORY = Path(__file__).parents[2]

MATRIX = ("cheap", "--over", "n=1,2", "--over", "ends=well,badly")


def test_a_dry_run_shows_each_cell_and_writes_nothing(swept):
    said = swept.swept(*MATRIX, "--set", "seconds=0.5", "--dry-run")
    assert [one["parameters"] for one in said["cells"]] == [
        {"seconds": "0.5", "n": n, "ends": ends} for n in "12" for ends in ("well", "badly")
    ]
    assert [one["id"] for one in said["cells"]] == ["1", "2", "3", "4"]
    assert said["counts"] == {"waiting": 4, "reused": 0} and said["expected_s"] == 4
    assert not list(swept.root.glob("sessions/*")) and not (swept.root / ".kbtool/sweeps").exists()


def test_each_cell_is_a_run_with_its_parameters(swept):
    said = swept.swept(*MATRIX, code=1)
    assert [one["status"] for one in said["cells"]] == ["passed", "failed"] * 2
    assert said["counts"] == {"passed": 2, "failed": 2, "reused": 0}
    for cell in said["cells"]:
        run = swept.runs[cell["run"]]
        assert cell["parameters"].items() <= run["parameters"].items()
        assert (run["status"], run["session"]) == (cell["status"], said["session"])
        # Made from an archive, without git, and yet it knows what it is of.
        assert run["repository"] == {
            "commit": swept.first, "branch": "main", "dirty": False, "changed_during_run": False,
        }  # fmt: skip
        assert cell["attempts"][0]["machine"] == run["machine"]["cpu"]
    swept.sound()


def test_what_ran_already_is_not_run_again_and_says_so(swept):
    first = swept.swept("cheap", "--over", "n=1,2")
    again = swept("cheap", "--over", "n=1,2,3")
    assert again.code == 0
    last = swept.last
    runs = [cell.run for cell in last.cells]
    assert runs[:2] == [one["run"] for one in first["cells"]]
    assert [cell.reused for cell in last.cells] == [True, True, False]
    assert [len(cell.attempts) for cell in last.cells] == [0, 0, 1]
    assert again.out.count("from run") == 2
    assert "3 passed, 2 of them from earlier runs" in again.out
    assert len(swept.runs) == 3
    swept.sound()
    # The first commit is not packed where all its cells have runs.
    done = swept("cheap", "--over", "n=1", "--over", f"commit={swept.first}")
    assert done.code == 0 and "nothing to run" in done.err
    done = swept("resume", "last", "--cell", "1")
    assert done.code == 2 and "was not packed" in done.err
    assert len(swept.swept("cheap", "--over", "n=1,2", "--again")["cells"]) == 2
    assert len(swept.runs) == 5


@pytest.mark.parametrize("change", ["program", "recipe", "dirty then", "parameter", "failed"])
def test_a_run_of_something_else_stands_for_no_cell(swept, change):
    value = {"failed": "ends=badly", "parameter": "seconds=0.01"}.get(change, "n=1")
    if change == "dirty then":
        (swept.root / "patterns" / "more.yaml").write_text("")
    swept("cheap", "--over", value)
    (swept.root / "patterns" / "more.yaml").unlink(missing_ok=True)
    if change == "program":
        (swept.root / "work.py").write_text("pass\n")
    if change == "recipe":
        path = swept.root / "patterns" / "P01.yaml"
        path.write_text(path.read_text().replace("timeout: 60 s", "timeout: 61 s"))
    if change in ("program", "recipe"):
        swept.commit("another")
    over = value if change == "failed" else "n=1"
    said = swept.swept("cheap", "--over", f"commit={swept.git('rev-parse', 'HEAD')}",
                       "--over", over, "--dry-run")  # fmt: skip
    assert not said["cells"][0]["reused"]


def test_a_run_of_a_commit_stands_for_it_after_the_recipe_has_changed(swept):
    """A cell runs the recipe of its commit, not that of the work tree."""
    before = swept.swept("cheap", "--over", "n=1", "--over", f"commit={swept.first}")
    path = swept.root / "patterns" / "P01.yaml"
    first = path.read_text()
    path.write_text(first.replace("timeout: 60 s", "timeout: 61 s"))
    second = swept.commit("more time")
    over = ("--over", "n=1", "--over", f"commit={swept.first},{second}", "--dry-run")
    cells = swept.swept("cheap", *over)["cells"]
    assert [one["run"] for one in cells] == [before["cells"][0]["run"], None]
    # Also where the work tree is no commit, and knows a parameter that the commit does not.
    more = '      m: {type: int, default: "1", help: more}\n      n:'
    path.write_text(first.replace("      n:", more))
    assert swept.swept("cheap", *over)["cells"][0]["reused"]
    assert not swept.swept("cheap", *over, "--set", "m=2")["cells"][0]["reused"]


def test_commits_run_what_they_hold(swept):
    (swept.root / "work.py").write_text("import sys\nsys.exit('broken here')\n")
    second = swept.commit("breaks it")
    (swept.root / "work.py").write_text("print('mended')\n")
    path = swept.root / "patterns" / "P01.yaml"
    path.write_text(path.read_text().replace('default: "1"', 'default: "7"'))
    third = swept.commit("mends it")
    (swept.root / "work.py").write_text("this is no Python\n")  # of no commit: nobody runs it
    said = swept.swept("cheap", "--over", "commit=HEAD~2..HEAD", code=1)
    assert [(one["commit"], one["status"]) for one in said["cells"]] == [
        (swept.first, "passed"), (second, "failed"), (third, "passed"),
    ]  # fmt: skip
    runs = [swept.runs[one["run"]] for one in said["cells"]]
    assert [run["repository"]["commit"] for run in runs] == [swept.first, second, third]
    assert [run["parameters"]["n"] for run in runs] == ["1", "1", "7"]
    assert "broken here" in json.dumps(runs[1])
    swept.sound()


def test_a_commit_without_the_recipe_says_so_and_the_others_run(swept):
    path = swept.root / "patterns" / "P01.yaml"
    now = path.read_text()
    path.write_text(now.replace("cheap", "dear"))
    swept.commit("another name")
    path.write_text(now)
    third = swept.commit("the name again")
    said = swept.swept("cheap", "--over", "commit=HEAD~1..HEAD", code=1)
    first, second = said["cells"]
    assert (first["status"], first["run"]) == ("failed", None)
    assert "there is no recipe 'cheap'" in first["message"]
    assert (second["status"], second["commit"]) == ("passed", third)
    swept.sound()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("cheap", "--over", "n"), "write NAME=VALUE,VALUE"),
        (("cheap", "--over", "n=1", "--over", "n=2"), "n is given twice"),
        (("cheap", "--over", "n=1", "--set", "n=2"), "n is given twice"),
        (("cheap", "--over", "n=x"), "'x' is not an int"),
        (("cheap", "--over", "m=1"), "recipe cheap has no such parameter; it has n, ends"),
        (("cheap", "--over", "commit=nowhere"), "commit=nowhere: git does not know it"),
        (("cheep", "--over", "n=1"), "did you mean cheap?"),
        (("cheap", "--over", "n=1", "--engine-option", "a=1"), "engine here takes none"),
        (("cheap", "--over", "n=1", "--budget", "5"), "--budget: "),
        (("show", "nothing"), "there is no sweep 'nothing'"),
        (("resume", "last"), "there is no sweep 'last'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(swept, arguments, says):
    done = swept(*arguments)
    assert done.code == 2 and says in done.err
    assert not list(swept.root.glob("sessions/*"))


def test_above_the_budget_it_asks_and_without_a_terminal_it_refuses(swept):
    done = swept("cheap", "--over", "n=1", "--budget", "5 USD")
    assert done.code == 2 and "what it costs is not known" in done.err and "--yes" in done.err
    assert swept("cheap", "--over", "n=1", "--budget", "5 USD", "--yes").code == 0


def rewritten(swept, change, *, sealed=True):
    path = swept.records[-1]
    record = json.loads(path.read_text())
    change(record)
    if sealed:
        record["digest"] = digest_of(record)
    path.write_text(json.dumps(record))


def cell_of(record, number):
    return record["cells"][number - 1]


def passes(record):
    cell_of(record, 2)["status"] = cell_of(record, 2)["attempts"][0]["status"] = "passed"


def other_run(record):
    for one in (cell_of(record, 1), cell_of(record, 1)["attempts"][0]):
        one["run"] = "20250101T090000Z-cheap-0000"


def swapped(record):
    first, second = cell_of(record, 1), cell_of(record, 2)
    first["parameters"], second["parameters"] = second["parameters"], first["parameters"]


def commit(record):
    cell_of(record, 1)["commit"] = "0" * 40


def recipe(record):
    record["recipe"] = "dear"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (passes, "cell 2 counts run {1}, which failed; the cell says passed"),
        (other_run, "cell 1 counts run 20250101T090000Z-cheap-0000, which does not exist"),
        (swapped, "cell 1 counts run {0}, which has ends=well, not badly"),
        (commit, "cell 1 counts run {0}, which is of commit "),
        (recipe, "cell 1 counts run {0}, which is of recipe cheap, not of dear"),
    ],
)
def test_check_finds_a_sweep_that_says_what_its_runs_do_not(kbtool, swept, change, says):
    swept("cheap", "--over", "ends=well,badly")
    runs = [cell.run for cell in swept.last.cells]
    rewritten(swept, change)
    done = kbtool("check", root=swept.root)
    assert done.code == 1 and says.format(*runs) in done.out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: cell_of(r, 1).update(run=None), "cell 1 passed, but names no run"),
        (lambda r: cell_of(r, 1).update(reused=True), "is either its own or reused"),
        (lambda r: cell_of(r, 2).update(id="7"), "cells are numbered 1, 2"),
        (lambda r: cell_of(r, 2).update(cell_of(r, 1), id="2"), "counts for two attempts"),
        (lambda r: cell_of(r, 1).update(status="noisy"), "its last attempt is not"),
        (lambda r: r.update(ended=None), "has an end if, and only if, it is over"),
    ],
)
def test_a_sweep_that_contradicts_itself_does_not_load(kbtool, swept, change, says):
    swept("cheap", "--over", "n=1,2")
    rewritten(swept, change)
    done = kbtool("check", root=swept.root)
    assert done.code == 1 and says in done.out, done.out
    assert swept("show").code == 1


def test_an_edited_sweep_is_unsealed_and_one_elsewhere_is_misplaced(kbtool, swept):
    swept("cheap", "--over", "n=1")
    rewritten(swept, lambda record: record.update(tries=9), sealed=False)
    assert "unsealed" in kbtool("check", root=swept.root).out
    rewritten(swept, lambda record: record.update(tries=9))
    swept.records[-1].rename(swept.records[-1].with_name("20250101T000000Z-x.json"))
    assert "belongs at sessions/" in kbtool("check", root=swept.root).out


def test_costs_of_cards_are_entered_once_however_often_it_goes_on(swept):
    from datetime import UTC, datetime, timedelta

    from kbtool.ledger.held import enter, held
    from kbtool.model.sweep import Attempt

    swept("cheap", "--over", "n=1,2")
    swept.knowledge.write(
        "sessions/ledger.yaml",
        "# yaml-language-server: $schema=../schemas/ledger.json\nrates:\n"
        "  - {id: l4, kind: gpu, rate: 0.60 USD/h, day: 2025-10-12, card: L4}\n",
    )
    base, record = KnowledgeBase(swept.root), swept.last
    began = datetime(2026, 1, 1, tzinfo=UTC)

    def ran(minutes: int, cards: int, machine: str) -> Attempt:
        return Attempt(
            queued=began, started=began, ended=began + timedelta(minutes=minutes), status="lost",
            machine=machine, cards=cards, busy_s=60.0,
        )  # fmt: skip

    one, two = record.cells
    one.attempts[:] = [ran(10, 1, "NVIDIA L4"), ran(10, 2, "NVIDIA L4")]
    two.attempts[:] = [ran(10, 1, "NVIDIA H100"), ran(99, 0, "a processor")]
    l4, h100 = held(base, record)
    assert (l4.card, l4.held_s, l4.busy_s, str(l4.money)) == ("NVIDIA L4", 1800, 180, "0.30")
    assert (h100.card, h100.money) == ("NVIDIA H100", None)
    for minutes, stated in ((30, "0.30"), (40, "0.40")):
        left = enter(base, record)
        assert left == ["NVIDIA H100: sessions/ledger.yaml has no rate of it"]
        (line,) = KnowledgeBase(swept.root).session(record.session).record.costs
        assert (str(line.duration), str(line.amount), line.basis, line.rate_id) == (
            f"{minutes}.0 min", stated, "estimated", "l4",
        )  # fmt: skip
        one.attempts.append(ran(10, 1, "NVIDIA L4"))


def test_the_archive_tells_what_it_is_of(swept, tmp_path):
    from kbtool.model.errors import UsageError
    from kbtool.store.carried import pack, unpack
    from kbtool.store.repository import repository_state

    swept("cheap", "--over", "n=1")
    session = swept.last.session
    archives = [tmp_path / f"{name}.tar" for name in "ab"]
    digests = [pack(swept.root, None, session, one) for one in archives]
    assert digests[0] == digests[1]
    there = tmp_path / "there"
    unpack(archives[0], digests[0], there)
    assert not (there / "sessions" / session / "runs").exists()
    state = repository_state(there)
    assert (state.commit, state.dirty) == (swept.first, False)
    (there / "sessions" / session / "notes.md").write_text("a record is no difference")
    assert repository_state(there).dirty is False
    (there / "work.py").write_text("pass\n")
    assert repository_state(there).dirty is True
    archives[1].write_bytes(archives[1].read_bytes().replace(b"sys.exit", b"sys.quit"))
    with pytest.raises(UsageError, match="digest differs"):
        unpack(archives[1], digests[1], tmp_path / "elsewhere")


@pytest.mark.parametrize("file", ["README.md", "docs/guide/sweeps.md"])
def test_the_sweeps_that_the_guide_shows_are_of_recipes_as_they_are(file):
    base = KnowledgeBase(REPOSITORY)
    shown = re.findall(
        r"kbtool sweep ([a-z]\S*) (--over .*?)[`\n]", (REPOSITORY / file).read_text()
    )
    assert shown
    for name, options in shown:
        over = [one for one in re.findall(r"--over (\S+)", options) if "commit=" not in one]
        assert over and axes_of(REPOSITORY, base.recipes()[name][1], over, {})
