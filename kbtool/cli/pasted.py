"""Commands in messages, as the shell that kbtool was started from can run them.

Messages and records say `kbtool check`, whoever reads them. On a terminal that has to work as
pasted: kbtool may be in an environment that is not activated, and the knowledge base be another.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import kbtool

_NAME = "kbtool"
_INSTALLS = re.compile(rf"(?<!-m )\bpip install(?=\s+'{_NAME}\[)")


def pasted(text: str) -> str:
    """``text`` with commands of kbtool, and of pip for its extras, as they can be pasted."""
    if _NAME not in text:
        return text
    text = _INSTALLS.sub(lambda _: f"{_pip()} install", text)
    if (own := invocation()) == _NAME:
        return text
    pieces = text.split(own)  # help within a usage error comes here twice
    return own.join(_commands().sub(lambda _: own, piece) for piece in pieces)


@functools.cache
def _commands() -> re.Pattern[str]:
    from kbtool.cli.main import COMMANDS

    after = "|".join([*COMMANDS, "-h", "--help", "--root", r"\[OPTIONS\]"])
    return re.compile(rf"(?<![\w./-]){_NAME}(?= (?:{after})(?![\w-]))")


def invocation() -> str:
    """How kbtool was started: the program as the shell finds it, and its ``--root``."""
    program = Path(sys.argv[0])
    words = [_NAME]
    if program.name == "__main__.py" and program.parent == Path(kbtool.__file__).parent:
        words = [interpreter(), "-m", _NAME]
    elif program.name == _NAME and program.is_file():
        found = shutil.which(_NAME)
        if found is None or not program.samefile(found):
            words = [_short(program)]
    return shlex.join([*words, *_root(sys.argv[1:])])


def interpreter() -> str:
    """The Python that runs kbtool: an environment's own one, which is a link to another."""
    for name in ("python", "python3"):
        found = shutil.which(name)
        if found is not None and _absolute(found) == _absolute(sys.executable):
            return name
    return _short(Path(sys.executable))


def _pip() -> str:
    """The pip that installs for the Python that runs kbtool."""
    found = shutil.which("pip")
    if found is not None and _absolute(found).parent == _absolute(sys.executable).parent:
        return "pip"
    return shlex.join([interpreter(), "-m", "pip"])


def _absolute(path: str) -> Path:
    return Path(path).parent.resolve() / Path(path).name


def _short(program: Path) -> str:
    """The path from the current folder where that is below it."""
    absolute = Path(os.path.abspath(program))  # noqa: PTH100 - a link stays one
    relative = os.path.relpath(absolute)
    if relative.startswith(os.pardir):
        return str(absolute)
    return relative if os.sep in relative else os.path.join(os.curdir, relative)  # noqa: PTH118


def _root(arguments: list[str]) -> list[str]:
    """The option ``--root`` as given: other options of kbtool itself run no command."""
    match arguments:
        case ["--root", folder, *_]:
            return ["--root", folder]
        case [first, *_] if first.startswith("--root="):
            return [first]
    return []
