"""From a file to a record, or to findings: never an exception for what a person wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from kbtool.model.base import Model
from kbtool.model.finding import Finding
from kbtool.store.document import Document

R = TypeVar("R", bound=Model)


def validate(document: Document, kind: type[R]) -> R | list[Finding]:
    """The record in ``document``, or every way in which it breaks the schema."""
    try:
        return kind.model_validate(document.data)
    except ValidationError as error:
        return list(schema_findings(document, error))


def schema_findings(document: Document, error: ValidationError) -> Iterator[Finding]:
    """A validation error as findings, one a place, in the words of the record's author."""
    told: set[tuple[Any, ...]] = set()
    for problem in error.errors(include_url=False):
        location = [part for part in problem["loc"] if _in_document(part)]
        message = _message(problem)
        place = (tuple(location), message)
        if place not in told:
            told.add(place)
            yield document.finding(location, "schema", f"{_dotted(location)}{message}")


class _Wording(NamedTuple):
    text: str


_WORDINGS = {
    "missing": _Wording("is missing"),
    "extra_forbidden": _Wording("is no key of this record; remove it or mend its spelling"),
    "literal_error": _Wording("{input!r} is not one of {expected}"),
    "string_pattern_mismatch": _Wording("{input!r} does not have the form {pattern}"),
    "string_too_short": _Wording("is empty"),
    "too_short": _Wording("is empty; it needs at least {min_length}"),
    "string_type": _Wording("is {what}; it takes text"),
    "dict_type": _Wording("is {what}; it takes a mapping of keys to values"),
    "model_type": _Wording("is {what}; it takes a mapping of keys to values"),
    "list_type": _Wording("is {what}; it takes a list"),
    "union_tag_invalid": _Wording("kind {tag!r} is not one of {expected_tags}"),
    "union_tag_not_found": _Wording("has no kind"),
}


def _message(problem: Any) -> str:
    wording = _WORDINGS.get(problem["type"])
    if wording is None:
        message: str = problem["msg"]
        return message.removeprefix("Value error, ")
    context = dict(problem.get("ctx") or {})
    given = problem.get("input")
    what = "null" if given is None else f"the text {given!r}"
    what = {list: "a list", dict: "a mapping"}.get(type(given), what)  # type: ignore[call-overload]
    return wording.text.format(**context, input=given, what=what)


def _in_document(part: str | int) -> bool:
    # Pydantic names union members and validators in its locations; records have no such keys.
    return isinstance(part, int) or not (
        part == "[key]" or "(" in part or "[" in part or part in {"Quantity", "Derivation"}
    )


def _dotted(location: list[Any]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return f"{text}: " if text else ""
