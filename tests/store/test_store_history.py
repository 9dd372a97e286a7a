"""Questions to git: which commits exist, and which committed files differ in the work tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kbtool.store.history import changed_since_commit, commits_known


def git(root: Path, *arguments: str) -> str:
    config = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    done = subprocess.run(["git", *config, *arguments], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def repository(root: Path, commits: int = 1) -> str:
    root.mkdir()
    git(root, "init", "--quiet")
    for number in range(commits):
        (root / "a.txt").write_text(f"{number}\n")
        git(root, "add", ".")
        git(root, "commit", "--quiet", "-m", str(number))
    return git(root, "rev-parse", "HEAD")


def test_commits_known_finds_commits_and_nothing_else(tmp_path):
    root = tmp_path / "base"
    head = repository(root)
    blob = git(root, "rev-parse", "HEAD:a.txt")
    asked = [head, head[:7], "deadbee", blob, "--help", "f" * 40]
    assert commits_known(str(root), asked) == {
        head: True, head[:7]: True, "deadbee": False, blob: False, "f" * 40: False,
    }  # fmt: skip
    assert commits_known(str(root), []) == {}
    git(root, "commit", "--quiet", "--amend", "-m", "amended")
    assert commits_known(str(root), [head, head[:7]]) == {head: False, head[:7]: False}
    git(root, "tag", "kept", head)
    assert commits_known(str(root), [head, head[:7]]) == {head: True, head[:7]: True}


def test_in_a_shallow_clone_or_without_git_commits_are_unknown(tmp_path, monkeypatch):
    head = repository(tmp_path / "base", commits=2)
    git(tmp_path, "clone", "--quiet", "--depth=1", (tmp_path / "base").as_uri(), "shallow")
    assert commits_known(str(tmp_path / "shallow"), [head]) == {}
    (tmp_path / "none").mkdir()
    assert commits_known(str(tmp_path / "none"), [head]) == {}
    assert changed_since_commit(str(tmp_path / "none"), "*") == []
    monkeypatch.setenv("PATH", "")
    assert commits_known(str(tmp_path / "base"), [head]) == {}
    assert changed_since_commit(str(tmp_path / "base"), "*") == []


def test_changed_files_are_those_that_differ_from_head(tmp_path):
    root = tmp_path / "base"
    repository(root)
    (root / "new.txt").write_text("new")
    assert changed_since_commit(str(root), "*.txt") == []
    (root / "a.txt").write_text("other")
    assert changed_since_commit(str(root), "*.txt") == ["a.txt"]
    git(root, "add", ".")  # what is staged is not committed
    assert changed_since_commit(str(root), "*.txt") == ["a.txt"]
    assert changed_since_commit(str(root), "b*") == []
    (root / "a.txt").unlink()
    assert changed_since_commit(str(root), "*.txt") == []


def test_a_file_that_git_replaces_on_this_machine_differs(tmp_path):
    root = tmp_path / "base"
    repository(root)
    (root / "a.txt").write_text("edited\n")
    git(
        root,
        "replace",
        git(root, "rev-parse", "HEAD:a.txt"),
        git(root, "hash-object", "-w", "a.txt"),
    )
    assert changed_since_commit(str(root), "*.txt") == ["a.txt"]
