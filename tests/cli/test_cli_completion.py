"""Completion by the shell: names of the knowledge base, at once, and no other word."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete, FishComplete, ZshComplete
from knowledge import KERNEL, LOOK, PATTERN, PATTERN_LINE, RUN, Knowledge, sealed

from kbtool.cli.main import COMPLETING, cli

REPOSITORY = Path(__file__).parents[2]
HEAVY = {"torch", "git", "mkdocs", "pydantic", "yaml", "rich", "numpy", "asyncio"}


@pytest.fixture
def full(base: Knowledge, monkeypatch: pytest.MonkeyPatch) -> Knowledge:
    base.pattern(more=LOOK + "  # another\n  - {name: other, title: 'Do it, twice', steps: []}\n")
    base.pattern("P07")
    base.kernel(KERNEL)
    base.session(label="N+7A", more="bugs:\n  - {id: nan, title: NaN, status: open}\n")
    base.session("undated-n6", more="bugs:\n  - id: hangs\n    title: It hangs\n    status: open\n")
    base.write(f"sessions/2025-01-01-a/runs/{RUN['id']}.json", sealed(RUN))
    base.write(f"sessions/2025-01-01-a/runs/{RUN['id']}.2.json", sealed({**RUN, "attempt": 2}))
    base.write("sessions/2025-01-01-a/runs/20250101T100000Z-add-3f9a.json", "{}")
    monkeypatch.setenv("KBTOOL_ROOT", str(base.root))
    return base


def told(line: str, shell: type = BashComplete) -> list[str]:
    """What is offered for a line; its last word is being typed."""
    *words, last = line.split(" ")
    complete = shell(cli, {}, "kbtool", COMPLETING)
    return [item.value for item in complete.get_completions(words[1:], last)]


RUNS = ["20250101T100000Z-add-3f9a", "20250101T090000Z-look"]
SESSIONS = ["last", "2025-01-01-a", "N+7A", "undated-n6", "N6"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("kbtool run-recipe ", ["look", "other"]),
        ("kbtool run-recipe l", ["look"]),
        ("kbtool run-recipe look --session ", ["last", "new", *SESSIONS[1:]]),
        ("kbtool run-recipe --resume ", ["last", *RUNS]),
        ("kbtool run-recipe --resume 3f9a", RUNS[:1]),
        ("kbtool run-recipe --resume 2025", RUNS),
        ("kbtool forget o", ["other"]),
        ("kbtool doctor --for ", ["look", "other"]),
        ("kbtool session show ", SESSIONS),
        ("kbtool session show N", ["N+7A", "N6"]),
        ("kbtool session note x --session u", ["undated-n6"]),
        ("kbtool session close l", ["last"]),
        ("kbtool session edit 2025", ["2025-01-01-a"]),
        ("kbtool session fix ", ["nan", "hangs"]),
        ("kbtool session hypothesis ", ["last", "nan", "hangs"]),
        ("kbtool session bug x --again h", ["hangs"]),
        ("kbtool session evidence ", ["P01", "P07"]),
        ("kbtool session evidence P01 c", ["contradicted"]),
        ("kbtool session step x --pattern P0", ["P01", "P07"]),
        ("kbtool patterns P07", ["P07"]),
        ("kbtool costs --session ", SESSIONS),
        ("kbtool costs --compare N+", ["N+7A"]),
        ("kbtool compare last ", ["last", *RUNS]),
        ("kbtool explain --run 2", RUNS),
        ("kbtool kernel compile ", ["add"]),
        ("kbtool session plan x --for N+", ["N+7A"]),
        ("kbtool completion ", ["bash", "zsh", "fish"]),
        ("kbtool session ev", ["evidence"]),
        ("kbtool session bug x --comp", ["--component"]),
        ("kbtool run-recipe --res", ["--resume"]),
    ],
)
def test_names_are_completed(full, line, names):
    assert told(line) == names
    for shell in (ZshComplete, FishComplete):
        assert told(line, shell) == names


def test_root_is_that_of_the_line(full, tmp_path, monkeypatch):
    other = Knowledge(tmp_path / "other")
    other.session("2025-02-02-z")
    monkeypatch.chdir(tmp_path)
    assert told(f"kbtool --root {other.root} session show 2025") == ["2025-02-02-z"]
    monkeypatch.delenv("KBTOOL_ROOT")
    assert told("kbtool session show ") == []


def asked(
    line: str, root: Path, shell: str = "bash", **more: str
) -> subprocess.CompletedProcess[str]:
    """kbtool as a shell asks it, in a process of its own."""
    words = line.split(" ")
    env = {
        **os.environ, "KBTOOL_ROOT": str(root), "PYTHONPATH": str(REPOSITORY),
        COMPLETING: f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1),
        **({"COMP_CWORD": words[-1]} if shell == "fish" else {}), **more,
    }  # fmt: skip
    command = [sys.executable, "-m", "kbtool"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def test_what_each_shell_is_told(full):
    assert asked("kbtool run-recipe ", full.root).stdout == "plain,look\nplain,other\n"
    assert asked("kbtool run-recipe ", full.root, "fish").stdout == (
        "plain,look\tLook\nplain,other\tDo it, twice\n"
    )
    zsh = asked("kbtool run-recipe ", full.root, "zsh").stdout
    assert zsh == "plain\nlook\nLook\nplain\nother\nDo it, twice\n"


HOSTILE = [
    "$(touch PWNED)", "`touch PWNED`", "a;touch PWNED", "*", "~", "-rf", "a b", "\x1b]0;x\x07",
    "a\nb", "a,b", "\u202ex", "'", '"', "!x", "a" * 250,
]  # fmt: skip


@pytest.mark.slow
def test_names_that_a_shell_could_run_are_left_out(full):
    for number, name in enumerate(HOSTILE):
        if "/" not in name and len(name) < 200:
            (full.root / "sessions" / name).mkdir(exist_ok=True)
            (full.root / "sessions" / name / "session.yaml").write_text("label: x\n")
        quoted = name.replace("\n", " ")
        full.session(f"2025-03-{number + 1:02}-h", label=None)
        path = full.root / f"sessions/2025-03-{number + 1:02}-h/session.yaml"
        path.write_text(f"label: {quoted}\ntitle: {name}\nbugs:\n  - id: {quoted}\n")
        full.write(f"patterns/P{number + 10}.yaml", f"id: {quoted}\nrecipes:\n  - name: {quoted}\n")
    for line in ("session show ", "run-recipe ", "session fix ", "session evidence "):
        for shell in ("bash", "zsh", "fish"):
            done = asked(f"kbtool {line}", full.root, shell)
            assert (done.returncode, done.stderr) == (0, "")
            assert (
                "PWNED" not in done.stdout.replace("touch PWNED", "") and "\x1b" not in done.stdout
            )
            values = [part.partition("\t")[0].removeprefix("plain,")
                      for part in done.stdout.splitlines()]  # fmt: skip
            if shell == "bash":
                assert not set(values) & set(HOSTILE), values


def wreck(root: Path, how: str) -> Path:
    if how == "no base":
        return root / "nowhere"
    if how == "a newer format":
        (root / "kbtool.yaml").write_text("format: 99\n")
    elif how == "no format":
        (root / "kbtool.yaml").write_text("<<<<<<< a\n")
    elif how == "files of other kinds":
        os.mkfifo(root / "patterns" / "P02.yaml")
        (root / "patterns" / "P03.yaml").mkdir()
        (root / "patterns" / "P04.yaml").symlink_to("P04.yaml")
        (root / "patterns" / "P05.yaml").symlink_to("/dev/zero")
    elif how == "no text":
        for path in (*root.glob("patterns/*"), *root.glob("sessions/*/session.yaml")):
            path.write_bytes(b"\xff\x00recipes:\n  - \x80" * 1000)
    elif how == "cut off":
        for path in (*root.glob("patterns/*"), *root.glob("sessions/*/session.yaml")):
            path.write_bytes(path.read_bytes()[:40])
    elif how == "deep":
        text = "recipes:\n" + "  - name: [" * 20_000
        (root / "patterns" / "P02.yaml").write_text(PATTERN_LINE + PATTERN + text)
    elif how == "a folder that nobody may read":
        (root / "sessions").chmod(0)
    elif how == "a file for a folder":
        shutil.rmtree(root / "patterns")
        (root / "patterns").write_text("x")
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    ["no base", "a newer format", "no format", "files of other kinds", "no text", "cut off", "deep",
     "a folder that nobody may read", "a file for a folder"],
)  # fmt: skip
def test_a_broken_knowledge_base_prints_nothing_but_names(full, how):
    root = wreck(full.root, how)
    try:
        for line in ("run-recipe ", "session show ", "session fix ", "patterns ", "compare "):
            done = asked(f"kbtool {line}", root)
            assert (done.returncode, done.stderr) == (0, ""), done
            assert all(said.startswith("plain,") for said in done.stdout.splitlines())
    finally:
        (full.root / "sessions").chmod(0o755)


def test_a_line_that_makes_no_sense_prints_nothing(full):
    for line in (
        "kbtool nothing ",
        "kbtool session nothing ",
        "kbtool --root ",
        'kbtool "unclosed ',
    ):
        done = asked(line, full.root)
        assert done.stderr == "" and "Traceback" not in done.stdout
    done = asked("kbtool run-recipe ", full.root, TZ="X-99")
    assert (done.stderr, done.stdout) == ("", "plain,look\nplain,other\n")


@pytest.mark.parametrize(
    "line",
    ["kbtool ", "kbtool run-recipe ", "kbtool session show ", "kbtool session fix ",
     "kbtool session evidence ", "kbtool session bug x --again ", "kbtool costs --session "],
)  # fmt: skip
def test_nothing_heavy_is_imported_for_it(full, line):
    code = (
        "import sys, atexit\n"
        f"heavy = {HEAVY!r}\n"
        "atexit.register(lambda: sys.stderr.write(str(sorted(heavy & set(sys.modules)))))\n"
        "from kbtool.cli.main import main\nmain()\n"
    )
    env = {
        **os.environ, "PYTHONPATH": str(REPOSITORY), COMPLETING: "bash_complete",
        "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stderr == "[]" and done.stdout.startswith("plain,"), done


def shell_with_kbtool(folder: Path) -> dict[str, str]:
    """An environment in which the shell finds kbtool."""
    own = folder / "bin"
    own.mkdir(exist_ok=True)
    shim = own / "kbtool"
    shim.write_text(
        f'#!/bin/sh\nPYTHONPATH="{REPOSITORY}" exec "{sys.executable}" -m kbtool "$@"\n'
    )
    shim.chmod(0o755)
    return {**os.environ, "PATH": f"{own}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("run-recipe l", ["look"]),
        ("run-recipe ", ["look", "other"]),
        ("session show N", ["N+7A", "N6"]),
        ("run-recipe --resume 3f9a", ["20250101T100000Z-add-3f9a"]),
        ("session fix n", ["nan"]),
        ("session fix nothing-like-it", []),
    ],
)
def test_bash_completes_with_the_script(full, tmp_path, words, names):
    script = f"""\
