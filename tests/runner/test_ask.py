"""What a program is asked about a text, and what is made of its answer."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
from commands import run
from knowledge import Knowledge

from kbtool.model.errors import UsageError
from kbtool.runner import ask as asking
from kbtool.runner.ask import ask

LINES = ["NCCL WARN Call to shm_open failed : Permission denied", "torch 2.4.0+cu121"]
REMEDY = {"cause": "No rights on /dev/shm", "do": "chmod 1777 /dev/shm", "run": "ls -ld /dev/shm"}


@pytest.fixture
def program(tmp_path: Path):
    """A program that keeps its question, and prints a text."""

    def made(said: str, status: int = 0) -> str:
        script = tmp_path / "a model.py"
        script.write_text(
            "import sys, pathlib\n"
            f"pathlib.Path({str(tmp_path / 'question')!r}).write_text(sys.stdin.read())\n"
            f"print({said!r})\n"
            f"sys.exit({status})\n"
        )
        return shlex.join([sys.executable, str(script)])

    return made


def answer(*remedies: dict[str, object]) -> str:
    return json.dumps({"remedies": remedies})


@pytest.mark.parametrize("around", ["{}", "Sure:\n```json\n{}\n```\nGood luck!"])
def test_its_remedies_are_read_wherever_they_stand(program, around):
    given = around.replace("{}", answer({**REMEDY, "because": "shm_open  failed :\nPermission"}))
    asked = ask(program(given), LINES, [])
    (one,) = asked.remedies
    assert (one.cause, one.advice, one.command) == tuple(REMEDY.values())
    assert one.text is not None and one.text.startswith("shm_open")
    assert asked.problem is None


def test_a_reason_that_the_text_does_not_hold_is_left_out(program):
    asked = ask(program(answer({**REMEDY, "because": "No space left on device"})), LINES, [])
    assert [one.text for one in asked.remedies] == [None]


def test_no_more_than_three_are_taken_and_none_is_an_answer_too(program):
    assert len(ask(program(answer(*[REMEDY] * 5)), LINES, []).remedies) == 3
    asked = ask(program(answer()), LINES, [])
    assert (asked.remedies, asked.problem) == ([], None)


@pytest.mark.slow
def test_the_question_has_the_text_and_what_the_records_say(program, tmp_path):
    base = Knowledge(tmp_path / "base")
    log = tmp_path / "run.log"
    log.write_text("\n".join([LINES[0], *["fine"] * 500, "fatal error: disk", "fine"]))
    done = run(["explain", str(log), "--ask", program(answer(REMEDY))], base.root, {})
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[1:4] == [
        "1. No rights on /dev/shm", "   do: chmod 1777 /dev/shm", "   run: ls -ld /dev/shm"
    ]  # fmt: skip
    assert lines.index("What the records say:") == 5 and lines[6].startswith("1. ")
    question = (tmp_path / "question").read_text()
    records, _, text = question.partition("\nTEXT:\n")
    assert text.splitlines()[0] == LINES[0] and text.splitlines()[-1] == "fatal error: disk"
    assert lines[6][3:].partition(" (")[0] in records


@pytest.mark.slow
def test_what_only_resembles_goes_if_it_knows_of_nothing(program, tmp_path):
    base = Knowledge(tmp_path / "base")
    words = ["explain", "--words", "why is my CUDA kernel no faster with more warps?", "--json"]
    alone = json.loads(run(words, base.root, {}).out)["fits"]
    assert {fit["how"] for fit in alone} == {"resemblance"}
    asked = run([*words, "--ask", program(answer())], base.root, {})
    assert (asked.code, json.loads(asked.out)["fits"]) == (1, [])
    line = "nvcc fatal   : Unknown option '-x9'"
    matched = run(["explain", "--words", line, "--json", "--ask", program(answer())], base.root, {})
    assert json.loads(matched.out)["fits"][0]["name"] == "nvcc/unknown-option"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "status", "why"),
    [
        ("I would rather not.", 0, "is not the JSON asked for"),
        ('{"remedies": [{"cause": "", "do": "x"}]}', 0, "is not the JSON asked for"),
        ("", 0, "it begins: (empty)"),
        ("the key is missing", 1, "exit status 1: the key is missing"),
    ],
)
def test_without_an_answer_the_records_are_shown_and_the_reason(
    program, tmp_path, said, status, why
):
    base = Knowledge(tmp_path / "base")
    words = ["explain", "--words", LINES[0], "--ask", program(said, status)]
    done = run(words, base.root, {})
    assert done.code == 3 and why in done.err
    assert done.out.startswith("1. ")
    shown = json.loads(run([*words, "--json"], base.root, {}).out)
    assert why in shown["asked"]["problem"] and shown["fits"]


def test_a_program_that_is_not_there_or_takes_too_long(program, monkeypatch):
    missing = ask("no-such-model -m x", LINES, []).problem
    assert missing is not None and "No such file" in missing and "llm -m MODEL" in missing
    monkeypatch.setattr(asking, "LIMIT_S", 0.2)
    slow = shlex.join([sys.executable, "-c", "import time; time.sleep(30)"])
    assert "no answer within" in str(ask(slow, LINES, []).problem)
    with pytest.raises(UsageError, match="names no program"):
        ask(" ", LINES, [])
