"""Where a record links to others, and to places in itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbtool.checks.facts import Location, Ref
from kbtool.store.scan import FileKind

BUG_ROLES = frozenset(("fix", "recurrence"))
"""Links that must lead to a bug."""
SESSION_ROLES = frozenset(("follows", "stated_in"))
"""Links that must name a session."""
PATTERN_ROLES = frozenset(("supersedes", "related", "evidence"))
"""Links that must name a pattern."""


def references(data: dict[str, Any], kind: FileKind) -> Iterator[Ref]:
    """The links in a record's plain data, which its schema must have passed.

    A link into the record itself comes as ``#path``, whether or not its id was spelled out.
    """
    own = f"{data['id']}#"
    for ref in _links(data, kind):
        if ref.target.startswith(own):
            yield ref._replace(target=ref.target[len(own) - 1 :])
        else:
            yield ref


def _links(data: dict[str, Any], kind: FileKind) -> Iterator[Ref]:
    if kind == "session":
        if data.get("follows"):
            yield Ref("follows", ["follows"], data["follows"])
        for index, bug in enumerate(data.get("bugs") or ()):
            if bug.get("recurrence_of"):
                where: Location = ["bugs", index, "recurrence_of"]
                yield Ref("recurrence", where, bug["recurrence_of"])
        for index, fix in enumerate(data.get("fixes") or ()):
            yield Ref("fix", ["fixes", index, "bug"], fix["bug"])
        for index, evidence in enumerate(data.get("evidence") or ()):
            yield Ref("evidence", ["evidence", index, "pattern"], evidence["pattern"])
    elif kind == "pattern":
        for role in ("stated_in", "supersedes", "related"):
            for index, target in enumerate(data.get(role) or ()):
                yield Ref(role, [role, index], target)
    for index, claim in enumerate(data.get("claims") or ()):
        yield from _operands(claim.get("of"), ["claims", index, "of"])


def _operands(operands: Any, location: Location) -> Iterator[Ref]:
    for index, operand in enumerate(operands or ()):
        if isinstance(operand, dict):
            yield from _operands(operand.get("of"), [*location, index, "of"])
        elif "#" in operand and " " not in operand:
            yield Ref("claim", [*location, index], operand)
