"""Sessions with claims and the audit of them, for its tests."""

from __future__ import annotations

from typing import Any

import yaml
from knowledge import Knowledge

from kbtool.ledger.claims.audit import audit
from kbtool.ledger.claims.report import Item, Report
from kbtool.store.tree import KnowledgeBase

ID = "2025-01-01-a"


def claim(id_: str, how: str | None = None, of: list[Any] | None = None, **more: Any) -> dict:
    return {"id": id_, "says": f"claims {id_}", "how": how, "of": of or [], **more}


class Plain(yaml.SafeDumper):
    """No anchors: records have none."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def as_yaml(more: dict) -> str:
    return yaml.dump(more, Dumper=Plain, allow_unicode=True, sort_keys=False)


def report(base: Knowledge) -> Report:
    loaded = KnowledgeBase(base.root)
    found = audit(loaded)
    assert not loaded.findings, loaded.findings
    return found


def audited(base: Knowledge, *claims: dict, **more: Any) -> dict[str, Item]:
    """One session with ``more`` in it; the claims by their ids, those of fields by their paths."""
    base.session(more=as_yaml({"claims": list(claims), **more}))
    return {item.claim: item for item in report(base).items}


def grades(base: Knowledge, *claims: dict, **more: Any) -> dict[str, str]:
    """Without the claim that the day of the id makes with a start."""
    items = audited(base, *claims, **more)
    return {name: item.grade for name, item in items.items() if name != "id"}


COSTS = [
    {"kind": "gpu", "amount": "0.35", "basis": "claimed"},
    {"kind": "ai", "amount": "1.00", "basis": "claimed"},
]
