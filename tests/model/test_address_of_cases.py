"""The address of a case in a run: its name, cut at underscores, or some words of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kbtool.model.address import _children

PAGED = SimpleNamespace(name="B=8 H=32 page_size=16 bfloat16")
PLAIN = SimpleNamespace(name="B=8 H=32 bfloat16")


def found(key: str) -> list[object]:
    return list(_children([PLAIN, PAGED], key))


@pytest.mark.parametrize("key", ["B=8_H=32_page_size=16_bfloat16", "page_size=16"])
def test_a_word_may_have_underscores(key: str) -> None:
    assert found(key) == [PAGED]


@pytest.mark.parametrize("key", ["B=1", "page_size=1", "page_size=16_float16", "page_B=16"])
def test_each_word_has_to_be_there(key: str) -> None:
    assert found(key) == []


def test_a_whole_name_is_no_part_of_a_longer_one() -> None:
    assert found("B=8_H=32_bfloat16") == [PLAIN]
    assert found("B=8_H=32") == [PLAIN, PAGED]
