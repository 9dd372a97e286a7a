"""Which commit holds what a run was built from: the stated one, another one, or none."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

from knowledge import RUN, sealed

from kbtool.model.run import Run
from kbtool.store.holders import holders


def git(root: Path, *arguments: str) -> str:
    config = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    done = subprocess.run(["git", *config, *arguments], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(root: Path, source: str) -> str:
    (root / "kernels/add/add.cpp").write_text(source)
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", source)
    return git(root, "rev-parse", "HEAD")


def run(stated: str | None, source: str | None, *, dirty: bool) -> Run:
    step: dict[str, Any] = RUN["steps"][0]
    if source is not None:
        digest = hashlib.sha256(source.encode()).hexdigest()
        result = {
            "type": "build", "kernel": "add", "target": "cpu", "key": "k", "artifact": "add.so",
            "sha256": "0" * 64, "bytes": 1, "warm": False, "compiler": "c", "flags": [],
            "sources": {"add.cpp": digest},
        }  # fmt: skip
        step = {**step, "id": "build", "kind": "build", "result": result}
    repository = {"commit": stated, "dirty": dirty}
    return Run.model_validate(
        json.loads(sealed({**RUN, "steps": [step], "repository": repository}))
    )


def test_a_run_is_assigned_to_the_commit_that_holds_its_sources(tmp_path):
    root = tmp_path / "base"
    (root / "kernels/add").mkdir(parents=True)

    def holder(*what: Any, **more: Any) -> str | None:
        return holders(root, [run(*what, **more)]).get((RUN["id"], 1))

    lost = "f" * 40
    # Without git a clean work tree is believed.
    assert holder(lost, "one", dirty=False) == lost
    assert holder(lost, "one", dirty=True) is None
    git(root, "init", "--quiet")
    assert holder(lost, "one", dirty=False) is None
    one, two, again = (commit(root, source) for source in ("one", "two", "one"))
    assert holder(one, "one", dirty=False) == one
    assert holder(one, "one", dirty=True) == one  # something else had changed
    assert holder(again, "one", dirty=True) == again
    # The sources were committed after they were measured, or the commit was rewritten.
    assert holder(one, "two", dirty=True) == two
    assert holder(lost, "two", dirty=False) == two
    assert holder(None, "two", dirty=False) == two
    assert holder(one, "three", dirty=True) is None
    # Nothing was built: only the record tells.
    assert holder(one, None, dirty=False) == one
    assert holder(one, None, dirty=True) is None
