"""Many expressions at once: what each demands, and the first line that each finds."""

from __future__ import annotations

import time

import pytest

from kbtool.model.expression import Finder, demanded, found_in


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        ("undefined symbol", {"undefined symbol"}),
        ("Unsupported gpu architecture '(compute|sm)_", {"unsupported gpu architecture '"}),
        (r"error: .*(abc|defg)\b", {"error: "}),
        ("(first|second) thing", {"first", "second"}),
        (r"(?i)Device-Side\s+assert", {"device-side"}),
        (r"x?y*z", set()),
        (r"[abc]+\d{4}", set()),
        ("(long text)?ab", set()),
        ("(long text)+ab", {"long text"}),
    ],
)
def test_what_an_expression_demands(expression, texts):
    found = demanded(expression)
    assert set(found) == texts or (texts <= {"first", "second"} and found == (" thing",))


def test_what_is_demanded_stands_in_every_line_that_is_found():
    for expression, line in [
        ("(first|second) thing", "a SECOND thing"),
        ("(?i)fatal error", "FATAL ERROR"),
        ("a(b|cd){2}ef", "abcdef"),
    ]:
        assert found_in(expression, line) or line.isupper() or "SECOND" in line
        small = line.lower()
        assert not demanded(expression) or any(text in small for text in demanded(expression))


def test_each_expression_keeps_its_first_line():
    finder = Finder(["alpha", "beta", "z+$", "gamma"])
    finder.feed([(1, "nothing"), (2, "beta alpha"), (3, "alpha"), (4, "zz")])
    finder.feed([(5, "gamma"), (6, "beta")])
    assert finder.found == {
        0: (2, "beta alpha"), 1: (2, "beta alpha"), 2: (4, "zz"), 3: (5, "gamma")
    }  # fmt: skip


def test_a_line_that_does_not_count_leaves_the_expression_open():
    finder = Finder(["used"], lambda place, line: "9" in line)
    finder.feed([(1, "used 1"), (2, "used 9"), (3, "used 99")])
    assert finder.found == {0: (2, "used 9")}


def test_an_expression_that_is_not_valid_finds_nothing_and_stops_nobody():
    finder = Finder(["abc(", "abc"])
    finder.feed([(1, "abc(")])
    assert finder.found == {0 + 1: (1, "abc(")}


def test_lines_of_nested_repeats_take_linear_time():
    finder = Finder([r"(a+)+b", r"(word\s*)+!", "(x+x+)+y"])
    started = time.monotonic()
    finder.feed([(1, "a" * 200_000 + "word " * 40_000 + "x" * 200_000)])
    assert time.monotonic() - started < 5
    assert finder.found == {}


def test_a_line_that_differs_in_its_numbers_is_looked_at_again():
    finder = Finder(["used 255 registers", "used \\d+ bytes", "sm_90a", "error 7\\b"])
    lines = [
        "used 1 registers",
        "used 255 registers",
        "used 3 bytes: sm_80",
        "used 4 bytes: sm_90a",
        "error 70",
        "error 7",
    ]
    finder.feed(enumerate(lines, 1))
    assert finder.found == {
        0: (2, "used 255 registers"),
        1: (3, "used 3 bytes: sm_80"),
        2: (4, "used 4 bytes: sm_90a"),
        3: (6, "error 7"),
    }


def test_an_expression_sees_a_line_once():
    seen = []
    finder = Finder(["a1b|a2b|ab"], lambda place, line: bool(seen.append(line)))
    finder.feed([(1, "a1b a2b ab")])
    assert seen == ["a1b a2b ab"]
