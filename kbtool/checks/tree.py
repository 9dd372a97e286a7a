"""The facts of all files of a knowledge base, for the rules between records.

The rules see only facts. Values that links and figures refer to are already looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from kbtool.checks.facts import Facts, Location
from kbtool.model.finding import Finding
from kbtool.store.scan import Scan

if TYPE_CHECKING:
    from kbtool.store.document import Document


@dataclass
class Tree:
    """The facts of every file, and what was scanned."""

    root: str
    scan: Scan
    facts: list[Facts]
    sessions: dict[str, Facts] = field(default_factory=dict)
    patterns: dict[str, Facts] = field(default_factory=dict)
    kernels: dict[str, Facts] = field(default_factory=dict)
    runs: list[Facts] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    """Paths of the files whose facts gained answers in this check."""
    reread: dict[str, Document | None] = field(default_factory=dict)
    """The file that findings were last placed in."""
    texts: Mapping[str, bytes] = field(default_factory=dict)
    """Content that stands for that of files."""

    def __post_init__(self) -> None:
        by_kind = {"session": self.sessions, "pattern": self.patterns, "kernel": self.kernels}
        for facts in self.facts:
            if facts.kind in by_kind:
                known = by_kind[facts.kind].setdefault(facts.id, facts)
                if facts.valid and not known.valid:
                    by_kind[facts.kind][facts.id] = facts
            elif facts.kind == "run":
                self.runs.append(facts)

    def at(self, facts: Facts, location: Location, rule: str, message: str) -> Finding:
        """A finding at a key of a file that was examined; the file is read again for the line."""
        document = None if facts.kind in {"run", "sweep"} else self._again(facts.path)
        return Finding(facts.path, document.line(location) if document else 1, rule, message)

    def _again(self, path: str) -> Document | None:
        """The file, kept until another is asked for: a list may have thousands of findings."""
        from pathlib import Path

        from kbtool.store.document import DocumentError, parse, read_bytes

        if path not in self.reread:
            self.reread.clear()
            try:
                raw = self.texts.get(path) or read_bytes(Path(self.root, path), path)
                self.reread[path] = parse(raw, path)
            except DocumentError:  # it changed during the check: its findings have no line
                self.reread[path] = None
        return self.reread[path]

    def record(self, id_: str) -> Facts | None:
        """The session, the pattern or the run of this id; of a run its last attempt."""
        return self.sessions.get(id_) or self.patterns.get(id_) or self.run_of.get(id_)

    def questions(self) -> dict[str, list[str]]:
        """Path of a file → paths in its record that others refer to, without an answer so far."""
        referenced = {}
        for id_, paths in referenced_paths(self.facts).items():
            target = self.record(id_)
            if target is not None and target.valid and (new := paths - target.answers.keys()):
                referenced[target.path] = sorted(new)
        return referenced

    @cached_property
    def run_of(self) -> dict[str, Facts]:
        """Run id → its last attempt."""
        attempts = sorted(self.runs, key=lambda facts: facts.run.get("attempt", 0))
        return {facts.id: facts for facts in attempts}


def referenced_paths(all_facts: Iterable[Facts]) -> dict[str, set[str]]:
    """Record id → the paths in that record that links and figures of others lead to."""
    referenced: dict[str, set[str]] = {}
    for facts in all_facts:
        places = [ref.target for ref in facts.refs if ref.role not in {"label", "kernel"}]
        for figure in facts.figures:
            places += figure.of
        for place in places:
            id_, _, path = place.partition("#")
            if path:
                referenced.setdefault(id_, set()).add(path)
    return referenced


Rule = Callable[[Tree], Iterator[Finding]]
"""A rule between records: a generator, whose docstring is the rule."""
