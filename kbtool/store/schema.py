"""JSON Schema files, and the first line of a record that points an editor to its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

Kind = Literal["session", "pattern", "symptoms", "kernel", "cheats", "ledger", "excuses", "run"]

FOLDER = "schemas"
"""Folder of the schemas, under the root."""

_UP = {
    "session": "../..", "pattern": "..", "symptoms": "..", "kernel": "../..", "cheats": "../..",
    "ledger": "..", "excuses": "..",
}  # fmt: skip
"""Relative path from a record to the root."""


def modeline(kind: Kind) -> str:
    """The first line of a record of this kind."""
    return f"# yaml-language-server: $schema={_UP[kind]}/{FOLDER}/{kind}.json"


def schema_files() -> dict[str, bytes]:
    """Name of each schema file → its content."""
    from kbtool.model.json_schema import MODELS

    return {f"{kind}.json": schema_text(kind).encode() for kind in MODELS}


def schema_text(kind: str) -> str:
    """The schema of a kind of record, as text."""
    from kbtool.model.json_schema import json_schema

    return json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n"


def stale_schemas(folder: Path) -> list[str]:
    """Names of the schema files in ``folder`` that are missing or out of date."""
    stale = []
    for name, wanted in schema_files().items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != wanted:
            stale.append(name)
    return stale