eval "$(kbtool completion bash)"
complete -p kbtool >&2
COMP_WORDS=(kbtool {words})
[ "{words[-1:]}" = " " ] && COMP_WORDS+=("")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_kbtool_completion kbtool
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=shell_with_kbtool(tmp_path), capture_output=True,
        text=True,
    )  # fmt: skip
    assert "complete -o nosort -F _kbtool_completion kbtool" in done.stderr, done.stderr
    assert done.stdout.split() == names


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_of_other_shells(kbtool, full, tmp_path, shell):
    script = kbtool("completion", shell).out
    assert f"{COMPLETING}={shell}_complete" in script
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    (tmp_path / "script").write_text(script)
    done = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    if shell == "fish":
        asked_ = f"source {tmp_path}/script; complete --do-complete 'kbtool run-recipe l'"
        done = subprocess.run([shell, "-c", asked_], env=shell_with_kbtool(tmp_path),
                              capture_output=True, text=True)  # fmt: skip
        assert done.stdout == "look\tLook\n", done
    else:
        # Without a line editor: what the function hands to the completion system.
        asked_ = (
            f"autoload -Uz compinit; compinit -u -D; source {tmp_path}/script\n"
            '_describe() { print -rl -- "${(P@)3}" }\n'
            "words=(kbtool run-recipe l); CURRENT=3; _kbtool_completion; print $_comps[kbtool]"
        )
        done = subprocess.run([shell, "-f", "-c", asked_], env=shell_with_kbtool(tmp_path),
                              capture_output=True, text=True)  # fmt: skip
        assert done.stdout == "look:Look\n_kbtool_completion\n", done
