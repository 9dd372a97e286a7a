"""Where each record has its page, and each item of a record its anchor.

Addresses are permanent: they are made of ids, which never change, and of nothing else.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from urllib.parse import quote

from pydantic import BaseModel

from kbtool.model.address import AddressError, item_key, resolve
from kbtool.model.session import Session

HOME = "index.md"
SESSIONS = "sessions/index.md"
PATTERNS = "patterns/index.md"
WRONG = "what-went-wrong.md"
SYMPTOMS = "symptoms/index.md"
KERNELS = "kernels/index.md"
BUGS = "bugs/index.md"
COSTS = "costs.md"
AUDIT = "audit.md"
RECIPES = "recipes/index.md"
RUNS = "runs/index.md"
TAGS = "tags.md"
DECISIONS = "adr/index.md"
GLOSSARY = "guide/glossary.md"
COMPARE = "compare.md"
REGRESSIONS = "regressions.md"
SCHEMA = "guide/schema.md"
COMPARABLE = "compare-runs.js"
FEED = "feed.xml"
LLMS = "llms.txt"
ANSWERS = "answers.json"
LLMS_FULL = "llms-full.txt"

_PLAIN_PATH = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*", re.ASCII)

_LONGEST = 100
"""A file name may have 255 bytes; an id has no limit of its own."""


def session_page(session: str) -> str:
    """The page of a session."""
    return f"sessions/{_name(session)}.md"


def pattern_page(pattern: str) -> str:
    """The page of a pattern."""
    return f"patterns/{_name(pattern)}.md"


def symptoms_page(tool: str) -> str:
    """The page of the symptoms of a tool."""
    return f"symptoms/{_name(tool)}/index.md"


def kernel_page(kernel: str) -> str:
    """The page of a kernel."""
    return f"kernels/{_name(kernel)}.md"


def recipe_page(recipe: str) -> str:
    """The page of a recipe."""
    return f"recipes/{_name(recipe)}.md"


def bug_page(session: str, bug: str) -> str:
    """The page of a bug that a session met."""
    return f"bugs/{_name(session)}/{_name(bug)}.md"


def run_page(session: str, run: str) -> str:
    """The page of a run, all attempts."""
    return f"runs/{_name(session)}/{_name(run)}.md"


def sweep_page(session: str, sweep: str) -> str:
    """The page of a sweep."""
    return f"sweeps/{_name(session)}/{_name(sweep)}.md"


def schema_page(kind: str) -> str:
    """The page of the schema of a kind of record."""
    return f"guide/schema/{kind}.md"


def twin(page: str) -> str:
    """The JSON of a record's page; of the home page, the index of them."""
    return f"{page.removesuffix('.md')}.json"


def timings(session: str, run: str) -> str:
    """The script that hands a run's benchmark to the page that compares."""
    return f"{run_page(session, run).removesuffix('.md')}.js"


def compare(runs: Sequence[str], arm: str, reference: Sequence[str] = ()) -> str:
    """The page that compares, with an arm of runs as the one that is judged.

    Args:
        runs: the runs, of one commit under the same conditions.
        arm: their arm.
        reference: the runs whose arm of that name it is compared with; if empty, another arm of
            theirs.
    """
    sides = {"a": "+".join(reference), "b": "+".join(runs)}
    state = (f"{side}={quote(f'{ids}/{arm}', safe='/')}" for side, ids in sides.items() if ids)
    return f"{COMPARE}#{'&'.join(state)}"


def published(target: str) -> str:
    """``target``, a page with or without an anchor, as mkdocs publishes it: for links that are not
    Markdown, which it leaves as they are."""
    path, mark, anchor = target.partition("#")
    return path.removesuffix(".md") + (".html" if path.endswith(".md") else "") + mark + anchor


def source_page(kernel: str, path: str, line: int | None = None) -> str:
    """The page of a file of a kernel, at a line of it."""
    # A path may hold anything; an address may not.
    plain = len(path) <= _LONGEST and _PLAIN_PATH.fullmatch(path)
    name = path if plain else hashlib.sha256(path.encode()).hexdigest()[:24]
    anchor = f"#L{line}" if line else ""
    return f"kernels/{_name(kernel)}/src/{name}.md{anchor}"


def tag_page(tag: str) -> str:
    """The page of what has a tag."""
    return f"tags/{_name(tag)}/index.md"


def lesson_place(session: str, number: int) -> str:
    """The place of a session's lesson of this number, from 1."""
    return f"{session_page(session)}#lessons.{number}"


TOPICS = ("fastest", "charts", "results", "history", "variants", "correctness", "about", "cases")
"""What a kernel has a page of its own for, beside its first page."""


