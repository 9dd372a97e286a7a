"""Rules over one record. Each rule is a generator, and its docstring states the rule.

To add a rule, write a generator and add it to ``RECORD_RULES``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from kbtool.checks.facts import BUG_ROLES, Ref
from kbtool.checks.paths import Location, locate, spell
from kbtool.checks.record_file import RecordFile, file_name
from kbtool.model.address import AddressError, resolve
from kbtool.model.base import (
    Cite,
    Cited,
    Instant,
    Model,
    Quantity,
    cited_lines,
    pattern_of,
)
from kbtool.model.bug import Bug
from kbtool.model.finding import Finding
from kbtool.model.pattern import Pattern
from kbtool.model.session import Environment, Repository, Session
from kbtool.store.schema import modeline

Rule = Callable[[RecordFile], Iterator[Finding]]

_CITE = re.compile(pattern_of(Cite))


def has_modeline(file: RecordFile) -> Iterator[Finding]:
    """The first line names the schema, so that editors can complete and check the record."""
    wanted = modeline(file.kind)  # type: ignore[arg-type]
    first = file.document.text.split("\n", 1)[0].rstrip()
    if first == f"\ufeff{wanted}":
        yield Finding(
            file.path, 1, "encoding",
            "begins with a byte order mark (U+FEFF), which no editor shows; save the file as UTF-8"
            " without BOM",
        )  # fmt: skip
    elif first != wanted:
        yield Finding(file.path, 1, "modeline", f"the first line must be: {wanted}")


def id_is_name(file: RecordFile) -> Iterator[Finding]:
    """A record's id is the name of its folder, or of its file: P08.yaml or P08-title.yaml."""
    id_, name = file.data.get("id"), file_name(file.path, file.kind)
    if not isinstance(id_, str) or id_ == name:
        return
    if file.kind == "pattern" and name.startswith(f"{id_}-"):
        return
    what = "file" if file.kind in {"pattern", "symptoms"} else "folder"
    yield file.finding(["id"], "id", f"{id_!r} is in a {what} named {name!r}; make them equal")


def items_are_unique(file: RecordFile) -> Iterator[Finding]:
    """Within one list no two items have one id: references would be ambiguous."""
    for location, ids in file.places.items:
        seen: set[str] = set()
        for index, id_ in enumerate(ids):
            if isinstance(id_, str):
                if id_ in seen:
                    place = [*location, index, "id"]
                    yield file.finding(
                        place, "unique", f"another item has the id {id_!r}; rename one of them"
                    )
                seen.add(id_)


def nulls_have_reasons(file: RecordFile) -> Iterator[Finding]:
    """A null that is written down has its reason under ``unknown``, at its path."""
    if not file.places.nulls:
        return
    unknown = file.data.get("unknown")
    given = unknown if isinstance(unknown, dict) else {}
    reasoned = {place for path in given for place in locate(_without_unknown(file), path)}
    for location in file.places.nulls:
        if location[0] == "unknown" or location in reasoned:
            continue
        path = spell(file.data, location)
        hint = (
            "leave the key out"
            if file.kind == "kernel"
            else f"give the reason under unknown: {{{path}: why}}, or leave the key out"
        )
        yield file.finding(location, "null-reason", f"{path} is null without a reason: {hint}")


def reasons_have_nulls(file: RecordFile) -> Iterator[Finding]:
    """Every entry of ``unknown`` names a null that is there."""
    unknown = file.data.get("unknown")
    if not isinstance(unknown, dict):
        return
    for path in unknown:
        places = locate(_without_unknown(file), path)
        if not places:
            problem = "is not in this record; write the null that it explains"
        elif any(_at(file.data, place) is not None for place in places):
            problem = "is not null: remove the reason, or make the value null"
        else:
            continue
        yield file.finding(["unknown", path], "null-reason", f"{path} {problem}")


