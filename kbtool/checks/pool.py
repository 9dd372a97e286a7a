"""Many files to facts on every core.

A forked child has every module and the collector's frozen heap already, so it costs about as much
as the pages that it writes. ``multiprocessing`` would take longer to import than the work saves.
"""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Sequence
from typing import Any

from kbtool.model.finding import Finding
from kbtool.store.document import MAX_BYTES
from kbtool.store.read import MAX_RUN_BYTES, read_stamped
from kbtool.store.scan import File, Stamp

WORTH_A_POOL = 500
"""Files from which on a second process pays."""

Examined = tuple[str, Stamp, list[Any]]
"""Path, the stamp of what was read, the facts as JSON."""


def examine_all(root: str, files: Sequence[File], jobs: int | None = None) -> list[Examined]:
    """The facts of every file, in any order.

    Args:
        root: the root of the knowledge base.
        files: the files.
        jobs: processes; one a core where not given, and one where the files are few.
    """
    if jobs is None:
        # A fork copies one thread only: what the others hold stays locked for ever.
        alone = threading.active_count() == 1 and hasattr(os, "fork")
        jobs = (os.cpu_count() or 1) if alone and len(files) >= WORTH_A_POOL else 1
    if jobs == 1:
        return _examine_part(root, files)
    by_size = sorted(files, key=lambda file: file.stamp[2], reverse=True)
    parts = [by_size[start::jobs] for start in range(jobs)]
    gc.freeze()
    children = [(part, *_start(root, part)) for part in parts[1:]]
    done = _examine_part(root, parts[0])
    for part, pid, handle in children:
        answer = _collect(pid, handle)
        done += _examine_part(root, part) if answer is None else answer
    return done


def _examine_part(root: str, files: Sequence[File]) -> list[Examined]:
    # Garbage is collected neither here nor in the children: there is no cyclic rubbish worth it.
    from kbtool.checks.examine import examine
    from kbtool.checks.facts import Facts
    from kbtool.checks.record_rules import promised_id

    done: list[Examined] = []
    for path, kind, stamp in files:
        limit = MAX_RUN_BYTES if kind in {"run", "text"} else MAX_BYTES
        got = read_stamped(root, path, limit)
        if isinstance(got, Finding):
            facts = Facts(path, kind, promised_id(path, kind), [got], valid=False)
        else:
            facts, stamp = examine(path, kind, got[0]), got[1]
        done.append((path, stamp, facts.to_json()))
    return done


def _start(root: str, part: Sequence[File]) -> tuple[int, int]:
    """A child that examines ``part``: its process and the pipe that its answer comes through."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    status = 1
    try:
        os.close(read)
        answer = json.dumps(_examine_part(root, part), ensure_ascii=False)
        with os.fdopen(write, "wb") as pipe:
            pipe.write(answer.encode("utf-8", "surrogatepass"))
        status = 0
    finally:
        # Never return into the parent's stack: its files and locks are not the child's.
        os._exit(status)


def _collect(pid: int, handle: int) -> list[Examined] | None:
    """A child's answer, or ``None`` if it died: its part is then done here."""
    with os.fdopen(handle, "rb") as pipe:
        raw = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status != 0:
        return None
    answer = json.loads(raw.decode("utf-8", "surrogatepass"))
    return [(path, tuple(stamp), facts) for path, stamp, facts in answer]
