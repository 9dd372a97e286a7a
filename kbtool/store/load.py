"""Validate a file as a record. Errors in the file become findings, never exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import ValidationError

from kbtool.model.base import (
    Commit,
    KernelId,
    Model,
    PatternId,
    Quantity,
    Reference,
    RunStep,
    SessionId,
    Slug,
    pattern_of,
)
from kbtool.model.docstrings import docstrings_of
from kbtool.model.finding import Finding, fault
from kbtool.model.kernel import Package
from kbtool.store.document import Document

R = TypeVar("R", bound=Model)


def validate(document: Document, kind: type[R], context: Any = None) -> R | list[Finding]:
    """The record in ``document``, or all findings against the schema."""
    try:
        return kind.model_validate(document.data, context=context)
    except ValidationError as error:
        return list(schema_findings(document, error, kind))
    except Exception as error:  # a fault of a validator must not keep other records from loading
        return [fault(document.path, f"the model {kind.__name__}", error)]


def schema_findings(
    document: Document, error: ValidationError, kind: type[Model]
) -> Iterator[Finding]:
    """A validation error as findings, one per place, in terms of the record."""
    reported: set[tuple[Any, ...]] = set()
    for problem in error.errors(include_url=False):
        location = [part for part in problem["loc"] if _in_document(part)]
        form = _FORM_OF_OPERAND.fullmatch(str(problem["loc"][-1])) if problem["loc"] else None
        if form and not isinstance(problem["input"], dict):
            # Pydantic reports one error for each form of an operand; give one message instead.
            message = _no_operand(problem["input"])
        elif form and "Derivation" not in form[0]:
            continue  # a mapping is a derivation, which has its own errors
        elif problem["type"] == "decimal_parsing":
            message = _no_number(problem["input"], _unit_at(document.data, location))
        else:
            message = _message(problem)
            if problem["type"] in {"missing", "too_short"}:
                message += _what_it_is(kind, location)
        place = (tuple(location), message)
        if place not in reported:
            reported.add(place)
            yield document.finding(location, "schema", f"{_dotted(location)}{message}")


def _what_it_is(kind: type[Model], location: list[Any]) -> str:
    """What the docstring of a field says first, to be put behind a message; empty without one."""
    models = [kind]
    for part in location[:-1]:  # the name of a field; else a key or an index, which leads nowhere
        below = [m.model_fields[part].annotation for m in models if part in m.model_fields]
        models = [model for one in below for model in _models_in(one)] or models
    said = {docstrings_of(model).get(str(location[-1]), "") for model in models} - {""}
    if len(said) != 1:  # kinds of step may have fields of one name that say different things
        return ""
    first, *_ = re.split(r"[.;]\s", said.pop().rstrip("."))
    return f" ({' '.join(first.split())})"


def _models_in(annotation: Any) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


class _Wording(NamedTuple):
    text: str


_WORDINGS = {
    "missing": _Wording("is missing"),
    "extra_forbidden": _Wording("is not a key of this record; remove it or correct its spelling"),
    "literal_error": _Wording("{input!r} is not one of {expected}"),
    "string_pattern_mismatch": _Wording("{input!r} does not have the form {pattern}"),
    "string_too_short": _Wording("{input!r} has fewer than {min_length} characters"),
    "string_too_long": _Wording("{input:.40}… has over {max_length:,} characters"),
    "too_short": _Wording("is empty; it needs at least {min_length}"),
    "string_type": _Wording("is {what}; it takes text"),
    "dict_type": _Wording("is {what}; it takes a mapping of keys to values"),
    "model_type": _Wording("is {what}; it takes a mapping of keys to values"),
    "list_type": _Wording("is {what}; it takes a list"),
    "union_tag_invalid": _Wording("kind {tag!r} is not one of {expected_tags}"),
    "union_tag_not_found": _Wording("has no kind; add one"),
    "int_parsing": _Wording("{input!r} is not a whole number; write digits only"),
    "bool_parsing": _Wording("{input!r} is neither true nor false"),
}

_FORM_OF_OPERAND = re.compile(r"constrained-str|function-(plain|after)\[.*]")
"""Pydantic's names in locations for the members of ``Operand``."""
_REFERENCE = pattern_of(Reference)
_FORMS = {
    pattern_of(SessionId): "is not a session id; write the whole id: 2026-11-02-name",
    pattern_of(PatternId): "is not a pattern id; write P and two digits: P07",
    pattern_of(Slug): "is not a name; use small letters, digits, dots, underscores and hyphens",
    pattern_of(RunStep): "is not a step of a run; write RUN#steps.ID, as in"
    " 20261121T161916Z-split-k-bb3c#steps.validate",
    pattern_of(Commit): "is not a commit id; write 7 to 40 hexadecimal digits (0-9, a-f)",
    pattern_of(KernelId): "is no name for it; use small letters, digits and _, a letter first",
    pattern_of(Package): "is not the name of a package; write that alone, as triton",
}
"""Required pattern of a text → the message if it does not match."""