def own_references_lead_somewhere(file: RecordFile) -> Iterator[Finding]:
    """A reference into this very record (``#path``) finds what it names; a fix finds a bug."""
    for ref in file.references:
        if not ref.target.startswith("#") or names_item(file, ref):
            continue
        if file.record is None:
            problem = _broken_in_raw(file, ref)
            if problem is not None:
                yield file.finding(ref.location, "link", f"{ref.target}: {problem}")
            continue
        try:
            found = resolve(file.record, ref.target[1:])
        except AddressError as error:
            yield file.finding(ref.location, "link", f"{ref.target}: {error}")
            continue
        if ref.role in BUG_ROLES and not isinstance(found, Bug):
            yield file.finding(ref.location, "link", f"{ref.target} is not a bug; write #bugs.ID")


def transcripts_name_sources(file: RecordFile) -> Iterator[Finding]:
    """A record transcribed from logs (origin log or mention) names them under ``sources``."""
    origin = file.data.get("origin")
    if file.kind == "session" and origin in _TRANSCRIBED and not file.data.get("sources"):
        yield file.finding(
            ["origin"], "provenance", f"origin {origin} needs sources: the logs that it was read in"
        )


def figures_are_cited(file: RecordFile) -> Iterator[Finding]:
    """In a record with sources every item that states a figure says where the figure stands.

    An item inside another one may leave it to that one.
    """
    if file.record is None or not (_is_transcript(file) or file.data.get("sources")):
        return
    for location in _uncited(file.record, (), cited=False):
        name = spell(file.data, location)
        yield file.finding(
            location,
            "provenance",
            f"{name} states figures: add source: KEY:LINES, a key of sources",
        )


def times_are_cited(file: RecordFile) -> Iterator[Finding]:
    """In a transcribed session, ``cites`` says where times, duration, budgets and grade stand."""
    if file.kind != "session" or not _is_transcript(file):
        return
    cites = file.data.get("cites")
    cited = cites if isinstance(cites, dict) else {}
    for key in _TOP_FIGURES:
        if file.data.get(key) is not None and key not in cited:
            yield file.finding(
                [key], "provenance", f"{key} is not cited: add cites: {{{key}: KEY:LINES}}"
            )


def citations_are_known(file: RecordFile) -> Iterator[Finding]:
    """Every citation names a key of ``sources``, and ``cites`` names keys of this record."""
    if file.kind not in {"session", "pattern", "ledger"}:
        return
    sources = file.data.get("sources")
    known = sources if isinstance(sources, dict) else {}
    cites = file.data.get("cites")
    if not isinstance(cites, dict):
        cites = {}
    top = [(("cites", key), cite) for key, cite in cites.items() if isinstance(cite, str)]
    for location, cite in file.places.sources + top:
        key = cite.partition(":")[0]
        if key not in known:
            names = ", ".join(known) or "none"
            yield file.finding(
                location, "provenance", f"{key!r} is not a key of sources; the keys are {names}"
            )
    for path in cites:
        if not locate({k: v for k, v in file.data.items() if k != "cites"}, path):
            yield file.finding(["cites", path], "provenance", f"cites {path}, which is not here")


def what_rests_on_claims_is_there(file: RecordFile) -> Iterator[Finding]:
    """Every key of ``rests_on`` is a place in this record: a decision, a plan, an outcome."""
    rests_on = file.data.get("rests_on")
    rest = {key: value for key, value in file.data.items() if key != "rests_on"}
    for path in rests_on if isinstance(rests_on, dict) else ():
        if not locate(rest, path):
            message = f"{path} is not in this record; name what rests on the claims"
            yield file.finding(["rests_on", path], "link", message)


_COUNT = re.compile("[0-9]{1,20}")


def cited_lines_are_there(file: RecordFile) -> Iterator[Finding]:
    """Cited lines lie within their source, where ``sources`` says how many lines it has."""
    sources = file.data.get("sources")
    if not isinstance(sources, dict):
        return
    length = {
        key: int(source["lines"])
        for key, source in sources.items()
        # More digits than that are no count of lines, which the schema says.
        if isinstance(source, dict) and _COUNT.fullmatch(str(source.get("lines")))
    }
    cites = file.data.get("cites")
    top = [
        (("cites", key), cite) for key, cite in (cites if isinstance(cites, dict) else {}).items()
    ]
    for location, cite in file.places.sources + top:
        if not isinstance(cite, str) or not _CITE.fullmatch(cite):
            continue
        key = cite.partition(":")[0]
        last = max((last for _, last in cited_lines(cite)), default=0)
        if key in length and last > length[key]:
            message = f"{cite} is past the end of the source: {key} has {length[key]} lines"
            yield file.finding(location, "provenance", message)


