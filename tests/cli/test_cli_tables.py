"""Tables within the width of a terminal, and on one that does not take UTF-8."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from kbtool.cli.common import print_table

HEADER = ["id", "minutes saved", "title"]
GREEK = "iso8859-7"
"""Has neither rules nor dashes nor umlauts."""
ROWS = [
    ["2025-01-01-the-first-of-two", "1234.5", "Build, validate and measure it"],
    ["2025-01-02-b", "–", "  Ä second one "],
]


def printed(capsys, rows=ROWS, **keys):
    print_table(HEADER, rows, {1}, **keys)
    return capsys.readouterr().out


def test_a_table_in_a_pipe_is_not_wrapped(capsys):
    _, rule, *rows = printed(capsys).splitlines()
    assert len(rows) == 2
    assert rows[0] == ("2025-01-01-the-first-of-two         1234.5  Build, validate and measure it")
    assert len(rule) == len(rows[0])


@pytest.mark.parametrize("width", [1, 12, 20, 30, 31, 40, 50, 60, 70, 74])
def test_a_table_in_a_terminal_is_wrapped_to_its_width(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    text = printed(capsys, indent="  ")
    for line in text.splitlines():
        assert len(line) <= width or " " not in line.strip(), line
    # Not a word is lost, no figure is broken, and ids break behind a hyphen only.
    left = re.sub(r"\s", "", text)
    for cell in (*HEADER, *(cell for row in ROWS for cell in row)):
        for word in re.split(r"(?<=-)|\s", cell):
            assert word in left, (word, text)
    assert "1234.5" in text


def test_wrapped_text_is_aligned_under_its_column_title(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert printed(capsys, total=True) == (
        "id             minutes  title\n"
        "                 saved\n"
        "─────────────  ───────  ────────────\n"
        "2025-01-01-     1234.5  Build,\n"
        "the-first-of-           validate and\n"
        "two                     measure it\n"
        "─────────────  ───────  ────────────\n"
        "2025-01-02-b         –  Ä second one\n"
    )


def test_a_table_too_wide_for_the_terminal_prints_one_field_a_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert printed(capsys, [["a", "1", " " * 30], ["2025-01-02-b", "–", "Ä second one"]]) == (
        "id: a\nminutes saved: 1\ntitle:\n\n"
        "id: 2025-01-02-b\nminutes saved: –\ntitle: Ä second one\n"
    )


def test_the_width_is_that_of_the_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((40, 9)))
    wrapped = printed(capsys)
    assert max(map(len, wrapped.splitlines())) <= 40
    monkeypatch.setenv("COLUMNS", "wide")
    assert printed(capsys) == wrapped


def test_costs_and_lists_keep_to_the_width(base, kbtool):
    base.session(more="costs: [{kind: gpu, amount: 1.00, basis: billed}]\nduration: 9 min\n")
    base.session("2025-01-02-b", "follows: 2025-01-01-a\nduration: 5 min\n")
    base.pattern()
    for arguments in (["costs", "--compare", "A"], ["session", "list"], ["patterns"]):
        done = kbtool(*arguments, root=base.root, env={"COLUMNS": "40"})
        assert done.code == 0, done.err
        assert max(map(len, done.out.splitlines())) <= 40, done.out
        assert max(map(len, kbtool(*arguments, root=base.root).out.splitlines())) > 40


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["costs"], ["session", "list"], ["session", "show", "A"], ["patterns"], ["recipes"],
     ["run-recipe", "look", "--dry-run"]],
    ids=" ".join,
)  # fmt: skip
def test_a_terminal_that_is_not_utf8_gets_what_it_can_show(base, kbtool, arguments):
    from knowledge import LOOK

    path = base.session(more="costs: [{kind: gpu, amount: 1.00, basis: billed}]\n")
    path.write_text(path.read_text().replace("A sitting", "Größe × 日本"))
    base.pattern(more=LOOK.replace("title: Look", "title: Größe"))
    done = kbtool(*arguments, root=base.root, env={"PYTHONIOENCODING": GREEK})
    assert done.code == 0, done.err
    assert "bug in kbtool" not in done.err
    assert "?" in done.out and "????" not in done.out  # rules are dashes there


@pytest.mark.parametrize("arguments", [["session", "list", "--json"], ["costs", "--csv"]])
def test_json_and_csv_are_utf8_in_every_locale(base, kbtool, arguments):
    base.session(label="Größe 日本")
    plain = kbtool(*arguments, root=base.root)
    assert "Größe 日本" in plain.out
    assert kbtool(*arguments, root=base.root, env={"PYTHONIOENCODING": GREEK}).out == plain.out
