"""``kbtool check --history``: whether the commits leave run records as they were first committed.

Git is the chain: a commit names its parents and its files by their content. So what was done to a
run record after it was committed stands in the history, unless the history itself is rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kbtool.model.excuses import Excuses
from kbtool.model.finding import Finding
from kbtool.model.run import digest_of_record
from kbtool.store.commits import Change, Commit, History, Signature
from kbtool.store.scan import EXCUSES
from kbtool.store.tree import load_record


class Broken(NamedTuple):
    """A run record that a commit did not leave as it was, or that names a wrong commit."""

    path: str
    rule: str
    """run-edited, run-resealed, run-deleted, run-renamed, run-moved, run-commit or signature."""
    commit: str
    """The commit that did it; for run-commit and signature the one that added the record."""
    message: str

    @property
    def finding(self) -> Finding:
        """It, as any other finding."""
        return Finding(self.path, 1, self.rule, self.message)


class Unknown(NamedTuple):
    """A run whose stated commit cannot be held against the history that is here."""

    path: str
    stated: str
    """The commit that the run states."""
    why: str
    """missing, rewritten, shallow, or partial: the record itself is not in a partial clone."""


class Signed(NamedTuple):
    """Commits that add runs, and tags, signed by one key."""

    signature: Signature
    commits: list[str]
    tags: list[str]


@dataclass
class Report:
    """What the history says of the run records."""

    commits: int
    """Commits that were looked at."""
    shallow: bool
    """Whether the clone is shallow: what was before its first commits cannot be seen."""
    added: int = 0
    """Run records that they added."""
    broken: list[Broken] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """Excuses that nothing needs."""
    unknown: list[Unknown] = field(default_factory=list)
    signed: list[Signed] = field(default_factory=list)
    diverged: str | None = None
    """The commit to begin at, if it is none of those that HEAD is made of."""


def check_history(
    root: Path, since: str | None = None, on_progress: Callable[[int, int], None] = lambda *_: None
) -> Report:
    """Hold every commit of HEAD against what it does to run records.

    Args:
        root: the root of the knowledge base.
        since: look only at the commits that this one is not made of.
        on_progress: called with commits done and commits in total.

    Raises:
        MachineError: there is no git, or no repository.
        UsageError: there is no commit ``since``.
    """
    with History(str(root)) as history:
        commits = history.after(since)
        report = Report(len(commits), bool(history.shallow))
        judge = _Judge(history)
        adding: dict[str, list[str]] = {}
        for done, commit in enumerate(history.walk(commits), 1):
            broken, added = judge.judge(commit)
            report.broken += broken
            for path, content in added.items():
                problem = judge.stated_commit(commit.id, path, content)
                if isinstance(problem, Unknown):
                    report.unknown.append(problem)
                elif problem is not None:
                    report.broken.append(problem)
            if added:
                adding[commit.id] = list(added)
                report.added += len(added)
            on_progress(done, len(commits))
        if since is not None and commits:
            start = str(history.commit(since))
            if start not in history.parents:
                report.diverged = start
                report.broken += judge.rewritten(start, commits[-1])
        report.signed = _signed(history, adding)
        _refuse_forged(report, adding)
    _excuse(root, report, whole=since is None and not report.shallow)
    return report


class _Judge:
    """Judges commits in the order that they were made in."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.first: dict[str, tuple[str, str]] = {}
        """Path → the content that it was first added with, and the commit."""

    def judge(self, commit: Commit) -> tuple[list[Broken], dict[str, str]]:
        """What a commit did to records that were there before it, and what it added."""
        added: dict[str, str] = {}
        deleted: dict[str, str] = {}
        edited: dict[str, Change] = {}
        for path in sorted({path for changes in commit.changes for path in changes}):
            old, new = self._own_change(commit, path)
            if old == new:
                continue
            if old is None and new is not None:
                first, by = self.first.setdefault(path, (new, commit.id))
                # Two lines may each add one: the merge that brings them together is judged.
                if first == new or not self.history.is_ancestor(by, commit.id):
                    added[path] = new
                else:
                    edited[path] = Change(first, new)
            elif old is not None and new is None:
                deleted[path] = old
            else:
                edited[path] = Change(old, new)
        broken = []
        for path, content in deleted.items():
            other = self._moved_to(content, added)
            if other is not None:
                added.pop(other)
            broken.append(self._gone(commit.id, path, content, other))
        for path, (before, after) in edited.items():
            old, new = str(before), str(after)
            if not self._restores(commit, path, new):
                broken.append(self._edited(commit.id, path, old, new))
        return broken, added

    def _restores(self, commit: Commit, path: str, content: str) -> bool:
        """Whether an edit restores what was first committed. A merge has a line to take it from."""
        if len(commit.parents) > 1:
            return False
        if path in self.first:
            return self.first[path][0] == content
        return content in self.history.added(path)

    def _own_change(self, commit: Commit, path: str) -> Change:
        """What the commit itself did to a file: of a merge, what no line before it did."""
        if len(commit.changes) == 1:
            return commit.changes[0][path]
        new = next(changes[path].new for changes in commit.changes if path in changes)
        # A parent that the merge does not differ from has what the merge has.
        olds = [changes[path].old if path in changes else new for changes in commit.changes]
        there = [old for old in olds if old is not None]
        if new not in olds:
            return Change(next(iter(there), None), new)
        for parent, old in zip(commit.parents, olds, strict=True):
            if old is None or old == new:
                continue
            for other, same in zip(commit.parents, olds, strict=True):
                # If the lines had it where they parted, a commit of one of them changed it. If not,
                # the merge dropped what one line added, or took another record in its place.
                if same == new and not self.history.at_bases(parent, other, path):
                    return Change(old, new)
        return Change(new, new)

    def _moved_to(self, content: str, added: Mapping[str, str]) -> str | None:
        """Where a record went in the commit that took it away."""
        run = self._record(content).get("id")
        for other, new in added.items():
            if new == content or (run is not None and self._record(new).get("id") == run):
                return other
        return None

    def _gone(self, commit: str, path: str, content: str, other: str | None) -> Broken:
        about = self.history.about(commit)
        if other is None:
            message = f"was deleted in commit {about}"
            return Broken(path, "run-deleted", commit, f"{message}: {_restore(content, path)}")
        same = other.split("/")[1] == path.split("/")[1]
        message = f"was {'renamed' if same else 'moved'} to {other} in commit {about}"
        return Broken(
            path, "run-renamed" if same else "run-moved", commit,
            f"{message}: remove that, and {_restore(content, path)}",
        )  # fmt: skip

    def _edited(self, commit: str, path: str, old: str, new: str) -> Broken:
        before, after = self._record(old), self._record(new)
        keys = sorted(k for k in {*before, *after} - {"digest"} if before.get(k) != after.get(k))
        what = f" ({', '.join(keys)})" if keys else ""
        sealed = bool(after) and _is_sealed(after)
        how = "was edited and sealed again" if sealed else "was edited"
        return Broken(
            path, "run-resealed" if sealed else "run-edited", commit,
            f"{how}{what} in commit {self.history.about(commit)}: {_restore(old, path)}",
        )  # fmt: skip

    def rewritten(self, start: str, end: str) -> Iterator[Broken]:
        """Runs that a commit that HEAD is not made of has with another content."""
        for path, (old, new) in self.history.differing(start, end).items():
            assert old is not None and new is not None
            if new not in self.history.added(path) or new in self.history.at_bases(
                start, end, path
            ):
                continue  # it was edited in a commit of its own
            yield Broken(
                path, "run-edited", end,
                f"has another content in commit {self.history.about(start)}: the history was"
                f" rewritten; {_restore(old, path)}",
            )  # fmt: skip

    def stated_commit(self, commit: str, path: str, content: str) -> Broken | Unknown | None:
        """Whether the commit that a new record states is one that the adding commit is made of."""
        history = self.history
        raw = history.content(content)
        if raw is None:
            return Unknown(path, "", "partial")
        state = _parsed(raw).get("repository")
        stated = state.get("commit") if isinstance(state, dict) else None
        if not isinstance(stated, str) or history.is_ancestor(stated, commit):
            return None
        full = history.commit(stated)
        if full is None:
            return Unknown(path, stated, "shallow" if history.shallow else "missing")
        if history.is_ancestor(full, commit):
            return None
        if not history.is_ancestor(commit, full):
            if history.shallow:
                return Unknown(path, stated, "shallow")
            # A rebase leaves the commits that it replaced behind, without a name.
            if full not in history.parents and not history.is_published(full):
                return Unknown(path, stated, "rewritten")
            if any(history.is_ancestor(twin, commit) for twin in history.twins(full)):
                return Unknown(path, stated, "rewritten")
        return Broken(
            path, "run-commit", commit,
            f"says that it was made at commit {history.about(full)}, which is no ancestor of"
            f" {history.about(commit)}, which added it: merge that commit before the record, or"
            " leave the record out",
        )  # fmt: skip

    def _record(self, content: str) -> dict[str, Any]:
        return _parsed(self.history.content(content) or b"")


