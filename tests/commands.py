"""Run kbtool in a new process that is forked, not started: half a second less per command.

The workers of such a command are forked too, which saves the two seconds of importing torch.
``in_an_interpreter`` starts both as a user does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from kbtool.cli.recipe import EXIT_CODES
from kbtool.model.run import Run

REPOSITORY = Path(__file__).parent.parent
LIMIT_S = 300

# One process holds the modules, has no threads, and forks one process a command.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["commands_preloaded"])


@dataclass
class Result:
    """A finished command."""

    code: int
    out: str
    err: str


def assert_passed_or_noisy(run: Run, done: Result) -> None:
    """A recipe that ends with a benchmark was noisy if others were busy meanwhile, else it passed:
    the tests' machine is rarely quiet."""
    result = run.steps[-1].result
    assert result is not None, done.err
    status = "noisy" if result.noise else "passed"
    assert (run.status, done.code) == (status, EXIT_CODES[status]), done.err


def run(arguments: list[str], folder: Path, env: dict[str, str]) -> Result:
    """Run ``kbtool`` with these arguments in a folder, with these variables of the environment."""
    if any(name.startswith("PYTHON") for name in env):  # an interpreter reads them as it starts
        return in_an_interpreter(arguments, folder, env)
    _start_server()
    with TemporaryDirectory() as captured:
        given = (arguments, folder, _environment(env), Path(captured))
        command = SERVER.Process(target=_command, args=given)
        command.start()
        command.join(LIMIT_S)
        if command.is_alive():
            command.kill()
            raise TimeoutError(f"kbtool {' '.join(arguments)}: {LIMIT_S} s are over")
        assert command.exitcode is not None
        return Result(
            command.exitcode, (Path(captured) / "1").read_text(), (Path(captured) / "2").read_text()
        )


def in_an_interpreter(arguments: list[str], folder: Path, env: dict[str, str]) -> Result:
    """The same, as a user's shell starts it."""
    done = subprocess.run(
        [sys.executable, "-m", "kbtool", *arguments],
        cwd=folder,
        env=_environment(env),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def _environment(env: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **env}


@cache
def _start_server() -> None:
    # Python 3.11 does not hand sys.path to it, and it ignores a module that it cannot find.
    path = os.pathsep.join([str(REPOSITORY), str(Path(__file__).parent)])
    with mock.patch.dict(os.environ, PYTHONPATH=path):
        forkserver.ensure_running()


def _command(arguments: list[str], folder: Path, env: dict[str, str], captured: Path) -> None:
    # Already imported, or the server ignored an error, which this raises again.
    import commands_preloaded

    from kbtool.cli.main import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, name in ((1, "stdout"), (2, "stderr")):
        with (captured / str(number)).open("wb") as file:
            os.dup2(file.fileno(), number)
        setattr(sys, name, os.fdopen(number, "w", closefd=False))
    sys.argv = ["kbtool", *arguments]
    commands_preloaded.fork_workers()
    main(arguments)
