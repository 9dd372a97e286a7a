"""Processes that are the ranks of process groups, for tests of attention over several ranks.

A process serves one request after the other. Each request is a group of its own: ranks meet through
a file, and a group that a test breaks is no other test's.
"""

from __future__ import annotations

import io
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

START_SECONDS = 60  # for the ranks of a group to meet


@dataclass
class Answer:
    """What a rank made of a request; ``died`` if it was gone before it answered."""

    value: Any = None
    error: str = ""
    seconds: float = 0.0
    died: bool = False

    @property
    def broken(self) -> bool:
        """Whether the rank ends: its group would wait for the others."""
        return self.died or self.error.startswith("DistBackendError")


class Ranks:
    """Processes on this machine, as many as the largest group that was asked for."""

    def __init__(self, folder: Path, setup: tuple[str, str, Any], backend: str = "gloo") -> None:
        self._folder, self._setup, self._backend = folder, setup, backend
        self._numbers = itertools.count()
        self._started: list[tuple[Any, Connection]] = []

    def run(
        self, count: int, function: Callable[..., Any], requests: Sequence[Any], limit: float = 30
    ) -> list[Answer]:
        """``function(request)`` on each rank of a new group, its time limit in seconds."""
        self._start(count)
        meeting = self._folder / f"group-{next(self._numbers)}"
        some = self._started[:count]
        for rank, ((_, connection), request) in enumerate(zip(some, requests, strict=True)):
            place = (meeting.as_uri(), rank, count, self._backend, limit)
            _send(connection, (place, function.__module__, function.__name__, request))
        answers = []
        for pair in some:
            try:
                answers.append(_receive(pair[1]))
            except EOFError:
                answers.append(Answer(died=True))
            if answers[-1].broken:
                pair[0].join()
                self._started.remove(pair)
        return answers

    def _start(self, count: int) -> None:
        # Not forked: a process has one fork server, and tests of commands may have begun it with
        # modules of theirs, from which torch cannot be imported.
        context = multiprocessing.get_context("spawn")
        while len(self._started) < count:
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, self._setup), daemon=True)
            process.start()
            theirs.close()
            self._started.append((process, ours))

    def stop(self) -> None:
        for process, connection in self._started:
            connection.close()  # which ends its loop
            process.join()


def _send(connection: Connection, what: Any) -> None:
    # Not as multiprocessing sends tensors, in shared memory that has to be kept alive.
    buffer = io.BytesIO()
    torch.save(what, buffer)
    connection.send_bytes(buffer.getvalue())


def _receive(connection: Connection) -> Any:
    return torch.load(io.BytesIO(connection.recv_bytes()), weights_only=False)


def _named(module: str, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def _serve(connection: Connection, setup: tuple[str, str, Any]) -> None:
    torch.set_num_threads(1)
    module, name, argument = setup
    _named(module, name)(argument)
    for place, module, name, request in _requests(connection):
        meeting, rank, count, backend, limit = place
        if backend == "nccl":
            torch.cuda.set_device(rank)
        meet = timedelta(seconds=START_SECONDS)
        dist.init_process_group(
            backend, init_method=meeting, rank=rank, world_size=count, timeout=meet
        )
        dist.barrier()
        group = dist.new_group(timeout=timedelta(seconds=limit))
        answer, start = Answer(), time.monotonic()
        try:
            answer.value = _named(module, name)(request, group)
        except Exception as error:
            answer.error = f"{type(error).__name__}: {error}"
        answer.seconds = time.monotonic() - start
        _send(connection, answer)
        if answer.broken:
            os._exit(0)
        dist.destroy_process_group()


def _requests(connection: Connection) -> Iterator[Any]:
    while True:
        try:
            yield _receive(connection)
        except EOFError:
            return
