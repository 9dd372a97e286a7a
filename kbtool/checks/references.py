"""Find the links of a record, to other records and within itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kbtool.checks.facts import PATTERN_ROLES, SESSION_ROLES, Location, Ref
from kbtool.model.base import KernelId, PatternId, Reference, SessionId, pattern_of
from kbtool.store.scan import FileKind

_FORMS = {
    **dict.fromkeys(SESSION_ROLES, re.compile(pattern_of(SessionId))),
    **dict.fromkeys(PATTERN_ROLES, re.compile(pattern_of(PatternId))),
    "kernel": re.compile(pattern_of(KernelId)),
}
_REFERENCE = re.compile(pattern_of(Reference))


def references(data: dict[str, Any], kind: FileKind, id_: str) -> Iterator[Ref]:
    """The links in a record's parsed data.

    Text that is not a valid link is left to the schema, except for a session's label, which gives a
    link with the role ``label``. A link into the record itself is always ``#path``.

    Args:
        data: the record, which need not be sound.
        kind: its kind.
        id_: its id.
    """
    own = f"{id_}#"
    for ref in _links(data, kind):
        if not isinstance(ref.target, str):
            continue
        if not _FORMS.get(ref.role, _REFERENCE).fullmatch(ref.target):
            if ref.target[:1] not in {"", "#"}:
                yield ref._replace(role="label")  # the label of a session, for all that is known
            continue
        if ref.target.startswith(own):
            yield ref._replace(target=ref.target[len(own) - 1 :])
        else:
            yield ref


def _links(data: dict[str, Any], kind: FileKind) -> Iterator[Ref]:
    if kind == "session":
        yield _raw("follows", ["follows"], data.get("follows"))
        kernels = data.get("kernels")
        for index, target in enumerate(kernels if isinstance(kernels, list) else ()):
            yield _raw("kernel", ["kernels", index], target)
        for index, bug in _items(data, "bugs"):
            yield _raw("recurrence", ["bugs", index, "recurrence_of"], bug.get("recurrence_of"))
        for index, fix in _items(data, "fixes"):
            yield _raw("fix", ["fixes", index, "bug"], fix.get("bug"))
            yield from _shown_by(["fixes", index], fix)
        for index, evidence in _items(data, "evidence"):
            against = evidence.get("verdict") in ("contradicted", "not_reproduced")
            role = "evidence against" if against else "evidence"
            yield _raw(role, ["evidence", index, "pattern"], evidence.get("pattern"))
            yield from _shown_by(["evidence", index], evidence)
        for index, step in _items(data, "steps"):
            yield _raw("step", ["steps", index, "pattern"], step.get("pattern"))
    elif kind == "pattern":
        for index, older in _items(data, "supersedes"):
            yield _raw("supersedes", ["supersedes", index, "pattern"], older.get("pattern"))
            yield _raw("since", ["supersedes", index, "since"], older.get("since"))
        for index, lesson in _items(data, "lessons"):
            yield _raw("lesson", ["lessons", index, "session"], lesson.get("session"))
        for role in ("stated_in", "related", "needs", "conflicts", "bugs"):
            targets = data.get(role)
            for index, target in enumerate(targets if isinstance(targets, list) else ()):
                yield _raw(role, [role, index], target)
    elif kind == "symptoms":
        for index, symptom in _items(data, "symptoms"):
            targets = symptom.get("patterns")
            for place, target in enumerate(targets if isinstance(targets, list) else ()):
                yield _raw("symptom", ["symptoms", index, "patterns", place], target)
    rests_on = data.get("rests_on")
    for path, claims in (rests_on if isinstance(rests_on, dict) else {}).items():
        for index, target in enumerate(claims if isinstance(claims, list) else ()):
            yield _raw("rests_on", ["rests_on", path, index], target)
    for index, claim in _items(data, "claims"):
        yield from _operands(claim.get("of"), ["claims", index, "of"])


def _raw(role: str, location: Location, target: Any) -> Ref:
    """A link whose target may be anything yet."""
    return Ref(role, location, target)


def _items(data: dict[str, Any], key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    items = data.get(key)
    if isinstance(items, list):
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield index, item


def _shown_by(location: Location, item: dict[str, Any]) -> Iterator[Ref]:
    shown = item.get("shown_by")
    for place, target in enumerate(shown if isinstance(shown, list) else ()):
        yield _raw("shown_by", [*location, "shown_by", place], target)


def _operands(operands: Any, location: Location) -> Iterator[Ref]:
    for index, operand in enumerate(operands if isinstance(operands, list) else ()):
        if isinstance(operand, dict):
            yield from _operands(operand.get("of"), [*location, index, "of"])
        elif isinstance(operand, str) and "#" in operand:
            yield Ref("claim", [*location, index], operand)