RECORD_RULES: tuple[Rule, ...] = (
    has_modeline,
    id_is_name,
    items_are_unique,
    nulls_have_reasons,
    reasons_have_nulls,
    own_references_lead_somewhere,
    transcripts_name_sources,
    figures_are_cited,
    times_are_cited,
    citations_are_known,
    cited_lines_are_there,
    what_rests_on_claims_is_there,
)
"""The rules for records in YAML."""

_TRANSCRIBED = ("log", "mention")

_TOP_FIGURES = (
    "started", "ended", "updated", "duration", "budget_time", "budget_money", "grade"
)  # fmt: skip

_COMMIT_KEYS = ("commit", "sha")


def _is_transcript(file: RecordFile) -> bool:
    return file.data.get("origin") in _TRANSCRIBED


def names_item(file: RecordFile, ref: Ref) -> bool:
    """Whether ``ref`` is ``#LIST.ID`` and one item is called that; most are, and need no search."""
    key, _, name = ref.target[1:].partition(".")
    if ref.role in BUG_ROLES and key != "bugs":
        return False
    return file.names_in(key).get(name) == 1


_FIELDS = {"session": frozenset(Session.model_fields), "pattern": frozenset(Pattern.model_fields)}


def _broken_in_raw(file: RecordFile, ref: Ref) -> str | None:
    """What is certainly wrong with a link into a record that does not load, or ``None``.

    Only the item that it names is looked for: what is in it, and what its list would hold if it
    were sound, nobody can tell.
    """
    keys = ref.target[1:].split(".")
    fields = _FIELDS.get(file.kind, frozenset())
    if ref.role in BUG_ROLES and keys[0] in fields and keys[0] != "bugs":
        return "is not a bug; write #bugs.ID"
    below = file.data.get(keys[0])
    if keys[0] in fields and (
        len(keys) == 1
        or not isinstance(below, list)
        or not all(isinstance(item, dict) and isinstance(item.get("id"), str) for item in below)
    ):
        return None
    named = (".".join(keys[:length]) for length in range(1 + (keys[0] in fields), len(keys) + 1))
    if any(locate(file.data, name) for name in named):
        return None
    return f"there is no {keys[-1] if len(keys) == 1 else keys[1]!r} in it"


def _without_unknown(file: RecordFile) -> dict[str, Any]:
    return {key: value for key, value in file.data.items() if key != "unknown"}


def _at(data: Any, location: Location) -> Any:
    for part in location:
        data = data[part]
    return data


def _uncited(model: Model, location: Location, *, cited: bool) -> Iterator[Location]:
    """Items below ``model`` that state figures with no source on them or around them."""
    if isinstance(model, Cited):
        if not cited and model.source is None and _states_figures(model):
            yield location
            return
        cited = cited or model.source is not None
    for name, value in model.__dict__.items():
        if isinstance(value, Model):
            yield from _uncited(value, (*location, name), cited=cited)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, Model):
                    yield from _uncited(item, (*location, name, index), cited=cited)


def _states_figures(item: Cited) -> bool:
    values = {name: value for name, value in item.__dict__.items() if name != "source"}
    if isinstance(item, (Environment, Repository)):
        return any(value not in (None, {}) for value in values.values())
    return any(
        _is_figure(value) or (name in _COMMIT_KEYS and value is not None)
        for name, value in values.items()
    )


def _is_figure(value: object) -> bool:
    if isinstance(value, (Decimal, Quantity, Instant)):
        return True
    if isinstance(value, int):
        return not isinstance(value, bool)
    if isinstance(value, Cited):
        return False  # it is asked for itself
    if isinstance(value, Model):
        return any(_is_figure(part) for part in value.__dict__.values())
    if isinstance(value, dict):
        return any(_is_figure(part) for part in value.values())
    return isinstance(value, list) and any(_is_figure(part) for part in value)
