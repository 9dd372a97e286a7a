"""Expressions are compiled as ASCII has their classes, and find what they find in Python."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtool.model.expression import found_in

WRITTEN = [
    r"\d+", r"\D", r"[\d.]+x", r"[^\w]", r"\W\w", r"\bno\b", r"\Bx", r"\\d", r"\\\d", r"[]\d]",
    r"[^]\w]", r"\[\d\]", r"[\[\d]+\]", r"a[^\]]b", r"[\W_]", r"(?i)\berror\b", r"[\\\d]",
]  # fmt: skip


@pytest.mark.parametrize("expression", WRITTEN)
@given(st.text(alphabet="ab01_ .x\\d[]^-noerERé٣ß", max_size=8))
def test_it_finds_in_ascii_what_pythons_engine_finds(expression, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = re.search(expression, text, re.ASCII) is not None
    if text.isascii():
        assert found_in(expression, text) == expected


@pytest.mark.parametrize(("expression", "text"), [(r"\d", "٣"), (r"^\w$", "é"), (r"\be", "ée")])
def test_other_letters_and_digits_are_none(expression, text):
    assert found_in(expression, text) == (re.search(expression, text, re.ASCII) is not None)
