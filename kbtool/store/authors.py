"""What git knows about the work: the engineer, and which commits were made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


class Made(NamedTuple):
    """A commit."""

    sha: str
    title: str
    """Its subject line."""
    at: datetime
    """When it was committed."""
    own: bool
    """Whether its author has the address of git's ``user.email``."""


def engineer(root: Path) -> str | None:
    """git's ``user.name``; ``None`` if it is not set."""
    with _repository(root) as repo:
        return _git_user(repo, "name") if repo is not None else None


def find_commit(root: Path, revision: str) -> Made | None:
    """The commit that ``revision`` names in the repository of ``root``."""
    with _repository(root) as repo, contextlib.suppress(*_errors(), IndexError):
        if repo is not None:
            return _made(repo.commit(revision), _git_user(repo, "email"))
    return None


def commits_between(root: Path, since: datetime, until: datetime) -> list[Made]:
    """The commits of HEAD between two times, oldest first; none if git cannot list them."""
    with _repository(root) as repo, contextlib.suppress(*_errors()):
        if repo is not None:
            ages = {"max_age": int(since.timestamp()), "min_age": int(until.timestamp())}
            email = _git_user(repo, "email")
            return [_made(one, email) for one in repo.iter_commits("HEAD", reverse=True, **ages)]
    return []


@contextlib.contextmanager
def _repository(root: Path) -> Iterator[Any]:
    """The repository that contains ``root``; ``None`` if there is none that can be read."""
    from kbtool.store.repository import open_repository

    try:
        repo = open_repository(root)
    except _errors():
        yield None
        return
    with repo:
        yield repo


def _errors() -> tuple[type[Exception], ...]:
    """What GitPython raises if something does not exist or git refuses."""
    import git

    return (git.GitError, git.exc.ODBError, OSError, ValueError)


def _git_user(repo: Any, what: str) -> str | None:
    with repo.config_reader() as config:
        return str(config.get_value("user", what, "")).strip() or None


def _made(commit: Any, email: str | None) -> Made:
    own = email is None or commit.author.email == email
    return Made(commit.hexsha, str(commit.summary).strip(), commit.committed_datetime, own)
