"""``kbtool bisect`` with a real kernel that a commit breaks, and another makes slower."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from kbtool.model.run import Run

LOOP = "for (int64_t i = 0; i < n; ++i) out[i] = a * x[i] + y[i];"


def test_a_real_kernel_is_built_and_measured_until_the_slower_commit_is_found(
    second_kernel_base, kbtool
):
    root: Path = second_kernel_base

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=Marie", "-c", "user.email=marie@example.org")
        return subprocess.run(
            ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(title: str, old: str = "", new: str = "") -> str:
        source = root / "kernels" / "scaled_add" / "scaled_add.cpp"
        assert old in source.read_text()
        source.write_text(source.read_text().replace(old, new) if old else source.read_text())
        git("add", "--all")
        git("commit", "--quiet", "--allow-empty", "--message", title)
        return git("rev-parse", "HEAD")

    git("init", "--quiet", "--initial-branch=main")
    (root / ".gitignore").write_text(".kbtool\n")
    good = commit("good")
    broken = commit("does not build", LOOP, f"oops; {LOOP}")
    same = commit("builds again", "oops; ", "  ")
    commit("changes nothing")
    slow = commit("is slower", LOOP, f"for (volatile int r = 0; r < 9; r = r + 1) {{ {LOOP} }}")
    done = kbtool("bisect", "million", f"{good}..", "--pairs", "2", "--json", root=root)
    assert f"run 1 of 4: A, {good} at {good[:8]}" in done.err
    assert "3 commits in " in done.err and "; 1 other cannot change it" in done.err
    told = json.loads(done.out)
    runs = [Run.model_validate_json(f.read_bytes()) for f in root.glob("sessions/*/runs/*.json")]
    assert kbtool("check", root=root).code == 0
    assert sum(one["made"] for one in told["steps"]) == len(runs)
    steps = {one["id"]: one for one in told["steps"]}
    if broken in steps:
        assert steps[broken]["verdict"] == "skipped"
        assert steps[broken]["why"].startswith("build failed: ") and "oops" in steps[broken]["why"]
    if told["outcome"] == "undecided":  # others keep the tests' machine busy
        assert done.code == 75 and {"too_noisy"} <= {one["verdict"] for one in told["steps"]}
        return
    assert (told["outcome"], told["first"]["id"], done.code) == ("found", slow, 0)
    assert steps[slow]["verdict"] == "slower" and steps[same]["verdict"] in {"same", "faster"}
    assert steps.keys() == {slow, broken, same}
