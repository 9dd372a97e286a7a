"""``kbtool check`` finds the same with and without its cache, and reads less with it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from kbtool.checks import check as check_module
from kbtool.store import cache as cache_module
from kbtool.store.cache import code_digest
from kbtool.store.schema import modeline


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are taken up at once, instead of two seconds after they were written."""
    monkeypatch.setattr(cache_module, "SETTLED_NS", -1_000_000_000)


def cache_file(base) -> Path:
    return base.root / ".kbtool/cache/check.json"


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are really read."""
    from kbtool.checks import pool

    seen: list[str] = []
    real = pool._examine_part

    def part(root, asked, files):
        seen.extend(file.path for file in files)
        return real(root, asked, files)

    monkeypatch.setattr(pool, "_examine_part", part)
    return seen


def test_unchanged_files_are_not_read_again(base, examined):
    base.session()
    base.pattern()
    assert base.findings(cached=True) == []
    assert sorted(examined) == ["patterns/P01.yaml", "sessions/2025-01-01-a/session.yaml"]
    examined.clear()
    assert base.findings(cached=True) == []
    assert examined == []
    base.session(more="nonsense: 1\n")
    assert [finding.rule for finding in base.findings(cached=True)] == ["schema"]
    assert examined == ["sessions/2025-01-01-a/session.yaml"]


def test_findings_are_the_same_from_the_cache(base):
    base.session(more="started: null\nfollows: 2025-01-01-x\nnonsense: 1\n")
    base.session("2025-01-02-b", "started: null\nfollows: 2025-01-01-x\n")
    base.pattern(more="related: [P02]\n")
    first = base.findings(cached=True)
    assert len(first) == 6
    assert base.findings(cached=True) == first == base.findings(cached=False)


def test_an_edit_that_keeps_size_and_modification_time_is_seen(base):
    path = base.session(more="# aaaaaaa\n")
    before = path.stat()
    assert base.findings(cached=True) == []
    path.write_text(path.read_text().replace("# aaaaaaa", "nons: aaa"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert [finding.rule for finding in base.findings(cached=True)] == ["schema"]


def test_a_file_put_in_the_place_of_another_is_seen(base):
    path = base.session()
    assert base.findings(cached=True) == []
    other = path.with_name("other")
    other.write_text(path.read_text().replace("origin", "orogin"))
    shutil.copystat(path, other)
    other.replace(path)
    assert "schema" in {finding.rule for finding in base.findings(cached=True)}


def test_a_file_written_just_now_is_not_cached(base, examined, monkeypatch):
    monkeypatch.setattr(cache_module, "SETTLED_NS", 3_600_000_000_000)
    base.session()
    base.findings(cached=True)
    base.findings(cached=True)
    assert examined == ["sessions/2025-01-01-a/session.yaml"] * 2


def test_a_removed_target_is_seen_by_the_record_that_links_to_it(base):
    target = base.session(more="duration: 5 min\n")
    base.session("2025-01-02-b", "follows: 2025-01-01-a\n")
    assert base.findings(cached=True) == []
    shutil.rmtree(target.parent)
    assert [finding.rule for finding in base.findings(cached=True)] == ["link"]


def test_a_changed_target_is_seen_by_the_record_that_links_into_it(base):
    base.session(more="duration: 5 min\nbugs: [{id: x, title: T, status: open}]\n")
    base.session("2025-01-02-b", "fixes: [{bug: 2025-01-01-a#bugs.x, change: C}]\n")
    assert base.findings(cached=True) == []
    assert base.findings(cached=True) == []
    base.session(more="duration: 5 min\nbugs: [{id: y, title: T, status: open}]\n")
    assert [finding.rule for finding in base.findings(cached=True)] == ["link"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw.replace(b"schema", b"schemb"),
        lambda raw: raw.replace(b"nonsense", b""),
        lambda raw: b"\xff" + raw,
        lambda raw: raw.split(b"\n")[0] + b"\n{}",
        lambda raw: b"x y\n[]",
    ],
)
def test_a_damaged_cache_is_ignored(base, damage):
    base.session(more="nonsense: 1\n")
    expected = base.findings(cached=True)
    assert expected
    cache_file(base).write_bytes(damage(cache_file(base).read_bytes()))
    assert base.findings(cached=True) == expected


def test_a_cache_that_is_a_link_out_of_the_knowledge_base_is_replaced_and_its_target_kept(
    base, tmp_path
):
    base.session()
    target = tmp_path / "precious"
    target.write_text("mine")
    cache_file(base).parent.mkdir(parents=True)
    cache_file(base).symlink_to(target)
    assert base.findings(cached=True) == []
    assert target.read_text() == "mine"
    assert not cache_file(base).is_symlink()


def test_only_the_owner_reads_a_cache_which_repeats_what_records_say(base):
    base.session().chmod(0o600)
    base.findings(cached=True)
    assert cache_file(base).stat().st_mode & 0o777 == 0o600


def test_a_link_to_nothing_in_the_private_folder_makes_nothing_there(base, tmp_path):
    target = tmp_path / "planted"
    (base.root / ".kbtool").mkdir()
    (base.root / ".kbtool" / ".gitignore").symlink_to(target)
    base.session()
    assert base.findings(cached=True) == []
    assert cache_file(base).is_file() and not target.exists()


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_cache_that_is_no_file_is_ignored(base, kind):
    base.session(more="nonsense: 1\n")
    expected = base.findings(cached=False)
    cache_file(base).parent.mkdir(parents=True)
    (os.mkfifo if kind == "pipe" else os.mkdir)(cache_file(base))
    assert base.findings(cached=True) == expected != []


def test_a_change_of_the_rules_empties_the_cache(base, examined, monkeypatch):
    base.session()
    base.findings(cached=True)
    monkeypatch.setattr(check_module, "_digest", lambda: "0" * 64)
    examined.clear()
    base.findings(cached=True)
    assert examined == ["sessions/2025-01-01-a/session.yaml"]


def test_the_digest_changes_with_any_line_of_code(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    first = code_digest({"a": tmp_path}, ("yaml",))
    assert code_digest({"a": tmp_path}, ("yaml",)) == first
    assert code_digest({"a": tmp_path}, ()) != first
    (tmp_path / "a.py").write_text("x = 2\n")
    second = code_digest({"a": tmp_path}, ("yaml",))
    assert second != first
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b.py").write_text("y = 1\n")
    assert code_digest({"a": tmp_path}, ("yaml",)) != second


def test_without_room_for_a_cache_the_check_goes_on(base):
    base.session(more="nonsense: 1\n")
    (base.root / ".kbtool").write_text("a file where the folder should be")
    assert [finding.rule for finding in base.findings(cached=True)] == ["schema"]


def test_the_cache_keeps_itself_out_of_git(base):
    base.session()
    base.findings(cached=True)
    assert (base.root / ".kbtool/.gitignore").read_text() == "*\n"


def test_findings_do_not_depend_on_the_number_of_processes(base):
    for number in range(40):
        base.session(f"2025-01-01-s{number}", "nonsense: 1\n" if number % 3 else "")
    base.write("sessions/2025-01-01-s1/notes.md", b"\xff")
    one = base.findings(jobs=1)
    assert len(one) == 27
    assert base.findings(jobs=2) == base.findings(jobs=5) == one


def test_the_work_of_a_process_that_dies_is_done_by_its_parent(base, monkeypatch):
    from kbtool.checks import pool

    for number in range(10):
        base.session(f"2025-01-01-s{number}", "nonsense: 1\n")
    parent = os.getpid()
    real = pool._examine_part

    def part(root, asked, files):
        if os.getpid() != parent:
            os.kill(os.getpid(), 9)
        return real(root, asked, files)

    monkeypatch.setattr(pool, "_examine_part", part)
    assert len(base.findings(jobs=3)) == 10


def test_with_nothing_changed_no_model_is_imported(base, kbtool):
    base.session(more="duration: 5 min\n")
    more = "claims: [{id: a, says: S, stated: 5 min, how: same, of: [2025-01-01-a#duration]}]\n"
    base.session("2025-01-02-b", more)
    base.kernel()
    edit = "{id: a, about: It cheats., file: harness.py, find: x, put: y}"
    base.write("kernels/add/harness.py", "x = 1\n")
    base.write("kernels/add/cheats.yaml", f"{modeline('cheats')}\ncheats: [{edit}]\n")
    base.findings(cached=True)
    code = (
        "import sys; from pathlib import Path; from kbtool.checks.check import check_tree;"
        f"assert check_tree(Path({str(base.root)!r})).findings == [];"
        "bad = {'pydantic', 'yaml', 'git', 'torch'} & set(sys.modules); assert not bad, bad"
    )
    import subprocess

    subprocess.run([sys.executable, "-c", code], check=True)
