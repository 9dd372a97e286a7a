"""Every name that a harness here times is explained in its kernel's manifest, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbtool.gpu.harness import peers_named_in
from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[2]
KERNELS = {name: entry.record for name, entry in KnowledgeBase(ROOT).kernels.items()}


@pytest.mark.parametrize("name", KERNELS)
def test_every_implementation_is_explained(name: str) -> None:
    kernel = KERNELS[name]
    peers = peers_named_in(ROOT / "kernels" / name / kernel.harness)
    assert peers
    variants = {variant for target in kernel.targets.values() for variant in target.variants}
    others = {*peers, *variants}
    assert others <= set(kernel.implementations)
    (subject,) = set(kernel.implementations) - others
    assert f'SUBJECT = "{subject}"' in (ROOT / "kernels" / name / kernel.harness).read_text()
