"""Where the catalogue of symptoms is that comes with kbtool."""

from __future__ import annotations

from pathlib import Path

FOLDER = "symptoms"
"""The folder of the catalogue, under the root of a knowledge base."""


def packaged() -> Path:
    """The folder of kbtool's own catalogue: in its checkout, else in the installed wheel."""
    package = Path(__file__).parents[1]
    checkout = package.parent / FOLDER
    return checkout if checkout.is_dir() else package / f"_{FOLDER}"
