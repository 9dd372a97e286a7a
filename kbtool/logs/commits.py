"""Commits of a report: an id with its subject, or a subject alone."""

from __future__ import annotations

import re
from typing import Any

from kbtool.logs import words
from kbtool.logs.blocks import Line
from kbtool.logs.draft import slug
from kbtool.logs.reader import Reader

SHA = re.compile(r"(?<![\w/.#-])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}(?![\w/.-])")


def read_commits(reader: Reader) -> None:
    """Commits: an id with its subject, or a subject alone."""
    last: Any = None
    for line in reader.blocks.lines:
        text = line.text
        about = re.search(
            r"(?i)\bcommit(?:s|ted)?\b|\bpushed\b|\bsha\b", f"{line.key} {text} {line.lead}"
        )
        role = words.role_of(line.headings)
        sha = SHA.search(text) if about or role == "commit" or line.kind == "output" else None
        subject = None
        if line.kind == "output":
            made = re.match(
                r"\[(?P<branch>[\w./-]+)(?: \(root-commit\))? (?P<sha>[0-9a-f]{7,40})\] "
                r"(?P<subject>.+)",
                text,
            )
            if made is None:
                made = re.match(
                    r"(?P<sha>[0-9a-f]{7,40})(?P<branch>)\s+(?:\([^)]*\)\s+)?(?P<subject>\S.+)",
                    text,
                )
                made = made if made and SHA.fullmatch(made["sha"]) else None
            sha = None
            if made:
                last = _commit(reader, line, made["sha"], made["subject"], made["branch"] or None)
        elif sha:
            rest = re.match(r"\s*(?:[:–—-]|\()\s*(.+?)\)?\Z", text[sha.end() :])
            alone = line.kind == "item" and not text[: sha.start()].strip()
            subject = rest[1] if rest else text[sha.end() :].strip() if alone else None
            last = _commit(reader, line, sha[0], subject, None)
        elif re.fullmatch(r"(?i)commit(?:ted)?(?: message)?", line.key) and line.value:
            last = _commit(reader, line, None, line.value, None)
        elif last is not None:
            pushed = re.match(r"(?i)pushed to (?:branch )?([\w./-]+)", text)
            if pushed and "branch" not in last.data:
                last.data["branch"] = pushed[1]
                last.lines.add(line.number)
                reader.used.add(id(line))
        _counts(reader, line, last)


def _commit(
    reader: Reader, line: Line, sha: str | None, title: str | None, branch: str | None
) -> Any:
    item = reader.commits.get(sha or "")
    if item is not None:
        item.lines.add(line.number)
        if title:
            item.data.setdefault("title", title[:1000])
        return item
    data: dict[str, Any] = {"id": slug(title or sha or "commit", "commit"), "sha": sha}
    if title:
        data["title"] = title[:1000]
    said = re.search(r"(?i)\b(?:committed|pushed|commits? made)\b", line.text)
    data["role"] = "made" if said or (line.kind == "output" and branch) else "mentioned"
    if branch:
        data["branch"] = branch
    reader.used.add(id(line))
    unknown = {} if sha else {"sha": "the log gives the subject line, not the id"}
    made = reader.draft.add("commits", data, {line.number}, **unknown)
    if sha:
        reader.commits[sha] = made
    return made


_COUNTS = {"insertions": re.compile(r"(\d+) insertions?"),
           "deletions": re.compile(r"(\d+) deletions?"),
           "files": re.compile(r"(\d+) files?\b")}  # fmt: skip


def _counts(reader: Reader, line: Line, commit: Any) -> None:
    """``868 insertions, 21 deletions (5 files)`` below a commit."""
    if commit is None or not re.search(r"\d insertions?\b|\d deletions?\b", line.text):
        return
    if line.number - max(commit.lines) > 4 or commit.data.keys() & _COUNTS.keys():
        return
    for name, expression in _COUNTS.items():
        found = expression.search(line.text)
        if found:
            commit.data[name] = found[1]
            commit.lines.add(line.number)
            for one in reader.free(line):
                if found.start() <= one.end - 1 and one.start < found.end():
                    reader.place(line, one)
