"""What a search of records finds first: by names, numbers, misspelt words and kinds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from knowledge import Knowledge

from kbtool.runner.index import Index, index_of
from kbtool.runner.resemble import Words, counted, letters_apart, named

ROOT = Path(__file__).parents[2]
QUESTIONS = {
    "my CUDA extension compiles for 80 minutes": "symptom torch-extension/arch-list-unset",
    "undefined symbol c10": "symptom torch-extension/symbol-c10-cuda",
    "NaN in the last tile": "bug 2025-10-12-n7d#bugs.nan-fully-masked",
    "bug 4": "bug 2025-10-12-n7d#bugs.bug-4",
    "FlashAttention-3": "term guide/glossary.md#flash-attention",
    "split_k slow at 96": "bug 2026-11-23-the-last-sources-on-a-card#bugs.part-of-a-bucket",
    "wrong for S>64": "bug 2025-10-12-n7d#bugs.bug-4",
}
"""Questions of people, and a record that answers each."""


@cache
def own() -> Index:
    return index_of(ROOT)


def found(index: Index, query: str) -> list[str]:
    return [f"{hit.item.kind} {hit.item.id}" for hit in index.ranked(query)]


@pytest.mark.slow
@pytest.mark.parametrize(("query", "wanted"), QUESTIONS.items())
def test_a_question_finds_its_answer_among_the_first_three(query, wanted):
    assert wanted in found(own(), query)[:3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "right"),
    [("undefned symbl", "undefined symbol"), ("flashatention", "flashattention"),
     ("occupnacy", "occupancy"), ("bandwdith", "bandwidth")],
)  # fmt: skip
def test_misspelt_words_find_what_the_right_ones_do(query, right):
    assert set(found(own(), query)[:3]) & set(found(own(), right)[:8])


def documents(*texts: str) -> Words[int]:
    return Words((at, counted([(text, 1)])) for at, text in enumerate(texts))


def first(words: Words[int], query: str) -> list[int]:
    return [hit.item for hit in words.find(query, loose=True)]


def test_numbers_tell_records_apart():
    words = documents("slow with 96 rows", "slow with 128 rows", "slow with 9 rows")
    assert first(words, "slow 96")[0] == 0
    assert first(words, "slow 128")[0] == 1
    assert [hit.item for hit in words.find("96")] == []  # `kbtool explain` knows no numbers


@pytest.mark.parametrize("query", ["S>64", "S > 64", "s<=64", "S=64"])
def test_a_comparison_is_found_whichever_its_sign(query):
    assert first(documents("wrong at D=64", "wrong for S = 64", "64 of S"), query)[0] == 1


def test_a_word_that_is_known_is_never_taken_for_another():
    words = documents("the tile of a row", "the wave of a row", "the title")
    assert first(words, "tile") == [0]
    assert first(words, "tyle") == [0]
    assert first(words, "tbbe") == []  # two letters off, in a short word
    assert first(words, "syncronisatoin") == []


def test_the_least_misspelt_word_counts():
    words = documents("occupancy", "occupant")
    assert first(words, "occupamcy") == [0]


@given(st.text("abc", max_size=6), st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_letters_apart_is_a_distance(one, two, three):
    assert (letters_apart(one, two) == 0) == (one == two)
    assert letters_apart(one, two) == letters_apart(two, one)
    assert abs(len(one) - len(two)) <= letters_apart(one, two) <= max(len(one), len(two))


@given(st.text("abcdef", min_size=2, max_size=8), st.data())
def test_one_slip_is_one_letter(word, data):
    at = data.draw(st.integers(0, len(word) - 2))
    assert letters_apart(word, word[:at] + word[at + 1 :]) == 1
    assert letters_apart(word, word[:at] + "z" + word[at:]) == 1
    assert letters_apart(word, word[:at] + "z" + word[at + 1 :]) == 1
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    assert letters_apart(word, swapped) == (swapped != word)


BUG = "bugs: [{id: bug-4, title: It differs, status: open}]\n"


def test_what_is_called_so_comes_first_and_of_the_kind_that_is_said(tmp_path):
    base = Knowledge(tmp_path)
    base.session("2025-01-01-a", BUG)
    base.session("2025-01-02-b", f"outcome: {'bug 4 ' * 9}\n", label="Of bug 4")
    recipe = (
        "recipes:\n  - name: bug-4\n    title: Bug 4, bug 4, bug 4\n    steps: [{id: look, kind:"
        " environment, title: Look, expected: 1 s, timeout: 9 s}]\n"
    )
    base.pattern("P01", recipe)
    index = index_of(base.root)
    bug, named_so = "bug 2025-01-01-a#bugs.bug-4", "recipe bug-4"
    assert found(index, "Bug 4")[:2] == [bug, named_so]
    assert found(index, "recipe bug-4")[0] == named_so
    assert found(index, "p01")[0] == "pattern P01"
    assert named("Bug-4") == named("bug 4")


def test_kernels_terms_sections_and_decisions_are_found(tmp_path):
    base = Knowledge(tmp_path)
    base.kernel()
    base.write("docs/guide/glossary.md", "# Glossary\n\n### Wave {#wave}\n<!-- linked as: Waves; "
               "Full-wave -->\n\nBlocks that run at once.\n")  # fmt: skip
    base.write("docs/guide/attach.md", "# Attach\n\nHow.\n\n## Compile it\n\nWith nvcc.\n")
    base.write("docs/adr/0001-tiles.md", "# 0001: Tiles are square\n\n## Why\n\nThey fit.\n")
    index = index_of(base.root)
    assert found(index, "adds")[0] == "kernel add"
    assert found(index, "full-wave")[0] == "term guide/glossary.md#wave"
    assert "guide guide/attach.md#compile-it" in found(index, "compile it with nvcc")
    assert found(index, "square fit")[0] == "decision adr/0001-tiles.md"
    base.session("2025-01-01-a", "bugs: [{id: b, title: Square tiles, status: open}]\n")
    ranked = found(index_of(base.root), "square tiles")
    assert ranked.index("bug 2025-01-01-a#bugs.b") < ranked.index("decision adr/0001-tiles.md")


SYMPTOM = """\
# yaml-language-server: $schema=../schemas/symptoms.json
id: mine
title: My tool
symptoms:
  - {{id: one, title: {title}, match: xyz, example: xyz, source: mine, advice: Look.}}
