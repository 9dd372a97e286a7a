"""Turn many files into facts, on all cores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kbtool.checks.facts import Questions
from kbtool.model.finding import Finding
from kbtool.store.pool import in_processes
from kbtool.store.read import MAX_BYTES, MAX_RUN_BYTES, read_stamped
from kbtool.store.scan import File, Stamp

Examined = tuple[str, Stamp, list[Any]]
"""Path, the stamp of what was read, the facts as JSON."""


def examine_all(
    root: str, files: Sequence[File], referenced: Questions, jobs: int | None = None
) -> list[Examined]:
    """The facts of every file, in any order.

    Args:
        root: the root of the knowledge base.
        files: the files.
        asked: what other records ask of those that are runs.
        jobs: processes; one a core where not given, and one where the files are few and small.
    """
    # Import before forking, so that the children need not import the models.
    import kbtool.checks.examine  # noqa: F401

    answers = in_processes(files, partial(_examine_part, root, referenced), jobs)
    return [(path, tuple(stamp), facts) for path, stamp, facts in answers]


def _examine_part(root: str, referenced: Questions, files: Sequence[File]) -> list[Examined]:
    # No garbage collection, here or in the children: there are hardly any cycles.
    from kbtool.checks.examine import examine
    from kbtool.checks.facts import Facts
    from kbtool.checks.record_file import promised_id

    done: list[Examined] = []
    for path, kind, stamp in files:
        limit = MAX_RUN_BYTES if kind in {"run", "sweep", "text"} else MAX_BYTES
        got = read_stamped(root, path, limit)
        if isinstance(got, Finding):
            facts = Facts(path, kind, promised_id(path, kind), [got], valid=False)
        else:
            facts, stamp = examine(path, kind, got[0], referenced.get(path, ())), got[1]
        done.append((path, stamp, facts.to_json()))
    return done
