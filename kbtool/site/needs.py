"""Which generator lays out the site, and the packages that needs. Imports none of them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from kbtool.store.format import FILE

MKDOCS, ZENSICAL = "mkdocs", "zensical"
DEFAULT = MKDOCS
"""What lays out a site whose ``kbtool.yaml`` names no generator (ADR 0068 says until when)."""

INSTALL = {MKDOCS: "pip install 'kbtool[site]'", ZENSICAL: "pip install 'kbtool[zensical]'"}
"""Generator → the command that installs all it needs."""

_PACKAGES = {
    MKDOCS: ("mkdocs", "material", "markdown_it", "mdit_py_plugins", "latex2mathml"),
    ZENSICAL: ("zensical", "markdown_it", "mdit_py_plugins", "latex2mathml"),
}
_GENERATOR = re.compile(r"^generator:[ \t]*['\"]?([^\s'\"#]*)", re.MULTILINE)


def generator_of(root: Path | None) -> str:
    """What ``kbtool.yaml`` names as the generator, or the default."""
    file = root / FILE if root else None
    text = file.read_text("utf-8-sig", "replace") if file and file.is_file() else ""
    named = _GENERATOR.search(text)
    return named[1] if named else DEFAULT


def missing_package(generator: str) -> str | None:
    """The first package that is not installed and that the generator needs."""
    needed = _PACKAGES.get(generator, ())
    return next((name for name in needed if importlib.util.find_spec(name) is None), None)
