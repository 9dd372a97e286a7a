"""What each function of a migration changes, and what it leaves to a person."""

from __future__ import annotations

from pathlib import Path

import pytest
from knowledge import PATTERN, PATTERN_LINE, Knowledge

from kbtool.model.errors import UsageError
from kbtool.store.document import parse
from kbtool.store.migrate import plan_migration
from kbtool.store.splice import Splice

HEAD = PATTERN_LINE + PATTERN.format(id="P01", number=1)
CHEATS = "kernels/add/cheats.yaml"
HARNESS = "kernels/add/harness.py"
CHEATS_LINE = "# yaml-language-server: $schema=../../schemas/cheats.json"


def recipe(step: str, parameters: str = "") -> str:
    return f"recipes:\n  - name: r\n    title: R\n{parameters}    steps:\n{step}"


def changed(base: Knowledge, path: str) -> str | None:
    """What the plan makes of a file, if it changes it; nothing may be left."""
    plan = plan_migration(base.root)
    assert plan.left == []
    return next((change.after.decode() for change in plan.changes if change.path == path), None)


def left(base: Knowledge) -> list[str]:
    return [str(finding) for finding in plan_migration(base.root).left]


USED = "    parameters:\n      a: {type: str, default: x, help: h}\n"
TWO = USED + "      b: {type: str, default: x, help: h}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # a key with another name, on a line of its own and in braces
        (recipe("      - id: b\n        kind: benchmark\n        case_set: a  # one\n"),
         recipe("      - id: b\n        kind: benchmark\n        case_sets: a  # one\n")),
        (recipe("      - {id: b, kind: sanitise, tool: memcheck}\n"),
         recipe("      - {id: b, kind: sanitise, tools: memcheck}\n")),
        # a key that is gone: last, first, alone on the line of the dash, in braces
        (recipe("      - id: t\n        kind: tune\n        # why\n        write: 'true'\n"),
         recipe("      - id: t\n        kind: tune\n        # why\n")),
        (recipe("      - write: 'true' # w\n        # of it\n        id: t\n        kind: tune\n"),
         recipe("      - # of it\n        id: t\n        kind: tune\n")),
        (recipe("      - {write: 'true', id: t, kind: tune}\n"),
         recipe("      - {id: t, kind: tune}\n")),
        (recipe("      - {id: m, kind: mutants, where: '', sources: '*'}\n"),
         recipe("      - {id: m, kind: mutants}\n")),
        # its parameter goes with it, unless something else uses that
        (recipe("      - {id: s, kind: sanitise, exclude_races: '${b}'}\n", TWO),
         recipe("      - {id: s, kind: sanitise}\n", USED)),
        (recipe("      - {id: s, kind: sanitise, exclude: '${a}'}\n", USED),
         recipe("      - {id: s, kind: sanitise}\n")),
        (recipe("      - {id: s, kind: sanitise, exclude: '${a}', tools: '${a}'}\n", USED),
         recipe("      - {id: s, kind: sanitise, tools: '${a}'}\n", USED)),
    ],
)  # fmt: skip
def test_keys_of_steps(base, before, after):
    base.write("patterns/P01.yaml", HEAD + before)
    assert changed(base, "patterns/P01.yaml") == HEAD + after


def test_a_key_of_another_kind_of_step_stays(base):
    step = "      - {id: v, kind: validate, write: 'true', case_set: a, tool: b}\n"
    base.write("patterns/P01.yaml", HEAD + recipe(step))
    assert changed(base, "patterns/P01.yaml") is None


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("patterns/P01.yaml",
         HEAD + recipe("      - {kind: benchmark, case_set: a, case_sets: b}\n"),
         "patterns/P01.yaml:15: migrate: case_set is called case_sets now, and both are here"),
        ("patterns/P01.yaml", "{id: P01, recipes: [{steps: [{kind: tune, write: 'no'}]}]}\n",
         "patterns/P01.yaml:1: migrate: patterns/P01.yaml is one mapping in braces"),
        ("patterns/P01.yaml", "id: [\n", "patterns/P01.yaml:2: yaml: "),
        ("patterns/P01.yaml", HEAD + "supersedes: [P06]\n",
         "patterns/P01.yaml:11: migrate: must say since which session"),
        ("sessions/ledger.yaml", "rates:\n  - {id: a, on: 2026-01-31, day: 2026-01-31}\n",
         "sessions/ledger.yaml:2: migrate: on is called day now, and both are here"),
    ],
)  # fmt: skip
def test_what_only_a_person_can_change_is_left(base, path, text, said):
    base.write(path, text)
    (found,) = left(base)
    assert found.startswith(said)


def test_records_of_any_shape_are_gone_through(base):
    base.write(
        "patterns/P01.yaml", "id: P01\nrecipes: [a, {steps: b}, {steps: [c, {kind: [d]}]}]\n"
    )
    base.write("patterns/P02.yaml", "id: P02\nrecipes: {a: b}\nsupersedes: {a: b}\n")
    base.write("sessions/ledger.yaml", "rates: [a, {stated_again: b}]\n")
    base.write("kernels/add/kernel.yaml", "harness: [a]\n")
    base.write("kernels/b/kernel.yaml", "harness: ../../../out.py\n")
    assert left(base) == []


