"""The audit of many sessions: on all cores, and kept until a file changes.

Most sessions refer to no other record, and no other record refers to them. What the audit says of
such a session follows from its file alone, but for its order and its commits (``Ties``), which are
judged when all sessions are read. Sessions with links are loaded and audited together, and so are
those with a wrong claim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from kbtool.ledger.claims.audit import audit, audit_of, implied_item, judge_implied
from kbtool.ledger.claims.implied import LATER, Implied, begins_after, commits_found
from kbtool.ledger.claims.report import GRADES, WRONG, Answer, Grade, Report, answer_of, finding_of
from kbtool.ledger.claims.ties import Around, Ties, around, ties_of
from kbtool.model.base import Instant, Reference, pattern_of
from kbtool.model.session import Session
from kbtool.store.derived import derive_all, is_unsound
from kbtool.store.document import Document
from kbtool.store.load import validate
from kbtool.store.order import in_order
from kbtool.store.pool import WORTH_A_POOL, collector_off
from kbtool.store.scan import files_at
from kbtool.store.tree import Entry, KnowledgeBase

MANY = WORTH_A_POOL
"""From this many sessions on, each that has no links is audited by itself."""

Select = Callable[[list[Any]], Iterable[str]]
"""A function from all sessions, in the order of the work, to the ids of some."""


class Single(NamedTuple):
    """A session as far as it can be audited by itself."""

    path: str
    id: str
    label: str
    day: str | None
    seconds: float | None
    """See ``began``."""
    ties: Ties
    names: list[str]
    """The other records that it refers to."""
    findings: list[Any] | None
    """Its claims, as an answer has them; of those that are for later, path and line. ``None`` if
    it has links, or if a claim is wrong."""

    @property
    def follows(self) -> str | None:
        """The session before it in the same line of work."""
        return self.ties.follows

    def began(self) -> float | None:
        """See ``Session.began``."""
        return self.seconds


def audit_for(
    base: KnowledgeBase,
    grades: Collection[Grade] = GRADES,
    *,
    in_full: bool = False,
    select: Select | None = None,
) -> Answer:
    """Recompute and grade every claim.

    Args:
        base: the records.
        grades: see ``answer_of``.
        in_full: see ``answer_of``.
        select: the sessions to tell of; all, and the patterns, without it.
    """
    paths = [base.shown(path) for path in base.session_files()]
    if len(paths) < MANY or (in_full and "consistent" in grades):
        report = audit(base)
        if select is not None:
            report = report.only(select([entry.record for entry in base.sessions.values()]))
        return answer_of(report, grades, in_full=in_full)
    with collector_off():
        return _answer(base, paths, grades, select)


def _answer(
    base: KnowledgeBase, paths: Sequence[str], grades: Collection[Grade], select: Select | None
) -> Answer:
    singles = _singles(base, paths)
    ordered = in_order(singles)
    known = around(str(base.root), {one.id: one.ties for one in ordered})
    later = {one.id: _later(one, known) for one in ordered}
    linked = _linked(base, singles)
    linked |= {id_ for id_, claims in later.items() if any(one.holds is False for one in claims)}
    part = base.with_sessions(one.path for one in ordered if one.id in linked)
    report = audit_of(part, known)
    chosen = {one.id for one in ordered}
    if select is not None:
        chosen = set(select(ordered))
        report = report.only(chosen)
    answer = answer_of(report, grades)
    found: dict[str, list[Any]] = {one.id: [] for one in ordered}
    for finding in answer.findings:
        found.setdefault(finding["record"], []).append(finding)
    for one in ordered:
        if one.id in chosen and one.id not in linked:
            found[one.id] = _filled(one, later[one.id], report)
            for finding in found[one.id]:
                answer.counts[finding["grade"]] += 1
    every = chain.from_iterable(found.values())
    answer.findings = [finding for finding in every if finding["grade"] in grades]
    return answer


def _singles(base: KnowledgeBase, paths: Sequence[str]) -> list[Single]:
    """Every session that loads."""
    files = files_at(base.root, paths, "session")
    every = derive_all(str(base.root), files, partial(_make, base.root), "audits", _CODE)
    found: dict[str, Single] = {}
    for path, made in zip(paths, every, strict=True):
        if is_unsound(made):
            base.findings += made
        else:
            one = _from_json(path, made)
            found[one.id] = one
    return list(found.values())


_CODE = ("checks", "ledger", "model", "store")
"""Folders of kbtool that findings depend on."""


def _make(root: Path, document: Document) -> Any:
    """A ``Single``, but for its path, as JSON data."""
    session = validate(document, Session)
    if isinstance(session, list):
        return session
    names = sorted(_names(document) - {session.id})
    ties = ties_of(session)
    findings = None if names else _alone(root, session, document, ties)
    follows, moments, *commits = ties
    texts = [(name, moment.text) for name, moment in moments]
    return (
        session.id, session.label, session.day, session.began(), (follows, texts, *commits),
        names, findings,
    )  # fmt: skip


def _from_json(path: str, values: Any) -> Single:
    id_, label, day, seconds, (follows, times, *commits), names, findings = values
    moments = [(name, Instant(text)) for name, text in times]
    ties = Ties(follows, moments, *commits)
    return Single(path, id_, label, day, seconds, ties, names, findings)


def _names(document: Document) -> set[str]:
    """The records that a record refers to."""
    found: set[str] = set()
    # Most name none, which the text shows unless it has escapes.
    none = _NAMES.search(document.text) is None and "\\" not in document.text
    waiting = [] if none else [document.data]
    while waiting:
        node = waiting.pop()
        if type(node) is str:
            if "#" in node and node[0] != "#" and _REFERENCE.fullmatch(node):
                found.add(node.partition("#")[0])
        elif node is not None:
            waiting += node.values() if type(node) is dict else node
    return found


_NAMES = re.compile(r"#(?<=[\w-]#)")
_REFERENCE = re.compile(pattern_of(Reference))


def _alone(root: Path, session: Session, document: Document, ties: Ties) -> list[Any] | None:
    """See ``Single.findings``."""
    part = KnowledgeBase(root)
    part.sessions = {session.id: Entry(document.path, session, document)}
    part.patterns = {}
    report = audit_of(part, Around({session.id: ties}))
    if report.stale or any(item.grade in WRONG for item in report.items):
        return None
    return [
        (item.where, report.place(item.record, item.where)[1])
        if item.how == LATER
        else finding_of(report, item)
        for item in report.items
    ]


def _later(one: Single, known: Around) -> list[Implied]:
    """The claims that are for later."""
    assert known.before is not None and known.commits is not None
    ties = one.ties
    return [*begins_after(ties, known.before[one.id]), *commits_found(ties, known.commits)]


def _linked(base: KnowledgeBase, singles: Iterable[Single]) -> set[str]:
    """The sessions that cannot be audited by themselves, or that another record refers to."""
    found = {name for one in singles for name in one.names}
    for entry in base.patterns.values():
        found |= _names(entry.document) if entry.document else set()
    return found | {one.id for one in singles if one.findings is None}


def _filled(one: Single, later: Iterable[Implied], report: Report) -> list[Any]:
    """The findings of a session, with those for later."""
    by_path = {claim.path: claim for claim in later}
    filled = []
    for finding in one.findings or ():
        if type(finding) is dict:
            filled.append(finding)
        elif finding[0] in by_path:
            claim = by_path[finding[0]]
            item = implied_item(one.id, claim, judge_implied(claim, one.id, report.records))
            filled.append(finding_of(report, item, place=(one.path, finding[1])))
    return filled
