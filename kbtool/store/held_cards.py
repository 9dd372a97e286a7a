"""How long the runs of each session held a card, from a cache: for sums that read no run."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kbtool.model.finding import Finding
from kbtool.model.run import Run
from kbtool.store.derived import derive_all, is_unsound
from kbtool.store.document import DocumentError
from kbtool.store.read import MAX_RUN_BYTES
from kbtool.store.scan import files_at
from kbtool.store.tree import KnowledgeBase, parse_run


def held_cards(base: KnowledgeBase) -> dict[str, dict[str, float]]:
    """Session → card, as its driver names it → seconds for which runs held it.

    Each attempt counts from its beginning to its end, a second for each card that it could use.
    What was read from a file of another tool held no card.
    """
    root = str(base.root)
    files = files_at(root, [base.shown(path) for path in base.run_files()], "run")
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for made in derive_all(root, files, _held, "held_cards", opened=(_open, MAX_RUN_BYTES)):
        if is_unsound(made):
            base.report(made)
            continue
        held: list[Any] = made
        for session, card, seconds in held:
            found[session][card] += seconds
    return found


def _open(raw: bytes, path: str) -> Run:
    run = parse_run(raw, path)
    if isinstance(run, Finding):
        raise DocumentError(run)
    return run


def _held(run: Run) -> list[Any]:
    card = run.machine.card
    if card is None or run.origin == "file":
        return []
    seconds = max(0.0, (run.ended - run.started).total_seconds())
    return [(run.session, card, seconds * (run.machine.cards or 1))]
