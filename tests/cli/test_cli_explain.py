"""``kbtool explain`` and ``kbtool search``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from knowledge import LOOK, Knowledge, validated

from kbtool.model.explanation import Explanation, Search

ROOT = Path(__file__).parents[2]

SYMPTOMS = """\
# yaml-language-server: $schema=../schemas/symptoms.json
id: {tool}
title: Our launcher
symptoms:
  - id: {id}
    title: The queue is full
    match: 'queue is full'
    example: 'launcher: queue is full'
    source: our launcher
    advice: Wait for a place.
    command: launcher --status
    patterns: [P01]
"""

BUG = """
bugs:
  - {id: full, title: Full again, status: fixed, error_text: 'launcher: queue is full'}
fixes:
  - {bug: '#bugs.full', change: a longer queue}
"""


@pytest.fixture
def base(tmp_path):
    made = Knowledge(tmp_path / "base")
    made.pattern(more="tags: [sorting]\n")
    made.write("symptoms/launcher.yaml", SYMPTOMS.format(tool="launcher", id="full"))
    return made


@pytest.fixture
def log(tmp_path):
    """Writes a text to a file and gives its name."""

    def write(text):
        (tmp_path / "build.log").write_text(text)
        return str(tmp_path / "build.log")

    return write


@pytest.mark.slow
def test_a_text_can_be_piped_in(base):
    command = [sys.executable, "-m", "kbtool", "--root", str(base.root), "explain"]
    for more in ([], ["-"]):
        done = subprocess.run(
            [*command, *more], input=b"queue is full", capture_output=True, cwd=ROOT, check=False
        )
        assert done.returncode == 0
        assert done.stdout.startswith(b"1. The queue is full (launcher/full)")


@pytest.mark.slow
def test_a_message_leads_to_advice_command_pattern_and_bug(base, kbtool, log):
    base.session(more=BUG)
    done = kbtool("explain", log("start\nlauncher: queue is full\n"), root=base.root)
    assert done.code == 0
    assert done.out.splitlines() == [
        "1. The queue is full (launcher/full)",
        "   line 2: launcher: queue is full",
        "   do: Wait for a place.",
        "   run: launcher --status",
        "   pattern: P01 A lesson",
        "   seen before: 2025-01-01-a#bugs.full Full again (fixed): a longer queue",
        "   source: our launcher",
    ]


@pytest.mark.slow
def test_a_cause_that_the_text_gives_away_comes_ahead_of_the_advice(base, kbtool, log):
    text = SYMPTOMS.format(tool="launcher", id="full")
    causes = "    causes: [{sign: night, advice: 'At ${n}: the backup.', command: backup --wait}]\n"
    values = "    values: {n: {after: 'full: '}}\n"
    text = text.replace("'launcher: queue is full'", "'launcher: queue is full: 1'")
    base.write("symptoms/launcher.yaml", text + causes + values)
    done = kbtool("explain", log("every night\nlauncher: queue is full: 3\n"), root=base.root)
    assert done.out.splitlines()[1:7] == [
        "   line 2: launcher: queue is full: 3",
        "   do: At 3: the backup.",
        "      as the text has: every night",
        "      run: backup --wait",
        "   else: Wait for a place.",
        "   run: launcher --status",
    ]


@pytest.mark.slow
def test_the_catalogue_of_kbtool_is_there_in_any_knowledge_base(base, kbtool, log):
    done = kbtool("explain", "--json", log("nvcc fatal   : Unknown option '-x9'\n"), root=base.root)
    found = Explanation.model_validate_json(done.out)
    assert found.fits[0].name == "nvcc/unknown-option"
    # P08 of kbtool's own repository is no pattern of this one.
    done = kbtool("explain", "--json", log("undefined reference to `f'"), root=base.root)
    fits = json.loads(done.out)["fits"]
    assert fits[0]["name"] == "linker/undefined-reference"
    assert [fit["patterns"] for fit in fits] == [[]] * len(fits)


@pytest.mark.slow
def test_people_s_words_about_something_else_find_nothing_in_any_knowledge_base(base, kbtool, log):
    base.write("symptoms/behaviour.yaml", SYMPTOMS.format(tool="behaviour", id="full"))
    for text in (
        "query results are different each time without ORDER BY\n",
        "The scheduler spins at 100% CPU while idle (RabbitMQ)\n",
    ):
        done = kbtool("explain", log(text), root=base.root)
        assert (done.code, done.out) == (1, "")
    asked = log("why are the results of my CUDA kernel different each time?\n")
    done = kbtool("explain", "--json", asked, root=base.root)
    names = [fit["name"] for fit in json.loads(done.out)["fits"]]
    assert names[0] == "behaviour/run-to-run"


@pytest.mark.slow
def test_a_symptom_of_the_knowledge_base_replaces_one_of_kbtool(base, kbtool, log):
    base.write("symptoms/ninja.yaml", SYMPTOMS.format(tool="ninja", id="build-stopped"))
    done = kbtool("explain", "--json", log("ninja: build stopped"), root=base.root)
    assert "ninja/build-stopped" not in [fit["name"] for fit in json.loads(done.out)["fits"]]
    done = kbtool("explain", "--json", log("queue is full"), root=base.root)
    names = [fit["name"] for fit in json.loads(done.out)["fits"]]
    assert names == ["launcher/full", "ninja/build-stopped"]


@pytest.mark.slow
def test_nothing_fits_is_said_with_the_command_that_records_the_case(base, kbtool, log):
    done = kbtool("explain", log("It was a bright cold day in April.\n"), root=base.root)
    assert (done.code, done.out) == (1, "")
    assert "nothing that is known fits: 1 line read" in done.err
    assert "kbtool session bug" in done.err


@pytest.mark.slow
def test_a_case_is_recorded_with_the_lines_that_report_the_error(base, kbtool, log):
    assert kbtool("session", "new", "Odd builds", root=base.root).code == 0
    file = log("step 1\nat /home/me/k.cu:3: \x1b[31mfatal: the frobnicator is out of step\nbye\n")
    done = kbtool("explain", file, root=base.root)
    assert f"--from-explain {file}" in done.err
    added = kbtool("session", "bug", "Out of step", "--from-explain", file, root=base.root)
    assert added.code == 0, added.err
    shown = json.loads(kbtool("session", "show", "--json", root=base.root).out)["session"]
    [bug] = shown["bugs"]
    assert bug["error_text"] == "at …/k.cu:3: fatal: the frobnicator is out of step"
    # Of a text with known symptoms, only the lines with causes are recorded.
    file = log("error: first\nlauncher: queue is full\nerror: last\n")
    again = kbtool("session", "bug", "Full", "--from-explain", file, root=base.root)
    assert again.code == 0, again.err
    shown = json.loads(kbtool("session", "show", "--json", root=base.root).out)["session"]
    assert shown["bugs"][1]["error_text"] == "launcher: queue is full"
    # What is recorded is named by the next explanation.
    known = json.loads(kbtool("explain", "--json", file, root=base.root).out)
    assert [bug["id"] for bug in known["fits"][0]["bugs"]] == ["full"]


@pytest.mark.slow
def test_a_text_without_an_error_records_no_case(base, kbtool, log):
    assert kbtool("session", "new", "Odd builds", root=base.root).code == 0
    done = kbtool("session", "bug", "Odd", "--from-explain", log("all is well\n"), root=base.root)
    assert done.code == 2
    assert "reports an error" in done.err
    assert (
        "bugs" not in json.loads(kbtool("session", "show", "--json", root=base.root).out)["session"]
    )


@pytest.mark.slow
def test_control_characters_of_a_log_do_not_reach_the_terminal(base, kbtool, log):
    done = kbtool("explain", log("\x07\x9b2J queue is full \x1b]0;title\x07\n"), root=base.root)
    assert done.code == 0
    assert not set("\x07\x9b\x1b") & set(done.out)


@pytest.mark.slow
def test_the_failing_steps_of_a_run_are_explained(base, kbtool):
    base.pattern(more=LOOK)
    base.session()
    run = base.run(validated(1, passed=False, step={"error": "launcher: queue is full"}))
    done = kbtool("explain", "--run", run, root=base.root)
    assert done.out.startswith("1. The queue is full (launcher/full)")
    done = kbtool("explain", "--run", "20250101T000000Z-none", root=base.root)
    assert done.code == 2
    assert "there is no run" in done.err


def test_what_is_wrong_with_the_call_is_said(base, kbtool):
    done = kbtool("explain", "nowhere.log", root=base.root)
    assert (done.code, "cannot be read" in done.err) == (3, True)
    done = kbtool("explain", "--words", "x", "--run", "y", root=base.root)
    assert (done.code, "give one of" in done.err) == (2, True)
    done = kbtool("explain", "--card", "Abacus", "--words", "x", root=base.root)
    assert (done.code, "sm_90" in done.err) == (2, True)


@pytest.mark.slow
def test_a_card_leaves_out_advice_for_others(base, kbtool):
    text = "Potential Performance Loss: wgmma.mma_async instructions are serialized due to x"
    assert kbtool("explain", "--words", text, "--card", "H100", root=base.root).code == 0
    assert kbtool("explain", "--words", text, "--card", "B200", root=base.root).code == 1


def test_a_problem_in_plain_words_finds_the_pattern(kbtool):
    done = kbtool(
        "explain", "--words", "my CUDA extension compiles for 80 minutes", "--json", root=ROOT
    )
    fits = Explanation.model_validate_json(done.out).fits
    assert "P08" in [pattern.id for fit in fits[:3] for pattern in fit.patterns]
    assert {fit.how for fit in fits} == {"resemblance"}


def names_of(kbtool, text):
    done = kbtool("explain", "--words", text, "--json", root=ROOT)
    return [fit.name for fit in Explanation.model_validate_json(done.out).fits]


def test_a_line_that_names_its_tool_resembles_only_symptoms_of_that_tool(kbtool):
    text = (
        "nvcc error: internal error: assertion failed in the backend of the compiler while it"
        " compiled memory.hpp"
    )
    tools = {name.split("/")[0] for name in names_of(kbtool, text)}
    assert tools == {"nvcc"}


def test_common_words_alone_resemble_nothing(kbtool):
    assert names_of(kbtool, "job.py: GPU job 7 failed: status: error") == []


@pytest.mark.slow
def test_a_function_of_torch_is_a_name_of_the_field(kbtool):
    text = (
        "gradcheck error: jacobian mismatch between numerical and analytical for output 0 with"
        " respect to input 1"
    )
    assert names_of(kbtool, text)[:1] == ["numerics/gradcheck"]
    assert names_of(kbtool, "matrix error: output 0 differs with respect to input 1") == []


@pytest.mark.slow
def test_search_finds_records_by_stems_and_synonyms(base, kbtool):
    base.session(more=BUG)
    done = kbtool("search", "sorted", "--json", root=base.root)
    assert Search.model_validate_json(done.out).hits[0].id == "P01"
    done = kbtool("search", "queues", "--json", root=base.root)
    ids = [hit.id for hit in Search.model_validate_json(done.out).hits]
    assert {"launcher/full", "2025-01-01-a#bugs.full"} <= set(ids)
    done = kbtool("search", "xylophone", root=base.root)
    assert (done.code, done.out) == (1, "")
    assert "in no record: xylophone" in done.err


def test_check_names_what_is_wrong_with_a_file_of_symptoms(base):
    assert base.rules() == []
    text = SYMPTOMS.format(tool="launcher", id="full")
    base.write("symptoms/launcher.yaml", text.replace("'queue is full'", "'queue is empty'", 1))
    assert base.rules() == [("schema", 5)]
    base.write("symptoms/launcher.yaml", text.replace("[P01]", "[P07]"))
    assert base.rules() == [("link", 12)]
    base.write("symptoms/launcher.yaml", text.replace("id: launcher", "id: other"))
    assert base.rules() == [("id", 2)]
    base.write("symptoms/launcher.yaml", text)
    base.write("symptoms/notes.txt", "")
    assert base.rules() == [("stray", 1)]


@pytest.mark.slow
def test_search_shows_a_figure_as_its_reader_sees_it(base, kbtool):
    linked = "The walrus takes [4.1 µs](figure:R#steps.b.case.arms.a)."
    bug = f'  - {{id: walrus, title: Walrus, status: open, cause: "{linked}"}}'
    base.session(more=f"bugs:\n{bug}\n")
    done = kbtool("search", "walrus", root=base.root)
    assert "The walrus takes 4.1 µs." in done.out