"""


def test_a_question_how_to_is_for_the_guide_and_what_is_for_the_name(tmp_path):
    base = Knowledge(tmp_path)
    base.kernel()
    base.write("symptoms/mine.yaml", SYMPTOM.format(title="Attach the lane"))
    base.write("docs/guide/glossary.md", "# Glossary\n\n### Lane {#lane}\n\nOf a warp.\n")
    base.write("docs/guide/attach.md", "# Attach a lane\n\nHere.\n")
    index = index_of(base.root)
    assert found(index, "attach lane")[0] == "symptom mine/one"
    assert found(index, "how do I attach a lane?")[0] == "guide guide/attach.md"
    for asked in ("what is a lane", "What does lane mean?", "lane"):
        assert found(index, asked)[0] == "term guide/glossary.md#lane"


def test_sections_have_the_anchors_of_the_site_and_code_has_no_headings(tmp_path):
    base = Knowledge(tmp_path)
    text = "# Run\n\n## Once\n\n```sh\n# kbtool once\n```\n\n## `kbtool` twice\n\n## Once\n"
    base.write("docs/guide/run.md", text)
    sections = [r.id for r, _ in index_of(base.root).words.documents() if r.kind == "guide"]
    page = "guide/run.md"
    assert sections == [page, f"{page}#once", f"{page}#kbtool-twice", f"{page}#once_1"]
