"""Making sessions: names, hints, what is filled in; the state of the repository."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kbtool.gpu.probe import probe_machine
from kbtool.model.run import RepositoryState
from kbtool.store.edit import add_note, pause_session
from kbtool.store.repository import repository_state
from kbtool.store.sessions import create_session, slug
from kbtool.store.tree import KnowledgeBase

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def create(base, **keys):
    keys = {"title": "Fix the NaN", "now": NOW, **keys}
    return create_session(KnowledgeBase(base.root), **keys)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Fix NaN (S=4)", "fix-nan-s-4"),
        ("Größe prüfen", "grosse-prufen"),
        ("日本", "session"),
        ("../../etc/passwd", "etc-passwd"),
        ("a" * 100, "a" * 48),
        ("word " * 30, "word-word-word-word-word-word-word-word-word"),
        ("N+7A", "n-7a"),
    ],
)
def test_slugs_are_short_ascii_words(title, name):
    assert slug(title) == name
    assert len(name) <= 48


def test_a_new_session_passes_check(base):
    entry = create(base, machine=probe_machine(), repository=repository_state(base.root))
    assert entry.path == "sessions/2026-01-02-fix-the-nan/session.yaml"
    assert entry.record.status == "running"
    assert str(entry.record.started) == "2026-01-02T03:04:05+00:00"
    assert entry.record.environment is not None
    assert base.findings() == []
    assert (base.root / entry.path).with_name("notes.md").is_file()


@pytest.mark.parametrize(
    "keys",
    [
        {"title": "null"},
        {"title": "yes: no # {a}"},
        {"title": "'\"\\\u2028\x85"},
        {"title": "two\nlines"},
        {"label": "0012345", "objective": "~"},
        {"objective": "- a: b", "budget_time": "2 h", "budget_money": "5 USD"},
        {"status": "planned"},
        {"repository": RepositoryState()},
        {"repository": RepositoryState(commit="0123456" + "0" * 33)},
        {"repository": RepositoryState(branch="main")},
        {"repository": RepositoryState(commit="7e12345" + "0" * 33, branch="no", dirty=True)},
    ],
)
def test_whatever_it_is_called_it_passes_check(base, keys):
    entry = create(base, **keys)
    assert entry.record.title == keys.get("title", "Fix the NaN")
    assert base.findings() == []


def test_the_commented_examples_of_a_new_session_are_valid(base):
    path = base.root / create(base).path
    keys = ("costs", "steps", "measurements", "bugs", "fixes", "commits", "decisions", "evidence",
            "claims", "plans", "lessons")  # fmt: skip
    hints = (*(f"# {key}:" for key in keys), "# engineer:", "#   ")
    lines = path.read_text().splitlines()
    text = "\n".join(line[2:] if line.startswith(hints) else line for line in lines)
    path.write_text(text)
    base.pattern()
    assert base.findings() == []
    record = KnowledgeBase(base.root).session("fix-the-nan").record
    assert all(getattr(record, key) for key in keys)


def test_the_engineer_is_recorded_if_known(base):
    assert create(base, engineer="M. C.").record.engineer == "M. C."
    assert create(base).record.engineer is None
    assert base.findings() == []


@pytest.mark.parametrize("title", ["日本語", "Fix the NaN"])
def test_a_title_on_two_days_makes_two_sound_sessions(base, title):
    first = create(base, title=title)
    again = create(base, title=title, now=NOW + timedelta(days=1))
    assert first.record.id[11:] == again.record.id[11:]
    assert base.findings() == []


def test_the_same_title_twice_makes_two(base):
    names = [create(base).record.id for _ in range(3)]
    assert names == [f"2026-01-02-fix-the-nan{n}" for n in ("", "-2", "-3")]
    assert base.findings() == []


@pytest.mark.parametrize("keys", [{"budget_time": "soon"}, {"budget_money": "\x00"}])
def test_invalid_fields_are_refused_before_the_folder_is_made(base, keys):
    with pytest.raises(ValueError, match="budget"):
        create(base, **keys)
    assert list((base.root / "sessions").iterdir()) == []


def test_a_failed_write_removes_the_new_folder(base, monkeypatch):
    def fail(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kbtool.store.write.write_atomic", fail)
    with pytest.raises(OSError, match="No space"):
        create(base)
    assert list((base.root / "sessions").iterdir()) == []


def test_a_session_that_a_run_made_has_an_end_at_every_moment(base):
    made = create(base, status="complete").record
    assert made.ended == made.started
    assert base.findings() == []


def test_what_a_killed_process_leaves_is_no_session(base):
    code = f"""
