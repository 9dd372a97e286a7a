"""A case's name tells readers which field a bare number in it is."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kbtool.model.kernel import CaseValue, case_label


class Case(NamedTuple):
    name: str
    case: dict[str, CaseValue]


SHAPE: dict[str, CaseValue] = {
    "M": 16, "N": 4096, "K": 64, "dtype": "bfloat16", "num_splits": None
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "more", "label"),
    [
        ("N=4096 K=64 16 bfloat16", {}, "N=4096 K=64 M=16 bfloat16"),
        ("M=16 N=4096 K=64 bfloat16", {}, "M=16 N=4096 K=64 bfloat16"),
        ("16 rows of x bfloat16", {}, "16 rows of x bfloat16"),  # words that a person wrote
        ("N=4096 16 rows", {}, "N=4096 16 rows"),
        ("N=4096 K=64 17 bfloat16", {}, "N=4096 K=64 17 bfloat16"),  # no field's value
        ("N=4096 K=64 16", {"num_splits": 16}, "N=4096 K=64 16"),  # which of two?
        ("N=4096 K=64 16 bfloat16", {"K": 16}, "N=4096 K=64 M=16 bfloat16"),
    ],
)
def test_a_bare_number_has_its_field_where_one_field_alone_can_be_meant(
    name: str, more: dict[str, CaseValue], label: str
) -> None:
    assert case_label(Case(name, {**SHAPE, **more})) == label
