"""Every session as far as time and money go, from a cache: for sums and for a shell prompt."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from kbtool.model.finding import Finding
from kbtool.model.sitting import Sitting, from_json, sitting_of, to_json
from kbtool.store.derived import derive_all, is_unsound
from kbtool.store.pool import WORTH_A_POOL, collector_off
from kbtool.store.scan import File

if TYPE_CHECKING:
    from kbtool.store.document import Document


def sittings_in(root: str, files: Sequence[File]) -> tuple[list[Sitting], list[Finding]]:
    """The sessions in ``files``, and the findings against those that do not load."""
    sittings: list[Sitting] = []
    findings: list[Finding] = []
    with collector_off() if len(files) >= WORTH_A_POOL else nullcontext():
        for made in derive_all(root, files, _make, "sittings"):
            if is_unsound(made):
                findings += made
            else:
                sittings.append(from_json(made))
    return sittings, findings


def _make(document: Document) -> Any:
    from kbtool.model.session import Session
    from kbtool.store.load import validate

    session = validate(document, Session)
    return session if isinstance(session, list) else to_json(sitting_of(session))
