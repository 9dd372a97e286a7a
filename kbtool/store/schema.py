"""The line that tells an editor which schema a record has."""

from __future__ import annotations

from typing import Literal

Kind = Literal["session", "pattern", "kernel", "run"]

FOLDER = "schemas"
"""Where the JSON Schemas stand, under the root."""

_UP = {"session": "../..", "pattern": "..", "kernel": "../.."}
"""From a record to the root."""


def modeline(kind: Kind) -> str:
    """The first line of a record of this kind."""
    return f"# yaml-language-server: $schema={_UP[kind]}/{FOLDER}/{kind}.json"
