"""An error as a share of its bound."""

from __future__ import annotations

import math

import pytest

from kbtool.model.kinds.validate import OutputError


@pytest.mark.parametrize(
    ("error", "bound", "share"),
    [
        (0.5, 2.0, 0.25), (3.0, 2.0, 1.5), (0.0, 0.0, 0.0), (0.5, 0.0, math.inf),
        (None, 2.0, None), (0.5, None, None),
    ],
)  # fmt: skip
def test_an_error_is_a_share_of_its_bound_where_there_are_both(error, bound, share):
    passed = share is None or share <= 1
    output = OutputError(passed=passed, error=error, bound=bound, torch_error=None)
    assert output.share == share
    assert OutputError.model_validate(output.model_dump()) == output  # the record has no share
