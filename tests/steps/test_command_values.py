"""A command step takes values: ``KBTOOL_RESULT`` lines of its output, and a JSON file."""

from __future__ import annotations

import csv
import io
import json
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from kbtool.model.kinds import StepSpec
from kbtool.model.kinds.command import CommandResult
from kbtool.model.run import MachineInfo, Run
from kbtool.steps import KINDS
from kbtool.steps.base import Context, Outcome
from kbtool.steps.command.values import Values

VALUE = {"name": "tokens/s", "value": 1830, "unit": "1/s", "better": "higher", "case": {"n": 8}}
LINE = f"KBTOOL_RESULT {json.dumps(VALUE)}"


@pytest.fixture
def context(tmp_path: Path) -> Context:
    machine = MachineInfo(python="3", kbtool="0", os="L", cpu="C", cores=1)
    made = Context(root=tmp_path, kernel=None, machine=machine, seed=1)
    made.deadline = time.monotonic() + 60
    return made


def run(context: Context, code: str, **more: str) -> Outcome:
    (context.root / "bench.py").write_text(code)
    step = TypeAdapter(StepSpec).validate_python(
        {"kind": "command", "id": "s", "title": "S", "expected": "1 s", "timeout": "1 min",
         "run": ["python3", "bench.py"], **more}
    )  # fmt: skip
    assert KINDS["command"].plan(step, context)
    return KINDS["command"].run(step, context)


def metrics(outcome: Outcome) -> list[tuple]:
    assert isinstance(outcome.result, CommandResult)
    return [(one.name, one.values, one.unit, one.case) for one in outcome.result.metrics]


def test_lines_of_the_output_become_values_and_the_script_is_hashed(context):
    outcome = run(context, f"print({LINE!r})\nprint('other')\nprint('  ' + {LINE!r})")
    assert outcome.status == "passed"
    assert metrics(outcome) == [("tokens/s", [1830, 1830], "1/s", {"n": 8})]
    assert isinstance(outcome.result, CommandResult)
    assert list(outcome.result.scripts) == ["bench.py"]


@pytest.mark.parametrize("line", [f"\r 50%|##  |\r{LINE}", LINE.replace(" ", "\t", 1), LINE + "\r"])
def test_a_line_after_a_progress_bar_or_with_a_tab_is_taken(context, line):
    outcome = run(context, f"print({line!r})")
    assert outcome.status == "passed"
    assert metrics(outcome) == [("tokens/s", [1830], "1/s", {"n": 8})]


@pytest.mark.parametrize(
    "line",
    [f"\x1b[0m{LINE}", f"rank0: {LINE}", LINE.replace(" ", "", 1), f"{LINE}\r 50%|##  |",
     f"50%|##  |{LINE}", f"{LINE}\r{LINE}"],
)  # fmt: skip
def test_a_mark_that_begins_no_line_fails_the_step_with_the_line(context, line):
    outcome = run(context, f"print()\nprint({line!r})")
    assert outcome.status == "failed"
    assert outcome.message == (
        "line 2 of the output: KBTOOL_RESULT must begin a line, with a space after it:"
        f" {line!r:.200}"
    )
    assert metrics(outcome) == []


def test_more_lines_than_the_tail_keeps_are_all_taken(context):
    outcome = run(context, f"for _ in range(1000): print({LINE!r})")
    assert metrics(outcome)[0][1] == [1830] * 1000