def _message(problem: Any) -> str:
    wording = _WORDINGS.get(problem["type"])
    if wording is None:
        message: str = problem["msg"]
        return message.removeprefix("Value error, ")
    context = dict(problem.get("ctx") or {})
    given = problem.get("input")
    if context.get("pattern") == _REFERENCE:
        return _no_reference(given)
    if context.get("pattern") in _FORMS:
        return f"{given!r} {_FORMS[context['pattern']]}"
    if problem["type"] == "string_too_short" and not given:
        return "is empty"
    what = "null" if given is None else f"the text {given!r}"
    what = {list: "a list", dict: "a mapping"}.get(type(given), what)  # type: ignore[call-overload]
    return wording.text.format(**context, input=given, what=what)


def _no_reference(text: object) -> str:
    """The message for a text that is not a reference."""
    record, mark, _ = str(text).partition("#")
    if mark and not re.fullmatch(_REFERENCE, f"{record}#path"):
        return (
            f"{text!r}: {record!r} is not an id. Refer to a record by its id, not by its label:"
            " 2026-11-02-name#path, P07#path, or #path in this record; `kbtool session list` has"
            " the ids"
        )
    return f"{text!r} is not a reference; write ID#path, or #path in this record, without spaces"


def _no_operand(given: object) -> str:
    """The message for an invalid operand."""
    if isinstance(given, str) and "#" in given:
        return _no_reference(given)
    what = "null" if given is None else "a list" if isinstance(given, list) else repr(given)
    return (
        f"{what} is not an operand; write a reference (#path, or ID#path of another record), a"
        " figure with its unit ('0.20 USD/h'), a time, or a derivation (how, of)"
    )


def _no_number(text: str, unit: str | None) -> str:
    """The message for a text that is not a number; ``unit`` is the unit of its column, if any."""
    if unit is None:
        return f"{text!r} is not a number; write digits only"
    digits = "digits only"
    with suppress(ValueError):
        figure = Quantity(text)
        if figure.unit == unit and figure.is_single:
            digits = str(figure.low)
    column = f"the column's unit is {unit}" if unit else "the column has no unit"
    return f"{text!r} is not a number: {column}; write {digits}"


def _unit_at(data: Any, location: list[Any]) -> str | None:
    """The unit of the column of a measured figure; ``None`` for any other value."""
    match location:
        case ["measurements", int(table), "rows", int(), "values", column]:
            try:
                unit = data["measurements"][table]["columns"][column]["unit"]
            except (LookupError, TypeError):
                return None
            return unit if isinstance(unit, str) else None
    return None


def _in_document(part: str | int) -> bool:
    # Pydantic's locations also name union members and validators, which are not keys of records.
    return isinstance(part, int) or not (
        part in {"[key]", "constrained-str"} or "(" in part or "[" in part
    )


def _dotted(location: list[Any]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return f"{text}: " if text else ""
