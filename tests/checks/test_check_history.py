"""``kbtool check --history``: commits that change run records are found, other commits are not."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from knowledge import LOOK, RUN, Knowledge, sealed
from scratch_history import Drawn, Importer, honest, tamper

from kbtool.checks.history import check_history

SEED = 24
TAMPERS = 1000
HONEST = 200


@pytest.mark.slow
def test_every_random_tampering_is_found_and_nothing_else(tmp_path: Path) -> None:
    importer = Importer(tmp_path)
    drawn = Drawn(importer, random.Random(SEED), "main")
    drawn.add(3)
    while len(drawn.expected) < TAMPERS:
        tamper(drawn)
    importer.close()
    importer.head("main")
    report = check_history(tmp_path)
    found = {(one.path, one.rule, one.commit) for one in report.broken}
    assert found == drawn.expected
    assert len(report.broken) == TAMPERS


@pytest.mark.slow
def test_no_untampered_history_has_a_finding(tmp_path: Path) -> None:
    importer = Importer(tmp_path)
    rng = random.Random(SEED)
    names = [f"h{number}" for number in range(HONEST)]
    for name in names:
        drawn = Drawn(importer, rng, name)
        for _ in range(rng.randrange(3, 12)):
            honest(drawn)
    importer.close()
    for name in names:
        importer.head(name)
        report = check_history(tmp_path)
        assert report.broken == [], name
        assert report.added


RUN_PATH = f"sessions/2025-01-01-a/runs/{RUN['id']}.json"


def git(root: Path, *arguments: str) -> str:
    config = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    done = subprocess.run(["git", *config, *arguments], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(root: Path, *options: str) -> str:
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--allow-empty", "-m", "work", *options)
    return git(root, "rev-parse", "HEAD")


def run_at(stated: str | None, **changes: Any) -> str:
    return sealed({**RUN, "repository": {"commit": stated}, **changes})


@pytest.fixture
def published(base: Knowledge) -> Knowledge:
    """A knowledge base in git: one commit, and a second one with a run made at the first."""
    base.pattern(more=LOOK)
    base.session()
    git(base.root, "init", "--quiet", "--initial-branch=main")
    base.write(RUN_PATH, run_at(commit(base.root)))
    commit(base.root)
    return base


def test_a_finding_names_the_tampering_commit_and_the_remedy(published, kbtool):
    root = published.root
    assert kbtool("check", "--history", root=root).err == "checked 2 commits, 1 run: no problems\n"
    whole = published.root.joinpath(RUN_PATH).read_text()
    published.write(RUN_PATH, whole.replace('"cores": 1', '"cores": 2'))
    by = commit(root)
    done = kbtool("check", "--history", root=root)
    assert done.code == 1
    assert done.out.startswith(
        f"{RUN_PATH}:1: run-edited: was edited (machine) in commit {by[:12]}"
    )
    assert done.err == "checked 3 commits, 1 run: 1 problem\n"
    restore = re.search(r"\((git cat-file .*)\)$", done.out)
    assert restore is not None
    subprocess.run(["sh", "-c", restore[1]], cwd=root, check=True)
    assert (root / RUN_PATH).read_text() == whole
    commit(root)  # to restore it is no edit, but that it was edited stands in the history
    said = json.loads(kbtool("check", "--history", "--json", root=root).out)
    [finding] = said["findings"]
    assert (finding["path"], finding["rule"], finding["commit"]) == (RUN_PATH, "run-edited", by)
    assert said["counts"] == {"commits": 4, "runs": 1}
    assert (said["unknown"], said["signed"], said["shallow"]) == ([], [], False)
    assert kbtool("check", "--history", "patterns", root=root).code == 2  # SINCE, no folder
    assert kbtool("check", "--history=", str(root / "patterns"), root=root).code == 0
    since = kbtool("check", f"--history={by}", root=root)
    assert (since.code, since.err) == (0, "checked 1 commit, 0 runs: no problems\n")


def test_a_shallow_clone_says_so_and_has_no_finding(published, tmp_path, kbtool):
    root = published.root
    (root / "a.txt").write_text("a")
    commit(root)
    git(tmp_path, "clone", "--quiet", "--depth=1", root.as_uri(), "shallow")
    shallow = tmp_path / "shallow"
    git(shallow, "checkout", "--quiet", "--detach")
    done = kbtool("check", "--history", "--json", root=shallow)
    said = json.loads(done.out)
    assert (done.code, said["shallow"], said["findings"]) == (0, True, [])
    assert [(one["path"], one["why"]) for one in said["unknown"]] == [(RUN_PATH, "shallow")]
    assert "the clone is shallow" in done.err
    # What is done in it is found.
    (shallow / RUN_PATH).unlink()
    by = commit(shallow)
    [broken] = check_history(shallow).broken
    assert (broken.rule, broken.commit) == ("run-deleted", by)


def test_a_partial_clone_without_the_records_has_no_finding(published, tmp_path, kbtool):
    root = published.root
    git(root, "config", "uploadpack.allowFilter", "true")
    options = ("--filter=blob:none", "--no-checkout", root.as_uri(), "partial")
    git(tmp_path, "clone", "--quiet", *options)
    git(tmp_path / "partial", "remote", "set-url", "origin", str(tmp_path / "gone"))
    report = check_history(tmp_path / "partial")
    assert (report.added, report.broken) == (1, [])
    assert report.unknown == [(RUN_PATH, "", "partial")]


def test_without_git_or_commits_the_history_check_says_so(base, kbtool, tmp_path):
    base.session()
    done = kbtool("check", "--history", root=base.root)
    assert done.code == 3
    assert "git cannot read the history" in done.err
    git(base.root, "init", "--quiet")
    done = kbtool("check", "--history", root=base.root)
    assert (done.code, done.err) == (0, "checked 0 commits, 0 runs: no problems\n")
    commit(base.root)
    done = kbtool("check", "--history=nowhere", root=base.root)
    assert done.code == 2
    assert "nowhere is no commit of this repository" in done.err


def test_a_rewritten_history_is_compared_with_the_commit_given_as_since(published):
    root = published.root
    trusted = git(root, "rev-parse", "HEAD")
    assert json.loads((root / RUN_PATH).read_text())["machine"]["cores"] == 1
    stated = git(root, "rev-parse", "HEAD^")
    published.write(RUN_PATH, run_at(stated, machine={**RUN["machine"], "cores": 2}))
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--amend", "--no-edit")
    assert check_history(root).broken == []  # from within nobody can tell
    report = check_history(root, trusted)
    assert report.diverged == trusted
    [broken] = report.broken
    assert (broken.path, broken.rule) == (RUN_PATH, "run-edited")
    assert "the history was rewritten" in broken.message


def test_a_run_at_a_commit_that_was_amended_is_unknown(published):
    root = published.root
    lost = commit(root, "--date=2001-01-01T00:00Z")
    other = RUN_PATH.replace("look", "look-b")
    published.write(other, run_at(lost, id=f"{RUN['id']}-b"))
    git(root, "reset", "--quiet", "--soft", "HEAD^")
    commit(root, "--date=2002-01-01T00:00Z")
    report = check_history(root)
    assert (report.broken, report.unknown) == ([], [(other, lost, "rewritten")])
    git(root, "branch", "kept", lost)  # now it has a name, and is a line of its own
    [broken] = check_history(root).broken
    assert (broken.path, broken.rule) == (other, "run-commit")
    assert f"made at commit {lost[:12]}" in broken.message


def test_a_fault_of_the_past_is_excused_by_its_commit(published, kbtool):
    root = published.root
    (root / RUN_PATH).unlink()
    by = commit(root)
    excuse = {"run": RUN_PATH, "rule": "run-deleted", "commit": by[:12], "reason": "it was ours"}
    line = "# yaml-language-server: $schema=../schemas/excuses.json\n"
    published.write("sessions/excuses.yaml", line + json.dumps({"excuses": [excuse]}))
    assert published.findings() == []
    assert kbtool("check", "--history", root=root).code == 0
    # An excuse is for one commit.
    excuse["commit"] = git(root, "rev-parse", "HEAD^")
    published.write("sessions/excuses.yaml", line + json.dumps({"excuses": [excuse]}))
    done = kbtool("check", "--history", root=root)
    assert done.code == 1
    assert [row.split(": ")[1] for row in done.out.splitlines()] == ["run-deleted", "excuse"]
    # Of a part of the history nobody can tell whether an excuse is needed.
    assert kbtool("check", f"--history={by}", root=root).code == 0
    del excuse["commit"]
    published.write("sessions/excuses.yaml", line + json.dumps({"excuses": [excuse]}))
    assert [finding.rule for finding in published.findings()] == ["schema"]


def test_a_knowledge_base_below_the_top_of_its_repository(tmp_path):
    root = tmp_path / "repository" / "knowledge"
    base = Knowledge(root)
    base.session()
    git(root.parent, "init", "--quiet")
    base.write(RUN_PATH, run_at(commit(root.parent)))
    elsewhere = root.parent / RUN_PATH
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text("{}")
    commit(root.parent)
    elsewhere.unlink()
    (root / RUN_PATH).unlink()
    commit(root.parent)
    [broken] = check_history(root).broken
    assert (broken.path, broken.rule) == (RUN_PATH, "run-deleted")


def test_a_replaced_object_hides_nothing(published):
    root = published.root
    sound = git(root, "rev-parse", "HEAD")
    (root / RUN_PATH).unlink()
    by = commit(root)
    git(root, "replace", by, sound)
    git(root, "replace", "--graft", sound)
    [broken] = check_history(root).broken
    assert (broken.rule, broken.commit) == ("run-deleted", by)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
def test_signing_keys_are_listed_as_git_verifies_them(published, tmp_path, kbtool):
    root = published.root
    key = tmp_path / "key"
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "t", "-f", str(key)]
    subprocess.run(make, check=True)
    public = key.with_suffix(".pub").read_text()
    (tmp_path / "signers").write_text(f"t@example.org {public}")
    for name, value in (
        ("gpg.format", "ssh"), ("user.signingkey", f"{key}.pub"),
        ("gpg.ssh.allowedSignersFile", str(tmp_path / "signers")),
    ):  # fmt: skip
        git(root, "config", name, value)
    other = RUN_PATH.replace("look", "look-b")
    published.write(other, run_at(git(root, "rev-parse", "HEAD"), id=f"{RUN['id']}-b"))
    by = commit(root, "-S")
    git(root, "tag", "-s", "-m", "released", "v1")
    [signed] = json.loads(kbtool("check", "--history", "--json", root=root).out)["signed"]
    assert (signed["verdict"], signed["commits"], signed["tags"]) == ("good", [by], ["v1"])
    assert signed["key"] == signed["fingerprint"] != ""
    assert f"good signature of key {signed['key']}" in kbtool("check", "--history", root=root).err
    # The signature of another commit on this one.
    raw = git(root, "cat-file", "commit", by).replace("\n\nwork", "\n\nother work")
    forged = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"], cwd=root, text=True, check=True,
        input=f"{raw}\n", stdout=subprocess.PIPE,
    ).stdout.strip()  # fmt: skip
    git(root, "tag", "--delete", "v1")
    git(root, "reset", "--quiet", "--hard", forged)
    [broken] = check_history(root).broken
    assert (broken.path, broken.rule, broken.commit) == (other, "signature", forged)
