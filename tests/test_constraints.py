"""The pinned versions install on every Python that kbtool takes."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from importlib.metadata import metadata as metadata_of
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent
PINS = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
OLDEST = "3.11.0"


def test_kbtool_takes_the_oldest_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert OLDEST in SpecifierSet(project["requires-python"])


@pytest.mark.parametrize("pin", PINS, ids=str)
def test_every_pinned_package_supports_the_oldest_python(pin: Requirement) -> None:
    """3.11.0: a distribution's Python 3.11 is no newer than the day it was frozen."""
    try:
        installed = version(pin.name)
    except PackageNotFoundError:
        pytest.skip(f"{pin.name} is not installed here")
    # In the backport of importlib.metadata, which a package may have imported, the index of a key
    # that is not there raises KeyError.
    [wanted] = metadata_of(pin.name).get_all("Requires-Python", [""])
    assert installed in pin.specifier, "another version is installed: make it again with `make`"
    assert OLDEST in SpecifierSet(wanted), f"{pin} takes Python {wanted}; pin an earlier one"
