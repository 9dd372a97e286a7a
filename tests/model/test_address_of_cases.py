"""A case is named in an address by the words of its name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kbtool.model.address import _has_words

PAGED = SimpleNamespace(name="B=8 H=32 page_size=16 bfloat16")


@pytest.mark.parametrize("key", ["B=8_H=32_page_size=16_bfloat16", "page_size=16", "B=8"])
def test_words_with_underscores_name_a_case(key: str) -> None:
    assert _has_words(PAGED, key)


@pytest.mark.parametrize("key", ["page_size=1", "B=8_page_size=64", "B=81"])
def test_other_words_name_none(key: str) -> None:
    assert not _has_words(PAGED, key)