import os, signal
from pathlib import Path
from kbtool.store import write
from kbtool.store.sessions import create_session
from kbtool.store.tree import KnowledgeBase
write.os.replace = write.Path.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
create_session(KnowledgeBase(Path({str(base.root)!r})), title="Fix the NaN")
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert base.findings() == []
    assert create(base).record.id == "2026-01-02-fix-the-nan"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    return root


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path) -> None:
    (root / "a").write_text("one")
    git(root, "add", "a")
    git(root, "commit", "--quiet", "--message", "one")


def test_without_a_repository_the_state_is_unknown(tmp_path):
    assert repository_state(tmp_path) == RepositoryState()
    assert repository_state(tmp_path / "none") == RepositoryState()


def test_a_repository_without_commits_has_only_a_branch(repository):
    assert repository_state(repository) == RepositoryState(branch="main")


def test_a_changed_file_makes_the_tree_dirty_also_from_a_subfolder(repository):
    commit(repository)
    (repository / "sub").mkdir()
    (repository / "sub/untracked").write_text("x")
    state = repository_state(repository / "sub")
    assert state.commit is not None
    assert len(state.commit) == 40
    assert (state.branch, state.dirty) == ("main", False)
    (repository / "a").write_text("two")
    assert repository_state(repository).dirty is True


@pytest.mark.parametrize("path", ["kernels/k/k.cu", "patterns/P01.yaml"])
def test_a_kernel_that_no_commit_has_makes_the_tree_dirty(repository, path):
    """What was measured has to be in the commit that the record names."""
    base = repository / "sub"
    (base / path).parent.mkdir(parents=True)
    (base / path).write_text("x")
    (repository / "a").write_text("ignored")
    (repository / ".gitignore").write_text("*.so\n")
    (base / "kernels").mkdir(exist_ok=True)
    (base / "kernels/built.so").write_text("x")
    git(repository, "add", ".gitignore")
    commit(repository)
    assert repository_state(base).dirty is True
    git(repository, "add", f"sub/{path}")
    git(repository, "commit", "--quiet", "--message", "two")
    assert repository_state(base).dirty is False


RECORDS = (
    "session.yaml",
    "notes.md",
    "runs/20260102T030405Z-split-k-bb3c.json",
    "runs/.20260102T030405Z-split-k-bb3c.journal",
)


@pytest.fixture(params=[".", "sub", "sessions/[k]*"])
def inside(request, repository) -> Path:
    """The root of a knowledge base that is all committed, in a repository, which may be more."""
    root = repository / request.param
    for path in (
        "sessions/ledger.yaml",
        *(f"sessions/s/{name}" for name in (*RECORDS, "files/a.py")),
        *(f"kernels/{name}" for name in ("k/k.cu", "sessions/s/session.yaml")),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"as committed: {path}")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "one")
    assert repository_state(root).dirty is False
    return root


def test_records_written_by_kbtool_do_not_make_the_tree_dirty(repository):
    """A second run in a row is made of the same sources as the first."""
    entry = create_session(KnowledgeBase(repository), title="Two runs", now=NOW)
    commit(repository)
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "two")
    add_note(repository / entry.path, "the first run is right", NOW)
    pause_session(repository / entry.path, NOW)
    assert repository_state(repository).dirty is False
    (repository / "a").write_text("two")
    assert repository_state(repository).dirty is True


@pytest.mark.parametrize("path", ["sessions/ledger.yaml", *(f"sessions/s/{n}" for n in RECORDS)])
@pytest.mark.parametrize("staged", [False, True])
def test_a_record_that_is_changed_or_gone_does_not_make_the_tree_dirty(inside, path, staged):
    (inside / path).write_text("other")
    if staged:
        git(inside, "add", ".")
    assert repository_state(inside).dirty is False
    (inside / path).unlink()
    if staged:
        git(inside, "add", ".")
    assert repository_state(inside).dirty is False