def _parsed(raw: bytes) -> dict[str, Any]:
    """The JSON object of a record; empty where it cannot be read."""
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _restore(content: str, path: str) -> str:
    return f"restore it (git cat-file blob {content[:12]} > {path})"


def _is_sealed(record: dict[str, Any]) -> bool:
    try:
        return bool(record.get("digest") == digest_of_record(record))
    except (ValueError, TypeError):
        return False


def _signed(history: History, adding: Iterable[str]) -> list[Signed]:
    found: dict[Signature, Signed] = {}
    for commit, signature in history.signatures(adding).items():
        found.setdefault(signature, Signed(signature, [], [])).commits.append(commit)
    for tag, signature in history.tag_signatures().items():
        found.setdefault(signature, Signed(signature, [], [])).tags.append(tag)
    return list(found.values())


def _refuse_forged(report: Report, adding: Mapping[str, list[str]]) -> None:
    """A signature that git finds bad is a finding."""
    for (verdict, key, _), commits, tags in report.signed:
        if verdict == "bad":
            for commit in commits:
                message = f"commit {commit[:12]}, which added it, has a bad signature of key {key}"
                report.broken += [Broken(p, "signature", commit, message) for p in adding[commit]]
            for tag in tags:
                message = f"tag {tag} has a bad signature of key {key}"
                report.findings.append(Finding("sessions", 1, "signature", message))


def _excuse(root: Path, report: Report, *, whole: bool) -> None:
    """Leave out what is excused; of a whole history, report the excuses that nothing needs."""
    shown = f"sessions/{EXCUSES}"
    if not (root / shown).exists():
        return
    loaded = load_record(root / shown, shown, Excuses)
    if isinstance(loaded, list):
        report.findings += loaded
        return
    needed = set()
    left = []
    for one in report.broken:
        for at, excuse in enumerate(loaded.record.excuses):
            named = (excuse.run, excuse.rule) == (one.path, one.rule)
            if named and one.commit.startswith(excuse.commit or "-"):
                needed.add(at)
                break
        else:
            left.append(one)
    report.broken = left
    for at, excuse in enumerate(loaded.record.excuses):
        if whole and excuse.commit and at not in needed and loaded.document is not None:
            message = f"commit {excuse.commit} breaks no rule {excuse.rule} of {excuse.run}"
            report.findings.append(
                loaded.document.finding(["excuses", at], "excuse", f"{message}: remove the excuse")
            )
