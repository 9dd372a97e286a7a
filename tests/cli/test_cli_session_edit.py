"""``kbtool session edit``: only what passes ``check`` is taken, and no text is lost."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from knowledge import LOOK, Knowledge

from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]
RECORD = "sessions/2025-01-05-now/session.yaml"
KEPT = ".kbtool/edit/2025-01-05-now.yaml"


@pytest.fixture
def going(base: Knowledge) -> Knowledge:
    base.pattern(more=LOOK)
    base.running()
    return base


def script(base: Knowledge, text: str, name: str = "editor.sh") -> str:
    """An editor: a script that gets the file as $1."""
    path = base.root.parent / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def edited(
    base: Knowledge, editor: str | None, *arguments: str, **env: str
) -> subprocess.CompletedProcess[str]:
    here = {**os.environ, "KBTOOL_ROOT": str(base.root), "PYTHONPATH": str(REPOSITORY), **env}
    here.pop("VISUAL", None)
    here.pop("EDITOR", None)
    if editor is not None:
        here["EDITOR"] = editor
    command = [sys.executable, "-m", "kbtool", "session", "edit", *arguments]
    return subprocess.run(
        command, env={**here, **env}, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        cwd=base.root.parent,
    )  # fmt: skip


def record(base: Knowledge) -> str:
    return (base.root / RECORD).read_text()


@pytest.mark.slow
def test_what_passes_check_is_taken_as_it_was_written(going):
    editor = script(going, 'echo "outcome: it is fixed  # at last" >> "$1"')
    done = edited(going, editor)
    assert (done.returncode, done.stdout) == (0, f"{RECORD} is changed\n"), done.stderr
    assert record(going).endswith("outcome: it is fixed  # at last\n")
    assert not (going.root / KEPT).exists() and going.findings() == []


def test_the_editor_sees_a_yaml_file_whose_schema_is_where_its_first_line_says(going):
    editor = script(going, 'head -1 "$1"; echo "$1"; cd "$(dirname "$1")" && ls -d ../../sessions')
    done = edited(going, editor, "--json")
    assert json.loads(done.stdout) == {
        "session": "2025-01-05-now", "path": RECORD, "changed": False,
    }  # fmt: skip
    assert "../../schemas/session.json" in done.stderr and KEPT in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("outcom: fixed", "session.yaml:8: schema: outcom: is not a key"),
        ("evidence: [{pattern: P09, verdict: applied, note: x}]", "there is no pattern 'P09'"),
        ("outcome: [", "yaml"),
        ("outcome: seen at 10.0.0.1", "address"),
        ("follows: 2025-01-05-now", "follows"),
        ("<<<<<<< a", "conflict"),
    ],
)
def test_what_check_would_refuse_is_told_and_the_text_is_kept(going, line, said):
    before = record(going)
    done = edited(going, script(going, f"echo '{line}' >> \"$1\""))
    assert done.returncode == 1
    assert said in done.stderr and f"Your text is kept in {KEPT}" in done.stderr, done.stderr
    assert record(going) == before
    assert (going.root / KEPT).read_text() == f"{before}{line}\n"
    again = edited(
        going, script(going, f"""sed -i '/{line[:6]}/d' "$1"; echo 'grade: B' >> "$1\"""")
    )
    assert again.returncode == 0, again.stderr
    assert "going on with the text that was not taken" in again.stderr
    assert record(going) == f"{before}grade: B\n"
    assert not (going.root / KEPT).exists()


@pytest.mark.slow
def test_a_change_that_breaks_another_record_is_refused(going):
    path = going.root / RECORD
    path.write_text(path.read_text() + "bugs: [{id: nan, title: NaN, status: open}]\n")
    going.session(more='fixes: [{bug: "2025-01-05-now#bugs.nan", change: bound it}]\n')
    assert going.findings() == []
    done = edited(going, script(going, 'sed -i "/^bugs/d" "$1"'))
    assert done.returncode == 1
    assert "sessions/2025-01-01-a/session.yaml:7: link: 2025-01-05-now#bugs.nan" in done.stderr
    assert "bugs:" in record(going)
    done = edited(going, script(going, 'echo "bugs: [{id: nan, title: Na, status: open}]" >> "$1"'))
    assert done.returncode == 0, done.stderr


def test_a_record_that_does_not_load_is_mended(going):
    path = going.root / RECORD
    path.write_text(path.read_text() + "outcom: fixed\n")
    done = edited(going, script(going, 'sed -i s/outcom/outcome/ "$1"'), "2025-01-05-now")
    assert done.returncode == 0, done.stderr
    assert going.findings() == []


