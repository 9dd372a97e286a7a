"""Many expressions at once: what each demands, and the first line that each finds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtool.model import expression as module
from kbtool.model.expression import Finder, demanded, found_in, of_shapes, shaped, words_in
from kbtool.model.profile import lines_of
from kbtool.store.tree import KnowledgeBase


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
        ("[^[:alpha:]5]word", set()),
        ("(long text)?ab", set()),
        ("(long text)+ab", {"long text"}),
        (r"\bX(?i:id) [67]\d", {"xid "}),
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
    finder.feed(shaped([(1, "nothing"), (2, "beta alpha"), (3, "alpha"), (4, "zz")]))
    finder.feed(shaped([(5, "gamma"), (6, "beta")]))
    assert finder.found == {
        0: (2, "beta alpha"), 1: (2, "beta alpha"), 2: (4, "zz"), 3: (5, "gamma")
    }  # fmt: skip


def test_a_line_that_does_not_count_leaves_the_expression_open():
    finder = Finder(["used"], lambda place, line: "9" in line)
    finder.feed(shaped([(1, "used 1"), (2, "used 9"), (3, "used 99")]))
    assert finder.found == {0: (2, "used 9")}


def test_an_expression_that_is_not_valid_finds_nothing_and_stops_nobody():
    finder = Finder(["abc(", "abc"])
    finder.feed(shaped([(1, "abc(")]))
    assert finder.found == {0 + 1: (1, "abc(")}


def test_lines_of_nested_repeats_take_linear_time():
    finder = Finder([r"(a+)+b", r"(word\s*)+!", "(x+x+)+y"])
    started = time.monotonic()
    finder.feed(shaped([(1, "a" * 200_000 + "word " * 40_000 + "x" * 200_000)]))
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
    finder.feed(shaped(enumerate(lines, 1)))
    assert finder.found == {
        0: (2, "used 255 registers"),
        1: (3, "used 3 bytes: sm_80"),
        2: (4, "used 4 bytes: sm_90a"),
        3: (6, "error 7"),
    }


def test_an_expression_sees_a_line_once():
    seen = []
    finder = Finder(["a1b|a2b|ab"], lambda place, line: bool(seen.append(line)))
    finder.feed(shaped([(1, "a1b a2b ab")]))
    assert seen == ["a1b a2b ab"]


EXPRESSIONS = [
    "used 255 registers", "used (25[0-5]|24[89]) bytes", "error 7\\b", "[^5]x", "x[^]5]y",
    "x[^\\]5]y", "[^0-9]z", "[^[:alpha:]5]w", "\\x35q", "0-9k", "a{2,3}4", "(?i)SM_9[0]a?",
    "\\d{3}", "v\\D5", "[67]x", "y[-5]z", "[1-4]w|z", "v[.5-9]q", "k[+-9]", "[\\w5-]{2}-",
]  # fmt: skip
PARTS = [
    "used", " ", "registers", "bytes", "error", "x", "]", "y", "z", "w", "q", "k", "-", "aa", "sm_",
    "v", *"0123456789",
]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(PARTS), max_size=12).map("".join), max_size=8))
def test_what_is_found_is_what_each_line_alone_is_found_by(lines):
    finder = Finder(EXPRESSIONS)
    finder.feed(shaped(enumerate(lines)))
    first = {
        place: next((n, line) for n, line in enumerate(lines) if found_in(expression, line))
        for place, expression in enumerate(EXPRESSIONS)
        if any(found_in(expression, line) for line in lines)
    }
    assert finder.found == first


@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join), st.sampled_from(EXPRESSIONS))
def test_the_shape_of_a_line_is_found_where_the_line_is(line, expression):
    [(_, _, shape)] = shaped([(1, line)])
    assert found_in(of_shapes(expression), shape) or not found_in(expression, line)


@pytest.mark.slow
def test_the_shapes_of_all_examples_are_found():
    catalogue = KnowledgeBase(Path(__file__).parents[2]).catalogue
    known = [one for tool in catalogue.values() for one in tool.symptoms]
    found = [
        (one.id, found_in(of_shapes(one.match), shape))
        for one in known
        for _, line, shape in shaped(enumerate(lines_of(one.example)))
        if found_in(one.match, line)
    ]
    assert len(found) >= len(known) > 800
    assert [name for name, is_found in found if not is_found] == []
    assert sum(of_shapes(one.match) == "" for one in known) < len(known) / 10


def test_a_log_whose_lines_differ_in_their_numbers_is_compared_once(monkeypatch):
    tried = []
    monkeypatch.setattr(
        module, "found_in", lambda match, line: tried.append(line) or found_in(match, line)
    )
    finder = Finder(["used 255 bytes", "nothing here.* 9 times", "nothing here.* [89] times"])
    finder.feed(
        shaped((n, f"line {n:04}: nothing here, used {n:04} registers") for n in range(5000))
    )
    assert len(tried) == 2


def test_many_lines_that_differ_in_their_words_are_searched_for_all_texts_at_once():
    finder = Finder(["alpha beta", "gamma delta"])
    words = [f"{'abcdefgh'[n % 8] * (n % 401)} word {'xyz'[n % 3] * (n % 97)}" for n in range(4000)]
    finder.feed(shaped(enumerate([*words, "the alpha beta", "a gamma delta"])))
    assert finder.found == {0: (4000, "the alpha beta"), 1: (4001, "a gamma delta")}


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (r"(?i)\b(kernels?|gpu)\b.{0,60}\b(wrong|corrupt\w*)", "kernels gpu wrong corrupt"),
        (r"\bCUDA_ERROR_[A-Z]|all[-_ ]?reduce", "CUDA_ERROR_ all reduce"),
        (r"(?i:does ?n[o't]+ start) \(x\)", "does n start x"),
        (r"^[0-9]{1,3}$", ""),
    ],
)
def test_the_words_of_an_expression_are_those_of_all_its_alternatives(expression, words):
    assert words_in(expression).split() == words.split()
