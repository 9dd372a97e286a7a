"""``kbtool forget``: a recipe goes, its runs stay readable, and ``check`` passes."""

from __future__ import annotations

import json

import pytest
from knowledge import KERNEL, LOOK, RECIPE, RUN, Knowledge, sealed
from site_html import read_site

from kbtool.store.tree import KnowledgeBase

WHY = "given up for a library call"
EXCUSES = "sessions/excuses.yaml"


@pytest.fixture
def ran(base: Knowledge) -> Knowledge:
    """A recipe of a pattern of its own, with a kernel, two runs, and evidence for the pattern."""
    base.pattern("P91", more=RECIPE)
    base.kernel(KERNEL)
    base.session(
        more="kernels: [add]\nevidence:\n  - {pattern: P91, verdict: applied, note: it helped}\n"
    )
    run = {**RUN, "recipe": "add", "pattern": "P91", "kernel": "add"}
    for number in range(2):
        id_ = f"20250101T09000{number}Z-add"
        base.write(f"sessions/2025-01-01-a/runs/{id_}.json", sealed({**run, "id": id_}))
    return base


def delete(base: Knowledge) -> None:
    (base.root / "patterns/P91.yaml").unlink()
    for file in sorted((base.root / "kernels/add").iterdir()):
        file.unlink()
    (base.root / "kernels/add").rmdir()


def test_check_says_how_to_keep_the_runs_of_a_recipe_that_was_deleted(ran):
    delete(ran)
    said = [finding.message for finding in ran.findings() if finding.path.endswith(".json")]
    hint = "; if recipe 'add' was deleted on purpose: `kbtool forget add --reason WHY`"
    assert said == 2 * [
        f"names kernel add, which does not exist{hint}",
        f"names pattern P91, which does not exist{hint}",
    ]


@pytest.mark.slow
def test_a_recipe_that_was_deleted_is_forgotten_and_check_passes(kbtool, ran):
    delete(ran)
    assert len(ran.findings()) == 6
    done = kbtool("forget", "add", "--reason", WHY, root=ran.root)
    assert (done.code, done.out) == (
        0, "recipe add is forgotten; 2 runs of it stay readable\n"
    )  # fmt: skip
    for cached in (False, True, True):
        assert ran.findings(cached=cached) == []
    [entry] = KnowledgeBase(ran.root).forgotten
    assert (entry.recipe, entry.patterns, entry.kernels) == ("add", ["P91"], ["add"])
    assert (entry.reason, entry.title, entry.at.zoned) == (WHY, None, True)
    shown = kbtool("session", "show", "a", root=ran.root)
    assert "20250101T090000Z-add" in shown.out
    for command in (["costs"], ["status"], ["patterns"], ["history", "add"], ["export", "runs"]):
        done = kbtool(*command, root=ran.root)
        assert done.code in (0, 1, 2) and "bug in kbtool" not in done.err, done.err


def test_one_run_of_it_stays_readable(kbtool, ran):
    next(ran.root.glob("sessions/*/runs/*.json")).unlink()
    done = kbtool("forget", "add", "--reason", WHY, root=ran.root)
    assert done.out == "recipe add is forgotten; 1 run of it stays readable\n", done.err


def test_a_recipe_that_is_there_is_taken_out_of_its_pattern(kbtool, ran):
    pattern = ran.root / "patterns/P91.yaml"
    second = "".join(LOOK.splitlines(keepends=True)[1:])
    pattern.write_text(pattern.read_text() + "  # another\n" + second)
    ran.write(EXCUSES, "# yaml-language-server: $schema=../schemas/excuses.json\nexcuses: []\n")
    done = kbtool("forget", "add", "--reason", WHY, "--json", root=ran.root)
    said = json.loads(done.out)
    assert said["left"] == ["kernels/add/kernel.yaml", "patterns/P91.yaml"]
    assert said["forgotten"]["title"] == "Build and validate"
    base = KnowledgeBase(ran.root)
    assert list(base.recipes()) == ["look"] and "# another" in pattern.read_text()
    assert ran.findings() == []
    delete(ran)
    assert ran.findings() == []


