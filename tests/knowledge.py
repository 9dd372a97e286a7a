"""A small knowledge base for tests, written by hand: each test breaks one thing in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kbtool.checks.check import check_tree
from kbtool.model.finding import Finding
from kbtool.model.run import digest_of_record

SESSION_LINE = "# yaml-language-server: $schema=../../schemas/session.json\n"
PATTERN_LINE = "# yaml-language-server: $schema=../schemas/pattern.json\n"
KERNEL_LINE = "# yaml-language-server: $schema=../../schemas/kernel.json\n"

SESSION = """\
id: {id}
label: {label}
title: A sitting
origin: person
status: complete
"""

PATTERN = """\
id: {id}
number: {number}
title: A lesson
summary: It recurs.
stated_status: operational
problem: Something goes wrong.
solution: Do otherwise.
when_to_use: [always]
when_not: [never]
"""

KERNEL = """\
id: add
title: Add
summary: It adds.
namespace: add
harness: harness.py
targets:
  cpu: {sources: [add.cpp]}
case_fields:
  n: {type: int, help: how many}
case_sets:
  small: {title: Small ones, cases: [{n: 1}, {n: 2}]}
"""

RECIPE = """\
recipes:
  - name: add
    title: Build and validate
    kernel: add
    steps:
      - {id: build, kind: build, title: Build, expected: 1 min, timeout: 5 min}
      - {id: check, kind: validate, title: C, expected: 1 s, timeout: 1 min, case_sets: small}
"""


RUN: dict[str, Any] = {
    "id": "20250101T090000Z-look",
    "session": "2025-01-01-a",
    "recipe": "look",
    "pattern": "P01",
    "parameters": {},
    "status": "passed",
    "started": "2025-01-01T09:00:00Z",
    "ended": "2025-01-01T09:00:02Z",
    "machine": {"python": "3", "kbtool": "0", "os": "L", "cpu": "C", "cores": 1},
    "repository": {},
    "steps": [
        {
            "id": "look", "kind": "environment", "title": "Look", "status": "passed",
            "expected_seconds": 1, "expected_from": "declared",
        }
    ],
}  # fmt: skip

LOOK = """\
recipes:
  - name: look
    title: Look
    steps: [{id: look, kind: environment, title: Look, expected: 1 s, timeout: 9 s}]
"""


def validated(
    minute: int,
    *,
    passed: bool = True,
    reached: bool = True,
    case_set: str = "s",
    attempt: int = 1,
    began: int | None = None,
    **more: Any,
) -> str:
    """The record of a run that validated one case, begun so many minutes after nine.

    Args:
        minute: of the run, and of its validation if that did not begin in an earlier attempt.
        passed: whether the case was right.
        reached: whether all cases were reached.
        case_set: of the case.
        attempt: of the run.
        began: the minute of the first attempt.
        more: fields of the run, or ``step``: fields of the step.
    """
    out = {"passed": passed, "error": 1.0 if passed else 3.0, "bound": 2.0, "torch_error": 1.0}
    case = {
        "case_set": case_set,
        "name": "c",
        "case": {},
        "passed": passed,
        "outputs": {"out": out},
    }
    result = {
        "type": "validation", "sha256": "ab" * 32, "device": "cpu", "seed": 1, "rule": "R",
        "cases": [case], "not_reached": int(not reached),
    }  # fmt: skip
    status = "passed" if passed and reached else "failed" if reached else "interrupted"
    begun = f"2025-01-01T09:{minute:02}:00Z"
    step = {
        **RUN["steps"][0], "id": "check", "kind": "validate", "status": status, "started": begun,
        "result": result, **more.pop("step", {}),
    }  # fmt: skip
    return sealed({
        **RUN, "id": f"20250101T09{minute if began is None else began:02}00Z-look",
        "attempt": attempt, "status": status,
        "started": begun, "ended": f"2025-01-01T09:{minute:02}:02Z", "steps": [step], **more,
    })  # fmt: skip


def from_outside(kind: str = "log", minute: int = 9) -> str:
    """The record of a run that a script or an import (kind ``import``) made, of one value."""
    metrics = [{"name": "rate", "unit": "GB/s", "better": "higher", "values": [10, 12]}]
    named = {"tool": "nvbench", "file": "b.json", "sha256": "ab" * 32} if kind == "import" else {}
    step = {**RUN["steps"][0], "id": kind, "kind": kind, "title": "bench",
            "result": {"type": kind, "metrics": metrics, **named}}  # fmt: skip
    return sealed({**RUN, "id": f"20250101T09{minute:02}00Z-bench", "recipe": None,
                   "pattern": None, "steps": [step], "attempt": 1})  # fmt: skip


def sealed(run: dict[str, Any]) -> str:
    """A run record as its file holds it, with the digest that belongs to it."""
    return json.dumps({**run, "digest": digest_of_record(run)})


RUNNING = """\
id: 2025-01-05-now
label: NOW
title: A sitting that goes on
origin: tool
status: running
started: 2025-01-05T09:00:00+00:00
"""


class Knowledge:
    """Files under a root, and what ``check`` finds in them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("sessions", "patterns", "kernels"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def write(self, path: str, content: str | bytes) -> Path:
        """Write a file, with its folders."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def running(self) -> Path:
        """A session that goes on: `NOW`, since 09:00 of 2025-01-05."""
        return self.write("sessions/2025-01-05-now/session.yaml", SESSION_LINE + RUNNING)

    def session(self, id_: str = "2025-01-01-a", more: str = "", label: str | None = None) -> Path:
        """A sound session with ``more`` appended; its label is the name in its id, in capitals."""
        label = label or re.sub(r"^(\d{4}-\d\d-\d\d|undated)-", "", id_).upper()
        text = SESSION_LINE + SESSION.format(id=id_, label=label) + more
        return self.write(f"sessions/{id_}/session.yaml", text)

    def run(self, text: str) -> str:
        """A run record where it belongs; its id."""
        run = json.loads(text)
        name = run["id"] if run["attempt"] == 1 else f"{run['id']}.{run['attempt']}"
        self.write(f"sessions/{run['session']}/runs/{name}.json", text)
        return str(run["id"])

    def pattern(self, id_: str = "P01", more: str = "") -> Path:
        """A sound pattern with ``more`` appended."""
        return self.write(
            f"patterns/{id_}.yaml",
            PATTERN_LINE + PATTERN.format(id=id_, number=int(id_[1:3])) + more,
        )

    def kernel(self, text: str = KERNEL) -> Path:
        """A sound kernel with its files."""
        self.write("kernels/add/harness.py", "")
        self.write("kernels/add/add.cpp", "")
        return self.write("kernels/add/kernel.yaml", KERNEL_LINE + text)

    def findings(self, *, cached: bool = False, jobs: int | None = 1) -> list[Finding]:
        """Everything that ``check`` finds."""
        return check_tree(self.root, cached=cached, jobs=jobs).findings

    def rules(self) -> list[tuple[str, int]]:
        """Rule and line of everything that ``check`` finds."""
        return [(finding.rule, finding.line) for finding in self.findings()]


def line_of(path: Path, text: str, nth: int = 1) -> int:
    """The line of the nth occurrence of ``text``."""
    lines = [n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line]
    return lines[nth - 1]