def test_a_json_file_is_taken_beside_the_lines(context):
    code = f"print({LINE!r})\nopen('r.json', 'w').write({json.dumps([VALUE, VALUE])!r})"
    outcome = run(context, code, results="r.json")
    assert outcome.status == "passed"
    assert metrics(outcome)[0][1] == [1830] * 3


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('KBTOOL_RESULT tokens 12')", "line 1 of the output: write KBTOOL_RESULT {"),
        ("print('a\\nKBTOOL_RESULT [1]')", "line 2 of the output: write an object like {"),
        ('print(\'KBTOOL_RESULT {"name": "m", "value": 1}\')', "metric 'm' has no unit: write"),
        (
            'print(\'KBTOOL_RESULT {"name": "m", "value": NaN, "unit": "J"}\')',
            "line 1 of the output: value: nan is no measurement: leave the value out",
        ),
        (
            'print(\'KBTOOL_RESULT {"name": "m", "value": 1e999, "unit": "J"}\')',
            "inf is no measurement",
        ),
        ("print('KBTOOL_RESULT')", "line 1 of the output: write KBTOOL_RESULT {"),
        ("print('KBTOOL_RESULT ' + '[' * 100000)", "line 1 of the output: write KBTOOL_RESULT {"),
    ],
)
def test_a_line_that_holds_no_value_fails_the_step_and_the_others_stay(context, code, said):
    outcome = run(context, f"{code}\nprint({LINE!r})")
    assert outcome.status == "failed"
    assert said in outcome.message
    assert metrics(outcome) == [("tokens/s", [1830], "1/s", {"n": 8})]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (None, "r.json was not written; the step says that results are in it"),
        (json.dumps([VALUE])[:-5], "r.json is no JSON"),
        (json.dumps(VALUE), "r.json: write a list of objects like {"),
        (json.dumps([VALUE, {"name": "m", "value": 1}]), "r.json, entry 2: metric 'm' has no unit"),
        ("\xff", "r.json is no JSON"),
    ],
)
def test_a_file_that_holds_no_values_fails_the_step(context, written, said):
    (context.root / "r.json").write_text(json.dumps([VALUE]))  # of an earlier run
    data = None if written is None else written.encode("latin-1")
    code = "" if data is None else f"open('r.json', 'wb').write({data!r})"
    outcome = run(context, code, results="r.json")
    assert outcome.status == "failed"
    assert said in outcome.message


PRIVATE = json.dumps({**VALUE, "case": {"host": "8.8.4.4"}})


@pytest.mark.parametrize("line", [f"KBTOOL_RESULT {PRIVATE}", f"8.8.4.4: {LINE}"])
def test_a_line_with_an_address_fails_the_step_and_is_not_in_the_record(context, line):
    outcome = run(context, f"print({line!r})\nprint({LINE!r})")
    assert outcome.status == "failed" and outcome.message.startswith("line 1 of the output: ")
    assert isinstance(outcome.result, CommandResult)
    assert "8.8.4.4" not in outcome.result.model_dump_json() + outcome.message
    assert outcome.result.output_tail.splitlines() == ["KBTOOL_RESULT …", LINE]
    assert metrics(outcome) == [("tokens/s", [1830], "1/s", {"n": 8})]


def test_an_entry_of_a_file_with_an_address_fails_the_step(context):
    outcome = run(context, f"open('r.json', 'w').write({f'[{PRIVATE}]'!r})", results="r.json")
    assert outcome.message.startswith("r.json, entry 1: it holds the address of a machine (8.8.…)")
    assert (outcome.status, metrics(outcome)) == ("failed", [])


def test_values_of_a_command_that_fails_are_kept(context):
    outcome = run(context, f"print({LINE!r})\nraise SystemExit(3)")
    assert (outcome.status, outcome.message) == ("failed", "python3 exited with 3, not 0")
    assert metrics(outcome)[0][1] == [1830]


def test_every_view_says_that_the_values_of_a_recipe_are_not_validated(second_kernel_base, kbtool):
    root = second_kernel_base
    code = f"code=print({LINE!r})"
    assert kbtool("run-recipe", "shell", "--set", code, "--session", "new", root=root).code == 0
    shown = kbtool("session", "show", "last", root=root).out
    assert "tokens/s 1,830 1/s (n=8) [logged, not validated]" in shown
    (row,) = csv.DictReader(io.StringIO(kbtool("export", "runs", "--format", "csv", root=root).out))
    assert (row["origin"], row["recipe"], row["kind"]) == ("recipe", "shell", "command")
    assert (row["name"], row["case"]) == ("n=8", "n=8")
    assert (row["counts"], row["why_not"]) == ("false", "logged, not validated")
    (path,) = root.glob("sessions/*/runs/*.json")
    assert Run.model_validate_json(path.read_bytes()).origin == "recipe"


ENTRIES = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"]), "value": st.floats(), "unit": st.just("1")}
)


@given(st.lists(ENTRIES | st.integers() | st.none(), max_size=12))
def test_of_any_file_the_finite_values_are_taken_and_the_first_other_entry_is_named(entries):
    with TemporaryDirectory() as folder:
        file = Path(folder) / "r.json"
        values = Values(file)
        file.write_text(json.dumps(entries))
        values.read_file()
    sound = [isinstance(one, dict) and abs(one["value"]) <= 1e300 for one in entries]
    expected = Counter(
        (one["name"], one["value"]) for one, ok in zip(entries, sound, strict=True) if ok
    )
    assert Counter((s.name, value) for s in values.series for value in s.values) == expected
    if all(sound):
        assert values.problem is None
    else:
        assert values.problem and f"entry {sound.index(False) + 1}: " in values.problem
