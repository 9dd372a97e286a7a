"""The page "What went wrong?": every symptom of the records, with what they say of it."""

from __future__ import annotations

import html
import re

import pytest
from knowledge import Knowledge

from kbtool.site.index import Index
from kbtool.site.pages import home, wrong
from kbtool.store.tree import KnowledgeBase

COSTS = "duration: 60 min\ncosts: [{kind: gpu, amount: 3.00, basis: billed}]\n"
BUG = """\
bugs:
  - id: lost-rows
    title: Rows are lost
    component: build
    symptom: The last rows are zero
    status: fixed
    minutes_lost: {minutes} min
    {more}
"""
FIX = "fixes: [{bug: '#bugs.lost-rows', change: The rest is a tile too, confirmed: true}]\n"
PATTERN = """\
bugs: ["2025-01-01-a#bugs.lost-rows"]
signs: [The tail of the output is zero]
symptoms:
  - {id: tail, match: 'row \\d+ is zero', example: row 7 is zero, advice: Look at the tail.}
"""


@pytest.fixture
def base(tmp_path) -> Knowledge:
    base = Knowledge(tmp_path / "base")
    base.session("2025-01-01-a", COSTS + BUG.format(minutes=20, more="") + FIX)
    again = "recurrence_of: 2025-01-01-a#bugs.lost-rows\n    error_text: row 3 is zero"
    base.session("2025-01-02-b", "follows: 2025-01-01-a\n" + BUG.format(minutes=5, more=again))
    base.pattern("P01", PATTERN)
    return base


def rows(base: Knowledge) -> list[list[str]]:
    made = html.unescape(wrong.page(Index(KnowledgeBase(base.root))))
    lines = [line for line in made.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_each_symptom_has_its_pattern_its_bugs_its_loss_and_its_remedy(base):
    made = rows(base)
    assert len(made) == 3  # the sign, the symptom, and the fault, which was met twice
    told, does, lost, patterns, bugs = zip(*made, strict=True)
    assert set(told) == {
        "The tail of the output is zero", "<code>row 7 is zero</code>",
        "The last rows are zero <br><small>build</small>",
    }  # fmt: skip
    seen = [one.partition(" <br>")[0] for one in told]
    assert {re.sub(r"\W+", " ", one).strip() for one in patterns} == {
        "P01 A lesson patterns P01 md"
    }
    for cell in bugs:  # both meetings, wherever one is named
        assert re.findall(r"\((bugs/[^)]*)\)", cell) == [
            "bugs/2025-01-02-b/lost-rows.md", "bugs/2025-01-01-a/lost-rows.md",
        ]  # fmt: skip
    assert {re.sub("<(?!br).*?>", "", one) for one in lost} == {"25 min<br>1.00 USD"}
    remedies = dict(zip(seen, does, strict=True))
    assert remedies["The tail of the output is zero"] == "It recurs. ([P01](patterns/P01.md))"
    assert remedies["<code>row 7 is zero</code>"] == "Look at the tail. ([P01](patterns/P01.md))"
    assert remedies["The last rows are zero"].startswith("The rest is a tile too<br>")


def test_a_symptom_of_two_patterns_is_one_row(base):
    base.pattern("P02", PATTERN.replace("Look at the tail.", "Look ahead."))
    (row,) = (row for row in rows(base) if row[0] == "<code>row 7 is zero</code>")
    assert row[1].removeprefix('<span class="kb-long">').removesuffix("</span>") == (
        "Look at the tail. ([P01](patterns/P01.md))<br>Look ahead. ([P02](patterns/P02.md))"
    )
    assert re.findall(r"patterns/(P\d+)", row[3]) == ["P01", "P02"]
    assert row[4].count("lost-rows.md") == 2, "each meeting once"
    assert re.sub("<(?!br).*?>", "", row[2]) == "25 min<br>1.00 USD"


def test_a_pattern_with_a_recipe_is_followed_by_it(base):
    recipe = (
        "recipes:\n  - name: look\n    title: Look\n    steps: [{id: look, kind: environment,"
        " title: Look, expected: 1 s, timeout: 9 s}]\n"
    )
    base.pattern("P01", PATTERN + recipe)
    assert all("<code>kbtool run-recipe look</code>" in row[1] for row in rows(base))


def test_a_message_of_a_tool_that_a_pattern_knows_is_a_symptom_too(base):
    base.write(
        "symptoms/mine.yaml",
        "# yaml-language-server: $schema=../schemas/symptoms.json\nid: mine\ntitle: My tool\n"
        "symptoms:\n  - {id: zero, title: A row is zero, match: 'row .* zero', example: row 1 zero,"
        " source: mine, advice: Look., command: 'look --at ${n}', patterns: [P01],"
        " values: {n: {after: 'row '}}}\n  - {id: none, title: Of no pattern, match: 'abc',"
        " example: abc, source: mine, advice: Look.}\n",
    )
    found = [row for row in rows(base) if "symptoms/mine" in row[0]]
    (row,) = found
    assert row[0] == "[A row is zero](symptoms/mine/index.md#zero) <br><small>My tool</small>"
    assert row[4].count("lost-rows.md") == 2  # its error message is such a line
    assert row[1] == "<code>look --at N</code>"


def test_of_many_bugs_the_number_leads_to_the_pattern(base):
    bug = "  - {{id: b{0}, title: Fault {0}, symptom: Sign {0}, status: open}}\n"
    base.session("2025-01-03-c", "bugs:\n" + "".join(map(bug.format, range(8))))
    named = ", ".join(f"'2025-01-03-c#bugs.b{n}'" for n in range(8))
    base.pattern("P02", f"bugs: [{named}]\nsigns: [Eight faults]\n")
    (row,) = (row for row in rows(base) if row[0] == "Eight faults")
    assert row[4] == "[8 bugs](patterns/P02.md)"


def test_of_many_bugs_without_a_pattern_the_number_leads_to_the_list_of_bugs(base):
    bug = "  - {{id: b{0}, title: Fault {0}, symptom: It hangs, status: open}}\n"
    base.session("2025-01-03-c", "bugs:\n" + "".join(map(bug.format, range(8))))
    (row,) = (row for row in rows(base) if row[0] == "It hangs")
    assert row[4] == "[8 bugs](bugs/index.md)"


def test_what_nobody_knows_is_left_open(tmp_path):
    base = Knowledge(tmp_path / "base")
    base.session("2025-01-01-a", "bugs: [{id: b, title: It stops, status: open}]\n")
    (row,) = rows(base)
    assert row[:2] == ["It stops", "no fix is recorded"]
    assert not any("min" in cell for cell in row)
    assert rows(Knowledge(tmp_path / "empty")) == []


def test_the_home_page_begins_its_first_column_with_it(base):
    made = home.page(Index(KnowledgeBase(base.root)), None)
    first = made.split("**What went wrong?**")[1].split("**How fast is it?**")[0]
    assert first.index("what-went-wrong.md") < first.index("symptoms/index.md")