def topic_page(kernel: str, topic: str) -> str:
    """The page of one of ``TOPICS`` of a kernel."""
    return f"kernels/{_name(kernel)}/{topic}.md"


def measured_script(kernel: str) -> str:
    """The script that hands what was measured of a kernel to its pages."""
    return f"kernels/{_name(kernel)}/measured.js"


def history_script(kernel: str) -> str:
    """The script that hands the times of a kernel, commit by commit, to its page of them."""
    return f"kernels/{_name(kernel)}/history.js"


def cases_page(kernel: str) -> str:
    """The page of a kernel's targets and cases."""
    return topic_page(kernel, "cases")


def is_source_page(page: str) -> bool:
    """Whether ``page`` is the page of a file of a kernel."""
    return page.startswith("kernels/") and "/src/" in page


def _name(record: str) -> str:
    if record == "index":
        return "index.record"  # index.md is the page of the folder
    if len(record) > _LONGEST:
        return f"{record[:_LONGEST]}.{hashlib.sha256(record.encode()).hexdigest()[:12]}"
    return record


def relative(target: str, page: str) -> str:
    """``target``, a page with or without an anchor, as a link on ``page``."""
    path, hash_mark, anchor = target.partition("#")
    if path == page and anchor:
        return f"#{anchor}"
    folder, _, name = path.rpartition("/")
    return _way(page.rpartition("/")[0], folder) + name + hash_mark + anchor


@lru_cache(maxsize=4096)
def _way(start: str, folder: str) -> str:
    """What leads from one folder into another; many links share it."""
    # From a root, or posixpath would ask for the working folder, twice for each link.
    way = posixpath.relpath(f"/{folder}", f"/{start}")
    return "" if way == "." else f"{way}/"


def link(text: str, target: str, page: str, title: str = "") -> str:
    """A link from ``page`` to ``target``; ``text`` and ``title`` are escaped already."""
    titled = f' "{title}"' if title else ""
    return f"[{text or '–'}]({relative(target, page)}{titled})"


SECTIONS = {
    "costs", "steps", "measurements", "bugs", "fixes", "commits", "decisions", "evidence",
    "claims", "plans", "deliverables", "lessons", "environment", "repository", "sources",
    "rules", "symptoms", "recipes", "objective", "outcome", "problem", "solution",
    "when_to_use", "when_not",
}  # fmt: skip
"""Fields of a record that have a heading of their own, or a place, on its page."""


def anchored(record: BaseModel) -> Iterator[tuple[str, BaseModel]]:
    """Every item of ``record`` that has a place on its page: its anchor, and the item."""
    for field in type(record).model_fields:
        if field in SECTIONS:
            yield from _items(field, getattr(record, field))


def _items(prefix: str, value: object) -> Iterator[tuple[str, BaseModel]]:
    if not isinstance(value, list):
        return
    seen: set[str] = set()
    for item in value:
        key = item_key(item)
        # Two items of one name cannot be told apart by a reference: the first has the anchor.
        if not isinstance(item, BaseModel) or key is None or key in seen:
            continue
        seen.add(key)
        name = f"{prefix}.{fragment(key)}"
        yield name, item
        for inner in ("rows", "options", "steps", "hypotheses"):
            yield from _items(name, getattr(item, inner, None))


def fragment(text: str) -> str:
    """``text`` as part of an anchor: slugs stay as they are, anything else loses what is odd."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


class Anchors:
    """The anchors of one record: from a path in a reference to the nearest place on the page."""

    def __init__(self, record: BaseModel) -> None:
        self.record = record
        self.of_item = {id(item): name for name, item in anchored(record)}

    def get(self, item: BaseModel) -> str | None:
        """The anchor of an item; ``None`` for the second of a name."""
        return self.of_item.get(id(item))

    def find(self, path: str) -> str:
        """The anchor of the innermost item on ``path`` that has one; empty for the page itself."""
        keys = path.split(".")
        if keys[0] == "costs" and isinstance(self.record, Session):
            # A cost line resolves to its amount, so it is found by name.
            for line in self.record.costs:
                if path == f"costs.{item_key(line)}" or path.startswith(f"costs.{item_key(line)}."):
                    return self.of_item.get(id(line), "costs")
        for length in range(len(keys), 0, -1):
            try:
                node = resolve(self.record, ".".join(keys[:length]))
            except AddressError:
                continue
            if id(node) in self.of_item:
                return self.of_item[id(node)]
        value = getattr(self.record, keys[0], None) if keys[0] in SECTIONS else None
        shown = value.strip() if isinstance(value, str) else value
        return keys[0] if shown else ""
