"""The state of the git checkout: commit, branch, whether the work tree is dirty."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kbtool.model.errors import UsageError
from kbtool.model.run import RepositoryState
from kbtool.store.scan import EXCUSES, LEDGER

RECORD = re.compile(
    rf"sessions/(?:{re.escape(LEDGER)}|{re.escape(EXCUSES)}"
    r"|[^/]+/(?:session\.yaml|notes\.md|runs/[^/]+\.(?:json|journal)|sweeps/[^/]+\.json))"
)
"""The files that kbtool writes, relative to the root, except for a session's ``files/``."""


def git_python() -> Any:
    """GitPython. Without the variable, importing it fails where there is no git program."""
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    import git

    return git


def open_repository(root: Path) -> Any:
    """The git repository that contains ``root``. A ``$NAME`` in the path is part of its name.

    Raises:
        git.GitError, OSError, ValueError: there is none that can be read.
    """
    return git_python().Repo(root, search_parent_directories=True, expand_vars=False)


def repository_state(root: Path, script: str | None = None) -> RepositoryState:
    """The state of the git repository that contains ``root``, and ``script`` under it.

    A field is ``None`` if it is unknown: no git, no repository, no commit, a detached HEAD, or a
    folder that git refuses because it belongs to another user. Dirty means that a tracked file
    differs from the commit, or that a file of a kernel or pattern, or the script, is untracked,
    since runs depend on these. Records of sessions and runs and the ledger do not count: runs use
    only their mutants, and a run records every edit that it made. Of a tree that a sweep carried to
    another machine, it is the state that the tree says.
    """
    from kbtool.store.carried import carried_state

    carried = carried_state(root)
    if carried is not None:
        return carried
    git = git_python()
    try:
        repo = open_repository(root)
    except (git.GitError, OSError, ValueError):
        return RepositoryState()
    with repo:
        return RepositoryState(
            commit=_commit(repo), branch=_branch(repo), dirty=_dirty(repo, root, script)
        )


def files_at(root: Path, commit: str, paths: Iterable[str]) -> dict[str, bytes | None] | None:
    """The content of files under ``root`` at a commit; ``None`` for a file that did not exist.

    Args:
        root: a folder of a git repository.
        commit: the commit's id.
        paths: relative to ``root``.

    Returns:
        ``None`` if no repository can be read.

    Raises:
        LookupError: the repository does not have the commit.
    """
    git = git_python()
    try:
        repo = open_repository(root)
    except (git.GitError, OSError, ValueError):
        return None
    with repo:
        try:
            tree = repo.commit(commit).tree
        except (git.GitError, git.exc.ODBError, ValueError, IndexError):
            raise LookupError(commit) from None
        above = Path(root).resolve().relative_to(Path(repo.working_dir).resolve())
        return {path: _content(tree, (above / path).as_posix()) for path in paths}


def uncommitted(root: Path) -> dict[str, bool]:
    """The files under ``root`` that are not as committed, and whether git tracks them.

    Files that git ignores are not among them. Empty if there is no repository.

    Raises:
        UsageError: git refuses to say.
    """
    git = git_python()
    try:
        repo = open_repository(root)
    except git.InvalidGitRepositoryError:
        return {}
    except (git.GitError, OSError, ValueError) as error:
        raise UsageError(f"git cannot read the repository: {error}") from None
    with repo:
        here = Path(root).resolve()
        above = here.relative_to(Path(repo.working_dir).resolve()).as_posix()
        inside = "" if above == "." else f"{above}/"
        try:
            found = repo.git(no_optional_locks=True).status(
                "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=all",
                "--no-renames", "--", str(here),
            )  # fmt: skip
        except (git.GitError, OSError) as error:
            why = getattr(error, "stderr", "").strip() or type(error).__name__
            raise UsageError(f"git cannot compare the work tree with the commit: {why}") from None
    entries = [entry for entry in found.split("\0") if entry]
    return {entry[3:].removeprefix(inside): entry[:2] != "??" for entry in entries}


@contextmanager
def work_tree(root: Path, commit: str, folder: Path) -> Iterator[Path]:
    """The folder ``root`` as it is at a commit, in a git work tree of its own.

    Args:
        root: a folder of a git repository.
        commit: the commit's id.
        folder: where to check it out; it is removed at the end.

    Raises:
        UsageError: git cannot check it out, or ``root`` did not exist there.
    """
    git = git_python()
    try:
        repo = open_repository(root)
        repo.git.worktree("add", "--detach", "--quiet", str(folder), commit)
    except (git.GitError, OSError, ValueError) as error:
        why = getattr(error, "stderr", "").strip() or type(error).__name__
        raise UsageError(f"git cannot check out {commit[:12]}: {why}") from None
    with repo:
        try:
            there = folder / Path(root).resolve().relative_to(Path(repo.working_dir).resolve())
            if not there.is_dir():
                raise UsageError(f"there is no knowledge base at commit {commit[:12]}")
            yield there
        finally:
            repo.git.worktree("remove", "--force", str(folder))


def _content(tree: Any, path: str) -> bytes | None:
    try:
        return bytes(tree[path].data_stream.read())
    except KeyError:
        return None


def reasons(state: RepositoryState) -> dict[str, str]:
    """Field → why it is unknown, for the null fields of ``state``."""
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
        # Read the repository's files: the git program may be missing or refuse.
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


def _dirty(repo: Any, root: Path, script: str | None) -> bool | None:
    import git

    if repo.bare or _commit(repo) is None:
        return None
    try:
        return _changed(repo, root) or _untracked(repo, root, script)
    except (git.GitError, OSError, ValueError):  # git refuses the folder, or is not there
        return None


def _changed(repo: Any, root: Path) -> bool:
    """Whether a tracked file, other than a record, differs from the commit or is staged."""
    above = Path(root).resolve().relative_to(Path(repo.working_dir).resolve())
    records = "" if above == Path() else f"{above.as_posix()}/"
    # A rename counts as a deleted and a new file, each judged by its own path.
    found = repo.git(no_optional_locks=True).status(
        "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=all", "--no-renames"
    )
    paths = [entry[len("XY ") :] for entry in found.split("\0") if entry]
    return not all(
        path.startswith(records) and RECORD.fullmatch(path[len(records) :]) for path in paths
    )


def _untracked(repo: Any, root: Path, script: str | None) -> bool:
    """Whether a file that runs may use is neither tracked nor ignored."""
    names = ["kernels", "patterns", *([script] if script else [])]
    folders = [str(Path(root).resolve() / name) for name in names]
    return bool(repo.git.ls_files("--others", "--exclude-standard", "--", *folders))
