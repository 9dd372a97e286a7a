"""The code that is checked out: commit, branch, whether the work tree differs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kbtool.model.run import RepositoryState
from kbtool.store.scan import LEDGER

_RECORD = re.compile(
    rf"sessions/(?:{re.escape(LEDGER)}"
    r"|[^/]+/(?:session\.yaml|notes\.md|runs/[^/]+\.(?:json|journal)))"
)
"""What kbtool writes by itself, relative to the root; a session's ``files/`` are not of it."""


def repository_state(root: Path) -> RepositoryState:
    """The state of the git repository that ``root`` stands in.

    Whatever cannot be told is ``None``: there is no git or no repository, nothing is committed,
    HEAD is detached, or git refuses a folder that belongs to somebody else. Dirty means that a
    tracked file differs from the commit, or that a file of a kernel or a pattern, which are what
    runs are made of, is in no commit. The records of sessions and runs and the ledger under
    ``root`` do not count: no run is made of them but by the mutants that a session holds, and of
    these the run keeps each edit that it made.
    """
    # Without this, importing GitPython fails where there is no git program.
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    import git

    try:
        repo = git.Repo(root, search_parent_directories=True)
    except (git.GitError, OSError, ValueError):
        return RepositoryState()
    with repo:
        return RepositoryState(commit=_commit(repo), branch=_branch(repo), dirty=_dirty(repo, root))


def files_at(root: Path, commit: str, paths: Iterable[str]) -> dict[str, bytes | None] | None:
    """What files under ``root`` held at a commit; ``None`` for one that was not there.

    Args:
        root: a folder of a git repository.
        commit: the commit's id.
        paths: relative to ``root``.

    Returns:
        ``None`` if there is no repository that can be read.

    Raises:
        LookupError: the repository does not have the commit.
    """
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    import git

    try:
        repo = git.Repo(root, search_parent_directories=True)
    except (git.GitError, OSError, ValueError):
        return None
    with repo:
        try:
            tree = repo.commit(commit).tree
        except (git.GitError, git.exc.ODBError, ValueError, IndexError):
            raise LookupError(commit) from None
        above = Path(root).resolve().relative_to(Path(repo.working_dir).resolve())
        return {path: _content(tree, (above / path).as_posix()) for path in paths}


def _content(tree: Any, path: str) -> bytes | None:
    try:
        return bytes(tree[path].data_stream.read())
    except KeyError:
        return None


def reasons(state: RepositoryState) -> dict[str, str]:
    """Field → why it is not known, for those of ``state`` that are null."""
    if state.commit is None and state.branch is None:
        nothing = "no git repository that can be read, when the session was made"
        return dict.fromkeys(("branch", "commit", "dirty"), nothing)
    why: dict[str, str] = {}
    if state.commit is None:
        why["commit"] = "nothing was committed yet, when the session was made"
    if state.branch is None:
        why["branch"] = "no branch was checked out (a detached HEAD)"
    if state.dirty is None:
        why["dirty"] = (
            "there was no commit to compare with"
            if state.commit is None
            else "git could not compare the work tree with the commit"
        )
    return why


def _commit(repo: Any) -> str | None:
    import git

    try:
        # Read from the files of the repository: git itself may be missing, or refuse.
        found = str(git.SymbolicReference.dereference_recursive(repo, repo.head.path))
    except (ValueError, OSError, git.GitError):  # no commit yet, or a broken reference
        return None
    return found if re.fullmatch("[0-9a-f]{40}", found) else None


def _branch(repo: Any) -> str | None:
    import git

    try:
        return str(repo.active_branch.name)
    except (TypeError, ValueError, OSError, git.GitError):  # detached, or broken
        return None


def _dirty(repo: Any, root: Path) -> bool | None:
    import git

    if repo.bare or _commit(repo) is None:
        return None
    try:
        return _changed(repo, root) or _untracked(repo, root)
    except (git.GitError, OSError, ValueError):  # git refuses the folder, or is not there
        return None


def _changed(repo: Any, root: Path) -> bool:
    """Whether a tracked file that is no record differs from the commit, or is staged to."""
    above = Path(root).resolve().relative_to(Path(repo.working_dir).resolve())
    records = "" if above == Path() else f"{above.as_posix()}/"
    # A file that was moved is one that is gone and one that is new, each judged by its own path.
    found = repo.git(no_optional_locks=True).status(
        "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=all", "--no-renames"
    )
    paths = [entry[len("XY ") :] for entry in found.split("\0") if entry]
    return not all(
        path.startswith(records) and _RECORD.fullmatch(path[len(records) :]) for path in paths
    )


def _untracked(repo: Any, root: Path) -> bool:
    """Whether a file that a run may be made of is neither tracked nor ignored."""
    folders = [str(Path(root).resolve() / name) for name in ("kernels", "patterns")]
    return bool(repo.git.ls_files("--others", "--exclude-standard", "--", *folders))
