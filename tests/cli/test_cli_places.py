"""Commands in surroundings that are not the usual: locales, paths, repositories."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from knowledge import SESSION_LINE

from kbtool.cli import main
from kbtool.cli.common import cells_of, print_table
from kbtool.gpu.ninja import refuse_for_nvcc
from kbtool.model.errors import MachineError
from kbtool.model.run import Run, StepRecord
from kbtool.runner import progress
from kbtool.store.document import parse
from kbtool.store.splice import Splice

BASE = Path(__file__).parents[2] / "soak" / "base"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
PATH = 'it\'s "a" $HOME 100% #1: é 日本'
TITLE = "日本語のカーネル 🚀 e\u0301"


@pytest.fixture
def copy(tmp_path):
    """A knowledge base with something of each kind."""
    return Path(shutil.copytree(BASE, tmp_path / "base"))


def record(root: Path) -> str:
    (path,) = root.glob("sessions/*-here/session.yaml")
    return path.read_text("utf-8")


@pytest.mark.slow
def test_text_is_recorded_as_utf8_in_an_ascii_locale(base, kbtool):
    made = kbtool(
        "session", "new", TITLE, "--id", "here", "--label", "日本", root=base.root, env=ASCII
    )
    assert made.code == 0, made.err
    done = kbtool("session", "note", "ノート 🚀", "--session", "日本", root=base.root, env=ASCII)
    assert done.code == 0, done.err
    assert f'title: "{TITLE}"' in record(base.root)
    assert "ノート 🚀" in next(base.root.glob("sessions/*-here/notes.md")).read_text("utf-8")
    assert kbtool("check", root=base.root, env=ASCII).code == 0


@pytest.mark.slow
def test_a_folder_with_an_umlaut_is_found_in_an_ascii_locale(tmp_path, kbtool):
    assert kbtool("init", PATH, env=ASCII).code == 0
    assert kbtool("--root", PATH, "check", env=ASCII).code == 0


def test_text_that_is_not_utf8_is_refused_with_the_reason(base, kbtool):
    done = kbtool("session", "new", os.fsdecode(b"caf\xe9"), root=base.root)
    assert (done.code, done.err) == (2, "kbtool: the text is not UTF-8\n")


@pytest.mark.parametrize(
    ("text", "cells"),
    [("abc", 3), ("日本語", 6), ("🚀", 2), ("e\u0301", 1), ("µs ×", 4), ("か\u3099", 2), ("ｱ", 1)],
)
def test_text_is_as_wide_as_a_terminal_shows_it(text, cells):
    assert cells_of(text) == cells


@pytest.mark.parametrize("columns", ["", "60"])
def test_columns_with_wide_characters_are_aligned(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    rows = [["日本語のカーネルを速くする試みの記録", "1.5", "x"], ["e\u0301te\u0301", "10.5", "x"]]
    print_table(["title", "minutes", "end"], rows, {1})
    header, rule, *lines = capsys.readouterr().out.splitlines()
    at = cells_of(header.partition("end")[0])
    for line in lines:
        assert cells_of(line.removesuffix("x")) == at and line.endswith("  x"), lines
    assert cells_of(rule) == at + 3


def test_a_text_without_spaces_is_wrapped_to_the_width(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    print_table(["id", "title"], [["2025-01-01-a", "日本語のカーネル、速くする試み。"]], set())
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1 and max(map(cells_of, lines)) <= 30
    assert not any(line.strip()[0] in "、。" for line in lines)


@pytest.mark.parametrize("columns", [15, 44, 50, 60])
def test_an_id_stays_whole_where_the_terminal_has_room(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "2025-01-01-the-first-of-it"
    print_table(["id", "title", "kind"], [[name, "Several words", "recipes"]], set())
    assert name in capsys.readouterr().out


@pytest.fixture
def set_clock(monkeypatch):
    """Each look at the system clock during a run finds it set by so much more."""

    def set_it(by: timedelta) -> None:
        looks = count()

        class Set(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.now(tz) + next(looks) * by

        monkeypatch.setattr("kbtool.runner.clock.datetime", Set)

    return set_it


@pytest.mark.parametrize(("hours", "where"), [(-1, "back"), (24, "forward"), (0, None)])
def test_a_run_during_which_the_clock_is_set_has_sound_times(copy, set_clock, capsys, hours, where):
    set_clock(timedelta(hours=hours))
    assert main.run(["--root", str(copy), "run-recipe", "hello"]) == 0
    (path,) = copy.glob("sessions/*-unsorted/runs/*.json")
    made = Run.model_validate_json(path.read_bytes())
    (step,) = made.steps
    assert made.started <= step.started <= made.ended < made.started + timedelta(minutes=5)
    said = capsys.readouterr().err
    assert ("the system clock was set" in said) is (where is not None), said
    assert where is None or f"the system clock was set {where} by" in said
    assert main.run(["--root", str(copy), "check"]) == 0


AHEAD = "status: running\nstarted: 2099-01-01T09:00:00+00:00\n"


@pytest.mark.parametrize("arguments", [["run-recipe", "hello"], ["session", "pause"]])
def test_a_clock_that_is_before_the_session_is_named(copy, kbtool, arguments):
    (copy / "sessions" / "2099-01-01-late").mkdir()
    path = copy / "sessions" / "2099-01-01-late" / "session.yaml"
    path.write_text(
        SESSION_LINE + "id: 2099-01-01-late\nlabel: L\ntitle: x\norigin: tool\n" + AHEAD
    )
    before = path.read_text()
    done = kbtool(*arguments, root=copy)
    assert done.code == 2 and "the clock says 2" in done.err, done.err
    assert "set the clock" in done.err and path.read_text() == before
    assert not list(copy.glob("sessions/2099-01-01-late/runs/*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "with-a-mark"])
def test_an_edit_keeps_the_line_ends_of_windows(copy, kbtool, mark):
    assert kbtool("session", "new", "x", "--id", "here", root=copy).code == 0
    (folder,) = copy.glob("sessions/*-here")
    files = [folder / "session.yaml", folder / "notes.md"]
    for path in files:
        path.write_bytes(mark + path.read_bytes().replace(b"\n", b"\r\n"))
    for arguments in (
        ["note", "one"], ["bug", "A bug", "--id", "nan"], ["fix", "nan", "a < b"],
        ["cost", "gpu", "0.40", "--basis", "billed"], ["pause"], ["resume", "here"],
        ["note", "two\nlines"], ["close", "here", "--outcome", "done"],
    ):  # fmt: skip
        done = kbtool("session", *arguments, root=copy)
        assert done.code == 0, done.err
    for path in files:
        text = path.read_bytes().removeprefix(mark if path.suffix == ".md" else b"")
        assert not text.startswith(b"\xef")
        assert b"\r\r" not in text
        assert text.count(b"\r\n") == text.count(b"\n") == text.count(b"\r"), text.decode()
    assert kbtool("check", root=copy).code == 0


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("key", ["title", "label"])
def test_a_key_is_removed_with_its_line_end(mark, key):
    text = "id: a\r\ntitle: b\r\nlabel: c\r\nstatus: d\r\n"
    edit = Splice(parse((mark + text).encode(), "x"))
    edit.remove([key])
    assert edit.text == "".join(line for line in text.splitlines(True) if key not in line)


@pytest.mark.slow
def test_a_dollar_sign_in_the_path_is_no_variable(tmp_path, kbtool):
    root = tmp_path / PATH
    assert kbtool("init", PATH).code == 0
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *name, *arguments], cwd=root, check=True)
    done = kbtool("--root", PATH, "session", "new", "x", "--id", "here")
    assert (done.code, "Warning" in done.err) == (0, False), done.err
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    assert head.stdout.strip()[:7] in record(root)


def test_without_git_the_history_is_said_to_be_unreadable(copy, tmp_path, kbtool):
    (tmp_path / "empty").mkdir()
    env = {"PATH": str(tmp_path / "empty")}
    assert kbtool("session", "new", "x", "--id", "here", root=copy, env=env).code == 0
    assert "no git repository that can be read" in record(copy)
    assert kbtool("check", root=copy, env=env).code == 0
    done = kbtool("check", "--history", root=copy, env=env)
    assert done.code == 3
    assert done.err.endswith("cannot be read: there is no git program on the PATH\n"), done.err


@pytest.mark.parametrize("term", ["", "dumb", "xterm"])
def test_a_terminal_that_cannot_move_its_cursor_gets_plain_progress(monkeypatch, term):
    monkeypatch.setenv("TERM", term)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    shown = progress.reporter("auto", verbose=False, stream=stream)
    assert isinstance(shown, progress.Terminal) is (term == "xterm")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_the_live_line_has_only_what_the_terminal_can_show(monkeypatch, encoding):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding, "backslashreplace")
    shown = progress.reporter("tty", verbose=False, stream=stream)
    step = StepRecord(
        id="a", kind="command", title="A", status="not-run", expected_seconds=1.0,
        expected_from="declared",
    )  # fmt: skip
    shown.step_started(1, 1, step)
    shown.step_ended(step, (), "")
    stream.flush()
    said = buffer.getvalue().decode(encoding)
    assert "\\u" not in said and ("⠋" in said) is (encoding == "utf-8"), said


@pytest.fixture
def no_temporary_folder(monkeypatch, copy, capsys):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nonexistent"])


@pytest.mark.usefixtures("no_temporary_folder")
def test_a_run_is_recorded_where_no_temporary_folder_can_be_written(copy, capsys):
    assert main.run(["--root", str(copy), "run-recipe", "hello"]) == 0, capsys.readouterr().err
    assert len(list(copy.glob("sessions/*-unsorted/runs/*.json"))) == 1


@pytest.mark.usefixtures("no_temporary_folder")
def test_the_report_of_a_bug_is_printed_where_it_cannot_be_written(copy, capsys, monkeypatch):
    def broken(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr("kbtool.store.root.is_root", broken)
    assert main.run(["--root", str(copy), "status"]) == 70
    assert "RuntimeError: broken\n" in capsys.readouterr().err.partition("a report to paste:")[2]


@pytest.mark.slow
def test_a_command_that_is_proposed_works_as_pasted(tmp_path, started_kbtool):
    (tmp_path / PATH).mkdir()
    said = started_kbtool("init", f"{PATH}/b").err
    command = said.partition("next: ")[2].strip()
    env = {**os.environ, "PYTHONPATH": str(BASE.parents[1])}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout[:9]) == (0, "sessions/"), done.stderr
    assert list((tmp_path / PATH / "b" / "sessions").glob("*/session.yaml"))


@pytest.mark.slow
def test_a_kernel_is_built_in_a_folder_of_any_name(second_kernel_base, tmp_path, kbtool):
    root = second_kernel_base.rename(tmp_path / PATH)
    (root / ".kbtool" / "build").unlink()
    arguments = ["--set", "cases=small", "--json"]
    done = kbtool("--root", PATH, "run-recipe", "add", *arguments)
    steps = {step["id"]: step["status"] for step in json.loads(done.out)["steps"]}
    assert (steps["build"], steps["validate"]) == ("passed", "passed"), done.err


@pytest.mark.parametrize("name", ["a$HOME", 'a"b', "a`b", "a\\b"])
def test_a_folder_that_nvcc_cannot_read_is_named(name):
    refuse_for_nvcc("", Path(name))
    refuse_for_nvcc("nvcc", Path("it's 100% #1: é, 日本"))
    with pytest.raises(MachineError, match="nvcc compiles nothing in a folder whose path holds"):
        refuse_for_nvcc("nvcc", Path("fine"), Path(name))


@pytest.mark.parametrize("command", [[], ["run-recipe"], ["session", "cost"], ["keep-or-stop"]])
def test_options_are_described_within_a_narrow_terminal(monkeypatch, capsys, command):
    monkeypatch.setenv("COLUMNS", "40")
    assert main.run([*command, "--help"]) == 0
    text = capsys.readouterr().out
    options = text.partition("\nOptions:\n")[2].partition("\n\n  Example")[0]
    described = [line for line in options.splitlines() if not line.startswith("  -")]
    assert described and max(map(len, described)) <= 40, options


def test_a_zone_of_a_day_or_more_is_refused_by_its_name(base):
    done = subprocess.run(
        [sys.executable, "-m", "kbtool", "status"], cwd=base.root, capture_output=True, text=True,
        env={**os.environ, "TZ": "UTC-25"}, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    told = "kbtool: TZ=UTC-25 is 24 hours or more from UTC; unset TZ or name a zone"
    assert done.stderr.strip() == told
