"""The index of ``kbtool search`` for the site's search worker, which ranks by it as the command."""

from __future__ import annotations

import json
from itertools import chain

from kbtool.runner import resemble
from kbtool.runner.index import Record, ranking
from kbtool.runner.remedies import indexed
from kbtool.site import addresses as at
from kbtool.site.index import Index

PLACE = "assets/search.js"


def script(index: Index, worker: bytes) -> bytes:
    """The worker, ahead of it what it ranks by: words by their numbers, and of each record its
    page, its kind, its names, and how much each word counts."""
    known = indexed(index.base).words
    numbers: dict[str, int] = {}
    records = []
    for record, counts in known.documents():
        row = [(numbers.setdefault(stem, len(numbers)), count) for stem, count in counts.items()]
        place = at.published(place_of(record))
        records.append([place, record.kind, record.names, [*chain.from_iterable(row)]])
    data = {**resemble.settings(), **ranking(), "words": list(numbers), "records": records}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return b"const KB_WORDS = " + text.encode() + b";\n" + worker


def place_of(record: Record) -> str:
    """The page of a record, with its anchor."""
    if record.kind == "pattern":
        return at.pattern_page(record.id)
    if record.kind == "symptom":
        tool, _, name = record.id.partition("/")
        return f"{at.symptoms_page(tool)}#{name}"
    if record.kind == "bug":
        session, _, bug = record.id.partition("#bugs.")
        return at.bug_page(session, bug)
    if record.kind == "session":
        return at.session_page(record.id)
    if record.kind == "recipe":
        return at.recipe_page(record.id)
    if record.kind == "kernel":
        return at.kernel_page(record.id)
    return record.id  # a page under docs/