def test_old_faults_of_other_records_are_in_nobodys_way(going):
    going.session(more="outcom: x\n")
    done = edited(going, script(going, 'echo "grade: A" >> "$1"'))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_other_commands_wrote_meanwhile_is_merged(going):
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    kbtool = f'"{sys.executable}" -m kbtool session'
    editor = script(
        going, f'{kbtool} lesson "Look first." >/dev/null\nsed -i "s/^title: .*/title: Other/" "$1"'
    )
    done = edited(going, editor)
    assert done.returncode == 0, done.stderr
    now = KnowledgeBase(going.root).session("now").record
    assert (now.title, now.lessons) == ("Other", ["Look first."])


@pytest.mark.slow
def test_changes_of_the_same_line_are_marked_and_kept(going):
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    path = going.root / RECORD
    editor = script(
        going,
        f'sed -i "s/^title: .*/title: Theirs/" "{path}"\nsed -i "s/^title: .*/title: Mine/" "$1"',
    )
    done = edited(going, editor)
    assert done.returncode == 1 and "conflict" in done.stderr, done.stderr
    assert "title: Theirs" in record(going)
    kept = (going.root / KEPT).read_text()
    assert "<<<<<<< your text" in kept and "title: Mine" in kept and "title: Theirs" in kept
    editor = script(going, 'sed -i -e "/^[<=>]\\{7\\}/d" -e "/Theirs/d" "$1"')
    done = edited(going, editor)
    assert done.returncode == 0, done.stderr
    assert "title: Mine" in record(going)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("exit 3", 2, "the editor ended with status 3, so session.yaml is as it was\n"),
        ('echo x >> "$1"; exit 3', 2, "session edit 2025-01-05-now` goes on with its text"),
        (': > "$1"', 0, "the text is empty"),
        ('rm "$1"', 0, "the text is empty"),
        ("true", 0, "give it its option to wait"),
    ],
)
def test_an_editor_that_leaves_nothing_changes_nothing(going, text, code, said):
    before = record(going)
    done = edited(going, script(going, text))
    assert done.returncode == code and said in done.stderr, done.stderr
    assert record(going) == before
    assert (going.root / KEPT).exists() is ("goes on" in said)


@pytest.mark.parametrize(
    ("editor", "said"),
    [
        (None, "neither VISUAL nor EDITOR is set, and there is no terminal: set one, or edit"),
        ("vim", "vim needs a terminal, and there is none"),
        ("/usr/bin/nano -w", "/usr/bin/nano needs a terminal"),
        ("no-such-editor --wait", "the editor 'no-such-editor --wait' cannot be started"),
    ],
)
def test_without_a_terminal_or_an_editor_it_says_what_to_do(going, editor, said):
    done = edited(going, editor)
    assert done.returncode == 3 and said in done.stderr.replace(
        "no usual editor here", "no terminal"
    )
    assert editor == "no-such-editor --wait" or f"edit {RECORD} as you like" in done.stderr


def test_visual_comes_first_and_may_have_arguments(going):
    editor = script(going, 'echo "grade: $1" >> "$2"')
    done = edited(going, "false", VISUAL=f"'{editor}' B")
    assert done.returncode == 0, done.stderr
    assert record(going).endswith("grade: B\n")


@pytest.mark.slow
def test_notes_are_edited_and_checked_too(going):
    for text, code in (("- seen", 0), ("- at 10.0.0.1", 1)):
        done = edited(going, script(going, f'echo "{text}" >> "$1"'), "--notes")
        assert done.returncode == code, done.stderr
    notes = (going.root / "sessions/2025-01-05-now/notes.md").read_text()
    assert "- seen" in notes and "10.0.0.1" not in notes


MARKED = "- tried:\n\n```sh\n#! /bin/sh\n#! kbtool: as its notes quote it\ntrue\n```\n"


@pytest.mark.slow
def test_lines_of_the_notes_that_begin_with_a_mark_are_kept(going):
    notes = going.root / "sessions/2025-01-05-now/notes.md"
    notes.write_text(MARKED)
    done = edited(going, script(going, "true"), "--notes")
    assert (done.returncode, notes.read_text()) == (0, MARKED), done.stderr
    assert done.stdout.endswith("notes.md is as it was\n")
    done = edited(going, script(going, 'echo "- seen" >> "$1"'), "--notes")
    assert (done.returncode, notes.read_text()) == (0, f"{MARKED}- seen\n"), done.stderr


