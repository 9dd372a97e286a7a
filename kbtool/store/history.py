"""Ask the git program about commits. Importing GitPython would take as long as a check."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping


def changed_since_commit(root: str, pattern: str) -> list[str]:
    """The committed files that differ in the work tree; empty without git.

    Args:
        root: a folder of a git repository.
        pattern: which files, as a glob relative to ``root``.
    """
    found = _git(
        root, "diff", "--no-ext-diff", "--no-renames", "--name-only", "--relative", "-z",
        "--diff-filter=MT", "HEAD", "--", f":(glob){pattern}",
    )  # fmt: skip
    return found.rstrip("\0").split("\0") if found else []


def commits_known(root: str, commits: Iterable[str]) -> Mapping[str, bool]:
    """Commit → whether a branch, a tag or HEAD has it, so that a clone would have it too; empty
    without a repository, in a shallow clone, and where git cannot follow a branch.

    Args:
        root: a folder of a git repository.
        commits: commit ids, possibly abbreviated.
    """
    wanted = [commit for commit in set(commits) if re.fullmatch("[0-9a-f]{7,40}", commit)]
    if not wanted or _git(root, "rev-parse", "--is-shallow-repository") != "false\n":
        return {}
    queries = "".join(f"{commit}^{{commit}}\n" for commit in wanted)
    found = _git(root, "cat-file", "--batch-check=%(objectname)", given=queries)
    if found is None:
        return {}
    objects = dict(zip(wanted, found.splitlines(), strict=True))
    # An ambiguous abbreviation exists.
    here = {commit for commit, answer in objects.items() if not answer.endswith(" missing")}
    whole = {commit: answer for commit, answer in objects.items() if " " not in answer}
    head = ["HEAD"] if commit_named(root, "HEAD") else []
    left = _git(
        root, "rev-list", "--stdin", "--not", *head, "--branches", "--tags", "--remotes",
        given="".join(f"{commit}\n" for commit in whole.values()),
    )  # fmt: skip
    if left is None:
        return {}
    behind = set(left.split())
    return {commit: commit in here and whole.get(commit) not in behind for commit in wanted}


def file_at(root: str, commit: str, path: str) -> str | None:
    """The text of a file in a commit; ``None`` if it has none, or git does not know.

    Args:
        root: a folder of a git repository.
        commit: its id.
        path: of the file, relative to ``root``.
    """
    return _git(root, "show", "--end-of-options", f"{commit}:./{path}")


def branches(root: str) -> set[str]:
    """The branches of the repository and of its remotes, without the names of the remotes."""
    found = _git(root, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes") or ""
    names = (ref.split("/", 2 if ref.startswith("refs/heads/") else 3) for ref in found.split())
    return {parts[-1] for parts in names}


def commit_named(root: str, name: str) -> str | None:
    """The id of the commit that git knows as ``name`` (HEAD, a branch, a tag); ``None`` if none.

    Args:
        root: a folder of a git repository.
        name: as a person wrote it.
    """
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return found.strip() if found else None


def first_parents(
    root: str, begin: str, end: str, folders: Iterable[str] = ()
) -> list[tuple[str, str]] | None:
    """Id and title of the commits after ``begin`` up to ``end`` on its line of first parents,
    oldest first; ``None`` if ``begin`` is not on that line, or git does not know.

    Args:
        root: a folder of a git repository.
        begin: the id of a commit.
        end: the id of another.
        folders: relative to ``root``; only commits that change something in them are listed.
    """
    line = ("--first-parent", "--end-of-options", f"{begin}..{end}")
    every = _git(root, "rev-list", *line)
    last = every.split()[-1] if every else end
    if every is None or _git(root, "rev-parse", f"{last}^1" if every else end) != f"{begin}\n":
        return None
    found = _git(root, "log", "--reverse", "--format=%H %s", *line, "--", *folders)
    return [(one[:40], one[41:]) for one in found.splitlines()] if found is not None else None


def tree_at(root: str, commit: str, folders: Iterable[str]) -> dict[str, str]:
    """The files in folders of a commit, and git's hash of each; empty if git does not know.

    Args:
        root: a folder of a git repository.
        commit: its id.
        folders: relative to ``root``.
    """
    found = _git(root, "ls-tree", "-r", "-z", "--end-of-options", commit, "--", *folders) or ""
    entries = (entry.partition("\t") for entry in found.split("\0") if entry)
    return {path: about.split()[2] for about, _, path in entries}


def _git(root: str, *arguments: str, given: str = "") -> str | None:
    """The output of git; ``None`` if git is missing or fails."""
    command = [
        "git",
        "--no-replace-objects",
        "--no-optional-locks",
        "-c",
        "core.fsmonitor=false",
        *arguments,
    ]
    try:
        done = subprocess.run(
            command, cwd=root, input=given, capture_output=True, check=False,
            encoding="utf-8", errors="surrogateescape",
            env={**os.environ, "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"},
        )  # fmt: skip
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
