"""Process many files on all cores, with the garbage collector off.

A forked child already has all modules and a frozen heap, so a fork costs only the pages that it
writes. Importing ``multiprocessing`` would take longer than the parallel work saves.
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
"""From this many files on, more processes are used."""
_BYTES_WORTH_A_POOL = 2 << 20
"""From this many bytes on, more processes are used even for few files."""

Work = Callable[[Sequence[File]], list[Any]]
"""A function from files to answers, one per file, in any order. Answers are JSON data."""


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """No garbage collection, which would take a third of the time and find nothing.

    What is there at the end is never looked at again: records hold no cycles.
    """
    if not gc.isenabled():
        yield
        return
    gc.collect()  # otherwise the freeze would keep current garbage
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def in_processes(files: Sequence[File], work: Work, jobs: int | None = None) -> list[Any]:
    """The answers of ``work`` for all files, in any order. Tuples may come back as lists.

    Args:
        files: the files.
        work: runs in this process and in forks of it.
        jobs: number of processes. Default: one per core, or one if the files are few and small.
    """
    if jobs is None:
        # A fork copies only the calling thread: locks of other threads would never be released.
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
    """Split files into parts of similar size: each file, largest first, to the smallest part."""
    parts: list[list[File]] = [[] for _ in range(min(jobs, len(files)))]
    sizes = [0] * len(parts)
    for file in sorted(files, key=lambda file: file.stamp[2], reverse=True):
        least = sizes.index(min(sizes))
        parts[least].append(file)
        sizes[least] += 1 + file.stamp[2]
    return parts


def _start(part: Sequence[File], work: Work) -> tuple[int, int]:
    """Fork a child that works on ``part``; returns its pid and the pipe with its answer."""
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
        # Never return into the parent's stack, which owns files and locks.
        os._exit(status)


def _collect(pid: int, handle: int) -> list[Any] | None:
    """A child's answer; ``None`` if it died, and then this process does its part."""
    with os.fdopen(handle, "rb") as pipe:
        raw = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status != 0:
        return None
    answer: list[Any] = json.loads(raw.decode("utf-8", "surrogatepass"))
    return answer
