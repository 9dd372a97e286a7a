"""Knowledge bases of older and newer formats; ``kbtool migrate``."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_tree import ARGUMENTS, leaves

from kbtool import __version__
from kbtool.cli.main import run
from kbtool.model.errors import UsageError
from kbtool.model.run import digest_of_record
from kbtool.store import migrate as migrating
from kbtool.store.format import FILE, FORMAT
from kbtool.store.write import write_atomic

OLD = Path(__file__).parents[1] / "fixtures" / "format1"
PATTERN = "patterns/P10-profiling-decision-tree.yaml"
HARNESS = "kernels/scaled_add/harness.py"
LEDGER = "sessions/ledger.yaml"
RATES = """\
# yaml-language-server: $schema=../schemas/ledger.json
rates:
  # read on a page
  - {id: l4, kind: gpu, rate: 0.20 USD/h, on: 2026-01-31}
"""
WRITE = """\
      write:
        type: bool
        default: "true"
        help: false leaves the table as it is
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A knowledge base of format 1."""
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def contents(root: Path) -> dict[str, bytes]:
    files = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(file): (root / file).read_bytes() for file in files if file.parts[0][0] != "."}


def git(root: Path, *arguments: str) -> str:
    own = ("-c", "user.name=Marie", "-c", "user.email=marie@example.org")
    done = subprocess.run(["git", *own, *arguments], cwd=root, check=True, capture_output=True)
    return done.stdout.decode()


def commit(root: Path) -> None:
    git(root, "init", "--quiet", "--initial-branch=records")  # the run names main
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "records")


def with_a_path(root: Path) -> str:
    """Put a path of a machine into the run, as an older kbtool did, with the digest of that."""
    (path,) = root.glob("sessions/*/runs/*.json")
    record = json.loads(path.read_text())
    del record["digest"]
    record["steps"][1]["message"] = "python3 /home/marie/kernels/bug_4.py exited with 0"
    path.write_text(json.dumps({**record, "digest": digest_of_record(record)}))
    return path.relative_to(root).as_posix()


def test_the_older_knowledge_base_is_small_and_of_format_1():
    assert sum(len(content) for content in contents(OLD).values()) < 60_000
    assert not (OLD / FILE).exists()


def test_an_older_knowledge_base_opens_and_check_names_migrate(kbtool, root):
    for command in (["costs"], ["status"], ["session", "list"], ["patterns"], ["recipes"]):
        done = kbtool(*command, root=root)
        assert done.code == (1 if command == ["patterns"] else 0), done.err
    assert "undated-n6" in kbtool("session", "list", root=root).out
    checked = kbtool("check", root=root)
    assert checked.code == 1
    (line,) = checked.out.splitlines()
    assert line.startswith(f"{PATTERN}:112: schema: ") and "tune.write" in line
    assert f"format 1, and this kbtool writes {FORMAT}; `kbtool migrate --dry-run`" in checked.err


def test_migrate_renames_and_removes_and_then_check_finds_nothing(kbtool, root):
    before = contents(root)
    run_of_machine = with_a_path(root)
    sealed = (root / run_of_machine).read_bytes()
    (root / LEDGER).write_text(RATES)
    done = kbtool("migrate", root=root)
    assert done.code == 0, done.out + done.err
    assert f"format 1 to {FORMAT}: 5 files changed" in done.err
    assert done.err.endswith("checked 2 sessions, 2 patterns, 1 kernel, 1 run: no problems\n")
    after = contents(root)
    assert after[run_of_machine] == sealed
    assert f"format: {FORMAT}\n".encode() in after[FILE]
    assert after[LEDGER].decode() == RATES.replace("on: 2026", "day: 2026")
    was, now = before[HARNESS].decode(), after[HARNESS].decode()
    assert now == was.replace("def terms(", "def error_scale(") != was
    was, now = before[PATTERN].decode(), after[PATTERN].decode()
    gone = ["        write: ${write}\n", WRITE]
    assert now == was.replace(gone[0], "").replace(gone[1], "") != was
    assert run_of_machine in after["sessions/excuses.yaml"].decode()
    changed = {PATTERN, HARNESS, LEDGER, FILE, "sessions/excuses.yaml", run_of_machine}
    assert {path for path in after if after[path] != before.get(path)} == changed


def test_the_diff_names_each_line_and_a_dry_run_writes_nothing(kbtool, root):
    before = contents(root)
    shown = kbtool("migrate", "--dry-run", root=root)
    assert shown.code == 0 and contents(root) == before
    assert f"format 1 to {FORMAT}: 3 files would change" in shown.err
    assert "checked" not in shown.err
    changed = [
        line for line in shown.out.splitlines() if line[0] in "+-" and line[:3] != line[0] * 3
    ]
    assert changed[:2] == ["-def terms(inputs):", "+def error_scale(inputs):"]
    assert "-        write: ${write}" in changed and f"+format: {FORMAT}" in changed
    assert f"+++ b/{PATTERN}" in shown.out
    assert kbtool("migrate", root=root).out == shown.out


@pytest.mark.slow
def test_a_second_migration_changes_nothing(kbtool, root):
    with_a_path(root)
    assert kbtool("migrate", root=root).code == 0
    before = contents(root)
    again = kbtool("migrate", root=root)
    assert (again.code, again.out) == (0, "")
    assert f"format {FORMAT}; nothing to change" in again.err
    assert contents(root) == before
    (root / FILE).unlink()  # and what each function would do is done
    assert kbtool("migrate", root=root).code == 0
    assert contents(root) == before


@pytest.mark.slow
def test_a_site_is_built_before_and_after(kbtool, root):
    left_out = kbtool("site", "build", root=root)
    assert (left_out.code, "1 problem" in left_out.err) == (1, True)
    assert kbtool("migrate", root=root).code == 0
    built = kbtool("site", "build", root=root)
    assert built.code == 0, built.err
    assert "split-tuner" in (root / "site" / "recipes" / "index.html").read_text()


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_a_migration_that_was_cut_short_is_finished_by_the_next(
    kbtool, root, tmp_path, monkeypatch, written
):
    with_a_path(root)
    whole = Path(shutil.copytree(root, tmp_path / "whole"))
    assert kbtool("migrate", root=whole).code == 0
    commit(root)
    count = 0

    def write(path: Path, data: bytes) -> None:
        nonlocal count
        if count == written:
            raise OSError(28, "no space left")
        count += 1
        write_atomic(path, data)

    monkeypatch.setattr(migrating, "write_atomic", write)
    monkeypatch.setattr(migrating, "write_new", write)
    with pytest.raises(OSError, match="no space left"):
        migrating.write_migration(root, migrating.plan_migration(root))
    assert not (root / FILE).exists()
    assert len(git(root, "status", "--porcelain").splitlines()) == written
    done = kbtool("migrate", root=root)
    assert done.code == 0, done.err
    assert contents(root) == contents(whole)


# ---- what git could not take back ----


@pytest.mark.parametrize(
    ("path", "more"), [(PATTERN, "# mine\n"), ("README.md", "mine\n"), (HARNESS, "# mine\n")]
)
def test_changes_that_are_not_committed_are_not_mixed_with_a_migration(kbtool, root, path, more):
    commit(root)
    with (root / path).open("a") as file:
        file.write(more)
    before = contents(root)
    refused = kbtool("migrate", root=root)
    assert refused.code == 2 and contents(root) == before
    assert f"not committed: {path}; commit first" in refused.err
    assert kbtool("migrate", "--dry-run", root=root).code == 0
    assert kbtool("migrate", "--force", root=root).code == 0
    assert more in (root / path).read_text()


def test_a_file_in_no_commit_counts_if_the_migration_changes_it(kbtool, root):
    (root / ".gitignore").write_text(".kbtool/\n")
    commit(root)
    (root / "notes.txt").write_text("mine\n")
    (root / LEDGER).write_text(RATES)
    refused = kbtool("migrate", root=root)
    assert refused.code == 2 and f"not committed: {LEDGER};" in refused.err
    (root / LEDGER).unlink()
    assert kbtool("migrate", root=root).code == 0


def test_in_a_folder_of_a_repository_only_that_folder_counts(kbtool, tmp_path):
    root = Path(shutil.copytree(OLD, tmp_path / "above" / "records"))
    (tmp_path / "above" / "other").write_text("a\n")
    commit(tmp_path / "above")
    (tmp_path / "above" / "other").write_text("b\n")
    (root / PATTERN).unlink()
    refused = kbtool("migrate", root=root)
    assert refused.code == 2 and f"not committed: {PATTERN};" in refused.err
    git(tmp_path / "above", "checkout", "--", f"records/{PATTERN}")
    assert kbtool("migrate", root=root).code == 0


def test_a_repository_without_a_commit_can_take_nothing_back(kbtool, root):
    git(root, "init", "--quiet")
    refused = kbtool("migrate", root=root)
    assert refused.code == 2 and f"{HARNESS}, {PATTERN}" in refused.err


def test_a_file_that_changes_meanwhile_is_left_alone(root):
    plan = migrating.plan_migration(root)
    (root / HARNESS).write_text("# another\n")
    with pytest.raises(UsageError, match=f"{HARNESS} has changed meanwhile"):
        migrating.write_migration(root, plan)
    assert (root / HARNESS).read_text() == "# another\n"


# ---- what a person has to change ----


def test_what_is_left_is_listed_and_the_format_stays_until_it_is_done(kbtool, root):
    text = (root / PATTERN).read_text()
    (root / PATTERN).write_text(text.replace("rules:\n", "supersedes: [P06]\nrules:\n"))
    done = kbtool("migrate", root=root)
    assert done.code == 1
    line = text.splitlines().index("rules:") + 1
    said = (
        f"{PATTERN}:{line}: migrate: must say since which session: {{pattern: P06, since: SESSION}}"
    )
    assert said in done.out.splitlines()
    assert "format 1: 2 files changed" in done.err
    assert "1 place to change by hand; then run `kbtool migrate` again" in done.err
    assert not (root / FILE).exists() and "write:" not in (root / PATTERN).read_text()
    assert kbtool("migrate", "--dry-run", root=root).code == 1
    since = "supersedes: [{pattern: P15b, since: undated-n6}]"
    changed = (root / PATTERN).read_text().replace("supersedes: [P06]", since)
    (root / PATTERN).write_text(changed)
    assert kbtool("migrate", root=root).code == 0
    assert (root / FILE).exists() and (root / PATTERN).read_text() == changed


# ---- formats ----


# `completion` reads no knowledge base.
@pytest.mark.parametrize("command", [one for one in leaves() if one != "completion"])
def test_every_command_refuses_a_newer_format_with_one_message(command, root, monkeypatch, capsys):
    newer = FORMAT + 1
    (root / FILE).write_text(f"# later\nformat: {newer}\nkbtool: 9.1.0\nmore: {{}}\n")
    before = contents(root)
    monkeypatch.chdir(root)
    monkeypatch.delenv("KBTOOL_ROOT", raising=False)
    assert run([*command.split(), *ARGUMENTS.get(command, [])]) == 3
    assert capsys.readouterr().err == (
        f"kbtool: this knowledge base has format {newer} and needs kbtool 9.1.0 or newer; this is"
        f" kbtool {__version__}, which reads formats up to {FORMAT}\n"
    )
    assert contents(root) == before


@pytest.mark.parametrize(
    "text",
    ["", "# format: 2\n", "format:\n", "format: two\n", "format: 0\n", "format: -1\n",
     "format: 1\nformat: 2\n", "<<<<<<< a\nformat: 1\n=======\nformat: 2\n>>>>>>> b\n",
     "format: 99999999999999999999\n"],
)  # fmt: skip
def test_a_file_that_states_no_format_is_an_error(kbtool, root, text):
    (root / FILE).write_text(text)
    for command in ("check", "costs", "migrate"):
        done = kbtool(command, root=root)
        assert (done.code, done.out) == (1, "")
        assert f"{FILE} must state the format" in done.err


@pytest.mark.parametrize("text", ["format: 1\n", "format: 1  # old\r\nkbtool: 0.0.1\r\n# mine\r\n"])
def test_a_file_that_states_an_older_format_is_changed_in_its_place(kbtool, root, text):
    (root / FILE).write_bytes(text.encode())
    assert kbtool("migrate", root=root).code == 0
    expected = text.replace(": 1", f": {FORMAT}").replace("0.0.1", "0.1.0")
    assert (root / FILE).read_bytes() == expected.encode()


@pytest.mark.slow
def test_init_states_the_format_of_a_new_knowledge_base_only(kbtool, root, tmp_path):
    kbtool("init", str(tmp_path / "new"))
    assert f"format: {FORMAT}\n" in (tmp_path / "new" / FILE).read_text()
    kbtool("init", str(root))  # its records are of format 1
    assert not (root / FILE).exists()


def test_this_repository_has_the_newest_format(kbtool):
    here = Path(__file__).parents[2]
    assert f"format: {FORMAT}\n" in (here / FILE).read_text()
    assert migrating.plan_migration(here).changes == []
