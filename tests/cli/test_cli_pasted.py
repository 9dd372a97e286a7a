"""Commands that a message names can be pasted into the shell that kbtool was started from."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbtool.cli.main import COMMANDS
from kbtool.cli.pasted import pasted
from kbtool.cli.recipe_output import print_plan
from kbtool.model.run import StepRecord
from kbtool.runner.progress import Terminal
from kbtool.runner.terminal import Guarded

REPOSITORY = Path(__file__).parents[2]
SCRIPT = f"#!{sys.executable}\nfrom kbtool.cli.main import main\nmain()\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The command in an environment that is not activated, in a folder with a space."""
    path = tmp_path / "my env" / "bin" / "kbtool"
    path.parent.mkdir(parents=True)
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return path


def shell(command: str, folder: Path, first: Path | None = None) -> tuple[int, str]:
    """Exit status and stderr; ``first`` is a folder that comes first on PATH."""
    path = os.pathsep.join(["/usr/bin", "/bin"])
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False,
        env={"PATH": f"{first}:{path}" if first else path, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    return done.returncode, done.stderr


def hint(said: str) -> str:
    found = re.search(r"`([^`]*)`", said)
    assert found, said
    return found[1]


HINT = "session new TITLE"
LIST = "session list --status paused"


def test_a_command_in_the_output_of_status_can_be_pasted(base, program):
    path = base.session("2025-01-01-a")
    path.write_text(path.read_text().replace("status: complete", "status: paused"))
    _, said = shell("'my env/bin/kbtool' --root base status >&2", program.parents[2])
    assert f"`'my env/bin/kbtool' --root base {LIST}`" in said


@pytest.mark.slow
@pytest.mark.parametrize("start", ["'{}'", "'my env/bin/kbtool'", "my\\ env/bin/../bin/kbtool"])
def test_a_program_that_is_not_on_path_is_named_by_its_path(base, program, start):
    folder = program.parents[2]
    code, said = shell(f"{start.format(program)} --root base status", folder)
    assert code == 0
    assert hint(said) == f"'my env/bin/kbtool' --root base {HINT}"
    assert shell(hint(said), folder)[0] == 0
    assert list(base.root.glob("sessions/*-title/session.yaml"))


@pytest.mark.slow
def test_from_a_folder_beside_it_the_path_is_absolute(base, program):
    _, said = shell(f"'{program}' status", base.root)
    assert hint(said) == f"'{program}' {HINT}"
    assert shell(hint(said), base.root)[0] == 0


def test_in_the_folder_of_the_program_the_path_has_a_slash(base, program):
    _, said = shell(f"./kbtool --root={base.root} status", program.parent)
    assert hint(said) == f"./kbtool --root={base.root} {HINT}"


def test_a_program_that_path_finds_is_named_alone(base, program):
    code, said = shell("kbtool status", base.root, program.parent)
    assert (code, hint(said)) == (0, f"kbtool {HINT}")


def test_another_kbtool_on_path_is_not_the_one_to_paste(base, program, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "kbtool").write_text("#!/bin/sh\nexit 9\n")
    (other / "kbtool").chmod(0o755)
    _, said = shell(f"'{program}' status", base.root, other)
    assert hint(said) == f"'{program}' {HINT}"


@pytest.mark.slow
def test_run_as_a_module_the_interpreter_is_named(base, tmp_path):
    for name in ("python", "python3"):
        _, said = shell(f"{name} -m kbtool status", base.root, Path(sys.executable).parent)
        assert hint(said) == f"{name} -m kbtool {HINT}"
    _, said = shell(f"{sys.executable} -m kbtool status", base.root, tmp_path)
    assert hint(said) == f"{sys.executable} -m kbtool {HINT}"
    assert shell(hint(said), base.root)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("--help", "\n    ./kbtool check   "),
        ("--help", "Usage: ./kbtool [OPTIONS] COMMAND"),
        ("recipes --help", "Usage: ./kbtool recipes [OPTIONS]"),
        ("session new --help", "\n    ./kbtool session new "),
        ("recipe", "Try './kbtool --help' for help."),
        ("costs --nothing", "Try './kbtool costs --help' for help."),
        ("init .", 'next: ./kbtool session new "What it is about"'),
        ("init '../a b'", "next: ./kbtool --root '../a b' session new"),
    ],
)
def test_help_usage_and_what_comes_next_can_be_pasted(program, command, told):
    _, said = shell(f"./kbtool {command} 1>&2", program.parent)
    assert told in said.replace(" -h' for help", " --help' for help")  # which one click names


