from __future__ import annotations

from pathlib import Path

import pytest
from knowledge import Knowledge


@pytest.fixture
def base(tmp_path: Path) -> Knowledge:
    return Knowledge(tmp_path / "base")