@pytest.mark.parametrize("path", [f"sessions/new/{name}" for name in RECORDS])
def test_a_new_record_that_is_staged_does_not_make_the_tree_dirty(inside, path):
    (inside / path).parent.mkdir(parents=True)
    (inside / path).write_text("new")
    git(inside, "add", ".")
    assert repository_state(inside).dirty is False


@pytest.mark.parametrize("path", ["sessions/s/files/a.py", "kernels/sessions/s/session.yaml"])
def test_a_new_file_that_is_no_record_makes_the_tree_dirty(inside, path):
    """It stands under a folder called sessions, and a run may be made of it."""
    (inside / "sessions/s/notes.md").write_text("other")
    (inside / path).write_text("other")
    assert repository_state(inside).dirty is True
    (inside / path).unlink()
    assert repository_state(inside).dirty is True


@pytest.mark.parametrize(
    "path",
    [
        "sessions/s/runs/helper.py",
        "sessions/s/runs/cases/a.json",
        "sessions/s/cases.json",
        "sessions/s/notes.md.py",
        "sessions/s/files/session.yaml",
        "sessions/s/files/runs/a.json",
        "sessions/session.yaml",
        "session.yaml",
        "kernels/k/runs/a.json",
        "kernels/k/sessions/s/runs/a.json",
    ],
)
def test_a_new_file_named_like_a_record_makes_the_tree_dirty(inside, path):
    (inside / path).parent.mkdir(parents=True, exist_ok=True)
    (inside / path).write_text("new")
    git(inside, "add", ".")
    assert repository_state(inside).dirty is True


def test_records_of_another_knowledge_base_make_the_tree_dirty(repository):
    """Nothing is known of what stands beside the root, or above it."""
    for root in ("one", "two"):
        (repository / root / "sessions/s").mkdir(parents=True)
        (repository / root / "sessions/s/session.yaml").write_text("one")
    git(repository, "add", ".")
    commit(repository)
    (repository / "one/sessions/s/session.yaml").write_text("two")
    assert repository_state(repository / "one").dirty is False
    assert repository_state(repository / "two").dirty is True
    assert repository_state(repository).dirty is True
    assert repository_state(repository / "one/sessions").dirty is True


@pytest.mark.parametrize(
    ("before", "after", "dirty"),
    [
        ("sessions/s/session.yaml", "sessions/t/session.yaml", False),
        ("sessions/s/session.yaml", "sessions/s/files/session.yaml", True),
        ("sessions/s/files/a.py", "sessions/s/runs/a.json", True),
        ("kernels/k/k.cu", "sessions/s/runs/k.json", True),
    ],
)
def test_a_file_that_is_moved_is_judged_at_both_ends(inside, before, after, dirty):
    (inside / after).parent.mkdir(parents=True, exist_ok=True)
    git(inside, "mv", before, after)
    assert repository_state(inside).dirty is dirty


def test_a_detached_head_has_a_commit_and_no_branch(repository):
    commit(repository)
    git(repository, "checkout", "--quiet", "--detach")
    state = repository_state(repository)
    assert state.commit is not None
    assert state.branch is None
    assert state.dirty is False


def test_a_broken_repository_has_no_commit(repository):
    commit(repository)
    (repository / ".git/HEAD").write_bytes(b"\xff nonsense")
    state = repository_state(repository)
    assert state.commit is None
    (repository / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (repository / ".git/refs/heads/main").write_text("zz")
    assert repository_state(repository).commit is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_repository_that_git_refuses(repository, monkeypatch):
    commit(repository)
    os.chown(repository, 12345, 12345)
    os.chown(repository / ".git", 12345, 12345)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("SUDO_UID", raising=False)
    state = repository_state(repository)
    assert state.dirty is None
    assert state.commit is not None


def test_without_git_there_is_no_state_and_no_error(repository, monkeypatch):
    commit(repository)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert repository_state(repository).dirty is None


def test_the_probe_answers_without_tools(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    machine = probe_machine()
    assert machine.python
    assert machine.cores >= 1