def test_notes_that_begin_as_findings_do_are_as_they_were(going):
    notes = going.root / "sessions/2025-01-05-now/notes.md"
    notes.write_text("#! kbtool: line 3: schema\n")
    done = edited(going, script(going, "true"), "--notes")
    assert done.returncode == 0 and "is empty" not in done.stderr, done.stderr
    assert done.stdout.endswith("notes.md is as it was\n")
    assert notes.read_text() == "#! kbtool: line 3: schema\n"


@pytest.mark.slow
def test_two_edits_of_one_session_at_once_are_refused(going):
    kbtool = f'"{sys.executable}" -m kbtool session edit now 2> "{going.root}/said"'
    done = edited(going, script(going, f"{kbtool}\ntrue"))
    assert done.returncode == 0, done.stderr
    said = (going.root / "said").read_text()
    assert "is being edited already, by another `session edit`: close its editor first" in said


@pytest.mark.slow
def test_discard_begins_anew(going):
    before = record(going)
    edited(going, script(going, 'echo "outcom: x" >> "$1"'))
    done = edited(going, script(going, 'echo "grade: A" >> "$1"'), "--discard")
    assert done.returncode == 0 and record(going) == f"{before}grade: A\n"


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, base: Knowledge, editor: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # Whoever runs the tests may have ignored it: a shell does for what it runs behind.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            env = {**os.environ, "KBTOOL_ROOT": str(base.root), "EDITOR": editor,
                   "PYTHONPATH": str(REPOSITORY)}  # fmt: skip
            env.pop("VISUAL", None)
            os.execve(sys.executable, [sys.executable, "-m", "kbtool", "session", "edit"], env)
        self.seen = ""

    def until(self, text: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(end - time.monotonic(), 0))
            assert ready, self.seen
            try:
                self.seen += os.read(self.fd, 4096).decode()
            except OSError:
                break
        assert text in self.seen, self.seen

    def answer(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def ended(self, seconds: float = 60, *, again: str = "") -> int:
        """The exit status. ``again`` is pressed each second until the command says something."""
        end = time.monotonic() + seconds
        while True:
            while not select.select([self.fd], [], [], min(max(end - time.monotonic(), 0), 1))[0]:
                if time.monotonic() > end:
                    os.kill(self.pid, signal.SIGKILL)
                elif again:
                    self.answer(again)
            try:
                if not (more := os.read(self.fd, 4096)):
                    break
                self.seen += more.decode()
            except OSError:
                break
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


WRONG_THEN_RIGHT = """\
cp "$1" "$0.saw"
if grep -q "^outcom:" "$1"; then sed -i s/outcom:/outcome:/ "$1"
else echo "outcom: fixed" >> "$1"; fi
"""


def test_on_a_terminal_the_text_is_offered_again_with_what_is_wrong(going):
    before = record(going)
    editor = script(going, WRONG_THEN_RIGHT)
    terminal = Terminal(going, editor)
    terminal.until("edit it again? [Y/n]")
    assert record(going) == before
    terminal.answer("\n")
    assert terminal.ended() == 0, terminal.seen
    assert record(going) == f"{before}outcome: fixed\n"  # without the lines on what was wrong
    saw = Path(f"{editor}.saw").read_text().splitlines()
    [line] = [line for line in saw if "schema: outcom: is not a key" in line]
    number = int(line.removeprefix("#! kbtool: line ").partition(":")[0])
    assert saw[number - 1] == "outcom: fixed"


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["n\n", "\x03"])
def test_on_a_terminal_the_text_is_kept_if_it_is_not_edited_again(going, answer):
    before = record(going)
    terminal = Terminal(going, script(going, 'echo "outcom: fixed" >> "$1"'))
    terminal.until("edit it again? [Y/n]")
    terminal.answer(answer)
    # Python misses an interrupt that comes just before it waits for input; a person presses again.
    assert terminal.ended(again="\x03" if answer == "\x03" else "") == 1
    assert f"Your text is kept in {KEPT}" in terminal.seen
    assert (record(going), (going.root / KEPT).read_text()) == (before, f"{before}outcom: fixed\n")


def test_a_text_that_is_left_as_it_was_refused_ends_the_edit(going):
    editor = script(going, 'grep -q "^outcom:" "$1" || echo "outcom: fixed" >> "$1"')
    terminal = Terminal(going, editor)
    terminal.until("edit it again? [Y/n]")
    terminal.answer("y\n")
    assert terminal.ended() == 1
    assert terminal.seen.count("edit it again?") == 1
