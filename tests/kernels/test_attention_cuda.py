"""The operator on a card: skipped, with a line that says so, where there is none."""

from __future__ import annotations

import pytest
import torch
from attention_rule import MANIFEST

from kbtool.gpu.validate import validate_case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA card: GPU tests are skipped"),
]

TARGET = MANIFEST.targets["cuda"]
CASES = [
    (name, case)
    for name in ("seeds", "quick", "edges")
    for case in MANIFEST.cases(name)
    if TARGET.takes(case)
]


@pytest.mark.parametrize(("case_set", "case"), CASES, ids=lambda v: str(v.get("name", v))
                         if isinstance(v, dict) else str(v))  # fmt: skip
def test_every_case_that_the_target_takes(harness, case_set, case):
    with torch.inference_mode():
        result = validate_case(harness, case_set, case, device=torch.device("cuda"), seed=1)
    assert result.passed, result.message


def test_what_the_target_does_not_take_is_refused(interface):
    q = torch.randn(1, 1, 1, 64, device="cuda")
    with pytest.raises(ValueError, match="Float"):
        torch.ops.kbtool.split_k_attention(q, q, q)
