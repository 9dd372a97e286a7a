"""Imports what commands and workers import, for the process from which tests fork them.

A command sees no torch, because a command never imports it. A worker sees exactly the modules of a
worker that an interpreter starts: ``test_commands`` compares the two.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import pkgutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, NoReturn

import kbtool
from kbtool.gpu import worker

os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")

OPTIONAL = {"anyio", "markdown", "mcp", "mkdocs"}
"""What the extras ``mcp`` and ``site`` install: a command without them says so."""
NO_COMMAND = (
    "kbtool.gpu",
    "kbtool.attention",
    "kbtool.sharded_attention",
    "kbtool.integrations",
    "kbtool.__main__",
)
"""No command imports these, or only in a worker; most import torch, which cannot load twice."""
START = [sys.executable, "-m", worker.__name__]
"""How kbtool starts a worker."""
PATH = [path for path in sys.path if path and path not in os.environ["PYTHONPATH"].split(":")]


def _of_workers() -> dict[str, ModuleType]:
    """Import what every worker imports, and return all modules. Commands do not see torch."""
    seal = ["kbtool.gpu.seal"] if importlib.util.find_spec("torch") else []
    for name in (*seal, "kbtool.steps"):
        importlib.import_module(name)
    modules = dict(sys.modules)
    for name in modules:
        if name.partition(".")[0] in {"torch", "functorch"}:
            del sys.modules[name]
    return modules


WORKERS = _of_workers()
importlib.import_module("commands")
for module in pkgutil.walk_packages(kbtool.__path__, "kbtool."):
    if not module.name.startswith(NO_COMMAND):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
# The collector would walk over all these modules in each command, and copy their pages.
gc.collect()
gc.freeze()


class Popen(subprocess.Popen):
    """Forks a worker from this process, and starts any other program as usual."""

    def __init__(self, args: list[str], **options: Any) -> None:
        if args == START:
            work = partial(_work, options["env"], options["pass_fds"])
            options["preexec_fn"] = work  # it ends the process, so no program is executed
        super().__init__(args, **options)


def _work(env: Mapping[str, str], keep: Iterable[int]) -> NoReturn:
    """Run the worker in this new process, which has its descriptors, folder and group already."""
    status = 1
    try:
        atexit._clear()
        _close_all_but({0, 1, 2, *keep})
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = [worker.__file__]
        sys.path[:] = [*env.get("PYTHONPATH", "").split(os.pathsep), *PATH]
        sys.stdin, sys.stdout = open(0), open(1, "w", buffering=1)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1)  # noqa: SIM115
        for name in sys.modules.keys() - WORKERS.keys():
            del sys.modules[name]
        sys.modules.update(WORKERS)
        status = worker.main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(status)


def _close_all_but(kept: set[int]) -> None:
    for first, last in zip(sorted(kept), [*sorted(kept)[1:], 1 << 16], strict=True):
        os.closerange(first + 1, last)


def fork_workers() -> None:
    """Fork the workers that this process starts from now on."""
    subprocess.Popen = Popen