@pytest.fixture
def started(program: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", [str(program), "check"])
    (program.parents[2] / "elsewhere").mkdir()
    monkeypatch.chdir(program.parents[2] / "elsewhere")
    return f"'{program}'"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_found_in_a_text(started, command):
    text = f"to continue: kbtool {command} A; or `kbtool {command}`"
    assert pasted(text) == text.replace("kbtool", started)


@pytest.mark.parametrize("options", [[], ["--root", "base"]])
@pytest.mark.parametrize("program", ["my env/bin/kbtool", str(REPOSITORY / "kbtool/__main__.py")])
def test_what_was_worded_stays(monkeypatch, program, options):
    monkeypatch.setattr(sys, "argv", [program, *options, "check"])
    text = pasted("Usage: kbtool check; `kbtool recipes`")
    assert pasted(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "kbtool: no session is running",
        "kbtool ended while this step ran",
        "`.venv/bin/kbtool check`",
        "my-kbtool check, kbtool checks, kbtool run-recipes",
        "pip install mlflow",
        "python -m pip install 'kbtool[nvcc]'",
    ],
)
def test_what_is_no_command_stays(started, text):
    assert pasted(text) == text


@pytest.mark.parametrize("on_path", ["its own", "another", "none"])
def test_an_extra_is_installed_for_the_python_that_runs_kbtool(monkeypatch, tmp_path, on_path):
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        (folder / "pip").write_text("#!/bin/sh\n")
        (folder / "pip").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    first = {"its own": own, "another": other, "none": tmp_path}[on_path]
    monkeypatch.setenv("PATH", str(first))
    pip = "pip" if on_path == "its own" else "own/python -m pip"
    text = pasted("mkdocs is missing: pip install 'kbtool[site]'; or pip install\n'kbtool[mcp]'")
    wanted = f"mkdocs is missing: {pip} install 'kbtool[site]'; or {pip} install\n'kbtool[mcp]'"
    assert text == wanted
    assert pasted(text) == text


def test_a_live_terminal_shows_it_too(started, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    reporter = Terminal(Guarded(stream, pasted), verbose=False)
    step = StepRecord(
        id="build", kind="build", title="Build", expected_seconds=1, expected_from="declared",
        status="unavailable", message="no nvcc; `kbtool kernel compile` needs none",
    )  # fmt: skip
    reporter.step_ended(step, [], "")
    assert f"`{started} kernel compile`" in stream.getvalue()


def test_progress_for_programs_names_the_command_alone(second_kernel_base, program):
    """Quotes of a path would break its JSON."""
    _, said = shell(
        f"./kbtool --root {second_kernel_base} run-recipe shell --progress rawjson"
        " --set 'code=raise SystemExit(\"`kbtool check`\")' -v",
        program.parent,
    )
    assert "`kbtool check`" in said and "./kbtool" not in said


def test_the_commands_of_the_readme_work_after_its_first():
    text = (REPOSITORY / "README.md").read_text()
    names = "|".join(COMMANDS)
    named = re.findall(rf"(?<![\w/])(?:\.venv/bin/)?kbtool (?:{names})\b", text)
    assert len(named) > 25
    assert [name for name in named if not name.startswith(".venv/bin/")] == []


def test_a_dry_run_names_the_command_that_installs_what_is_missing(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # elsewhere than the environment, whose pip is not on the path
    monkeypatch.setenv("PATH", str(tmp_path))
    step = SimpleNamespace(id="build", kind="build", title="B", expected="1 s", timeout="1 min")
    job = SimpleNamespace(recipe=SimpleNamespace(steps=[step]))
    lacks = "torch is not installed: pip install 'kbtool[kernels]'"
    print_plan(job, [(step, [], lacks)], as_json=False)
    printed = capsys.readouterr().out
    assert "pip install 'kbtool[kernels]'" in printed
    assert f"{shlex.quote(sys.executable)} -m pip install" in printed
