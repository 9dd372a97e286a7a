"""A session names a commit that is there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from knowledge import Knowledge, line_of

NOWHERE = "deadbeef" * 5


@pytest.fixture
def git(base: Knowledge) -> Callable[..., str]:
    def run(*arguments: str, root: Path = base.root) -> str:
        config = ("-c", "user.name=T", "-c", "user.email=t@example.org")
        return subprocess.run(
            ["git", *config, *arguments], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()

    run("init", "--quiet", "--initial-branch=main")
    for number in (1, 2):
        run("commit", "--quiet", "--allow-empty", "--message", f"commit {number}")
    return run


def session(base: Knowledge, commit: str, branch: str | None = "main") -> Path:
    named = f", branch: {branch}" if branch else ""
    return base.session(more=f'repository: {{commit: "{commit}"{named}}}\n')


@pytest.mark.parametrize("cached", [False, True])
def test_a_commit_that_its_branch_cannot_have_had_is_a_finding(base, git, cached):
    path = session(base, NOWHERE)
    (found,) = base.findings(cached=cached)
    assert (found.rule, found.line) == ("commit", line_of(path, "repository"))
    assert found.message == (
        f"no branch or tag of this repository has commit {NOWHERE[:12]}, although branch main is"
        " here: correct it, or fetch it; if the history was rewritten, name the commit that it"
        " became"
    )
    # A commit that comes later is looked for again.
    session(base, git("rev-parse", "HEAD"))
    assert base.findings(cached=cached) == []


@pytest.mark.parametrize("branch", [None, "elsewhere", "mai", "origin/main"])
def test_a_commit_of_a_branch_that_is_not_here_may_be_of_another_repository(base, git, branch):
    session(base, NOWHERE, branch)
    assert base.findings() == []


def test_a_branch_of_a_remote_is_here_too(base, git):
    git("update-ref", "refs/remotes/origin/wip/tiles", "HEAD")
    session(base, NOWHERE, "wip/tiles")
    assert [found.rule for found in base.findings()] == ["commit"]


def test_a_commit_that_a_rewritten_history_left_behind_is_a_finding(base, git):
    """It lies in this repository still, but a clone, as continuous integration makes, lacks it."""
    old = git("rev-parse", "HEAD")
    git("commit", "--quiet", "--amend", "--allow-empty", "--message", "amended")
    for commit in (old, old[:9]):
        session(base, commit)
        assert [found.rule for found in base.findings()] == ["commit"]
    git("tag", "kept", old)
    assert base.findings() == []


def test_what_git_keeps_for_itself_is_left_behind(base, git):
    """filter-branch's backup, notes and the like are in no clone."""
    old = git("rev-parse", "HEAD")
    git("commit", "--quiet", "--amend", "--allow-empty", "--message", "amended")
    git("update-ref", "refs/original/refs/heads/main", old)
    session(base, old)
    assert [found.rule for found in base.findings()] == ["commit"]


def test_where_git_cannot_follow_a_branch_nothing_is_said(base, git):
    old = git("rev-parse", "HEAD")
    git("commit", "--quiet", "--amend", "--allow-empty", "--message", "amended")
    session(base, old)
    (base.root / ".git/refs/heads/broken").write_text("f" * 40 + "\n")
    assert base.findings() == []


@pytest.mark.parametrize("where", ["stash", "detached"])
def test_what_is_only_stashed_is_left_behind_but_head_counts(base, git, where):
    (base.root / "a.txt").write_text("one")
    git("add", "a.txt")
    if where == "stash":
        git("stash", "--quiet")
        session(base, git("rev-parse", "stash@{0}"))
    else:
        git("checkout", "--quiet", "--detach")
        git("commit", "--quiet", "--message", "detached")
        session(base, git("rev-parse", "HEAD"))
    assert [found.rule for found in base.findings()] == ["commit"] * (where == "stash")


def test_in_a_shallow_clone_a_commit_may_lie_before_its_begin(base, git, tmp_path):
    first = git("rev-parse", "HEAD~1")
    session(base, first)
    git("add", "--all")
    git("commit", "--quiet", "--message", "session")
    git(
        "clone",
        "--quiet",
        "--depth=1",
        base.root.as_uri(),
        str(tmp_path / "shallow"),
        root=tmp_path,
    )
    clone = Knowledge(tmp_path / "shallow")
    assert clone.findings() == []
    session(clone, NOWHERE)
    assert clone.findings() == []
    git("fetch", "--quiet", "--unshallow", root=clone.root)
    assert [found.rule for found in clone.findings()] == ["commit"]


def test_without_a_repository_or_git_nothing_is_said(base, git, monkeypatch):
    session(base, NOWHERE)
    monkeypatch.setenv("PATH", "/nowhere")
    assert base.findings() == []


def test_where_there_is_no_repository_nothing_is_said(base):
    session(base, NOWHERE)
    assert base.findings() == []
