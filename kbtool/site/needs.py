"""The packages that building the site needs. Imports none of them."""

from __future__ import annotations

import importlib.util

INSTALL = "pip install 'kbtool[site]'"
PACKAGES = ("mkdocs", "material", "markdown_it", "mdit_py_plugins", "latex2mathml")


def missing_package() -> str | None:
    """The first package that is not installed."""
    return next((name for name in PACKAGES if importlib.util.find_spec(name) is None), None)
