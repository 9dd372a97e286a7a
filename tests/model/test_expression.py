"""Regular expressions of records: matched without backtracking, refused with a reason."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kbtool.model.expression import found_in


@pytest.mark.parametrize(
    ("expression", "text", "found"),
    [
        ("error: .* wrong", "x.cpp:1: error: it is wrong", True),
        ("(?i)ABI mismatch", "an abi MISMATCH", True),
        (r"\bS=\d+\b.*\bFAIL(ED)?\b", "S=64 D=128 FAIL", True),
        ("^bottleneck: bytes:", "the bottleneck: bytes:", False),
    ],
)
def test_an_expression_is_searched_anywhere_in_the_text(expression, text, found):
    assert found_in(expression, text) is found


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("[", "unclosed character class"),
        ("(" * 300, "unclosed group"),
        ("(?=a)", "look-around"),
        (r"(a)\1", "backreferences are not supported"),
        ("(a{1000}){1000}", "exceeds size limit"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_reason(expression, reason):
    with pytest.raises(ValueError, match=reason):
        found_in(expression, "a")


def test_nested_repetition_is_matched_without_backtracking():
    # In a process that can be killed: a backtracking engine would take longer than the sun lasts.
    code = (
        "from kbtool.model.expression import found_in; print(found_in('(a+)+$', 'a' * 9999 + 'b'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"
