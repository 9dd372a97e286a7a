"""The reference of the records: one page per kind, made from the JSON Schemas of the models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

from kbtool.markdown.escape import code, inline
from kbtool.markdown.markup import anchor, bullets, heading, join, stacked_table, yes_no
from kbtool.model.json_schema import MODELS, plain_schema
from kbtool.site import addresses as at
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.parts import page_title


def _pages(source: Source) -> Iterator[Page]:
    yield Page(at.SCHEMA, _listing)
    for kind in MODELS:
        yield Page(at.schema_page(kind), partial(_page, kind))


PAGES = Pages(_pages, at.SCHEMA, "Schemas")


_FILES = {
    "session": "`sessions/ID/session.yaml`, written by people and by `kbtool session`",
    "pattern": "`patterns/*.yaml`, written by people",
    "symptoms": "`symptoms/TOOL.yaml`, written by people; many come with kbtool",
    "kernel": "`kernels/ID/kernel.yaml`, written by people",
    "cheats": "`kernels/ID/cheats.yaml`, written by people",
    "ledger": "`sessions/ledger.yaml`, written by people",
    "excuses": "`sessions/excuses.yaml`, written by people",
    "run": "`sessions/ID/runs/*.json`, written by `kbtool run-recipe` and never edited",
    "sweep": "`sessions/ID/sweeps/*.json`, written by `kbtool sweep` and never edited",
    "corpus": "a line of what `kbtool export corpus` writes",
    "explanation": "what `kbtool explain --json` prints",
    "search": "what `kbtool search --json` prints",
    "diagnosis": "what `kbtool doctor --json` prints",
    "twin": "the JSON beside each page of this site, and the index of it",
}
"""Kind → its file."""


@cache
def _listing() -> str:
    kinds = [
        f"{at.link(code(kind), at.schema_page(kind), at.SCHEMA)}: {_prose(where)}"
        for kind, where in _FILES.items()
    ]
    ways = [
        f"{at.link(code(path), path, at.SCHEMA)}: {inline(about)}"
        for path, about in (
            (at.twin(at.HOME), "every record that has a page, with the addresses of page and JSON"),
            (at.FEED, "an Atom feed of the newest sessions and runs"),
            (at.LLMS, "what is current, for language models, in under 10 kB"),
            (at.LLMS_FULL, "every record, for language models"),
        )
    ]
    return join(
        [
            page_title("Schemas"),
            "The fields of each record, generated from the models. Unknown keys are refused. A"
            " scalar in YAML is read as text, and the field gives it its type: a commit `7e12345`"
            " is not a number and `no` is not false. A required field may be `null` if its type"
            " allows it, with the reason under `unknown:`.",
            bullets(kinds),
            "The same as JSON Schema, for editors: `kbtool schema`.",
            heading(2, "For programs", "programs"),
            "The page of each record has a JSON twin: the same address with `.json`.",
            bullets(ways),
        ]
    )


_schema = cache(plain_schema)


@cache
def _page(kind: str) -> str:
    schema = _schema(kind)
    here = at.schema_page(kind)
    link = _Links(here)
    body = [part for name, model in _own(kind).items() for part in _model(name, model, link)]
    return join(
        [
            page_title(f"Schema: {inline(kind)}"),
            f"{at.link('Schemas', at.SCHEMA, here)} › {_prose(_FILES[kind])}.",
            None if "properties" in schema else f"One of: {link.type(schema)}.",
            *body,
        ]
    )


def _models(kind: str) -> dict[str, Any]:
    """Model → its part of the schema of a kind, the record itself first."""
    schema = _schema(kind)
    inner: dict[str, Any] = schema.get("$defs", {})
    return {schema["title"]: schema, **inner} if "properties" in schema else inner


@cache
def _places() -> dict[tuple[str, str], str]:
    """Name and description of a model → the first page that describes it."""
    found: dict[tuple[str, str], str] = {}
    for kind in MODELS:
        for name, model in _models(kind).items():
            found.setdefault((name, model.get("description", "")), at.schema_page(kind))
    return found


def _own(kind: str) -> dict[str, Any]:
    """The models of a kind that no earlier page describes."""
    return {
        name: model
        for name, model in _models(kind).items()
        if _places()[name, model.get("description", "")] == at.schema_page(kind)
    }


def _model(name: str, model: Mapping[str, Any], link: _Links) -> Iterator[str]:
    """The fields of a model."""
    yield heading(2, inline(name), name)
    yield _prose(model.get("description", ""))
    required = model.get("required", [])
    rows = [
        [
            anchor(f"{name}.{field}") + code(field),
            link.type(about),
            yes_no(field in required),
            _default(about),
            _prose(about.get("description", "")),
        ]
        for field, about in model.get("properties", {}).items()
    ]
    header = ["Field", "Type", "Required", "Default", "Meaning"]
    yield stacked_table(header, rows) if rows else link.type(model)


class _Links:
    """Types as text, for one page."""

    def __init__(self, page: str) -> None:
        self.page = page
        self.of = {name: page for (name, _), page in reversed(_places().items())}

    def type(self, schema: Mapping[str, Any]) -> str:
        """A type; a model is a link to its fields."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return at.link(inline(name), f"{self.of[name]}#{name}", self.page)
        if "const" in schema:
            return code(schema["const"])
        if "enum" in schema:
            return " or ".join(map(code, schema["enum"]))
        if "examples" in schema:
            return f"text, such as {code(schema['examples'][0])}"
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return " or ".join(dict.fromkeys(map(self.type, schema[key])))
        if schema.get("type") == "array":
            return f"list of {self.type(schema.get('items', {}))}"
        values = schema.get("additionalProperties") or [
            *schema.get("patternProperties", {}).values()
        ]
        if values and values is not True:
            return f"name → {self.type(values if isinstance(values, dict) else values[0])}"
        return _WORDS.get(str(schema.get("type")), "any value")


_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "object": "object",
}


def _default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    return "" if value is None or value in ([], {}) else code(value)


def _prose(text: str) -> str:
    """A docstring as Markdown: text in backticks is code."""
    return re.sub("(?:&#96;)+(.+?)(?:&#96;)+", r"<code>\1</code>", inline(text))
