"""Processes on this machine: one a card, or one on the processor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kbtool.gpu.probe import read_card
from kbtool.sweeps import processes
from kbtool.sweeps.engines import JobState


class Here:
    """Starts a process for an attempt; on a machine with several cards, each gets one of them."""

    is_here = True

    def __init__(self, jobs: int | None) -> None:
        self._cards = visible_cards()
        self.slots: int | None = jobs or max(1, len(self._cards))
        self._children: dict[str, tuple[subprocess.Popen[bytes], str | None]] = {}

    def submit(self, attempts: Sequence[Path]) -> list[str]:
        """Start a process for each."""
        return [self._start(path) for path in attempts]

    def states(self, jobs: Sequence[str]) -> Mapping[str, JobState]:
        """Whether the processes live; those that an earlier kbtool started too."""
        for child, _ in self._children.values():
            child.poll()
        return {job: JobState(gone=not processes.lives(job)) for job in jobs}

    def cancel(self, jobs: Sequence[str]) -> None:
        """Ask the processes to end; they write their records first."""
        for job in jobs:
            processes.end(job)

    def _start(self, path: Path) -> str:
        taken = {card for job, (_, card) in self._children.items() if processes.lives(job)}
        card = next((one for one in self._cards if one not in taken), None)
        child = start(path, card)
        job = processes.name_of(child.pid)
        self._children[job] = (child, card)
        return job


def start(path: Path, card: str | None, *command: str) -> subprocess.Popen[bytes]:
    """Start the process of an attempt, which outlives this one.

    Args:
        path: the folder of the attempt.
        card: the card that it gets, as CUDA_VISIBLE_DEVICES names it.
        command: the program, with its arguments, that is to run it.
    """
    given = os.environ if card is None else {**os.environ, "CUDA_VISIBLE_DEVICES": card}
    with (path / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, sys.executable, "-m", "kbtool.sweeps.cell", str(path)], cwd=path, env=given,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def visible_cards() -> list[str]:
    """The cards that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    cards = int(read_card().get("cards") or 0)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",")[:cards] if named else [str(number) for number in range(cards)]
