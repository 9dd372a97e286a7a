"""JSON Schemas of the records, for editors that complete and check while one types.

kbtool reads every scalar as text; an editor's parser has made ``0012345`` a number and ``true`` a
boolean before its schema sees them. So where a text may look like one of those, the schema lets it.
"""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

from pydantic import BaseModel

from kbtool.model.cheat import Catalogue
from kbtool.model.corpus import CorpusLine
from kbtool.model.diagnosis import Diagnosis
from kbtool.model.excuses import Excuses
from kbtool.model.explanation import Explanation, Search
from kbtool.model.kernel import Kernel
from kbtool.model.kinds import StepSpec
from kbtool.model.ledger import Ledger
from kbtool.model.pattern import Pattern
from kbtool.model.run import Run
from kbtool.model.session import Session
from kbtool.model.sweep import Sweep
from kbtool.model.symptom import Symptoms
from kbtool.model.twin import TwinFile

MODELS: dict[str, type[BaseModel]] = {
    "session": Session,
    "pattern": Pattern,
    "symptoms": Symptoms,
    "kernel": Kernel,
    "cheats": Catalogue,
    "ledger": Ledger,
    "excuses": Excuses,
    "run": Run,
    "sweep": Sweep,
    "corpus": CorpusLine,
    "twin": TwinFile,
    "explanation": Explanation,
    "search": Search,
    "diagnosis": Diagnosis,
}
"""Kind of record, or of what is made from records → its model."""

WRITTEN = {"corpus", "twin", "explanation", "search", "diagnosis"}
"""What kbtool writes and never reads."""

_NUMBERS = ("0", "7", "12", "123456789", "1234567", "7e12345", "1.5", "2.4")
_BOOLEANS = ("true", "false")
_PLACEHOLDER = {"type": "string", "pattern": r"\$\{[a-z][a-z0-9_]*\}"}
_STEPS = frozenset(kind.__name__ for kind in get_args(get_args(StepSpec)[0]))


def json_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of record."""
    schema = plain_schema(kind)
    if kind not in {"run", "sweep", *WRITTEN}:  # these are JSON, which has types of its own
        _widen(schema)
        for name in _STEPS & schema.get("$defs", {}).keys():
            _allow_placeholders(schema["$defs"][name])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def plain_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of record as kbtool reads it, whatever an editor makes of YAML."""
    mode: Literal["serialization", "validation"] = (
        "serialization" if kind in WRITTEN else "validation"
    )
    schema: dict[str, Any] = MODELS[kind].model_json_schema(mode=mode)
    return schema


def _widen(node: Any) -> None:
    """Let each scalar be what a YAML parser may have made of it."""
    if isinstance(node, list):
        for item in node:
            _widen(item)
        return
    if not isinstance(node, dict):
        return
    for key, part in node.items():
        if key in {"properties", "$defs"}:
            for inner in part.values():
                _widen(inner)
        elif key not in {"enum", "const", "default", "examples", "required"}:
            _widen(part)
    if node.get("type") == "string" and "enum" not in node and "const" not in node:
        node["type"] = ["string", *_lookalikes(node.get("pattern"))]
    elif node.get("type") == "boolean":
        _alternative(node, {"type": "boolean"}, {"enum": list(_BOOLEANS)})
    elif node.get("type") == "integer":
        _alternative(node, _type_keywords(node), {"type": "string", "pattern": r"^-?\d+$"})


def _lookalikes(pattern: str | None) -> list[str]:
    """What else than text a text of this form may have been taken for."""
    form = re.compile(pattern or "")
    found = []
    if any(form.search(text) for text in _NUMBERS):
        found.append("number")
    if any(form.search(text) for text in _BOOLEANS):
        found.append("boolean")
    return found


_OF_THE_TYPE = ("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def _type_keywords(node: dict[str, Any]) -> dict[str, Any]:
    return {key: node[key] for key in _OF_THE_TYPE if key in node}


def _alternative(node: dict[str, Any], *ways: dict[str, Any]) -> None:
    for key in _OF_THE_TYPE:
        node.pop(key, None)
    node["anyOf"] = list(ways)


def _allow_placeholders(step: dict[str, Any]) -> None:
    """``${name}`` may stand for any value of a step, of whatever type."""
    for name, part in list(step["properties"].items()):
        if name != "kind":
            about = {key: part.pop(key) for key in ("description", "title") if key in part}
            step["properties"][name] = {**about, "anyOf": [part, dict(_PLACEHOLDER)]}
