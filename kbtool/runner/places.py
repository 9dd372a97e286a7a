"""Take the paths of this machine out of a run record before it is written."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import kbtool
from kbtool.model.machine_path import without_machine_paths
from kbtool.model.run import Run

_SYSTEM = re.compile(r"/(?:usr|lib\w*|s?bin|etc|dev|proc|sys)?(?:/|\Z)")
"""Folders that are the same on every machine."""


def without_own_paths(run: Run, root: Path) -> Run:
    """``run`` with paths relative to the knowledge base at ``root``, or with variables for the
    folders of this machine."""
    # The record is JSON: a folder's name stands in it as JSON has it.
    folders = {
        json.dumps(folder, ensure_ascii=False)[1:-1]: shown
        for place, shown in _folders(root)
        for folder in (str(Path(place).absolute()), os.path.realpath(place))
        if not _SYSTEM.match(folder)
    }
    text = run.model_dump_json()
    shown = without_machine_paths(text, folders)
    return run if shown == text else Run.model_validate_json(shown)


def _folders(root: Path) -> Iterator[tuple[str | Path, str]]:
    """Folder → what stands for it in a record. Of two entries for one folder the last counts."""
    pythons = (sys.base_prefix, sys.prefix)
    for folder in (str(Path(kbtool.__file__).parents[1]), *filter(None, sys.path)):
        if not any(Path(folder).is_relative_to(python) for python in pythons):
            yield folder, "$PYTHONPATH"
    for python in pythons:
        yield python, "$PYTHON"
    nvcc = shutil.which("nvcc")
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if toolkit or nvcc:
        yield toolkit or Path(nvcc or "").parents[1], "$CUDA_HOME"
    with contextlib.suppress(FileNotFoundError):  # there is none, or none that can be written
        yield tempfile.gettempdir(), "$TMPDIR"
    yield os.path.expanduser("~"), "$HOME"  # noqa: PTH111 (Path.home() fails where there is none)
    yield root, ""
