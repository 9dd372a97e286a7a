"""Mutants in bug records: `check` finds those that no longer fit their source."""

from __future__ import annotations

import pytest
from knowledge import Knowledge, line_of

from kbtool.model.edit import edited

MUTANT = "      - {{id: {id}, kernel: add, target: cpu, file: {file}, find: {find}, put: {put}}}\n"


def bug(*mutants: dict[str, str]) -> str:
    given = {"id": "m", "file": "add.cpp", "find": "x + y", "put": "x - y"}
    return "bugs:\n  - id: wrong\n    title: T\n    status: fixed\n    mutants:\n" + "".join(
        MUTANT.format(**{**given, **mutant}) for mutant in mutants
    )


@pytest.fixture
def kernel(base: Knowledge) -> Knowledge:
    base.kernel()
    base.write("kernels/add/add.cpp", "int f() {\n  return x + y;\n}\n\nint g() { return 1; }\n")
    return base


def test_a_mutant_that_fits_its_source_is_no_finding(kernel):
    kernel.session(more=bug({}, {"id": "n", "find": "return 1", "put": "return 2"}))
    assert kernel.findings() == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"find": "x * y"}, "add.cpp: the text to find is gone: 'x * y'"),
        ({"find": "return"}, "add.cpp: the text to find stands in lines 2, 5: 'return'"),
        ({"id": "m, variant: fast"}, "has no variant cpu/fast; it has none"),
        ({"file": "harness.py"}, "'harness.py' is not a source or header of target cpu"),
        ({"file": "../add/add.cpp"}, "is not a source or header of target cpu"),
        ({"id": "m, target: cuda", "put": "''"}, "has no target 'cuda'; it has cpu"),
    ],
)
def test_a_mutant_that_does_not_fit_its_source_is_a_finding_at_its_line(kernel, wrong, told):
    more = bug({"id": "first", "find": "return 1", "put": "2"}, wrong).replace(
        ", target: cuda, kernel: add, target: cpu", ", kernel: add, target: cuda"
    )
    path = kernel.session(more=more)
    (finding,) = kernel.findings()
    assert (finding.rule, finding.line) == ("mutant", line_of(path, "id: m,"))
    assert told in finding.message


def test_an_edit_is_looked_at_again_when_the_source_has_changed(kernel):
    kernel.session(more=bug({}))
    assert kernel.findings(cached=True) == []
    kernel.write("kernels/add/add.cpp", "int f() { return y + x; }\n")
    assert [f.rule for f in kernel.findings(cached=True)] == ["mutant"]


def test_a_kernel_that_is_not_there_and_an_id_that_is_taken(kernel):
    kernel.session(more=bug({}))
    path = kernel.session("2025-01-02-b", bug({}).replace("kernel: add", "kernel: sub"))
    found = {finding.rule: finding for finding in kernel.findings()}
    assert set(found) == {"unique", "mutant"}
    assert {finding.line for finding in found.values()} == {line_of(path, "id: m,")}
    assert "sessions/2025-01-01-a/session.yaml already has a mutant" in found["unique"].message
    assert "there is no kernel 'sub'; the kernels are add" in found["mutant"].message


def test_an_edit_that_changes_nothing_is_refused(kernel):
    kernel.session(more=bug({"put": "x + y"}))
    (finding,) = kernel.findings()
    assert finding.rule == "schema"
    assert "the edit changes nothing" in finding.message


def test_an_edit_changes_the_one_place_and_nothing_else():
    assert edited("a b a", "b", "") == "a  a"
    assert edited("one\ntwo\n", "one\ntwo", "x") == "x\n"
    with pytest.raises(ValueError, match="lines 1, 2"):
        edited("ab\nab", "ab", "x")
