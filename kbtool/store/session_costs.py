"""The costs of every session, from a cache: for sums and for a shell prompt."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from kbtool.model.finding import Finding
from kbtool.model.session_costs import SessionCosts, from_json, session_costs_of, to_json
from kbtool.store.derived import derive_all, is_unsound
from kbtool.store.pool import WORTH_A_POOL, collector_off
from kbtool.store.scan import File

if TYPE_CHECKING:
    from kbtool.store.document import Document


def session_costs_in(root: str, files: Sequence[File]) -> tuple[list[SessionCosts], list[Finding]]:
    """The costs of the sessions in ``files``, and the findings against those that do not load."""
    sessions: list[SessionCosts] = []
    findings: list[Finding] = []
    with collector_off() if len(files) >= WORTH_A_POOL else nullcontext():
        for made in derive_all(root, files, _make, "session_costs"):
            if is_unsound(made):
                findings += made
            else:
                sessions.append(from_json(made))
    return sessions, findings


def _make(document: Document) -> Any:
    from kbtool.model.session import Session
    from kbtool.store.load import validate

    session = validate(document, Session)
    return session if isinstance(session, list) else to_json(session_costs_of(session))
