"""Work over many files: on every core, and without the garbage collector.

A forked child has every module and the collector's frozen heap already, so it costs about as much
as the pages that it writes. ``multiprocessing`` would take longer to import than the work saves.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kbtool.store.scan import File

WORTH_A_POOL = 500
"""Files from which on a second process pays."""
_BYTES_WORTH_A_POOL = 2 << 20
"""Bytes from which on it does, however few the files."""

Work = Callable[[Sequence[File]], list[Any]]
"""Files to answers, one a file, in any order; an answer is what JSON can hold."""


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """No garbage collection, which would take a third of the time and find nothing.

    What is there at the end is never looked at again: records hold no cycles.
    """
    collecting = gc.isenabled()
    gc.collect()  # or what is rubbish now would be kept for ever
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


def in_processes(files: Sequence[File], work: Work, jobs: int | None = None) -> list[Any]:
    """What ``work`` answers of every file, in any order; a tuple may come back as a list.

    Args:
        files: the files.
        work: done in this process and in forks of it.
        jobs: processes; one a core where not given, and one where the files are few and small.
    """
    if jobs is None:
        # A fork copies one thread only: what the others hold stays locked for ever.
        alone = threading.active_count() == 1 and hasattr(os, "fork")
        many = len(files) >= WORTH_A_POOL or sum(f.stamp[2] for f in files) >= _BYTES_WORTH_A_POOL
        jobs = (os.cpu_count() or 1) if alone and many else 1
    if jobs == 1:
        return work(files)
    parts = _shared_out(files, jobs)
    gc.freeze()
    children = [(part, *_start(part, work)) for part in parts[1:]]
    done = work(parts[0])
    for part, pid, handle in children:
        answer = _collect(pid, handle)
        done += work(part) if answer is None else answer
    return done


def _shared_out(files: Sequence[File], jobs: int) -> list[list[File]]:
    """As many parts of about the same size: the largest file first, each to the least part."""
    parts: list[list[File]] = [[] for _ in range(min(jobs, len(files)))]
    sizes = [0] * len(parts)
    for file in sorted(files, key=lambda file: file.stamp[2], reverse=True):
        least = sizes.index(min(sizes))
        parts[least].append(file)
        sizes[least] += 1 + file.stamp[2]
    return parts


def _start(part: Sequence[File], work: Work) -> tuple[int, int]:
    """A child that works on ``part``: its process and the pipe that its answer comes through."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    status = 1
    try:
        os.close(read)
        answer = json.dumps(work(part), ensure_ascii=False)
        with os.fdopen(write, "wb") as pipe:
            pipe.write(answer.encode("utf-8", "surrogatepass"))
        status = 0
    finally:
        # Never return into the parent's stack: its files and locks are not the child's.
        os._exit(status)


def _collect(pid: int, handle: int) -> list[Any] | None:
    """A child's answer, or ``None`` if it died: its part is then done here."""
    with os.fdopen(handle, "rb") as pipe:
        raw = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status != 0:
        return None
    answer: list[Any] = json.loads(raw.decode("utf-8", "surrogatepass"))
    return answer
