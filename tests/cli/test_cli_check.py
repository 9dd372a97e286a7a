"""``kbtool check`` from outside: what it prints where, and its exit status."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def test_a_sound_knowledge_base_exits_0(base, kbtool):
    base.session()
    done = kbtool("check", root=base.root)
    assert (done.code, done.out) == (0, "")
    assert done.err == "checked 1 session, 0 patterns, 0 kernels, 0 runs: no problems\n"


def test_findings_are_lines_that_an_editor_can_jump_to(base, kbtool):
    base.session(more="nonsense: 1\nstarted: null\n")
    done = kbtool("check", root=base.root)
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[0].startswith("sessions/2025-01-01-a/session.yaml:7: schema: nonsense: ")
    assert lines[1].startswith("sessions/2025-01-01-a/session.yaml:8: null-reason: started ")
    assert done.err.endswith(": 2 problems\n")


def test_json_lists_findings_and_counts(base, kbtool):
    base.session(more="nonsense: 1\n")
    base.pattern()
    done = kbtool("check", "--json", root=base.root)
    assert done.code == 1
    answer = json.loads(done.out)
    (finding,) = answer["findings"]
    assert set(finding) == {"path", "line", "rule", "message"}
    assert (finding["line"], finding["rule"]) == (7, "schema")
    assert answer["counts"] == {"sessions": 1, "patterns": 1, "kernels": 0, "runs": 0}
    base.session()
    assert json.loads(kbtool("check", "--json", root=base.root).out)["findings"] == []


def test_paths_limit_the_findings(base, kbtool):
    base.session("2025-01-01-a", "nonsense: 1\n")
    base.session("2025-01-02-b", "nonsense: 1\nfollows: 2025-01-01-a\n")
    base.pattern(more="nonsense: 1\n")
    one = kbtool("check", str(base.root / "sessions/2025-01-01-a"), root=base.root)
    assert one.code == 1
    assert [line.split(":")[0] for line in one.out.splitlines()] == [
        "sessions/2025-01-01-a/session.yaml"
    ]
    assert "checked 1 session, 0 patterns" in one.err
    two = kbtool("check", "base/patterns", "base/sessions/2025-01-02-b/", root=base.root)
    assert len(two.out.splitlines()) == 2
    everything = kbtool("check", "base", root=base.root)
    assert len(everything.out.splitlines()) == 3


@pytest.mark.parametrize("path", ["base/none", "/etc", "base/../other", "base/sessions/x"])
def test_a_missing_path_exits_2(base, kbtool, path):
    done = kbtool("check", path, root=base.root)
    assert (done.code, done.out) == (2, "")
    assert "there is no" in done.err or "outside" in done.err


@pytest.mark.parametrize(
    "path", ["base/patterns", "base/Makefile", "base/sessions/2025-01-01-a/files"]
)
def test_a_path_without_records_exits_2(base, kbtool, path):
    base.session()
    base.write("Makefile", "x")
    base.write("sessions/2025-01-01-a/files/x.txt", "x")
    done = kbtool("check", path, root=base.root)
    assert (done.code, done.out) == (2, "")
    assert f"{path} is no record, and there is none in it" in done.err
    assert kbtool("check", "base/sessions/2025-01-01-a", root=base.root).code == 0


def test_without_a_knowledge_base_check_exits_2(kbtool, tmp_path):
    done = kbtool("check")
    assert (done.code, done.out) == (2, "")
    assert "no knowledge base in this folder or above" in done.err
    assert kbtool("check", root=tmp_path / "none").code == 2


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\xff" * 50, b"a: *a", b"{" * 10_000, b"- " * 10_000, b"x" * 5_000_000, b"'" * 999],
)
def test_bad_files_are_findings_and_no_traceback(base, kbtool, content):
    base.write("sessions/2025-01-01-a/session.yaml", content)
    base.write("patterns/P01.yaml", content)
    base.write("kernels/add/kernel.yaml", content)
    done = kbtool("check", root=base.root)
    assert done.code == 1
    assert len(done.out.splitlines()) == 3


def test_control_characters_in_a_name_are_escaped(base, kbtool):
    (base.root / "sessions" / os.fsdecode(b"2025-01-01-\xff\x1b[31m\n")).mkdir()
    done = kbtool("check", root=base.root)
    assert done.code == 1
    assert len(done.out.splitlines()) == 1
    assert "\\udcff\\x1b[31m\\n" in done.out
    assert json.loads(kbtool("check", "--json", root=base.root).out)["findings"]


def test_a_reader_that_goes_away_is_no_error(base):
    for number in range(300):
        base.session(f"2025-01-01-s{number}", "nonsense: 1\n")
    command = f"{sys.executable} -m kbtool --root {base.root} check | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_a_finding(base, kbtool):
    base.session().chmod(0)
    done = kbtool("check", root=base.root)
    assert done.code == 1
    assert "Permission denied" in done.out


def test_a_tree_that_cannot_be_written_to_is_checked_all_the_same(base, kbtool):
    base.session()
    (base.root / ".kbtool").write_text("")
    assert kbtool("check", root=base.root).code == 0
    assert kbtool("check", "--no-cache", root=base.root).code == 0


@pytest.mark.slow
def test_this_repositorys_own_records_are_sound(kbtool, tmp_path):
    copy = tmp_path / "copy"
    for name in ("sessions", "patterns", "kernels", "docs/adr", "kbtool"):
        shutil.copytree(
            REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns(".*", "__pycache__")
        )
    done = kbtool("check", "--no-cache", root=copy)
    assert (done.code, done.out) == (0, "")
