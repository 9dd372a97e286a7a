"""Run all rules over a knowledge base.

Each file is read once and turned into facts, which are cached until the file changes. Rules between
records use only the facts. If nothing has changed, no model is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbtool.checks.excuses import EXCUSABLE, without_excused
from kbtool.checks.facts import Facts, Questions
from kbtool.checks.guard import findings_of
from kbtool.checks.rules import TREE_RULES
from kbtool.checks.tree import Tree, referenced_paths
from kbtool.model.finding import Finding
from kbtool.store.cache import Cache, code_digest, now_ns
from kbtool.store.pool import collector_off
from kbtool.store.scan import NO_STAMP, File, Stamp, scan


@dataclass(frozen=True)
class Report:
    """The findings of a check, and the files that it covered."""

    findings: list[Finding]
    """Sorted by path and line."""
    files: list[File]
    """Every checked file."""


def check_tree(
    root: Path,
    *,
    cached: bool = True,
    jobs: int | None = None,
    runs: Mapping[str, bytes] | None = None,
    texts: Mapping[str, bytes] | None = None,
) -> Report:
    """Every finding under ``root``.

    Args:
        root: the root of the knowledge base.
        cached: use and update the cache.
        jobs: number of processes. Default: chosen by the amount of work.
        runs: path → content of run records to check as if they were in the knowledge base.
        texts: path → content of other files that are there, to check as if it were theirs.
    """
    with collector_off():
        return _check(os.fspath(root), cached, jobs, runs or {}, texts or {})


def _check(
    root: str,
    cached: bool,
    jobs: int | None,
    runs: Mapping[str, bytes],
    texts: Mapping[str, bytes],
) -> Report:
    found = scan(root)
    cache = Cache(root, "check", _digest()) if cached else None
    facts: list[Facts] = []
    stamps: dict[str, Stamp] = {}
    new: list[File] = []
    for file in found.files:
        if file.path in texts:
            continue
        kept = cache.get(file.path, file.stamp) if cache else None
        if kept is None:
            new.append(file)
        else:
            facts.append(Facts.from_json(file.path, kept))
            stamps[file.path] = file.stamp
    read_at = now_ns()
    new_runs = [file for file in new if file.kind == "run"]
    for files in ([file for file in new if file.kind != "run"], new_runs):
        if not files:
            continue
        from kbtool.checks.pool import examine_all

        # Runs are examined last: by then all references to them are known, so each is loaded once.
        referenced = _referenced_in(new_runs, facts) if files is new_runs else {}
        for path, stamp, value in examine_all(root, files, referenced, jobs):
            stamps[path] = stamp
            facts.append(Facts.from_json(path, value))
            if cache:
                cache.put(path, stamp, value, read_at)
    if runs or texts:
        from kbtool.checks.examine import examine

        facts += [examine(path, "run", raw) for path, raw in runs.items()]
        facts += [
            examine(file.path, file.kind, texts[file.path])
            for file in found.files
            if file.path in texts
        ]
    facts.sort(key=lambda item: item.path)
    tree = Tree(root, found, facts, texts=texts)
    questions = tree.questions()
    if questions:
        from kbtool.checks.answers import answer_all, answers_in

        by_path = {item.path: item for item in facts}
        there = [
            File(path, by_path[path].kind, stamps.get(path, NO_STAMP))
            for path in questions
            if path not in texts
        ]
        for path in questions.keys() & texts.keys():
            answers = answers_in(path, by_path[path].kind, texts[path], questions[path])
            by_path[path].answers.update(answers)
        for path, answers in answer_all(root, there, questions, jobs):
            by_path[path].answers.update(answers)
            tree.answered.add(path)
    findings = list(found.findings)
    for rule in TREE_RULES:
        findings.extend(findings_of(rule, ".", tree))
    for item in facts:
        findings.extend(item.findings)
        if cache and item.path in tree.answered:
            cache.put(item.path, stamps[item.path], item.to_json(), read_at)
    if cache:
        cache.save(stamps)
    kept = without_excused(tree, findings, EXCUSABLE)
    return Report(sorted(set(kept)), found.files)


def _referenced_in(runs: Sequence[File], facts: Iterable[Facts]) -> Questions:
    """Path of a run's file → paths in it that other records refer to."""
    referenced = referenced_paths(facts)
    ids = {file.path: file.path.rsplit("/", 1)[1].partition(".")[0] for file in runs}
    return {path: sorted(referenced[id_]) for path, id_ in ids.items() if id_ in referenced}


def _digest() -> str:
    """A digest of all code that facts depend on."""
    package = Path(__file__).parents[1]
    folders = {name: package / name for name in ("checks", "model", "store")}
    return code_digest(folders, ("pydantic", "pydantic_core", "yaml"))
