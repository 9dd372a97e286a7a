"""``kbtool compare --measure``: a recipe on two commits in turn."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbtool.model.run import Run
from kbtool.sweeps import processes

Git = Callable[..., str]


@pytest.fixture
def commits(second_kernel_base: Path) -> tuple[Git, str, str]:
    """Git in a knowledge base of two commits: in the second the kernel is slower."""

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=Marie", "-c", "user.email=marie@example.org")
        return subprocess.run(
            ["git", *identity, *arguments], cwd=second_kernel_base, check=True,
            capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip

    git("init", "--quiet", "--initial-branch=main")
    (second_kernel_base / ".gitignore").write_text(".kbtool\n")
    git("add", "--all")
    git("commit", "--quiet", "--message", "first")
    source = second_kernel_base / "kernels" / "scaled_add" / "scaled_add.cpp"
    loop = "for (int64_t i = 0; i < n; ++i) out[i] = a * x[i] + y[i];"
    assert loop in source.read_text()
    slow = f"for (volatile int again = 0; again < 9; again = again + 1) {{ {loop} }}"
    source.write_text(source.read_text().replace(loop, slow))
    git("commit", "--quiet", "--all", "--message", "second")
    return git, git("rev-parse", "HEAD~1"), git("rev-parse", "HEAD")


def runs_of(root: Path) -> list[Run]:
    """The runs, in the order in which they were made."""
    files = root.glob("sessions/*/runs/*.json")
    return sorted((Run.model_validate_json(f.read_bytes()) for f in files), key=lambda r: r.started)


def test_each_commit_is_built_validated_and_timed_in_turn(second_kernel_base, commits, kbtool):
    git, first, second = commits
    done = kbtool(
        "compare", "HEAD~1", "main", "--measure", "add", "--pairs", "2", "--set", "samples=5",
        "--json", root=second_kernel_base,
    )  # fmt: skip
    assert done.code == 0, done.err
    runs = runs_of(second_kernel_base)
    assert [run.repository.commit for run in runs] == [first, second, second, first]
    assert [run.repository.dirty for run in runs] == [False] * 4
    assert len({run.session for run in runs}) == 1
    found = json.loads(done.out)
    for side, commit in (("a", first), ("b", second)):
        of_commit = [run for run in runs if run.repository.commit == commit]
        # On a machine that others use a run may be noisy: it is left out if the side has another.
        quiet = [run for run in of_commit if run.status != "noisy"]
        assert found[side]["commit"] == commit
        assert sorted(found[side]["runs"]) == sorted(run.id for run in quiet or of_commit)
    noisy = any(run.status == "noisy" for run in runs)
    assert noisy or all(case["ratio"] > 2 for case in found["cases"])
    assert f"run 3 of 4: B, main at {second[:8]}; about " in done.err
    assert f"kbtool session show {runs[0].session}" in done.err
    assert git("worktree", "list").count("\n") == 0
    assert kbtool("check", root=second_kernel_base).code == 0


def test_a_run_that_fails_ends_it_and_is_kept(second_kernel_base, commits, kbtool):
    settings = ("--measure", "shell", "--pairs", "2", "--set", "code=raise SystemExit(7)")
    done = kbtool("compare", "HEAD", "HEAD", *settings, root=second_kernel_base)
    assert (done.code, done.out) == (1, "")
    (run,) = runs_of(second_kernel_base)
    assert run.status == "failed"


def test_runs_that_time_nothing_are_no_comparison(second_kernel_base, commits, kbtool):
    done = kbtool(
        "compare", "HEAD~1", "HEAD", "--measure", "shell", "--pairs", "2", root=second_kernel_base
    )
    assert done.code == 2
    assert done.err.splitlines()[-1] == "kbtool: no run of HEAD~1 timed anything"
    assert len(runs_of(second_kernel_base)) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("last", "HEAD", "--measure", "shell"),
         "git knows no commit 'last'; --measure compares two commits"),
        (("HEAD~1", "HEAD", "--set", "a=1"),
         "--set is a parameter of a recipe: name one with --measure"),
        (("HEAD~1", "HEAD", "--measure", "shell", "--pairs", "1"), "--pairs"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(
    second_kernel_base, commits, kbtool, arguments, message
):
    done = kbtool("compare", *arguments, root=second_kernel_base)
    assert done.code == 2
    assert message in done.err
    assert runs_of(second_kernel_base) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "what"),
    [
        ("patterns/P01.yaml", "name: shell", "name: renamed", "recipe 'shell'"),
        ("kernels/scaled_add/kernel.yaml", "id: scaled_add", "id: renamed", "kernel scaled_add"),
    ],
)
def test_nothing_is_measured_that_the_work_tree_cannot_keep(
    second_kernel_base, commits, kbtool, file, old, new, what
):
    path = second_kernel_base / file
    path.write_text(path.read_text().replace(old, new))
    recipe = "add" if "kernel" in what else "shell"
    done = kbtool("compare", "HEAD", "HEAD", "--measure", recipe, root=second_kernel_base)
    assert done.code == 2
    assert f"the work tree has no {what}, and the runs are kept here with it" in done.err
    assert "run 1 of" not in done.err


def test_the_record_of_a_run_that_check_refuses_is_not_lost(second_kernel_base, commits, kbtool):
    path = second_kernel_base / "patterns" / "P01.yaml"
    text = path.read_text().replace("id: P01", "id: P02").replace("number: 1", "number: 2")
    path.rename(path.with_name("P02.yaml")).write_text(text)
    done = kbtool("compare", "HEAD", "HEAD", "--measure", "shell", root=second_kernel_base)
    assert done.code == 1
    (record,) = second_kernel_base.glob(".kbtool/refused/*.json")
    assert Run.model_validate_json(record.read_bytes()).status == "passed"
    assert "names pattern P01, which does not exist" in done.err
    assert f"Its record is .kbtool/refused/{record.name}: correct that" in done.err


def test_without_git_it_says_that_git_finds_no_commit(second_kernel_base, kbtool):
    done = kbtool("compare", "HEAD", "HEAD", "--measure", "shell", root=second_kernel_base)
    assert done.code == 2
    assert "git finds none here: no repository, no commit yet, or no git" in done.err


HANGS_THE_SECOND_TIME = """
import os, pathlib, time
first = pathlib.Path({first!r})
if first.exists():
    pathlib.Path({second!r}).write_text(str(os.getpid()))
    time.sleep(100)
first.touch()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_runs_that_ended_are_kept_however_it_is_stopped(
    second_kernel_base, commits, tmp_path, name
):
    git, _, _ = commits
    first, second = tmp_path / "first", tmp_path / "second"
    code = HANGS_THE_SECOND_TIME.format(first=str(first), second=str(second))
    process = subprocess.Popen(
        [sys.executable, "-m", "kbtool", "--root", str(second_kernel_base), "compare", "HEAD",
         "HEAD", "--measure", "shell", "--pairs", "2", "--set", f"code={code}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    until(lambda: second.exists() and second.read_text())
    hanging = processes.name_of(int(second.read_text()))
    process.send_signal(signal.Signals[name])
    process.wait(30)
    (run,) = runs_of(second_kernel_base)
    assert run.status == "passed"
    until(lambda: not processes.lives(hanging))
    if name != "SIGKILL":  # which nobody can answer
        assert process.returncode == 4
        assert git("worktree", "list").count("\n") == 0


def until(ready: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)