def test_days_of_rates_and_of_statements(base):
    text = (
        "rates:\n  - id: a\n    on: 2026-01-31  # read\n    stated_again:\n"
        "      - {on: 2026-02-01}\n      - on: 2026-02-02\n"
    )
    base.write("sessions/ledger.yaml", text)
    assert changed(base, "sessions/ledger.yaml") == text.replace("on:", "day:")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_catalogue_of_cheats_gets_its_first_line(base, end):
    base.write(CHEATS, f"# mine{end}cheats: []{end}")
    assert changed(base, CHEATS) == f"{CHEATS_LINE}{end}# mine{end}cheats: []{end}"
    base.write(CHEATS, f"{CHEATS_LINE}{end}cheats: []{end}")
    assert changed(base, CHEATS) is None


def with_harness(base: Knowledge, text: str) -> None:
    base.kernel()
    base.write(HARNESS, text)


def test_terms_of_a_harness_is_renamed_where_it_is_defined(base):
    with_harness(
        base, '"""terms"""\n\n\n@cache\ndef  terms (x):  # terms\n    return {"terms": x}\n'
    )
    now = '"""terms"""\n\n\n@cache\ndef  error_scale (x):  # terms\n    return {"terms": x}\n'
    assert changed(base, HARNESS) == now


@pytest.mark.parametrize(
    "text",
    ["def error_scale(x):\n    return x\n\n\ndef terms(x):\n    return x\n",
     "def other(x):\n    terms = x\n    return terms\n", "# def terms(x):\n"],
)  # fmt: skip
def test_other_terms_of_a_harness_stay(base, text):
    with_harness(base, text)
    assert changed(base, HARNESS) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [("terms = dict\n", 1), ("import a\nfrom b import terms\n", 2), ("import b as terms\n", 1),
     ("def terms(x):\n    return x\n\n\nSCALE = terms\n", 1)],
)  # fmt: skip
def test_terms_that_more_than_a_definition_names_are_left(base, text, line):
    with_harness(base, text)
    said = "terms is called error_scale now; rename it, and what uses it"
    assert left(base) == [f"{HARNESS}:{line}: migrate: {said}"]


@pytest.mark.parametrize(
    "use", ["from harness import a, terms\n", "import harness\nharness.terms(1)\n"]
)
def test_terms_that_a_module_beside_the_harness_uses_are_left(base, use):
    with_harness(base, "def terms(x):\n    return x\n")
    base.write("kernels/add/more/part.py", use)
    assert [found.partition(" ")[0] for found in left(base)] == [f"{HARNESS}:1:"]


def test_a_harness_that_is_no_python_is_left(base):
    with_harness(base, "def terms(:\n")
    (found,) = left(base)
    assert found.startswith(f"{HARNESS}:1: migrate: is no Python that can be read")


def test_a_link_out_of_the_knowledge_base_is_not_written_through(base, tmp_path):
    outside = tmp_path / "P01.yaml"
    outside.write_text(HEAD + recipe("      - {kind: tune, write: 'no'}\n"))
    (base.root / "patterns" / "P01.yaml").symlink_to(outside)
    assert changed(base, "patterns/P01.yaml") is None


RUN = "sessions/2025-01-01-a/runs/20250101T090000Z-look-0001.json"
EXCUSES_LINE = "# yaml-language-server: $schema=../schemas/excuses.json\n"


@pytest.mark.parametrize("excuses", ["excuses: []\n", "excuses:\n  # why\n  - {run: a, rule: b}\n"])
def test_a_run_with_a_path_of_a_machine_is_excused_beside_others(base, excuses):
    base.write(RUN, '{"message": "in /home/marie/x"}')
    base.write("sessions/excuses.yaml", EXCUSES_LINE + excuses)
    after = changed(base, "sessions/excuses.yaml")
    assert after is not None and after.startswith(EXCUSES_LINE + excuses.removesuffix(" []\n"))
    entry = parse(after.encode(), "x").data["excuses"][-1]
    assert (entry["run"], entry["rule"]) == (RUN, "machine-path")


def test_a_run_that_is_excused_or_has_no_path_needs_no_excuse(base):
    base.write(RUN, '{"message": "in /home/marie/x"}')
    base.write(RUN.replace("0001", "0002"), '{"message": "in /usr/lib/x"}')
    text = f"excuses:\n  - {{run: {RUN}, rule: machine-path, reason: r}}\n"
    base.write("sessions/excuses.yaml", EXCUSES_LINE + text)
    assert changed(base, "sessions/excuses.yaml") is None


# ---- edits of what a list holds ----


@pytest.mark.parametrize("path", [["a", 0, "x"], ["a", 0, "b", "c"], ["z", 0, "x"], ["a", 0]])
def test_a_key_that_is_not_there_is_not_renamed_or_removed(path):
    edit = Splice(parse(b"a:\n  - y: 1\n", "x"))
    edit.remove(path)
    edit.rename(path, "n")
    assert edit.text == "a:\n  - y: 1\n"


def test_the_only_key_of_an_item_is_not_removed():
    edit = Splice(parse(b"a:\n  - y: 1\n", "x"))
    with pytest.raises(UsageError, match="cannot edit x safely"):
        edit.remove(["a", 0, "y"])


def test_a_name_that_yaml_would_read_as_something_else_is_quoted():
    edit = Splice(parse(b"a: 1\n", "x"))
    edit.rename(["a"], "on")
    assert edit.text == '"on": 1\n'
    assert Path("x").name == edit.path