def test_the_last_recipe_of_a_pattern_leaves_no_key_behind(kbtool, ran):
    assert kbtool("forget", "add", "--reason", WHY, root=ran.root).code == 0
    assert "recipes" not in (ran.root / "patterns/P91.yaml").read_text()
    assert ran.findings() == []


def test_it_cannot_be_run_and_the_message_says_why(kbtool, ran):
    kbtool("forget", "add", "--reason", WHY, root=ran.root)
    day = KnowledgeBase(ran.root).forgotten[0].at.day
    done = kbtool("run-recipe", "add", root=ran.root)
    assert done.code == 2
    assert f"recipe 'add' was forgotten on {day}: {WHY}" in done.err
    again = kbtool("forget", "add", "--reason", "again", root=ran.root)
    assert again.code == 2 and f"was forgotten on {day}: {WHY}" in again.err
    told = json.loads(kbtool("recipes", "--json", root=ran.root).out)["forgotten"]
    assert [(one["recipe"], one["reason"]) for one in told] == [("add", WHY)]


def test_another_recipe_may_have_its_name_later(kbtool, ran):
    kbtool("forget", "add", "--reason", WHY, root=ran.root)
    ran.pattern("P92", more=RECIPE)
    assert ran.findings() == []
    ran.pattern("P91", more=RECIPE)
    (ran.root / "patterns/P92.yaml").unlink()
    [finding] = ran.findings()
    assert (finding.path, finding.rule) == (EXCUSES, "excuse")
    assert "listed as forgotten, but P91 has it" in finding.message


def test_runs_of_other_recipes_still_need_what_they_name(kbtool, ran):
    kbtool("forget", "add", "--reason", WHY, root=ran.root)
    run = {**RUN, "id": "20250101T090009Z-other", "recipe": "other", "pattern": "P91"}
    ran.write("sessions/2025-01-01-a/runs/20250101T090009Z-other.json", sealed(run))
    assert ran.findings() == []
    delete(ran)
    [finding] = ran.findings()
    assert finding.message.startswith("names pattern P91, which does not exist")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nothing", "--reason", "x"], 2, "there is no recipe 'nothing', and no run of one"),
        (["add"], 2, "Missing option '--reason'"),
        (["add", "--reason", " "], 2, "the reason is empty"),
        (["add", "--reason", "seen in /home/ada/x"], 2, "the text"),
        (["../x", "--reason", "x"], 2, "there is no recipe '../x'"),
    ],
)
def test_what_cannot_be_forgotten_is_refused_and_nothing_is_written(
    kbtool, ran, arguments, code, said
):
    before = (ran.root / "patterns/P91.yaml").read_text()
    done = kbtool("forget", *arguments, root=ran.root)
    assert done.code == code and said in done.err
    assert not (ran.root / EXCUSES).exists()
    assert (ran.root / "patterns/P91.yaml").read_text() == before


def test_broken_files_are_refused(kbtool, ran):
    ran.write(EXCUSES, "excuses: [x\n")
    done = kbtool("forget", "add", "--reason", WHY, root=ran.root)
    assert done.code == 1 and f"{EXCUSES} is invalid; correct it first" in done.err
    (ran.root / EXCUSES).unlink()
    ran.write("patterns/P91.yaml", "id: P91\n")
    done = kbtool("forget", "add", "--reason", WHY, root=ran.root)
    assert done.code == 1 and "a pattern does not load; correct it first" in done.err


@pytest.mark.slow
def test_the_site_shows_what_was_forgotten_and_its_runs(kbtool, ran, tmp_path):
    kbtool("forget", "add", "--reason", WHY, root=ran.root)
    delete(ran)
    done = kbtool("site", "build", "--out", str(tmp_path / "out"), root=ran.root)
    assert done.code == 0, done.err
    pages = read_site(tmp_path / "out")
    listing, page = pages["recipes/index.html"], pages["recipes/add.html"]
    assert WHY in listing.text and "add.html" in listing.links
    assert WHY in page.text
    run = "runs/2025-01-01-a/20250101T090001Z-add.html"
    assert "../../recipes/add.html" in pages[run].links and f"../{run}" in page.links
