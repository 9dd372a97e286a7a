"""A fault of a run record can be excused by name; an excuse that nothing needs is a fault."""

from __future__ import annotations

import pytest
from knowledge import LOOK, RUN, Knowledge, sealed

from kbtool.store.tree import KnowledgeBase

PATH = f"sessions/2025-01-01-a/runs/{RUN['id']}.json"
EXCUSE = """\
# yaml-language-server: $schema=../schemas/excuses.json
excuses:
  - run: {path}
    rule: machine-path
    reason: the card was given back
"""


@pytest.fixture
def old(base: Knowledge) -> Knowledge:
    """A knowledge base with a run of an old version, which holds two paths of its machine."""
    base.pattern(more=LOOK)
    base.session()
    base.write(PATH, sealed({**RUN, "parameters": {"a": "/home/ada/x", "b": "/home/ada/y"}}))
    return base


def test_a_run_with_paths_of_its_machine_is_excused_by_name(old):
    assert old.rules() == [("machine-path", 1), ("machine-path", 1)]
    old.write("sessions/excuses.yaml", EXCUSE.format(path=PATH))
    for cached in (False, True, True):
        assert old.findings(cached=cached) == []


def test_machine_paths_of_an_excused_run_are_removed_when_it_is_read(old):
    [entry] = KnowledgeBase(old.root).runs
    assert entry.record.parameters == {"a": "…", "b": "…"}


def test_an_excuse_that_nothing_needs_is_a_finding(old):
    old.write(PATH, sealed(RUN))
    old.write("sessions/excuses.yaml", EXCUSE.format(path=PATH))
    [finding] = old.findings()
    assert (finding.path, finding.line, finding.rule) == ("sessions/excuses.yaml", 3, "excuse")
    assert finding.message == f"{PATH} breaks no rule machine-path: remove the excuse"


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({PATH: "sessions/2025-01-01-a/notes.md"}, "schema"),
        ({"rule: machine-path": "rule: secret"}, "schema"),
        ({"    reason: the card was given back\n": ""}, "schema"),
        ({"# yaml": "# yml"}, "modeline"),
    ],
)
def test_an_excuse_with_a_wrong_field_is_a_finding(old, changes, rule):
    old.write(PATH, sealed(RUN))
    text = EXCUSE.format(path=PATH)
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    old.write("sessions/excuses.yaml", text)
    assert rule in {finding.rule for finding in old.findings()}


def test_an_excuse_applies_to_its_own_record_alone(old):
    notes = old.write("sessions/2025-01-01-a/notes.md", "in /home/ada/x\n")
    old.write("sessions/excuses.yaml", EXCUSE.format(path=PATH))
    [finding] = old.findings()
    assert finding.path.endswith(notes.name)
