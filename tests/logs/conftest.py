"""What the tests of importing logs share."""

from __future__ import annotations

from pathlib import Path

import pytest
from knowledge import Knowledge


@pytest.fixture
def base(tmp_path: Path) -> Knowledge:
    """A knowledge base without sessions."""
    return Knowledge(tmp_path / "base")
