"""Measure two commits in turn on this machine, so that what drifts meets both alike."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from kbtool.gpu.process import watch
from kbtool.model.errors import RecordError
from kbtool.runner.intake import import_runs
from kbtool.runner.signals import signals_interrupt
from kbtool.steps.worker import own_package
from kbtool.store.edit import end_run_session
from kbtool.store.private import build_cache, private_folder
from kbtool.store.repository import work_tree


@dataclass
class Measured:
    """What came of the runs."""

    session: str | None = None
    """The session of the runs; ``None`` where none was made."""
    sides: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    """The ids of the runs of A and of B, which may be the same commit."""
    last: tuple[int, str | None] = (0, None)
    """The side of the run that was begun last, and its id; ``None`` where it made no record."""
    stopped: int = 0
    """The exit status of the run that ended the measurement; 0 if all were made."""


def measure_pairs(
    root: Path,
    commits: tuple[str, str],
    recipe: Sequence[str],
    *,
    pairs: int,
    session: str | None,
    title: str,
    tell: Callable[[int, int], None],
) -> Measured:
    """Run a recipe on two commits in turn: A B, B A, A B, and so on.

    Each run is one of ``kbtool run-recipe`` in a work tree of its commit, with the patterns, the
    kernels and the harness of that commit and with this kbtool: it builds, validates and times. Its
    record goes into one session of the knowledge base as soon as it ends, so that nothing takes it
    away. Ctrl-C, SIGTERM and SIGHUP end the measurement.

    Args:
        root: the knowledge base, in a git repository.
        commits: the ids of A and B.
        recipe: the recipe's name, and options of ``run-recipe`` for it.
        pairs: how often to run each.
        session: the session for the runs. Default: a new one with ``title``.
        title: see ``session``.
        tell: called before each run with the number of runs made and its side, 0 or 1.

    Raises:
        UsageError: a commit has no such knowledge base, or git cannot check it out.
        RecordError: a run cannot be kept.
    """
    measured = Measured(session)
    with (
        signals_interrupt(),
        TemporaryDirectory(prefix="kbtool-pairs-") as folder,
        _work_trees(root, commits, Path(folder)) as trees,
    ):
        try:
            for number in range(2 * pairs):
                side = (number + number // 2) % 2
                tell(number, side)
                measured.last = side, None
                code, record = _run(trees[side], recipe)
                if record is not None:
                    _keep(root, record, measured, title)
                    measured.sides[side].append(record.stem)
                    measured.last = side, record.stem
                if code not in (0, _NOISY):
                    measured.stopped = code
                    break
        except KeyboardInterrupt:
            measured.stopped = _INTERRUPTED
    return measured


def _keep(root: Path, record: Path, measured: Measured, title: str) -> None:
    """Take a run into the session, which the first run makes if there is none."""
    intake = import_runs(
        root, [record], session=measured.session, new=None if measured.session else title
    )
    if intake.refused:
        kept = private_folder(root, "refused") / record.name
        shutil.copyfile(record, kept)  # its work tree is removed
        found = "; ".join(finding.message for finding in intake.refused[:3])
        raise RecordError(
            f"`kbtool check` would refuse the run, so nothing is compared: {found}. Its record is"
            f" {kept.relative_to(root)}: correct that, then `kbtool session import` takes it in"
        )
    measured.session = intake.session
    if intake.imported:
        path = root / "sessions" / str(intake.session) / "session.yaml"
        run = intake.imported[0].run
        end_run_session(path, run.started.astimezone(), run.ended.astimezone())


_NOISY, _INTERRUPTED = 75, 4
"""Exit statuses of ``run-recipe``. The times of a noisy run prove nothing; the next run's may."""


@contextmanager
def _work_trees(root: Path, commits: Sequence[str], folder: Path) -> Iterator[list[Path]]:
    """The knowledge base at each commit, with the build cache of ``root``."""
    cache = build_cache(root)
    cache.mkdir(parents=True, exist_ok=True)
    with (
        work_tree(root, commits[0], folder / "A") as first,
        work_tree(root, commits[1], folder / "B") as second,
    ):
        for tree in (first, second):
            (tree / "sessions").mkdir(exist_ok=True)  # git has no empty folders
            private_folder(tree, "locks")
            build_cache(tree).symlink_to(cache.resolve())
        yield [first, second]


def _run(tree: Path, recipe: Sequence[str]) -> tuple[int, Path | None]:
    """Run the recipe once; its exit status and the record, if it wrote one.

    If a signal arrives when the run has just ended, its record is not lost.
    """
    before = _records(tree)
    command = [sys.executable, "-m", "kbtool", "--root", str(tree), "run-recipe", *recipe]
    # In a session of its own, so that each signal reaches it once, from here.
    process = subprocess.Popen(
        [*command, "--session", "new", "--json"],
        cwd=tree,
        env={**os.environ, **own_package()},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    watchdog = watch(process.pid)
    try:
        process.wait()
    except KeyboardInterrupt:
        process.terminate()
        if process.wait() not in (0, _NOISY):
            raise
        return _INTERRUPTED, next(iter(_records(tree) - before), None)
    finally:
        watchdog.kill()
        watchdog.communicate()
    return process.returncode, next(iter(_records(tree) - before), None)


def _records(tree: Path) -> set[Path]:
    return set(tree.glob("sessions/*/runs/*.json"))
