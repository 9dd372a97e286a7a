"""Which tests ``make test-quick`` runs: those that are not marked as slow."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def compiled() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["c++", "-E", "-x", "c++", "-"], input="int x;", capture_output=True, text=True, check=False
    )


def test_a_test_without_the_mark_finds_no_compiler():
    done = compiled()
    assert done.returncode == 1
    assert "a test that is not marked slow started c++" in done.stderr


@pytest.mark.slow
def test_a_test_with_the_mark_finds_one():
    assert compiled().returncode == 0


def test_what_is_built_for_many_tests_gives_them_the_mark(
    request: pytest.FixtureRequest, build_cache: Path
):
    assert request.node.get_closest_marker("slow")
    assert compiled().returncode == 0
